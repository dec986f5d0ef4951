"""Structures that branches return, take and close over."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import adprotocol
from adprotocol import NonDifferentiable
from adprotocol.conformance import nesting
from adprotocol.conformance.scenario import Decorator, defaults
from adprotocol.conformance.scenarios.cond.derivatives import FAR, cube
from adprotocol.conformance.scenarios.grid import X
from adprotocol.errors import BranchMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked

_DATACLASSES = "JAX: dataclasses as pytrees: https://github.com/jax-ml/jax/issues/2371"

scenario: Decorator = defaults("cond", rule="C8", transform="grad of {way}", source=_DATACLASSES)


class Inner(NamedTuple):
    """An array and a name."""

    value: Any
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """What holds it, with a field that the constructor does not take."""

    inner: Any
    rest: Any = None
    added: Any = field(init=False, default="added")


def structured(x: Any) -> Any:
    """Return 3 x, or x x where x is not positive, in a structure, beside a label."""
    return adprotocol.cond(
        x > 0.0,
        lambda x: Outer(inner=[Inner(3.0 * x, "name"), NonDifferentiable(x)]),
        lambda x: Outer(inner=[Inner(x * x, "name"), NonDifferentiable(x)]),
        x,
    )


def value_of(h: Checked, result: Any) -> Any:
    """Return the array in such a structure, which must be whole."""
    h.check(isinstance(result, Outer), f"cond returned a {type(result).__name__}")
    h.assert_is(result.rest, None, "the field rest")
    h.check(result.added == "added", f"the field added is {result.added!r:.60}")
    inner, label = result.inner
    kinds = type(inner), type(label)
    h.check(kinds[0] is Inner and kinds[1] is NonDifferentiable, f"cond returned in the structure {kinds}")
    h.check(inner.name == "name", f"the field name is {inner.name!r:.60}")
    return inner.value


@scenario()
def structure_returned(h: Checked, way: str) -> None:
    """Branches of a staged cond return a dataclass that no framework knows.

    Expect 3 x where x > 0, else x ** 2, in a dataclass of list, named tuple, label, string and None: the gradients 3
    and -4.
    """
    jitted = h.trace(way, lambda x: value_of(h, structured(x)))
    h.assert_value_and_grad(jitted, (h.array(2.0),), 6.0, 3.0, "at 2")
    h.assert_value_and_grad(jitted, (h.array(-2.0),), 4.0, -4.0, "at -2")


@scenario(transform="vmap of grad")
def structure_returned_under_vmap(h: Checked) -> None:
    """Branches of a batched cond return a dataclass that no framework knows.

    Expect the gradients 3 and -4 of rows 2 and -2: 3 x where x > 0, else x ** 2, in a dataclass.
    """
    slopes = h.vmap(h.grad(lambda x: value_of(h, structured(x))))(h.array([2.0, -2.0]))
    h.assert_equal(slopes, [3.0, -4.0], "the gradients")


@scenario(source="JAX, branches of different structure: https://github.com/jax-ml/jax/issues/2660")
def structure_as_operand(h: Checked, way: str) -> None:
    """Branches of a staged cond get a dataclass as it is, strings in it too.

    Expect a dataclass holds x and a string of length 4: 4 x where x > 0, else x ** 3; 8 with the gradient 4 at 2, -8
    with 12 at -2.
    """

    def f(x: Any) -> Any:
        operand = Outer(inner=[Inner(x, "name")], rest=x)
        return adprotocol.cond(
            x > 0.0,
            lambda o: o.inner[0].value * float(len(o.inner[0].name)),
            lambda o: o.inner[0].value * o.rest * o.rest,
            operand,
        )

    h.assert_value_and_grad(h.trace(way, f), (h.array(2.0),), 8.0, 4.0, "at 2")
    h.assert_value_and_grad(h.trace(way, f), (h.array(-2.0),), -8.0, 12.0, "at -2")


@scenario(source="JAX, a type for what is not to be differentiated: https://github.com/jax-ml/jax/issues/2588")
def label_returned_by_both(h: Checked, way: str) -> None:
    """A label that both branches of a staged cond return is a label, of a constant.

    Expect a label of 3 x where x > 0, else of x ** 2, times x: 12 with the gradient 6 at 2, -8 with 4 at -2.
    """

    def f(x: Any) -> Any:
        label = adprotocol.cond(x > 0.0, lambda x: NonDifferentiable(3.0 * x), lambda x: NonDifferentiable(x * x), x)
        h.check(isinstance(label, NonDifferentiable), f"cond returned a {type(label).__name__}")
        return label * x

    h.assert_value_and_grad(h.trace(way, f), (h.array(2.0),), 12.0, 6.0, "at 2")
    h.assert_value_and_grad(h.trace(way, f), (h.array(-2.0),), -8.0, 4.0, "at -2")


@scenario(transform="{way}", source="JAX, a branch with an effect alone: https://github.com/jax-ml/jax/issues/514")
def other_structures(h: Checked, way: str) -> None:
    """Branches of a staged cond whose structures differ, or what is no array in them, raise an error that says so.

    Expect a BranchMismatchError for a string that differs, for a named tuple beside a tuple, for x in another field.
    """
    h.require_staged(way)
    for other in (
        lambda x: Outer(inner=Inner(x, "other")),
        lambda x: Outer(inner=(x, "name")),
        lambda x: Outer(inner=Inner("name", x)),
    ):

        def f(x: Any, other: Any = other) -> Any:
            adprotocol.cond(x > 0.0, lambda x: Outer(inner=Inner(x, "name")), other, x)
            return x

        with h.raises(BranchMismatchError, words=("true_fun", "false_fun")):
            h.trace(way, f)(h.array(2.0))


_FAILED = "PyTorch: functions that torch.cond takes as branches: https://docs.pytorch.org/docs/stable/generated/torch.cond.html"


class Layer:
    """An object that holds a value, with the two branches as methods."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def bad(self) -> Any:
        """Return 0 / 0."""
        return (self.value - self.value) / (self.value - self.value)

    def cube(self) -> Any:
        """Return the third power."""
        return self.value * self.value * self.value


