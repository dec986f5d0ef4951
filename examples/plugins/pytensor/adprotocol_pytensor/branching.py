"""`cond` on PyTensor: Python's branch for a constant predicate, else the lazy `ifelse`.

A branch runs once, while the graph is built. What it uses from outside is guarded, so
that nothing comes back from it in a gradient where it is not taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import walk
from pytensor.tensor.type import TensorType

from adprotocol.errors import PredicateError
from adprotocol.extend import Branches
from adprotocol_pytensor.ops import branch, guard, is_continuous
from adprotocol_pytensor.resolution import substitute

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NUMBERS = (bool, int, float, complex)


def choose(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Return the result of the chosen branch."""
    if not isinstance(pred, bool):
        if not isinstance(pred.type, TensorType):
            msg = f"cond was given a variable of type {pred.type} as predicate; it takes a boolean scalar: `x > 0`"
            raise PredicateError(msg)
        if not isinstance(pred, Constant):
            return _stage(pred, true_fun, false_fun, operands)
        pred = bool(pred.data)
    return true_fun(*operands) if pred else false_fun(*operands)


def _stage(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    branches = _Branches((Variable, np.ndarray, np.generic), true_fun, false_fun, operands)
    start = _now()
    if_true = branches.run_true()
    middle = _now()
    if_false = branches.run_false()
    branches.compare()
    pairs = [_matched(*pair) for pair in zip(if_true, if_false, strict=True)]
    arrays = [pair for pair in pairs if isinstance(pair[0], Variable)]
    chosen = _guarded([one for one, _ in arrays], pred, start)
    others = _guarded([other for _, other in arrays], ~pred, middle)
    choices = iter([branch(pred, one, other) for one, other in zip(chosen, others, strict=True)])
    return branches.result([next(choices) if isinstance(one, Variable) else one for one, _ in pairs])


class _Branches(Branches):
    """Branches whose leaves are variables, or become constants of the graph."""

    def type_of(self, leaf: Any) -> Any:
        """Return the type of a variable or a NumPy array; a Python number follows the other branch."""
        if isinstance(leaf, NUMBERS) or not isinstance(leaf, self.arrays):
            return None
        return leaf.type if isinstance(leaf, Variable) else pt.constant(leaf).type

    def agree(self, one: Any, other: Any) -> bool:
        """Compare types, but for sizes that are not known."""
        if isinstance(one, NUMBERS) and isinstance(other, NUMBERS):
            return True
        types = [_following(one, other), _following(other, one)]
        if not all(isinstance(kind, TensorType) for kind in types):
            return bool(types[0] == types[1])
        if types[0].dtype != types[1].dtype or types[0].ndim != types[1].ndim:
            return False
        return all(a == b or a is None or b is None for a, b in zip(types[0].shape, types[1].shape, strict=True))


def _now() -> int:
    """Return a number between those of the variables made before this call and after it."""
    return _number(pt.dscalar())


def _number(variable: Variable) -> int:
    return int(variable.auto_name.removeprefix("auto_"))


def _guarded(results: Sequence[Variable], mask: Any, start: int) -> list[Variable]:
    """Return the results of a branch with what was made before it, at `start`, guarded."""

    def inside(variable: Variable) -> Any:
        return variable.owner.inputs if variable.owner is not None and _number(variable) >= start else None

    guards = {
        variable: guard(variable, mask)
        for variable in walk(list(results), inside)
        if _number(variable) < start and not isinstance(variable, Constant) and is_continuous(variable)
    }
    return substitute(results, guards)


def _matched(one: Any, other: Any) -> tuple[Any, Any]:
    """Return two leaves as variables of one type, or as they are if they are equal numbers."""
    if type(one) in NUMBERS and type(one) is type(other) and one == other:
        return one, one
    if isinstance(one, NUMBERS) and isinstance(other, NUMBERS):
        dtype = np.result_type(one, other).name
        return pt.constant(one, dtype=dtype), pt.constant(other, dtype=dtype)
    return _array(one, other), _array(other, one)


def _following(kind: Any, like: Any) -> Any:
    return _array(kind, like).type if isinstance(kind, NUMBERS) else kind


def _array(leaf: Any, like: Any) -> Any:
    """Return a variable; a Python number has the dtype of what the other branch returns, if this can hold it."""
    if isinstance(leaf, Variable):
        return leaf
    if isinstance(leaf, NUMBERS):
        dtype = getattr(like, "dtype", None)
        follows = dtype is not None and np.result_type(np.dtype(dtype), leaf) == np.dtype(dtype)
        return pt.constant(leaf, dtype=str(dtype) if follows else np.asarray(leaf).dtype.name)
    return pt.constant(leaf)
