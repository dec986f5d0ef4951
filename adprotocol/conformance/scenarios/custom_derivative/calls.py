"""Calls of functions with rules: what they close over and keep, one within another, and after errors."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.checks import Absent, Checked
from adprotocol.conformance.scenario import SHOULD, Decorator, defaults
from adprotocol.conformance.scenarios.grid import compare
from adprotocol.conformance.scenarios.programs import PATIENCE, in_threads
from adprotocol.conformance.scenarios.rules import (
    FUNCTION_SOURCE,
    VJP_SOURCE,
    ruled,
    square,
    vjp_of_cube,
)
from adprotocol.errors import GradientPreventedError, RuleError

if TYPE_CHECKING:
    from collections.abc import Callable


scenario: Decorator = defaults("custom_derivative", rule="D11", source=VJP_SOURCE, transform="grad")


@scenario(transform=("grad", "jvp", "grad of jit", "grad of vmap"))
def closed_over(h: Checked, transforms: str) -> None:
    """A differentiated value that the function closes over is an error, and not a constant, under {transforms}.

    Expect x z for a function of x that closes over z: 6 at z = 2 plain; an error in a derivative by z, which the
    function or its rule closes over.
    """
    x = h.array(3.0)

    def f(z: Any) -> Any:
        return ruled(h, lambda x: x * z, lambda ct, *_: (ct,))(x)

    h.assert_equal(f(h.array(2.0)), 6.0, "the plain value")
    with h.raises(Exception):
        h.nest(transforms, f)(h.array(2.0))
    if "jit" not in transforms:  # where the answer about z stays open, and nothing of it is lost
        with h.raises(Exception):
            h.nest(transforms, lambda z: ruled(h, square, lambda ct, *_: (z * ct,))(x * z))(h.array(2.0))


# Where a function finds what is no argument of it, in no closure.
_HIDDEN: list[Any] = []


@scenario(level=SHOULD)
def found_elsewhere(h: Checked) -> None:
    """A differentiated value that the function finds by itself is an error in each result, and not a constant.

    Expect x, x z and x of a function that finds z in a list: an error in a derivative of x z by z, or x.
    """
    x = h.array(3.0)
    f = ruled(h, lambda x: (x, x * _HIDDEN[-1], x), lambda cts, *_: (sum(cts),))

    def hidden(z: Any) -> Any:
        _HIDDEN[:] = [z]
        return f(x)[1]

    h.assert_equal(hidden(h.array(2.0)), 6.0, "the plain value")
    found = None
    with contextlib.suppress(Exception):
        found = h.grad(hidden)(h.array(2.0))
    _HIDDEN.clear()
    if found is not None:
        h.assert_equal(found, 3.0, "the derivative, which is no error")


@scenario(rule="D3", transform=("grad", "jvp", "grad of jit"))
def returned_as_it_is(h: Checked, transforms: str) -> None:
    """What a function returns as it finds it is followed behind the call, and nowhere else, under {transforms}.

    Expect c = 7 returned as x's function with the derivative 10, plus 5 c, at 2: 42 and 10; x itself with the
    derivative 10, plus x ** 2: 6 and 14; x twice with 10 and 100, weighed with 2 and 3: 10 and 320.
    """
    c = h.array(7.0)
    constant = ruled(h, lambda _: c, lambda ct, *_: (10.0 * ct,))
    itself = ruled(h, lambda x: x, lambda ct, *_: (10.0 * ct,))
    twice = ruled(h, lambda x: (x, x), lambda cts, *_: (10.0 * cts[0] + 100.0 * cts[1],))

    def of_both(x: Any) -> Any:
        first, second = twice(x)
        return 2.0 * first + 3.0 * second

    compare(h, transforms, lambda x: constant(x) + h.probe(c), lambda _: [42.0, 10.0], 2.0)
    compare(h, transforms, lambda x: itself(x) + x * x, lambda x: [x + x * x, 10.0 + 2.0 * x], 2.0)
    compare(h, transforms, of_both, lambda x: [5.0 * x, 320.0], 2.0)


@scenario()
def closed_over_in_a_rule(h: Checked) -> None:
    """A differentiated value that a rule closes over, or has as a default, is an error.

    Expect (x z) ** 2 with a rule that closes over z, and x z with a default z, at z = 2: an error in a gradient by z.
    """
    x = h.array(3.0)

    def in_closure(z: Any) -> Any:
        return ruled(h, square, lambda ct, *_: (z * ct,))(x * z)

    def in_default(z: Any) -> Any:
        return ruled(h, lambda x, z=z: x * z, lambda ct, *_: (ct, None))(x)

    for f in (in_closure, in_default):
        with h.raises(RuleError):
            h.grad(f)(h.array(2.0))


def _with_residuals(h: Checked, residuals: Callable[[Any], Any], slope: Callable[[Any], Any]) -> Any:
    """Return x ** 2 with the gradient that is found in its residuals."""
    return ruled(
        h, lambda x: (x * x, residuals(x)), lambda ct, returned: (ct * slope(returned[1]),), has_residuals=True
    )


@scenario(
    rule="D13",
    source=FUNCTION_SOURCE,
    transform=("grad", "jvp", "grad of jit", "jit of grad", "grad of compile", "vmap of grad", "grad of checkpoint"),
)
def residuals(h: Checked, transforms: str) -> None:
    """A rule with residuals gives the first derivative under {transforms}.

    Expect x ** 2 with the derivative 7 x from its residuals, at 2: 14, and with a row at 4 42.
    """
    f = _with_residuals(h, lambda x: {"slope": 7.0 * x}, lambda found: found["slope"])
    h.assert_equal(f(h.array(2.0)), 4.0, "the plain value")
    h.assert_equal(h.nest(transforms, f)(h.array(2.0)), 42.0 if "vmap" in transforms else 14.0)


@scenario(
    rule="D13",
    source=FUNCTION_SOURCE,
    transform=(
        *("grad of grad", "jvp of grad", "grad of jvp", "grad of jit of grad"),
        *("grad of grad of vmap", "grad of vmap of grad"),
    ),
)
def residuals_once(h: Checked, transforms: str) -> None:
    """A rule with residuals is not differentiated again: {transforms} raises.

    Expect GradientPreventedError for the second derivative, which would lack that of the residuals.
    """
    f = _with_residuals(h, lambda x: 7.0 * x, lambda found: found)
    # A vmap may have lost the rule before, and say so.
    with h.raises(GradientPreventedError, words=["residuals"] if "vmap of grad" not in transforms else []):
        h.nest(transforms, f)(h.array(2.0))


class _Factors:
    """What a solver might keep: an object of no framework."""

    def __init__(self, slope: float = 7.0) -> None:
        self.slope = slope


@scenario(rule="D13", level=SHOULD, source=FUNCTION_SOURCE)
def residuals_of_any_type(h: Checked) -> None:
    """In eager code residuals are objects of any type, which live as long as the derivative needs them.

    Expect x ** 2 with the gradient 7 from an object, which is freed behind the gradient.
    """
    made: list[weakref.ref[_Factors]] = []

    def kept(_: Any) -> Any:
        factors = _Factors()
        made.append(weakref.ref(factors))
        return factors

    f = _with_residuals(h, kept, lambda factors: factors.slope)
    h.assert_value_and_grad(f, [h.array(3.0)], 9.0, 7.0)
    gc.collect()
    h.check(made and not any(reference() for reference in made), "the residuals are alive behind the gradient")
    if h.has("jvp of grad", "grad of grad"):
        with h.raises(GradientPreventedError, words=["residuals"]):
            h.jvp(h.grad(f), h.array(3.0), h.array(1.0))


@scenario(rule="D9", transform=("grad", "grad of jit", "grad of vmap"), source=FUNCTION_SOURCE)
def overlapping_calls(h: Checked, transforms: str) -> None:
    """Calls of one function, one in the argument of another, each have their own static values, under {transforms}.

    Expect f(f(x, 2), 3) + f(x, 5) with f(x, n) = n x, whose rule says 10 n: the gradients 600 + 50.
    """
    f = ruled(h, lambda x, n: {"y": n * x, "n": n}, lambda ct, y, _, n: (5.0 * (n + y["n"]) * ct["y"], None))
    run = h.nest(transforms, lambda x: f(f(x, 2)["y"], 3)["y"] + f(x, 5)["y"])
    h.assert_equal(run(h.array(2.0)), 650.0 * (3.0 if "vmap" in transforms else 1.0))


@scenario(rule="D15", transform="threads", needs=("grad", "threads"))
def in_two_threads(h: Checked) -> None:
    """Calls in two threads that overlap see neither each other's static values nor residuals.

    Expect n x in two threads with n = 2 and 3, which wait for each other in the function: the gradients 20 and 30 of a
    rule with residuals.
    """
    barrier = threading.Barrier(2, timeout=PATIENCE)

    def times(x: Any, n: int) -> Any:
        barrier.wait()
        return n * x, _Factors(10.0 * n)

    f = ruled(h, times, lambda ct, returned, *_: (returned[1].slope * ct, None), has_residuals=True)
    works = [lambda n=n: h.grad(lambda x: f(x, n))(h.array(1.0)) for n in (2, 3)]
    for found, want in zip(in_threads(h, *works, barrier=barrier), (20.0, 30.0), strict=True):
        h.assert_equal(found, want)


class _Raised(Exception):  # noqa: N818
    """What the function or the rule raises."""


@scenario(
    rule="D15",
    transform=("grad", "jvp", "grad of vmap", "grad of grad"),
    source="Keras on PyTorch, whose custom_gradient makes NaN of an exception",
)
def exceptions(h: Checked, transforms: str) -> None:
    """An exception comes out as it is and leaves nothing behind, under {transforms}.

    Expect the exception of the function, that of the rule; then x ** 2 with the derivative 3 x ** 2, at 2.
    """
    raising: list[str] = []

    def checked(where: str, value: Any) -> Any:
        if where in raising:
            raise _Raised(where)
        return value

    f = ruled(h, lambda x: checked("function", x * x), lambda ct, y, x: checked("rule", vjp_of_cube(ct, y, x)))
    x, table = h.array(2.5), lambda x: [x**2, 3 * x**2, 6 * x]
    for where in ("function", "rule", "function"):
        raising[:] = [where]
        with h.raises(_Raised, words=[where]):
            h.nest(transforms, f)(x)
        raising.clear()
        h.assert_untracked(adprotocol.within_gradient(x), "an array behind the exception")
        compare(h, transforms, f, table)


@scenario(
    rule="D16",
    transform="",
    source="NumPy: what is no array of a framework: https://numpy.org/doc/stable/reference/generated/numpy.ndarray.html",
)
def of_numpy(h: Checked) -> None:
    """With NumPy arrays and numbers alone it is the function itself.

    Expect the arrays of NumPy and numbers themselves, in and out, and no run of the rule.
    """
    import numpy as np

    runs: list[Any] = []
    f = adprotocol.custom_derivative(lambda tree, *, n=2: {"same": tree, "n": n})
    f.defvjp(lambda *_, **__: runs.append("vjp"))
    for value in (np.array([1.0, 2.0]), 2.5, [np.array(3)]):
        found = f(value, n=3)
        h.assert_is(found["same"], value)
        h.check(found["n"] == 3 and not runs, f"n is {found['n']!r}, and {len(runs)} rules ran")
    with_residuals = adprotocol.custom_derivative(lambda x: (x, "residuals"), has_residuals=True)
    h.assert_is(with_residuals(2.5), 2.5, "the result beside residuals")


@scenario(rule="D16")
def structure_without_the_hook(h: Checked) -> None:
    """A plugin without the hook raises for what is differentiated in a structure, and runs other calls.

    Of a plugin without the hook expect 2 x in a dict, at 3: 6 plain, an error that names the plugin in a gradient.
    """
    f = adprotocol.custom_derivative(lambda tree, *, n: n * tree["x"])
    f.defvjp(lambda ct, *_, n: ({"x": n * ct},))
    h.assert_equal(f({"x": h.array(3.0)}, n=2.0), 6.0, "the plain value")
    try:
        h.require_hook("custom_rule")
    except Absent:
        with h.raises(RuleError, GradientPreventedError, words=[h.name]):
            h.grad(lambda x: f({"x": x}, n=2.0))(h.array(3.0))
    else:
        h.assert_equal(h.grad(lambda x: f({"x": x}, n=2.0))(h.array(3.0)), 2.0, "the gradient by the rule")


@scenario(rule="D16", transform=("grad", "jvp", "grad of jit"), source=FUNCTION_SOURCE)
def plugin_without_the_hook(h: Checked, transforms: str) -> None:
    """A plugin without the hook runs what nobody differentiates, and raises under {transforms}.

    Of a plugin without the hook expect x ** 2 at 3 plain, and of a constant; an error that names the plugin under a
    derivative.
    """
    f = adprotocol.custom_derivative(square)
    f.defvjp(vjp_of_cube)
    x = h.array(3.0)
    h.assert_equal(f(x), 9.0, "the plain value")
    h.assert_value_and_grad(lambda x: x * f(adprotocol.non_differentiable(x)), [x], 27.0, 9.0, "of a constant")
    try:
        h.require_hook("custom_rule")
    except Absent:
        with h.raises(RuleError, GradientPreventedError, words=[h.name]):
            h.nest(transforms, f)(x)
    else:
        h.assert_equal(h.nest(transforms, f)(x), 27.0, "the derivative by the rule")
