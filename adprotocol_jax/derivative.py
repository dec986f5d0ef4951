"""Derivative rules with JAX: a primitive for the function, and a linear one for its derivative.

``jax.custom_vjp`` refuses forward mode, and ``jax.custom_jvp`` differentiates its rule by
linearisation, so neither holds both rules. Here the derivative of the function's
primitive is the linear one, which evaluates by the rule for forward mode and is
transposed by the rule for reverse mode. Differentiated again, it is the rule that is
differentiated, as ordinary operations.

On concrete values the function itself runs. In a staged program it is traced once, so
that the values it closes over become operands.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, mlir

from adprotocol.errors import RuleError
from adprotocol.hookspecs import hookimpl
from adprotocol_jax import internals, primitives
from adprotocol_jax.rule_call import BatchedCall, RuleCall, at_any_point, refuse_objects

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from adprotocol.extend import DerivativeRule, Outline


@hookimpl
def custom_rule(rule: DerivativeRule, arrays: list[Any]) -> tuple[list[Any], Outline]:
    """Bind a primitive whose derivatives are the rule's."""
    for array in arrays:
        primitives.refuse_no_array(array)
    call = RuleCall(rule, arrays)
    # The primitive's rules do not see a tracer that the function closes over.
    if not internals.is_eager() or any(isinstance(value, jax.core.Tracer) for value in rule.closed_over()):
        arrays = _stage(call, arrays)
    results = _function_p.bind(*arrays, call=call)
    return list(results), call.outline


def _stage(call: RuleCall, arrays: list[Any]) -> list[Any]:
    """Trace the function; return its operands, with the values that it closes over first."""
    axes = frozenset().union(*map(internals.varying_axes, arrays))
    if axes:
        arrays = [internals.as_varying(array, axes) for array in arrays]
        call.types = list(map(jax.typeof, arrays))
    traced = jax.make_jaxpr(call.trace)(*arrays)
    refuse_objects(call.rule, call.outline)
    call.program, call.closed_over = internals.without_constants(traced), len(traced.consts)
    return [*traced.consts, *arrays]


def _tangent_type(value: Any) -> Any:
    return jax.typeof(value).to_tangent_aval().strip_weak_type()


def _zeros(values: Sequence[Any]) -> list[Any]:
    return [ad.Zero(_tangent_type(value)) for value in values]


# The primitive for the primal function; evaluation calls it without any AD trace.
# until https://github.com/jax-ml/jax/issues/3996: a function of JAX has a rule for one mode.
_function_p: Any = Primitive("adprotocol_custom_derivative")
_function_p.multiple_results = True


def _run(*arrays: Any, call: RuleCall) -> list[Any]:
    with internals.eval_context():
        return call.run(_as_arrays(arrays))


def _abstract(*types: Any, call: RuleCall) -> Any:
    if call.program is None:
        call.program = jax.make_jaxpr(call.trace)(*types)
    return call.program.out_avals, call.program.effects


def _is_nonzero(tangent: Any) -> bool:
    return type(tangent) is not ad.Zero and getattr(tangent, "dtype", None) != jax.dtypes.float0


def _as_arrays(values: Iterable[Any]) -> list[Any]:
    """Return the operands of a primitive as JAX arrays: JAX may pass a number or a NumPy array to its rules."""
    return [jnp.asarray(value) if isinstance(value, _CONVERTED) else value for value in values]


_CONVERTED = (int, float, complex, np.ndarray, np.generic, *internals.LITERALS)


def _refuse_closed_over(arrays: Sequence[Any], needed: tuple[bool, ...], call: RuleCall) -> None:
    for array, need in zip(arrays[: call.closed_over], needed, strict=False):
        if need:
            primitives.refuse(array, str(call.rule.hidden_error()))


def _tangents(kept: Sequence[Any], tangents: Sequence[Any], *, needed: Any, call: RuleCall, forward: bool) -> list[Any]:
    """Return the tangents of all results; `forward` tells that no transposition need follow."""
    nonzero = [tangent for tangent, need in zip(tangents, needed, strict=True) if need]
    count = call.outline.count
    results = kept[: len(kept) - (len(call.types) if call.rule.keeps_arrays else 0)]
    if not nonzero or count == 0:
        return _zeros(results)
    return [*_linear_p.bind(*kept, *nonzero, call=call, needed=needed, forward=forward), *_zeros(results[count:])]


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, call: RuleCall) -> tuple[list[Any], list[Any]]:
    arrays, needed = _as_arrays(primals), tuple(map(_is_nonzero, tangents))
    _refuse_closed_over(arrays, needed, call)
    results = _function_p.bind(*arrays, call=call)
    return results, _tangents(call.kept(results, arrays), tangents, needed=needed, call=call, forward=True)


