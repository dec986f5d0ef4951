"""Wrappers of a user's function: they carry its metadata, and its errors show none of the library's insides."""

from __future__ import annotations

import functools
import types

from adprotocol._typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, TracebackType

# Prefixes of the attributes with which a compiler marks functions; `adprotocol._dynamo` fills it.
COMPILER_MARKS: list[str] = []


def wrap(wrapper: Callable[..., Any], fun: Callable[..., Any]) -> Callable[..., Any]:
    """Give a wrapper the metadata of the function it wraps, as ``functools.update_wrapper`` does.

    Compiler marks are not copied: they name what to trace in place of `fun`, which
    would skip the wrapper's own work.
    """
    for name in functools.WRAPPER_ASSIGNMENTS:
        # A callable object may define these names with values that a function rejects.
        try:  # noqa: SIM105  (as in `dtype`)
            setattr(wrapper, name, getattr(fun, name))
        except (AttributeError, TypeError):
            pass
    # The attributes of a callable object are its own state.
    attributes = vars(fun) if isinstance(fun, types.FunctionType) else {}
    if not any(name.startswith(tuple(COMPILER_MARKS)) for name in attributes):
        vars(wrapper).update(attributes)
        wrapper.__wrapped__ = fun  # type: ignore[attr-defined]
    return wrapper


class Wrapper:
    """A user's function with more: it is bound as a method is, and copied and pickled by its name."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.fun = fun
        self.name: str = getattr(fun, "__name__", type(fun).__name__)
        this: Any = self
        functools.update_wrapper(this, fun, updated=())

    def __reduce__(self) -> str:
        return str(getattr(self.fun, "__qualname__", type(self.fun).__qualname__))

    def __get__(self: Any, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)


# The code of the public functions that run a user's function: of each call one frame stays.
_ENTRIES: set[CodeType] = set()


def leave_out(error: BaseException) -> None:
    """Leave out of an error's traceback the frames between a public function, which caught it, and the user's.

    What this library raises itself shows where.
    """
    before = error.__traceback__
    if before is None:
        return
    _ENTRIES.add(before.tb_frame.f_code)
    after = before.tb_next
    while after is not None:
        if not _is_inside(after):
            before.tb_next = after
            before = after
        after = after.tb_next


def _is_inside(traceback: TracebackType) -> bool:
    frame = traceback.tb_frame
    name = str(frame.f_globals.get("__name__"))
    # The scenarios of the suite are users.
    is_ours = name.startswith(("adprotocol._", "adprotocol_")) and ".conformance" not in name
    return is_ours and frame.f_code not in _ENTRIES
