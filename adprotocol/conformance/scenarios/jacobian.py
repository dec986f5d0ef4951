"""`jacobian`: the whole Jacobian, over structures, in both modes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import errors
from adprotocol._dispatch.registry import REGISTRY
from adprotocol.conformance.harness import HIGHER_ORDER
from adprotocol.conformance.scenario import MUST, SHOULD, Decorator, defaults
from adprotocol.conformance.scenarios.grid import compare
from adprotocol.conformance.scenarios.rules import noted, ruled

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked


_JACREV = "JAX: jacrev and jacfwd: https://docs.jax.dev/en/latest/_autosummary/jax.jacrev.html"
_CHUNKS = "PyTorch: chunk_size of jacrev: https://docs.pytorch.org/docs/stable/generated/torch.func.jacrev.html"
_HESSIAN = "JAX: the Hessian over pytrees: https://docs.jax.dev/en/latest/_autosummary/jax.hessian.html"

scenario: Decorator = defaults("jacobian", rule="J12", level=SHOULD, needs=("grad",), source=_JACREV)

_MODES: dict[str, dict[str, Any]] = {"reverse": {"mode": "reverse"}, "forward": {"mode": "forward"}}


def jacobian(h: Checked, fun: Callable[..., Any], mode: Any = None, **chosen: Any) -> Callable[..., Any]:
    """Return what `adprotocol.jacobian` does; a plugin may do without the functions or the levels that it needs."""
    h.absent_if("vectors" in h.without, "every array is a matrix, and a Jacobian has the axes of two")
    if type(h.array(1.0)).__module__ != "numpy":
        h.require_hook("array_functions")
    if mode == "forward" and not h.has(HIGHER_ORDER):
        h.require_hook("jvp")
    return adprotocol.jacobian(fun, mode=mode, backend=h.name, **chosen)


def outputs(m: dict[str, Any]) -> dict[str, Any]:
    """Return s w0 times (1, 2, 4), and w0 w1."""
    return {"vector": m["s"] * m["w"][0] * m["c"], "product": m["w"][0] * m["w"][1], "n": 3}


def model(h: Checked) -> dict[str, Any]:
    """Return w = (3, 5) and s = 7, and the constants (1, 2, 4)."""
    return {"w": h.array([3.0, 5.0]), "s": h.array(7.0), "c": adprotocol.NonDifferentiable(h.array([1.0, 2.0, 4.0]))}


@scenario("over-structures-{name}", level=MUST, params=_MODES)
def over_structures(h: Checked, mode: str) -> None:
    """For each output there is the structure of the gradient, with the shape of the output before that of the leaf.

    Expect of s w0 (1, 2, 4) and w0 w1 at w = (3, 5), s = 7: by w ((7, 0), (14, 0), (28, 0)) and (5, 3), by s (3, 6, 12)
    and 0, None for what is constant; also in chunks of one and two rows.
    """
    for size in (None, 1, 2):
        found = jacobian(h, outputs, mode, chunk_size=size)(model(h))
        vector = {"w": [[7.0, 0.0], [14.0, 0.0], [28.0, 0.0]], "s": [3.0, 6.0, 12.0], "c": None}
        h.assert_gradients(found["vector"], vector, f"in chunks of {size}, the Jacobian of the vector")
        h.assert_gradients(found["product"], {"w": [5.0, 3.0], "s": 0.0, "c": None}, "the Jacobian of the product")
        h.assert_is(found["n"], None, "the Jacobian of the number")


@scenario("of-a-matrix-{name}", params=_MODES)
def of_a_matrix(h: Checked, mode: str) -> None:
    """Rows of a matrix come before its columns, in the output and in the leaf.

    Expect of 2 x at ((1, 2, 3), (4, 5, 6)): 2 where the two places are one, else 0.
    """
    import numpy as np

    found = jacobian(h, lambda x: 2.0 * x, mode)(h.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    h.assert_equal(found, 2.0 * np.eye(6).reshape(2, 3, 2, 3), "the Jacobian")


@scenario("of-a-vector-{name}", params=_MODES)
def of_a_vector(h: Checked, mode: str) -> None:
    """Rows are the outputs and columns the inputs; the auxiliary output comes beside it.

    Expect of (x0 + 2 x1) x at (3, 5): ((16, 6), (5, 23)), and x / 2; the function runs once in reverse mode.
    """
    runs = list[Any]()
    fun = lambda x: ((x[0] + 2.0 * x[1]) * noted(runs, 1, x), x / 2.0)  # noqa: E731
    found, aux = jacobian(h, fun, mode, has_aux=True)(h.array([3.0, 5.0]))
    h.assert_equal(found, [[16.0, 6.0], [5.0, 23.0]], "the Jacobian")
    h.assert_equal(aux, [1.5, 2.5], "the auxiliary output")
    h.check(mode == "forward" or len(runs) == 1, f"the function ran {len(runs)} times")


@scenario()
def chosen_mode(h: Checked) -> None:
    """Without a mode the Jacobian is the same, of one number and of many, and `where` and `argnums` select.

    Expect of x y at x = 2, y = (3, 5): by x (3, 5), by y ((2, 0), (0, 2)); ArgumentError for another mode; the basis
    that forward mode needs has 1 at element i of number i + start.
    """
    import numpy as np

    x, y = h.array(2.0), h.array([3.0, 5.0])
    h.assert_equal(jacobian(h, lambda x, y: x * y)(x, y), [3.0, 5.0], "by the number")
    of_x, of_y = jacobian(h, lambda x, y: x * y, argnums=(0, 1))(x, y)
    h.assert_equal(of_x, [3.0, 5.0], "by the first argument")
    h.assert_equal(of_y, [[2.0, 0.0], [0.0, 2.0]], "by the second argument")
    only = jacobian(h, lambda m: m["x"] * m["y"], where="x")({"x": x, "y": y})
    h.assert_gradients(only, {"x": [3.0, 5.0], "y": None})
    basis: Any = REGISTRY.known()[h.name].hooks["array_functions"]().basis
    for start in (0, 1, -1):
        h.assert_equal(basis(y, 3, start), np.eye(3, 2, -start), f"the basis from {start}")
    for wrong in ({"mode": "sideways"}, {"chunk_size": 0}):
        with h.raises(errors.ArgumentError):
            jacobian(h, lambda x: x, **wrong)(x)


@scenario("empty-{name}", params=_MODES)
def empty(h: Checked, mode: str) -> None:
    """Empty outputs and leaves have empty rows.

    Expect of (x, e) with e empty at x = (1, 2): the identity, and the shapes (2, 0), (0, 2) and (0, 0).
    """
    m = {"x": h.array([1.0, 2.0]), "e": h.array([])}
    found = jacobian(h, lambda m: {"x": 1.0 * m["x"], "e": 2.0 * m["e"]}, mode)(m)
    h.assert_equal(found["x"]["x"], [[1.0, 0.0], [0.0, 1.0]], "the Jacobian")
    shapes = [h.numpy(found[of][by]).shape for of, by in (("x", "e"), ("e", "x"), ("e", "e"))]
    h.check(shapes == [(2, 0), (0, 2), (0, 0)], f"the shapes beside it are {shapes}")


@scenario("one-by-one-{name}", params=_MODES, source=_CHUNKS)
def one_by_one(h: Checked, mode: str) -> None:
    """In chunks of one row nothing is batched: Python may branch on values there where it may in one product.

    Expect of x ** 2 at (1, 2) ((2, 0), (0, 4)), with values at hand in function and rule as where there is one row.
    """
    plain, branched = list[bool](), list[bool]()

    def rule(answers: list[bool]) -> Any:
        def fun(x: Any) -> Any:
            return noted(answers, adprotocol.is_concrete(x), x * x)

        def vjp(ct: Any, _: Any, x: Any) -> Any:
            return (noted(answers, adprotocol.is_concrete(ct), 2.0 * ct * x),)

        return ruled(h, fun, vjp, lambda ts, _, x: noted(answers, adprotocol.is_concrete(ts), 2.0 * ts[0] * x))

    h.assert_equal(jacobian(h, rule(plain), mode)(h.array([1.0])), [[2.0]], "the Jacobian of one number")
    found = jacobian(h, rule(branched), mode, chunk_size=1)(h.array([1.0, 2.0]))
    h.assert_equal(found, [[2.0, 0.0], [0.0, 4.0]], "the Jacobian")
    h.check(set(branched) == set(plain), f"values are at hand: {plain} for one row, {branched} in chunks of one row")


@scenario("hessian-{name}", rule="J13", needs=("grad", HIGHER_ORDER), params=_MODES, source=_HESSIAN)
def hessian(h: Checked, mode: str) -> None:
    """The Jacobian of a gradient is the Hessian over structures; Jacobians nest, in any mixture of modes.

    Expect of a a b0 b1 at a = 3, b = (5, 7): ((70, (42, 30)), ((42, 30), ((0, 9), (9, 0)))).
    """
    m = {"a": h.array(3.0), "b": h.array([5.0, 7.0])}

    def loss(m: dict[str, Any]) -> Any:
        return m["a"] * m["a"] * m["b"][0] * m["b"][1]

    inner: list[Any] = [
        adprotocol.grad(loss, backend=h.name),
        *(jacobian(h, loss, inner) for inner in ("reverse", "forward")),
    ]
    for gradient in inner:
        found = jacobian(h, gradient, mode)(m)
        h.assert_gradients(found["a"], {"a": 70.0, "b": [42.0, 30.0]}, "the Hessian by a")
        h.assert_gradients(found["b"], {"a": [42.0, 30.0], "b": [[0.0, 9.0], [9.0, 0.0]]}, "the Hessian by b")


@scenario(rule="J14", needs=("grad", "operations"))
def of_complex_numbers(h: Checked) -> None:
    """Reverse mode refuses a complex output and forward mode a complex leaf, and each names the other.

    Expect OutputError and ArgumentError with the name of the other mode, for each operation that makes such numbers.
    """
    x = h.array([2.0, 3.0])
    for operation in h.operations().values():
        if h.numpy(operation(x)).dtype.kind == "c":
            with h.raises(errors.OutputError, words=["forward"]):
                jacobian(h, operation, "reverse")(x)
            with h.raises(errors.ArgumentError, words=["reverse"]):
                jacobian(h, lambda z: z * z, "forward")(operation(x))


@scenario(rule="J6", transform=("grad", "jit", "vmap", "jvp", "checkpoint"), varies=True, source=_CHUNKS)
def inside(h: Checked, transforms: str) -> None:
    """A Jacobian is computed inside of a transformation, in reverse mode and in the one that suits one number.

    Expect of the derivative 3 x ** 2 of x ** 3 at 2.5 what the transformation makes of it.
    """
    h.absent_if(transforms in ("grad", "jvp") and not h.has(HIGHER_ORDER), "the system has no second derivative")
    for mode in ("reverse", None):
        compare(h, transforms, jacobian(h, lambda x: x * x * x, mode), lambda x: [3.0 * x * x, 6.0 * x, 6.0])
