"""The questions for values of JAX's high-level types (``jax.experimental.hijax``).

A class of the user's stands for several arrays there and has a tangent type of its
own. Ordinary primitives do not take such values; primitives that say what they are
on the arrays below do.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax
from jax.experimental.hijax import HiPrimitive, Zero

from adprotocol_jax import internals

if TYPE_CHECKING:
    from collections.abc import Callable


def _arrays(values: tuple[Any, ...]) -> list[Any]:
    return [array for value in values for array in _lowered(value)]


def _lowered(value: Any) -> list[Any]:
    aval = jax.typeof(value)
    return list(aval.lower_val(value)) if internals.is_high(aval) else [value]


class _Ask(HiPrimitive):
    """Ask about the arrays below, by `ask`."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        super().__init__("adprotocol_within_gradient_of_hijax")  # type: ignore[no-untyped-call]
        self.ask = ask

    def abstract_eval(self, *_avals: Any) -> Any:
        return jax.core.ShapedArray((), bool), set()

    def to_lojax(self, *values: Any) -> Any:
        tracked = [array for array in _arrays(values) if isinstance(array, jax.core.Tracer)]
        return self.ask(*tracked) if tracked else False

    def jvp(self, primals: Any, tangents: Any, **_params: Any) -> Any:  # noqa: ARG002  (JAX names them)
        return True, internals.BOOLEAN_TANGENT


class _Constant(HiPrimitive):
    """Return the value, with no tangent; `as_constant` makes the arrays below constant."""

    def __init__(self, as_constant: Callable[[Any], Any]) -> None:
        super().__init__("adprotocol_constant_of_hijax")  # type: ignore[no-untyped-call]
        self.as_constant = as_constant

    def abstract_eval(self, aval: Any) -> Any:
        return aval, set()

    def to_lojax(self, value: Any) -> Any:
        return jax.typeof(value).raise_val(*map(self.as_constant, _lowered(value)))

    def jvp(self, primals: Any, tangents: Any, **_params: Any) -> Any:  # noqa: ARG002
        (primal,) = primals
        return self.bind(primal), Zero(jax.typeof(primal).to_tangent_aval())  # type: ignore[no-untyped-call]


class _Prevention(HiPrimitive):
    """Guard the arrays below, by `guard`; `refuse` raises where the value is differentiated."""

    def __init__(self, guard: Callable[[Any, str], Any], refuse: Callable[[Any, str], Any]) -> None:
        super().__init__("adprotocol_prevent_gradient_of_hijax")  # type: ignore[no-untyped-call]
        self.guard, self.refuse = guard, refuse

    def abstract_eval(self, aval: Any, **_params: Any) -> Any:
        return aval, set()

    def to_lojax(self, value: Any, *, message: str) -> Any:
        return jax.typeof(value).raise_val(*[self.guard(array, message) for array in _lowered(value)])

    def jvp(self, primals: Any, tangents: Any, **params: Any) -> Any:  # noqa: ARG002
        self.refuse(primals[0], params["message"])


# The primitive for values of such types, given the functions for arrays, whose modules import this one.
ask_primitive: Callable[..., Any] = functools.cache(_Ask)
constant_primitive: Callable[..., Any] = functools.cache(_Constant)
prevention_primitive: Callable[..., Any] = functools.cache(_Prevention)
