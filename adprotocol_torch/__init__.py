"""The adprotocol plugin for PyTorch.

Three ways to track a tensor have to be seen: reverse mode (`requires_grad`),
forward mode (dual numbers, which `no_grad` does not stop) and torch.func, whose
wrappers hide both. `tracking` asks them in eager mode; under ``torch.compile``
`dynamo` asks the same of the fake tensors that Dynamo traces with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from adprotocol.extend import View, trace_instead
from adprotocol.hookspecs import hookimpl
from adprotocol_torch import dynamo, gradient, labels, modules, nodes, tracking
from adprotocol_torch.branching import branch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol.conformance import Harness
    from adprotocol.extend import Divergence

labels.register()

within_gradient = hookimpl(trace_instead(dynamo.within_gradient)(tracking.within_gradient))


@hookimpl
def array_types() -> tuple[type, ...]:
    """Claim tensors; parameters and other subclasses follow."""
    return (torch.Tensor,)


@hookimpl
def non_differentiable(value: torch.Tensor) -> torch.Tensor:
    """Detach a tensor, from every level of torch.func at once.

    Always, and not only while the tensor is tracked: a leaf may be asked to
    require gradients later, and a constant must not follow it.
    """
    return value.detach() if value.is_floating_point() or value.is_complex() else value


@hookimpl
def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Run the chosen branch; select under vmap; ``torch.cond`` in a compiled graph."""
    return branch(pred, true_fun, false_fun, operands)


@hookimpl
def trainable(value: torch.Tensor) -> bool | None:
    """Answer by the dtype; a parameter follows its flag, a buffer takes none."""
    if not (value.is_floating_point() or value.is_complex()) or getattr(value, "_is_buffer", False):
        return None
    return value.requires_grad if isinstance(value, torch.nn.Parameter) else True


@hookimpl
def parameter_types() -> tuple[type, ...]:
    """One parameter under two names is one leaf."""
    return (torch.nn.Parameter,)


@hookimpl
def value_and_grad(fun: Callable[[list[Any]], tuple[Any, Any]], leaves: list[Any]) -> tuple[Any, Any, list[Any]]:
    """Differentiate by the engine, and by torch.func where the engine cannot."""
    return gradient.value_and_grad(fun, leaves)


@hookimpl
def view_types() -> tuple[type, ...]:
    """Modules are shown as a dict."""
    return (torch.nn.Module,)


@hookimpl
def view(value: torch.nn.Module) -> View:
    """Show parameters and buffers by their qualified names."""
    return modules.view(value)


@hookimpl
def tree_node(value: Any) -> Any:
    """Take apart what is registered with PyTorch's pytrees."""
    return nodes.node(value)


@hookimpl
def explain(value: torch.Tensor) -> str:
    """Say what decides the answer."""
    return tracking.explain(value)


@hookimpl
def divergences() -> Sequence[Divergence]:
    """List what PyTorch does not allow to be done right."""
    from adprotocol_torch.divergence import DIVERGENCES  # noqa: PLC0415  (only its readers need it)

    return DIVERGENCES


@hookimpl
def harness(device: str | None) -> Harness:
    """Give the conformance suite what it needs."""
    from adprotocol_torch.harness import TorchHarness  # noqa: PLC0415  (only the suite needs it)

    return TorchHarness(device)
