"""Derivative rules with JAX: a primitive for the function, and a linear one for its derivative.

``jax.custom_vjp`` refuses forward mode, and ``jax.custom_jvp`` differentiates its rule by
linearisation, so neither holds both rules. Here the derivative of the function's
primitive is the linear one, which evaluates by the rule for forward mode and is
transposed by the rule for reverse mode. Differentiated again, it is the rule that is
differentiated, as ordinary operations.

Where values are concrete, the function runs as it is written. In a program that is
staged it is traced once, so that what it closes over becomes an operand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import ad, mlir

from adprotocol.errors import RuleError
from adprotocol_jax import internals, prevention

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol.extend import DerivativeRule, Outline

_CLOSED_OVER = (
    "{}, which has a derivative rule, uses a value that is differentiated and is no argument of it, so that this "
    "derivative would be lost; pass the value as a positional argument"
)


class Body:
    """What one call computes: the function, and its derivative as a linear function of some tangents.

    `results` are all that the function returns, `arrays` its arguments, after the values that it closes over.
    """

    def __init__(self, rule: DerivativeRule, arrays: Sequence[Any]) -> None:
        self.rule = rule
        self.types = [internals.type_like(array) for array in arrays]
        # Known as soon as the function has run, which it does before anything is differentiated.
        self.outline: Any = None
        # For a staged program; its first operands are what the function closes over.
        self.program: ClosedJaxpr | None = None
        self.closed_over = 0

    def __repr__(self) -> str:
        return self.rule.name

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """Return the results."""
        if self.program is not None:
            return list(jaxpr_as_fun(self.program)(*arrays))
        return self.trace(*arrays)

    def trace(self, *arrays: Any) -> list[Any]:
        """Run the function itself."""
        results, self.outline = self.rule.fun(arrays)
        return [jnp.asarray(result) for result in results]

    def kept(self, results: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
        """Return what a derivative needs of the results and the arguments."""
        return [*results, *(arrays[self.closed_over :] if self.rule.keeps_arrays else ())]

    def _known(self, kept: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return results and arguments, or types of the arguments if these are not kept."""
        rule = self.rule
        count = len(kept) - (len(self.types) if rule.keeps_arrays else 0)
        if rule.once:
            kept = [prevention.prevented(value, rule.once) for value in kept]
        return list(kept[:count]), list(kept[count:]) if rule.keeps_arrays else list(self.types)

    def forward(self, needed: Sequence[bool], kept: Sequence[Any], moving: Sequence[Any]) -> list[Any]:
        """Return the tangents of the results, given those of the arguments that are needed."""
        if not self.rule.has_jvp:
            # Linear in the cotangent, so that its own transpose is the jvp. (`jax.linear_transpose` needs no point, but
            # goes through the functions that the rule calls instead of using their rules.)
            zeros = [jnp.zeros_like(result) for result in kept[: self.outline.count]]
            return list(jax.vjp(lambda cotangents: self.backward(needed, kept, cotangents), zeros)[1](list(moving))[0])
        results, arrays = self._known(kept)
        given = iter(moving)
        types = self.types
        tangents = [
            next(given)
            if need
            else jnp.zeros(kind.shape, kind.dtype)
            if internals.is_differentiated(kind.dtype)
            else None
            for need, kind in zip(needed[self.closed_over :], types, strict=True)
        ]
        found = self.rule.jvp(tangents, results, self.outline, arrays)
        return [_as_like(tangent, result) for tangent, result in zip(found, results, strict=False)]

    def backward(self, needed: Sequence[bool], kept: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        """Return the gradients of the arguments that are needed, given the cotangents of the results."""
        needed = needed[self.closed_over :]
        likes = [kind for kind, need in zip(self.types, needed, strict=True) if need]
        if not self.rule.has_vjp:
            zeros = [jnp.zeros(kind.shape, kind.dtype) for kind in likes]
            before = (False,) * self.closed_over
            return list(
                jax.vjp(lambda moving: self.forward((*before, *needed), kept, moving), zeros)[1](list(cotangents))[0]
            )
        results, arrays = self._known(kept)
        found = self.rule.vjp(needed, list(cotangents), results, self.outline, arrays)
        return [_as_like(gradient, like) for gradient, like in zip(found, likes, strict=True)]


class Batched(Body):
    """A call for each row of a batch, of which `dims` says which operands have it, as leading axis."""

    def __init__(self, body: Body, dims: Sequence[int | None], mapped: Callable[..., Any]) -> None:
        self.rule = body.rule
        self.types = body.types
        self.program = None
        self.closed_over = body.closed_over
        self.body = body
        self.dims = tuple(dims)
        # `jax.vmap` for this batch: its size and its name.
        self.mapped = mapped

    @property
    def outline(self) -> Outline:
        """Return that of a row."""
        return self.body.outline  # type: ignore[no-any-return]

    def trace(self, *arrays: Any) -> list[Any]:
        """Run the function for each row."""
        results = self.mapped(lambda *rows: self.body.run(rows), in_axes=self.dims)(*arrays)
        _refuse_objects(self.rule, self.outline)
        return list(results)

    def _axes(self, kept: Sequence[Any]) -> list[int | None]:
        axes: list[int | None] = [0] * len(kept)
        if self.rule.keeps_arrays:
            own = self.dims[self.closed_over :]
            axes[len(kept) - len(own) :] = own
        return axes

    def _needed(self, needed: Sequence[bool]) -> list[int | None]:
        return [dim for dim, need in zip(self.dims, needed, strict=True) if need]

    def forward(self, needed: Sequence[bool], kept: Sequence[Any], moving: Sequence[Any]) -> list[Any]:
        """Return the tangents of each row."""
        rows = self.mapped(
            lambda kept, moving: self.body.forward(needed, kept, moving),
            in_axes=(self._axes(kept), self._needed(needed)),
        )
        return list(rows(list(kept), list(moving)))

    def backward(self, needed: Sequence[bool], kept: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        """Return the gradients of each row, summed for an operand that all rows share."""
        rows = self.mapped(
            lambda kept, cotangents: self.body.backward(needed, kept, cotangents), in_axes=(self._axes(kept), 0)
        )
        gradients = rows(list(kept), list(cotangents))
        return [
            gradient if dim is not None else gradient.sum(0)
            for gradient, dim in zip(gradients, self._needed(needed), strict=True)
        ]


def apply(rule: DerivativeRule, arrays: list[Any]) -> tuple[list[Any], Outline]:
    """Return what the function returns; its derivative is that of the rule."""
    body = Body(rule, arrays)
    # A tracer that the function closes over is of a trace that the primitive's rules know nothing of.
    if not internals.is_eager() or any(isinstance(value, jax.core.Tracer) for value in rule.closed_over()):
        arrays = _stage(body, arrays)
    results = _function_p.bind(*arrays, body=body)
    return list(results), body.outline


def _stage(body: Body, arrays: list[Any]) -> list[Any]:
    """Trace the function; return its operands, with the values that it closes over first."""
    axes = frozenset().union(*map(internals.varying_axes, arrays))
    if axes:
        arrays = [internals.as_varying(array, axes) for array in arrays]
    traced = jax.make_jaxpr(body.trace)(*arrays)
    _refuse_objects(body.rule, body.outline)
    message = _CLOSED_OVER.format(body.rule.name)
    consts = [prevention.prevented(const, message) for const in traced.consts]
    body.program, body.closed_over = internals.without_constants(traced), len(consts)
    return [*consts, *arrays]


def _refuse_objects(rule: DerivativeRule, outline: Outline) -> None:
    if outline.objects:
        msg = (
            f"the residuals of {rule.name} hold {outline.objects}, of which JAX knows nothing, while it compiles or "
            "batches the function; return arrays as residuals, or a structure of them (register_structure makes a "
            "class one)"
        )
        raise RuleError(msg)


def _as_like(value: Any, like: Any) -> Any:
    """Return a gradient or tangent as an array of the right dtype; zeros for None."""
    if value is None:
        return jnp.zeros(like.shape, like.dtype)
    return value if isinstance(value, jax.Array) and value.dtype == like.dtype else jnp.asarray(value, like.dtype)


def _tangent_type(value: Any) -> Any:
    return internals.typeof(value).to_tangent_aval().strip_weak_type()


def _zeros(values: Sequence[Any]) -> list[Any]:
    return [ad.Zero(_tangent_type(value)) for value in values]


# The function. It is evaluated by running it, at no level of differentiation.
_function_p: Any = Primitive("adprotocol_custom_derivative")
_function_p.multiple_results = True


def _run(*arrays: Any, body: Body) -> list[Any]:
    with internals.eval_context():
        return body.run(arrays)


def _abstract(*types: Any, body: Body) -> Any:
    if body.program is None:
        body.program = jax.make_jaxpr(body.trace)(*types)
    return body.program.out_avals, body.program.effects


def _is_moving(tangent: Any) -> bool:
    return type(tangent) is not ad.Zero and tangent.dtype != jax.dtypes.float0


def _tangents(kept: Sequence[Any], tangents: Sequence[Any], needed: tuple[bool, ...], body: Body) -> list[Any]:
    """Return the tangents of all results."""
    moving = [tangent for tangent, need in zip(tangents, needed, strict=True) if need]
    count = body.outline.count
    results = kept[: len(kept) - (len(body.types) if body.rule.keeps_arrays else 0)]
    if not moving or count == 0:
        return _zeros(results)
    return [*_linear_p.bind(*kept, *moving, body=body, needed=needed), *_zeros(results[count:])]


def _jvp(arrays: Sequence[Any], tangents: Sequence[Any], *, body: Body) -> tuple[list[Any], list[Any]]:
    needed = tuple(map(_is_moving, tangents))
    results = _function_p.bind(*arrays, body=body)
    return results, _tangents(body.kept(results, arrays), tangents, needed, body)


def _linearize(_is_vjp: Any, nonzeros: Sequence[bool], *arrays: Any, body: Body) -> Any:
    needed = tuple(
        nonzero and _tangent_type(array).dtype != jax.dtypes.float0
        for nonzero, array in zip(nonzeros, arrays, strict=True)
    )
    results = _function_p.bind(*arrays, body=body)
    count = body.outline.count if True in needed else 0
    moved = [place < count for place in range(len(results))]
    return results, moved, body.kept(results, arrays), lambda kept, *tangents: _tangents(kept, tangents, needed, body)


def _batch(axis: Any, values: Sequence[Any], dims: Sequence[Any], *, body: Body) -> Any:
    if all(dim is None for dim in dims):
        results = _function_p.bind(*values, body=body)
        return results, [None] * len(results)
    arrays = [value if dim is None else jnp.moveaxis(value, dim, 0) for value, dim in zip(values, dims, strict=True)]
    batched = Batched(body, [None if dim is None else 0 for dim in dims], internals.vmap_like(axis))
    if body.program is not None:
        batched.program = jax.make_jaxpr(batched.trace)(*arrays)
    results = _function_p.bind(*arrays, body=batched)
    return results, [0] * len(results)


_function_p.def_impl(_run)
_function_p.def_effectful_abstract_eval(_abstract)
ad.primitive_jvps[_function_p] = _jvp
internals.linearize_by(_function_p, _linearize)
internals.batch_by(_function_p, _batch)
mlir.register_lowering(_function_p, mlir.lower_fun(lambda *arrays, body: body.run(arrays), multiple_results=True))
internals.register_for_shard_map(_function_p)


# Its derivative: linear in the operands after those that are kept.
_linear_p: Any = Primitive("adprotocol_custom_derivative_linear")
_linear_p.multiple_results = True


def _evaluate(*operands: Any, body: Body, needed: tuple[bool, ...]) -> list[Any]:
    count = len(operands) - sum(needed)
    return body.forward(needed, operands[:count], operands[count:])


def _linear_abstract(*types: Any, body: Body, needed: tuple[bool, ...]) -> list[Any]:  # noqa: ARG001
    return [kind.to_tangent_aval().strip_weak_type() for kind in types[: body.outline.count]]


def _linear_jvp(operands: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    """Differentiate the rule itself."""
    moving = [place for place, tangent in enumerate(tangents) if _is_moving(tangent)]

    def of_moving(*values: Any) -> list[Any]:
        filled = list(operands)
        for place, value in zip(moving, values, strict=True):
            filled[place] = value
        return _evaluate(*filled, **params)

    return jax.jvp(of_moving, [operands[place] for place in moving], [tangents[place] for place in moving])


def _transpose(cotangents: Sequence[Any], *operands: Any, body: Body, needed: tuple[bool, ...]) -> list[Any]:
    count = len(operands) - sum(needed)
    if all(type(cotangent) is ad.Zero for cotangent in cotangents):
        return [None] * len(operands)
    return [None] * count + body.backward(needed, operands[:count], [internals.instantiated(ct) for ct in cotangents])


def _linear_batch(
    axis: Any, values: Sequence[Any], dims: Sequence[Any], *, body: Body, needed: tuple[bool, ...]
) -> Any:
    if all(dim is None for dim in dims):
        results = _linear_p.bind(*values, body=body, needed=needed)
        return results, [None] * len(results)
    mapped = internals.vmap_like(axis)

    def rows(*operands: Any) -> list[Any]:
        return _evaluate(*operands, body=body, needed=needed)

    results = mapped(rows, in_axes=tuple(dims))(*values)
    return results, [0] * len(results)


_linear_p.def_impl(_evaluate)
_linear_p.def_abstract_eval(_linear_abstract)
ad.primitive_jvps[_linear_p] = _linear_jvp
ad.primitive_transposes[_linear_p] = _transpose
internals.batch_by(_linear_p, _linear_batch)
mlir.register_lowering(_linear_p, mlir.lower_fun(_evaluate, multiple_results=True))
internals.register_for_shard_map(_linear_p)
