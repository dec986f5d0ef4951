"""Wrappers: functions that replace a user's function and carry its metadata."""

from __future__ import annotations

import contextlib
import functools
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# Prefixes of the attributes with which a compiler marks functions; `adprotocol._dynamo` fills it.
COMPILER_MARKS: list[str] = []


def wrap(wrapper: Callable[..., Any], fun: Callable[..., Any]) -> Callable[..., Any]:
    """Give a wrapper the metadata of the function it wraps, as ``functools.update_wrapper`` does.

    Compiler marks are not copied: they name what to trace in place of `fun`, which
    would skip the wrapper's own work.
    """
    for name in functools.WRAPPER_ASSIGNMENTS:
        # A callable object may have anything under these names, which a function does not take.
        with contextlib.suppress(AttributeError, TypeError):
            setattr(wrapper, name, getattr(fun, name))
    # The attributes of a callable object are its own state.
    attributes = vars(fun) if isinstance(fun, types.FunctionType) else {}
    if not any(name.startswith(tuple(COMPILER_MARKS)) for name in attributes):
        vars(wrapper).update(attributes)
        wrapper.__wrapped__ = fun  # type: ignore[attr-defined]
    return wrapper
