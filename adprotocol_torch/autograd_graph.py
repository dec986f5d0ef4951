"""PyTorch's graph of reverse mode, walked backwards from its results.

0.5 µs a node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adprotocol_torch.internals import sequence_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch

# As many nodes as can be freed inside of each other.
_DEEP = 1_000


def walk(
    results: Iterable[torch.Tensor],
    enter: Callable[[Any], bool] | None = None,
    seen: set[Any] | None = None,
) -> list[tuple[Any, int]]:
    """Return the edges of the graph of the results, each as a node and the number of its output.

    Only nodes for which `enter` is true are followed further; nodes in `seen`, which grows, are not.
    """
    return _follow([(result.grad_fn, result.output_nr) for result in results], enter, set() if seen is None else seen)


def walk_nodes(nodes: Iterable[Any]) -> list[tuple[Any, int]]:
    """Return the edges of the graph behind some nodes, these nodes included."""
    return _follow([(node, 0) for node in nodes], None, set())


def _follow(
    waiting: list[tuple[Any, int]], enter: Callable[[Any], bool] | None, seen: set[Any]
) -> list[tuple[Any, int]]:
    found: list[tuple[Any, int]] = []
    while waiting:
        edge = waiting.pop()
        node = edge[0]
        if node is None:
            continue
        found.append(edge)
        if node not in seen:
            seen.add(node)
            if enter is None or enter(node):
                waiting += node.next_functions
    return found


def release(nodes: set[Any]) -> None:
    """Let go of a graph that nothing else holds, from the results to the leaves, one node after the other.

    PyTorch does so itself as long as no node has a Python object. Of the nodes that have one, as all have that are
    walked, newer releases free each inside of the one before, and overflow the stack where some 50,000 follow each
    other.
    """
    if len(nodes) > _DEEP:
        ordered = sorted(nodes, key=sequence_number)
        nodes.clear()
        while ordered:
            ordered.pop()


def leaf_of(node: Any) -> torch.Tensor | None:
    """Return the leaf of an AccumulateGrad node, the one kind that has a variable and no next function."""
    return getattr(node, "variable", None)


def leaves(results: Iterable[torch.Tensor], seen: set[Any] | None = None) -> list[torch.Tensor]:
    """Return the leaves at the ends of the graph; nodes in `seen`, which grows, are not followed."""
    return [leaf for node, _ in walk(results, seen=seen) if (leaf := getattr(node, "variable", None)) is not None]
