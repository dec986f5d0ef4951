"""`cond`: a branch that every AD system and compiler understands."""

from __future__ import annotations

from adprotocol._dispatch.binding import ARRAY, CONSTANT, NUMPY, OPAQUE, PLAIN, VIEWED
from adprotocol._dispatch.dtype import dtype_name, kind_of_dtype
from adprotocol._dispatch.shape import sizes
from adprotocol._dispatch.table import BINDINGS, is_array, lookup
from adprotocol._dispatch.wrapper import leave_out
from adprotocol._hooks import branch_check
from adprotocol._hooks.label import NonDifferentiable
from adprotocol._trees.held import check_opaque, plain_array
from adprotocol._trees.traversal import sole_framework
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import BranchError, PredicateError, PredicateShapeError
from adprotocol.messages import kind_of, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol._dispatch.binding import Binding


def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any) -> Any:
    """Return ``true_fun(*operands)`` if `pred` is true, else ``false_fun(*operands)``.

    >>> import adprotocol
    >>> adprotocol.cond(2.0 > 1.0, lambda x: x + 1.0, lambda x: x - 1.0, 5.0)
    6.0

    A concrete predicate runs only the chosen branch, once; a Python bool costs no
    device synchronisation. A staged or batched predicate (under ``jax.jit``,
    ``torch.compile``, vmap) becomes the framework's own control flow, which needs
    branches of equal structure, shapes and dtypes. Derivatives are those of the
    chosen branch: an operand that it does not use has a zero gradient, and a NaN
    in the other branch never reaches a gradient.

    Args:
        pred: a Python or NumPy bool, or a boolean scalar (shape ``()``) of the
            framework, concrete or staged, such as the answer of
            `within_gradient`.
        true_fun: called with the operands where `pred` is true.
        false_fun: called with the operands where it is false.
        *operands: arrays, containers of them, or anything else.

    Returns:
        The result of the chosen branch. It may hold arrays, Python scalars and
        None, in any structure. Staged or batched branches must return equal values
        for leaves that are not arrays.

    Raises:
        PredicateError: the predicate is not boolean (`PredicateShapeError`: not
            a scalar).
        BranchError: a branch is not callable.
        BranchMismatchError: staged or batched branches return different structures,
            shapes or dtypes.
        MixedFrameworksError: values of two frameworks.

    Source: ``jax.lax.cond`` and ``torch.cond``.
    """
    if not (callable(true_fun) and callable(false_fun)):
        raise branch_error("cond", true_fun, false_fun)
    binding = BINDINGS.PLAIN
    if type(pred) is not bool:
        pred, binding = predicate(pred)
    binding = sole_framework(operands, binding)
    try:
        return binding.cond(pred, true_fun, false_fun, operands)
    except BaseException as error:
        if not operands and isinstance(error, TypeError) and "missing" in str(error):
            error.add_note("cond was given no operands for its branches: write cond(pred, true_fun, false_fun, x)")
        leave_out(error)
        raise


# Decided once: without the check a call costs nothing for it.
if branch_check.is_on():
    cond = branch_check.checking(cond)


def branch_error(call: str, true_fun: Any, false_fun: Any) -> BranchError:
    """Return the error for branches of which one cannot be called."""
    name, fun = ("false_fun", false_fun) if callable(true_fun) else ("true_fun", true_fun)
    remedy = "wrap a value as `lambda *_: value`"
    if call == "where":
        remedy = "to choose between arrays write `where(mask, lambda a, b: a, lambda a, b: b, a, b)`"
    return BranchError(
        f"{call} was given {kind_of(fun)} as {name}; both branches must be functions of the operands: {remedy}"
    )


def predicate(pred: Any, call: str = "cond") -> tuple[Any, Binding]:
    """Return the predicate and its binding; a bool of Python or NumPy becomes a Python bool.

    That of `cond` is a scalar; the mask of `where` may have any shape.
    """
    if isinstance(pred, NonDifferentiable):
        pred = pred.value
    binding = lookup(type(pred))
    if isinstance(pred, bool):
        return bool(pred), binding
    # NumPy's bool_ and arrays are recognised by their attributes, as those of frameworks: NumPy is not imported here.
    given, dtype = pred, getattr(pred, "dtype", None)
    if dtype is None and binding.kind in (ARRAY, VIEWED, CONSTANT):
        return pred, binding  # for the plugin to look into
    if dtype is None and binding is BINDINGS.WITHOUT_AD:  # a table, whose columns have dtypes
        dtype = (pred := plain_array(pred)).dtype
    elif binding.kind is OPAQUE and call == "cond" and own_where("", pred):
        check_opaque(pred)
        binding = BINDINGS.NUMPY
    if binding.kind not in (PLAIN, NUMPY, ARRAY, VIEWED, CONSTANT) or kind_of_dtype(dtype) != "bool":
        raise _predicate_error(call, given, dtype)
    shape = sizes(pred)
    if shape and call == "cond":
        raise PredicateShapeError(
            f"cond was given a boolean {type(given).__qualname__} of shape {shape} as predicate; it takes a scalar, "
            "shape (): reduce with any() or all(), vmap cond over it, or choose elementwise with adprotocol.where"
        )
    return (bool(pred) if binding.framework is None and not shape else pred), binding


def own_where(otherwise: str, *values: Any) -> str:
    """Return the remedy of `where` for wrappers around arrays, whose labels or masks only their library knows."""
    wraps = any(lookup(type(value)).kind is OPAQUE and is_array(type(value)) for value in values)
    return "Choose by the `where` of the array's own library, or pass the arrays in it" if wraps else otherwise


def _predicate_error(call: str, pred: Any, dtype: Any) -> PredicateError:
    """Return the error for a predicate that is not boolean."""
    given = kind_of(pred) + (f" of dtype {dtype_name(dtype)}" if dtype is not None else f" ({shown(pred)})")
    origin = ""
    if type(pred) is int and pred in (-1, -2):
        origin = ", which is what `~` makes of a Python bool (swap the branches instead)"
    remedy = own_where("Compare (`x > 0`), or reduce with any() or all()", *[pred] * (call == "where"))
    return PredicateError(
        f"{call} was given {given} as predicate{origin}; it takes a Python or NumPy bool, or a boolean "
        f"{'scalar' if call == 'cond' else 'array'} of the framework. {remedy}"
    )
