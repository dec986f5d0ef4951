"""Derivative rules by ``mx.custom_function``, and host functions.

MLX gives a custom function rules for the two modes and for vmap. A vmap of its own makes a
function of it with the same rules for rows. MLX has no call of the host in a graph, so a host
function needs values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import mlx.core as mx
import numpy as np

from adprotocol.errors import RuleError, UndecidableError
from adprotocol.extend import Derivative, gradient_prevented
from adprotocol.hookspecs import hookimpl
from adprotocol_mlx import trace
from adprotocol_mlx.answer import ask, is_inexact, refuse_compiled
from adprotocol_mlx.arrays import ArrayFunctions
from adprotocol_mlx.gradient import renamed
from adprotocol_mlx.prevention import prevent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol.extend import DerivativeRule, Outline


@hookimpl
def custom_rule(rule: DerivativeRule, arrays: list[mx.array]) -> tuple[list[mx.array], Outline]:
    """Make the call one of an ``mx.custom_function`` with rules for both modes and for rows."""
    call, message = _Call(rule, arrays), f"{rule.name} closes over what is differentiated; make it an argument"
    hidden = [*rule.closed_over(), *rule.closed_over_by_rules()]
    guards = [guarded for array in hidden if (guarded := prevent(array, message)) is not array]
    results = call.applied(*arrays)
    return [_tied(result, guards) for result in results], call.outline


@hookimpl
def host_call(
    fun: Callable[[list[Any]], list[Any]],
    arrays: list[mx.array],
    like: list[Any] | None,  # noqa: ARG001  (nothing is staged)
    batched: bool,  # noqa: ARG001, FBT001  (it is not called under mx.vmap)
    message: str,
) -> list[mx.array]:
    """Call the function, if the arrays have values."""
    refuse(arrays, message)
    if any(array.dtype == mx.bfloat16 for array in arrays):
        msg = "NumPy has no bfloat16, so a host function cannot be given it; convert the array to float32"
        raise RuleError(msg)
    try:
        given = trace.keeping_graphs(lambda: [np.array(array) for array in arrays])
    except (ValueError, RuntimeError) as error:
        msg = (
            "MLX has no call of the host in mx.vmap and mx.compile, not even for a host function with like=; call it "
            "outside, on all rows"
        )
        raise RuleError(msg) from error
    # MLX makes 32 bits of NumPy's 64 unless it is told the dtype.
    wide = mx.float64 if any(array.dtype == mx.float64 for array in arrays) else None
    return [mx.array(result, wide if result.dtype == np.float64 else None) for result in fun(given)]


def refuse(arrays: Sequence[mx.array], message: str) -> None:
    """Raise if one of the arrays is differentiated."""
    for array in arrays:
        if ask((array,)) is True:
            raise gradient_prevented(array, message, "mlx: the graph leads back to what is differentiated")


class _Call:
    """One call of a function with a rule."""

    def __init__(self, rule: DerivativeRule, arrays: Sequence[mx.array]) -> None:
        self.rule = rule
        self.outline: Any = None
        # In a program of mx.compile; where vmap puts the values in, it makes a call of its own.
        self.is_open = trace.is_tracing() and not trace.is_applying_vjp() and any(map(trace.is_open, arrays))
        self.needed = [is_inexact(array) and _may_move(array) for array in arrays]
        self.applied: Any = mx.custom_function(self._run)
        self.applied.vjp(self._vjp)
        self.applied.jvp(self._jvp)
        self.applied.vmap(self._vmap)

    def _run(self, *arrays: mx.array) -> list[mx.array]:
        # MLX shows the function what is differentiated.
        found, self.outline = self.rule.fun([renamed(mx.stop_gradient(array)) for array in arrays])
        results = [mx.array(result) for result in found]
        if any(ask((result,)) is True for result in results if is_inexact(result)):
            raise self.rule.hidden_error()
        return results

    def _vjp(self, primals: Any, cotangents: Any, outputs: Any) -> list[mx.array]:
        if self.is_open and trace.has_values(_listed(primals)):
            refuse_compiled()  # mx.compile drops the stop_gradient that keeps the function's own derivative out
        derivative = self._derivative(_listed(outputs), _listed(primals))
        # MLX's cotangents of complex numbers are the conjugates of those of a rule.
        given = _conjugates(_listed(cotangents)[: self.outline.count])
        gradients = iter(_conjugates(derivative.backward(given)))
        return [
            self._tied(next(gradients), derivative) if need else mx.zeros_like(array)
            for array, need in zip(derivative.arrays, self.needed, strict=True)
        ]

    def _jvp(self, primals: Any, tangents: Any) -> list[mx.array]:
        given = _listed(primals)
        results = list(self.applied(*given))
        derivative = self._derivative(results, given)
        flowing = [
            mx.zeros_like(array) if tangent is None else tangent
            for array, tangent, need in zip(given, _listed(tangents), self.needed, strict=True)
            if need
        ]
        pushed = [self._tied(one, derivative) for one in derivative.forward(flowing)]
        return pushed + [mx.zeros_like(result) for result in results[len(pushed) :]]

    def _derivative(self, results: list[mx.array], arrays: list[mx.array]) -> _Derivative:
        """Return the derivative, of what nobody may differentiate if the rule is differentiated once."""
        once = self.rule.once
        if once:
            results, arrays = [_once(result, once) for result in results], [_once(array, once) for array in arrays]
        return _Derivative(self.rule, self.outline, self.needed, results, arrays)

    def _tied(self, one: mx.array, derivative: _Derivative) -> mx.array:
        """Return what a rule computed, of which a derivative comes by the guards although it may not use them."""
        return _tied(one, [*derivative.arrays, *derivative.results]) if self.rule.once else one

    def _vmap(self, arrays: Any, axes: Any) -> tuple[list[mx.array], list[int]]:
        given, places = _listed(arrays), _listed(axes)
        leading = [a if place is None else mx.moveaxis(a, place, 0) for a, place in zip(given, places, strict=True)]
        results, _ = custom_rule(_Rows(self.rule, [place is not None for place in places]), leading)  # type: ignore[arg-type]
        return results, [0] * len(results)


class _Derivative(Derivative):
    """The derivative of one call, of MLX's arrays."""

    def is_inexact(self, array: mx.array) -> bool:
        """Return whether the dtype is."""
        return is_inexact(array)

    def transpose(
        self, fun: Callable[[list[mx.array]], list[mx.array]], zeros: list[mx.array]
    ) -> Callable[[list[mx.array]], list[mx.array]]:
        """Call ``mx.vjp``, which conjugates.

        What the function uses are arguments of it: after an inner derivative MLX forgets that what it closes over is
        differentiated outside.
        """
        n, m = len(zeros), len(self.results)

        def linear(*values: mx.array) -> list[mx.array]:
            results, arrays = list(values[n : n + m]), list(values[n + m :])
            other = _Derivative(self.rule, self.outline, self.needed, results, arrays)
            # mx.vjp leaves results that are a bare stop_gradient out when it counts cotangents.
            return list(map(renamed, getattr(other, fun.__name__)(list(values[:n]))))

        def pull(cotangents: list[mx.array]) -> list[mx.array]:
            values = [*zeros, *map(renamed, (*self.results, *self.arrays))]
            return _conjugates(mx.vjp(linear, values, _conjugates(cotangents))[1][:n])

        return pull

    def in_numpy(self, array: mx.array) -> Any:
        """Return the numbers."""
        return ArrayFunctions.in_numpy(array)

    def concrete(self) -> Derivative | None:
        """Return that of the values without graphs, where there are values."""
        constants = trace.keeping_graphs(lambda: _constants([*self.results, *self.arrays]))
        count = len(self.results)
        if not constants:
            return None
        return _Derivative(self.rule, self.outline, self.needed, constants[:count], constants[count:])


