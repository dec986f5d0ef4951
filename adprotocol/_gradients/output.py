"""The result of a differentiated function: a scalar, or a value of any structure, and optionally auxiliary output."""

from __future__ import annotations

from adprotocol._dispatch.binding import ARRAY, CONSTANT, NUMPY
from adprotocol._dispatch.dtype import kind_of_dtype
from adprotocol._dispatch.table import BINDINGS, lookup
from adprotocol._hooks.label import NonDifferentiable
from adprotocol._hooks.non_differentiable import object_array
from adprotocol._rules.check import Collector
from adprotocol._trees.held import holds_objects
from adprotocol._trees.traversal import tree_flatten, tree_leaves, tree_map
from adprotocol._trees.treespec import build, build_unlabelled, labelled_leaves
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import ADProtocolError, ArgumentError, MixedFrameworksError, OutputError
from adprotocol.messages import kind_of, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from adprotocol._dispatch.binding import Binding
    from adprotocol._gradients.call import ArrayCall, Call
    from adprotocol._trees.treespec import Treespec


def run(call: ArrayCall | Call, tracked: list[Any], *, has_aux: bool) -> tuple[Any, Any]:
    """Run the differentiated function of a call; return its value and auxiliary output."""
    try:
        result, aux = call.run(tracked), None
    except (TypeError, RuntimeError) as error:
        if not isinstance(error, ADProtocolError) and all(lookup(type(leaf)).framework is None for leaf in call.leaves):
            note = (
                f"{call.binding.framework} differentiates these NumPy arrays and numbers; if the function computes "
                "with another framework, give it arrays of that, or name it by backend="
            )
            try:  # noqa: SIM105  (contextlib is not imported at first use)
                error.add_note(note)
            except AttributeError:  # of a frozen error
                pass
        raise
    if has_aux:
        if not isinstance(result, tuple) or len(result) != 2:  # noqa: PLR2004  (value and aux)
            msg = f"has_aux=True, but the function returned {kind_of(result)}; return a pair of the value and the rest"
            raise OutputError(msg)
        result, aux = result
    return result, aux


def scalar(value: Any, binding: Binding) -> Any:
    """Return the value of a function to differentiate with respect to its scalar, without a label."""
    if isinstance(value, NonDifferentiable):
        value = value.value
    _check_framework(value, binding)
    return value


def _check_framework(leaf: Any, binding: Binding) -> None:
    framework = lookup(type(leaf)).framework
    if framework not in (None, binding.framework):
        msg = (
            f"the differentiated function returned a value of {framework}, but its arguments are of {binding.framework}"
            f", so the derivative is lost; compute with one framework, or name it: backend={framework!r}"
        )
        raise MixedFrameworksError(msg)


