"""The private parts of JAX that this plugin uses, each with why no public API serves.

Nothing looks at a version number: a name is there, or it is not. The range of releases is in pyproject.toml
(`adprotocol._dispatch.release`).
"""

from __future__ import annotations

import functools
import inspect
import weakref
from typing import TYPE_CHECKING, Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax._src import config as _config  # ensure_compile_time_eval
from jax._src import core as _core  # trace_ctx, the active trace
from jax._src import tree_util as _tree_util
from jax._src import util as _util  # which classes caches hold weakly
from jax._src.array import ArrayImpl as _ArrayImpl
from jax._src.interpreters import ad as _ad  # primitive_linearizations is not re-exported
from jax._src.interpreters import batching as _batching  # rules that get the axis, and the trace of vmap
from jax._src.interpreters import partial_eval as _pe  # constants made operands, and the trace of a linearisation
from jax._src.literals import TypedComplex, TypedFloat, TypedInt, TypedNdArray
from jax.extend.core import ClosedJaxpr, Literal
from jax.interpreters import ad

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

# The one concrete array class; public code knows only the abstract jax.Array, of
# which tracers are instances too. Both classes are imported, not taken from a
# value: this module is loaded at the first call of the library, which may be
# inside a trace, where jnp.zeros() is a tracer.
ArrayImpl: Any = _ArrayImpl

# The classes of a Python number or a NumPy array that was differentiated and is a constant again: subclasses of
# float and ndarray without a public name.
LITERALS: tuple[type, ...] = (TypedInt, TypedFloat, TypedComplex, TypedNdArray)

# Replaces a symbolic zero by an array of zeros, and returns anything else unchanged. Public, but without types.
instantiated: Callable[[Any], Any] = ad.instantiate_zeros

# The classes registered with jax.tree_util: no public function counts them, or looks up a class without an instance.
NODES: dict[type, Any] = getattr(_tree_util, "_registry", {})

# The zero tangent with which ``grad`` marks an output as constant. The class is
# exported; float0 is the dtype of every tangent of a boolean.
BOOLEAN_TANGENT = ad.Zero(jax.core.ShapedArray((), jax.dtypes.float0))

_ShapedArray, _Zero = jax.core.ShapedArray, ad.Zero

# What tells the innermost active trace, and the class of that of eager code.
trace_context, EvalTrace = _core.trace_ctx, _core.EvalTrace


def type_like(value: Any) -> Any:
    """Return the shape and dtype that an array, NumPy's or JAX's, has in JAX."""
    extended = jnp.issubdtype(value.dtype, jax.dtypes.extended)  # a random key
    dtype = value.dtype if extended else jax.dtypes.canonicalize_dtype(value.dtype)
    return jax.ShapeDtypeStruct(tuple(value.shape), dtype)  # type: ignore[no-untyped-call]


def is_by_fields(flatten: Any) -> bool:
    """Return whether this is the function of a class of ``jax.tree_util.register_dataclass``."""
    return getattr(flatten, "__qualname__", "").startswith("register_dataclass.")


def is_no_array(value: Any) -> bool:
    """Return whether a value is, or is a tracer of, a mutable reference, a value of a high-level type, or a token."""
    if isinstance(value, jax.core.Tracer):
        return not isinstance(value.aval, _ShapedArray)
    return isinstance(value, jax.Ref)


def is_inexact(value: Any) -> bool:
    """Return whether a value is a tracer of an array that may have a tangent."""
    if not isinstance(value, jax.core.Tracer):
        return False
    aval = value.aval
    return isinstance(aval, _ShapedArray) and is_differentiated(aval.dtype)


# issubdtype takes 1 µs; a model has thousands of leaves, but a handful of dtypes.
@functools.cache
def is_differentiated(dtype: Any) -> bool:
    """Return whether arrays of a dtype have tangents; some of its own have them, as the scales of 8-bit floats."""
    aval: Any = _ShapedArray((), dtype)
    return bool(aval.to_tangent_aval().dtype != jax.dtypes.float0)


