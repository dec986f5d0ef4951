"""Both branches and a select, for a predicate that differs along a batch.

A plain ``torch.where`` lets a NaN of the branch not taken into the gradient, because
0 times infinity is NaN. So each branch sees its tensors through a guard,
``where(pred, x, x.detach())``, where the derivative of the other branch ends; in anomaly
mode ``where(pred, x, other)``, of a row for which the branch is taken: no NaN arises.
Operands and tensors that a branch closes over are guarded alike, on first use. This
is the double-where trick
(https://docs.jax.dev/en/latest/faq.html#gradients-contain-nan-where-using-where).

Both branches run, so a change in place of what a branch did not make would be lost, or
reach the other branch: it is refused, as far as the names of PyTorch's functions tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from adprotocol.errors import BranchError
from adprotocol.extend import Branches
from adprotocol.messages import add_note
from adprotocol.tracing import run_while_tracing
from adprotocol_torch import dynamo, internals, tracking
from adprotocol_torch.tensors import converted, is_float

if TYPE_CHECKING:
    from collections.abc import Callable


def select(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Run both branches, guarded, and choose elementwise along the batch."""
    branches = TensorBranches(
        torch.Tensor, lambda: run_guarded(pred, true_fun, operands), lambda: run_guarded(~pred, false_fun, operands)
    )
    if_true, if_false = branches.run_true(), branches.run_false()
    branches.compare()
    return branches.result([torch.where(pred, one, other) for one, other in zip(if_true, if_false, strict=True)])


class TensorBranches(Branches):
    """Branches that may return arrays of NumPy among their tensors."""

    converted: Any = staticmethod(converted)


