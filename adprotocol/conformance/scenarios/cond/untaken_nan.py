"""A NaN of the branch not taken, in operands and in closures, under nestings of compilers, batches and gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance.checks import Absent
from adprotocol.conformance.scenario import defaults
from adprotocol.conformance.scenarios.grid import X
from adprotocol.conformance.scenarios.within_gradient.parameters import NEEDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


scenario: Decorator = defaults(
    "cond",
    rule="C4",
    source="JAX: where and the gradient of what is not selected: https://github.com/jax-ml/jax/issues/1052",
)

_NESTINGS = (
    "grad",
    "jvp",
    "grad of jit",
    "jit of grad",
    "jvp of jit",
    "grad of compile",
    "compile of grad",
    "vmap of grad",
    "grad of vmap",
    "jit of vmap of grad",
    "grad of jit of vmap",
    "jit of grad of vmap",
    "grad of grad",
    "jit of grad of grad",
    "grad of checkpoint",
    "grad of scan",
)


# Above all points, those of a batch included.
FAR = 100.0


def _bad(x: Any) -> Any:
    """Return 0 / 0 for every x."""
    return (x - x) / (x - x)


def _root(x: Any) -> Any:
    """Return the square root of -x x: NaN, with a derivative that is NaN too."""
    return (-1.0 * x * x) ** 0.5


def _operand(x: Any) -> Any:
    def bad(x: Any, tree: Any) -> Any:
        return _root(x) * _root(tree["x"][0])

    return adprotocol.cond(x > FAR, bad, lambda x, tree: x * x * tree["x"][0], x, {"x": [x]})


def _closure(x: Any) -> Any:
    return adprotocol.cond(x > FAR, lambda: _root(x), lambda: x * x * x)


def _of_a_result(x: Any) -> Any:
    squared = x * x
    return adprotocol.cond(x > FAR, lambda: _bad(squared), lambda: squared * x)


def _nested(x: Any) -> Any:
    return adprotocol.cond(
        x < FAR, lambda: adprotocol.cond(2.0 * x > FAR, lambda: _bad(x), lambda: x * x * x), lambda: _root(x)
    )


_PROGRAMS: dict[str, dict[str, Any]] = {
    "operand": {"program": _operand, "what": "the root of -x x, an operand, and in a structure another"},
    "closure": {"program": _closure, "what": "the root of -x x, with x closed over"},
    "closed-over-result": {"program": _of_a_result, "what": "0 / 0 of x x, computed outside and closed over"},
    "nested": {"program": _nested, "what": "0 / 0 in a branch of a branch"},
}


def cube(x: float) -> list[float]:
    """Return the derivatives of x ** 3."""
    return [x**3, 3 * x**2, 6 * x, 6.0]


@scenario("nan-in-{name}", transform=_NESTINGS, params=_PROGRAMS)
def untaken_nan(h: Checked, transforms: str, program: Callable[[Any], Any], what: str) -> None:
    """A NaN not taken, {what}, stays out under {transforms}.

    Expect {transforms} of x ** 3 at 2.5.
    """
    h.assert_equal(h.nest(transforms, program)(h.array(X)), nesting.expected(transforms, cube)(X)[0], what)


@scenario(transform=("grad of grad of vmap", "jvp of jvp of vmap"))
def nan_among_rows_in_second_order(h: Checked, transforms: str) -> None:
    """A NaN not taken stays out where tangents and cotangents are differentiated again, under {transforms}.

    Expect {transforms} of x ** 3 at 2.5, with 0 / 0 in either branch, x x / x before and y z / y of both behind.
    """

    def f(x: Any) -> Any:
        x = x * x / x
        y = adprotocol.cond(x > FAR, lambda: _bad(x), lambda: x * x * x)
        z = adprotocol.cond(x < FAR, lambda: x * x * x, lambda: _bad(x))
        return y * z / y

    h.assert_equal(h.nest(transforms, f)(h.array(X)), nesting.expected(transforms, cube)(X)[0])


@scenario(transform=("grad of jit", "vmap of grad", "grad of vmap"), also_needs=("operations", "cast", "dtypes"))
def complex_nan(h: Checked, transforms: str) -> None:
    """A complex NaN not taken stays out under {transforms}.

    Expect {transforms} of the real part of z ** 3 for the complex z of x, that of x ** 3, at 2.5; 0 / 0 of z is beside
    it.
    """
    lift = h.operations().get("complex")
    if lift is None:
        msg = "the system names no operation from real numbers to complex ones"
        raise Absent(msg)

    def real(z: Any) -> Any:
        return h.cast(z, h.dtypes()[0])

    def f(x: Any) -> Any:
        return real(adprotocol.cond(x > FAR, _bad, lambda z: z * z * z, lift(x)))

    want = nesting.expected(transforms, cube)(X)[0]
    h.require_native(lambda: h.nest(transforms, lambda x: real(lift(x) * lift(x) * lift(x)))(h.array(X)), want)
    h.assert_equal(h.nest(transforms, f)(h.array(X)), want)


@scenario(
    rule="C6",
    needs=NEEDS,
    source="TensorFlow: tapes watch trainable variables: https://www.tensorflow.org/guide/autodiff",
)
def parameters_in_branches(h: Checked) -> None:
    """Branches may read parameters, and what is not taken leaves no NaN in their gradient.

    Expect p ** 2 where the parameter p is above 1, else 2 p, with a NaN in a branch that is not taken: the gradient 6
    at 3, and 2 at 0.5.
    """
    for value, want in ((3.0, 6.0), (0.5, 2.0)):
        p = h.parameter(value, trains=True)

        def bad(p: Any = p) -> Any:
            return (p - p) / (p - p)

        def f(p: Any = p, bad: Any = bad) -> Any:
            chosen = adprotocol.cond(p > 1.0, lambda: p * p, lambda: 2.0 * p)
            return adprotocol.cond(p > FAR, bad, lambda: 1.0 * chosen)

        h.assert_equal(h.parameter_grad(f, p), want, f"the gradient at {value}")
