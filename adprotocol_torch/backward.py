"""A watch over one pass of PyTorch's engine, which refuses what its graph does not show.

Whether the result of a call is to be differentiable again is read in the graph of
that result. A tensor that only a hook or a custom ``backward`` computes with is not
in it: a watch over the functions of PyTorch that run in the pass finds those, which
is cheap, for the engine itself calls none from Python.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint

from adprotocol.errors import UndecidableError
from adprotocol_torch import autograd_graph
from adprotocol_torch.divergence import remedy
from adprotocol_torch.internals import is_below_autograd, run_engine
from adprotocol_torch.tensors import tensors_in
from adprotocol_torch.tracking import below_levels

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


class Watch(TorchFunctionMode):
    """Refuse, during a pass, a tensor whose graph ends at a leaf of others, of which `is_other` tells."""

    def __init__(self, is_other: Callable[[torch.Tensor], bool]) -> None:
        self.is_other = is_other
        self.seen: set[Any] = set()
        # Leaves that the pass itself has made, whose derivatives nobody else can want; kept, so that no id is reused.
        self.made: dict[int, torch.Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = func in _FLAG and not args[0].requires_grad
        result = func(*args, **(kwargs or {}))
        arguments = list(tensors_in((*args, *(kwargs or {}).values())))
        results = list(tensors_in((result,)))
        if given:
            self._note(args[0])
        elif func.__name__ != "__get__" or func in _VIEWS:
            for made in results:
                if not any(made is argument for argument in arguments):
                    self._note(made)
        # Below autograd is what the engine itself computes: a mode that counts, say, sees its operations in Python.
        if (results or func is torch.Tensor.__setitem__) and func not in _STOPS and not is_below_autograd():
            for argument in arguments:
                if argument.requires_grad:
                    # A transformation of torch.func that the pass itself began has leaves of its own.
                    tensor = below_levels(argument)
                    if tensor.requires_grad and self._reaches_others(tensor) and not _is_shown():
                        raise _hidden()
        return result

    def _note(self, made: torch.Tensor) -> None:
        if made.is_leaf and made.requires_grad:
            self.made[id(made)] = made

    def _reaches_others(self, tensor: torch.Tensor) -> bool:
        # A pass may run a checkpoint's part of the program again: each node is looked at once.
        return any(map(self._is_others_leaf, autograd_graph.leaves([tensor], self.seen)))

    def _is_others_leaf(self, leaf: torch.Tensor) -> bool:
        return id(leaf) not in self.made and self.is_other(leaf)


_FLAG = frozenset({torch.Tensor.requires_grad_, torch.Tensor.requires_grad.__set__})  # type: ignore[attr-defined]


# Attributes that are new tensors: of a leaf that requires grad, each is such a leaf itself while gradients are off.
_VIEWS = frozenset({getattr(torch.Tensor, name).__get__ for name in ("T", "mT", "H", "mH", "real", "imag")})


_STOPS = frozenset({torch.Tensor.detach, torch.detach, torch.Tensor.data.__get__})  # type: ignore[attr-defined]


def _is_shown() -> bool:
    """Tell whether a checkpoint runs a part of the program again, or a compiler traces: the graph shows that."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None and frame.f_code is not run_engine.__code__:
        name = frame.f_code.co_filename
        if name == checkpoint.__file__ or "_aot_autograd" in name:
            return True
        frame = frame.f_back
    return False


def _hidden() -> UndecidableError:
    return UndecidableError(
        "a tensor hook or the backward of a torch.autograd.Function, in the function to differentiate, computes with a "
        "tensor that requires grad and is no part of the function's result: PyTorch's graph does not show it, and its "
        f"derivative would be lost. {remedy('tensors-of-hooks')}"
    )
