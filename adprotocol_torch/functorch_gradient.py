"""Derivatives by torch.func: inside of it, where tensors are dual, and in a graph that Dynamo traces."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any

import torch

from adprotocol.errors import OutputError, UndecidableError
from adprotocol_torch import aliases, distributed, dynamo
from adprotocol_torch.forward_switch import ForwardSwitch
from adprotocol_torch.internals import next_sequence_number, skip, stand_for
from adprotocol_torch.parameters import LOCAL, owners_of, raise_flag, refused_in_graph, undo_all
from adprotocol_torch.tensors import laid_out, remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Function = Callable[[list[Any]], tuple[list[Any], list[Any]]]


_STOPPED = (
    "a function compiled by torch.compile pushes tangents forward through a part under torch.no_grad, which does not "
    "stop them in a graph. Use detach() there, or adprotocol.non_differentiable; or call jvp outside of the compiled "
    "function"
)


def tracked_of(outputs: Sequence[Any], owners: Sequence[Any], start: int) -> list[torch.Tensor]:
    """Return the outputs that are tracked; refuse numbers that were, and warn of tensors none of which is.

    The node that was next at the `start` tells whether a number was; -1 where nothing tells, nor what is tracked.
    """
    tracked = [output for output in outputs if isinstance(output, torch.Tensor) and output.requires_grad]
    if tracked:
        return tracked
    tensors = [output for output in outputs if isinstance(output, torch.Tensor)]
    if not tensors and (start < 0 or next_sequence_number() != start):
        # Its derivative is lost, not zero.
        raise OutputError(
            f"the differentiated function returned the Python number {outputs[0]} computed from tracked tensors; "
            f"item() and float() cut off the derivative. {remedy('python-numbers')}"
        )
    if len(tensors) > 0 and start >= 0:
        msg = (
            "the value of the differentiated function does not depend on what it is differentiated with respect to, "
            "so all gradients are zeros; item(), float(), NumPy and detach() cut off the derivative. "
            f"{remedy('python-numbers')}"
        )
        if owners and None not in owners:  # as PyTorch's own ``backward``
            raise UndecidableError(msg)
        warnings.warn(msg, stacklevel=2)
    return tracked


@skip  # as the engine's way
def vjp(
    fun: Function, tensors: list[torch.Tensor], *, once: bool
) -> tuple[list[Any], list[Any], Callable[..., list[Any]]]:
    """Return the outputs of ``fun(tensors)``, the others, and the function that pulls cotangents back."""
    function = _Function(fun, tensors)
    leaves, finished = function.leaves, list if torch.is_grad_enabled() else _without_history
    try:
        # As with the engine, gradients are on in the function, and what comes out has none.
        with contextlib.nullcontext() if finished is list else torch.enable_grad():
            returned, pull, others = torch.func.vjp(function.run, *leaves, has_aux=True)  # type: ignore[misc]
            outputs = listed(returned)
            gradients = pull(torch.ones_like(returned)) if once else ()
    finally:
        undo_all(function.undo)
    if len(function.owners) > 0:
        aliases.refuse_references_in_func(outputs, leaves, function.owners)

    def arranged(found: Any) -> list[Any]:
        if torch.compiler.is_dynamo_compiling() and not dynamo.inside_transform():
            pairs = zip(found, leaves, strict=True)
            found = [y if y.is_contiguous() and x.is_contiguous() else laid_out(y, x) for y, x in pairs]
        return finished(found)

    def pulled(cotangents: Any) -> list[Any]:
        pairs = zip(cotangents, outputs, strict=True)
        return arranged(pull(bare([torch.zeros_like(y) if ct is None else ct for ct, y in pairs])))

    if once:
        gradients = arranged(gradients)
        # Apart from what holds wrappers of torch.func, for where a graph breaks this is its result.
        return finished(outputs), finished(others), lambda _: gradients
    return finished(outputs), finished(others), pulled


def bare(tensors: list[torch.Tensor]) -> torch.Tensor | list[torch.Tensor]:
    """Return one for a list of one: PyTorch takes 10 µs for a node of its pytrees."""
    return tensors[0] if len(tensors) == 1 else tensors


def listed(tensors: torch.Tensor | list[torch.Tensor]) -> list[torch.Tensor]:
    """Return a list of what `bare` returned."""
    return [tensors] if isinstance(tensors, torch.Tensor) else tensors


def _without_history(leaves: Sequence[Any]) -> list[Any]:
    """Return tensors without their history, but with their tangents, which `detach` would cut; gradients are off."""
    return [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


@skip
def jvp(fun: Function, tensors: list[torch.Tensor], tangents: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the outputs of ``fun(tensors)``, the others, and the tangents of the outputs."""
    function = _Function(fun, tensors, is_forward=True)
    leaves, owners, was_enabled = function.leaves, function.owners, torch.is_grad_enabled()
    try:
        returned, pushed, others = torch.func.jvp(function.run, tuple(leaves), tuple(tangents), has_aux=True)  # type: ignore[misc]
    finally:
        undo_all(function.undo)
    outputs, moved = listed(returned), listed(pushed)
    if owners:
        aliases.refuse_references_in_func([*outputs, *moved], leaves, owners)
    finished = list if was_enabled else _without_history
    return finished(outputs), finished(others), finished(moved)


