"""Derivative rules and host functions.

In eager code a call is noted on the tapes and accumulators, as an operation of TensorFlow
with a rule for each mode. In a traced function `tf.custom_gradient` gives an operation of the
program a gradient; there TensorFlow derives forward mode from it. `tf.vectorized_map` replaces
that operation by another, whose gradient is the natural one, so what is differentiated there raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import tensorflow as tf
from tensorflow.python.eager import forwardprop_util, record

from adprotocol.errors import RuleError
from adprotocol.extend import Derivative, gradient_prevented
from adprotocol.hookspecs import hookimpl
from adprotocol_tensorflow import recording, stack, staging

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol.extend import DerivativeRule, Outline


@hookimpl
def custom_rule(rule: DerivativeRule, arrays: list[Any]) -> tuple[list[Any], Outline]:
    """Note the call on the tapes, or give an operation of the program the gradient of the rule."""
    tensors = [tf.convert_to_tensor(array) for array in arrays]
    call = _Call(rule, tensors)
    if tf.executing_eagerly():
        call.recorded()
    else:
        if stack.is_vectorized():
            refuse(tensors, f"tf.vectorized_map loses the derivative rule of {rule.name}; differentiate outside of it")
        call.traced()
    return call.results, call.outline


@hookimpl
def host_call(
    fun: Callable[[list[Any]], list[Any]],
    arrays: list[Any],
    like: list[Any] | None,
    batched: bool,  # noqa: ARG001, FBT001  (it is not called under tf.vectorized_map)
    message: str,
) -> list[Any]:
    """Call the function, in a program by `tf.numpy_function`."""
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
            raise self.rule.hidden_error()
        return results

    def recorded(self) -> None:
        """Run the function, and note it on what is open."""
        self.results = [tf.stop_gradient(result) for result in self._run(list(map(tf.stop_gradient, self.arrays)))]
        # For forward mode TensorFlow follows some values by a tape of its own, of which nobody knows.
        if not recording.OPEN.accumulators:
            self.needed = [need and recording.eager(a) for a, need in zip(self.arrays, self.needed, strict=True)]
        inputs = self._inputs()
        if inputs:
            # Without a rule for forward mode, TensorFlow transposes the other.
            forward = (lambda *tangents: self._derivative().forward(tangents)) if self.rule.has_jvp else None
            outputs = self.results[: self.outline.count]
            if forward is None and any(forwardprop_util.pack_tangents(inputs).indices):
                derivative = _Derivative(self.rule, self.outline, self.needed, self.results, self.arrays)
                derivative.check_linear(derivative.backward, outputs, inputs)
            record.record_operation("Rule", outputs, inputs, self._backward, forward)

    def traced(self) -> None:
        """Make an operation of the program with the gradient of the rule."""
        if not any(self.needed):
            self.results = self._run(self.arrays)
            return
        inputs = self._inputs()
        inside = recording.recorders_inside()
        if inside.accumulators and any(inside.follow(inputs)):
            msg = (
                f"the derivative rule of {self.rule.name} is needed in forward mode, by an accumulator opened in the "
                "function that is being traced; open it around the traced function"
            )
            raise RuleError(msg)
        refuse(self.rule.closed_over(), f"{self.rule.name} closes over what is differentiated; make it an argument")

        @tf.custom_gradient
        def ruled(*inputs: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
            given = iter(inputs)
            filled = [next(given) if need else array for array, need in zip(self.arrays, self.needed, strict=True)]
            results = list(map(tf.identity, self._run(filled)))
            # Of two derivatives the outer one is that of what is outside of this function.
            return results, lambda *cotangents: self._backward(*cotangents[: self.outline.count])

        self.results = list(ruled(*inputs))

    def _inputs(self) -> list[tf.Tensor]:
        return [array for array, need in zip(self.arrays, self.needed, strict=True) if need]

    def _derivative(self) -> _Derivative:
        """Return the derivative, of what nobody may differentiate if the rule is differentiated once."""
        arrays, results = self.arrays, self.results
        if self.rule.once:
            if tf.executing_eagerly():
                refuse([*arrays, *results], self.rule.once)
            guarded = _guard(self.rule.once)
            arrays, results = list(map(guarded, arrays)), list(map(guarded, results))
        return _Derivative(self.rule, self.outline, self.needed, results, arrays)

    def _backward(self, *cotangents: tf.Tensor | None) -> list[tf.Tensor]:
        outputs = self.results[: self.outline.count]
        given = [tf.zeros_like(result) if one is None else one for one, result in zip(cotangents, outputs, strict=True)]
        # TensorFlow's cotangents of complex numbers are the conjugates of those of a rule.
        return _conjugates(self._derivative().backward(_conjugates(given)))


class _Derivative(Derivative):
    """The derivative of one call, of tensors."""

    def is_inexact(self, array: tf.Tensor) -> bool:
        """Return whether the dtype is."""
        return _is_inexact(array)

    def transpose(
        self, fun: Callable[[list[tf.Tensor]], list[tf.Tensor]], zeros: list[tf.Tensor]
    ) -> Callable[[list[tf.Tensor]], list[tf.Tensor]]:
        """Watch the function on a tape, which conjugates."""
        with tf.GradientTape(watch_accessed_variables=False, persistent=True) as tape:
            tape.watch(zeros)
            results = fun(zeros)

        def pull(cotangents: list[tf.Tensor]) -> list[tf.Tensor]:
            given = _conjugates(cotangents)
            zero = tf.UnconnectedGradients.ZERO
            return _conjugates(tape.gradient(results, zeros, output_gradients=given, unconnected_gradients=zero))

        return pull

    def in_numpy(self, array: tf.Tensor) -> Any:
        """Return the numbers."""
        return array.numpy()

    def concrete(self) -> Derivative | None:
        """Return that of the values alone; a traced function has none."""
        if not tf.executing_eagerly():
            return None
        results, arrays = ([*map(tf.stop_gradient, values)] for values in (self.results, self.arrays))
        return _Derivative(self.rule, self.outline, self.needed, results, arrays)


def _guard(message: str) -> Callable[[tf.Tensor], tf.Tensor]:
    """Return an identity for a program whose gradient raises."""

    @tf.custom_gradient
    def identity(tensor: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        def refused(*_: Any) -> NoReturn:
            raise gradient_prevented(tensor, message, "tensorflow: the gradient of a gradient in a traced function")

        return tf.identity(tensor), refused

    return lambda tensor: identity(tensor) if _is_inexact(tensor) and not tf.executing_eagerly() else tensor


def _is_inexact(tensor: tf.Tensor) -> bool:
    return tensor.dtype.is_floating or tensor.dtype.is_complex


def _conjugates(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    return [tf.math.conj(tensor) if tensor.dtype.is_complex else tensor for tensor in tensors]