# The tracers of grad and jvp. Checking a tracer of the current trace directly saves
# the bind, 0.4 µs against 8.
_TANGENT_TRACERS = frozenset({_ad.LinearizeTracer, _ad.JVPTracer})
_TANGENT_TRACES = (_ad.LinearizeTrace, _ad.JVPTrace)


def has_tangent_now(value: Any) -> bool:
    """Return whether the current trace is one of grad or jvp that gave a value, a tracer of an array, a tangent.

    True is what JAX's ``process_primitive`` would find before it calls the JVP rule.
    False does not exclude a tangent of an outer trace.
    """
    if type(value) not in _TANGENT_TRACERS or type(value.tangent) is _Zero:
        return False
    aval = value.aval  # 50 ns
    return type(aval) is _ShapedArray and is_differentiated(aval.dtype) and value._trace is trace_context.trace


def _active_traces() -> Iterator[Any]:
    """Yield the innermost active trace, and those around it as far as they are known."""
    trace: Any = trace_context.trace
    while trace is not None:
        yield trace
        trace = getattr(trace, "parent_trace", None)


def is_differentiating() -> bool:
    """Return whether the code runs inside ``grad`` or ``jvp``, whichever values these differentiate.

    A function that jit traces is called once, so the transformations around its later calls are unknown there.
    """
    return any(isinstance(trace, _TANGENT_TRACES) for trace in _active_traces())


def is_eager() -> bool:
    """Return whether code runs as it is written: at most inside grad, jvp and vmap, in no program that is staged."""
    # These evaluate as the trace around them does.
    evaluating = (*_TANGENT_TRACES, _batching.BatchTrace, _pe.JaxprTrace)
    return isinstance(next(trace for trace in _active_traces() if not isinstance(trace, evaluating)), _core.EvalTrace)


def is_concrete(value: Any) -> bool:
    """Return whether Python may look at an array: its operations are run, and at most grad and jvp wrap its elements.

    The public ``jax.core.is_concrete``, which is deprecated, asks about the array alone; in a program that is traced
    an operation on any array is written down.
    """
    return not any(map(_is_staging, _active_traces())) and bool(_core.is_concrete(value))  # type: ignore[no-untyped-call]


def _is_staging(trace: Any) -> bool:
    # Not within ``jax.ensure_compile_time_eval``, as far as constants go; no public name reads that setting.
    return isinstance(trace, _pe.DynamicJaxprTrace) and not _config.eager_constant_folding.value


def concrete(value: Any) -> Any:
    """Return the array in a tracer of grad, jvp or vmap, where code is eager."""
    while isinstance(value, jax.core.Tracer):
        value = value.val if isinstance(value, _batching.BatchTracer) else value.primal
    return value


def is_tracer_of_ended_trace(value: Any) -> bool:
    """Return whether a value is a tracer of a trace that has ended, as far as the active traces are known."""
    traces = list(_active_traces())
    is_known = isinstance(value, jax.core.Tracer) and isinstance(traces[-1], EvalTrace)
    return is_known and not any(trace is value._trace for trace in traces)


# A context without any transformation: using a tracer in it is an error.
eval_context: Callable[[], Any] = _core.eval_context

# A context in which operations are recorded by another trace.
set_current_trace: Callable[[Any], AbstractContextManager[Any]] = _core.set_current_trace


def without_constants(program: Any) -> Any:
    """Return a traced program with its constants as first operands."""
    return ClosedJaxpr(_pe.convert_constvars_jaxpr(program.jaxpr), ())


def trace_of(value: Any) -> Any:
    """Return the trace that a tracer belongs to; None for another value."""
    return getattr(value, "_trace", None)


def closed_over() -> list[Any]:
    """Return what the programs that are being traced close over."""
    frames = [trace.frame for trace in _active_traces() if hasattr(trace, "frame")]
    return [getattr(value, "canonical", value) for frame in frames for value in frame.constvar_to_val.values()]