class Value:
    """The value of a function, any structure: its inexact arrays are the outputs, the rest is constant."""

    __slots__ = ("leaves", "mask", "treespec")

    def __init__(self, result: Any, binding: Binding) -> None:
        if lookup(type(result)).kind in (ARRAY, CONSTANT):
            self.leaves, self.treespec = [result], None
        else:
            self.leaves, self.treespec = tree_flatten(result, labels=True)
        for leaf in self.leaves:
            _check_framework(leaf, binding)
        self.mask = list(map(_is_output, self.leaves))
        if self.treespec is not None:
            labelled = labelled_leaves(self.treespec)
            self.mask = [taken and not constant for taken, constant in zip(self.mask, labelled, strict=True)]
        elif type(self.leaves[0]) in (float, complex):
            # A constant, or what was cut off from what is tracked: the plugin may know.
            self.mask = [True]
        if True not in self.mask:
            msg = (
                f"the differentiated function returned {kind_of(result)} without an array that can carry a derivative; "
                "return arrays of floating-point or complex dtype, alone or in a structure"
            )
            raise OutputError(msg)

    @property
    def outputs(self) -> list[Any]:
        """Return the arrays of the value that can carry a derivative."""
        if False not in self.mask:
            return self.leaves
        return [leaf for leaf, taken in zip(self.leaves, self.mask, strict=True) if taken]

    def beside(self, aux: Any) -> Any:
        """Return all that the function returned besides the outputs; None for nothing."""
        if aux is None and False not in self.mask:
            return None
        return [None if taken else leaf for leaf, taken in zip(self.leaves, self.mask, strict=True)], aux

    def take(self, outputs: Sequence[Any], beside: Any) -> Any:
        """Take over outputs and rest as they came out of the framework, and return the auxiliary output."""
        rest, aux = (self.leaves, None) if beside is None else beside
        if self.treespec is None:
            self.leaves = [*outputs]
            return aux
        following = iter(outputs)
        self.leaves = [next(following) if taken else leaf for leaf, taken in zip(rest, self.mask, strict=True)]
        return aux

    def whole(self) -> Any:
        """Return the value."""
        return build(self.treespec, iter(self.leaves))

    def only(self, entries: Sequence[Any]) -> Any:
        """Return the structure of the value with an entry for each output, and None in place of the rest."""
        if self.treespec is None:
            return entries[0]
        following = iter(entries)
        return build_unlabelled(self.treespec, [next(following) if taken else None for taken in self.mask])

    def entries(self, cotangent: Any) -> list[Any]:
        """Return the cotangent of each output, None for zero."""
        return given_entries(cotangent, self.treespec, self.leaves, self.mask, ("pull", "cotangent of", "the value"))


def _is_output(leaf: Any) -> bool:
    # A Python number is a constant, and so is the array of a library without AD.
    binding, is_number = lookup(type(leaf)), type(leaf) in (float, complex)
    return not is_number and binding is not BINDINGS.WITHOUT_AD and binding.trainable(leaf) is not None


class _Given(Collector):
    """Take apart a cotangent or a tangent that a caller gave."""

    did, do = "was given", "give"
    error = ArgumentError

    def opened(self, entry: Any) -> Any:
        return entry

    def unneeded(self, entry: Any, where: str) -> None:
        if any(not (leaf is None or isinstance(leaf, NonDifferentiable)) for leaf in tree_leaves((entry,))):
            msg = (
                f"{self.words[0]} was given {kind_of(entry)} as {self.words[1]} {where}, where there is no derivative; "
                "give None there"
            )
            raise ArgumentError(msg)


def given_entries(
    given: Any, treespec: Treespec, leaves: Sequence[Any], able: Sequence[Any], words: tuple[str, str, str]
) -> list[Any]:
    """Return what was given for each leaf that is able to carry a derivative, None for zero.

    `words` say who was given it, as what, and of what.
    """
    who, what, place = words
    if treespec is None and able[0]:
        return [_Given((), (who, what)).checked(given, leaves[0], place)]
    likes = [leaf if flag else None for leaf, flag in zip(leaves, able, strict=True)]
    collector = _Given(likes, (who, what))
    collector.add(given, treespec, place)
    return [entry for entry, flag in zip(collector.entries, able, strict=True) if flag]


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


class Hole:
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
        return Hole

    return map_aux(one, aux), leaves


def combine_aux(rest: Any, leaves: Iterable[Any]) -> Any:
    """Put the leaves back that `partition_aux` took out."""
    following = iter(leaves)
    return map_aux(lambda leaf: next(following) if leaf is Hole else leaf, rest)


def check_output(value: Any, raw: Any) -> None:
    """Refuse a result that is not a real floating-point scalar; `raw` is the array or number in a tracer.

    Its dtype is known by ``name`` or ``as_numpy_dtype``.

    Raises `OutputError` with shape and dtype.
    """
    if isinstance(raw, float):
        return
    shape, dtype = getattr(raw, "shape", None), getattr(raw, "dtype", None)
    if shape is None or dtype is None:
        given = f"{shown(raw)}, {kind_of(raw)}" if isinstance(raw, (int, str, type(None))) else kind_of(raw)
        msg = (
            f"the differentiated function returned {given}; it must return a real floating-point scalar of shape (), "
            "or with has_aux=True a pair of such a scalar and anything else"
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
