"""Which copies of arguments belong to a derivative that is still active.

The graph of an array keeps the copies that a finished derivative made, until it is
evaluated, and MLX's own mark is not to be trusted (see `trace.is_marked`). But while
grad, value_and_grad, vjp or jvp runs a function, MLX holds the copies in a Python
list, which nobody else can see. No list, no derivative.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from adprotocol.errors import UndecidableError
from adprotocol_mlx import trace
from adprotocol_mlx.graph import Graph

if TYPE_CHECKING:
    import types
    from collections.abc import Iterable, Iterator, Sequence

# Arguments seen in MLX's lists, by the number of their copy. As long as one is marked, its derivative is active, and
# the search is spared.
_SEEN: dict[int, weakref.ref[mx.array]] = {}
# One search at a time: a second one would refer to the lists of MLX, too.
_ALONE = threading.RLock()
_DEEPEST = 30
# References to a list that MLX holds, with those of the search; lists with more are not looked into.
_FEW = 6


class _Role(Enum):
    """What a list says about an argument in it; what comes first here counts."""

    # The first argument of grad, which is differentiated unless argnums says otherwise.
    FIRST = auto()
    # Not the first of several arguments of grad, which are copied, too, if they are not differentiated.
    FURTHER = auto()
    # In another list: an argument of vjp or jvp, or what a user holds.
    LISTED = auto()
    # In a tuple: an argument of a second run, or of a rule, or what a user holds.
    PASSED = auto()


def is_active(graph: Graph, copies: set[int], values: Sequence[mx.array]) -> bool:
    """Return whether one of the copies behind some values belongs to an active derivative."""
    applying = trace.is_applying_vjp()  # then everything is marked
    if not applying and any(map(_was_seen, copies)):
        return True
    with _ALONE:
        roles = _find(copies)
    certain = {
        number: array
        for number, (array, role) in roles.items()
        if role is _Role.FIRST or (role is not _Role.FURTHER and not applying and trace.is_marked(array))
    }
    if not applying:
        for number in [number for number, ref in _SEEN.items() if ref() is None]:
            del _SEEN[number]
        _SEEN.update((number, weakref.ref(array)) for number, array in certain.items())
    if not copies.isdisjoint(certain) or (applying and graph.of_checkpoint(copies)):
        return True
    found = {roles[number][1] for number in copies if number in roles}
    if _Role.FURTHER in found:
        raise undecidable("further-arguments")
    if _Role.LISTED in found:
        raise undecidable("after-inner-derivative")
    # The second run of a function whose rule MLX made by itself may have no list. Or it is all over.
    if graph.of_copies(copies) or (not applying and any(map(trace.is_marked, values))):
        raise undecidable("rules-by-default")
    return False


def _was_seen(copy: int) -> bool:
    ref = _SEEN.get(copy)
    array = None if ref is None else ref()
    # The number may be that of another operation by now.
    return array is not None and _numbers([array]) == {0: copy} and trace.is_marked(array)


def _numbers(arrays: Sequence[mx.array]) -> dict[int, int]:
    """Return the number of the copy that each array is, by position; those that are none are left out."""
    named = Graph(arrays).made_by_copy() if arrays else {}
    return {int(name.removeprefix("asked")): number for name, number in named.items()}


def _find(copies: set[int]) -> dict[int, tuple[mx.array, _Role]]:
    """Return the copies in lists of MLX by number, if one of those asked for is among them: the array and its role."""
    inside = [(item, array) for item in _candidates() for array in _arrays(item, 0)]
    distinct = list({id(array): array for _, array in inside}.values())
    if copies.isdisjoint(_numbers(distinct).values()):
        return {}
    # Objects that are the same array to MLX get one name together: ask about each alone.
    numbers = {id(array): _numbers([array]).get(0) for array in distinct}
    ours = _lists_of_the_question()
    lists = list(
        {id(held): held for held, array in inside if numbers[id(array)] in copies and id(held) not in ours}.values()
    )
    del inside  # it would be seen below
    found: dict[int, tuple[mx.array, _Role]] = {}
    for held in [
        held for held, seen in zip(lists, [_is_visible(held, lists) for held in lists], strict=True) if not seen
    ]:
        for array, role in _roles(held):
            number = numbers.get(id(array))
            # What grad says of an argument counts, whoever lists it too.
            if number is not None and (number not in found or found[number][1].value > role.value):
                found[number] = array, role
    return found


def _candidates() -> list[Any]:
    """Return the lists and tuples that may be those of MLX: of arrays, or of arguments and keywords."""
    # The one loop whose length is the size of the program.
    return [
        item
        for item in gc.get_objects()
        if ((kind := type(item)) is list or kind is tuple)
        and item
        and (
            type(item[0]) is mx.array
            or (len(item) == 2 and type(item[1]) is dict)
            or (len(item) == 1 and type(item[0]) is list)
        )
        and sys.getrefcount(item) <= _FEW
    ]


def _roles(held: Any) -> Iterator[tuple[mx.array, _Role]]:
    """Iterate over the arrays in a list of MLX: the arguments and keywords of grad, or the arguments of vjp and jvp."""
    while type(held) is list and len(held) == 1 and type(held[0]) is list:
        held = held[0]
    if type(held) is list and len(held) == 2 and isinstance(held[0], (tuple, list)) and type(held[1]) is dict:
        arguments = [list(_arrays(argument, 0)) for argument in (*held[0], *held[1].values())]
        arguments = [arrays for arrays in arguments if arrays]
        for i, arrays in enumerate(arguments):
            yield from ((array, _Role.FURTHER if i else _Role.FIRST) for array in arrays)
    else:
        yield from ((array, _Role.LISTED if type(held) is list else _Role.PASSED) for array in _arrays(held, 0))


def _arrays(item: Any, depth: int) -> Iterator[mx.array]:
    if isinstance(item, mx.array):
        yield item
    elif depth < _DEEPEST and isinstance(item, (list, tuple, dict)):
        children: Iterable[Any] = item.values() if isinstance(item, dict) else item
        for child in children:
            yield from _arrays(child, depth + 1)


def _lists_of_the_question() -> set[int]:
    """Return the lists, by id, in which other functions of adprotocol hold what they were asked about."""
    found: set[int] = set()
    frame: types.FrameType | None = sys._getframe()
    while frame is not None and (name := str(frame.f_globals.get("__name__"))).startswith("adprotocol"):
        if name != __name__:  # f_locals holds on to what it shows, and the search is not to see its own
            found.update(id(value) for value in frame.f_locals.values() if type(value) is list)
        frame = frame.f_back
    return found


def _is_visible(held: list[Any], ours: list[Any]) -> bool:
    """Return whether an object of Python refers to a list: then it is a user's, and may hold what is over."""
    return any(referrer is not ours for referrer in gc.get_referrers(held))


def undecidable(name: str) -> UndecidableError:
    """Return the error for what is declared by this name."""
    from adprotocol_mlx.divergence import DIVERGENCES

    divergence = DIVERGENCES[name]
    return UndecidableError(f"mlx: {divergence.title}. {divergence.remedy}")
