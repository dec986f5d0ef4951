"""The arguments of a call without their arrays, and what the function returned without its arrays."""

from __future__ import annotations

import itertools
import sys

from adprotocol._dispatch.binding import ARRAY, CONSTANT, NUMPY, PLAIN
from adprotocol._dispatch.dtype import is_inexact
from adprotocol._dispatch.table import lookup
from adprotocol._hooks.label import NonDifferentiable
from adprotocol._trees.treespec import build, count_leaves
from adprotocol._typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from adprotocol._trees.treespec import Treespec


def without_labels(treespec: Treespec, leaves: Iterator[Any]) -> tuple[Treespec, Iterator[Any]]:
    """Return a structure in which a label is a leaf, and its leaves, None for those labels."""
    if treespec is None:
        return None, iter((next(leaves),))
    if treespec[0] is NonDifferentiable:
        for _ in range(count_leaves(treespec)):
            next(leaves)
        return None, iter((None,))
    children = [without_labels(child, leaves) for child in treespec[3]]
    spec = (*treespec[:3], tuple([child for child, _ in children]))
    return spec, itertools.chain.from_iterable(part for _, part in children)


def labelled_leaves(treespec: Treespec, *, within: bool = False) -> list[bool]:
    """Tell for each leaf of a structure whether it is in a label."""
    if treespec is None:
        return [within]
    inside = within or treespec[0] is NonDifferentiable
    return [labelled for child in treespec[3] for labelled in labelled_leaves(child, within=inside)]


def is_array(leaf: Any) -> bool:
    """Return whether a leaf is an array of a framework."""
    kind = lookup(type(leaf)).kind
    return kind is ARRAY or kind is CONSTANT


class Arguments:
    """The arguments of a call, of which the arrays are given anew.

    `treespec` is that of the pair of positional and keyword arguments, or None if there are positional ones alone and
    all are leaves, as in most calls.
    """

    __slots__ = ("_fixed", "_leaves", "_places", "_treespec", "are_arrays", "specs")

    def __init__(self, leaves: Sequence[Any], treespec: Treespec = None) -> None:
        self._treespec = treespec
        self._leaves = list(leaves)
        self._places = [i for i, leaf in enumerate(leaves) if is_array(leaf)]
        for place in self._places:
            self._leaves[place] = None
        self.are_arrays: bool = treespec is None and len(self._places) == len(self._leaves)
        # The structure of each positional argument.
        self.specs: tuple[Treespec, ...] = (None,) * len(self._leaves) if treespec is None else treespec[3][0][3]
        # Which leaves have no gradient: those in labels and in keyword arguments.
        self._fixed = [labelled for spec in self.specs for labelled in labelled_leaves(spec)]
        self._fixed += [True] * (len(self._leaves) - len(self._fixed))

    def filled(self, arrays: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with these arrays."""
        if self.are_arrays:
            return tuple(arrays), {}
        leaves = self._leaves.copy()
        for place, array in zip(self._places, arrays, strict=True):
            leaves[place] = array
        return (tuple(leaves), {}) if self._treespec is None else build(self._treespec, iter(leaves))

    def of_arrays(self, reads: Callable[[int], bool]) -> tuple[bool, ...]:
        """Tell for each array whether its argument is read, of which a rule has the first in place 2."""
        by_leaf = [reads(place) for place, spec in enumerate(self.specs, 2) for _ in range(count_leaves(spec))]
        return tuple([place >= len(by_leaf) or by_leaf[place] for place in self._places])

    def spread(self, arrays: Sequence[Any], needed: Sequence[bool]) -> list[Any]:
        """Return for each leaf the array whose gradient is needed, or None."""
        leaves: list[Any] = [None] * len(self._leaves)
        for place, array, need in zip(self._places, arrays, needed, strict=True):
            if need and not self._fixed[place]:
                leaves[place] = array
        return leaves

    def gathered(self, gradients: Sequence[Any], likes: Sequence[Any], needed: Sequence[bool]) -> list[Any]:
        """Return the gradient of each needed array, of which `gradients` has those of leaves with a like."""
        entries = iter(gradients)
        by_leaf = [None if like is None else next(entries) for like in likes]
        return [by_leaf[place] for place, need in zip(self._places, needed, strict=True) if need]

    def moved(self, tangents: Sequence[Any]) -> Any:
        """Return the tuple of the tangents of the positional arguments, in their structures."""
        leaves = [_zero(leaf) for leaf in self._leaves]
        for place, tangent in zip(self._places, tangents, strict=True):
            leaves[place] = tangent
        return tuple(leaves) if self._treespec is None else build(*without_labels(self._treespec[3][0], iter(leaves)))


def _zero(leaf: Any) -> Any:
    """Return the tangent of a leaf that is no array of the framework: None, if it never has one."""
    if type(leaf) is float or type(leaf) is complex:
        return type(leaf)()
    dtype = getattr(leaf, "dtype", None)
    if dtype is not None and lookup(type(leaf)).kind in (PLAIN, NUMPY) and is_inexact(dtype):
        return sys.modules["numpy"].zeros_like(leaf)
    return None


class Outline:
    """What a function returned besides its arrays: structure, other values, and residuals of any type.

    It belongs to one call. A plugin keeps it with the results, and gives it back to `DerivativeRule.vjp` and
    `DerivativeRule.jvp`. It holds no array of the framework.

    Attributes:
        count: how many of the results are differentiated: the inexact arrays that the function returned. Those after
            them are arrays of integers, those in labels, and those among the residuals.
        objects: the types of residuals that may hold anything, as text; empty if there are none. Where a program is
            staged or batched, the plugin refuses them, since they may hold its tracers.
    """

    __slots__ = ("_leaves", "_places", "_treespec", "count", "objects", "size", "spec")

    def __init__(  # noqa: PLR0913
        self,
        treespec: Treespec = None,
        leaves: Sequence[Any] = (None,),
        places: Sequence[int] = (0,),
        *,
        count: int = 1,
        objects: str = "",
        has_residuals: bool = False,
    ) -> None:
        self._treespec = treespec
        # The structure of the result alone.
        self.spec: Treespec = treespec[3][0] if has_residuals else treespec
        # The leaves that are no arrays, and for each of the results its place among the leaves.
        self._leaves = leaves
        self._places = places
        self.count: int = count
        self.size: int = len(places)
        self.objects: str = objects

    def __repr__(self) -> str:
        return f"<Outline of {self.count} result(s)>"

    def returned(self, results: Sequence[Any]) -> Any:
        """Return what the function returned, with these arrays."""
        if self is ONE_ARRAY:
            return results[0]
        leaves = list(self._leaves)
        for place, array in zip(self._places, results, strict=True):
            leaves[place] = array
        return build(self._treespec, iter(leaves))

    def spread(self, values: Sequence[Any]) -> list[Any]:
        """Return one entry for each leaf: of `values` where it is differentiated, else None."""
        leaves: list[Any] = [None] * len(self._leaves)
        for place, value in zip(self._places[: self.count], values, strict=False):
            leaves[place] = value
        return leaves

    def cotangent(self, cotangents: Sequence[Any]) -> Any:
        """Return the cotangents in the structure of the result, None for a label."""
        if self is ONE_ARRAY:
            return cotangents[0]
        return build(*without_labels(self.spec, iter(self.spread(cotangents))))


# That of a function that returned one array, as most do.
ONE_ARRAY = Outline()
