"""Both branches and a select, for a predicate that differs along a batch.

A plain ``torch.where`` lets a NaN of the branch not taken into the gradient, because
0 times infinity is NaN. So each branch sees its tensors through a guard,
``where(pred, x, x.detach())``, where the derivative of the other branch ends.
Operands and tensors that a branch closes over are guarded alike, on first use. This
is the double-where trick
(https://docs.jax.dev/en/latest/faq.html#gradients-contain-nan-where-using-where).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from adprotocol.errors import BranchMismatchError
from adprotocol.extend import common_outline, describe, put_together, same_constant, take_apart
from adprotocol_torch.branch_watch import BranchWatch, changed_argument, changed_in_place, is_in_place
from adprotocol_torch.zero_gradients import is_float

if TYPE_CHECKING:
    from collections.abc import Callable


def select(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Run both branches, guarded, and choose elementwise along the batch."""
    if_true = take_apart(_run(pred, true_fun, operands))
    if_false = take_apart(_run(~pred, false_fun, operands))
    outline = common_outline(if_true[1], if_false[1])
    if outline is None:
        raise _mismatch(if_true, if_false)
    pairs = zip(if_true[0], if_false[0], strict=True)
    return put_together(outline, [_where(pred, leaf, other, if_true, if_false) for leaf, other in pairs])


def _run(pred: torch.Tensor, branch: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    guard = _Guard(pred)
    if torch.compiler.is_dynamo_compiling():
        with guard:
            result = branch(*operands)
    else:
        with BranchWatch() as watch:
            guard.watch = watch
            with guard:
                result = branch(*operands)
        watch.check()
    if guard.has_refused:
        raise changed_in_place()
    return result


def _where(pred: Any, leaf: Any, alternative: Any, if_true: Any, if_false: Any) -> Any:
    tensors = [item for item in (leaf, alternative) if isinstance(item, torch.Tensor)]
    if not tensors and not _is_number(leaf) and not _is_number(alternative):
        if same_constant(leaf, alternative):
            return leaf
        raise _mismatch(if_true, if_false)
    if tensors:
        leaf, alternative = _as_tensor(leaf, tensors[0]), _as_tensor(alternative, tensors[0])
    elif _is_number(leaf) and _is_number(alternative):
        leaf, alternative = torch.tensor([leaf, alternative]).unbind()
    else:
        raise _mismatch(if_true, if_false)
    if leaf is None or alternative is None or leaf.shape != alternative.shape or leaf.dtype != alternative.dtype:
        raise _mismatch(if_true, if_false)
    return torch.where(pred, leaf, alternative)


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, (bool, int, float, complex))


def _as_tensor(leaf: Any, like: torch.Tensor) -> torch.Tensor | None:
    """Return a Python number as a scalar tensor of the other branch's dtype, or None if that cannot hold it."""
    if isinstance(leaf, torch.Tensor):
        return leaf
    if not _is_number(leaf) or not _holds(like, leaf):
        return None
    return torch.tensor(leaf, dtype=like.dtype, device=like.device)


def _holds(like: torch.Tensor, number: Any) -> bool:
    """Tell whether ``torch.result_type`` of a tensor and a number, which not every compiler knows, is the tensor's."""
    if isinstance(number, bool) or like.is_complex():
        return True
    if isinstance(number, int):
        return like.dtype is not torch.bool
    return isinstance(number, float) and like.is_floating_point()


def _mismatch(if_true: Any, if_false: Any) -> BranchMismatchError:
    return BranchMismatchError(
        "the branches of a batched cond must return equal structures, shapes and dtypes: true_fun returned "
        f"{_described(if_true)}, false_fun {_described(if_false)}. Make them equal (broadcast, cast, or return zeros "
        "of the same shape)"
    )


def _described(result: tuple[list[Any], Any]) -> str:
    leaves, outline = result
    return describe(outline, [_leaf(leaf) for leaf in leaves])


def _leaf(leaf: Any) -> str:
    if isinstance(leaf, torch.Tensor):
        return f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
    return repr(leaf)


class _Guard(TorchFunctionMode):
    """Replace every tensor that the branch did not create by its guard."""

    def __init__(self, pred: torch.Tensor) -> None:
        super().__init__()
        self.pred = pred
        # By id; the tensor is kept with its guard so that no id is reused.
        self.known: dict[Any, tuple[torch.Tensor, torch.Tensor]] = {}
        self.watch: BranchWatch | None = None  # in eager mode
        # `y += 1` turns a TypeError, which this one is, into `y = y + 1`.
        self.has_refused = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.requires_grad_:
            return func(*args, **(kwargs or {}))  # how torch.func.grad marks its own wrapper
        keywords = kwargs or {}
        # The tensor that an in-place operation changes must stay itself.
        start = 1 if is_in_place(func.__name__) else 0
        changed = args[0] if start else changed_argument(func, args, keywords)
        if isinstance(changed, torch.Tensor) and not self.made(changed):
            self.has_refused = True
            raise changed_in_place()
        guarded = [*args[:start], *(self.guarded(argument) for argument in args[start:])]
        guarded_keywords = {name: self.guarded(argument) for name, argument in keywords.items()}
        if self.watch is None:
            result = func(*guarded, **guarded_keywords)
        else:
            with self.watch.operation():
                result = func(*guarded, **guarded_keywords)
        for made in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(made, torch.Tensor):
                self.known[self.key(made)] = (made, made)
        return result

    def made(self, tensor: Any) -> bool:
        """Tell whether an operation of the branch returned the tensor."""
        return self.known.get(self.key(tensor), (None, None))[1] is tensor

    def key(self, tensor: Any) -> Any:
        """Return the key of a tensor: its id, and while Dynamo traces, which has no id for all of them, itself."""
        return tensor if self.watch is None else id(tensor)

    def guarded(self, argument: Any) -> Any:
        """Return a tensor with its derivative cut off where the predicate is False."""
        if isinstance(argument, (list, tuple)):  # torch.cat and torch.stack take lists
            items = [self.guarded(item) for item in argument]
            return tuple(items) if isinstance(argument, tuple) else items
        if not isinstance(argument, torch.Tensor):
            return argument
        key = self.key(argument)
        if key not in self.known:
            if self.watch is None:
                guard = self.guard(argument)
            else:
                with self.watch.guarding():
                    guard = self.guard(argument)
            self.known[key] = (argument, guard)
        return self.known[key][1]

    def guard(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy, for a change of it or of a view of it must not reach the other branch."""
        return torch.where(self.pred, tensor, tensor.detach()) if is_float(tensor) else tensor.clone()
