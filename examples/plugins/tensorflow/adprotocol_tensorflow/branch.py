"""`cond`: a Python branch where the predicate is known, and `tf.cond` in a traced program."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

from adprotocol.errors import BranchMismatchError
from adprotocol.extend import (
    common_outline,
    describe,
    predicate_error,
    predicate_shape_error,
    put_together,
    same_constant,
    take_apart,
)
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
        if pred.dtype != tf.bool:
            raise predicate_error(pred, pred.dtype.name)
        if pred.shape.rank not in (0, None):
            raise predicate_shape_error(pred, pred.shape)
        if isinstance(pred, tf.Variable):
            pred = pred.read_value()
        if tf.is_symbolic_tensor(pred) and not tf.executing_eagerly():
            return _Staged(pred, true_fun, false_fun, operands).result()
        pred = bool(pred)
    return true_fun(*operands) if pred else false_fun(*operands)


class _Leaf(NamedTuple):
    """What a branch returns at one place, as far as the other has to agree with it."""

    array: bool
    number: Any  # a Python number, which takes the dtype of what the other branch returns
    dtype: Any
    shape: Any
    value: Any  # of what is no array

    def __str__(self) -> str:
        if not self.array:
            return f"{self.value!r:.60}"
        if self.number is not None:
            return repr(self.number)
        shape = "..." if self.shape is None else ",".join("?" if size is None else str(size) for size in self.shape)
        return f"{self.dtype.name}[{shape}]"


class _Staged:
    """Both branches, given to `tf.cond` as functions that return lists of tensors."""

    def __init__(self, pred: Any, true_fun: Any, false_fun: Any, operands: tuple[Any, ...]) -> None:
        self.pred = pred
        self.functions = {True: true_fun, False: false_fun}
        self.operands = operands
        self.question = staging.question_of(pred)
        self.leaves: dict[bool, list[_Leaf]] = {}
        self.outlines: dict[bool, Any] = {}
        self.dtypes: list[Any] | None = None

    def result(self) -> Any:
        """Return the result of `tf.cond`, in the structure that the branches have in common."""
        run = self._select if _SELECTED.inside or stack.is_vectorized() else self._run
        try:
            tensors = run()
        except _Again:
            tensors = run()
        following = iter(tensors)
        leaves = [next(following) if leaf.array else leaf.value for leaf in self.leaves[True]]
        return put_together(common_outline(self.outlines[True], self.outlines[False]), leaves)

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
            chosen.append(traced._call_flat([], guarded))  # noqa: SLF001  (a call gives no captured inputs)
        return [tf.where(self.pred, one, other) for one, other in zip(*map(tf.nest.flatten, chosen), strict=True)]

    def _branch(self, *, taken: bool) -> list[Any]:
        with staging.branch(self.question, taken):
            found, self.outlines[taken] = take_apart(self.functions[taken](*self.operands))
        found = [leaf.read_value() if isinstance(leaf, tf.Variable) else leaf for leaf in found]
        self.leaves[taken] = [_leaf(one) for one in found]
        if not taken:
            self._compare()
        dtypes = self.dtypes or [leaf.dtype for leaf in self.leaves[taken]]
        return [
            tf.identity(one) if isinstance(one, tf.Tensor) else tf.constant(one, dtype)
            for one, leaf, dtype in zip(found, self.leaves[taken], dtypes, strict=True)
            if leaf.array
        ]

    def _compare(self) -> None:
        """Refuse branches that differ; the dtypes of numbers are known once both have been traced."""
        one, other = self.leaves[True], self.leaves[False]
        if common_outline(self.outlines[True], self.outlines[False]) is None or not all(map(_agree, one, other)):
            of_true, of_false = (
                describe(self.outlines[taken], list(map(str, self.leaves[taken]))) for taken in (True, False)
            )
            msg = (
                "the branches of a staged cond must return equal structures, shapes and dtypes: true_fun returned "
                f"{of_true}, false_fun {of_false}. Make them equal (broadcast, cast, or return zeros of the same shape)"
            )
            raise BranchMismatchError(msg)
        if self.dtypes is None:
            self.dtypes = list(map(_common_dtype, one, other))
            if self.dtypes != [leaf.dtype for leaf in one]:
                raise _Again


def _guarded(mask: Any, captured: Any) -> Any:
    """Return what a branch captures, as a constant where the branch is not taken: so its NaN reaches no gradient."""
    if not (captured.dtype.is_floating or captured.dtype.is_complex):
        return captured
    return tf.where(mask, captured, tf.stop_gradient(captured))


def _leaf(value: Any) -> _Leaf:
    if isinstance(value, NUMBERS):
        return _Leaf(array=True, number=value, dtype=tf.constant(value).dtype, shape=(), value=None)
    if isinstance(value, (np.ndarray, np.generic)):
        return _Leaf(array=True, number=None, dtype=tf.as_dtype(value.dtype), shape=value.shape, value=None)
    if isinstance(value, tf.Tensor):
        shape = None if value.shape.rank is None else tuple(value.shape)
        return _Leaf(array=True, number=None, dtype=value.dtype, shape=shape, value=None)
    return _Leaf(array=False, number=None, dtype=None, shape=None, value=value)


def _common_dtype(one: _Leaf, other: _Leaf) -> Any:
    if one.number is not None and other.number is not None:
        return max(one.dtype, other.dtype, key=[tf.bool, tf.int32, tf.float32, tf.complex128].index)
    return one.dtype if one.number is None else other.dtype


def _agree(one: _Leaf, other: _Leaf) -> bool:
    if not one.array or not other.array:
        return one.array == other.array and same_constant(one.value, other.value)
    if None not in (one.shape, other.shape) and one.shape != other.shape:
        return False
    if one.number is not None and other.number is not None:
        return isinstance(one.number, bool) == isinstance(other.number, bool)
    if one.number is not None or other.number is not None:
        number, array = (one, other) if one.number is not None else (other, one)
        return _holds(array.dtype, number.number)
    return one.dtype == other.dtype


def _holds(dtype: Any, number: Any) -> bool:
    """Return whether a dtype can hold a Python number: an integer one no fractions."""
    if isinstance(number, bool):
        return True
    if isinstance(number, int):
        return dtype != tf.bool
    return dtype.is_complex or (isinstance(number, float) and dtype.is_floating)
