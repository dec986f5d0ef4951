"""The result of a differentiated function: a scalar, or a value of any structure, and optionally auxiliary output."""

from __future__ import annotations

from adprotocol._dispatch.binding import ARRAY, CONSTANT, always_true
from adprotocol._dispatch.dtype import kind_of_dtype
from adprotocol._dispatch.shape import shape_of
from adprotocol._dispatch.table import BINDINGS, lookup, plugin_binding
from adprotocol._hooks.label import NonDifferentiable
from adprotocol._rules.check import Collector
from adprotocol._rules.outline import ONE_ARRAY, outlined
from adprotocol._trees.traversal import tree_flatten, tree_leaves
from adprotocol._trees.treespec import labelled_leaves
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import ADProtocolError, ArgumentError, MixedFrameworksError, OutputError
from adprotocol.messages import add_note, kind_of, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adprotocol._dispatch.binding import Binding
    from adprotocol._gradients.call import ArrayCall, Call
    from adprotocol._rules.outline import Outline
    from adprotocol._trees.treespec import Treespec


def run(call: ArrayCall | Call, tracked: list[Any], *, has_aux: bool, once: bool) -> Any:
    """Run the differentiated function of a call; return its value, or the pair of that and auxiliary output.

    With `once` the value is a scalar.
    """
    try:
        result = call.run(tracked)
    except (TypeError, RuntimeError) as error:
        if not isinstance(error, ADProtocolError) and all(lookup(type(leaf)).framework is None for leaf in call.leaves):
            note = (
                f"{call.binding.framework} differentiates these NumPy arrays and numbers; if the function computes "
                "with another framework, give it arrays of that, or name it by backend="
            )
            add_note(error, note)
        raise
    if not has_aux:
        return _scalar(result, call.binding) if once else result
    if not isinstance(result, tuple) or len(result) != 2:  # noqa: PLR2004  (value and aux)
        msg = f"has_aux=True, but the function returned {kind_of(result)}; return a pair of the value and the rest"
        raise OutputError(msg)
    return (_scalar(result[0], call.binding), result[1]) if once else result


def _scalar(value: Any, binding: Binding) -> Any:
    """Return the value of a function to differentiate with respect to its scalar, without a label."""
    if isinstance(value, NonDifferentiable):
        value = value.value
    own = _check_framework(value, binding)
    # A tracer without a dtype is around a Python number. Where no value is ever hidden, what is in a box is at hand,
    # while shape and dtype of autograd's box take 3 µs.
    is_boxed = own.framework is not None and (own.is_concrete is always_true or not hasattr(value, "dtype"))
    check_scalar(value, own.non_differentiable(value) if is_boxed else value)
    return value


def _check_framework(leaf: Any, binding: Binding) -> Binding:
    own = lookup(type(leaf))
    if own.framework not in (None, binding.framework):
        raise MixedFrameworksError(
            f"the function returned a value of {own.framework}, but its arguments are of {binding.framework}, so the "
            f"derivative is lost; compute with one framework, or name it: backend={own.framework!r}"
        )
    return own


def taken_apart(returned: Any, binding: Binding, *, has_aux: bool) -> tuple[list[Any], Outline]:
    """Return the arrays in what a function returned, the outputs first, and its outline.

    The outputs are the inexact arrays of the value, which may be any structure; the rest is constant.
    """
    value = returned[0] if has_aux else returned
    # Such a number is a constant, or was cut off from what is tracked: the plugin may know.
    is_number = type(value) in (float, complex)
    if not has_aux:
        own = _check_framework(value, binding)
        if is_number or (own.kind in (ARRAY, CONSTANT) and _is_output(value, own)):
            return [value], ONE_ARRAY
    leaves, spec = tree_flatten(value, labels=True)
    outputs = []
    for i, (leaf, labelled) in enumerate(zip(leaves, labelled_leaves(spec), strict=True)):
        own = _check_framework(leaf, binding)
        if not labelled and (is_number or _is_output(leaf, own)):
            outputs.append(i)
    if not outputs:
        raise OutputError(
            f"the differentiated function returned {kind_of(value)} without an array that can carry a derivative; "
            "return arrays of floating-point or complex dtype, alone or in a structure"
        )
    if has_aux:
        beside, aux_spec = tree_flatten(returned[1], labels=True, elements=True)
        leaves, spec = [*leaves, *beside], (tuple, None, (0, 1), (spec, aux_spec))
    may_be_tracked = plugin_binding(str(binding.framework))
    return outlined(leaves, spec, outputs, lambda leaf: lookup(type(leaf)) is may_be_tracked, is_pair=has_aux)


def _is_output(leaf: Any, own: Binding) -> bool:
    # A Python number is a constant, and so is the array of a library without AD.
    return type(leaf) not in (float, complex) and own is not BINDINGS.WITHOUT_AD and own.trainable(leaf) is not None


class _Given(Collector):
    """Take apart a cotangent or a tangent that a caller gave."""

    did, do = "was given", "give"
    error = ArgumentError

    def opened(self, entry: Any) -> Any:
        return entry

    def unneeded(self, entry: Any, where: str) -> None:
        if any(not (leaf is None or isinstance(leaf, NonDifferentiable)) for leaf in tree_leaves((entry,))):
            raise ArgumentError(
                f"{self.words[0]} was given {kind_of(entry)} as {self.words[1]} {where}, where there is no derivative; "
                "give None there"
            )


def given_entries(given: Any, treespec: Treespec, likes: Sequence[Any], words: tuple[str, str, str]) -> list[Any]:
    """Return what was given for each leaf that may carry a derivative, of which `likes` has one; None for zero.

    `words` say who was given it, as what, and of what.
    """
    who, what, place = words
    collector = _Given(likes, (who, what))
    if treespec is None and likes[0] is not None:
        return [collector.checked(given, likes[0], place)]
    collector.add(given, treespec, place)
    return [entry for entry, like in zip(collector.entries, likes, strict=True) if like is not None]


def check_scalar(value: Any, raw: Any) -> None:
    """Refuse a result that is not a real floating-point scalar; `raw` is the array or number in a tracer."""
    if isinstance(raw, float):
        return
    shape, dtype = shape_of(raw), getattr(raw, "dtype", None)
    kind, is_array = kind_of_dtype(dtype), dtype is not None or lookup(type(raw)).kind is ARRAY
    # Of a dtype whose name says nothing, or without one, the plugin knows whether it has a derivative.
    if shape == () and (kind == "float" or (kind == "" and is_array and lookup(type(raw)).trainable(raw) is not None)):
        return
    if shape is None or not is_array:
        given = f"{shown(raw)}, {kind_of(raw)}" if isinstance(raw, (int, str, type(None))) else kind_of(raw)
        remedy = ", or with has_aux=True a pair of such a scalar and anything else"
    else:
        given = f"{kind_of(value)} of shape {tuple(shape)} and dtype {dtype}"
        remedy = ": take the real part or abs()" if kind == "complex" else ": compute it in floating point"
        remedy = remedy if shape == () else ": reduce it to a scalar, with sum() or mean()"
    raise OutputError(
        f"the differentiated function returned {given}; it must return a real floating-point scalar of shape (){remedy}"
    )