def run_guarded(pred: torch.Tensor, branch: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Return ``branch(*operands)``, of which no derivative reaches what it did not make where `pred` is False."""
    guard = _Guard(pred)
    if torch.compiler.is_dynamo_compiling():  # which loses the text of an error that is raised again
        with guard:
            result = branch(*operands)
    else:
        try:
            with guard:
                result = branch(*operands)
        except Exception as error:
            name = getattr(branch, "__qualname__", type(branch).__qualname__)
            add_note(
                error,
                f"adprotocol: raised in {name}, a branch of a batched cond, of which both branches run for all rows; "
                "where it is not taken, let it compute with an operand that is safe: torch.where(pred, x, safe)",
            )
            raise
    if guard.has_refused:
        raise _changed_in_place()
    return result


# What raises for some matrices, in its derivative at least, where arithmetic gives NaN.
_OF_LINALG = (
    "cholesky cond det eig eigh eigvals eigvalsh inv ldl_factor lstsq lu lu_factor matrix_power slogdet solve svd"
)
_OF_MATRICES = frozenset(
    [f"linalg_{name}" for name in _OF_LINALG.split()] + ["inverse", "det", "logdet", "slogdet", "cholesky", "lu"]
)


@run_while_tracing
def _may_raise(name: str) -> bool:
    return name in _OF_MATRICES


class _Guard(TorchFunctionMode):
    """Replace every tensor that the branch did not create by its guard."""

    def __init__(self, pred: torch.Tensor) -> None:
        super().__init__()
        self.pred = pred
        # The tensor is kept with its guard, or with itself if the branch made it, so that no id is reused.
        self.known: dict[Any, tuple[torch.Tensor, torch.Tensor]] = {}
        self.is_traced = torch.compiler.is_dynamo_compiling()
        # Anomaly mode raises for a NaN that the guard stops later; to let none arise takes three times as long.
        self.is_watched = not self.is_traced and torch.is_anomaly_enabled()
        # Keys of the memory of guards.
        self.copies: set[int] = set()
        # `y += 1` turns a TypeError, which this one is, into `y = y + 1`.
        self.has_refused = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.requires_grad_:
            return func(*args, **(kwargs or {}))  # how torch.func.grad marks its own wrapper
        keywords = kwargs or {}
        # The tensor that an in-place operation changes must stay itself.
        start = 1 if _is_in_place(func.__name__) else 0
        if start and isinstance(args[0], torch.Tensor) and not self.has_made(args[0]):
            self.has_refused = True
            raise _changed_in_place()
        guarded = [*args[:start], *(self.guarded(argument) for argument in args[start:])]
        guarded_keywords = {name: self.guarded(argument) for name, argument in keywords.items()}
        if _may_raise(func.__name__):
            guarded = [self.regular(argument) for argument in guarded]
            guarded_keywords = {name: self.regular(argument) for name, argument in guarded_keywords.items()}
        result = func(*guarded, **guarded_keywords)
        for made in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(made, torch.Tensor):
                self.known[self.key(made)] = (made, made)
        return result

    def key(self, tensor: torch.Tensor) -> Any:
        """Return the key of a tensor: its id, and while Dynamo traces, which has no id for all of them, itself."""
        return tensor if self.is_traced else id(tensor)

    def has_made(self, tensor: torch.Tensor) -> bool:
        """Return whether an operation of the branch returned the tensor, and not as a view of a guard."""
        is_result = self.known.get(self.key(tensor), (None, None))[1] is tensor
        return is_result and (self.is_traced or internals.memory_of(tensor) not in self.copies)

    def guarded(self, argument: Any) -> Any:
        """Return a tensor with its derivative cut off where the predicate is False."""
        if isinstance(argument, (list, tuple)):  # torch.cat and torch.stack take lists
            items = [self.guarded(item) for item in argument]
            return tuple(items) if isinstance(argument, tuple) else items
        if not isinstance(argument, torch.Tensor):
            return argument
        key = self.key(argument)
        if key not in self.known:
            # A copy, for a change of it or of a view of it must not reach the other branch.
            is_tracked = dynamo.ask_fake(argument) if self.is_traced else tracking.within_gradient(argument)
            # Not batched unless need be: so PyTorch refuses a change of the statistics of a batch norm.
            if self.is_watched and is_float(argument) and (is_tracked or tracking.is_batched(argument)):
                guard = torch.where(self.pred, argument, _of_taken(self.pred, argument.detach()))
            else:
                guard = torch.where(self.pred, argument, argument.detach()) if is_tracked else argument.clone()
            self.known[key] = (argument, guard)
            if not self.is_traced:
                self.copies.add(internals.memory_of(guard))
        return self.known[key][1]

    def regular(self, argument: Any) -> Any:
        """Return a square matrix that is the identity where the predicate is False: a singular one would raise."""
        if not isinstance(argument, torch.Tensor) or argument.dim() < 2 or argument.shape[-1] != argument.shape[-2]:  # noqa: PLR2004  (a matrix)
            return argument
        identity = torch.eye(argument.shape[-1], dtype=argument.dtype, device=argument.device)
        return torch.where(self.pred, argument, identity)


class _OfTaken(torch.autograd.Function):
    """Give every row of a batch the constant of the first row whose predicate is True; without one, 0.5."""

    @staticmethod
    def forward(pred: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Return the value, if the predicate is True for any row."""
        return torch.where(pred, value, torch.full_like(value, 0.5))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Save nothing: the value is a constant."""

    @staticmethod
    def vmap(_info: Any, dims: Any, pred: torch.Tensor, value: torch.Tensor) -> tuple[Any, int | None]:
        """Choose the row."""
        if dims[0] is None:
            return _of_taken(pred, value.movedim(dims[1], 0)), 0
        rows = pred.movedim(dims[0], 0)
        index = rows.to(torch.uint8).max(0).indices.reshape(1)
        if dims[1] is not None:
            value = value.index_select(dims[1], index).squeeze(dims[1])
        return _of_taken(rows.index_select(0, index).squeeze(0), value), None


def _of_taken(pred: torch.Tensor, value: torch.Tensor) -> Any:
    return _OfTaken.apply(pred, value)  # type: ignore[no-untyped-call]


@run_while_tracing
def _is_in_place(name: str) -> bool:
    """Return whether the function of a name changes its first argument."""
    if name.startswith("__"):  # `y += 1` is __iadd__
        return name in ("__setitem__", "__set__") or (
            name[2] == "i" and name not in ("__invert__", "__index__", "__int__")
        )
    return name.endswith("_")


def _changed_in_place() -> BranchError:
    return BranchError(
        "a branch of a batched cond changes in place a tensor that it did not make; both branches run, so the change "
        "would be lost or reach the other one: write `y = y + 1`, or change a clone"
    )
