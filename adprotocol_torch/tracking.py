"""`within_gradient` on tensors, in eager mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.autograd import forward_ad

from adprotocol.extend import ASK_PARAMETERS
from adprotocol.hookspecs import hookimpl
from adprotocol_torch import internals
from adprotocol_torch.checkpoints import FIRST_PASSES, refuse_first_pass
from adprotocol_torch.internals import NO_LEVEL, functorch_is_active, is_below_autograd, level_of, skip

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

is_grad_enabled: Callable[[], bool] = torch.is_grad_enabled


# After a graph break Dynamo compiles the next functions one by one. This one and its
# callees must run eagerly: a fake tensor has lost the dual part of the real one.
@skip
@hookimpl
def within_gradient(value: torch.Tensor) -> bool:
    """Return whether an operation on the tensor would carry a derivative, in any mode at any level."""
    # Each check is one C call of 30 to 45 ns; the cheap and common ones come first.
    if functorch_is_active():
        # A torch function mode, such as the guard of a batched cond, would answer at a
        # lowered level with tensors of its own level.
        with internals.without_torch_function():
            return _below(value)
    if value.requires_grad and is_grad_enabled():
        # Only before a True: 76 ns, and as much for what is called below autograd, by ``__torch_dispatch__``.
        return (level_of(value) == NO_LEVEL or is_on_tape(value)) and not is_below_autograd()
    if FIRST_PASSES:
        refuse_first_pass()
    # `is_dual`, inlined. The counter is global: at -1 no tensor of the process is dual.
    return forward_ad._current_level >= 0 and _has_tangent(value)  # noqa: SLF001


@skip
@hookimpl
def any_within_gradient(values: Sequence[torch.Tensor]) -> bool:
    """Answer for several tensors, whose flags decide where no mode hides or adds anything."""
    if functorch_is_active() or not is_grad_enabled() or forward_ad._current_level >= 0:  # noqa: SLF001
        return any(map(within_gradient, values))
    for value in values:  # a generator takes 0.5 µs
        if value.requires_grad and (level_of(value) == NO_LEVEL or is_on_tape(value)):
            return not is_below_autograd()
    if FIRST_PASSES:
        refuse_first_pass()
    return False


def is_on_tape(value: torch.Tensor) -> bool:
    """Return whether the autograd engine tracks the tensor, below all wrappers of torch.func.

    That is the answer for a wrapper whose level is not active in this thread, too: PyTorch unwraps it and drops its
    derivative, in a child thread and after the transformation has ended.
    """
    return internals.below_levels(value).requires_grad


def _has_tangent(value: torch.Tensor) -> bool:
    return internals.forward_mode_is_enabled() and not is_below_autograd() and internals.has_tangent(value)


def _below(value: torch.Tensor) -> bool:
    """Check level by level, from the innermost transformation of torch.func outwards.

    A wrapper has autograd metadata of its own, and each level a grad mode of
    its own: ``lower()`` restores the one in which the transformation began, so
    that ``no_grad`` outside a grad does not count inside it, and vice versa.
    """
    top = internals.top_interpreter()
    interpreter = None if top is None else internals.coerce_cinterpreter(top)
    innermost = NO_LEVEL if interpreter is None else interpreter.level()
    # A wrapper whose level has ended counts as what it wraps; met where Dynamo has traced an inner transformation.
    while (level := level_of(value)) > innermost or level < NO_LEVEL:
        value = internals.unwrapped(value)
    if interpreter is None:
        if is_grad_enabled() and value.requires_grad:
            return True
        if FIRST_PASSES:
            refuse_first_pass()
        return _has_tangent(value)
    if level == innermost:
        # The wrappers of vmap and functionalize have no metadata; reading their tangent raises.
        has_metadata = not (internals.is_batched(value) or internals.is_functional(value))
        if has_metadata and ((is_grad_enabled() and value.requires_grad) or _has_tangent(value)):
            return True
        value = internals.unwrapped(value)
    with interpreter.lower():
        return _below(value)


def is_batched(value: torch.Tensor) -> bool:
    """Return whether vmap has batched the tensor, at any level below its wrappers."""
    while level_of(value) > 0:
        if internals.is_batched(value):
            return True
        value = internals.unwrapped(value)
    return False


@skip  # as within_gradient
@hookimpl
def is_concrete(value: torch.Tensor) -> bool:
    """Return whether the elements are there, for Python to branch on; nothing is read, so no device is waited for."""
    # A compiler's mode hides constants too: an operation with them becomes part of its program, as in torch.jit.trace.
    if (internals.is_seen() and internals.is_compiler_mode_on()) or internals.is_scripted() is not None:
        return False
    while level_of(value) != NO_LEVEL:
        if internals.is_batched(value):
            return False
        value = internals.unwrapped(value)
    if type(value) is not torch.Tensor and type(value) is not torch.nn.Parameter:
        if isinstance(value, internals.WITHOUT_ELEMENTS):
            return False
        if internals.is_traceable_wrapper_subclass(value):  # such as a DTensor, which lists its mesh as well
            parts = [getattr(value, name) for name in value.__tensor_flatten__()[0]]  # type: ignore[attr-defined]
            return all(is_concrete(part) for part in parts if isinstance(part, torch.Tensor))
    if value.is_meta or internals.is_batched_by_autograd(value):
        return False
    return not (value.is_cuda and torch.cuda.is_current_stream_capturing())


@skip  # as within_gradient
@hookimpl
def explain(value: torch.Tensor) -> str:
    """Explain the answer for a tensor."""
    if not (value.is_floating_point() or value.is_complex()):
        return f"dtype {value.dtype} has no derivative"
    is_dual = internals.is_in_forward_mode() and not functorch_is_active()
    reasons = {
        "inside torch.func": functorch_is_active(),
        f"requires_grad is set{'' if is_grad_enabled() else ', but grad mode is off'}": value.requires_grad,
        f"dual level 0, {'with' if is_dual and _has_tangent(value) else 'without'} a tangent": is_dual,
        "inference mode is on": torch.is_inference_mode_enabled(),
    }
    found = [reason for reason, holds in reasons.items() if holds]
    found = found or ["requires_grad is not set, and no forward mode is active"]
    if internals.is_differentiating() and within_gradient(value) is False:
        found.append(ASK_PARAMETERS)
    return "; ".join(found)
