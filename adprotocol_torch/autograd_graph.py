"""PyTorch's graph of reverse mode, walked backwards from its results: 0.5 µs for each node.

From 2.13 a node that Python has seen keeps its Python object, and PyTorch frees such nodes inside of each other: behind
some 50,000 in a row the stack overflows. So about one in `_EVERY` of the nodes that are walked holds on to those after
it (`_Stop`), which are then freed one after the other.
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

from adprotocol_torch.internals import get_gradient_edge

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable

    import torch

# How many walked nodes there are for one that stops the recursion of a release, on average.
_EVERY = 100
# Apart from the numbers that a program draws.
_random = random.Random()  # noqa: S311  (no secret)


class Graph:
    """The nodes from which some tensors were computed, and the leaves at which they end."""

    def __init__(self) -> None:
        self.nodes: set[Any] = set()
        self.leaves: list[torch.Tensor] = []

    def walk(self, tensors: Iterable[torch.Tensor], ends: Container[Any] = ()) -> None:
        """Add the graph of some tensors, up to the nodes in `ends`."""
        nodes, leaves = self.nodes, self.leaves
        waiting: list[tuple[Any, int]] = []
        for tensor in tensors:
            node = tensor.grad_fn
            if node is None:
                leaves.append(tensor)
            else:
                waiting.append((node, 0))
        known = len(nodes)
        while waiting:
            node = waiting.pop()[0]
            if node is None or node in nodes:
                continue
            nodes.add(node)
            following = node.next_functions
            if following:
                if not ends or node not in ends:
                    waiting += following
            elif (leaf := getattr(node, "variable", None)) is not None:
                leaves.append(leaf)
        _walked(nodes, len(nodes) - known)

    def of(self, kind: str) -> list[Any]:
        """Return the nodes of the class with a name."""
        return [node for node in self.nodes if type(node).__name__ == kind]


def leaf_of(node: Any) -> torch.Tensor | None:
    """Return the leaf of an AccumulateGrad node, the one kind that has a variable and no next function."""
    return getattr(node, "variable", None)


def edge_of(tensor: torch.Tensor) -> Any:
    """Return a tensor as the engine takes it: a leaf itself, another by its node and output."""
    if tensor.is_leaf:
        return tensor
    _walked((tensor.grad_fn,), 1)
    return get_gradient_edge(tensor)


def _walked(nodes: Collection[Any], count: int) -> None:
    """Stop a release at some of the nodes, of which `count` are new."""
    # At random: where several chains grow in turn, a fixed number could meet the same one each time.
    stops = int(count / _EVERY + _random.random())
    for node in _random.choices(tuple(nodes), k=stops) if stops else ():
        node.metadata[_Stop] = _Stop(node.next_functions)


class _Stop:
    """Hold the nodes after one that is freed until its release is over.

    It lies with the node and refers to what the node refers to, so it keeps nothing alive.
    """

    __slots__ = ("following",)

    def __init__(self, following: Any) -> None:
        self.following = following

    def __del__(self) -> None:
        _released.append(self.following)
        del self.following
        # Not inside of another stop, nor beside one in another thread: that one goes on with this.
        while _released and _releasing.acquire(blocking=False):
            while _released:
                _released.pop()
            _releasing.release()


# What the stops have let go, and whether a thread is freeing it.
_released: list[Any] = []
_releasing = threading.Lock()
