"""What may stand between a variable and the question: reductions, selections, casts, indexing; dtypes and shapes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance.checks import Absent
from adprotocol.conformance.scenario import scenario
from adprotocol.conformance.scenarios.query import natively
from adprotocol.conformance.scenarios.staged import staged, trace
from adprotocol.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked

_LOST = "PyTorch: operations that lose requires_grad: https://docs.pytorch.org/docs/stable/notes/autograd.html"
_REALIZED = "tinygrad: realize keeps no graph: https://docs.tinygrad.org/tensor/properties/"
_DTYPES = "JAX: dtypes that carry derivatives: https://github.com/jax-ml/jax/issues/15861"


def _cast(h: Checked, v: Any) -> Any:
    return h.cast(v, h.dtypes()[-1])


# From a name to the capabilities needed and the operation, from a vector of two to an array.
OPERATIONS: dict[str, tuple[tuple[str, ...], Callable[[Checked, Any], Any]]] = {
    "sum": (("sum",), lambda h, v: h.sum(v)),
    "where": (("where",), lambda h, v: h.where(v > 1.0, v, 2.0 * v)),
    "where-of-constants": (("where",), lambda h, v: h.where(h.array([True, False]), v, h.array([5.0, 7.0]))),
    "cast": (("cast", "dtypes"), _cast),
    "cast-there-and-back": (("cast", "dtypes"), lambda h, v: h.cast(_cast(h, v), h.dtypes()[0])),
    "index": ((), lambda _, v: v[1]),
    "slice": ((), lambda _, v: v[0:1]),
    "broadcast": ((), lambda h, v: v * h.array([[1.0, 2.0], [3.0, 4.0]])),
    "power": ((), lambda _, v: v**3),
    "division": ((), lambda _, v: 1.0 / v),
}


def _scalar(array: Any) -> Any:
    """Return one element, by indexing alone."""
    # In a symbolic system the shape is an array too, and the number of dimensions is not.
    rank = getattr(array, "ndim", None)
    for _ in range(rank if isinstance(rank, int) else len(array.shape)):
        array = array[0]
    return array


def follows(h: Checked, transforms: str, operation: str) -> None:
    """Ask about the result of an operation on the variable, 3 times its element, and on a constant, 11 times."""
    _, apply = OPERATIONS[operation]
    constant, v, along = h.array([2.0, 3.0]), h.array([2.0, 3.0]), h.array([1.0, 1.0])
    outer, _, inner = transforms.partition(" of ")

    def element(v: Any, factor: Callable[[Any, float, float], Any]) -> Any:
        return _scalar(factor(apply(h, v), 3.0, 5.0)) * _scalar(factor(apply(h, constant), 7.0, 11.0))

    def derivative(f: Callable[[Any], Any]) -> Any:
        return h.grad(f)(v) if outer == "grad" else h.jvp(f, v, along)[1]

    def compiled(factor: Callable[[Any, float, float], Any]) -> Callable[[Any], Any]:
        def f(v: Any) -> Any:
            return element(v, factor)

        return getattr(h, inner)(f) if inner else f

    plain, asking = compiled(lambda array, *_: array), compiled(h.scaled)
    try:
        want = h.numpy(derivative(plain))
    except Exception as error:
        msg = f"the system itself refuses it: {one_line(error, 160)}"
        raise Absent(msg) from error
    h.equal(asking(v), 55.0 * h.numpy(plain(v)), "the plain value")
    h.equal(derivative(asking), 33.0 * want, "the derivative")
    h.equal(asking(v), 55.0 * h.numpy(plain(v)), "the plain value afterwards")


for _name in OPERATIONS:
    for _transforms in ("grad", "jvp", "grad of jit", "grad of compile"):
        scenario(
            f"within_gradient/after-{_name}-{_transforms.replace(' ', '-')}",
            rule="W1",
            transform=_transforms,
            needs=(*nesting.needs(_transforms), *OPERATIONS[_name][0]),
            source=_LOST,
            expects="3 times the result for the variable and 11 times for a constant; 5 and 11 times plain",
            summary=f"The result of {_name.replace('-', ' ')} is tracked as its operand is, under {_transforms}.",
        )(functools.partial(follows, transforms=_transforms, operation=_name))


def after_each_operation(h: Checked, transforms: str) -> None:
    """Let the answer about the result of each operation of the harness decide a factor of its operand."""
    constant, v, along = h.array([2.0, 3.0]), h.array([2.0, 3.0]), h.array([1.0, 0.0])
    outer, _, inner = transforms.partition(" of ")

    def compiled(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return getattr(h, inner)(f) if inner else f

    def derivative(f: Callable[[Any], Any]) -> Any:
        return h.grad(f)(v)[0] if outer == "grad" else h.jvp(f, v, along)[1]

    refused: dict[str, str] = {}
    for name, operation in h.operations().items():

        def chosen(x: Any, v: Any, inside: float, outside: float, operation: Any = operation) -> Any:
            return adprotocol.cond(h.asks(operation(x)), lambda v: inside * v, lambda v: outside * v, v)

        def plain(v: Any, operation: Any = operation) -> Any:
            operation(constant)
            operation(v)
            return v[0]

        def both(v: Any, chosen: Callable[..., Any] = chosen) -> Any:
            return chosen(constant, chosen(v, v, 3.0, 5.0), 7.0, 11.0)[0]

        f = compiled(both)
        try:
            derivative(compiled(plain))
        except Exception as error:  # noqa: BLE001  (whatever it is, it is how the system refuses)
            refused[name] = one_line(error, 160)
            continue
        h.equal(f(v), 110.0, f"{name}: the plain value")
        h.equal(derivative(f), 33.0, f"{name}: the derivative")
        h.equal(f(v), 110.0, f"{name}: the plain value afterwards")
    if len(refused) == len(h.operations()):
        msg = f"the system itself refuses each of its operations: {next(iter(refused.values()))}"
        raise Absent(msg)


for _transforms in ("grad", "jvp", "grad of jit", "grad of compile"):
    scenario(
        f"within_gradient/after-each-operation-{_transforms.replace(' ', '-')}",
        rule="W1",
        transform=_transforms,
        needs=(*nesting.needs(_transforms), "operations"),
        source=_LOST,
        expects="33 x for the variable, 3 by the answer about its result and 11 by that of a constant; 55 x plain: 110",
        summary=f"The result of each operation of the harness is tracked as its operand is, under {_transforms}.",
    )(functools.partial(after_each_operation, transforms=_transforms))


SHAPES: tuple[Any, ...] = (2.0, [2.0], [2.0, 2.0, 2.0], [[2.0, 2.0], [2.0, 2.0]])


def _each(h: Checked) -> Any:
    """Yield the name of each dtype, and an array of it in each shape."""
    for dtype in h.dtypes():
        for value in SHAPES:
            yield f"{dtype}, {value}", h.cast(h.array(value), dtype)


def _coarse(h: Checked, got: Any, want: float, what: str) -> None:
    """Compare all elements with a small integer, which every floating-point dtype has."""
    import numpy as np  # noqa: PLC0415  (--list does without)

    found = np.asarray(h.numpy(got), dtype=float)
    h.holds(bool(np.all(np.abs(found - want) < 0.01)), f"{what}: {found} was found, {want:g} expected")  # noqa: PLR2004


@scenario(
    "within_gradient/each-dtype-and-shape",
    rule="W1",
    transform="grad",
    needs=("grad", "dtypes", "cast"),
    source=_DTYPES,
    expects="the gradient 3 of one element of 3 x, for x of each floating-point dtype and shape; 5 x plain",
)
def each_dtype_and_shape(h: Checked) -> None:
    """A variable of each floating-point dtype and shape is tracked, and not where nobody differentiates it."""
    for what, x in _each(h):
        _coarse(h, h.layer(x), 10.0, f"plain, {what}")
        _coarse(h, _scalar(h.grad(lambda x: _scalar(h.layer(x)))(x)), 3.0, what)


@scenario(
    "non_differentiable/each-dtype-and-shape",
    rule="N1",
    transform="grad",
    needs=("grad", "dtypes", "cast"),
    source=_DTYPES,
    expects="c x with c the constant of x, 2: the gradient 2 in one element, for each floating-point dtype and shape",
)
def constant_of_each_dtype_and_shape(h: Checked) -> None:
    """The constant of a variable of each floating-point dtype and shape has its value, and no derivative."""
    for what, x in _each(h):
        _coarse(h, adprotocol.non_differentiable(x), 2.0, f"plain, {what}")
        found = h.grad(lambda x: _scalar(adprotocol.non_differentiable(x) * x))(x)
        _coarse(h, _scalar(found), 2.0, what)


@scenario(
    "cond/each-dtype-and-shape",
    rule="C4",
    transform="grad",
    needs=("grad", "dtypes", "cast"),
    source=_DTYPES,
    expects="3 x where an element is above 1, else x - x: the gradient 3, for each floating-point dtype and shape",
)
def branch_of_each_dtype_and_shape(h: Checked) -> None:
    """Branches take and return variables of each floating-point dtype and shape."""
    for what, x in _each(h):

        def f(x: Any) -> Any:
            return adprotocol.cond(_scalar(x) > 1.0, lambda x: 3.0 * x, lambda x: x - x, x)

        _coarse(h, f(x), 6.0, f"plain, {what}")
        _coarse(h, _scalar(h.grad(lambda x, f=f: _scalar(f(x)))(x)), 3.0, what)


@staged(
    "cond/number-beside-each-dtype",
    rule="C5",
    needs=("dtypes", "cast"),
    source=_DTYPES,
    expects="2 x where x > 1, else the number 1.5: 4 at 2, 1.5 at 0.5, for x of each floating-point dtype",
)
def number_beside_each_dtype(h: Checked, way: str) -> None:
    """A Python number from one branch agrees with an array of any dtype from the other, under {way}."""
    first = trace(h, way, lambda x: adprotocol.cond(x < 1.0, lambda x: 1.5, lambda x: 2.0 * x, x))  # noqa: ARG005
    second = trace(h, way, lambda x: adprotocol.cond(x > 1.0, lambda x: 2.0 * x, lambda x: 1.5, x))  # noqa: ARG005
    for dtype in h.dtypes():
        for at, want in ((2.0, 4.0), (0.5, 1.5)):
            x = h.cast(h.array(at), dtype)
            _coarse(h, first(x), want, f"the number first, at {at}, {dtype}")
            _coarse(h, second(x), want, f"the number second, at {at}, {dtype}")


@scenario(
    "value_and_grad/number-beside-each-dtype",
    rule="T10",
    transform="grad",
    needs=("grad", "dtypes", "cast"),
    source=_DTYPES,
    expects="x n at 3 and the number 2.0: the gradients 2 and 3, for x of each floating-point dtype",
)
def number_leaf_beside_each_dtype(h: Checked) -> None:
    """A Python float is a leaf beside an array of any floating-point dtype."""
    for dtype in h.dtypes():
        x = h.cast(h.array(3.0), dtype)
        value, gradient = adprotocol.value_and_grad(lambda m: m["x"] * m["n"])({"x": x, "n": 2.0})
        _coarse(h, value, 6.0, f"the value, {dtype}")
        _coarse(h, gradient["x"], 2.0, f"the gradient of the array, {dtype}")
        _coarse(h, gradient["n"], 3.0, f"the gradient of the number, {dtype}")


@scenario(
    "value_and_grad/each-dtype",
    rule="T1",
    transform="grad",
    needs=("grad", "dtypes", "cast"),
    source=_DTYPES,
    expects="x x at 2 in a dict: value 4, gradient 4 of the dtype of x, for each floating-point dtype",
)
def model_of_each_dtype(h: Checked) -> None:
    """A leaf of each floating-point dtype takes a gradient of that dtype."""
    for dtype in h.dtypes():
        x = h.cast(h.array(2.0), dtype)
        value, gradient = adprotocol.value_and_grad(lambda m: m["x"] * m["x"])({"x": x, "n": 1})
        _coarse(h, value, 4.0, f"the value, {dtype}")
        _coarse(h, gradient["x"], 4.0, f"the gradient, {dtype}")
        h.holds(
            h.numpy(gradient["x"]).dtype == h.numpy(x).dtype,
            f"the gradient of a leaf of {h.numpy(x).dtype} has dtype {h.numpy(gradient['x']).dtype}",
        )


@scenario(
    "non_differentiable/evaluated",
    rule="N1",
    transform="grad",
    needs=("grad", "evaluate"),
    source=_REALIZED,
    expects="c x with c = constant(x x), computed at once and asked: 5 c x = 40 at 2, gradient 20; 2 c so: 80 and 40",
)
def evaluated(h: Checked) -> None:
    """A constant stays one when its value is computed, or what is computed from it."""

    def of_constant(x: Any) -> Any:
        c = adprotocol.non_differentiable(x * x)
        return h.scaled(h.evaluate(2.0 * c), 3.0, 5.0) * x

    def constant(x: Any) -> Any:
        c = adprotocol.non_differentiable(x * x)
        return h.scaled(h.evaluate(c), 3.0, 5.0) * x

    x = h.array(2.0)
    h.value_and_gradient(constant, (x,), 40.0, 20.0, "a constant")
    h.value_and_gradient(of_constant, (x,), 80.0, 40.0, "computed from a constant")
    c = h.evaluate(adprotocol.non_differentiable(h.evaluate(x * x)))
    h.value_and_gradient(lambda x: h.scaled(c, 3.0, 5.0) * x, (x,), 40.0, 20.0, "a constant from outside")


@scenario(
    "within_gradient/evaluated",
    rule="W1",
    transform="grad",
    needs=("grad", "evaluate"),
    source=_REALIZED,
    expects="3 x x x with x x computed at once and asked: 24 at 2, gradient 36",
)
def evaluated_variable(h: Checked) -> None:
    """What is differentiated stays tracked when its value is computed, if the system keeps it so."""
    x = h.array(2.0)
    natively(h, lambda: h.grad(lambda x: h.evaluate(x * x) * x)(x), 12.0)
    h.value_and_gradient(lambda x: h.scaled(h.evaluate(x * x), 3.0, 5.0) * x, (x,), 24.0, 36.0)


@scenario(
    "value_and_grad/evaluated",
    rule="T9",
    transform="grad",
    needs=("grad", "evaluate"),
    source=_REALIZED,
    expects="x x x with x x computed at once: 8 at 2, gradient 12; or an error, where the system loses the derivative",
)
def evaluated_in_a_gradient(h: Checked) -> None:
    """In our gradient a value that is computed keeps its derivative, or that is refused: it is never lost silently."""
    x = h.array(2.0)
    try:
        value, gradient = adprotocol.value_and_grad(lambda m: h.evaluate(m["x"] * m["x"]) * m["x"])({"x": x})
    except adprotocol.ADProtocolError:
        natively(h, lambda: h.grad(lambda x: h.evaluate(x * x) * x)(x), 12.0)
        raise
    h.equal(value, 8.0, "the value")
    h.equal(gradient["x"], 12.0, "the gradient")
