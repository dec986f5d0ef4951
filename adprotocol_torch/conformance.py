"""The conformance harness for PyTorch, built from PyTorch's own functions.

What it needs of PyTorch's private parts stands here, not in `internals`, for the plugin does without.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import traceback
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch._C._dynamo.eval_frame import reset_code
from torch._functorch import config
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from adprotocol.conformance import Harness
from adprotocol_torch.internals import functorch_is_active, pytree

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence


class TorchHarness(Harness):
    """Differentiate, batch and compile tensors of 64 bits."""

    name = "torch"
    tolerance: float = 1e-9
    absent: ClassVar[Mapping[str, str]] = {
        "jit": "torch.compile traces again when what it read has changed; see compile",
        "scan": "PyTorch has no public scan",
        "while_loop": "PyTorch has no public loop",
        "evaluate": "PyTorch computes at once",
    }

    @property
    def variants(self) -> Mapping[str, Mapping[str, Callable[..., Any]]]:
        """Return the further functions of PyTorch for each capability."""
        return {
            "grad": {
                "func": torch.func.grad,
                "backward": _grad_by_backward,
                "jacrev": torch.func.jacrev,
                "jacfwd": torch.func.jacfwd,
            },
            "jvp": {"dual": _jvp_by_dual},
            "compile": {"dynamo": functools.partial(_compiled, backend="eager"), "export": _compile_by_export},
            "checkpoint": {"reentrant": lambda fun: functools.partial(checkpoint, fun, use_reentrant=True)},
            "no_grad": {"inference_mode": torch.inference_mode()},
            "abstract": {"meta": lambda fun, *arrays: fun(*[array.to("meta") for array in arrays])},
        }

    def array(self, value: Any) -> Any:
        """Return a tensor on the device; floats are of 64 bits, as in NumPy."""
        return torch.tensor(np.asarray(value), device=self.device)

    def to_numpy(self, array: Any) -> Any:
        """Copy the tensor to the host, without its graph; NumPy has no bfloat16."""
        return (array.float() if array.dtype is torch.bfloat16 else array).numpy(force=True)

    def grad(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Call ``torch.autograd.grad``, and ``torch.func.grad`` where PyTorch takes nothing else."""
        with_value = self.value_and_grad(fun)
        return lambda *arguments: with_value(*arguments)[1]

    def value_and_grad(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Call ``torch.autograd.grad``, and ``torch.func.grad_and_value`` where PyTorch takes nothing else."""

        def both(x: Any, *rest: Any) -> tuple[Any, Any]:
            if torch.compiler.is_dynamo_compiling() or functorch_is_active():
                gradient, value = torch.func.grad_and_value(fun)(x, *rest)
                return value, gradient
            value, leaf = _run(fun, x, rest)
            return value, _gradient(value, leaf)

        return both

    def jvp(self, fun: Callable[..., Any], primal: Any, tangent: Any) -> tuple[Any, Any]:
        """Call ``torch.func.jvp``."""
        value, slope, *_ = torch.func.jvp(fun, (primal,), (tangent,))
        return value, slope

    def compile(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Call ``torch.compile`` for one graph, with the backend on which all compiling backends build."""
        return _compiled(fun, "aot_eager")

    def vmap(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Call ``torch.func.vmap``."""
        return torch.func.vmap(fun)

    def checkpoint(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Call ``torch.utils.checkpoint`` in the variant that PyTorch recommends."""

        def checkpointed(*arguments: Any) -> Any:
            try:
                return checkpoint(fun, *arguments, use_reentrant=False)
            except Exception as error:
                # until torch 2.13: its hooks outlive an error for as long as the frames of the traceback.
                traceback.clear_frames(error.__traceback__)
                raise

        return checkpointed

    def stop_gradient(self, array: Any) -> Any:
        """Call ``detach``."""
        return array.detach()

    def no_grad(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Call ``torch.no_grad``."""
        return torch.no_grad()(fun)

    def custom_rule(self, fun: Callable[..., Any], derivative: Callable[..., Any]) -> Callable[..., Any]:
        """Make `fun` a ``torch.autograd.Function`` with rules for both modes."""

        class Rule(torch.autograd.Function):
            generate_vmap_rule = True

            @staticmethod
            def forward(x: Any) -> Any:
                return fun(x)

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, _output: Any) -> None:
                ctx.save_for_backward(*inputs)
                ctx.save_for_forward(*inputs)

            @staticmethod
            def backward(ctx: Any, cotangent: Any) -> Any:
                (x,) = ctx.saved_tensors
                return derivative(x) * cotangent

            @staticmethod
            def jvp(ctx: Any, tangent: Any) -> Any:
                (x,) = ctx.saved_tensors
                return derivative(x) * tangent

        return Rule.apply

    def counter(self) -> tuple[Callable[..., Any], Callable[[], int]]:
        """Count how often the rule of an identity runs."""
        runs: list[None] = []

        def derivative(_x: Any) -> float:
            runs.append(None)
            return 1.0

        return self.custom_rule(torch.clone, derivative), lambda: len(runs)

    def abstract(self, fun: Callable[..., Any], *arrays: Any) -> None:
        """Call `fun` with the fake tensors of PyTorch's compilers."""
        with FakeTensorMode() as mode:  # a class without a public name
            fun(*(mode.from_tensor(array) for array in arrays))

    def variable(self, value: Any) -> Any:
        """Return a leaf of the graph that is not a parameter."""
        return self.array(value).requires_grad_()

    def backward(self, value: Any, cotangent: Any) -> None:
        """Call ``backward``."""
        value.backward(cotangent)

    def parameter(self, value: Any, *, trains: bool) -> Any:
        """Return a parameter of ``torch.nn``."""
        return torch.nn.Parameter(self.array(value), requires_grad=trains)

    def assign(self, parameter: Any, value: Any) -> None:
        """Copy into the parameter, as optimisers do."""
        with torch.no_grad():
            parameter.copy_(self.array(value))

    def set_flag(self, parameter: Any, *, trains: bool) -> None:
        """Call ``requires_grad_``."""
        parameter.requires_grad_(trains)

    def module(self, parts: Mapping[str, Any], frozen: Collection[str] = (), buffers: Collection[str] = ()) -> Any:
        """Return an instance of a subclass of ``torch.nn.Module``."""
        module = type("Model", (torch.nn.Module,), {})()
        for name, part in parts.items():
            if name in buffers:
                module.register_buffer(name, self.array(part))
            elif isinstance(part, list):
                setattr(module, name, torch.nn.ModuleList(part))
            elif isinstance(part, dict):
                setattr(module, name, torch.nn.ModuleDict(part))
            else:
                is_module = isinstance(part, torch.nn.Module)
                setattr(module, name, part if is_module else self.parameter(part, trains=name not in frozen))
        return module

    def sum(self, array: Any) -> Any:
        """Call ``torch.sum``."""
        return torch.sum(array)

    def where(self, mask: Any, x: Any, y: Any) -> Any:
        """Call ``torch.where``."""
        return torch.where(mask, x, y)

    def dtypes(self) -> Sequence[str]:
        """Name the dtypes of PyTorch."""
        return ("float64", "float32", "bfloat16", "float16")

    def cast(self, array: Any, dtype: str) -> Any:
        """Call ``to``."""
        return array.to(getattr(torch, dtype))

    def operations(self) -> Mapping[str, Callable[[Any], Any]]:
        """Name functions of PyTorch."""
        return {
            "exp": torch.exp,
            "matmul": lambda v: v @ torch.ones(2, 3, dtype=v.dtype, device=v.device),
            "reshape": lambda v: v.reshape(2, 1),
            "transpose": lambda v: v[None].T,
            "cat": lambda v: torch.cat([v, v]),
            "max": torch.amax,
            "argmax": lambda v: torch.argmax(v).to(v.dtype),
            "sort": lambda v: torch.sort(v).values,
            "cumsum": lambda v: torch.cumsum(v, 0),
            "index_select": lambda v: torch.index_select(v, 0, torch.tensor([1, 0], device=v.device)),
            "in place": lambda v: torch.zeros_like(v).copy_(v).mul_(2.0),
            "bits": lambda v: (v.view(torch.int64) + 1).view(v.dtype),
            "complex": lambda v: torch.complex(v, torch.zeros_like(v)),
            "fft": torch.fft.fft,
        }

    def parameter_grad(self, fun: Callable[[], Any], parameter: Any) -> Any:
        """Call ``torch.autograd.grad`` for the parameter as a leaf of the graph."""
        with torch.enable_grad():
            value = fun()
        return _gradient(value, parameter)

    def node(self, children: Sequence[Any]) -> Any:
        """Return an instance of a class that is registered with PyTorch's pytrees."""
        return _Node(children)

    def threads(self) -> bool:
        """Answer True: PyTorch keeps its modes by thread."""
        return True

    def devices(self) -> Sequence[str]:
        """Name the CPU and the CUDA devices."""
        return ("cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count())))


class _Node:
    """A container registered with PyTorch, which adprotocol knows through the plugin alone."""

    def __init__(self, children: Sequence[Any]) -> None:
        self.children = tuple(children)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.children)


pytree.register_pytree_node(
    _Node, lambda node: (list(node.children), None), lambda children, _context: _Node(list(children))
)


def _run(fun: Callable[..., Any], x: Any, rest: Sequence[Any]) -> tuple[Any, Any]:
    """Return the value of `fun`, and the tensor in place of `x` at which its graph begins."""
    # A copy keeps the history and the tangent of `x`. Under no_grad there is no history.
    leaf = x.clone() if torch.is_grad_enabled() else x.detach()
    with torch.enable_grad():
        return fun(leaf.requires_grad_(), *rest), leaf


def _gradient(value: Any, leaf: Any) -> Any:
    if not value.requires_grad:
        return torch.zeros_like(leaf)
    again = torch.is_grad_enabled()
    # One that donated buffers would refuse a gradient that may be differentiated again; here no backend reuses any.
    with config.patch(donated_buffer=False):
        return torch.autograd.grad(value, leaf, create_graph=again, materialize_grads=True)[0]


def _grad_by_backward(fun: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(x: Any, *rest: Any) -> Any:
        value, leaf = _run(fun, x, rest)
        if value.requires_grad:
            value.backward(inputs=[leaf], create_graph=torch.is_grad_enabled())
        return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad

    return gradient


def _jvp_by_dual(fun: Callable[..., Any], primal: Any, tangent: Any) -> tuple[Any, Any]:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(primal, tangent)  # type: ignore[no-untyped-call]
        value, slope = forward_ad.unpack_dual(fun(dual))  # type: ignore[no-untyped-call]
    return value, torch.zeros_like(value) if slope is None else slope


def _compiled(fun: Callable[..., Any], backend: str) -> Callable[..., Any]:
    """Compile a function whose code others, such as closures, share, with a cache of limited size for itself."""
    if Harness.folder is not None:  # a process of the suite's own
        without_guard_statistics()
    options: dict[str, Any] = {"fullgraph": True, "backend": backend}
    # until torch 2.13: there is no such option.
    if "isolate_recompiles" in inspect.signature(torch.compile).parameters:
        options["isolate_recompiles"] = True
    elif hasattr(fun, "__code__"):
        reset_code(fun.__code__)
    return torch.compile(fun, **options)


@functools.cache
def without_guard_statistics() -> None:
    """Keep Dynamo from timing the guards of each graph, behind a flush of the processor's cache: 20 ms; for tests."""
    guards: Any = importlib.import_module("torch._dynamo.guards")
    guards.profile_guard_manager = lambda *_: 0.0


class _Module(torch.nn.Module):
    def __init__(self, fun: Callable[..., Any]) -> None:
        super().__init__()
        self.fun = fun

    def forward(self, *arguments: Any) -> Any:
        return self.fun(*arguments)


def _compile_by_export(fun: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: torch.export.export(_Module(fun), arguments).module()(*arguments)
