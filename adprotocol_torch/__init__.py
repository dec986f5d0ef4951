"""The adprotocol plugin for PyTorch.

Three ways to track a tensor have to be seen: reverse mode (`requires_grad`),
forward mode (dual numbers, which `no_grad` does not stop) and torch.func, whose
wrappers hide both. `tracking` asks them in eager mode; under ``torch.compile``
`dynamo` asks the same of the fake tensors that Dynamo traces with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from adprotocol.extend import trace_instead
from adprotocol.hookspecs import hookimpl
from adprotocol_torch import dynamo, labels, nodes, tracking
from adprotocol_torch.branching import branch

if TYPE_CHECKING:
    from collections.abc import Callable

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
def tree_node(value: Any) -> Any:
    """Take apart what is registered with PyTorch's pytrees."""
    return nodes.node(value)


@hookimpl
def explain(value: torch.Tensor) -> str:
    """Say what decides the answer."""
    return tracking.explain(value)
