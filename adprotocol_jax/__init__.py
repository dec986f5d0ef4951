"""The adprotocol plugin for JAX.

`within_gradient` binds a primitive of our own (`primitives`), because no inspection
of tracers can know what ``grad(jit(f))`` will do later.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

import jax
import jax.custom_derivatives
import jax.export
import jax.numpy as jnp
import jax.stages
from jax.extend.core import ClosedJaxpr, Jaxpr

from adprotocol.extend import ASK_PARAMETERS, read_divergences
from adprotocol.hookspecs import hookimpl
from adprotocol.messages import kind_of
from adprotocol_jax import internals, tree
from adprotocol_jax.answer import ask
from adprotocol_jax.cond import ArrayFunctions, cond
from adprotocol_jax.derivative import custom_rule
from adprotocol_jax.host import host_call
from adprotocol_jax.internals import has_tangent_now
from adprotocol_jax.internals import is_concrete as is_concrete_array
from adprotocol_jax.primitives import as_constant, prevent_gradient, refuse_no_array
from adprotocol_jax.tree import tree_library

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol.conformance import Harness
    from adprotocol.extend import Divergence

    Function = Callable[[list[Any]], tuple[list[Any], list[Any]]]

tree.register_label()

# A function as JAX traced or compiled it, with the types of its arguments and constants, which
# are no values to ask about.
_PROGRAMS = (Jaxpr, ClosedJaxpr, jax.stages.Traced, jax.stages.Lowered, jax.stages.Compiled, jax.export.Exported)
# Types, not values: they look like arrays, but carry no number and no derivative.
_ABSTRACT = (jax.ShapeDtypeStruct, jax.custom_derivatives.SymbolicZero, jax.core.AbstractValue, *_PROGRAMS)
# Global names save time: a model has thousands of leaves.
_CONCRETE, _is_differentiated = internals.ArrayImpl, internals.is_differentiated
_CONTEXT, _EVALUATES = internals.trace_context, internals.EvalTrace


@hookimpl
def array_types() -> dict[type, bool]:
    """Claim arrays, tracers and mutable references; only tracers carry a derivative."""
    constant = (internals.ArrayImpl, *_ABSTRACT, *internals.LITERALS)
    return dict.fromkeys((jax.Array, jax.core.Tracer, jax.Ref), True) | dict.fromkeys(constant, False)


@hookimpl
def within_gradient(value: Any) -> Any:
    """Bind a primitive, which JAX's transformations answer now or later."""
    if has_tangent_now(value):
        return True
    return ask(value) if _can_be_tracked(value) else False


@hookimpl
def any_within_gradient(values: Sequence[Any]) -> Any:
    """Ask about all values in one operation.

    A concrete array that is closed over becomes a constant of the program that is
    traced, and a later transformation may differentiate it (``jax.make_jaxpr`` and
    ``eval_jaxpr``, ``equinox.filter_closure_convert``). Beside a tracer the answer may be
    staged anyhow, so the question includes such arrays.
    """
    tracked = list(filter(_can_be_tracked, values))
    if any(map(has_tangent_now, tracked)):
        return True
    if not tracked:
        return False
    closed_over = [value for value in values if isinstance(value, _CONCRETE) and _is_differentiated(value.dtype)]
    return ask(*tracked, *closed_over)


@hookimpl
def non_differentiable(value: Any) -> Any:
    """Stop the gradient of a tracer; anything concrete is constant already."""
    refuse_no_array(value)
    return as_constant(value)


@hookimpl
def is_concrete(value: Any) -> bool:
    """Answer for arrays by the trace; a number that was differentiated is one, and a type has no elements."""
    if type(value) is _CONCRETE and type(_CONTEXT.trace) is _EVALUATES:
        return True
    return isinstance(value, (int, float, complex, *_PROGRAMS)) or (
        not isinstance(value, _ABSTRACT) and is_concrete_array(value)
    )


@hookimpl
def array_functions() -> Any:
    """Return ``jax.numpy``, with an argmax that XLA vectorises on a CPU (a quarter of the time)."""
    return ArrayFunctions


@hookimpl
def trainable(value: Any) -> bool | None:
    """Answer by the dtype; a reference itself takes no gradient."""
    if type(value) is _CONCRETE:  # first: the check below takes 1 µs
        return True if _is_differentiated(value.dtype) else None
    if isinstance(value, _ABSTRACT) or internals.is_no_array(value):
        return None
    return True if internals.is_differentiated(value.dtype) else None