def staged_equations() -> list[Any]:
    """Return the equations of the program that is being traced, a list that may be changed; an empty one otherwise."""
    frames = [trace.frame for trace in _active_traces() if hasattr(trace, "frame")]
    return getattr(frames[0], "tracing_eqns", []) if frames else []


def remove_refused(equations: list[Any], start: int) -> bool:
    """Remove tangents of a ``jax.custom_vjp``, at which JAX raises when it lowers them, and what uses them, if any."""
    kept, gone = [], set[int]()
    for held in equations[start:]:
        equation = held() if isinstance(held, weakref.ref) else held
        if equation is not None and (_is_refused(equation) or not gone.isdisjoint(map(id, equation.invars))):
            gone.update(map(id, equation.outvars))
        else:
            kept.append(held)
    equations[start:] = kept
    return len(gone) > 0


def _is_refused(equation: Any) -> bool:
    parts = _core.jaxprs_in_params(equation.params)
    return equation.primitive.name == "custom_lin" or any(_is_refused(inner) for part in parts for inner in part.eqns)


def change_closed_over(trace: Any, change: Callable[[Any], Any]) -> list[Any]:
    """Change what a program that is being traced closes over; types stay.

    JAX identifies constants by id: the returned list has to live until the trace ends.
    """
    closed_over = trace.frame.constvar_to_val
    originals = list(closed_over.items())
    # until jax 0.9: a constant is stored beside the value that it was made from.
    is_pair = hasattr(_pe, "Constants")
    for variable, value in originals:
        closed_over[variable] = value._replace(canonical=change(value.canonical)) if is_pair else change(value)
    return originals


# Transformations that trace a function to a program, whose constants may be made inputs later; scan, checkpoint
# and cond stay equations of the trace around them.
_PROGRAMS = ("jit", "make_jaxpr", "closure_convert")


def is_closed_over_by_program(tracer: Any) -> bool:
    """Return whether a tracer may be a constant of a program of its own that is being traced."""
    for trace in _active_traces():
        if trace is tracer._trace:
            return False
        info = getattr(getattr(trace, "frame", None), "debug_info", None)
        if getattr(info, "traced_for", "") in _PROGRAMS:
            return True
    return True


def operation(tracer: Any) -> tuple[str, Sequence[Any]]:
    """Return the name of the primitive whose result a staged tracer is, and its operands; an empty name if unknown."""
    equation = getattr(tracer, "parent", None)
    return ("", ()) if equation is None else (equation.primitive.name, getattr(equation, "in_tracers", ()))


def literal(tracer: Any) -> Any:
    """Return the number of a staged tracer of a literal, else None."""
    atom = tracer if isinstance(tracer, Literal) else getattr(tracer, "val", None)
    return atom.val if isinstance(atom, Literal) else None


def _type_of(value: Any) -> Any:
    return value if isinstance(value, jax.core.AbstractValue) else jax.typeof(value)


def varying_axes(value: Any) -> frozenset[Any]:
    """Return the axes of a mesh along which a value, or values of a type, may differ in ``jax.shard_map``."""
    aval = _type_of(value)
    # since jax 0.10: the first of these names.
    axes = getattr(getattr(aval, "mat", None), "varying", None)
    return frozenset(getattr(aval, "vma", ()) if axes is None else axes)


def as_varying(value: Any, axes: frozenset[Any]) -> Any:
    """Return a value as one that may differ along the axes."""
    missing = tuple(axes - varying_axes(value))
    if not missing:
        return value
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(value, missing, to="varying")
    # until jax 0.8.2: this name.
    return getattr(jax.lax, "pvary")(value, missing)  # noqa: B009


