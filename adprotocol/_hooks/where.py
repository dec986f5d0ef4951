"""`where`: elementwise choice between two functions, of which nothing reaches a derivative where it is not chosen."""

from __future__ import annotations

from adprotocol._dispatch.binding import ARRAY, CONSTANT, NUMPY
from adprotocol._dispatch.dtype import is_inexact, sizes
from adprotocol._dispatch.table import BINDINGS, lookup
from adprotocol._dispatch.wrapper import leave_out
from adprotocol._hooks.branches import NUMBERS, ArrayType, Branches
from adprotocol._hooks.cond import branch_error, cond, predicate
from adprotocol._hooks.result import flatten_result, unflatten_result
from adprotocol._trees.traversal import sole_framework
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Callable

# Where a function is chosen nowhere, its operands have this value: neither a root, a logarithm, a quotient nor an
# inverse of a trigonometric function, or a derivative of one, is infinite there.
_HARMLESS = 0.5


def where(mask: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any) -> Any:
    """Return the elements of ``true_fun(*operands)`` where `mask` is true, else those of ``false_fun(*operands)``.

    >>> import autograd, autograd.numpy as np
    >>> from adprotocol import where
    >>> def safe_sqrt(x):
    ...     return where(x > 0.0, np.sqrt, lambda x: 0.0, x)
    >>> print(autograd.elementwise_grad(safe_sqrt)(np.array([0.0, 4.0])))
    [0.   0.25]

    Both functions run, once, on all elements. Where a function is not chosen, its operands
    are those of the first element for which it is, as constants: so no NaN or infinity
    arises there that would reach the value, a gradient, a tangent or a derivative of higher order, as
    it does from a plain ``where(mask, f(x), g(x))``.

    The functions must be elementwise along the axes of the mask, as under ``vmap``: what they return for
    an element may depend on the operands at this element alone. With a mask of shape ``(n, 1)`` an element
    is a row, and a norm of each row is such a function. What would fail for an element that is not
    chosen, and not just be NaN, fails if a function computes it from what it closes over.

    Args:
        mask: a boolean array of any shape that broadcasts with the operands, or a bool (then
            this is `cond`).
        true_fun: called with the operands.
        false_fun: called with the operands.
        *operands: arrays, containers of them, or anything else, which comes as it is.

    Returns:
        What the functions return, arrays and numbers that broadcast with the mask, or any one structure of these;
        what is not an array must be the same in both.

    Raises:
        PredicateError: the mask is not boolean.
        BranchError: one of the functions cannot be called.
        BranchMismatchError: the structures of their results differ.
        MixedFrameworksError: values of two frameworks.

    After the double ``where`` of JAX's FAQ
    (https://docs.jax.dev/en/latest/faq.html#gradients-contain-nan-where-using-where).
    """
    if not (callable(true_fun) and callable(false_fun)):
        raise branch_error("where", true_fun, false_fun)
    mask, binding = predicate(mask, call="where")
    if not sizes(getattr(mask, "shape", ())):
        return cond(mask, true_fun, false_fun, *operands)
    binding = sole_framework(operands, binding)
    if binding.framework is None:
        binding = BINDINGS.NUMPY
    if binding.array_functions is None:
        msg = f"where needs the hook array_functions of the plugin for {binding.framework}, which has none"
        raise PluginError(msg)
    functions = binding.array_functions()
    try:
        choice = _Choice((), true_fun, false_fun)
        choice.operands = _guarded(functions, mask, operands)
        if_true = choice.run_true()
        choice.operands = _guarded(functions, ~mask, operands)
        if_false = choice.run_false()
        choice.compare()
        chosen = [functions.where(mask, one, other) for one, other in zip(if_true, if_false, strict=True)]
        return choice.result(chosen)
    except BaseException as error:
        leave_out(error)
        raise


class _Choice(Branches):
    """Two functions whose results, arrays of any framework, broadcast."""

    subject = "the functions of where must return equal structures"
    remedy = "Make them equal"

    def type_of(self, leaf: Any) -> Any:
        """Return the type of an array."""
        return ArrayType(leaf.dtype, sizes(leaf.shape)) if _is_array(leaf) else None

    def agree(self, one: Any, other: Any) -> bool:  # noqa: ARG002  (the framework broadcasts and promotes them)
        """Take any two arrays and numbers."""
        return True


def _is_array(leaf: Any) -> bool:
    return lookup(type(leaf)).kind in (ARRAY, CONSTANT, NUMPY) and not isinstance(leaf, NUMBERS)


def _guarded(functions: Any, mask: Any, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the operands; where the mask is false, those of the first element where it is true, as constants."""
    if 0 in mask.shape:
        return operands
    leaves, structure = flatten_result(operands)
    indices, rest = [], functions.argmax(mask)
    for size in reversed(mask.shape[1:]):
        indices.append(rest % size)
        rest = rest // size
    indices.append(rest)
    is_chosen = _at(functions, mask, mask.shape, indices)
    for i, leaf in enumerate(leaves):
        if _is_array(leaf):
            other = _at(functions, lookup(type(leaf)).non_differentiable(leaf), mask.shape, indices)
            if is_inexact(leaf.dtype):
                other = functions.where(is_chosen, other, _HARMLESS)
            leaves[i] = functions.where(mask, leaf, other)
    return unflatten_result(structure, leaves)  # type: ignore[no-any-return]


def _at(functions: Any, array: Any, shape: Any, indices: list[Any]) -> Any:
    """Return an array at one element of a mask of some shape, whose axes remain with one element each."""
    for axis, (size, index) in enumerate(zip(reversed(shape), indices, strict=True), 1):
        if len(array.shape) >= axis and size != 1 and array.shape[-axis] == size:
            array = functions.take(array, index.reshape(1), -axis)
    return array
