"""Parameters that the function to differentiate reaches otherwise than by its argument.

``list(net.parameters())`` in a loss holds the parameters themselves. Where a call
puts other tensors in their place, these references would be constants; a parameter
is one leaf at all its places (its identity), so they count as the argument does:

- the engine differentiates with respect to both (`in_graph`);
- torch.func is shown its own tensor wherever the parameter is used (`Substitution`).

What was *computed* from a parameter before the call is a constant, as for any
tensor. Where the parameter itself is differentiated, PyTorch cannot tell the two
apart, and the call is refused (`refuse_history`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from adprotocol.errors import UndecidableError
from adprotocol_torch.autograd_graph import leaf_of
from adprotocol_torch.internals import sequence_number, use_count
from adprotocol_torch.parameters import LOCAL
from adprotocol_torch.tensors import remedy

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from adprotocol_torch.autograd_graph import Graph


def held(tracked: Sequence[torch.Tensor], owners: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
    """Return the parameters tracked themselves that something besides Python holds, as a graph does that ends there."""
    pairs = zip(tracked, owners, strict=True)
    return [leaf for leaf, owner in pairs if leaf is owner and use_count(leaf) > 1 and leaf.is_leaf]


def in_graph(  # noqa: PLR0913, PLR0917  (one call, as lists by leaf)
    graph: Graph,
    value: torch.Tensor,
    tensors: Sequence[torch.Tensor],
    owners: Sequence[torch.Tensor | None],
    tracked: Sequence[torch.Tensor],
    start: int,
) -> dict[int, torch.Tensor]:
    """Return, by position, what else stands for a tracked parameter in the graph of the value made since `start`."""
    places = [i for i, owner in enumerate(owners) if owner is not None and owner is not tracked[i]]
    if not places:
        return {}
    edges = [edge for node in graph.nodes if sequence_number(node) >= start for edge in node.next_functions]
    nodes = {node for node in (value.grad_fn, *[before for before, _ in edges]) if node is not None}
    reached = {id(value), *[id(leaf_of(node)) for node in nodes]}
    others: dict[int, torch.Tensor] = {}
    for i in places:
        owner, tensor = owners[i], tensors[i]
        if owner is not None and id(owner) in reached:
            others[i] = owner
        elif id(tensor) in reached or tensor.grad_fn in nodes:
            others[i] = tensor
    return others


def refuse_history(graph: Graph, leaves: Sequence[torch.Tensor], ends: Container[Any], start: int) -> None:
    """Refuse a result that depends on one of the leaves through what was computed before the call.

    Nodes are numbered by thread: those that the function made in a thread of its
    own may look older than the call. So this is an error, never a guess.
    """
    ids = set(map(id, leaves))
    nodes = {leaf.grad_fn for leaf in leaves if leaf.grad_fn is not None}
    for node in graph.nodes:
        if sequence_number(node) < start and node not in ends:
            for before, _ in node.next_functions:
                if before in nodes or id(leaf_of(before)) in ids:
                    msg = (
                        "the function to differentiate uses a value that was computed, before the call, from a "
                        "parameter which the call differentiates; PyTorch would count it as part of the function, "
                        f"where it is a constant. {remedy('computed-before-the-call')}"
                    )
                    raise UndecidableError(msg)


class Substitution(TorchFunctionMode):
    """Give the functions of PyTorch what is tracked in the place of the parameter that it stands for."""

    def __init__(self) -> None:
        super().__init__()
        self.current: dict[int, torch.Tensor] = LOCAL.calls.current

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _OF_THE_OBJECT:
            return func(*args, **(kwargs or {}))
        keywords = {name: self.of(item) for name, item in (kwargs or {}).items()}
        return func(*map(self.of, args), **keywords)

    def of(self, argument: Any) -> Any:
        """Return what stands for an argument."""
        if isinstance(argument, torch.Tensor):
            return self.current.get(id(argument), argument)
        if type(argument) in (list, tuple):  # torch.cat and torch.stack take them
            return type(argument)(map(self.of, argument))
        return argument


# Attributes and flags of the parameter itself, as opposed to computation.
_OF_THE_OBJECT = frozenset(
    {
        torch.Tensor.requires_grad_,
        *(
            getattr(getattr(torch.Tensor, name), accessor)
            for name in ("requires_grad", "is_leaf", "grad", "grad_fn", "data", "_backward_hooks")
            for accessor in ("__get__", "__set__", "__delete__")
        ),
    }
)
