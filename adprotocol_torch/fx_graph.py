"""What the graph that Dynamo builds connects: operands, results, and gradients taken in it."""

from __future__ import annotations

from typing import Any

import torch

from adprotocol_torch import internals, tracking


def node_of(value: Any) -> Any:
    """Return the node of what Dynamo knows as a tensor."""
    return value.as_proxy().node


def is_tracked(cond: Any) -> bool:
    """Tell whether an operand of a node is tracked."""
    values = [argument.meta.get("example_value") for argument in cond.all_input_nodes]
    return any(isinstance(value, torch.Tensor) and tracking.within_gradient(value) for value in values)


def takes_gradient(cond: Any, modules: Any) -> bool:
    """Tell whether a subgraph of a node enters torch.func.grad, or one of its relatives in reverse mode."""
    for argument in cond.all_input_nodes:
        if argument.op == "get_attr" and argument.target in modules:
            for node in modules[argument.target].graph.nodes:
                if node.target is internals.enter_grad or takes_gradient(node, modules):
                    return True
    return False


def unused(results: list[Any], operands: list[Any]) -> list[int]:
    """Return the positions of the operands from which no derivative flows into the results."""
    seen: set[Any] = set()
    stack = list(results)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node not in operands:
            stack.extend(parent for parent in node.all_input_nodes if _carries(parent))
    return [i for i, node in enumerate(operands) if node not in seen]


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


def _may_carry(node: Any) -> bool:
    value = node.meta.get("example_value")
    if isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.is_complex()):
        return False
    return node.target not in ("detach", torch.detach, torch.Tensor.detach)


def _carries(node: Any) -> bool:
    value = node.meta.get("example_value")
    return not isinstance(value, torch.Tensor) or tracking.within_gradient(value)
