"""A predicate that differs from device to device, as ``jax.shard_map`` tells of it (``check_vma=True``).

The devices run different branches, so a branch must not communicate. A value that is
equal on all devices makes the derivative do so: it is the sum over the devices, and
JAX puts that sum where the value is first used. For an operand that is in front of
``jax.lax.cond`` (`as_varying`). For what a branch closes over it is inside of the
branch, where some devices do not take part and JAX returns a wrong sum; it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.interpreters import ad

from adprotocol.errors import UndecidableError
from adprotocol_jax import internals
from adprotocol_jax.identity import identity_primitive

if TYPE_CHECKING:
    from collections.abc import Iterable

_equal_p = identity_primitive("adprotocol_equal_on_all_devices")
_COLLECTIVES = (
    "psum", "psum2", "psum_invariant", "psum_scatter", "pmax", "pmin", "ppermute", "pbroadcast", "all_gather",
    "all_gather_invariant", "all_gather_reduced", "all_to_all", "ragged_all_to_all", "reduce_scatter",
)  # fmt: skip


def as_varying(leaf: Any, axes: frozenset[Any]) -> Any:
    """Return a leaf as one that may differ along the axes, if it can carry a derivative."""
    return internals.as_varying(leaf, axes) if _is_equal(leaf, axes) else leaf


def without_transpose(const: Any, axes: frozenset[Any]) -> Any:
    """Return what a branch closes over, with no derivative in reverse mode if it is equal along the axes."""
    return _equal_p.bind(const) if _is_equal(const, axes) else const


def _is_equal(value: Any, axes: frozenset[Any]) -> bool:
    if not isinstance(value, jax.core.Tracer) or internals.is_reference(value) or not internals.is_inexact(value):
        return False
    return not internals.is_high(value.aval) and not axes <= internals.varying_axes(value)


def refuse_collectives(equations: Iterable[Any], axes: frozenset[Any]) -> None:
    """Refuse the equations of a branch that communicates along the axes."""
    for equation in equations:
        if equation.primitive.name in _COLLECTIVES:
            names = equation.params.get("axes", equation.params.get("axis_name", ()))
            if not axes.isdisjoint(names if isinstance(names, (tuple, list)) else (names,)):
                raise _refused(
                    axes, f"a branch calls {equation.primitive.name} along it, and the devices take different branches"
                )
        for parameter in equation.params.values():
            for inner in parameter if isinstance(parameter, (tuple, list)) else (parameter,):
                if isinstance(inner, (Jaxpr, ClosedJaxpr)):
                    refuse_collectives(inner.eqns, axes)


def _refused(axes: frozenset[Any], why: str) -> UndecidableError:
    from adprotocol_jax.divergence import DIVERGENCES  # noqa: PLC0415  (for the message only)

    names = ", ".join(sorted(map(repr, axes)))
    return UndecidableError(
        f"the predicate of a cond inside jax.shard_map differs along the axis {names}: {why}. "
        f"{DIVERGENCES['predicate-that-differs-over-devices'].remedy}"
    )


def _transpose(cotangent: Any, operand: Any) -> Any:
    if type(cotangent) is ad.Zero:
        return (ad.Zero(operand.aval),)
    axes = internals.varying_axes(cotangent)
    raise _refused(
        axes or frozenset({"of the mesh"}),
        "a branch closes over a value that is equal on all devices and is differentiated, and JAX would sum its "
        "derivative inside of the branch, where not all devices take part",
    )


ad.deflinear2(_equal_p, _transpose)  # type: ignore[no-untyped-call]
