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

# Buffers with what was computed from an argument of a call under way.
cut: weakref.WeakSet[UOp] = weakref.WeakSet()


def watch() -> None:
    """Wrap tinygrad's function; called once, when the plugin is imported.

    Raises PluginError if this version of tinygrad has none that is called so.
    """
    name = "_apply_map_to_tensors"
    own: Callable[..., Any] | None = getattr(tinygrad_tensor, name, None)
    if own is None or list(inspect.signature(own).parameters)[:1] != ["applied_map"]:
        msg = f"adprotocol-tinygrad wraps tinygrad.tensor.{name}(applied_map, ...), which this version of tinygrad lacks"
        raise PluginError(f"{msg}; install tinygrad 0.14")

    @functools.wraps(own)
    def noting(applied_map: dict[UOp, UOp], *args: Any, **kwargs: Any) -> Any:
        _note(applied_map)
        return own(applied_map, *args, **kwargs)

    setattr(tinygrad_tensor, name, noting)


def _note(applied_map: dict[UOp, UOp]) -> None:
    walk = graph.Walk()
    for old, new in applied_map.items():
        # What was assigned to a variable stays in that variable, whose flag decides.
        if graph.storage(old) is not None or (buffer := graph.storage(new)) is None:
            continue
        if walk.status(old) == graph.CONSTANT:
            graph.constants.add(buffer)
        elif old in graph.arguments or any(node in graph.arguments or node in cut for node in old.toposort()):
            cut.add(buffer)