class Called:
    """An object that is a branch."""

    def __init__(self, value: Any, name: str) -> None:
        self.held: dict[str, Any] = {"value": value}
        self.name = name

    def __call__(self) -> Any:
        """Return what the method with the name does for the value."""
        return getattr(Layer(self.held["value"]), self.name)()


def _bad(x: Any) -> Any:
    return Layer(x).bad()


def _cube(x: Any) -> Any:
    return Layer(x).cube()


def _called(x: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    def bad() -> Any:
        return _bad(x)

    def outer() -> Any:
        return 1.0 * bad()

    return outer, lambda: _cube(x)


def _partial_closed_over(x: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    bad, power = functools.partial(_bad, x), functools.partial(_cube, x)
    return lambda: 1.0 * bad(), lambda: 1.0 * power()


def _method_closed_over(x: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    bad, power = Layer(x).bad, Layer(x).cube
    return lambda: 1.0 * bad(), lambda: 1.0 * power()


def _closed_over(x: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    layer = Layer(x)
    return lambda: 1.0 * layer.bad(), lambda: 1.0 * layer.cube()


def _defaulting(x: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    def bad(y: Any = x) -> Any:
        return _bad(y)

    def power(y: Any = x) -> Any:
        return _cube(y)

    return bad, power


def _by_keyword(x: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    def bad(*, y: Any = x) -> Any:
        return _bad(y)

    def power(*, y: Any = x) -> Any:
        return _cube(y)

    return bad, power


def _listed(x: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    held = [{"x": x}]
    return lambda: _bad(held[0]["x"]), lambda: _cube(held[0]["x"])


# From x: the branch that is 0 / 0 for every x, and that which is x ** 3.
_CARRIERS: dict[str, Callable[[Any], tuple[Callable[[], Any], Callable[[], Any]]]] = {
    "a default": _defaulting,
    "a keyword default": _by_keyword,
    "a partial function": lambda x: (functools.partial(_bad, x), functools.partial(_cube, x)),
    "a keyword of one": lambda x: (functools.partial(_bad, x=x), functools.partial(_cube, x=x)),
    "a partial function closed over": _partial_closed_over,
    "a method": lambda x: (Layer(x).bad, Layer(x).cube),
    "a method closed over": _method_closed_over,
    "an object": lambda x: (Called(x, "bad"), Called(x, "cube")),
    "an object closed over": _closed_over,
    "a function that is called": _called,
    "a list": _listed,
}


@scenario(
    rule="C4",
    transform=("grad", "grad of jit", "grad of compile", "vmap of grad", "grad of vmap", "grad of grad of vmap"),
    source="JAX: where and the gradient of what is not selected: https://github.com/jax-ml/jax/issues/1052",
)
def nan_in_what_carries(h: Checked, transforms: str) -> None:
    """A NaN not taken, of what comes in by other ways than a closure, stays out under {transforms}.

    The taken branches give x ** 3, and the others 0 / 0 of an x in a default, a partial function, a method, an object
    or a list: expect {transforms} of x ** 3 at 2.5.
    """
    want = nesting.expected(transforms, cube)(X)[0]
    # A compiler, which takes half a second for each, has them in one program: a NaN of one is a NaN of the sum.
    for names in [tuple(_CARRIERS)] if "compile" in transforms else [(name,) for name in _CARRIERS]:

        def f(x: Any, names: Any = names) -> Any:
            total = 0.0 * x
            for name in names:
                total = total + adprotocol.cond(x > FAR, *_CARRIERS[name](x))
            return total

        h.assert_equal(h.nest(transforms, f)(h.array(X)), len(names) * want, f"the result with {', '.join(names)}")


@scenario(rule="C6", transform="vmap of grad", needs=("grad", "vmap"), source=_FAILED)
def after_an_error_under_vmap(h: Checked) -> None:
    """An exception in a batched branch leaves what the branch closes over as it was.

    One branch raises while it closes over a = 2; afterwards 3 a is 6, and the rows of a x and -a x have the gradients 2
    and -2.
    """
    a, points = h.array(2.0), h.array([2.0, -2.0])
    failing = True

    def other(x: Any) -> Any:
        if failing:
            msg = "the branch fails"
            raise ArithmeticError(msg)
        return -1.0 * a * x

    rows = h.vmap(h.grad(lambda x: adprotocol.cond(x > 0.0, lambda x: a * x, other, x)))
    # A compiler that runs Python may show the error as one of its own, with the text.
    with h.raises(Exception, words=["the branch fails"]):
        rows(points)
    h.assert_equal(3.0 * a, 6.0, "what was closed over")
    failing = False
    h.assert_equal(rows(points), [2.0, -2.0], "the gradients")
    h.assert_equal(3.0 * a, 6.0, "what was closed over, afterwards")


@scenario(rule="C6", transform="vmap", source=_FAILED)
def assigned_in_a_branch_of_rows(h: Checked) -> None:
    """What a branch assigns to a name that it closes over, or to an attribute, is there behind it.

    Expect 3 x by a branch that sets x, which it closes over, to 7, plus what x is behind it, at 2 and 3: 13 and 16.
    """

    def row(x: Any) -> Any:
        held, kept = Layer(x), x

        def assigns() -> Any:
            nonlocal kept
            found = 2.0 * kept + held.value
            kept, held.value = 3.0, 4.0
            return found

        return adprotocol.cond(x > 0.0, assigns, lambda: 5.0 * x) + kept + held.value

    h.assert_equal(h.vmap(row)(h.array([2.0, 3.0])), [13.0, 16.0])
