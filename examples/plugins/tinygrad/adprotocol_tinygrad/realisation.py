"""What `realize` takes from a graph: a tensor that was computed becomes a buffer, and nothing tells from what.

By then a constant looks like a variable, and a result that was tracked no longer leads to
the argument it was computed from. So the one function through which tinygrad puts
buffers in the place of graphs is wrapped: it notes which of them are constants, and
which were cut off from an argument that a call of this plugin differentiates.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from typing import TYPE_CHECKING, Any

from tinygrad import tensor as tinygrad_tensor

from adprotocol.errors import PluginError
from adprotocol_tinygrad import graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from tinygrad.uop.ops import UOp

# Buffers with what was computed from arguments of calls under way, and the numbers of these.
_cut: weakref.WeakKeyDictionary[UOp, set[int]] = weakref.WeakKeyDictionary()


def watch() -> None:
    """Wrap tinygrad's function; called once, when the plugin is imported."""

    def wrap(own: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(own)
        def noting(applied_map: dict[UOp, UOp], *args: Any, **kwargs: Any) -> Any:
            _note(applied_map)
            return own(applied_map, *args, **kwargs)

        return noting

    wrapped(tinygrad_tensor, "_apply_map_to_tensors", ["applied_map", "name"], wrap)


def wrapped(
    module: Any, name: str, arguments: list[str], wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    """Wrap a function of tinygrad; raises PluginError if it is not as this plugin knows it."""
    own = getattr(module, name, None)
    if own is None or list(inspect.signature(own).parameters) != arguments:
        given = f"{module.__name__}.{name}({', '.join(arguments)})"
        msg = f"adprotocol-tinygrad wraps {given}, which this version of tinygrad lacks; install tinygrad 0.14"
        raise PluginError(msg)
    setattr(module, name, wrap(own))


def _note(applied_map: dict[UOp, UOp]) -> None:
    walk = graph.Walk()
    walk.visit(applied_map)
    for old, new in applied_map.items():
        buffer = graph.storage(new)
        if buffer is None:
            continue
        status = walk.found[old]
        # What is assigned to a variable stays in that variable, whose flag decides.
        if status == graph.CONSTANT and graph.storage(old) is None:
            graph.constants.add(buffer)
        elif status == graph.TRACKED and graph.numbers:
            _note_cut(old, buffer)


def _note_cut(old: UOp, buffer: UOp) -> None:
    lost = numbers_cut(old) | graph.numbers_in(old)
    own = graph.number_of(old)
    if own is not None:
        # An argument that is realised stays what it is; only a call around this one loses it.
        graph.realised[buffer] = own
        lost.discard(own)
    if lost:
        _cut[buffer] = lost


def numbers_cut(uop: UOp) -> set[int]:
    """Return the numbers of the arguments that a graph would lead to if nothing in it had been realised."""
    return {number for node in graph.passed(uop) if node in _cut for number in _cut[node]} if _cut else set()
