"""What may stand between a variable and the question: reductions, selections, casts, indexing; dtypes and shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.checks import Absent, WrongAnswer
from adprotocol.conformance.scenario import defaults
from adprotocol.conformance.scenarios.arrays import assert_near, each_array, first_element
from adprotocol.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


_LOST = "PyTorch: operations that lose requires_grad: https://docs.pytorch.org/docs/stable/notes/autograd.html"

scenario: Decorator = defaults("within_gradient", rule="W1")


def _cast(h: Checked, v: Any) -> Any:
    return h.cast(v, h.dtypes()[-1])


# Operations from a vector of two to an array.
_OPERATIONS: dict[str, dict[str, Any]] = {
    "sum": {"also_needs": ("sum",), "operation": lambda h, v: h.sum(v)},
    "where": {"also_needs": ("where",), "operation": lambda h, v: h.where(v > 1.0, v, 2.0 * v)},
    "where-of-constants": {
        "also_needs": ("where",),
        "operation": lambda h, v: h.where(h.array([True, False]), v, h.array([5.0, 7.0])),
    },
    "where-beside-constants": {
        "also_needs": ("where",),
        "operation": lambda h, v: h.where(h.array([False, True]), h.array([5.0, 7.0]), v),
    },
    "cast": {"also_needs": ("cast", "dtypes"), "operation": _cast},
    "cast-there-and-back": {
        "also_needs": ("cast", "dtypes"),
        "operation": lambda h, v: h.cast(_cast(h, v), h.dtypes()[0]),
    },
    "index": {"operation": lambda _, v: v[1]},
    "slice": {"operation": lambda _, v: v[0:1]},
    "broadcast": {"operation": lambda h, v: v * h.array([[1.0, 2.0], [3.0, 4.0]])},
    "power": {"operation": lambda _, v: v**3},
    "division": {"operation": lambda _, v: 1.0 / v},
}


@scenario("after-{name}", transform=("grad", "jvp", "grad of jit", "grad of compile"), source=_LOST, params=_OPERATIONS)
def follows(h: Checked, transforms: str, operation: Callable[[Checked, Any], Any]) -> None:
    """The result of {name} is tracked as its operand is, under {transforms}.

    Expect 3 times the result for the variable and 11 times for a constant; 5 and 11 times plain.
    """
    constant, v, along = h.array([2.0, 3.0]), h.array([2.0, 3.0]), h.array([1.0, 1.0])
    outer, _, inner = transforms.partition(" of ")

    def element(v: Any, factor: Callable[[Any, float, float], Any]) -> Any:
        return first_element(factor(operation(h, v), 3.0, 5.0)) * first_element(
            factor(operation(h, constant), 7.0, 11.0)
        )

    def derivative(f: Callable[[Any], Any]) -> Any:
        return h.grad(f)(v) if outer == "grad" else h.jvp(f, v, along)[1]

    def compiled(factor: Callable[[Any, float, float], Any]) -> Callable[[Any], Any]:
        def f(v: Any) -> Any:
            return element(v, factor)

        return getattr(h, inner)(f) if inner else f

    plain, asking = compiled(lambda array, *_: array), compiled(h.scale)
    try:
        want = h.numpy(derivative(plain))
    except Exception as error:
        msg = f"the system itself refuses it: {one_line(error, 160)}"
        raise Absent(msg) from error
    h.assert_equal(asking(v), 55.0 * h.numpy(plain(v)), "the plain value")
    h.assert_equal(derivative(asking), 33.0 * want, "the derivative")
    h.assert_equal(asking(v), 55.0 * h.numpy(plain(v)), "the plain value afterwards")


@scenario(transform=("grad", "jvp", "grad of jit", "grad of compile"), also_needs=("operations",), source=_LOST)
def after_each_operation(h: Checked, transforms: str) -> None:
    """The result of each operation of the harness is tracked as its operand is, under {transforms}.

    Let the answer about the result of each operation of the harness decide a factor of its operand.

    x is multiplied by 3 for the operation's result of x, by 11 for its result of an array and by 17 for that of the
    constant of x: 561 x, in a gradient; 935 x = 1870 plain, and in the gradient of an operation through which the
    system passes no derivative.
    """
    constant, v, along = h.array([2.0, 3.0]), h.array([2.0, 3.0]), h.array([1.0, 0.0])
    outer, _, inner = transforms.partition(" of ")

    def compiled(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return getattr(h, inner)(f) if inner else f

    def derivative(f: Callable[[Any], Any]) -> Any:
        return h.grad(f)(v)[0] if outer == "grad" else h.jvp(f, v, along)[1]

    refused: dict[str, str] = {}
    for name, operation in h.operations().items():

        def chosen(x: Any, v: Any, inside: float, outside: float, operation: Any = operation) -> Any:
            return adprotocol.cond(h.query(operation(x)), lambda v: inside * v, lambda v: outside * v, v)

        def plain(v: Any, operation: Any = operation) -> Any:
            operation(constant)
            operation(v)
            return v[0]

        def both(v: Any, chosen: Callable[..., Any] = chosen) -> Any:
            asked = chosen(constant, chosen(v, v, 3.0, 5.0), 7.0, 11.0)
            return chosen(adprotocol.non_differentiable(v), asked, 13.0, 17.0)[0]

        f = compiled(both)
        try:
            factor = 3.0 if _passes_derivatives(h, operation, v) else 5.0
            h.assert_equal(f(v), 1870.0, f"{name}: the plain value")
            h.assert_equal(derivative(f), 187.0 * factor, f"{name}: the derivative")
            h.assert_equal(f(v), 1870.0, f"{name}: the plain value afterwards")
        except WrongAnswer:
            raise
        except Exception:  # noqa: BLE001  (raised again unless the system is the cause)
            # Where the system refuses the operation by itself, nothing is told of the answers.
            try:
                derivative(compiled(plain))
                _passes_derivatives(h, operation, v)
            except Exception as error:  # noqa: BLE001  (whatever it is, it is how the system refuses)
                refused[name] = one_line(error, 160)
            else:
                raise
    if len(refused) == len(h.operations()):
        msg = f"the system itself refuses each of its operations: {next(iter(refused.values()))}"
        raise Absent(msg)


def _passes_derivatives(h: Checked, operation: Callable[[Any], Any], v: Any) -> bool:
    """Tell whether the system itself has a derivative of an operation: what takes floats apart into bits has none."""
    if not h.has("grad", "sum") or h.numpy(operation(v)).dtype.kind != "f":
        return True
    return bool(h.numpy(h.grad(lambda v: h.sum(operation(v) ** 2))(v)).any())


@scenario(
    transform="grad",
    needs=("grad", "dtypes", "cast"),
    source="JAX: dtypes that carry derivatives: https://github.com/jax-ml/jax/issues/15861",
)
def each_dtype_and_shape(h: Checked) -> None:
    """A variable of each floating-point dtype and shape is tracked, and not where nobody differentiates it.

    Expect the gradient 6 of one element of 3 x c, c the constant of x = 2, for x of each floating-point dtype and
    shape; 5 x plain.
    """
    for what, x in each_array(h):
        assert_near(h, h.probe(x), 10.0, f"plain, {what}")
        gradient = h.grad(lambda x: first_element(h.probe(x) * adprotocol.non_differentiable(x)))(x)
        assert_near(h, first_element(gradient), 6.0, what)


@scenario(
    transform="grad",
    needs=("grad", "evaluate"),
    source="tinygrad: realize keeps no graph: https://docs.tinygrad.org/tensor/properties/",
)
def evaluated(h: Checked) -> None:
    """What is differentiated stays tracked when its value is computed, if the system keeps it so.

    Expect 3 x ** 3 with x ** 2 computed at once and asked: 24 at 2, gradient 36; the same if it is computed twice.
    """
    x = h.array(2.0)
    h.require_native(lambda: h.grad(lambda x: h.evaluate(x * x) * x)(x), 12.0)
    h.assert_value_and_grad(lambda x: h.probe(h.evaluate(x * x)) * x, (x,), 24.0, 36.0)
    h.assert_value_and_grad(lambda x: h.probe(h.evaluate(0.5 * h.evaluate(2.0 * x * x))) * x, (x,), 24.0, 36.0, "twice")
