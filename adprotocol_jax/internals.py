"""The private parts of JAX that this plugin uses, and the public ones that not all releases have.

A comment at each name says why no public API serves, or in which release it
appeared. Nothing looks at a version number: a name is there, or it is not. The range
of releases is in pyproject.toml (`adprotocol._dispatch.release`).
"""

from __future__ import annotations

import functools
import importlib
import inspect
import threading
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
from jax._src import core as _core  # trace_ctx, the trace under way
from jax._src import tree_util as _tree_util
from jax._src import util as _util  # which classes caches hold weakly
from jax._src.array import ArrayImpl as _ArrayImpl
from jax._src.interpreters import ad as _ad  # primitive_linearizations is not re-exported
from jax._src.interpreters import batching as _batching  # rules that get the axis, and the trace of vmap
from jax._src.interpreters import partial_eval as _pe  # constants made operands, and the trace of a linearisation
from jax._src.state.types import AbstractRef as _StateAbstractRef
from jax.extend.core import ClosedJaxpr, Literal
from jax.interpreters import ad

try:
    from jax._src import literals as _literals
except ImportError:  # not in 0.6; the classes named below are there since 0.8
    _literals = None  # type: ignore[assignment]

try:
    import jax.export as _export
except ImportError:  # before 0.6 it needs absl, which JAX did not install; without it nobody exports
    _export = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

# The one concrete array class; public code knows only the abstract jax.Array, of
# which tracers are instances too. Both classes are imported, not taken from a
# value: this module is loaded at the first call of the library, which may be
# inside a trace, where jnp.zeros() is a tracer.
ArrayImpl: Any = _ArrayImpl

# What JAX makes of a Python number or a NumPy array that was differentiated, once it
# is a constant again. Subclasses of float and ndarray, which nothing public names.
LITERALS: tuple[type, ...] = tuple(
    getattr(_literals, name)
    for name in ("TypedInt", "TypedFloat", "TypedComplex", "TypedNdArray")
    if hasattr(_literals, name)
)

# jax.typeof is not in 0.4.38; its older name does the same.
typeof: Callable[[Any], Any] = getattr(jax, "typeof", None) or getattr(jax.core, "get_aval")  # noqa: B009

# The zeros that a symbolic zero stands for, and anything else as it is. Public, but without types.
instantiated: Callable[[Any], Any] = ad.instantiate_zeros


def type_like(value: Any) -> Any:
    """Return the shape and dtype of an array, NumPy's or JAX's, as JAX has it."""
    make: Any = jax.ShapeDtypeStruct  # not typed
    dtype = value.dtype if is_extended(value.dtype) else jax.dtypes.canonicalize_dtype(value.dtype)
    return make(tuple(value.shape), dtype)


# The class of mutable references: jax.Ref since 0.7.2, without a public name before.
Ref: type = getattr(jax, "Ref", None) or getattr(_core, "MutableArray")  # noqa: B009  (not typed)

# A program that was exported, if jax.export can be imported.
EXPORTED: tuple[type, ...] = () if _export is None else (_export.Exported,)

# The abstract value of a mutable reference: jax.Ref does not know its tracers.
_AbstractRef: type = _StateAbstractRef

# The classes registered with jax.tree_util: nothing public counts them, or tells of a class without an instance.
_NODES: dict[type, Any] = getattr(_tree_util, "_registry", {})

# The zero tangent with which ``grad`` marks an output as constant. The class is
# exported; float0 is the dtype of every tangent of a boolean.
BOOLEAN_TANGENT = ad.Zero(jax.core.ShapedArray((), jax.dtypes.float0))


def registered_classes() -> int:
    """Return the number of the classes registered with ``jax.tree_util``."""
    return len(_NODES)


def is_registered(cls: type) -> bool:
    """Tell whether a class is registered with ``jax.tree_util``."""
    return cls in _NODES


def node_functions(cls: type) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]] | None:
    """Return the functions with which a class is registered with ``jax.tree_util``, or None."""
    entry = _NODES.get(cls)
    return None if entry is None else (entry.to_iter, entry.from_iter)


def is_by_fields(flatten: Any) -> bool:
    """Tell whether this is the function of a class of ``jax.tree_util.register_dataclass``."""
    return getattr(flatten, "__qualname__", "").startswith("register_dataclass.")


def is_reference(value: Any) -> bool:
    """Tell whether an array or tracer is, or stands for, a mutable reference."""
    if isinstance(value, jax.core.Tracer):
        return isinstance(value.aval, _AbstractRef)
    return isinstance(value, Ref)


