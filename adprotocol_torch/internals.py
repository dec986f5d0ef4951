"""The private parts of PyTorch that this plugin uses.

Tried with PyTorch 2.13. A comment at each name says why no public API serves.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch._functorch.pyfunctorch import coerce_cinterpreter
from torch.autograd import forward_ad
from torch.autograd.graph import _engine_run_backward, get_gradient_edge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# The kinds of transformation, to compare with what a compiler notes of those around a graph.
Transform = torch._C._functorch.TransformType  # noqa: SLF001

# torch.func keeps a stack of interpreters, one for each active transformation;
# nothing public tells whether there are any, or steps down a level.
functorch_is_active: Callable[[], bool] = torch._C._are_functorch_transforms_active  # noqa: SLF001
top_interpreter = torch._C._functorch.peek_interpreter_stack  # noqa: SLF001
level_of = torch._C._functorch.maybe_get_level  # noqa: SLF001
is_batched = torch._C._functorch.is_batchedtensor  # noqa: SLF001
is_functional = torch._C._functorch.is_functionaltensor  # noqa: SLF001
unwrapped = torch._C._functorch.get_unwrapped  # noqa: SLF001

# inference_mode switches forward mode off; only the private switch shows it.
forward_mode_is_enabled: Callable[[], bool] = torch._C._is_fwd_grad_enabled  # noqa: SLF001

# Nothing public tells whether saved tensors are packed, as they are inside a checkpoint.
saved_tensor_hooks: Callable[[], Any] = functools.partial(
    torch._C._autograd._top_saved_tensors_default_hooks,  # noqa: SLF001
    True,  # noqa: FBT003
)

# Tells which nodes were made after a point of the program.
next_sequence_number = torch._C._autograd._get_sequence_nr  # noqa: SLF001


def is_below_autograd() -> bool:
    """Tell whether PyTorch is past autograd in the operation under way; no public switch shows that."""
    return torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.AutogradFunctionality)  # noqa: SLF001


def never_compile(function: Callable[..., object]) -> None:
    """Keep Dynamo from compiling the frames of a function and of its callees.

    The public torch.compiler.disable wraps the function, which costs each eager
    call 1 µs.
    """
    frames = torch._C._dynamo.eval_frame  # noqa: SLF001
    skip = frames._FrameAction.SKIP  # noqa: SLF001
    frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))  # noqa: SLF001


def is_differentiating() -> bool:
    """Tell whether the code runs inside a derivative of torch.func or a dual level, of whichever tensors.

    The tape leaves no mark: there the leaves alone know.
    """
    levels = torch._C._functorch.get_interpreter_stack() or ()  # noqa: SLF001
    derivatives = (Transform.Grad, Transform.Jvp)
    return forward_ad._current_level >= 0 or any(level.key() in derivatives for level in levels)  # noqa: SLF001


def run_engine(
    value: torch.Tensor, cotangent: torch.Tensor, inputs: Sequence[Any], *, create_graph: bool
) -> tuple[torch.Tensor | None, ...]:
    """Run ``torch.autograd.grad`` without its own question for modes, which switches them off for the hooks it runs."""
    return _engine_run_backward(
        (value,),
        (cotangent,),
        create_graph,  # and keep the graph
        create_graph,
        tuple(inputs),
        allow_unreachable=True,
        accumulate_grad=False,
    )


def fully_sharded() -> list[torch.nn.Module]:
    """Return the modules that ``torch.distributed.fsdp.fully_shard`` was applied to; PyTorch's own list of them."""
    if "torch.distributed.fsdp" not in sys.modules:
        return []
    from torch.distributed._composable_state import _module_state_mapping  # noqa: PLC0415  (only where it is in use)

    kind = sys.modules["torch.distributed.fsdp"].FSDPModule
    return [module for module in list(_module_state_mapping) if isinstance(module, kind)]


def shards(module: Any) -> list[torch.Tensor]:
    """Return the parameters of a module that FSDP manages, sharded and whole.

    The module itself has the ones or the others, as its last call left it.
    """
    if not hasattr(module, "_get_fsdp_state"):
        return []
    managed = [item for group in module._get_fsdp_state()._fsdp_param_groups for item in group.fsdp_params]  # noqa: SLF001
    found = [getattr(item, name, None) for item in managed for name in ("sharded_param", "_unsharded_param")]
    return [parameter for parameter in found if parameter is not None]


def has_tangent(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is dual; PyTorch has one level of forward mode, 0.

    The public unpack_dual returns None outside its own dual_level, which
    torch.func.jvp does not enter in Python.
    """
    return torch._VF._unpack_dual(tensor, level=0)[1] is not None  # noqa: SLF001


__all__ = [
    "Transform",
    "coerce_cinterpreter",
    "forward_ad",
    "forward_mode_is_enabled",
    "fully_sharded",
    "functorch_is_active",
    "get_gradient_edge",
    "has_tangent",
    "is_batched",
    "is_below_autograd",
    "is_functional",
    "level_of",
    "never_compile",
    "next_sequence_number",
    "run_engine",
    "saved_tensor_hooks",
    "shards",
    "top_interpreter",
    "unwrapped",
]
