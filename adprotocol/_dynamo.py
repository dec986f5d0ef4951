"""Two marks for compilers that read Python, read by TorchDynamo.

Dynamo interprets the bytecode of what ``torch.compile`` is given, this library's
included, and cannot follow a table that is filled while it looks: it guards what
it read, and the guard would fail at once. The marks tell it what to do instead.
They are attributes that PyTorch itself sets on functions; setting them here
imports nothing and costs an eager call nothing. Tried with PyTorch 2.13.
"""

from __future__ import annotations

import functools
import sys
import types
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")


def run_while_tracing(function: F) -> F:
    """Mark a function that the compiler runs, on the constants it is given, instead of tracing it.

    ``torch.compiler.assume_constant_result`` sets this attribute.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]  # noqa: SLF001
    return function


def trace_instead(traced: Callable[..., Any]) -> Callable[[F], F]:
    """Mark a function in whose place the compiler traces another one.

    ``torch.compile`` sets this attribute on the functions that it wraps.
    """

    def mark(eager: F) -> F:
        eager._torchdynamo_inline = traced  # type: ignore[attr-defined]  # noqa: SLF001
        return eager

    return mark


def wrap(wrapper: Callable[..., Any], fun: Callable[..., Any]) -> Callable[..., Any]:
    """Give a wrapper the metadata of what it wraps, as ``functools.update_wrapper`` does, but for marks of compilers.

    A function that ``torch.compile`` returned bears `_torchdynamo_inline`, the
    function to be traced in its place. On a wrapper it would take the wrapper's
    place, and what that does would be left out of the graph.
    """
    functools.update_wrapper(wrapper, fun, updated=())
    # The attributes of a callable object are its own state.
    attributes = vars(fun) if isinstance(fun, types.FunctionType) else {}
    if not any(name.startswith(("_torchdynamo", "_dynamo")) for name in attributes):
        vars(wrapper).update(attributes)
        wrapper.__wrapped__ = fun  # type: ignore[attr-defined]
    return wrapper


@run_while_tracing
def _begin_anew() -> None:
    # The exception by which Dynamo itself starts over, with nothing kept of the first attempt.
    dynamo = sys.modules["torch._dynamo.exc"]
    raise dynamo.UnspecializeRestartAnalysis(restart_reason="adprotocol met a class for the first time")


def _forget_traced() -> None:
    _begin_anew()


@trace_instead(_forget_traced)
def forget_what_was_read() -> None:
    """Let a compiler that is tracing read the tables again, which have changed.

    TorchDynamo keeps what it read of optree's registry at first, so that a class
    that has joined since would be a leaf to it for ever.
    """
