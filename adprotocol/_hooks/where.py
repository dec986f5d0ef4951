"""`where`: elementwise choice between two functions; nothing of the one not chosen reaches a derivative."""

from __future__ import annotations

import sys

from adprotocol._dispatch.binding import ARRAY, CONSTANT, NUMPY, OBJECT, VIEWED
from adprotocol._dispatch.dtype import dtype_name, holds, is_inexact
from adprotocol._dispatch.shape import is_known, shape_of, sizes
from adprotocol._dispatch.table import BINDINGS, lookup
from adprotocol._dispatch.wrapper import leave_out
from adprotocol._hooks import branch_check
from adprotocol._hooks.branches import NUMBERS, ArrayType, Branches
from adprotocol._hooks.cond import branch_error, cond, own_where, predicate
from adprotocol._hooks.non_differentiable import non_differentiable
from adprotocol._trees.held import expand, holds_objects, search
from adprotocol._trees.traversal import sole_framework, tree_flatten
from adprotocol._trees.treespec import build
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import NoValuesError

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol._dispatch.binding import Binding
    from adprotocol._trees.treespec import Treespec

# Where a function is chosen nowhere, its operands have this value: neither a root, a logarithm, a quotient nor an
# inverse of a trigonometric function, or a derivative of one, is infinite there.
_HARMLESS = 0.5
# The dtypes of linear algebra.
_OF_MATRICES = ("float32", "float64", "complex64", "complex128")


def where(mask: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any) -> Any:
    """Return the elements of ``true_fun(*operands)`` where `mask` is true, else those of ``false_fun(*operands)``.

    >>> import autograd, autograd.numpy as np
    >>> from adprotocol import where
    >>> def safe_sqrt(x):
    ...     return where(x > 0.0, np.sqrt, lambda x: 0.0, x)
    >>> print(autograd.elementwise_grad(safe_sqrt)(np.array([0.0, 4.0])))
    [0.   0.25]

    Both functions run once, on all elements. Elements that do not take a function get the operands
    of the first element that does, as constants. So no NaN or infinity of that function reaches the
    value, a gradient, a tangent or a derivative of higher order, as it does from a plain
    ``where(mask, f(x), g(x))``. Only operands are guarded, not closed-over arrays.

    The functions must be elementwise along the axes of the mask, as under ``vmap``: the result for an
    element may depend only on the operands at this element. With a mask of shape ``(n, 1)`` an element
    is a row, and a norm of each row is such a function. Errors (not NaN) from closed-over values are
    still raised, for example an index out of range.

    Args:
        mask: a boolean array of any shape that broadcasts with the operands, or a bool (then
            this is `cond`).
        true_fun: called with the operands.
        false_fun: called with the operands.
        *operands: arrays, or containers of them; anything else is passed unchanged.

    Returns:
        The chosen elements of arrays and numbers that broadcast with the mask, or of structures of these.
        Leaves that are not arrays must be equal in both results.

    Raises:
        PredicateError: the mask is not boolean.
        BranchError: one of the functions is not callable.
        BranchMismatchError: the structures of their results differ.
        MixedFrameworksError: values of two frameworks.

    Source: the double ``where`` of JAX's FAQ
    (https://docs.jax.dev/en/latest/faq.html#gradients-contain-nan-where-using-where).
    """
    cls, ran = type(mask), None
    if operands and lookup(cls) is BINDINGS.NUMPY and mask.ndim and mask.dtype.kind == "b":
        for operand in operands:
            if type(operand) is not cls:
                break
        else:  # at the price of NumPy's where by hand
            ran = _run(true_fun, false_fun, operands)
            if ran and type(ran[0]) in (cls, float) and type(ran[1]) in (cls, float):
                chosen = sys.modules["numpy"].where(mask, *ran)
                if not chosen.dtype.hasobject:
                    return chosen
    try:
        return choose(mask, true_fun, false_fun, operands, ran)
    except BaseException as error:
        leave_out(error)
        raise


