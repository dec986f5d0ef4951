"""Derivative rules and host functions.

In eager code a call is noted on the tapes and accumulators, as an operation of TensorFlow
with a rule for each mode. In a traced function `tf.custom_gradient` gives an operation of the
program a gradient; there TensorFlow derives forward mode from it. `tf.vectorized_map` replaces
that operation by another, whose gradient is the natural one, so what is differentiated there raises.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import forwardprop_util, record

from adprotocol.errors import RuleError
from adprotocol.extend import check_transpose, gradient_prevented, hidden_error, transposing
from adprotocol_tensorflow import recording, stack, staging

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol.extend import DerivativeRule, Outline


def custom_rule(rule: DerivativeRule, arrays: list[Any]) -> tuple[list[Any], Outline]:
    """Return what the function returns, with the rule as its derivative."""
    tensors = [tf.convert_to_tensor(array) for array in arrays]
    call = _Call(rule, tensors)
    if tf.executing_eagerly():
        call.recorded()
    else:
        if stack.is_vectorized():
            refuse(tensors, f"tf.vectorized_map loses the derivative rule of {rule.name}; differentiate outside of it")
        call.traced()
    return call.results, call.outline


def host_call(
    fun: Callable[[list[Any]], list[Any]], arrays: list[Any], like: list[Any] | None, message: str
) -> list[Any]:
    """Return what a function of NumPy arrays makes of tensors."""
    tensors = [tf.convert_to_tensor(array) for array in arrays]
    refuse(tensors, message)
    if tf.executing_eagerly():
        return [tf.convert_to_tensor(result) for result in fun([tensor.numpy() for tensor in tensors])]
    if stack.is_vectorized():
        msg = "tf.vectorized_map cannot call a function of NumPy arrays; call it outside, on all rows"
        raise RuleError(msg)
    if like is None:
        msg = "a host function in a traced function needs to tell the shapes of its results: host_function(like=...)"
        raise RuleError(msg)
    dtypes = [tf.as_dtype(kind.dtype) for kind in like]
    results = tf.numpy_function(lambda *given: fun(list(given)), tensors, dtypes)
    for result, kind in zip(results, like, strict=True):
        result.set_shape(kind.shape)
    return list(results)


def refuse(tensors: Sequence[tf.Tensor], message: str) -> None:
    """Raise where one of the tensors is differentiated: now, or in a call of the function that is being traced."""
    for tensor in tensors:
        if not _is_inexact(tensor):
            continue

        def error(tensor: tf.Tensor = tensor) -> Exception:
            return gradient_prevented(tensor, message, "tensorflow: a tape or forward accumulator follows it")

        if not tf.executing_eagerly():
            staging.guard(tensor, error)
        elif recording.eager(tensor):
            raise error()


class _Call:
    """One call of a function with a rule."""

    def __init__(self, rule: DerivativeRule, arrays: list[tf.Tensor]) -> None:
        self.rule = rule
        self.arrays = arrays
        self.results: list[tf.Tensor] = []
        self.outline: Any = None
        # Those that may be differentiated; in reverse mode those that are.
        self.needed = [_is_inexact(array) for array in arrays]

    def _run(self, arrays: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        found, self.outline = self.rule.fun(arrays)
        results = [tf.convert_to_tensor(result) for result in found]
        if tf.executing_eagerly() and any(map(recording.eager, filter(_is_inexact, results))):
            raise hidden_error(self.rule.name)
        return results

    def recorded(self) -> None:
        """Run the function, and note it on what is open."""
        self.results = [tf.stop_gradient(result) for result in self._run(list(map(tf.stop_gradient, self.arrays)))]
        # For forward mode TensorFlow follows some values by a tape of its own, of which nobody knows.
        if not recording.OPEN.accumulators:
            self.needed = [need and recording.eager(a) for a, need in zip(self.arrays, self.needed, strict=True)]
        moving = self._moving(self.arrays)
        if moving:
            # Without a rule for forward mode, TensorFlow transposes the other.
            forward = (lambda *tangents: self._tangents(list(tangents))) if self.rule.has_jvp else None
            if forward is None and any(forwardprop_util.pack_tangents(moving).indices):
                self._check(self.results[: self.outline.count], moving)
            record.record_operation("Rule", self.results[: self.outline.count], moving, self._backward, forward)

    def traced(self) -> None:
        """Make an operation of the program with the gradient of the rule."""
        if not any(self.needed):
            self.results = self._run(self.arrays)
            return
        moving = self._moving(self.arrays)
        inside = recording.recorders_inside()
        if inside.accumulators and any(inside.follow(moving)):
            msg = (
                f"the derivative rule of {self.rule.name} is needed in forward mode, by an accumulator opened in the "
                "function that is being traced; open it around the traced function"
            )
            raise RuleError(msg)
        refuse(self.rule.closed_over(), f"{self.rule.name} closes over what is differentiated; make it an argument")

        @tf.custom_gradient
        def ruled(*moving: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
            given = iter(moving)
            filled = [next(given) if need else array for array, need in zip(self.arrays, self.needed, strict=True)]
            results = list(map(tf.identity, self._run(filled)))
            # Of two derivatives the outer one is that of what is outside of this function.
            return results, lambda *cotangents: self._backward(*cotangents[: self.outline.count])

        self.results = list(ruled(*moving))

    def _moving(self, arrays: Sequence[Any]) -> list[Any]:
        return [array for array, need in zip(arrays, self.needed, strict=True) if need]

    def _backward(self, *cotangents: tf.Tensor | None) -> list[tf.Tensor]:
        own = self.results[: self.outline.count]
        given = [tf.zeros_like(result) if one is None else one for one, result in zip(cotangents, own, strict=True)]
        if self.rule.has_vjp:
            return list(map(_conjugate, self._by_vjp(list(map(_conjugate, given)))))
        likes = self._moving(self.arrays)
        if tf.executing_eagerly():
            self._check(likes, own)
        return _transposed(self._tangents, likes, given)

    def _by_vjp(self, cotangents: list[tf.Tensor]) -> list[tf.Tensor]:
        arrays, results = self._once()
        found = self.rule.vjp(self.needed, cotangents, results, self.outline, arrays)
        return _as_like(found, self._moving(self.arrays))

    def _check(self, points: list[tf.Tensor], targets: list[tf.Tensor]) -> None:
        """Refuse a rule that is not linear in what flows, of which the other mode would follow."""
        constant = copy.copy(self)
        constant.arrays, constant.results = ([*map(tf.stop_gradient, own)] for own in (self.arrays, self.results))
        fun = constant._by_vjp if self.rule.has_vjp else constant._tangents
        with transposing(self.rule):
            pull = _numpy(lambda cotangents: _transposed(fun, points, cotangents))
            check_transpose(self.rule, self.needed, _numpy(fun), pull, points, targets, _probe, bool)

    def _tangents(self, moving: list[tf.Tensor]) -> list[tf.Tensor]:
        arrays, results = self._once()
        given = iter(moving)
        full = [
            next(given) if need else tf.zeros_like(array) if _is_inexact(array) else None
            for array, need in zip(self.arrays, self.needed, strict=True)
        ]
        found = self.rule.jvp(full, results, self.outline, arrays)
        return _as_like(found, self.results[: self.outline.count])

    def _once(self) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Return arrays and results for the rule, which nobody may differentiate if it is differentiated once."""
        if not self.rule.once:
            return self.arrays, self.results
        if tf.executing_eagerly():
            refuse([*self.arrays, *self.results], self.rule.once)
        guarded = _guard(self.rule.once)
        return list(map(guarded, self.arrays)), list(map(guarded, self.results))


