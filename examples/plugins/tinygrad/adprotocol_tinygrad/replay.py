"""What a `TinyJit` keeps: the answers that were given when it captured its function.

A replay runs kernels, and asks nobody. So a capture in which someone asked keeps what the
answers rest on: which of its arguments were tracked, and the flags of the variables that it
closes over. tinygrad compares what it expects of the arguments with what it is given before
each replay; the record stands among that, and compares itself.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

from tinygrad import Tensor
from tinygrad.engine import jit
from tinygrad.engine import realize as engine
from tinygrad.tensor import all_tensors

from adprotocol.errors import UndecidableError
from adprotocol_tinygrad import graph
from adprotocol_tinygrad.realisation import wrapped

if TYPE_CHECKING:
    from collections.abc import Callable

    from tinygrad.uop.ops import UOp

_STALE = (
    "a TinyJit was captured when {}, and within_gradient was asked about it; now it is {}, and the program that would "
    "be replayed has the answer of then. Make a TinyJit of its own for training and for evaluation"
)
_DIFFERENTIATED = (
    "a TinyJit was called inside of adprotocol.grad with a tensor that is differentiated: it returns buffers, of which "
    "tinygrad does not know what they were computed from, and the derivative would be zero without a word. Put the "
    "gradient into the TinyJit instead"
)


class Record:
    """Hold the arguments of a call, and what the answers given during it rest on."""

    def __init__(self, arguments: list[Tensor]) -> None:
        self.arguments: list[weakref.ref[Tensor]] = [weakref.ref(argument) for argument in arguments]
        self.asked: dict[int, bool] = {}
        self.flags: list[tuple[weakref.ref[Tensor], bool]] = []

    def note(self, found: dict[UOp, int]) -> None:
        """Remember what an answer rests on, the nodes that were looked at with their status."""
        arguments = [reference() for reference in self.arguments]
        for place, argument in enumerate(arguments):
            if argument is not None and argument.uop in found:
                self.asked[place] = found[argument.uop] == graph.TRACKED
        for reference in list(all_tensors):
            tensor = reference()
            if tensor is not None and tensor.uop in found and not any(tensor is argument for argument in arguments):
                self.flags.append((reference, tensor.is_param))

    def __eq__(self, other: object) -> bool:
        """Compare with the record of a call that would replay this one's capture; raises if an answer is stale."""
        if not isinstance(other, Record):
            return NotImplemented
        for place, then in self.asked.items():
            argument = other.arguments[place]() if place < len(other.arguments) else None
            if argument is not None and graph.is_tracked(argument) != then:
                was, now = ("tracked", "not tracked") if then else ("not tracked", "tracked")
                raise UndecidableError(_STALE.format(f"its argument {place} was {was}", now))
        for reference, flag in self.flags:
            tensor = reference()
            if tensor is not None and tensor.is_param != flag:
                was = f"is_param was {flag} for a tensor of shape {tensor.shape} that it uses"
                raise UndecidableError(_STALE.format(was, not flag))
        return True

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        """A capture that is stored is replayed by another process, with other tensors."""
        return Record, ([],)


# The record of the call under way, or of the last one.
_latest: list[Record] = []


def note(found: dict[UOp, int]) -> None:
    """Remember that an answer rests on these nodes, if a TinyJit captures the program."""
    if engine.capturing and _latest:
        _latest[-1].note(found)


def watch() -> None:
    """Wrap the function by which a TinyJit looks at its arguments; called once, when the plugin is imported."""

    def wrap(own: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(own)
        def looked_at(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            given = _tensors((*args, *kwargs.values()))
            if any(graph.numbers_in(tensor.uop) for tensor in given):
                raise UndecidableError(_DIFFERENTIATED)
            buffers, variables, names, expected = own(args, kwargs)
            record = Record(given)
            if not engine.capturing:
                _latest[:] = [record]
            return buffers, variables, names, [*expected, record]

        return looked_at

    wrapped(jit, "_prepare_jit_inputs", ["args", "kwargs"], wrap)


def _tensors(values: tuple[Any, ...]) -> list[Tensor]:
    """Return the tensors that a TinyJit finds in its arguments: those in lists, tuples and dicts, one level deep."""
    found: list[Tensor] = []
    for value in values:
        inside = value if isinstance(value, (tuple, list)) else value.values() if isinstance(value, dict) else (value,)
        found += [tensor for tensor in inside if isinstance(tensor, Tensor)]
    return found