def choose(mask: Any, true_fun: Any, false_fun: Any, operands: tuple[Any, ...], ran: Any = None) -> Any:
    """Return `where`; `ran` is what the functions returned for the operands as they are, empty if they are guarded."""
    if not (callable(true_fun) and callable(false_fun)):
        raise branch_error("where", true_fun, false_fun)
    if not operands:
        raise NoValuesError(
            "where() was called without operands; what its functions close over is guarded nowhere, so that a NaN of "
            "the one not chosen would reach gradients: pass the arrays that they compute with, "
            "where(x > 0, xp.sqrt, lambda x: 0.0 * x, x)"
        )
    mask, binding = predicate(mask, call="where")
    if not sizes(mask) and (binding.kind is not ARRAY or not hasattr(mask, "dtype")):
        return cond(mask, true_fun, false_fun, *operands)
    binding = sole_framework(operands, binding)
    leaves, structure = tree_flatten(operands, labels=True)
    if ran is None:
        ran = () if any(map(_may_carry, (mask, *leaves))) else _run(true_fun, false_fun, operands)
    choice = _Choice((), true_fun, false_fun)
    pair: Any = choice.flattened(*ran) if ran else ([], [])
    # Of NumPy's arrays functions may make those of a framework.
    binding = sole_framework(pair[0] + pair[1], binding)
    functions = _functions(binding, (mask, *leaves))
    if not ran or any(map(_may_carry, pair[0] + pair[1])):
        # MyGrad's tensors have no operator for it.
        others = ~mask if hasattr(type(mask), "__invert__") else mask == False  # noqa: E712
        choice.functions, choice.binding, pair = functions, binding, []
        for taken, chosen in ((True, mask), (False, others)):
            first = _first(functions, chosen)
            choice.operands = _guarded(functions, chosen, leaves, structure, first)
            pair.append(choice.run_if(first[1], taken=taken))
    # What does not match is an error before the first array is chosen.
    return choice.result(functions.where(mask, one, other) for one, other in zip(*pair, strict=True))


