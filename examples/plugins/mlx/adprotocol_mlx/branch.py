"""`cond`: a Python branch where the predicate can be computed, else both branches and a choice.

MLX has no conditional of its own. A predicate that depends on a placeholder of vmap
or compile cannot be computed while the function is traced. Then both branches run,
and what goes into each is guarded, so that the derivative of the branch that is not
taken ends there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

from adprotocol.extend import Branches
from adprotocol_mlx import trace
from adprotocol_mlx.choice import choose
from adprotocol_mlx.guard import call_guarded

if TYPE_CHECKING:
    from collections.abc import Callable


def branch(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Return the chosen branch applied to the operands."""
    if not isinstance(pred, bool):
        known = _computed(pred)
        if known is None:
            return _both(pred, true_fun, false_fun, operands)
        pred = known
    return true_fun(*operands) if pred else false_fun(*operands)


def _computed(pred: mx.array) -> bool | None:
    """Return the value of a predicate, None if it depends on a placeholder."""

    def evaluated() -> bool:
        mx.eval(pred)
        return bool(pred.item())

    if not trace.is_tracing():
        return evaluated()
    try:
        return trace.keeping_graphs(evaluated)
    except ValueError as error:
        if "[eval]" not in str(error):  # a user's vmap or custom rule does not run here; be sure all the same
            raise
        return None


def _both(pred: mx.array, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: Any) -> Any:
    branches = _Branches(
        mx.array,
        lambda: call_guarded(pred, true_fun, operands),
        lambda: call_guarded(mx.logical_not(pred), false_fun, operands),
    )
    if_true, if_false = branches.run_true(), branches.run_false()
    branches.compare()
    return branches.result([_chosen(pred, *pair) for pair in zip(if_true, if_false, strict=True)])


class _Branches(Branches):
    """Branches that may return arrays of NumPy among those of MLX."""

    def converted(self, leaf: Any) -> Any:
        """Return an array of MLX for one of NumPy; a scalar that is a Python number too stays one."""
        is_of_numpy = isinstance(leaf, (np.ndarray, np.generic)) and not isinstance(leaf, (float, complex))
        return mx.array(leaf) if is_of_numpy and leaf.dtype.kind in "biufc" else leaf


def _chosen(pred: mx.array, leaf: Any, other: Any) -> mx.array:
    arrays = [item for item in (leaf, other) if isinstance(item, mx.array)]
    dtype = arrays[0].dtype if arrays else mx.result_type(mx.array(leaf), mx.array(other))
    return choose(pred, *(item if isinstance(item, mx.array) else mx.array(item, dtype) for item in (leaf, other)))
