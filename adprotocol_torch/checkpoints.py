"""Answers inside ``torch.utils.checkpoint``, which runs its function twice: the two runs must take one branch."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.checkpoint import CheckpointFunction, checkpoint

from adprotocol.errors import UndecidableError
from adprotocol.tracing import run_while_tracing
from adprotocol_torch import internals
from adprotocol_torch.parameters import LOCAL, undo_all
from adprotocol_torch.tensors import remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
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
        # As in `_forward`.
        if any(node is not None for node, _ in local["ctx"].next_functions):
            raise UndecidableError(
                "within_gradient was asked inside torch.utils.checkpoint with use_reentrant=True, which runs the "
                "function first without gradients and then again with them: a branch on the answer would return the "
                f"value of one run and the gradient of the other. {remedy('reentrant-checkpoint')}"
            )


class _Frame(internals.CheckpointFrame):  # type: ignore[misc]
    """PyTorch's record of a checkpoint, with a function to run again under the same substitutes for parameters.

    An outer derivative runs it after the calls of `value_and_grad` around the checkpoint have put parameters and flags
    back.
    """

    def __init__(self, function: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        renew = LOCAL.calls.renewal()

        def renewed(*inputs: Any) -> None:
            undo: list[Callable[[], None]] = []
            try:
                renew(undo)  # type: ignore[misc]
                function(*inputs)
            finally:
                undo_all(undo)

        super().__init__(function if renew is None else renewed, *args, **kwargs)


# An entry for each reentrant checkpoint whose function runs in the forward pass, in any thread; a graph guards on how
# many there are.
FIRST_PASSES: list[None] = []
# An entry for each call of a gradient under way, in any thread, for it may run parts in threads of its own. Meanwhile
# a reentrant checkpoint runs as one that is not.
CALLS: list[None] = []


def _apply(function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:  # noqa: FBT001  (PyTorch's order)
    if not (CALLS and torch.is_grad_enabled()):
        return _APPLY(function, preserve_rng_state, *args)
    # What a reentrant one closes over has its gradient in `backward()` alone, and there if an input is tracked.
    results = checkpoint(function, *args, use_reentrant=False, preserve_rng_state=preserve_rng_state)
    if _is_any_tracked(internals.pytree.tree_leaves(results)) and not _is_any_tracked(args):
        raise refused("torch.utils.checkpoint with use_reentrant=True and no input that requires grad")
    return results


def _is_any_tracked(values: Sequence[Any]) -> bool:
    return any(isinstance(value, torch.Tensor) and value.requires_grad for value in values)


def refused(what: str) -> UndecidableError:
    """Return the error for what loses a gradient."""
    return UndecidableError(
        f"the function to differentiate calls {what}: the gradient of what it closes over, such as the parameters of "
        f"a module, would be lost. {remedy('reentrant-checkpoint')}"
    )


def _forward(ctx: Any, function: Callable[..., Any], *args: Any) -> Any:
    # Edges exist only if gradients were on around the checkpoint: else nothing runs again, unless a checkpoint around
    # this one does, whose first pass is without gradients too. A graph of such a pass must not serve a first one.
    if not any(node is not None for node, _ in ctx.next_functions):
        return _FORWARD(ctx, function, *args)
    FIRST_PASSES.append(None)
    try:
        return _FORWARD(ctx, function, *args)
    finally:
        FIRST_PASSES.pop()


def register() -> None:
    """Let PyTorch use the record above, and note the first passes of reentrant checkpoints."""
    internals.use_checkpoint_frame(_Frame)
    CheckpointFunction.forward = staticmethod(_forward)  # type: ignore[method-assign]
    CheckpointFunction.apply = staticmethod(_apply)  # type: ignore[method-assign]
    # The first call of the library may be inside such a pass. Its end is not seen, so each False walks the stack then.
    if any(next(_frames(_REENTRANT, frame), None) for frame in sys._current_frames().values()):  # noqa: SLF001
        FIRST_PASSES.append(None)


def _frames(code: CodeType, frame: FrameType | None) -> Iterator[dict[str, Any]]:
    """Yield the local names of each frame of a stack that runs `code`."""
    while frame is not None:
        if frame.f_code is code:
            yield frame.f_locals
        frame = frame.f_back
