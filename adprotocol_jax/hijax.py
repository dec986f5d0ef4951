"""The two questions for values of JAX's high-level types (``jax.experimental.hijax``).

A class of the user's stands for several arrays there and has a tangent type of its
own. Ordinary primitives do not take such values; primitives that say what they are
on the arrays below do.
"""

from __future__ import annotations

from typing import Any, cast

import jax
from jax.experimental.hijax import HiPrimitive, Zero

from adprotocol_jax import internals


def _arrays(values: tuple[Any, ...]) -> list[Any]:
    return [array for value in values for array in _lowered(value)]


def _lowered(value: Any) -> list[Any]:
    aval = jax.typeof(value)
    return list(aval.lower_val(value)) if internals.is_high(aval) else [value]


class _Ask(HiPrimitive):
    """Answer as `adprotocol_jax.primitive.within_gradient_p` does."""

    def abstract_eval(self, *_avals: Any) -> Any:
        return jax.core.ShapedArray((), bool), set()

    def to_lojax(self, *values: Any) -> Any:
        from adprotocol_jax import primitive  # noqa: PLC0415  (it asks this module for values of such types)

        tracked = [array for array in _arrays(values) if isinstance(array, jax.core.Tracer)]
        return primitive.ask(*tracked) if tracked else False

    def jvp(self, primals: Any, tangents: Any, **_params: Any) -> Any:  # noqa: ARG002  (JAX names them)
        return True, internals.BOOLEAN_TANGENT


class _Constant(HiPrimitive):
    """Return the value, with no tangent."""

    def abstract_eval(self, aval: Any) -> Any:
        return aval, set()

    def to_lojax(self, value: Any) -> Any:
        from adprotocol_jax import constant  # noqa: PLC0415  (it asks this module for values of such types)

        return jax.typeof(value).raise_val(*map(constant.as_constant, _lowered(value)))

    def jvp(self, primals: Any, tangents: Any, **_params: Any) -> Any:  # noqa: ARG002
        (primal,) = primals
        return constant_p.bind(primal), Zero(jax.typeof(primal).to_tangent_aval())


ask_p: Any = cast("Any", _Ask)("adprotocol_within_gradient_of_hijax")
constant_p: Any = cast("Any", _Constant)("adprotocol_constant_of_hijax")