def _linearize(_is_vjp: Any, nonzeros: Sequence[bool], *values: Any, call: RuleCall) -> Any:
    arrays = _as_arrays(values)
    needed = tuple(
        nonzero and _tangent_type(array).dtype != jax.dtypes.float0
        for nonzero, array in zip(nonzeros, arrays, strict=True)
    )
    _refuse_closed_over(arrays, needed, call)
    results = _function_p.bind(*arrays, call=call)
    count = call.outline.count if True in needed else 0
    moved = [place < count for place in range(len(results))]
    push = functools.partial(_tangents, needed=needed, call=call, forward=False)
    return results, moved, call.kept(results, arrays), lambda kept, *tangents: push(kept, tangents)


def _batch(axis: Any, values: Sequence[Any], dims: Sequence[Any], *, call: RuleCall) -> Any:
    arrays = [value if dim is None else jnp.moveaxis(value, dim, 0) for value, dim in zip(values, dims, strict=True)]
    batched = BatchedCall(call, [None if dim is None else 0 for dim in dims], internals.vmap_like(axis))
    if call.program is not None:
        batched.program = jax.make_jaxpr(batched.trace)(*arrays)
    return _function_p.bind(*arrays, call=batched)


def _function_transpose(cotangents: Sequence[Any], *operands: Any, call: RuleCall) -> list[Any]:
    """Transpose a function that is linear in some operands: there its rule for reverse mode is equal at all points."""
    needed = tuple(isinstance(operand, ad.UndefinedPrimal) for operand in operands)

    def pulled(points: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        rest = iter(points)
        arrays = [next(rest) if need else operand for operand, need in zip(operands, needed, strict=True)]
        return call.derive("backward", needed, call.kept(call.run(arrays), arrays), cotangents[: call.outline.count])

    points = [internals.as_like(None, operand.aval) for operand in operands if isinstance(operand, ad.UndefinedPrimal)]
    values = list(map(internals.instantiated, cotangents))
    error = RuleError(
        f"jax.linear_transpose reaches {call.rule.name}, whose derivative rule uses the arguments or the result, "
        "as that of no linear function does; compute the gradient from the cotangent alone, or use jax.vjp"
    )
    gradients = iter(at_any_point(pulled, points, values, error))
    return [next(gradients) if need else None for need in needed]


_function_p.def_impl(_run)
_function_p.def_effectful_abstract_eval(_abstract)
ad.primitive_jvps[_function_p] = _jvp
ad.primitive_transposes[_function_p] = _function_transpose
internals.linearize_by(_function_p, _linearize)
internals.batch_by(_function_p, _batch)
mlir.register_lowering(_function_p, mlir.lower_fun(lambda *arrays, call: call.run(arrays), multiple_results=True))


# Its derivative: linear in the operands after those that are kept.
_linear_p: Any = Primitive("adprotocol_custom_derivative_linear")
_linear_p.multiple_results = True


def _evaluate(*operands: Any, call: RuleCall, needed: tuple[bool, ...], **_params: Any) -> list[Any]:
    count = len(operands) - sum(needed)
    return call.derive("forward", needed, operands[:count], _as_arrays(operands[count:]))


def _linear_abstract(*types: Any, call: RuleCall, needed: tuple[bool, ...], forward: bool) -> Any:
    results = [kind.to_tangent_aval().strip_weak_type() for kind in types[: call.outline.count]]
    # The effects of a program are known when the rule is traced. One for reverse mode need not have a transpose.
    if not forward or not call.rule.has_jvp:
        return results, frozenset()
    return results, jax.make_jaxpr(functools.partial(_evaluate, call=call, needed=needed, forward=True))(*types).effects


def _linear_jvp(operands: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    """Differentiate the rule itself."""
    places = [place for place, tangent in enumerate(tangents) if _is_nonzero(tangent)]

    def by_nonzero(*values: Any) -> list[Any]:
        filled = list(operands)
        for place, value in zip(places, values, strict=True):
            filled[place] = value
        return _evaluate(*filled, **params)

    return jax.jvp(by_nonzero, [operands[place] for place in places], [tangents[place] for place in places])


def _transpose(cotangents: Sequence[Any], *operands: Any, call: RuleCall, needed: Any, **_params: Any) -> list[Any]:
    count = len(operands) - sum(needed)
    if all(type(cotangent) is ad.Zero for cotangent in cotangents):
        return [None] * len(operands)
    flowing = _as_arrays(map(internals.instantiated, cotangents))
    return [None] * count + call.derive("backward", needed, operands[:count], flowing)


def _linear_batch(axis: Any, values: Sequence[Any], dims: Sequence[Any], **params: Any) -> Any:
    return internals.vmap_like(axis)(functools.partial(_evaluate, **params), in_axes=tuple(dims))(*values)


_linear_p.def_impl(_evaluate)
_linear_p.def_effectful_abstract_eval(_linear_abstract)
ad.primitive_jvps[_linear_p] = _linear_jvp
ad.primitive_transposes[_linear_p] = _transpose
internals.batch_by(_linear_p, _linear_batch)
mlir.register_lowering(_linear_p, mlir.lower_fun(_evaluate, multiple_results=True))
