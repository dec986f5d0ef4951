"""The result of a differentiated function: a real floating-point scalar, and optionally auxiliary output."""

from __future__ import annotations

from adprotocol._dispatch.binding import NUMPY
from adprotocol._dispatch.dtype import kind_of_dtype
from adprotocol._dispatch.table import lookup
from adprotocol._hooks.label import NonDifferentiable
from adprotocol._hooks.non_differentiable import object_array
from adprotocol._trees.held import holds_objects
from adprotocol._trees.traversal import tree_map
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import MixedFrameworksError, OutputError
from adprotocol.messages import kind_of, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from adprotocol._dispatch.binding import Binding


def split(result: Any, binding: Binding, *, has_aux: bool) -> tuple[Any, Any]:
    """Split the result of the differentiated function into value and auxiliary output."""
    aux = None
    if has_aux:
        if not isinstance(result, tuple) or len(result) != 2:  # noqa: PLR2004  (value and aux)
            msg = (
                f"has_aux=True, but the function returned {kind_of(result)}; it must return a pair of the scalar to "
                "differentiate and anything else"
            )
            raise OutputError(msg)
        result, aux = result
    if isinstance(result, NonDifferentiable):
        result = result.value
    framework = lookup(type(result)).framework
    if framework not in (None, binding.framework):
        msg = (
            f"the differentiated function returned a value of {framework}, but its arguments belong to "
            f"{binding.framework}, so the derivative is lost; compute with one framework, or name it: "
            f"backend={framework!r}"
        )
        raise MixedFrameworksError(msg)
    return result, aux


def map_aux(function: Callable[[Any], Any], aux: Any) -> Any:
    """Return the auxiliary output with `function` applied to every leaf, in labels and object arrays too."""
    if aux is None:
        return None

    def inside(part: Any) -> Any:
        return map_aux(function, part)

    def one(leaf: Any) -> Any:
        if isinstance(leaf, NonDifferentiable):
            return NonDifferentiable(inside(leaf.held))
        is_object_array = lookup(type(leaf)).kind is NUMPY and holds_objects(leaf)
        return object_array(leaf, inside) if is_object_array else function(leaf)

    return tree_map(one, aux)


class _Hole:
    """Mark, the class itself, the place of an array taken out of the auxiliary output."""


def partition_aux(aux: Any, types: type | tuple[type, ...]) -> tuple[Any, list[Any]]:
    """Split the auxiliary output: return it without its leaves of the given types, and those leaves.

    For a framework whose transformation accepts only arrays, or its own
    containers, beside the value.
    """
    leaves: list[Any] = []

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, types):
            return leaf
        leaves.append(leaf)
        return _Hole

    return map_aux(one, aux), leaves


def combine_aux(rest: Any, leaves: Iterable[Any]) -> Any:
    """Put the leaves back that `partition_aux` took out."""
    following = iter(leaves)
    return map_aux(lambda leaf: next(following) if leaf is _Hole else leaf, rest)


def check_output(value: Any, raw: Any) -> None:
    """Refuse a result that is not a real floating-point scalar; `raw` is the array or number in a tracer.

    Its dtype is known by ``name`` or ``as_numpy_dtype``.

    Raises `OutputError` with shape and dtype.
    """
    if isinstance(raw, float):
        return
    shape, dtype = getattr(raw, "shape", None), getattr(raw, "dtype", None)
    if shape is None or dtype is None:
        msg = (
            f"the differentiated function returned {shown(raw)}, {kind_of(raw)}; it must return a real floating-point "
            "scalar of shape (), or with has_aux=True a pair of such a scalar and anything else"
        )
        raise OutputError(msg)
    is_scalar, kind = tuple(shape) == (), kind_of_dtype(dtype)
    # Of a dtype whose name says nothing the framework knows whether it has a derivative.
    if is_scalar and (kind == "float" or (kind == "" and not hasattr(dtype, "kind"))):
        return
    remedy = "compute it in floating point" if is_scalar else "reduce it to a scalar, with sum() or mean()"
    if is_scalar and kind == "complex":
        remedy = "take the real part or abs()"
    msg = (
        f"the differentiated function returned {kind_of(value)} of shape {tuple(shape)} and dtype {dtype}; it must "
        f"return a real floating-point scalar of shape (): {remedy}"
    )
    raise OutputError(msg)
