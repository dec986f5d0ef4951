"""What the graph that Dynamo builds connects: operands, results, and gradients taken in it."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import torch

from adprotocol_torch import internals, tracking

# The compilations in which a branch of a staged cond takes a gradient: their contexts, which last while Dynamo starts
# over (their numbers are used again after a reset).
SELECTING: weakref.WeakSet[Any] = weakref.WeakSet()

# What the branches of a staged cond return that a graph cannot hold, by branch. What is a constant, as it is, for a
# caller that Dynamo does not trace (torch.export without it); and, while Dynamo traces, as it stands for it.
_KEPT: dict[str, tuple[Any, Any]] = {}
_KEYS = itertools.count()


def new_key() -> str:
    """Return a key for what a branch returns; this and the next two functions run during tracing.

    A text, for where torch.cond calls Dynamo itself, this makes symbols of integers that change.
    """
    return str(next(_KEYS))


def keep(key: str, value: Any, variable: Any = None) -> None:
    """Keep what a branch returns besides tensors, in tuples."""
    _KEPT[key] = (value, variable)


def kept(key: str, *, in_graph: bool = False) -> Any:
    """Return what a branch returned besides tensors, and keep it no longer."""
    return _KEPT.pop(key)[in_graph]


def sharing(tensors: list[torch.Tensor]) -> list[int]:
    """Return the positions of the tensors that share memory with an earlier one."""
    first: dict[int, int] = {}
    return [i for i, tensor in enumerate(tensors) if first.setdefault(internals.memory_of(tensor), i) != i]


def is_tracked(cond: Any) -> bool:
    """Tell whether an operand of a node is tracked."""
    return any(map(_is_tracked, cond.all_input_nodes))


def make_gradients_dense(cond: Any, modules: Any) -> None:
    """Let the gradients of a staged cond be contiguous, for PyTorch refuses branches of which the strides differ.

    The gradient of a sum is expanded, for one. That of a selection is a new tensor; itself it is a view.
    """
    for argument in cond.all_input_nodes:
        module = modules.get(argument.target) if argument.op == "get_attr" else None
        if not isinstance(module, torch.fx.GraphModule):
            continue
        graph = module.graph
        inputs = list(graph.find_nodes(op="placeholder"))
        with graph.inserting_after(inputs[-1] if inputs else None):
            for node in filter(_is_tracked, inputs):
                given = node.meta["example_value"]
                row = graph.call_method("unsqueeze", (node, 0))
                row.meta["example_value"] = given.unsqueeze(0)
                row.append(selected := graph.call_method("select", (row, 0, 0)))
                selected.meta["example_value"] = row.meta["example_value"].select(0, 0)
                node.replace_all_uses_with(selected, delete_user_cb=lambda user, row=row: user is not row)
        module.recompile()


def takes_gradient(cond: Any, modules: Any) -> bool:
    """Tell whether a subgraph of a node enters torch.func.grad, or one of its relatives in reverse mode."""
    for argument in cond.all_input_nodes:
        graph = getattr(modules.get(argument.target), "graph", None) if argument.op == "get_attr" else None
        if graph is not None:  # not a parameter
            for node in graph.nodes:
                if node.target is internals.enter_grad or takes_gradient(node, modules):
                    return True
    return False


def are_reached(value: Any, held: list[torch.Tensor], tracked: list[Any]) -> bool:
    """Tell whether what was traced since the tracked tensors were made computes a result from others that are held."""
    # A subgraph has nodes of its own for the same tensors.
    wanted = {id(tensor) for tensor in held}
    first = min(tracked)
    # No flag shows what was computed from a parameter without one.
    enters = _carries if all(tensor.requires_grad for tensor in held) else _may_carry
    seen = set(tracked)
    stack = [value]
    while stack:
        node = stack.pop()
        if id(node.meta.get("example_value")) in wanted:
            return True
        if node not in seen and enters(node) and not (node.graph is first.graph and node < first):
            seen.add(node)
            stack.extend(node.all_input_nodes)
    return False


def _is_tracked(node: Any) -> bool:
    value = node.meta.get("example_value")
    return isinstance(value, torch.Tensor) and tracking.within_gradient(value)


def _may_carry(node: Any) -> bool:
    value = node.meta.get("example_value")
    if isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.is_complex()):
        return False
    return node.target not in ("detach", torch.detach, torch.Tensor.detach)


def _carries(node: Any) -> bool:
    value = node.meta.get("example_value")
    return not isinstance(value, torch.Tensor) or tracking.within_gradient(value)
