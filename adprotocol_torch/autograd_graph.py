"""PyTorch's graph of reverse mode, walked backwards from its results.

0.5 µs a node.

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
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import torch

# How many walked nodes there are for one that stops the recursion of a release.
_EVERY = 100


# How many nodes are walked before the next stop; threads that lose a count to each other do no harm.
_left = _EVERY


def node_of(tensor: torch.Tensor) -> Any:
    """Return the node that computed a tensor, or None."""
    global _left  # noqa: PLW0603
    node = tensor.grad_fn
    if node is not None:
        _left -= 1
        if _left <= 0:
            _left = _stop_at(node)
    return node


def edge_of(tensor: torch.Tensor) -> Any:
    """Return a tensor as the engine takes it: a leaf itself, another by its node and output."""
    if tensor.is_leaf:
        return tensor
    node_of(tensor)
    return get_gradient_edge(tensor)


def walk(
    results: Iterable[torch.Tensor],
    enter: Callable[[Any], bool] | None = None,
    seen: set[Any] | None = None,
) -> Iterator[tuple[Any, int]]:
    """Yield the edges of the graph of the results, each as a node and the number of its output.

    Only nodes for which `enter` is true are followed further; nodes in `seen`, which grows, are not.
    """
    return _follow([(result.grad_fn, result.output_nr) for result in results], enter, set() if seen is None else seen)


def walk_nodes(nodes: Iterable[Any]) -> Iterator[tuple[Any, int]]:
    """Yield the edges of the graph behind some nodes, these nodes included."""
    return _follow([(node, 0) for node in nodes], None, set())


def _follow(
    waiting: list[tuple[Any, int]], enter: Callable[[Any], bool] | None, seen: set[Any]
) -> Iterator[tuple[Any, int]]:
    global _left  # noqa: PLW0603
    while waiting:
        edge = waiting.pop()
        node = edge[0]
        if node is None:
            continue
        yield edge
        if node not in seen:
            seen.add(node)
            _left -= 1
            if _left <= 0:
                _left = _stop_at(node)
            if enter is None or enter(node):
                waiting += node.next_functions


def unreached(results: Iterable[torch.Tensor], operands: Sequence[torch.Tensor], start: int) -> list[torch.Tensor]:
    """Return the operands that the graph of the results does not reach.

    Only nodes made since `start` are entered, so the walk is as long as the branch that made them, however long the
    program before it is. It ends at the last operand.
    """
    global _left  # noqa: PLW0603
    leaves: dict[int, torch.Tensor] = {}
    # By the edge from where it is used.
    inner: dict[Any, torch.Tensor] = {}
    for operand in operands:
        if operand.is_leaf:
            leaves[id(operand)] = operand
        else:
            inner[node_of(operand), operand.output_nr] = operand
    waiting = []
    for result in results:
        node = result.grad_fn
        if node is None:
            leaves.pop(id(result), None)
        else:
            waiting.append(node)
            if inner:
                inner.pop((node, result.output_nr), None)
    seen = set()
    while waiting and (leaves or inner):
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if node._sequence_nr() < start:  # noqa: SLF001
            continue
        for edge in node.next_functions:
            before = edge[0]
            if before is None:
                continue
            leaf = getattr(before, "variable", None)
            if leaf is not None:
                leaves.pop(id(leaf), None)
            else:
                waiting.append(before)
                if inner:
                    inner.pop(edge, None)
    _left -= len(seen) + len(waiting)
    if _left <= 0 and seen:
        _left = _stop_at(node)
    return [*leaves.values(), *inner.values()] if leaves or inner else []


class _Stop:
    """Hold the nodes after one that is freed until its release is over.

    It lies with the node and refers to what the node refers to, so it keeps nothing alive.
    """

    __slots__ = ("following",)

    def __init__(self, following: Any) -> None:
        self.following = following

    def __del__(self) -> None:
        released = _released.nodes
        released.append(self.following)
        del self.following
        if not _released.is_running:
            _released.is_running = True
            try:
                while released:
                    released.pop()  # may free the node of another stop, which comes here and adds to the list
            finally:
                _released.is_running = False


class _Released(threading.local):
    """What the stops of a thread let go."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.is_running = False


_released = _Released()


def _stop_at(node: Any) -> int:
    """Stop a release at a node; return how many nodes later the next stop is due."""
    node.metadata[_Stop] = _Stop(node.next_functions)
    # At random: where several chains grow in turn, a fixed number could meet the same one each time.
    return random.randrange(1, 2 * _EVERY)  # noqa: S311  (no secret)


def leaf_of(node: Any) -> torch.Tensor | None:
    """Return the leaf of an AccumulateGrad node, the one kind that has a variable and no next function."""
    return getattr(node, "variable", None)


def leaves(results: Iterable[torch.Tensor], seen: set[Any] | None = None) -> list[torch.Tensor]:
    """Return the leaves among the results and behind them; nodes in `seen`, which grows, are not followed."""
    global _left  # noqa: PLW0603
    seen = set() if seen is None else seen
    found = []
    waiting: list[tuple[Any, int]] = []
    for result in results:
        node = result.grad_fn
        if node is None:
            found.append(result)
        else:
            waiting.append((node, 0))
    known = len(seen)
    while waiting:
        node = waiting.pop()[0]
        if node is None or node in seen:
            continue
        seen.add(node)
        following = node.next_functions
        if following:
            waiting += following
        elif (leaf := getattr(node, "variable", None)) is not None:
            found.append(leaf)
    left, _left = _left, _left - (len(seen) - known)
    if _left <= 0:
        # A loop of its own, for most walks end before the next stop.
        for node in seen:
            left -= 1
            if left <= 0:
                left = _stop_at(node)
        _left = left
    return found
