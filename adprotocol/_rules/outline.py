"""Outlines: the arguments of a call, and what its function returned, without their arrays."""

from __future__ import annotations

import sys

from adprotocol._dispatch.binding import ARRAY, CONSTANT, NUMPY, PLAIN
from adprotocol._dispatch.dtype import is_inexact
from adprotocol._dispatch.table import BINDINGS, lookup
from adprotocol._trees.treespec import build, build_unlabelled, children_of, count_leaves
from adprotocol._typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol._trees.treespec import Treespec


def is_array(leaf: Any) -> bool:
    """Return whether a leaf is an array of a framework."""
    kind = lookup(type(leaf)).kind
    return kind is ARRAY or kind is CONSTANT


class Outline:
    """Hold a value without its arrays: its structure, its other leaves, and the places of the arrays among these.

    What a function returned besides its arrays belongs to one call. A plugin keeps it with the results, and gives it
    back to `DerivativeRule.vjp` and `DerivativeRule.jvp`. It holds no array of the framework.

    Attributes:
        count: how many of the results are differentiated: the inexact arrays that the function returned. Those after
            them are arrays of integers, those in labels, and those among the residuals.
        size: how many arrays there are.
        objects: the types of residuals that may hold anything, as text; empty if there are none. Where a program is
            staged or batched, the plugin refuses them, since they may hold its tracers.
    """

    __slots__ = ("_places", "count", "leaves", "objects", "size", "spec", "treespec")

    def __init__(  # noqa: PLR0913
        self,
        treespec: Treespec = None,
        leaves: Sequence[Any] = (None,),
        places: Sequence[int] = (0,),
        *,
        count: int = 1,
        objects: str = "",
        is_pair: bool = False,
    ) -> None:
        self.treespec: Treespec = treespec
        # The structure of the result, without residuals or auxiliary output.
        self.spec: Treespec = children_of(treespec)[0] if is_pair else treespec
        self._places = places
        self.leaves: list[Any] = list(leaves)
        for place in places:
            self.leaves[place] = None
        self.count: int = count
        self.size: int = len(places)
        self.objects: str = objects

    def filled(self, arrays: Sequence[Any]) -> Any:
        """Return the value with these arrays."""
        return arrays[0] if self is ONE_ARRAY else build(self.treespec, iter(self.by_leaf(arrays, self.leaves)))

    def signature(self, arrays: Sequence[Any]) -> tuple[Any, ...] | None:
        """Return what the value is but for the elements of these arrays; None if it holds an object."""
        kinds = tuple(map(type, self.leaves))
        types = [(tuple(array.shape), array.dtype) for array in arrays]
        key = self.treespec, kinds, tuple(self.leaves), tuple(self._places), *types
        return key if _PLAIN.issuperset(kinds) else None

    def by_leaf(self, values: Sequence[Any], others: Sequence[Any]) -> list[Any]:
        """Return `others`, one for each leaf, with the next of `values` in each place of an array."""
        entries = list(others)
        for place, value in zip(self._places, values, strict=False):
            entries[place] = value
        return entries

    def of_arrays(self, entries: Sequence[Any]) -> list[Any]:
        """Return those of one entry for each leaf that are in the places of arrays."""
        return [entries[place] for place in self._places]

    def of_outputs(self, values: Sequence[Any]) -> list[Any]:
        """Return an entry for each leaf: of `values` for one that is differentiated, else None."""
        outputs = values[: self.count]
        return list(outputs) if self is ONE_ARRAY else self.by_leaf(outputs, [None] * len(self.leaves))

    def cotangent(self, cotangents: Sequence[Any]) -> Any:
        """Return the cotangents in the structure of the result, None for a label."""
        return cotangents[0] if self is ONE_ARRAY else build_unlabelled(self.spec, self.of_outputs(cotangents))


_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})

# That of a function that returned one array, as most do.
ONE_ARRAY = Outline()


def outlined(
    leaves: Sequence[Any],
    treespec: Treespec,
    outputs: Sequence[int] = (),
    is_other: Callable[[Any], bool] = is_array,
    *,
    is_pair: bool = False,
) -> tuple[list[Any], Outline]:
    """Return the arrays of a framework in a value, first those at `outputs`, and its outline."""
    taken = set(outputs)
    places = [*outputs, *[i for i, leaf in enumerate(leaves) if i not in taken and is_other(leaf)]]
    return [leaves[i] for i in places], Outline(treespec, leaves, places, count=len(outputs), is_pair=is_pair)


class Arguments(Outline):
    """The outline of the arguments of a call: its structure is a pair, those by position and those by keyword.

    Its treespec is None in most calls, where there are arguments by position alone and all are leaves.
    """

    __slots__ = ("are_arrays", "specs")

    def __init__(self, leaves: Sequence[Any], treespec: Treespec = None) -> None:
        super().__init__(treespec, leaves, [i for i, leaf in enumerate(leaves) if is_array(leaf)])
        self.are_arrays: bool = treespec is None and self.size == len(leaves)
        # The structure of each positional argument.
        self.specs: tuple[Treespec, ...] = (
            (None,) * len(leaves) if treespec is None else children_of(children_of(treespec)[0])
        )

    def filled(self, arrays: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with these arrays."""
        if self.are_arrays:
            return tuple(arrays), {}
        if self.treespec is None:
            return tuple(self.by_leaf(arrays, self.leaves)), {}
        return super().filled(arrays)  # type: ignore[no-any-return]

    def read_by(self, reads: Callable[[int], bool]) -> tuple[bool, ...]:
        """Return for each array whether its argument is read, of which a rule has the first in place 2."""
        by_leaf = [reads(place) for place, spec in enumerate(self.specs, 2) for _ in range(count_leaves(spec))]
        by_leaf += [True] * (len(self.leaves) - len(by_leaf))
        return tuple(self.of_arrays(by_leaf))

    def inputs(self, arrays: Sequence[Any], needed: Sequence[bool]) -> list[Any]:
        """Return for each leaf the array whose gradient is needed, or None."""
        inputs = [array if need else None for array, need in zip(arrays, needed, strict=True)]
        return inputs if self.are_arrays else self.by_leaf(inputs, [None] * len(self.leaves))

    def tangents(self, tangents: Sequence[Any]) -> Any:
        """Return the tuple of the tangents of the positional arguments, in their structures."""
        if self.are_arrays:
            return tuple(tangents)
        leaves = self.by_leaf(tangents, [_zero(leaf) for leaf in self.leaves])
        if self.treespec is None:
            return tuple(leaves)
        return build_unlabelled(children_of(self.treespec)[0], leaves)


def _zero(leaf: Any) -> Any:
    """Return the tangent of a leaf that is not an array of the framework: None, if it never has one."""
    if type(leaf) is float or type(leaf) is complex:
        return type(leaf)()
    dtype = getattr(leaf, "dtype", None)
    if dtype is not None and lookup(type(leaf)).kind in (PLAIN, NUMPY) and is_inexact(dtype):
        return leaf - leaf if lookup(type(leaf)) is BINDINGS.WITHOUT_AD else sys.modules["numpy"].zeros_like(leaf)
    return None
