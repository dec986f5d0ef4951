"""Structures that a staged or batched `cond` takes and returns: dataclasses, named tuples, labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import adprotocol
from adprotocol import NonDifferentiable
from adprotocol.conformance.scenario import defaults
from adprotocol.errors import BranchMismatchError

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


_DATACLASSES = "JAX: dataclasses as pytrees: https://github.com/jax-ml/jax/issues/2371"

scenario: Decorator = defaults("cond", rule="C8", transform="grad of {way}")


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


@scenario(source=_DATACLASSES)
def structure_returned(h: Checked, way: str) -> None:
    """Branches of a staged cond return a dataclass that no framework knows.

    Expect 3 x where x > 0, else x ** 2, in a dataclass of list, named tuple, label, string and None: the gradients 3
    and -4.
    """
    jitted = h.trace(way, lambda x: value_of(h, structured(x)))
    h.assert_value_and_grad(jitted, (h.array(2.0),), 6.0, 3.0, "at 2")
    h.assert_value_and_grad(jitted, (h.array(-2.0),), 4.0, -4.0, "at -2")


@scenario(transform="vmap of grad", source=_DATACLASSES)
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
