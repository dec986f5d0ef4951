"""The answer of `within_gradient`: True or False where the graph tells, else staged.

Where a graph ends at a placeholder of vmap, its operations go on to values that
nobody knows yet: vmap puts them in at its end. So the answer is an operation with a
vmap rule, which asks again about those values. A function that is compiled has
placeholders too. MLX runs compiled code only where no argument is traced, so there
the answer stays False, or its derivative rule raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import mlx.core as mx

from adprotocol_mlx import levels, trace
from adprotocol_mlx.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Sequence


def is_inexact(value: mx.array) -> bool:
    """Return whether the dtype is one that carries a derivative."""
    return bool(mx.issubdtype(value.dtype, mx.inexact))


def ask(values: Sequence[mx.array]) -> Any:
    """Return whether a derivative goes through one of some values: a bool, or a staged boolean."""
    # In a tuple, because a list would look like one of MLX; and not of a generator, which leaves a tuple unfilled where
    # a search in another thread reads it.
    tracked = tuple([value for value in values if is_inexact(value)])
    if not tracked or not trace.is_tracing():
        return False
    graph = Graph(tracked)
    copies = graph.copies()
    if copies and levels.is_active(graph, copies, tracked):
        return True
    unknown = [value for value in tracked if trace.is_open(value)]
    return _staged(*unknown) if unknown else False


def refuse_compiled(*_: Any) -> NoReturn:
    """Raise where a derivative goes through compiled code that was given values too early."""
    raise levels.undecidable("compiled-after-inner-derivative")


def _batched(values: Any, axes: Any) -> tuple[mx.array, int | None]:
    """Ask about the values that vmap puts in; one answer is for the whole batch."""
    if not isinstance(values, (tuple, list)):
        values, axes = (values,), (axes,)
    answer = mx.array(ask(values))
    sizes = [value.shape[axis] for value, axis in zip(values, axes, strict=True) if axis is not None]
    # MLX's own operations go on with a result that is not batched as if it were.
    return (mx.broadcast_to(answer, sizes[:1]), 0) if sizes else (answer, None)


# False where nothing is put in.
_staged: Any = mx.custom_function(lambda *_: mx.array(False))
_staged.vmap(_batched)
_staged.vjp(refuse_compiled)
_staged.jvp(refuse_compiled)