class _Rows:
    """The rule for all rows of a batch; `mapped` says which of the arrays have rows."""

    def __init__(self, rule: Any, mapped: list[bool]) -> None:
        self.rule, self.mapped = rule, mapped
        self.name, self.has_vjp, self.has_jvp, self.once = rule.name, rule.has_vjp, rule.has_jvp, rule.once
        self.linear, self.as_like = rule.linear, rule.as_like

    def closed_over(self) -> list[Any]:
        return []

    def closed_over_by_rules(self) -> list[Any]:
        return []

    def _by_rows(self, fun: Callable[..., Any], values: list[Any], mapped: list[bool]) -> list[Any]:
        axes = tuple([0 if one else None for one in mapped])
        return list(_listed(mx.vmap(lambda *rows: fun(list(rows)), in_axes=axes)(*values)))

    def fun(self, arrays: list[mx.array]) -> tuple[list[mx.array], Any]:
        outlines = []

        def run(rows: list[mx.array]) -> list[mx.array]:
            found, outline = self.rule.fun(rows)
            outlines.append(outline)
            return [mx.array(one) for one in found]

        results = self._by_rows(run, arrays, self.mapped)
        if outlines[0].objects:
            msg = f"the residuals of {self.name} hold {outlines[0].objects}; in mx.vmap, return arrays"
            raise RuleError(msg)
        return results, outlines[0]

    def vjp(self, needed: Any, cotangents: Any, results: Any, outline: Any, arrays: Any) -> list[mx.array]:
        n, m = len(cotangents), len(results)
        mapped = [rows for rows, need in zip(self.mapped, needed, strict=True) if need]

        def run(rows: list[mx.array]) -> list[mx.array]:
            return _Derivative(self.rule, outline, needed, rows[n : n + m], rows[n + m :]).backward(rows[:n])

        found = self._by_rows(run, [*cotangents, *results, *arrays], [True] * (n + m) + self.mapped)
        return [one if rows else one.sum(0) for one, rows in zip(found, mapped, strict=True)]

    def jvp(self, tangents: Any, results: Any, outline: Any, arrays: Any) -> list[mx.array]:
        given = [tangent for tangent in tangents if tangent is not None]
        there = [tangent is not None for tangent in tangents]
        n, m = len(given), len(results)

        def run(rows: list[mx.array]) -> list[mx.array]:
            return _Derivative(self.rule, outline, there, rows[n : n + m], rows[n + m :]).forward(rows[:n])

        mapped = [rows for rows, one in zip(self.mapped, there, strict=True) if one]
        return self._by_rows(run, [*given, *results, *arrays], mapped + [True] * m + self.mapped)


