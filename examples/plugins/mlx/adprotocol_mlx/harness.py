"""The harness of MLX: its own functions, under the names that the conformance suite calls."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, ClassVar

import mlx.core as mx
import numpy as np
from mlx import nn

from adprotocol.conformance import Harness

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

_DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16, "float64": mx.float64}


class MlxHarness(Harness):
    """Differentiate, batch and compile arrays of MLX, in single precision."""

    name = "mlx"
    absent: ClassVar[Mapping[str, str]] = {
        "compile": "mx.compile is the compiler; shapeless=True takes no custom function of MLX, such as a checkpoint",
        "no_grad": "MLX has no switch for the recording of derivatives",
        "while_loop": "MLX has no loop of its own; Python's loops are unrolled",
        "abstract": "MLX has no abstract evaluation",
        "parameter": "MLX has no parameters; every leaf is an array, and flags are those of modules",
        "parameter_grad": "MLX has no parameters",
        "assign": "MLX has no parameters",
        "set_flag": "MLX has no parameters",
        "variable": "MLX differentiates functions alone",
        "backward": "MLX differentiates functions alone",
        "node": "MLX has no registry of containers; it knows lists, tuples and dicts",
        "threads": "another thread cannot evaluate what a thread has left unevaluated",
        "devices": "arrays are in memory that all devices share; the device is that of an operation",
    }

    @property
    def variants(self) -> Mapping[str, Mapping[str, Callable[..., Any]]]:
        """Return the further functions of MLX for each capability."""
        gradients = {"vjp": _grad_by_vjp, "keyword": _grad_by_keyword, "nested": _grad_of_nested}
        return {"grad": gradients, "custom_rule": {"vjp": _rule_by_vjp}}

    def array(self, value: Any) -> mx.array:
        """Return an array in MLX's default dtypes."""
        return mx.array(value)

    def to_numpy(self, array: Any) -> Any:
        """Copy the values; NumPy has no bfloat16."""
        return np.array(array.astype(mx.float32) if array.dtype == mx.bfloat16 else array)

    def grad(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Call ``mx.grad``."""
        return mx.grad(_returning_array(fun))

    def value_and_grad(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Call ``mx.value_and_grad``."""
        return mx.value_and_grad(_returning_array(fun))

    def jvp(self, fun: Callable[..., Any], primal: Any, tangent: Any) -> tuple[Any, Any]:
        """Call ``mx.jvp``."""
        (value,), (slope,) = mx.jvp(_returning_array(fun), [primal], [tangent])
        return value, slope

    def jit(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Call ``mx.compile``."""
        return mx.compile(fun)

    def vmap(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Call ``mx.vmap``."""
        return mx.vmap(_returning_array(fun))

    def checkpoint(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Call ``mx.checkpoint``."""
        return mx.checkpoint(fun)

    def scan(self, fun: Callable[..., Any], carry: Any, xs: Any) -> tuple[Any, Any]:
        """Loop in Python, as all loops of MLX are."""
        ys = []
        for i in range(xs.shape[0]):
            carry, y = fun(carry, xs[i])
            ys.append(y)
        return carry, mx.stack(ys)

    def stop_gradient(self, array: Any) -> Any:
        """Call ``mx.stop_gradient``."""
        return mx.stop_gradient(array)

    def custom_rule(self, fun: Callable[..., Any], derivative: Callable[..., Any]) -> Callable[..., Any]:
        """Make `fun` an ``mx.custom_function`` with a rule for each mode."""
        made = mx.custom_function(fun)
        made.vjp(lambda x, cotangent, _output: derivative(x) * cotangent)
        made.jvp(lambda x, tangent: derivative(x) * tangent)
        return made

    def counter(self) -> tuple[Callable[..., Any], Callable[[], int]]:
        """Make the identity an ``mx.custom_function`` that counts the runs of its rules."""
        runs: list[None] = []
        identity = mx.custom_function(lambda x: x)

        def backward(_primal: Any, cotangent: Any, _output: Any) -> Any:
            runs.append(None)
            return cotangent

        def forward(_primal: Any, tangent: Any) -> Any:
            runs.append(None)
            return tangent

        identity.vjp(backward)
        identity.jvp(forward)
        return identity, lambda: len(runs)

    def sum(self, array: Any) -> Any:
        """Call ``mx.sum``."""
        return mx.sum(array)

    def where(self, mask: Any, x: Any, y: Any) -> Any:
        """Call ``mx.where``."""
        return mx.where(mask, x, y)

    def dtypes(self) -> Sequence[str]:
        """Name the dtypes; the GPU has no float64."""
        names = list(_DTYPES)
        return names if mx.default_device() == mx.Device(mx.cpu) else names[:3]

    def cast(self, array: Any, dtype: str) -> Any:
        """Call ``astype``."""
        return array.astype(_DTYPES[dtype])

    def operations(self) -> Mapping[str, Callable[[Any], Any]]:
        """Name functions of MLX."""
        return {
            "larger": lambda v: mx.maximum(mx.minimum(v, 9.0), 0.5),
            "exp": mx.exp,
            "matmul": lambda v: v @ mx.ones((2, 3), dtype=v.dtype),
            "reshape": lambda v: v.reshape(2, 1),
            "transpose": lambda v: v[None].T,
            "concatenate": lambda v: mx.concatenate([v, v]),
            "max": mx.max,
            "argmax": lambda v: mx.argmax(v).astype(v.dtype),
            "maximum": lambda v: mx.maximum(v, 0.0),
            "sort": mx.sort,
            "cumsum": mx.cumsum,
            "take": lambda v: mx.take(v, mx.array([1, 0])),
            "at": lambda v: mx.zeros_like(v).at[mx.array([0])].add(v[1]),
            "assign": _assigned,
            "complex": lambda v: v.astype(mx.complex64),
            "split": lambda v: mx.split(v, 2)[1],
            "fft": mx.fft.rfft,
        }

    def module(self, parts: Mapping[str, Any], frozen: Collection[str] = (), buffers: Collection[str] = ()) -> Any:
        """Return an instance of a subclass of ``nn.Module``, to which names with an underscore are no parameters."""
        hidden = {name: property(operator.itemgetter(f"_{name}")) for name in buffers}
        made = type("Model", (nn.Module,), hidden)()
        for name, part in parts.items():
            kept = isinstance(part, list | dict)  # of which nn.Module is one
            made[f"_{name}" if name in buffers else name] = part if kept else self.array(part)
        made.freeze(recurse=False, keys=list(frozen))
        return made

    def evaluate(self, array: Any) -> Any:
        """Call ``mx.eval``."""
        mx.eval(array)
        return array


def _assigned(v: Any) -> Any:
    made = mx.zeros_like(v)
    made[0] = v[1]
    return made


def _returning_array(fun: Callable[..., Any]) -> Callable[..., Any]:
    """MLX differentiates and batches functions to arrays only; a branch may return a number."""

    def returning(*args: Any) -> Any:
        result = fun(*args)
        return mx.array(result) if isinstance(result, (bool, int, float, complex)) else result

    return returning


def _grad_by_vjp(fun: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(x: Any, *rest: Any) -> Any:
        # Beside another result: alone, a bare mx.stop_gradient is right.
        cotangents = [mx.ones(()), mx.zeros_like(x)]
        _, gradients = mx.vjp(lambda x: [_returning_array(fun)(x, *rest), 2.0 * x], [x], cotangents)
        return gradients[0]

    return gradient


def _grad_by_keyword(fun: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(x: Any, *rest: Any) -> Any:
        by_name = mx.grad(lambda *, x: _returning_array(fun)(x, *rest), argnums=[], argnames="x")
        return by_name(x=x)[1]["x"]

    return gradient


def _grad_of_nested(fun: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(x: Any, *rest: Any) -> Any:
        of_tree = mx.grad(lambda tree: _returning_array(fun)(tree["layers"][0]["x"], *rest))
        return of_tree({"layers": [{"x": x}]})["layers"][0]["x"]

    return gradient


def _rule_by_vjp(fun: Callable[..., Any], derivative: Callable[..., Any]) -> Callable[..., Any]:
    made = mx.custom_function(fun)
    made.vjp(lambda x, cotangent, _output: derivative(x) * cotangent)
    return made
