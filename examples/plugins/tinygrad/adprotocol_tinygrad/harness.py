"""The harness of tinygrad: its own functions, under the names that the conformance suite calls."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from tinygrad import Tensor, TinyJit, dtypes, function
from tinygrad.device import Device
from tinygrad.uop.ops import Ops

from adprotocol.conformance import Harness

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tinygrad.uop.ops import UOp

_REALISED = "a realised tensor is a buffer: tinygrad forgets what it was computed from, and its gradient is zero"


class TinygradHarness(Harness):
    """Describe tinygrad: reverse mode on a lazy graph, and TinyJit."""

    name = "tinygrad"
    absent: ClassVar[Mapping[str, str]] = {
        "jvp": "tinygrad has no forward mode",
        "vmap": "tinygrad has no vmap",
        "module": "tinygrad has no class of models; any object is one",
        "checkpoint": "tinygrad has no checkpoint",
        "while_loop": "tinygrad has no loop that is traced",
        "scan": "tinygrad has no loop that is traced",
        "no_grad": "tinygrad has no switch: it records always",
        "node": "tinygrad has no registry of containers",
        "abstract": "every tensor of tinygrad is abstract until it is realised",
        "threads": "the cache of compiled kernels is an SQLite connection, which serves one thread",
        "grad of jit": _REALISED,
        "jit of jit": "a TinyJit is not captured in another",
    }

    def array(self, value: Any) -> Tensor:
        """Return a constant with storage of its own."""
        numbers = np.asarray(value)
        if numbers.dtype.kind == "c":
            raise TypeError("tinygrad has no complex numbers")
        dtype = {"f": dtypes.default_float, "i": dtypes.int32, "b": dtypes.bool}[numbers.dtype.kind]
        made = Tensor(numbers.reshape(-1).tolist(), device=self.device, dtype=dtype).reshape(numbers.shape)
        made = made.detach() if made.is_floating_point() else made
        _arrays.add(made.uop)
        return made

    def to_numpy(self, array: Any) -> np.ndarray:
        """Return the values."""
        if not isinstance(array, Tensor):
            return np.asarray(array)
        # A number without a device would be computed on the CPU, whose compiler may be missing.
        return (array if array.device is not None else array.clone(device=self.device or Device.DEFAULT)).numpy()

    def grad(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return the gradient."""
        value_and_grad = self.value_and_grad(fun)
        return lambda *args: value_and_grad(*args)[1]

    def value_and_grad(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return value and gradient."""

        def differentiated(x: Tensor, *rest: Any) -> tuple[Any, Tensor]:
            # A variable of its own for each call, so that two gradients at one array are two; -0.0 leaves x as it is.
            variable = Tensor.full(x.shape, -0.0, dtype=x.dtype, device=x.device)
            _under_way.append(variable)
            try:
                value = fun(x + variable, *rest)
            finally:
                _under_way.pop()
            if not isinstance(value, Tensor) or not value.is_floating_point():
                return value, Tensor.zeros(*x.shape, dtype=x.dtype, device=x.device).detach()
            return value, value.gradient(variable)[0]

        return differentiated

    def jit(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Capture the function for each shape and dtype."""
        captured: dict[Any, Any] = {}

        used: dict[Any, Any] = {}

        def computed(*args: Any, **kwargs: Any) -> Tensor:
            result = fun(*args, **kwargs)
            given = _flat((*args, *kwargs.values()))
            if not isinstance(result, Tensor):  # a branch of `cond` that was chosen before the capture
                return Tensor(result, device=given[0].device).clone()
            used[_key(given)] = nodes = result.uop.toposort()
            _refuse_tracked(nodes)
            if result.device is not None and not result.uop.has_buffer_identity(after_ok=True):
                return result
            # A kernel, also where the result is a number or an argument as it is.
            return result.clone(device=given[0].device)

        def run(*args: Any, **kwargs: Any) -> Tensor:
            given = _flat((*args, *kwargs.values()))
            if not all(isinstance(arg, Tensor) for arg in given):
                raise TypeError("TinyJit captures tensors; an object among its arguments becomes part of the program")
            key = _key(given)
            for nodes in (used.get(key, ()), *(arg.uop.toposort() for arg in given)):
                _refuse_tracked(nodes)

            def call(program: Any) -> Tensor:
                inputs = iter(_inputs(given))

                def renewed(arg: Any) -> Any:
                    return {name: next(inputs) for name in arg} if isinstance(arg, dict) else next(inputs)

                return program(*[renewed(arg) for arg in args], **{name: renewed(arg) for name, arg in kwargs.items()})

            kind = key, tuple(kwargs), *(tuple(arg) for arg in (*args, *kwargs.values()) if isinstance(arg, dict))
            if kind not in captured:
                captured[kind] = TinyJit(computed)
                # The first call runs the function, the second captures it; a replay is what is to be tested.
                for _ in range(2):
                    call(captured[kind])
            # The buffers of a result are those of the next call.
            return call(captured[kind]).clone().realize().detach()

        return run

    def compile(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Make one node of the function, which gradients pass."""
        return function(fun, allow_implicit=True)

    def stop_gradient(self, array: Any) -> Any:
        """Detach."""
        return array.detach()

    def custom_rule(self, fun: Callable[..., Any], derivative: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function with a rule for its gradient."""

        def rule(upstream: Any, call: Any) -> tuple[Any, ...]:
            # What the function closes over are further sources, which have no derivative.
            return ((Tensor(upstream) * derivative(Tensor(call.src[1]))).uop, *[None] * (len(call.src) - 2))

        return function(fun, grad_fxn=rule, allow_implicit=True)

    def counter(self) -> tuple[Callable[..., Any], Callable[[], int]]:
        """Count the runs of a rule."""
        runs: list[bool] = []

        def rule(upstream: Any, call: Any) -> tuple[Any]:  # noqa: ARG001
            runs.append(True)
            return (upstream,)

        return function(lambda x: x * 1.0, grad_fxn=rule), lambda: len(runs)

    def sum(self, array: Any) -> Any:
        """Sum all elements."""
        return array.sum()

    def where(self, mask: Any, x: Any, y: Any) -> Any:
        """Select."""
        return mask.where(x, y)

    def dtypes(self) -> Sequence[str]:
        """Name the floating-point dtypes, the default first."""
        return ("float32", "float64", "bfloat16", "float16")

    def cast(self, array: Any, dtype: str) -> Any:
        """Convert."""
        return array.cast(dtype)

    def operations(self) -> Mapping[str, Callable[[Any], Any]]:
        """Name methods of tinygrad."""
        return {
            "larger": lambda v: v.minimum(9.0).maximum(0.5),
            "exp": Tensor.exp,
            "matmul": lambda v: v @ Tensor.ones(2, 3),
            "reshape": lambda v: v.reshape(2, 1),
            "transpose": lambda v: v.reshape(1, 2).T,
            "cat": lambda v: v.cat(v),
            "max": Tensor.max,
            "cumsum": Tensor.cumsum,
            "gather": lambda v: v.gather(0, Tensor([1, 0])),
            "pad": lambda v: v.pad((1, 1)),
            "flip": lambda v: v.flip(0),
            "relu": Tensor.relu,
            "contiguous": Tensor.contiguous,
            "clone": _copied,
            "bits": lambda v: (v.bitcast(dtypes.int32) + 1).bitcast(dtypes.float32),
            "assign": lambda v: Tensor.zeros(2).is_param_(is_param=False).clone().realize().assign(v),
        }

    def evaluate(self, array: Any) -> Any:
        """Realise the array, in place, unless that takes a derivative away."""
        _refuse_tracked(array.uop.toposort(gate=lambda node: node.op is not Ops.DETACH))
        return array.realize()

    def parameter(self, value: Any, *, trains: bool) -> Tensor:
        """Return a variable."""
        made = Tensor(value, dtype=dtypes.default_float) if isinstance(value, list) else Tensor.full((), value)
        _parameters.append(weakref.ref(made))
        return made.is_param_(trains)

    def assign(self, parameter: Tensor, value: Any) -> None:
        """Assign to the tensor."""
        parameter.assign(Tensor(value, dtype=parameter.dtype)).realize()

    def set_flag(self, parameter: Tensor, *, trains: bool) -> None:
        """Set the flag that the plugin reads."""
        parameter.is_param_(trains)

    def variable(self, value: Any) -> Tensor:
        """Return a parameter, which has a gradient behind a backward pass."""
        return self.parameter(value, trains=True)

    def backward(self, value: Tensor, cotangent: Tensor) -> None:
        """Call ``Tensor.backward``."""
        value.backward(gradient=cotangent)

    def parameter_grad(self, fun: Callable[[], Any], parameter: Any) -> Any:
        """Name the parameter."""
        _under_way.append(parameter)
        try:
            value = fun()
        finally:
            _under_way.pop()
        nodes = value.uop.toposort(enter_calls=False)
        if parameter.uop not in nodes and parameter.uop.base in nodes:
            raise RuntimeError("a function closes over a view: tinygrad passes its buffer, and the gradient is zero")
        return value.gradient(parameter)[0]

    def devices(self) -> Sequence[str]:
        """Name the devices that this machine has."""
        return tuple(dict.fromkeys((Device.DEFAULT, *Device.get_available_devices())))


# The variables of the gradients under way, and the parameters and the arrays made.
_under_way: list[Tensor] = []
_parameters: list[weakref.ref[Tensor]] = []
_arrays: weakref.WeakSet[UOp] = weakref.WeakSet()


def _copied(v: Tensor) -> Tensor:
    """Return a copy, which has storage of its own: that of an array is data too."""
    copy = v.clone()
    return copy.is_param_(is_param=False) if v.uop in _arrays else copy


def _refuse_tracked(nodes: Collection[UOp]) -> None:
    """Refuse to realise what is differentiated, in a jitted function or else: tinygrad would return zero."""
    if any(variable.uop in nodes for variable in _under_way):
        raise RuntimeError(_REALISED)


def _flat(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments with the tensors of a dict in its place."""
    return tuple(part for arg in args for part in (arg.values() if isinstance(arg, dict) else (arg,)))


def _key(args: tuple[Tensor, ...]) -> tuple[Any, ...]:
    return tuple((arg.shape, arg.dtype) for arg in args)


def _inputs(args: tuple[Tensor, ...]) -> list[Tensor]:
    """Return copies for TinyJit, which refuses one buffer twice, and realises its arguments; parameters keep flags."""
    copies = [(arg, arg.clone()) for arg in args]
    return [
        (copy if any(arg is parameter() for parameter in _parameters) else copy.detach()).realize()
        for arg, copy in copies
    ]