def _as_sharded(value: Any, like: Any) -> Any:
    """Return a value with the sharding of a type, which matters for explicit axes of a mesh."""
    wanted: Any = getattr(like, "sharding", None)
    current: Any = getattr(jax.typeof(value), "sharding", None)
    if tuple(getattr(wanted, "spec", ())) == tuple(getattr(current, "spec", ())):
        return value
    if wanted.mesh.empty:  # that of a host function's result; JAX reshards to axes of a mesh only
        wanted = current.update(spec=wanted.spec)
    return getattr(jax.sharding, "reshard")(value, wanted)  # noqa: B009  (not typed)


def is_on_host(value: Any) -> bool:
    """Return whether a value is an array of this process whose elements need no transfer from a device."""
    is_here = isinstance(value, ArrayImpl) and value.is_fully_addressable
    return is_here and all(device.platform == "cpu" for device in value.devices())


def as_like(value: Any, like: Any) -> Any:
    """Return a value, None for zeros, as an array of the dtype and sharding of another, which may vary like it."""
    if type(value) is type(like) is ArrayImpl and (value.dtype, value.sharding) == (like.dtype, like.sharding):
        return value  # 1 µs against 20
    kind = _type_of(like)
    if value is None:
        value = instantiated(ad.Zero(kind.strip_weak_type()))
    elif not isinstance(value, jax.Array) or value.dtype != kind.dtype:
        value = jnp.asarray(value, kind.dtype)
    return as_varying(_as_sharded(value, kind), varying_axes(kind))


def blank(kind: Any) -> Any:
    """Return something in place of an array of this type that nobody reads: an array of NumPy without memory."""
    if jnp.issubdtype(kind.dtype, jax.dtypes.extended):  # a random key
        return kind
    return np.broadcast_to(np.zeros((), kind.dtype), kind.shape)


def linearize_by(primitive: Any, rule: Callable[..., Any]) -> None:
    """Register the rule that ``grad`` uses; without one JAX traces the JVP rule, at 98 µs a call instead of 10."""
    # since jax 0.9: the first argument of a rule says whether it is for reverse mode.
    takes_is_vjp = "_is_vjp" in inspect.signature(_ad.fallback_linearize_rule).parameters
    found: Callable[..., Any] = rule if takes_is_vjp else functools.partial(rule, None)

    def with_structured_residuals(*arguments: Any, **params: Any) -> Any:
        primals, nonzeros, residuals, linearized = found(*arguments, **params)
        return primals, nonzeros, residuals, None, lambda kept, _structured, *tangents: linearized(kept, *tangents)

    # since jax 0.11: a rule returns residuals of two kinds.
    structured = "structured_residuals" in _ad.LinearizeTrace.__annotations__
    _ad.primitive_linearizations[primitive] = with_structured_residuals if structured else found


# Moves a mapped axis to the front, or adds one. Public, but without types.
at_front: Callable[..., Any] = _batching.bdim_at_front


def batch_by(primitive: Any, rule: Callable[..., Any]) -> None:
    """Register the rule that ``vmap`` uses, whose first argument is the mapped axis, with name and size."""

    def batched(axis: Any, values: Sequence[Any], dims: Sequence[Any], **params: Any) -> Any:
        # By its name a function can distinguish rows with equal operands.
        if axis.name is not _core.no_axis_name or any(dim is not None for dim in dims):
            results = rule(axis, values, dims, **params)
            return results, [0] * len(results)
        results = primitive.bind(*values, **params)
        return results, [None] * len(results)

    _batching.fancy_primitive_batchers[primitive] = batched


def hold_weakly(*classes: type) -> None:
    """Let JAX's caches hold parameters of these classes weakly, so that what they hold is freed with the program."""
    _util.weakref_cache_key_types.update(classes)


def vmap_like(axis: Any) -> Callable[..., Any]:
    """Return ``jax.vmap`` with the size and names of an axis that is already mapped."""
    return functools.partial(jax.vmap, axis_size=axis.size, axis_name=axis.name, spmd_axis_name=axis.spmd_name)
