"""One call of a function with a derivative rule: how it is evaluated, and its derivative in both modes.

A call is a parameter of the primitives in `derivative`, whose rules evaluate,
differentiate and batch it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Var, jaxpr_as_fun
from jax.interpreters import partial_eval as pe

from adprotocol.errors import RuleError
from adprotocol.extend import Derivative
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
        return self.trace(*arrays) if self.program is None else list(jaxpr_as_fun(self.program)(*arrays))

    def trace(self, *arrays: Any) -> list[Any]:
        """Run the function itself."""
        results, self.outline = self.rule.fun(arrays)
        return [jnp.asarray(result) for result in results]

    def kept(self, results: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
        """Return the results and arguments that a derivative needs."""
        return [*results, *(arrays[self.closed_over :] if self.rule.keeps_arrays else ())]

    def derive(self, mode: str, needed: Sequence[bool], kept: Sequence[Any], flowing: Sequence[Any]) -> list[Any]:
        """Return what the rule makes, at what was kept, of what flows.

        `forward` takes the tangents of the arguments that are needed to those of the results, and `backward` the
        cotangents of the results to the gradients of those arguments. A rule that uses a tracer whose trace has ended,
        also one in an object, is refused.
        """
        rule = self.rule
        count = len(kept) - (len(self.types) if rule.keeps_arrays else 0)
        if rule.once:
            kept = [primitives.prevent_gradient(value, rule.once) for value in kept]
        arrays = list(kept[count:]) if rule.keeps_arrays else list(map(internals.blank, self.types))
        derivative = _Derivative(rule, self.outline, needed[self.closed_over :], list(kept[:count]), arrays)
        derivative.types = self.types
        try:
            results: list[Any] = getattr(derivative, mode)(list(flowing))
            if not any(map(internals.is_tracer_of_ended_trace, (*results, *internals.closed_over()))):
                return results
        except jax.errors.UnexpectedTracerError:
            pass
        raise RuleError(
            f"a derivative rule of {rule.name} uses a value that JAX traces and that is no argument, and JAX calls the "
            "rule when that trace is over; pass the value as a positional argument, whose gradient may be None"
        )


class _Derivative(Derivative):
    """The derivative of one call, of JAX's arrays, or arrays without memory in place of those that are not kept."""

    types: list[Any]

    @property
    def inputs(self) -> list[Any]:
        """Return the types of the arrays that are differentiated."""
        return [kind for kind, need in zip(self.types, self.needed, strict=True) if need]

    def is_inexact(self, array: Any) -> bool:
        """Return whether the dtype is."""
        return internals.is_differentiated(array.dtype)

    def transpose(self, fun: Callable[[Any], list[Any]], zeros: list[Any]) -> Callable[[list[Any]], list[Any]]:
        """Call ``jax.vjp``."""
        # until https://github.com/jax-ml/jax/issues/26121: linear_transpose ignores the rules of what the rule calls.
        if not internals.is_eager():
            return lambda cotangents: self._transposed_program(fun, zeros, cotangents)
        pull = jax.vjp(fun, zeros)[1]
        return lambda cotangents: list(pull(cotangents)[0])

    def holds(self, condition: Any) -> bool:
        """Look at all rows of a batch."""
        return bool(np.all(internals.concrete(condition)))

    def concrete(self) -> _Derivative | None:
        """Return the same; of a staged program the equations tell whether a rule is linear."""
        return self if internals.is_eager() else None

    def _transposed_program(self, fun: Callable[[Any], list[Any]], points: list[Any], given: list[Any]) -> list[Any]:
        """Return the transpose of a function in a staged program, whose equations tell whether it is linear."""

        def pulled(points: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
            return list(jax.vjp(fun, points)[1](cotangents)[0])

        program = jax.make_jaxpr(fun)(points).jaxpr
        recorded = _dependence(jax.make_jaxpr(pulled)(points, given).jaxpr)
        for result, used in enumerate(_dependence(program)):
            if any(used[place] and not recorded[place][len(points) + result] for place in range(len(points))):
                raise self.not_linear()
        # Of a function that has a rule itself, as a solver, no equation tells: it is taken to be linear.
        return at_any_point(pulled, points, given, self.not_linear(), trusted="adprotocol_custom_derivative")


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
    """Return for each result of a program of which operands it is computed."""
    count = len(program.outvars)
    return [pe.dce_jaxpr(program, [place == i for place in range(count)])[1] for i in range(count)]


class BatchedCall(RuleCall):
    """A call for each row of a batch, of which `dims` says which operands have it, as leading axis."""

    def __init__(self, call: RuleCall, dims: Sequence[int | None], mapped: Callable[..., Any]) -> None:
        vars(self).update(vars(call), program=None)
        self.call = call
        self.dims: tuple[int | None, ...] = tuple(dims)
        # `jax.vmap` for this batch: its size and its name.
        self.mapped = mapped

    def trace(self, *arrays: Any) -> list[Any]:
        """Run the function for each row."""
        results = self.mapped(lambda *rows: self.call.run(rows), in_axes=self.dims)(*arrays)
        self.outline: Any = self.call.outline
        refuse_objects(self.rule, self.outline)
        return list(results)

    def derive(self, mode: str, needed: Sequence[bool], kept: Sequence[Any], flowing: Sequence[Any]) -> list[Any]:
        """Return that of each row; for an operand that all rows share, the sum of their gradients."""
        axes: list[int | None] = [0] * len(kept)
        if self.rule.keeps_arrays:
            own = self.dims[self.closed_over :]
            axes[len(kept) - len(own) :] = own
        dims = [dim for dim, need in zip(self.dims, needed, strict=True) if need]
        rows = self.mapped(
            lambda kept, flowing: self.call.derive(mode, needed, kept, flowing),
            in_axes=(axes, dims if mode == "forward" else 0),
        )
        found = rows(list(kept), list(flowing))
        if mode == "forward":
            return list(found)
        return [row if dim is not None else row.sum(0) for row, dim in zip(found, dims, strict=True)]


def refuse_objects(rule: DerivativeRule, outline: Outline) -> None:
    """Refuse residuals that may hold tracers."""
    if outline.objects:
        raise RuleError(
            f"the residuals of {rule.name} hold {outline.objects}, unknown to JAX, while it compiles or batches "
            "the function; return arrays as residuals, or a structure of them (register_structure makes a class one)"
        )


internals.hold_weakly(RuleCall, BatchedCall)