@hookimpl
def vjp(
    fun: Function,
    leaves: list[Any],
    once: bool,  # noqa: ARG001, FBT001  (the signature of the hook)
) -> tuple[list[Any], list[Any], Callable[..., list[Any]]]:
    """Let ``jax.vjp`` differentiate; everything but the leaves is closed over."""
    outputs, pull, others = jax.vjp(fun, leaves, has_aux=True)

    def pulled(cotangents: list[Any] | None) -> list[Any]:
        if cotangents is None:
            # Inside shard_map it then varies along the axes along which the output does.
            cotangents = [jax.lax.full_like(outputs[0], 1)]
        pairs = zip(cotangents, outputs, strict=True)
        (gradients,) = pull([internals.as_like(None, like) if ct is None else ct for ct, like in pairs])
        return gradients  # type: ignore[no-any-return]

    return outputs, others, pulled


@hookimpl
def jvp(fun: Function, leaves: list[Any], tangents: list[Any]) -> Any:
    """Let ``jax.jvp`` differentiate; a ``jax.custom_vjp`` in eager code has no forward mode."""
    equations = internals.staged_equations()
    start = len(equations)
    outputs = None
    try:
        outputs, moved, others = jax.jvp(fun, (leaves,), (tangents,), has_aux=True)
    except (TypeError, NotImplementedError) as error:
        if "custom_vjp" not in str(error) and "custom_lin" not in str(error):
            raise
    # What the function cached in a run that does not count is used in the next.
    if not internals.remove_refused(equations, start) and outputs is not None:
        return outputs, others, moved
    outputs, pull, others = jax.vjp(fun, leaves, has_aux=True)
    try:  # as a program that JAX knows to be linear, staged or batched as it may be
        (moved,) = jax.linear_transpose(lambda cotangents: pull(cotangents)[0], outputs)(tangents)
    except Exception:  # noqa: BLE001  (of the backward pass, which asks what arrives, or of an operation in it)
        return NotImplemented
    return outputs, others, moved


@hookimpl
def vmap(fun: Callable[[list[Any]], list[Any]], arrays: list[Any], chunk_size: int | None) -> Any:
    """Call ``jax.vmap`` for each chunk, by ``jax.lax.map`` in a program that is staged."""
    count, is_staged = len(arrays[0]), isinstance(arrays[0], jax.core.Tracer)
    size = min(chunk_size or count, count)
    batched = jax.vmap(fun)
    if size == count:
        return batched(arrays)
    whole = count // size * size if is_staged else 0
    chunks = [batched([array[i : i + size] for array in arrays]) for i in range(whole, count, size)]
    if is_staged:  # not by its batch_size, which takes no empty arrays
        rows = jax.lax.map(batched, [array[:whole].reshape(-1, size, *array.shape[1:]) for array in arrays])
        chunks.insert(0, [part.reshape(whole, *part.shape[2:]) for part in rows])
    return list(map(jnp.concatenate, zip(*chunks, strict=True)))


@hookimpl
def function_types() -> Sequence[type]:
    """List what ``jax.jit``, ``jax.custom_jvp`` and ``jax.custom_vjp`` return."""
    return type(jax.jit(len)), jax.custom_jvp, jax.custom_vjp


@hookimpl
def label_protocol() -> dict[str, Any]:
    """Let JAX's functions read a label as the constant that it holds."""
    return {"__jax_array__": tree.as_array}


@hookimpl
def explain(value: Any) -> str:
    """Explain the answer for an array or a tracer."""
    if isinstance(value, _PROGRAMS):
        return "a program; ask about its arguments"
    hint = f"; {ASK_PARAMETERS}" if internals.is_differentiating() else ""
    if not isinstance(value, jax.core.Tracer):
        return "a concrete array; JAX differentiates tracers only" + hint
    if not internals.is_inexact(value):
        return f"a value of type {value.aval} has no derivative"
    answer = ask(value)
    if answer is True:
        return "a tangent is being propagated through this tracer"
    if answer is False:
        return f"{kind_of(value)} without a tangent; batching alone is not differentiation" + hint
    return "decided when a transformation is applied to the compiled function; branch on it with adprotocol.cond"


@hookimpl
def divergences() -> Sequence[Divergence]:
    """List the declared divergences of JAX."""
    return list(read_divergences(files("adprotocol_jax") / "divergences.md").values())


@hookimpl
def harness(device: str | None) -> Harness:
    """Return the conformance harness for JAX."""
    from adprotocol_jax.conformance import JaxHarness  # noqa: PLC0415  (only the suite needs it)

    return JaxHarness(device)


def _can_be_tracked(value: Any) -> bool:
    refuse_no_array(value)
    return internals.is_inexact(value)
