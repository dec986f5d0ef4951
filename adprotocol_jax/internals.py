"""The private parts of JAX that this plugin uses.

Tried with JAX 0.10.2. A comment at each name says why no public API serves.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax._src import core as _core  # trace_ctx, the current trace
from jax._src.array import ArrayImpl as _ArrayImpl
from jax._src.interpreters import ad as _ad  # primitive_linearizations is not re-exported
from jax._src.state.types import AbstractRef as _StateAbstractRef
from jax.interpreters import ad

# The one concrete array class; public code knows only the abstract jax.Array, of
# which tracers are instances too. Both classes are imported, not taken from a
# value: this module is loaded at the first call of the library, which may be
# inside a trace, where jnp.zeros() is a tracer.
ArrayImpl: Any = _ArrayImpl

# The abstract value of a mutable reference: jax.Ref does not know its tracers.
_AbstractRef: type = _StateAbstractRef

# The zero tangent with which ``grad`` marks an output as constant. The class is
# exported; float0 is the dtype of every tangent of a boolean.
BOOLEAN_TANGENT = ad.Zero(jax.core.ShapedArray((), jax.dtypes.float0))


def is_reference(value: Any) -> bool:
    """Tell whether an array or tracer is, or stands for, a mutable reference."""
    if isinstance(value, jax.core.Tracer):
        return isinstance(value.aval, _AbstractRef)
    return isinstance(value, jax.Ref)


def is_inexact(tracer: Any) -> bool:
    """Tell whether a tracer has a dtype that JAX differentiates (extended dtypes have none)."""
    # A token and the types of hijax have no dtype.
    dtype = getattr(tracer.aval, "dtype", None)
    return dtype is not None and is_differentiated(dtype)


# issubdtype takes 1 µs; a model has thousands of leaves, but a handful of dtypes.
@functools.cache
def is_differentiated(dtype: Any) -> bool:
    """Tell whether JAX differentiates arrays of a dtype."""
    return bool(jnp.issubdtype(dtype, jnp.inexact))


# The tracers of grad and jvp. Checking a tracer of the current trace directly saves
# the bind, 1 µs against 8; if JAX renames these classes, bind answers.
_TANGENT_TRACERS = tuple(
    cls for cls in (getattr(_ad, "LinearizeTracer", None), getattr(_ad, "JVPTracer", None)) if cls is not None
)


def has_tangent_now(tracer: Any) -> bool:
    """Tell whether the current trace is one of grad or jvp that gave the tracer a tangent.

    True is what JAX's ``process_primitive`` would find on its way to the JVP rule;
    False leaves it open, because an outer trace may have given it a tangent.
    """
    return (
        type(tracer) in _TANGENT_TRACERS
        and tracer._trace is _core.trace_ctx.trace  # noqa: SLF001
        and type(tracer.tangent) is not ad.Zero
    )


def linearize_to(primitive: Any, answer: Any) -> None:
    """Register the rule that ``grad`` uses, with a result that has no tangent.

    Without it JAX derives the rule by tracing the JVP: 98 µs a call against
    about 10 µs. A JAX release without this registry derives it.
    """

    def rule(_is_vjp: Any, _nonzeros: Any, *_primals: Any, **_params: Any) -> Any:
        return answer, False, (), lambda _residuals, *_tangents: BOOLEAN_TANGENT

    registry = getattr(_ad, "primitive_linearizations", None)
    if registry is not None:
        registry[primitive] = rule