def _guard(message: str) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return an identity for a program whose gradient raises."""

    @tf.custom_gradient
    def identity(tensor: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        def refused(*_: Any) -> NoReturn:
            raise gradient_prevented(tensor, message, "tensorflow: the gradient of a gradient in a traced function")

        return tf.identity(tensor), refused

    return lambda tensor: identity(tensor) if _is_inexact(tensor) and not tf.executing_eagerly() else tensor


def _transposed(
    fun: Callable[[list[tf.Tensor]], list[tf.Tensor]], points: Sequence[tf.Tensor], cotangents: list[tf.Tensor]
) -> list[tf.Tensor]:
    """Return the transpose of a linear function of several tensors, applied to cotangents."""
    zeros = [tf.zeros_like(point) for point in points]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(zeros)
        results = fun(zeros)
    zero = tf.UnconnectedGradients.ZERO
    return list(tape.gradient(results, zeros, output_gradients=cotangents, unconnected_gradients=zero))


def _numpy(fun: Callable[[list[tf.Tensor]], list[tf.Tensor]]) -> Callable[[list[Any]], list[Any]]:
    """Return a function of tensors as one of NumPy's arrays."""
    return lambda values: [result.numpy() for result in fun(list(map(tf.convert_to_tensor, values)))]


def _probe(like: tf.Tensor, shift: float) -> Any:
    """Return numbers in the shape of a tensor."""
    return np.cos(np.arange(np.prod(like.shape)) + shift).reshape(like.shape).astype(like.dtype.as_numpy_dtype)


def _as_like(found: Sequence[Any], likes: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return gradients or tangents as tensors of the right dtypes; None is zeros."""
    return [
        tf.zeros_like(like) if one is None else tf.cast(tf.convert_to_tensor(one), like.dtype)
        for one, like in zip(found, likes, strict=True)
    ]


def _is_inexact(tensor: tf.Tensor) -> bool:
    return tensor.dtype.is_floating or tensor.dtype.is_complex


def _conjugate(tensor: tf.Tensor) -> tf.Tensor:
    """Convert between TensorFlow's cotangents of complex numbers and those of a rule."""
    return tf.math.conj(tensor) if tensor.dtype.is_complex else tensor