def is_inexact(tracer: Any) -> bool:
    """Tell whether a tracer has a type whose values JAX gives tangents."""
    aval = tracer.aval
    dtype = getattr(aval, "dtype", None)
    if dtype is None:  # a token, or a type of hijax
        return is_high(aval) and _has_tangents(aval)
    return is_differentiated(dtype) or (is_extended(dtype) and _has_tangents(aval))


def is_high(aval: Any) -> bool:
    """Tell whether an abstract value is one of hijax's, which stands for several arrays."""
    return bool(getattr(aval, "is_high", False))


def _has_tangents(aval: Any) -> bool:
    return getattr(aval.to_tangent_aval(), "dtype", None) != jax.dtypes.float0


@functools.cache
def is_extended(dtype: Any) -> bool:
    """Tell whether a dtype is one of JAX's own: random keys, the scales of 8-bit floats."""
    return bool(jnp.issubdtype(dtype, jax.dtypes.extended))


# issubdtype takes 1 µs; a model has thousands of leaves, but a handful of dtypes.
@functools.cache
def is_differentiated(dtype: Any) -> bool:
    """Tell whether JAX differentiates arrays of a dtype."""
    return bool(jnp.issubdtype(dtype, jnp.inexact))


# The tracers of grad and jvp. Checking a tracer of the current trace directly saves
# the bind, 0.4 µs against 8; if JAX renames these classes, bind answers.
_TANGENT_TRACERS = frozenset({getattr(_ad, "LinearizeTracer", None), getattr(_ad, "JVPTracer", None)} - {None})

