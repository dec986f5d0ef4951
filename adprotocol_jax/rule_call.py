"""One call of a function with a derivative rule: how it is evaluated, and its derivative in both modes.

A call is a parameter of the primitives in `derivative`, whose rules evaluate,
differentiate and batch it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Var, jaxpr_as_fun
from jax.interpreters import partial_eval as pe

from adprotocol.errors import RuleError
from adprotocol.extend import check_transpose, not_linear, transposing
from adprotocol_jax import internals, primitives

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol.extend import DerivativeRule, Outline


class RuleCall:
    """One call: its function, and the derivative as a linear function of the nonzero tangents.

    `results` are all arrays that the function returns; `arrays` are the values it closes over, then its arguments.
    """

    def __init__(self, rule: DerivativeRule, arrays: Sequence[Any]) -> None:
        self.rule = rule
        self.types: list[Any] = [jax.typeof(array) for array in arrays]
        # Set when the function has run, which is before any derivative.
        self.outline: Any = None
        # For a staged program; its first operands are the values that the function closes over.
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
        """Return the results and arguments that a derivative needs."""
        return [*results, *(arrays[self.closed_over :] if self.rule.keeps_arrays else ())]

    def _results_and_arrays(self, kept: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return results and arguments, or types of the arguments if these are not kept."""
        rule = self.rule
        if any(map(internals.is_tracer_of_ended_trace, rule.closed_over_by_rules())):
            msg = (
                f"a derivative rule of {rule.name} uses a value that JAX traces and that is no argument, and "
                "JAX calls the rule when that trace is over; pass the value as a positional argument, whose gradient "
                "may be None"
            )
            raise RuleError(msg)
        count = len(kept) - (len(self.types) if rule.keeps_arrays else 0)
        if rule.once:
            kept = [primitives.prevented(value, rule.once) for value in kept]
        return list(kept[:count]), list(kept[count:]) if rule.keeps_arrays else list(self.types)

    def forward(self, needed: Sequence[bool], kept: Sequence[Any], nonzero: Sequence[Any]) -> list[Any]:
        """Return the tangents of the results, given those of the arguments that are needed."""
        if not self.rule.has_jvp:
            # Linear in the cotangent, so that its own transpose is the jvp.
            targets = [kind for kind, need in zip(self.types, needed, strict=False) if need]
            results = kept[: self.outline.count]
            return self._transposed(needed, lambda cts: self.backward(needed, kept, cts), results, targets, nonzero)
        results, arrays = self._results_and_arrays(kept)
        remaining = iter(nonzero)
        tangents = [
            next(remaining)
            if need
            else internals.array_like(None, kind)
            if internals.is_differentiated(kind.dtype)
            else None
            for need, kind in zip(needed[self.closed_over :], self.types, strict=True)
        ]
        pushed = self.rule.jvp(tangents, results, self.outline, arrays)
        return [internals.array_like(tangent, result) for tangent, result in zip(pushed, results, strict=False)]

    def backward(self, needed: Sequence[bool], kept: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        """Return the gradients of the arguments that are needed, given the cotangents of the results."""
        needed = needed[self.closed_over :]
        likes = [kind for kind, need in zip(self.types, needed, strict=True) if need]
        if not self.rule.has_vjp:
            before = (False,) * self.closed_over
            results = kept[: self.outline.count]
            return self._transposed(
                needed, lambda nonzero: self.forward((*before, *needed), kept, nonzero), likes, results, cotangents
            )
        results, arrays = self._results_and_arrays(kept)
        pulled = self.rule.vjp(needed, list(cotangents), results, self.outline, arrays)
        return [internals.array_like(gradient, like) for gradient, like in zip(pulled, likes, strict=True)]

    def _transposed(
        self,
        needed: Sequence[bool],
        fun: Callable[[Any], list[Any]],
        likes: Sequence[Any],
        targets: Sequence[Any],
        cotangents: Sequence[Any],
    ) -> list[Any]:
        """Return the transpose of a linear function of several arrays, applied to cotangents.

        `jax.linear_transpose` would go through the functions that the rule calls instead of using their rules.
        """
        zeros = [internals.array_like(None, like) for like in likes]
        with transposing(self.rule):
            if not internals.is_eager():
                return transposed_program(self.rule, fun, zeros, list(cotangents))
            pull = jax.vjp(fun, zeros)[1]
            check_transpose(
                self.rule,
                needed,
                fun,
                lambda weights: pull(weights)[0],
                zeros,
                targets,
                _probe,
                lambda condition: bool(np.all(internals.concrete(condition))),
            )
            return list(pull(list(cotangents))[0])


def _probe(like: Any, shift: float) -> Any:
    array = jnp.cos(jnp.arange(math.prod(like.shape)) + shift).reshape(like.shape)
    return internals.array_like(array, like)


def transposed_program(
    rule: DerivativeRule, fun: Callable[[Any], list[Any]], points: Sequence[Any], cotangents: Sequence[Any]
) -> list[Any]:
    """Return the transpose of a function in a staged program, whose equations tell whether it is linear."""

    def pulled(points: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        return list(jax.vjp(fun, points)[1](cotangents)[0])

    program = jax.make_jaxpr(fun)(points).jaxpr
    recorded = _dependence(jax.make_jaxpr(pulled)(points, cotangents).jaxpr)
    for result, used in enumerate(_dependence(program)):
        if any(used[place] and not recorded[place][len(points) + result] for place in range(len(points))):
            raise not_linear(rule)
    # Of a function that has a rule itself, as a solver, no equation tells: it is taken to be linear.
    return at_any_point(pulled, points, cotangents, not_linear(rule), trusted="adprotocol_custom_derivative")


def at_any_point(
    pulled: Callable[..., list[Any]],
    points: Sequence[Any],
    cotangents: Sequence[Any],
    error: RuleError,
    trusted: str = "none",
) -> list[Any]:
    """Return a transpose that does not depend on the point, applied to cotangents; raise the error if it does.

    The primitives whose names begin with `trusted` may use the point.
    """
    program = jax.make_jaxpr(pulled)(points, cotangents)
    jaxpr = pe.dce_jaxpr(program.jaxpr, [True] * len(program.out_avals), instantiate=True)[0]
    dependent = set(jaxpr.invars[: len(points)])
    for equation in jaxpr.eqns:
        if not equation.primitive.name.startswith(trusted):
            operands = {place for place in equation.invars if isinstance(place, Var)}
            dependent.update(equation.outvars if operands & dependent else ())
    if dependent.intersection(place for place in jaxpr.outvars if isinstance(place, Var)):
        raise error
    return list(jaxpr_as_fun(ClosedJaxpr(jaxpr, program.consts))(*points, *cotangents))


def _dependence(program: Any) -> list[list[bool]]:
    """Tell for each result of a program of which operands it is computed."""
    count = len(program.outvars)
    return [pe.dce_jaxpr(program, [place == i for place in range(count)])[1] for i in range(count)]


class BatchedCall(RuleCall):
    """A call for each row of a batch, of which `dims` says which operands have it, as leading axis."""

    def __init__(self, call: RuleCall, dims: Sequence[int | None], mapped: Callable[..., Any]) -> None:
        self.rule: DerivativeRule = call.rule
        self.types: list[Any] = call.types
        self.program: ClosedJaxpr | None = None
        self.closed_over: int = call.closed_over
        self.call = call
        self.dims: tuple[int | None, ...] = tuple(dims)
        # `jax.vmap` for this batch: its size and its name.
        self.mapped = mapped

    @property
    def outline(self) -> Outline:
        """Return that of a row."""
        return self.call.outline  # type: ignore[no-any-return]

    def trace(self, *arrays: Any) -> list[Any]:
        """Run the function for each row."""
        results = self.mapped(lambda *rows: self.call.run(rows), in_axes=self.dims)(*arrays)
        refuse_objects(self.rule, self.outline)
        return list(results)

    def _axes(self, kept: Sequence[Any]) -> list[int | None]:
        axes: list[int | None] = [0] * len(kept)
        if self.rule.keeps_arrays:
            own = self.dims[self.closed_over :]
            axes[len(kept) - len(own) :] = own
        return axes

    def _needed(self, needed: Sequence[bool]) -> list[int | None]:
        return [dim for dim, need in zip(self.dims, needed, strict=True) if need]

    def forward(self, needed: Sequence[bool], kept: Sequence[Any], nonzero: Sequence[Any]) -> list[Any]:
        """Return the tangents of each row."""
        rows = self.mapped(
            lambda kept, nonzero: self.call.forward(needed, kept, nonzero),
            in_axes=(self._axes(kept), self._needed(needed)),
        )
        return list(rows(list(kept), list(nonzero)))

    def backward(self, needed: Sequence[bool], kept: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        """Return the gradients of each row, summed for an operand that all rows share."""
        rows = self.mapped(
            lambda kept, cotangents: self.call.backward(needed, kept, cotangents), in_axes=(self._axes(kept), 0)
        )
        gradients = rows(list(kept), list(cotangents))
        return [
            gradient if dim is not None else gradient.sum(0)
            for gradient, dim in zip(gradients, self._needed(needed), strict=True)
        ]


def refuse_objects(rule: DerivativeRule, outline: Outline) -> None:
    """Refuse residuals that may hold tracers."""
    if outline.objects:
        msg = (
            f"the residuals of {rule.name} hold {outline.objects}, of which JAX knows nothing, while it compiles or "
            "batches the function; return arrays as residuals, or a structure of them (register_structure makes a "
            "class one)"
        )
        raise RuleError(msg)


internals.hold_weakly(RuleCall)
internals.hold_weakly(BatchedCall)
