"""Parameters that the function to differentiate reaches otherwise than by its argument.

A list of parameters that was made before holds the parameters themselves. Where a call
differentiates with respect to these in place, they count as the argument does: a
parameter is one leaf at all its places (its identity). Where it has put other tensors
in their place, in a nested derivative and inside of torch.func, such references would
be constants, and the call is refused (`refuse_references`).

What was *computed* from a parameter before the call is a constant, as for any
tensor. Where the parameter itself is differentiated, PyTorch cannot tell the two
apart, and the call is refused (`refuse_history`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adprotocol.errors import UndecidableError
from adprotocol_torch.autograd_graph import Graph, leaf_of
from adprotocol_torch.internals import below_levels, sequence_number, use_count, version_of
from adprotocol_torch.tensors import remedy

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    import torch


def held(tracked: Sequence[torch.Tensor], owners: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
    """Return the parameters tracked themselves that something besides Python holds, as a graph does that ends there."""
    pairs = zip(tracked, owners, strict=True)
    return [leaf for leaf, owner in pairs if leaf is owner and use_count(leaf) > 1 and leaf.is_leaf]


def _reaches(nodes: Iterable[Any], tensors: Iterable[torch.Tensor]) -> bool:
    """Return whether one of some nodes computes with one of some tensors."""
    ids, ends = set(map(id, tensors)), {tensor.grad_fn for tensor in tensors}
    following = [edge for node in nodes for edge in node.next_functions]
    return any(node is not None and (node in ends or id(leaf_of(node)) in ids) for node, _ in following)


def refuse_references(
    graph: Graph, outputs: Sequence[torch.Tensor], replaced: Sequence[torch.Tensor], start: int
) -> None:
    """Refuse a result that the function computed, since `start`, from a tensor that the call has replaced."""
    given = {tensor.grad_fn or id(tensor) for tensor in replaced}
    is_given = any((output.grad_fn or id(output)) in given for output in outputs)
    if is_given or _reaches([node for node in graph.nodes if sequence_number(node) >= start], replaced):
        raise _by_reference()


def refuse_references_in_func(
    outputs: Sequence[torch.Tensor], tracked: Sequence[torch.Tensor], owners: Sequence[torch.Tensor | None]
) -> None:
    """Refuse a result of torch.func that the tape connects with a parameter, past what is tracked in its place."""
    graph, copies = Graph(), list(map(below_levels, tracked))
    graph.walk(list(map(below_levels, outputs)), {copy.grad_fn for copy in copies})
    ids = set(map(id, owners)) - set(map(id, copies))
    if any(id(leaf) in ids for leaf in graph.leaves):
        raise _by_reference()


def _by_reference() -> UndecidableError:
    return UndecidableError(
        "the function to differentiate, in a nested derivative, torch.func or a dual level, uses a parameter which the "
        "call differentiates by another reference than its argument, such as a list of parameters or a value computed "
        "from it before the call; there it would be a constant. Take it from the argument"
    )


def is_second_step(tensors: Sequence[torch.Tensor], start: int, versions: Sequence[tuple[Any, int]]) -> bool:
    """Return whether tensors were computed, since `start`, from parameters in these versions.

    That is when the last gradients by parameters were taken, which are constants to an outer `backward()`. Those of a
    second inner step are not, and the sum would be neither of first order nor whole. A step of an optimiser changes a
    parameter in place, and with it the version.
    """
    current = [(reference(), version) for reference, version in versions]
    leaves = [leaf for leaf, version in current if leaf is not None and version_of(leaf) == version]
    graph = Graph()
    graph.walk([tensor for tensor in tensors if leaves and tensor.grad_fn is not None])
    return _reaches([node for node in graph.nodes if sequence_number(node) >= start], leaves)


def refused_second_step() -> UndecidableError:
    """Return the error for a derivative of the gradients of a second inner step."""
    return UndecidableError(
        "the gradient by tensors that were computed from parameters, after a gradient by these (as in a second inner "
        "step), is differentiated, and the one before is a constant: the outer derivative would be neither of first "
        f"order nor whole. {remedy('parameter-gradient')}"
    )


def refuse_history(graph: Graph, leaves: Sequence[torch.Tensor], ends: Container[Any], start: int) -> None:
    """Refuse a result that depends on one of the leaves through what was computed before the call.

    Nodes are numbered by thread: those that the function made in a thread of its
    own may look older than the call. So this is an error, never a guess.
    """
    early = [node for node in graph.nodes if sequence_number(node) < start and node not in ends]
    if _reaches(early, leaves):
        raise UndecidableError(
            "the function to differentiate uses a value that was computed, before the call, from a parameter which "
            "the call differentiates; PyTorch would count it as part of the function, where it is a constant. "
            f"{remedy('computed-before-the-call')}"
        )
