"""Answers inside ``torch.utils.checkpoint``, which runs its function twice: the two runs must take one branch."""

from __future__ import annotations

import functools
import sys
import threading
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.checkpoint import CheckpointFunction

from adprotocol.errors import UndecidableError
from adprotocol.tracing import run_while_tracing
from adprotocol_torch import internals
from adprotocol_torch.autograd_graph import Graph
from adprotocol_torch.parameters import LOCAL
from adprotocol_torch.tensors import remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

_FORWARD: Any = CheckpointFunction.forward
_APPLY: Any = CheckpointFunction.apply
_REENTRANT: CodeType = _FORWARD.__code__


@run_while_tracing
def refuse_first_pass() -> None:
    """Raise in the first pass of a reentrant checkpoint that will run again with gradients.

    Call this before answering False: what is tracked in the first pass, where a function has switched gradients on
    again, is so in the second. Walking the stack costs about 1 µs for 30 frames; PyTorch leaves no other mark.
    """
    for local in _frames(_REENTRANT, sys._getframe(1)):  # noqa: SLF001
        if _runs_again(local["ctx"]):
            msg = (
                "within_gradient was asked inside torch.utils.checkpoint with use_reentrant=True, which runs the "
                "function first without gradients and then again with them: a branch on the answer would return the "
                f"value of one run and the gradient of the other. {remedy('reentrant-checkpoint')}"
            )
            raise UndecidableError(msg)


class _Frame(internals.CheckpointFrame):  # type: ignore[misc]
    """PyTorch's record of a checkpoint, with a function to run again under the same substitutes for parameters.

    An outer derivative runs it after the calls of `value_and_grad` around the checkpoint have put parameters and flags
    back.
    """

    def __init__(self, function: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        renew = LOCAL.calls.renewal()

        def renewed(*inputs: Any) -> None:
            end = renew()  # type: ignore[misc]
            try:
                function(*inputs)
            finally:
                end()

        super().__init__(function if renew is None else renewed, *args, **kwargs)


class _FirstPasses:
    """How many first passes of reentrant checkpoints run, in all threads; a graph guards on whether there is any."""

    def __init__(self) -> None:
        self.count: int = 0
        self.any: bool = False
        # How many have begun since the start of the process.
        self.begun: int = 0
        self.lock: Any = threading.Lock()

    def change(self, by: int) -> None:
        with self.lock:
            self.count += by
            self.any = self.count > 0
            self.begun += by > 0


FIRST_PASSES = _FirstPasses()


def _runs_again(ctx: Any) -> bool:
    # Edges exist only if gradients were on around the checkpoint: else nothing runs again, unless a checkpoint around
    # this one does, whose first pass is without gradients too.
    return any(node is not None for node, _ in ctx.next_functions)


def _apply(*args: Any) -> Any:
    LOCAL.is_grad_enabled = torch.is_grad_enabled()  # off in `_forward`
    return _APPLY(*args)


def _forward(ctx: Any, function: Callable[..., Any], *args: Any) -> Any:
    if not _runs_again(ctx):
        is_wanted = LOCAL.is_grad_enabled and LOCAL.calls.changes
        return _FORWARD(ctx, functools.partial(_run_once, function) if is_wanted else function, *args)
    FIRST_PASSES.change(1)
    try:
        return _FORWARD(ctx, function, *args)
    finally:
        FIRST_PASSES.change(-1)


def _run_once(function: Callable[..., Any], *args: Any) -> Any:
    """Run the function of a checkpoint that does not run again, and refuse a result by what a call differentiates.

    On the tape, to which a function without anything tracked adds nothing; PyTorch would run it without.
    """
    with torch.enable_grad():
        results = function(*args)
    graph = Graph()
    graph.walk([leaf for leaf in internals.pytree.tree_leaves(results) if _is_tracked(leaf)])
    leaves, tracked = set(map(id, graph.leaves)), LOCAL.calls.tracked()
    if any(id(leaf) in leaves if leaf.grad_fn is None else leaf.grad_fn in graph.nodes for leaf in tracked):
        raise refused_reentrant("torch.utils.checkpoint with use_reentrant=True and no input that requires grad")
    return internals.pytree.tree_map(lambda leaf: leaf.detach() if _is_tracked(leaf) else leaf, results)


def _is_tracked(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


def refuse_reentrant(graph: Graph) -> None:
    """Refuse a result of a reentrant checkpoint.

    Its node has edges to its arguments, not to what it closes over. So the engine, asked for the gradients of a module
    in it, finds none, where ``backward()`` accumulates them.
    """
    if graph.has(f"{CheckpointFunction.__name__}Backward"):
        raise refused_reentrant("torch.utils.checkpoint with use_reentrant=True")


def refused_reentrant(what: str) -> UndecidableError:
    """Return the error for what works with ``backward()`` alone."""
    return UndecidableError(
        f"the function to differentiate calls {what}, which works with backward() alone: the gradient of what it "
        f"closes over, such as the parameters of a module, would be lost. {remedy('reentrant-checkpoint')}"
    )


def register() -> None:
    """Let PyTorch use the record above, and note the first passes of reentrant checkpoints."""
    internals.use_checkpoint_frame(_Frame)
    CheckpointFunction.forward = staticmethod(_forward)  # type: ignore[method-assign]
    CheckpointFunction.apply = staticmethod(_apply)  # type: ignore[method-assign]
    # The first call of the library may be inside such a pass. Its end is not seen, so each False walks the stack then.
    if any(next(_frames(_REENTRANT, frame), None) for frame in sys._current_frames().values()):  # noqa: SLF001
        FIRST_PASSES.change(1)


def _frames(code: CodeType, frame: FrameType | None) -> Iterator[dict[str, Any]]:
    """Yield the local names of each frame of a stack that runs `code`."""
    while frame is not None:
        if frame.f_code is code:
            yield frame.f_locals
        frame = frame.f_back