# Common dtypes, which need no call of `is_differentiated`.
_FLOATS = frozenset(map(jnp.dtype, ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")))

_ShapedArray, _Zero, _trace_ctx = jax.core.ShapedArray, ad.Zero, _core.trace_ctx

_TANGENT_TRACES = tuple(
    cls for cls in (getattr(_ad, "LinearizeTrace", None), getattr(_ad, "JVPTrace", None)) if cls is not None
)


def has_tangent_now(value: Any) -> bool:
    """Tell whether the current trace is one of grad or jvp that gave a value, a tracer of an array, a tangent.

    True is what JAX's ``process_primitive`` would find on its way to the JVP rule;
    False leaves it open, because an outer trace may have given it a tangent.
    """
    if type(value) not in _TANGENT_TRACERS or type(value.tangent) is _Zero:
        return False
    aval = value.aval  # 50 ns
    return type(aval) is _ShapedArray and aval.dtype in _FLOATS and value._trace is _trace_ctx.trace  # noqa: SLF001


def is_differentiating() -> bool:
    """Tell whether the code runs inside ``grad`` or ``jvp``, whichever values these differentiate.

    A function that is traced by jit is called once, so what surrounds it is not known there.
    """
    trace = _core.trace_ctx.trace
    while trace is not None and not isinstance(trace, _TANGENT_TRACES):
        trace = getattr(trace, "parent_trace", None)
    return trace is not None


def is_eager() -> bool:
    """Tell whether code runs as it is written: at most inside grad, jvp and vmap, in no program that is staged."""
    trace = _core.trace_ctx.trace
    while isinstance(trace, _PASSING_TRACES):
        trace = trace.parent_trace
    return isinstance(trace, _core.EvalTrace)


def is_evaluating() -> bool:
    """Tell whether no transformation is under way."""
    return isinstance(_core.trace_ctx.trace, _core.EvalTrace)


def is_of_ended_trace(value: Any) -> bool:
    """Tell whether a value is a tracer of a trace that is over, as far as the traces under way are known."""
    trace = _core.trace_ctx.trace
    while trace is not None and trace is not getattr(value, "_trace", trace):
        if isinstance(trace, _core.EvalTrace):
            return True
        trace = getattr(trace, "parent_trace", None)
    return False


# The traces that evaluate what the trace around them would.
_PASSING_TRACES = (*_TANGENT_TRACES, _batching.BatchTrace, _pe.JaxprTrace)

# A context in which no transformation is under way: a tracer that is reached there is an error.
eval_context: Callable[[], Any] = _core.eval_context


def without_constants(program: Any) -> Any:
    """Return a traced program with its constants as first operands."""
    return ClosedJaxpr(_pe.convert_constvars_jaxpr(program.jaxpr), ())


def current_trace() -> Any:
    """Return the trace under way."""
    return _core.trace_ctx.trace


# A context in which what is computed goes into another trace.
set_current_trace: Callable[[Any], AbstractContextManager[Any]] = _core.set_current_trace


def is_of(trace: Any, value: Any) -> bool:
    """Tell whether a value is a tracer of a trace."""
    return isinstance(value, jax.core.Tracer) and value._trace is trace  # noqa: SLF001


# From 0.7 to 0.8 a constant that is closed over is stored with what it was made from.
_Constants: Any = getattr(_pe, "Constants", None)


def change_closed_over(trace: Any, change: Callable[[Any], Any]) -> list[Any]:
    """Change what a program that is being traced closes over; types stay.

    JAX knows what was there by its id: the returned list has to live until the trace ends.
    """
    closed_over = trace.frame.constvar_to_val
    before = list(closed_over.items())
    for variable, value in before:
        if _Constants is None:
            closed_over[variable] = change(value)
        else:
            closed_over[variable] = value._replace(canonical=change(value.canonical))
    return before


def equations(trace: Any) -> list[Any]:
    """Return the equations so far of a program that is being traced."""
    # Since 0.7 a call returns some of them: None, if nothing needs it any more.
    made = trace.frame.tracing_eqns if hasattr(trace.frame, "tracing_eqns") else trace.frame.eqns
    held = [equation if hasattr(equation, "primitive") else equation() for equation in made]
    return [equation for equation in held if equation is not None]


# For what a function is traced that becomes a program, whose constants others can make inputs of; the
# other forms (scan, checkpoint, cond) stay equations of the trace around them.
_PROGRAMS = ("jit", "make_jaxpr", "closure_convert")


def is_closed_over_by_program(tracer: Any) -> bool:
    """Tell whether a tracer may be a constant of a program of its own that is being traced."""
    trace = _core.trace_ctx.trace
    while trace is not None and trace is not tracer._trace:  # noqa: SLF001
        info = getattr(getattr(trace, "frame", None), "debug_info", None)
        if getattr(info, "traced_for", "") in _PROGRAMS:
            return True
        trace = getattr(trace, "parent_trace", None)
    # Before 0.6 the trace of a program does not know the one around it.
    return trace is None


def operation(tracer: Any) -> tuple[str, Sequence[Any]]:
    """Return the name of the primitive whose result a staged tracer is, and its operands; an empty name if unknown."""
    # Since 0.7 a tracer holds its equation; before, the trace alone holds the equations.
    equation = getattr(tracer, "parent", None)
    if equation is not None:
        return equation.primitive.name, getattr(equation, "in_tracers", ())
    frame = _frame(tracer)
    if frame is None:
        return "", ()
    variable = frame.tracer_to_var.get(id(tracer))
    equation = next((made for made in reversed(frame.eqns) if any(out is variable for out in made.outvars)), None)
    if equation is None:
        return "", ()
    tracers = {id(frame.tracer_to_var.get(id(other))): other for other in frame.tracers}
    return equation.primitive.name, [tracers.get(id(atom), atom) for atom in equation.invars]


def _frame(tracer: Any) -> Any:
    """Return the record of a trace that holds its equations by variable; None in releases where tracers hold them."""
    frame = getattr(getattr(tracer, "_trace", None), "frame", None)
    return frame if hasattr(frame, "tracer_to_var") and not hasattr(tracer, "parent") else None


def literal(tracer: Any) -> Any:
    """Return the number that a staged tracer stands for, or None if it is none."""
    atom = tracer if isinstance(tracer, Literal) else getattr(tracer, "val", None)
    frame = _frame(tracer)
    if frame is not None:
        atom = frame.tracer_to_var.get(id(tracer))
        if atom is not None and not isinstance(atom, Literal):
            return frame.constvar_to_val.get(atom)
    return atom.val if isinstance(atom, Literal) else None


def stopped(value: Any) -> Any:
    """Return what ``jax.lax.stop_gradient`` makes of a tracer, as a value of JAX.

    Before 0.8 a number that was differentiated is a Python number again, of no framework.
    """
    found = jax.lax.stop_gradient(value)
    return found if LITERALS or isinstance(found, jax.Array) else jnp.asarray(found)


def _type_of(value: Any) -> Any:
    return value if isinstance(value, jax.core.AbstractValue) else typeof(value)


def varying_axes(value: Any) -> frozenset[Any]:
    """Return the axes of a mesh along which a value, or values of a type, may differ, if ``jax.shard_map`` tells."""
    aval = _type_of(value)
    found = getattr(getattr(aval, "mat", None), "varying", None)  # the newest name
    return frozenset(getattr(aval, "vma", ()) if found is None else found)


def as_varying(value: Any, axes: frozenset[Any]) -> Any:
    """Return a value as one that may differ along the axes."""
    missing = tuple(axes - varying_axes(value))
    if not missing:
        return value
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(value, missing, to="varying")
    return getattr(jax.lax, "pvary")(value, missing)  # noqa: B009  (its older name, which is not typed)


def _as_sharded(value: Any, like: Any) -> Any:
    """Return a value sharded as a type says, which only one with explicit axes of a mesh does."""
    wanted, given = (getattr(kind, "sharding", None) for kind in (like, typeof(value)))
    if tuple(getattr(wanted, "spec", ())) == tuple(getattr(given, "spec", ())):
        return value
    return getattr(jax.sharding, "reshard")(value, wanted)  # noqa: B009  (not typed)


def array_like(value: Any, like: Any) -> Any:
    """Return a value, None for zeros, as an array of the dtype and sharding of another, which may vary like it."""
    kind = _type_of(like)
    if value is None:
        value = instantiated(ad.Zero(kind.strip_weak_type()))
    elif not isinstance(value, jax.Array) or value.dtype != like.dtype:
        value = jnp.asarray(value, like.dtype)
    return as_varying(_as_sharded(value, kind), varying_axes(kind))


def linearize_to(primitive: Any, answer: Callable[[], Any]) -> None:
    """Register the rule that ``grad`` uses, with a result that has no tangent.

    Without it JAX derives the rule by tracing the JVP: 98 µs a call against
    about 10 µs. A JAX release without this registry derives it.
    """

    def rule(_is_vjp: Any, _nonzeros: Any, *_primals: Any, **_params: Any) -> Any:
        return answer(), False, (), lambda _residuals, *_tangents: BOOLEAN_TANGENT

    registry = getattr(_ad, "primitive_linearizations", None)
    if registry is not None:
        registry[primitive] = rule


def linearize_by(primitive: Any, rule: Callable[..., Any]) -> None:
    """Register the rule that ``grad`` uses, where the release has one; else it uses the rule for the JVP."""
    registry = getattr(_ad, "primitive_linearizations", None)
    if registry is not None:
        # Since 0.9 a rule is told first whether it is for reverse mode.
        is_told = "_is_vjp" in inspect.signature(_ad.fallback_linearize_rule).parameters
        registry[primitive] = rule if is_told else functools.partial(rule, None)


def batch_by(primitive: Any, rule: Callable[..., Any]) -> None:
    """Register the rule that ``vmap`` uses, which gets the axis that is mapped, its name and size."""
    _batching.fancy_primitive_batchers[primitive] = rule


def hold_weakly(cls: type) -> None:
    """Let JAX's caches hold parameters of this class weakly, so that what they hold is freed with the program.

    A release without this set has no cache of abstract evaluation by the parameters.
    """
    known: Any = getattr(_util, "weakref_cache_key_types", None)
    if known is not None:
        known.add(cls)


def is_named(axis: Any) -> bool:
    """Tell whether a mapped axis has a name, by which a function may tell rows apart that have equal operands."""
    return axis.name is not _core.no_axis_name


def vmap_like(axis: Any) -> Callable[..., Any]:
    """Return ``jax.vmap`` for an axis that is mapped already."""
    return functools.partial(jax.vmap, axis_size=axis.size, axis_name=axis.name, spmd_axis_name=axis.spmd_name)


def shard_map() -> Callable[..., Any]:
    """Return ``jax.shard_map``, which is public since 0.6."""
    found = getattr(jax, "shard_map", None)
    if found is None:
        from jax.experimental.shard_map import shard_map as found  # noqa: PLC0415  (13 ms)
    return cast("Callable[..., Any]", found)


def register_for_shard_map(primitive: Any, *, equal: bool = False) -> None:
    """Say of a primitive that its result is `equal` on all devices, or on those on which its operands are.

    Since 0.6 ``shard_map`` has the types of values for that. Before, it asks for a rule,
    and refuses a primitive without one.
    """
    if hasattr(jax, "shard_map"):
        return
    old: Any = importlib.import_module("jax.experimental.shard_map")  # it is gone from newer releases
    if equal:
        old.register_check(primitive)(lambda mesh, *_replicated, **_params: set(mesh.axis_names))
        old.register_norewrite(primitive)
    else:
        old.register_standard_check(primitive)
        old.register_standard_rewrite(primitive)


def register_for_export(cls: type, name: str) -> None:
    """Let ``jax.export`` store a class of ``jax.tree_util`` that has no static fields."""
    if _export is not None:
        _export.register_pytree_node_serialization(
            cls,
            serialized_name=name,
            serialize_auxdata=lambda _metadata: b"",
            deserialize_auxdata=lambda _data: None,
        )


@functools.cache
def share_contexts() -> None:
    """Let all programs that a thread lowers share one context of MLIR; JAX fills one for each, in 5 ms.

    For processes of tests: a fifth of their time. A context keeps what was ever in it.
    """
    mlir: Any = importlib.import_module("jax._src.interpreters.mlir")
    make, local = mlir.make_ir_context, threading.local()

    def context_of_thread() -> Any:
        if not hasattr(local, "context"):
            local.context = make()
        return local.context

    mlir.make_ir_context = context_of_thread