class _Function:
    """A function for torch.func, which is given neither what is not a tensor nor what stands for parameters."""

    def __init__(self, fun: Function, tensors: list[torch.Tensor], *, is_forward: bool = False) -> None:
        self.fun = fun
        self.is_forward = is_forward
        self.tensors = self.leaves = tensors
        self.owners: Sequence[Any] = []
        self.undo: list[Callable[[], None]] = []
        if torch.compiler.is_dynamo_compiling():
            dynamo.install()
            if any(isinstance(tensor, torch.nn.Parameter) for tensor in tensors):
                raise refused_in_graph()
            return
        calls = LOCAL.calls
        self.tensors = self.leaves = [calls.current.get(id(tensor), tensor) for tensor in tensors]
        self.owners = owners_of(self.tensors)
        if self.owners:
            # A flag of a parameter is not an outer derivative here either.
            self.leaves = [
                tensor.detach() if owner is tensor and tensor.is_leaf and id(tensor) not in calls.current else tensor
                for tensor, owner in zip(self.tensors, self.owners, strict=True)
            ]

    def run(self, *leaves: torch.Tensor) -> tuple[torch.Tensor | list[torch.Tensor], list[torch.Tensor]]:
        """Return the outputs, as tensors, and the others."""
        # Asked here: where a graph breaks, this is compiled as a function of its own.
        is_traced = torch.compiler.is_dynamo_compiling()
        # A graph and forward mode know no number of the node; there every Python number is refused.
        start = -1 if is_traced or self.is_forward else next_sequence_number()
        # Dynamo runs a torch.autograd.Function past its rule where its input shows no flag, which a leaf here does not.
        tracked = [leaf.view_as(leaf) if is_traced and not self.is_forward else leaf for leaf in leaves]
        if len(self.owners) > 0 and not is_traced:
            tracked = [
                new if own is None else stand_for(new, own) for new, own in zip(tracked, self.owners, strict=True)
            ]
            self.undo.append(distributed.guard(self.tensors, self.owners))
            # A parameter that the function reaches by another reference shows on the tape, against its flag too.
            self.undo += [raise_flag(own) for own in self.owners if own is not None and not own.requires_grad]
            self.undo.append(LOCAL.calls.replace(self.tensors, tracked, self.owners))
        if self.is_forward:
            # With gradients on, a parameter that the function reaches by another reference shows on the tape.
            with torch.enable_grad(), contextlib.nullcontext() if is_traced else ForwardSwitch():
                outputs, others = self.fun(tracked)
                if is_traced and dynamo.has_stopped():
                    raise UndecidableError(_STOPPED)
        else:
            outputs, others = self.fun(tracked)
        tracked_of(outputs, self.owners, start)
        return bare([y if isinstance(y, torch.Tensor) else torch.tensor(y) for y in outputs]), others
