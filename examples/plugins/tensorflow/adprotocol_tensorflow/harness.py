"""The harness of TensorFlow: its own functions, under the names that the conformance suite calls."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import tensorflow as tf

from adprotocol.conformance import Harness

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence


class Bag:
    """A container of things, which `tf.nest` takes apart."""

    def __init__(self, children: Iterable[Any]) -> None:
        self.children = tuple(children)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.children)

    def __tf_flatten__(self) -> tuple[Any, Any]:
        return None, self.children

    @classmethod
    def __tf_unflatten__(cls, _metadata: Any, children: Any) -> Bag:
        return cls(children)


class Tapes(threading.local):
    """The tapes of one thread that the harness has opened."""

    def __init__(self) -> None:
        self.open: list[tf.GradientTape] = []


TAPES = Tapes()


def tensor(value: Any) -> Any:
    """Return a result as a tensor."""
    return value if isinstance(value, tf.Tensor) else tf.convert_to_tensor(value)


class TensorFlowHarness(Harness):
    """Describe TensorFlow."""

    name = "tensorflow"
    tolerance = 1e-5
    absent: ClassVar[Mapping[str, str]] = {
        "variable": "a variable of TensorFlow is tracked where a tape watches it",
        "backward": "TensorFlow's tapes return gradients, which no variable keeps",
        "checkpoint of grad": "tf.recompute_grad stops all tapes in its first run, so a gradient inside of it is zero",
        "checkpoint of jvp": "tf.recompute_grad stops all recording in its first run, so a tangent inside is zero",
        "grad of jvp of jit": "with one tape, TensorFlow gives a tangent of a traced function the derivative zero",
        "grad of jvp of compile": "with one tape, TensorFlow gives a tangent of a traced function the derivative zero",
        "jvp of checkpoint": "tf.recompute_grad has no forward mode, and says so",
    }

    @property
    def variants(self) -> Mapping[str, Mapping[str, Callable[..., Any]]]:
        """Return further ways to do the same."""
        return {
            "grad": {"persistent": self.grad_by_persistent_tape, "symbolic": self.grad_by_graph},
            "parameter_grad": {"symbolic": self.parameter_grad_by_graph},
        }

    def array(self, value: Any) -> tf.Tensor:
        """Return a tensor."""
        array = np.asarray(value)
        dtype = {"f": np.float32, "c": np.complex64, "i": np.int32}.get(array.dtype.kind, array.dtype)
        with tf.device(self.device) if self.device else contextlib.nullcontext():
            return tf.constant(array.astype(dtype))

    def to_numpy(self, array: Any) -> np.ndarray:
        """Return a NumPy array, with zeros where a sparse tensor has nothing."""
        if isinstance(array, tf.SparseTensor):
            array = tf.sparse.to_dense(array)
        elif isinstance(array, tf.IndexedSlices):
            array = tf.convert_to_tensor(array)
        return np.asarray(array.numpy() if isinstance(array, (tf.Tensor, tf.Variable)) else array)

    def value_and_grad(self, fun: Callable[..., Any], *, persistent: bool = False) -> Callable[..., Any]:
        """Return value and gradient."""

        def differentiated(x: Any, *rest: Any) -> tuple[Any, Any]:
            x = tf.identity(x)
            with tf.GradientTape(persistent=persistent) as tape:
                TAPES.open.append(tape)
                try:
                    tape.watch(x)
                    value = fun(x, *rest)
                finally:
                    TAPES.open.pop()
            if not isinstance(value, tf.Tensor):
                return tensor(value), tf.zeros_like(x)
            slope = tape.gradient(value, x, unconnected_gradients=tf.UnconnectedGradients.ZERO)
            return value, tf.convert_to_tensor(slope)  # which may be sparse, as tf.IndexedSlices

        return differentiated

    def grad(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return the gradient."""
        return lambda *args: self.value_and_grad(fun)(*args)[1]

    def grad_by_persistent_tape(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return the gradient, by a tape that may be asked more than once."""
        return lambda *args: self.value_and_grad(fun, persistent=True)(*args)[1]

    def grad_by_graph(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return the gradient by `tf.gradients`, which differentiates a graph that is there already."""

        def differentiated(x: Any, *rest: Any) -> Any:
            x = tf.identity(x)
            value = fun(x, *rest)
            if not isinstance(value, tf.Tensor):
                return tf.zeros_like(x)
            return tf.gradients(value, x, unconnected_gradients=tf.UnconnectedGradients.ZERO)[0]

        traced = tf.function(differentiated)
        # In a graph that is being built there is one to differentiate.
        return lambda *args: (traced if tf.executing_eagerly() else differentiated)(*args)  # noqa: PLW0108  (asked in the call)

    def jvp(self, fun: Callable[..., Any], primal: Any, tangent: Any) -> tuple[Any, Any]:
        """Return value and derivative along the tangent."""
        primal = tf.identity(primal)
        with tf.autodiff.ForwardAccumulator(primal, tangent) as accumulator:
            value = tensor(fun(primal))
        return value, accumulator.jvp(value, unconnected_gradients=tf.UnconnectedGradients.ZERO)

    def jit(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Trace the function."""
        return tf.function(fun)

    def compile(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Trace the function and compile it by XLA."""
        return tf.function(fun, jit_compile=True)

    def vmap(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Vectorise the function."""
        return lambda *args: tf.vectorized_map(lambda elements: fun(*elements), args, fallback_to_while_loop=False)

    def checkpoint(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Run the function again in the backward pass."""
        return tf.recompute_grad(fun)

    def scan(self, fun: Callable[..., Any], carry: Any, xs: Any) -> tuple[Any, Any]:
        """Loop in a traced program, also where nothing else is traced."""

        @tf.function
        def run(carry: Any, xs: Any) -> tuple[Any, Any]:
            first = tf.nest.map_structure(lambda x: x[0], xs)
            # The structure of a y is known from tracing the function once, without running it.
            shown = tf.function(fun).get_concrete_function(carry, first).structured_outputs[1]
            length = tf.nest.flatten(xs)[0].shape[0]
            arrays = tf.nest.map_structure(lambda y: tf.TensorArray(y.dtype, length, element_shape=y.shape), shown)

            def body(index: Any, carry: Any, arrays: Any) -> Any:
                carry, y = fun(carry, tf.nest.map_structure(lambda x: x[index], xs))
                return index + 1, carry, tf.nest.map_structure(lambda array, y: array.write(index, y), arrays, y)

            _, carry, arrays = tf.while_loop(lambda i, *_: i < length, body, (0, carry, arrays))
            return carry, tf.nest.map_structure(lambda array: array.stack(), arrays)

        return run(carry, xs)

    def while_loop(self, continues: Callable[[Any], Any], step: Callable[[Any], Any], state: Any) -> Any:
        """Loop, in eager code as well as in a traced program."""
        return tf.while_loop(lambda *state: continues(state), lambda *state: step(state), state)

    def stop_gradient(self, array: Any) -> Any:
        """Return a constant."""
        return tf.stop_gradient(array)

    def no_grad(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Stop the tapes that are open while the function runs."""

        def unrecorded(*args: Any) -> Any:
            with contextlib.ExitStack() as stack:
                for tape in TAPES.open:
                    if tape._recording:
                        stack.enter_context(tape.stop_recording())
                return fun(*args)

        return unrecorded

    def custom_rule(self, fun: Callable[..., Any], derivative: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with another derivative."""

        @tf.custom_gradient
        def ruled(x: Any) -> tuple[Any, Any]:
            return fun(x), lambda upstream: upstream * derivative(x)

        return ruled

    def counter(self) -> tuple[Callable[..., Any], Callable[[], int]]:
        """Count the derivatives that are computed of an identity."""
        count = 0

        @tf.custom_gradient
        def tick(x: Any) -> tuple[Any, Any]:
            def rule(upstream: Any) -> Any:
                nonlocal count
                count += 1
                return upstream

            return tf.identity(x), rule

        return tick, lambda: count

    def abstract(self, fun: Callable[..., Any], *arrays: Any) -> None:
        """Trace, and compute nothing."""
        tf.function(fun).get_concrete_function(*arrays)

    def parameter(self, value: Any, *, trains: bool) -> tf.Variable:
        """Return a variable."""
        return tf.Variable(self.array(value), trainable=trains)

    def assign(self, parameter: tf.Variable, value: Any) -> None:
        """Assign to the variable."""
        parameter.assign(self.array(value))

    def parameter_grad(self, fun: Callable[[], Any], parameter: tf.Variable) -> Any:
        """Return the gradient of a function that reads a variable."""
        with tf.GradientTape() as tape:
            if not parameter.trainable:
                tape.watch(parameter)
            value = fun()
        if not isinstance(value, tf.Tensor):
            return tf.zeros_like(parameter)
        slope = tape.gradient(value, parameter, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return tf.convert_to_tensor(slope)

    def parameter_grad_by_graph(self, fun: Callable[[], Any], parameter: tf.Variable) -> Any:
        """Return the same by `tf.gradients`."""

        @tf.function
        def differentiated() -> Any:
            slope = tf.gradients(tensor(fun()), parameter, unconnected_gradients=tf.UnconnectedGradients.ZERO)[0]
            return tf.convert_to_tensor(slope)

        return differentiated()

    def module(self, parts: Mapping[str, Any], frozen: Collection[str] = (), buffers: Collection[str] = ()) -> Any:
        """Return an instance of a subclass of `tf.Module`."""
        made = type("Model", (tf.Module,), {})()
        for name, part in parts.items():
            if not isinstance(part, (tf.Module, list, dict)):
                part = self.array(part) if name in buffers else self.parameter(part, trains=name not in frozen)  # noqa: PLW2901
            setattr(made, name, part)
        return made

    def node(self, children: Sequence[Any]) -> Bag:
        """Return a container that `tf.nest` takes apart."""
        return Bag(children)

    def threads(self) -> bool:
        """Each thread has its own tapes."""
        return True

    def devices(self) -> Sequence[str]:
        """Name the devices."""
        return [device.name for device in tf.config.list_logical_devices() if device.device_type in ("CPU", "GPU")]

    def sum(self, array: Any) -> Any:
        """Return the sum of all elements."""
        return tf.reduce_sum(array)

    def where(self, mask: Any, x: Any, y: Any) -> Any:
        """Select by element."""
        return tf.where(mask, x, y)

    def dtypes(self) -> Sequence[str]:
        """Name the floating dtypes."""
        return ("float32", "float64", "float16", "bfloat16")

    def cast(self, array: Any, dtype: str) -> Any:
        """Return the array in another dtype."""
        return tf.cast(array, dtype)

    def operations(self) -> Mapping[str, Callable[[Any], Any]]:
        """Name functions of TensorFlow."""
        return {
            "larger": lambda v: tf.maximum(tf.minimum(v, 9.0), 0.5),
            "exp": tf.exp,
            "matmul": lambda v: v[None] @ tf.ones((2, 3), v.dtype),
            "reshape": lambda v: tf.reshape(v, (2, 1)),
            "transpose": lambda v: tf.transpose(v[None]),
            "concat": lambda v: tf.concat([v, v], 0),
            "max": tf.reduce_max,
            "sort": tf.sort,
            "cumsum": tf.cumsum,
            "gather": lambda v: tf.gather(v, [1, 0]),
            "split": lambda v: tf.split(v, 2)[1],
            "scatter": lambda v: tf.tensor_scatter_nd_update(tf.zeros_like(v), [[0]], v[1:]),
            "complex": lambda v: tf.complex(v, tf.zeros_like(v)),
            "fft": tf.signal.rfft,
            # Of complex numbers, with which the suite does not calculate.
            "sparse": lambda v: tf.SparseTensor([[0], [1]], tf.complex(v, v), [2]),
            "slices": lambda v: tf.IndexedSlices(tf.complex(v, v), tf.range(2), tf.constant([2])),
        }
