"""Parameters that the function to differentiate reaches otherwise than by its argument.

``list(net.parameters())`` in a loss holds the parameters themselves. Where a call
puts other tensors in their place, these references would be constants; a parameter
is one leaf at all its places (its identity), so they count as the argument does:

- the engine differentiates with respect to both (`held_elsewhere`);
- torch.func is shown its own tensor wherever the parameter is used (`Substitution`).

What was *computed* from a parameter before the call is a constant, as for any
tensor. Where the parameter itself is differentiated in place, PyTorch cannot tell
the two apart, and the call is refused (`refuse_history`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from adprotocol.errors import UndecidableError
from adprotocol_torch import autograd_graph
from adprotocol_torch.divergence import remedy
from adprotocol_torch.internals import sequence_number, use_count
from adprotocol_torch.parameters import here

if TYPE_CHECKING:
    from collections.abc import Container, Sequence


def have_history(tracked: Sequence[torch.Tensor], owners: Sequence[torch.Tensor | None]) -> bool:
    """Tell whether anything besides Python holds a parameter that is tracked itself, as a graph does that ends there.

    The graph of the result need not be searched for what is older than the call if nothing does.
    """
    pairs = zip(tracked, owners, strict=True)
    return len([leaf for leaf, owner in pairs if leaf is owner and use_count(leaf) > 1 and leaf.is_leaf]) > 0


def refuse_history(value: torch.Tensor, tracked: Sequence[torch.Tensor], start: int) -> None:
    """Refuse a result that depends on a parameter through what was computed before the call.

    Nodes are numbered by thread: those that the function made in a thread of its
    own may look older than the call. So this is an error, never a guess.
    """
    leaves = {id(leaf) for leaf in tracked if isinstance(leaf, torch.nn.Parameter)}
    older = _walk(value, start)[1]
    if any(id(autograd_graph.leaf_of(node)) in leaves for node, _ in autograd_graph.walk_nodes(older)):
        raise _computed_before()


def _walk(value: torch.Tensor, start: int, stops: Container[Any] = ()) -> tuple[list[tuple[Any, int]], list[Any]]:
    """Return the edges of the graph of a value, as far as it was made since `start`, and the older nodes at its end."""

    def is_older(node: Any) -> bool:
        return autograd_graph.leaf_of(node) is None and sequence_number(node) < start

    edges = list(autograd_graph.walk([value], lambda node: node not in stops and not is_older(node)))
    return edges, [node for node, _ in edges if node not in stops and is_older(node)]


def held_elsewhere(  # noqa: PLR0913, PLR0917  (one call, as lists by leaf)
    value: torch.Tensor,
    tensors: Sequence[torch.Tensor],
    owners: Sequence[torch.Tensor | None],
    tracked: Sequence[torch.Tensor],
    ends: Sequence[Any],
    start: int,
) -> dict[int, Any]:
    """Return what else stands for a tracked parameter in the graph of the value, by its position.

    `ends` are the tracked tensors as the engine takes them. A derivative with
    respect to what is returned is the whole one if the tracked tensor is a copy of
    it, else a further term.
    """
    places = {i: owner for i, owner in enumerate(owners) if owner is not None and owner is not tracked[i]}
    if not places:
        return {}
    edges, older = _walk(value, start, {end.node for end in ends if not isinstance(end, torch.Tensor)})
    leaves = {id(autograd_graph.leaf_of(node)) for node, _ in edges}
    found: dict[int, Any] = {}
    for i, parameter in places.items():
        given = tensors[i]
        if id(parameter) in leaves:
            found[i] = parameter
        elif id(given) in leaves or (given.grad_fn, given.output_nr) in edges:
            found[i] = given
    if found and older:
        ids = {id(item) for item in found.values()}
        nodes = {item.grad_fn for item in found.values() if item.grad_fn is not None}
        others = [node for node in older if node not in nodes]
        for node, _ in autograd_graph.walk_nodes(others):
            if node in nodes or id(autograd_graph.leaf_of(node)) in ids:
                raise _computed_before()
    return found


class Substitution(TorchFunctionMode):
    """Give the functions of PyTorch what is tracked in the place of the parameter that it stands for."""

    def __init__(self) -> None:
        super().__init__()
        self.current: dict[int, torch.Tensor] = here().current

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


# What is asked of a tensor as an object, not computed from it.
_OF_THE_OBJECT = frozenset(
    {
        torch.Tensor.requires_grad_,
        *(
            accessor
            for name in ("requires_grad", "is_leaf", "grad", "grad_fn", "data", "_backward_hooks")
            for attribute in (getattr(torch.Tensor, name),)
            for accessor in (attribute.__get__, attribute.__set__, attribute.__delete__)
        ),
    }
)


def _computed_before() -> UndecidableError:
    return UndecidableError(
        "the function to differentiate uses a value that was computed, before the call, from a parameter which the "
        "call differentiates; PyTorch would count it as part of the function, where it is a constant. "
        f"{remedy('computed-before-the-call')}"
    )


def in_graph() -> UndecidableError:
    """Return the error for a parameter that a graph reaches by another reference."""
    return UndecidableError(
        "the function to differentiate, compiled by torch.compile, reaches a parameter of its argument by another "
        "reference (a list made before the call, say); in a graph that parameter is another tensor than the one "
        "differentiated, and its part of the derivative would be lost. Take the parameter from the argument "
        "(module.parameters() inside the function), or pass it on as non_differentiable(parameter)"
    )