def _run(true_fun: Any, false_fun: Any, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what both functions return for the operands as they are; nothing if that fails."""
    try:
        with sys.modules["numpy"].errstate(all="ignore"):
            return true_fun(*operands), false_fun(*operands)
    except Exception:  # noqa: BLE001  (that of an element which is not chosen, or it is raised again)
        return ()


class _Choice(Branches):
    """Two functions whose results, arrays of any framework, broadcast."""

    subject = "the functions of where must return equal structures"
    functions: Any
    binding: Any

    @property
    def remedy(self) -> str:
        """Say what to do where the functions do not match."""
        return own_where("Make them equal", *[leaf for _, leaf in (*self.of_true[1], *self.of_false[1])])

    def type_of(self, leaf: Any) -> Any:
        """Return the type of an array."""
        return ArrayType(getattr(leaf, "dtype", None), sizes(leaf)) if _is_array(leaf) else None

    def run_if(self, is_chosen: Any, *, taken: bool) -> list[Any]:
        """Run a function, of which no derivative reaches anything if it is chosen nowhere."""
        fun, run = (self.true_fun, self.run_true) if taken else (self.false_fun, self.run_false)
        known = is_chosen is True or getattr(self.functions, "known_bool", lambda _: None)(is_chosen)
        held = [] if known else arrays_held(fun)
        if known or (known is None and not held):
            return run()
        for _ in shape_of(is_chosen) or ():
            is_chosen = is_chosen[0]
        pred = predicate(is_chosen, call="where")[0] if known is None else known
        if known is None and hasattr(self.functions, "constant_unless"):
            return self.functions.constant_unless(pred, run, held)  # type: ignore[no-any-return]
        count = len(self.operands)

        def run_on(*operands: Any) -> list[Any]:
            self.operands = operands[:count]
            return run()

        # What it holds is an operand, so that the result is not without a gradient by it.
        operands = (*self.operands, *held)
        return self.binding.cond(pred, run_on, non_differentiable(run_on), operands)  # type: ignore[no-any-return]

    def agree(self, one: Any, other: Any) -> bool:  # noqa: ARG002  (the framework broadcasts and promotes them)
        """Take any two arrays and numbers."""
        return True


def arrays_held(fun: Any) -> list[Any]:
    """Return the arrays that a function carries with it, those of modules too."""
    return expand([item for item in search(fun) if lookup(type(item)).kind in (ARRAY, VIEWED, OBJECT)])


def _is_array(leaf: Any) -> bool:
    return lookup(type(leaf)).kind in (ARRAY, CONSTANT, NUMPY) and not isinstance(leaf, NUMBERS)


def _may_carry(leaf: Any) -> bool:
    """Return whether an array may carry a derivative, here or in a program that is staged."""
    kind = lookup(type(leaf)).kind
    return kind is ARRAY or kind is VIEWED or (kind is NUMPY and holds_objects(leaf))


def _functions(binding: Binding, values: tuple[Any, ...]) -> Any:
    """Return the functions of the framework of the values, or else of the library of their arrays."""
    if binding.framework is None:
        for value in values:
            if lookup(type(value)) is BINDINGS.WITHOUT_AD and hasattr(value, "__array_namespace__"):
                return _Standard(value.__array_namespace__())
        binding = BINDINGS.NUMPY
    return binding.functions("where", "where")


class _Standard:
    """The functions of a namespace of the array API standard, in which there is no argmax of booleans."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        self.take = lambda array, indices, axis: xp.take(array, indices, axis=axis)
        self.argmax = lambda mask: xp.argmax(xp.astype(xp.reshape(mask, (-1,)), xp.uint8))

    def where(self, mask: Any, one: Any, other: Any) -> Any:
        """Choose between arrays of the library or of NumPy, and numbers, which the standard takes since 2024.12."""
        if isinstance(one, NUMBERS) and isinstance(other, NUMBERS) and type(one) is not type(other):
            common: Any = type(one + other)
            one, other = common(one), common(other)
        return self.xp.where(mask, self._array(one, other, mask), self._array(other, one, mask))

    def _array(self, value: Any, beside: Any, mask: Any) -> Any:
        """Return an array of the library; of a number one of the dtype of the array beside it, if that can hold it."""
        if isinstance(value, NUMBERS):
            follows = not isinstance(beside, NUMBERS) and holds(beside.dtype, value)
            return self.xp.asarray(value, dtype=beside.dtype if follows else None, device=getattr(mask, "device", None))
        return self.xp.asarray(value) if lookup(type(value)) is BINDINGS.NUMPY else value


def _first(functions: Any, mask: Any) -> tuple[list[Any] | None, Any]:
    """Return the indices of the first element where the mask is true, from the last axis, and whether there is one.

    None for a mask without elements.
    """
    shape = shape_of(mask) or ()
    if any(is_known(size, 0) for size in shape):
        return None, True
    indices, rest = [], functions.argmax(mask) if len(shape) > 0 else None
    for size in reversed(shape[1:]):
        indices.append((rest % size)[None])
        rest = rest // size
    indices += [] if rest is None else [rest[None]]
    return indices, _at(functions, mask, shape, indices)


def _guarded(functions: Any, mask: Any, leaves: list[Any], structure: Treespec, first: Any) -> Any:
    """Return the operands; where the mask is false, those of the first element where it is true, as constants."""
    leaves, shape, (indices, is_chosen) = leaves.copy(), shape_of(mask) or (), first
    if indices is not None:
        for i, leaf in enumerate(leaves):
            if _is_array(leaf):
                other = _at(functions, lookup(type(leaf)).non_differentiable(leaf), shape, indices)
                if is_inexact(leaf.dtype):
                    other = functions.where(is_chosen, other, _harmless(leaf, shape))
                leaves[i] = functions.where(mask, leaf, other)
    return build(structure, iter(leaves))


def _at(functions: Any, array: Any, shape: Any, indices: list[Any]) -> Any:
    """Return an array at one element of a mask of some shape, whose axes remain with one element each."""
    for axis, (size, index) in enumerate(zip(reversed(shape), indices, strict=True), 1):
        own = (1, *(shape_of(array) or ()))[-axis:][0]
        if is_known(size) and is_known(own):
            array = functions.take(array, index, -axis) if own == size != 1 else array
        elif not is_known(size, 1):  # the size of the array may be 1
            array = functions.take(array, index % own, -axis)
    return array


def _harmless(leaf: Any, shape: Any) -> Any:
    """Return what an operand is where its function is not chosen; where an element is a matrix, a regular one.

    It is symmetric and positive definite, and its singular values differ, as derivatives of a decomposition need it.
    """
    own = shape_of(leaf) or ()
    is_matrix = len(own) > 1 and all(map(is_known, own[-2:])) and all(is_known(size, 1) for size in shape[-2:])
    if not is_matrix or dtype_name(leaf.dtype) not in _OF_MATRICES:
        return _HARMLESS
    numpy, (rows, columns) = sys.modules["numpy"], own[-2:]
    matrix = 0.25 + numpy.eye(rows, columns) * numpy.linspace(0.5 / columns, 0.5, columns)
    return matrix.astype(dtype_name(leaf.dtype))


# Decided once, as for `cond`.
if branch_check.is_on():
    where = branch_check.checking_where(where, choose)
