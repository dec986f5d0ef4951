"""Wrappers: functions that stand for a user's function and bear its metadata."""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# How the attributes begin by which a compiler marks functions; `adprotocol._dynamo` knows them.
COMPILER_MARKS: list[str] = []


def wrap(wrapper: Callable[..., Any], fun: Callable[..., Any]) -> Callable[..., Any]:
    """Give a wrapper the metadata of the function it wraps, as ``functools.update_wrapper`` does.

    The marks of a compiler are left out: they say what to trace in place of `fun`,
    which on the wrapper would leave out what the wrapper does.
    """
    # A callable object may have anything under these names; a function takes strings alone.
    names = [
        name
        for name in functools.WRAPPER_ASSIGNMENTS
        if name not in ("__name__", "__qualname__") or isinstance(getattr(fun, name, None), str)
    ]
    functools.update_wrapper(wrapper, fun, names, updated=())
    # The attributes of a callable object are its own state.
    attributes = vars(fun) if isinstance(fun, types.FunctionType) else {}
    if not any(name.startswith(tuple(COMPILER_MARKS)) for name in attributes):
        vars(wrapper).update(attributes)
        wrapper.__wrapped__ = fun  # type: ignore[attr-defined]
    return wrapper