def _may_move(array: mx.array) -> bool:
    """Return whether the gradient of an array may be needed, as far as MLX tells."""
    try:
        return ask((array,)) is not False
    except UndecidableError:
        return True


def _tied(one: mx.array, guards: Sequence[mx.array]) -> mx.array:
    """Return an array of which a derivative, and vmap, come by the guards."""
    sums = [mx.sum(guard).astype(one.dtype) for guard in guards if is_inexact(guard)]
    tied: mx.array = mx.where(mx.array(True), one, sum(sums)) if sums else one
    return tied


def _once(array: mx.array, message: str) -> mx.array:
    """Return an array that raises where a derivative comes by."""

    def refused(*_: Any) -> NoReturn:
        raise gradient_prevented(array, message, "mlx: the derivative of a derivative")

    identity: Any = mx.custom_function(lambda x: x)
    identity.vjp(refused)
    identity.jvp(refused)
    identity.vmap(lambda batch, axis: (_once(batch, message), axis))
    guarded: mx.array = identity(array) if is_inexact(array) else array
    return guarded


def _constants(arrays: list[mx.array]) -> list[mx.array]:
    """Return arrays of the same values without graphs; none where they have no values yet."""
    return [mx.array(one.tolist(), one.dtype) for one in arrays] if trace.has_values(arrays) else []


def _conjugates(arrays: list[mx.array]) -> list[mx.array]:
    return [mx.conjugate(array) if array.dtype == mx.complex64 else array for array in arrays]


def _listed(values: Any) -> list[Any]:
    """Return what MLX gives one of as it is, and several as a tuple or list."""
    return list(values) if isinstance(values, (tuple, list)) else [values]
