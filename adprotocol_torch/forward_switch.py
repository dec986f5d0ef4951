"""``torch.no_grad`` in a function that is pushed forward: it stops forward mode as well.

PyTorch has a switch for each mode, and ``torch.no_grad`` and its relatives turn that of reverse mode alone. So a part
under ``torch.no_grad`` would be constant in `grad` and move in `jvp`. Each of them calls one C function, which a torch
function mode sees: 0.5 µs for each operation, 3 to 7 % for a network of twenty layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from adprotocol_torch import internals
from adprotocol_torch.internals import set_grad_enabled

if TYPE_CHECKING:
    from collections.abc import Sequence


class ForwardSwitch(TorchFunctionMode):
    """Hand the switch of reverse mode on to forward mode, at the level of torch.func that is innermost now.

    Grad mode has to be on at the start: with it off, the end of an inner ``no_grad`` looks like its beginning.
    """

    def __init__(self) -> None:
        """Begin at the level of a jvp."""
        super().__init__()
        top: Any = internals.top_interpreter()
        self.level: int = top.level()
        # For each part under way, forward mode as it was.
        self.before: list[bool] = []

    def __torch_function__(self, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None) -> Any:
        """Call the function, and follow the switch."""
        was_on = torch.is_grad_enabled()
        if func is internals.call_function and not was_on and not internals.forward_mode_is_enabled():
            # PyTorch would switch both modes on for the levels around the innermost.
            args = [arg.detach() if isinstance(arg, torch.Tensor) else arg for arg in args]
        result = func(*args, **(kwargs or {}))
        if func is set_grad_enabled and torch.is_grad_enabled() is not was_on and self._is_concerned():
            if was_on:
                self.before.append(internals.forward_mode_is_enabled())
                internals.set_forward_mode_enabled(False)
            elif self.before:
                internals.set_forward_mode_enabled(self.before.pop())
        return result

    def _is_concerned(self) -> bool:
        """Return whether the switch is one of this level's function, and of no backward function that it runs.

        That of a function inside of another transformation is, if that began with gradients on.
        """
        levels = internals.interpreters()
        numbers = [level.level() for level in levels]
        if self.level not in numbers or internals.backward_pass() >= 0:
            return False
        inner = levels[numbers.index(self.level) + 1 :]
        return all(level.key() != internals.Transform.Jvp and internals.was_grad_enabled(level) for level in inner)
