"""`cond`: a Python branch where the predicate is known, and `tf.cond` in a traced program."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from adprotocol.extend import Branches
from adprotocol_tensorflow import stack, staging
from adprotocol_tensorflow.recording import recorders_inside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

NUMBERS = (bool, int, float, complex)


class _Selected(threading.local):
    """Whether a branch is being traced for a select, so that those inside of it are, too."""

    inside = False

    @contextmanager
    def branch(self) -> Iterator[None]:
        outer, self.inside = self.inside, True
        try:
            yield
        finally:
            self.inside = outer


_SELECTED = _Selected()


class _Again(Exception):  # noqa: N818
    """The branches differ in the dtypes of Python numbers alone, which are now known."""


def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Return the result of the chosen branch."""
    if not isinstance(pred, bool):
        if isinstance(pred, tf.Variable):
            pred = pred.read_value()
        if tf.is_symbolic_tensor(pred) and not tf.executing_eagerly():
            return _Staged(pred, true_fun, false_fun, operands).chosen()
        pred = bool(pred)
    return true_fun(*operands) if pred else false_fun(*operands)


class _Staged(Branches):
    """Both branches, given to `tf.cond` as functions that return lists of tensors."""

    def __init__(self, pred: Any, true_fun: Any, false_fun: Any, operands: tuple[Any, ...]) -> None:
        super().__init__((tf.Tensor, tf.Variable), true_fun, false_fun, operands)
        self.pred = pred
        self.question = staging.question_of(pred)
        self.dtypes: list[Any] | None = None

    def converted(self, leaf: Any) -> Any:
        """Return a tensor for an array of NumPy; a scalar that is a Python number too stays one."""
        is_numpy = isinstance(leaf, (np.ndarray, np.generic)) and not isinstance(leaf, NUMBERS)
        return tf.constant(leaf) if is_numpy else leaf

    def agree(self, one: Any, other: Any) -> bool:
        """Compare as ever; of two Python numbers both are bools or none."""
        if isinstance(one, NUMBERS) and isinstance(other, NUMBERS):
            return isinstance(one, bool) == isinstance(other, bool)
        return super().agree(one, other)

    def chosen(self) -> Any:
        """Return the result of `tf.cond`, in the structure that the branches have in common."""
        run = self._select if _SELECTED.inside or stack.is_vectorized() else self._run
        try:
            tensors = run()
        except _Again:
            tensors = run()
        return self.result(tensors)

    def _run(self) -> Sequence[Any]:
        # What is open around the function follows its calls; at tf.cond being traced TensorFlow would stumble over it.
        with recorders_inside().alone():
            result = tf.cond(self.pred, lambda: self._branch(taken=True), lambda: self._branch(taken=False))
        return tf.nest.flatten(result)

    def _select(self) -> Sequence[Any]:
        """Run both branches, and select: TensorFlow vectorises `tf.cond` only where it is differentiated in no way."""
        chosen = []
        for taken in (True, False):
            with _SELECTED.branch():
                branch = tf.function(lambda taken=taken: self._branch(taken=taken), autograph=False)
                traced = branch.get_concrete_function()
            mask = self.pred if taken else tf.logical_not(self.pred)
            guarded = [_guarded(mask, one) for one in traced.captured_inputs]
            with staging.branch(self.question, taken):
                chosen.append(traced._call_flat([], guarded))
        return [tf.where(self.pred, one, other) for one, other in zip(*map(tf.nest.flatten, chosen), strict=True)]

    def _branch(self, *, taken: bool) -> list[Any]:
        with staging.branch(self.question, taken):
            found = self.run_true() if taken else self.run_false()
        found = [leaf.read_value() if isinstance(leaf, tf.Variable) else leaf for leaf in found]
        if not taken:
            self._compare()
        return [
            tf.identity(one) if isinstance(one, tf.Tensor) else tf.constant(one, dtype)
            for one, dtype in zip(found, self.dtypes or [None] * len(found), strict=True)
        ]

    def _compare(self) -> None:
        """Refuse branches that differ; the dtypes of numbers are known once both have been traced."""
        pairs = self.compare()
        if self.dtypes is None:
            self.dtypes = [_common_dtype(one, other) for one, other in pairs]
            if self.dtypes != [_dtype(one) for one, _ in pairs]:
                raise _Again


def _guarded(mask: Any, captured: Any) -> Any:
    """Return what a branch captures, as a constant where the branch is not taken: so its NaN reaches no gradient."""
    if not (captured.dtype.is_floating or captured.dtype.is_complex):
        return captured
    return tf.where(mask, captured, tf.stop_gradient(captured))


def _common_dtype(one: Any, other: Any) -> Any:
    if isinstance(one, NUMBERS) and isinstance(other, NUMBERS):
        return max(_dtype(one), _dtype(other), key=[tf.bool, tf.int32, tf.float32, tf.complex128].index)
    return _dtype(other if isinstance(one, NUMBERS) else one)


def _dtype(kind: Any) -> Any:
    return tf.constant(kind).dtype if isinstance(kind, NUMBERS) else kind.dtype
