"""What a branch of a batched cond must not do: change what it did not make, or run operations outside the guard.

Both branches run. The guard of `batched_cond` gives each operation copies of the
tensors from outside, so a change in place would be lost, or reach the other branch.
Functions of PyTorch say in their schemas what they change, which a mode below them
sees; in a graph that is being traced there is no such mode, and names have to do.
"""

from __future__ import annotations

import contextlib
import inspect
from typing import TYPE_CHECKING, Any

from adprotocol.errors import BranchError
from adprotocol.extend import run_while_tracing
from adprotocol_torch import internals
from adprotocol_torch.tensors import tensors_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import torch


class BranchWatch(internals.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watch what reaches PyTorch's kernels while a branch runs."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # By the key of its memory; kept, so that no memory is used twice while the branch runs.
        self._own: dict[int, Any] = {}
        self._depth = 0
        self._is_guarding = False
        self._unguarded: Any = None

    @contextlib.contextmanager
    def operation(self) -> Iterator[None]:
        """Mark what a function of PyTorch computes whose arguments are guarded."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    @contextlib.contextmanager
    def guarding(self) -> Iterator[None]:
        """Mark the making of a guard, which stands for a tensor from outside."""
        self._is_guarding = True
        try:
            with self.operation():
                yield
        finally:
            self._is_guarding = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with internals.without_torch_function():  # what is asked here is not for the guard
            return self._watched(func, args, kwargs or {})

    def _watched(self, func: Any, args: Any, keywords: Any) -> Any:
        schema = internals.schema_of(func)
        # A view computes nothing; torch.func makes some of its own.
        if not self._depth and all(value.alias_info is None for value in schema.returns):
            self._unguarded = self._unguarded or func
        given = _memory((*args, *keywords.values()))
        if schema.is_mutable and not _memory(_changed(schema, args, keywords)).keys() <= self._own.keys():
            raise changed_in_place()
        result = func(*args, **keywords)
        if not self._is_guarding:
            made = _memory((result,))
            self._own.update({key: made[key] for key in made.keys() - given.keys()})
        return result

    def check(self) -> None:
        """Refuse a branch that computed where the guard does not see it."""
        if self._unguarded is not None:
            msg = (
                f"a branch of a batched cond calls {self._unguarded} by a compiled function, of TorchScript "
                "(torch.jit) or torch.compile; both branches run, and inside of it the derivative of the one not "
                "taken cannot be cut off, so that its NaN would reach the gradient. Call the Python function as it was "
                "before it was compiled, or write the branch with functions of torch"
            )
            raise BranchError(msg)


def _memory(values: Iterable[Any]) -> dict[int, Any]:
    return dict(map(internals.memory_of, tensors_in(values)))


def _changed(schema: Any, args: Any, keywords: Any) -> Iterator[torch.Tensor]:
    for i, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from tensors_in((args[i] if i < len(args) else keywords.get(argument.name),))


@run_while_tracing
def is_in_place(name: str) -> bool:
    """Tell whether the function of a name changes its first argument."""
    if name.startswith("__"):  # `y += 1` is __iadd__
        return name in ("__setitem__", "__set__") or (
            name[2] == "i" and name not in ("__invert__", "__index__", "__int__")
        )
    return name.endswith("_")


@run_while_tracing
def _place(func: Any, name: str) -> int:
    """Return the position of a parameter of a function, -1 if it has none of the name."""
    try:
        return list(inspect.signature(func).parameters).index(name)
    except (TypeError, ValueError):
        return -1


def changed_argument(func: Any, args: Any, keywords: Any) -> Any:
    """Return the argument that a function changes as far as its parameters tell, else None."""
    if keywords.get("out") is not None:
        return keywords["out"]
    if _is_given(func, "inplace", args, keywords) is True:
        return args[0] if args else keywords.get("input")
    if _is_given(func, "max_norm", args, keywords) is not None:
        return _is_given(func, "weight", args, keywords)
    if (
        _is_given(func, "training", args, keywords) is True
        or _is_given(func, "use_input_stats", args, keywords) is True
    ):
        return _is_given(func, "running_mean", args, keywords)
    return None


def _is_given(func: Any, name: str, args: Any, keywords: Any) -> Any:
    if name in keywords:
        return keywords[name]
    place = _place(func, name)
    return args[place] if 0 <= place < len(args) else None


def changed_in_place() -> BranchError:
    """Return the error for a change of what the branch did not make."""
    return BranchError(
        "a branch of a batched cond changes in place a tensor that it did not make (the statistics of a batch norm "
        "and a max_norm are such changes, too); both branches run, so the change would be lost or reach the other "
        "one: write `y = y + 1`, or change a clone"
    )
