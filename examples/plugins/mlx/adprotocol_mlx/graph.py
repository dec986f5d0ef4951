"""The graph behind arrays, as ``mx.export_to_dot`` prints it.

MLX is lazy: an array knows the operation that makes it and the arrays that go in,
and ``mx.grad`` and ``mx.jvp`` walk this graph once the function has returned. So
what a derivative will go through can be read from the graph. Python sees it only
as text: operations with a number, their address, and the names of the arrays that go
in and come out.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import mlx.core as mx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# An operation, and what is printed after it: the arrays that go in and those that come out.
_OPERATION = re.compile(
    r'^\{ (\d+) \[label ="(.*?)", shape.*\n((?:.*\n)*?)(?=\{ \d+ \[label|\{ rank=source|\}$)', re.MULTILINE
)
_INPUT = re.compile(r'^"(\w+)" -> \d+$', re.MULTILINE)
_OUTPUT = re.compile(r'^\d+ -> "(\w+)"$', re.MULTILINE)

# Each level of grad, vjp and jvp puts copies in the place of its arguments. Nothing else in MLX's Python makes a Copy.
_COPY = "Copy"
# What mx.checkpoint hands to its second run.
_DEPENDS = "Depends"
# Operations whose derivative MLX does not compute, or whose results are booleans and indices.
_CONSTANT = frozenset(
    (
        *("StopGradient", "Equal", "NaNEqual", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual"),
        *("LogicalNot", "LogicalAnd", "LogicalOr", "ArgReduce", "ArgSort", "ArgPartition"),
    )
)


class Graph:
    """The operations behind some arrays."""

    def __init__(self, arrays: Sequence[mx.array]) -> None:
        text = io.StringIO()
        # Names that the printer, which uses capital letters, does not give.
        mx.export_to_dot(text, **{f"asked{i}": array for i, array in enumerate(arrays)})
        # By position: all results of one compiled function share their operations, and so the numbers.
        self._numbers: list[int] = []
        self._labels: list[str] = []
        self._inputs: list[list[str]] = []
        self._made: dict[str, int] = {}
        for number, label, edges in _OPERATION.findall(text.getvalue()):
            self._made.update(dict.fromkeys(_OUTPUT.findall(edges), len(self._labels)))
            self._numbers.append(int(number))
            self._labels.append(label)
            self._inputs.append(_INPUT.findall(edges))

    def copies(self) -> set[int]:
        """Return the copies of arguments that a derivative would go back to, by number."""
        return {self._numbers[copy] for copy in self._reached(self._asked().values(), _is_differentiated)}

    def made_by_copy(self) -> dict[str, int]:
        """Return those of the arrays that are such copies themselves, by name."""
        return {name: self._numbers[made] for name, made in self._asked().items() if self._labels[made] == _COPY}

    def of_checkpoint(self, copies: Iterable[int]) -> bool:
        """Return whether one of the copies is an argument of the second run of a checkpoint."""
        return any(self._labels[source] == _DEPENDS for source in self._behind(copies))

    def of_copies(self, copies: Iterable[int]) -> bool:
        """Return whether one of the copies depends on another."""
        return bool(self._reached(self._behind(copies), lambda _label: True))

    def _asked(self) -> dict[str, int]:
        return {name: made for name, made in self._made.items() if name.startswith("asked")}

    def _behind(self, copies: Iterable[int]) -> list[int]:
        wanted = set(copies)
        return [
            source for made, number in enumerate(self._numbers) if number in wanted for source in self._sources(made)
        ]

    def _sources(self, made: int) -> list[int]:
        return [self._made[name] for name in self._inputs[made] if name in self._made]

    def _reached(self, starts: Iterable[int], passes: Callable[[str], bool]) -> set[int]:
        waiting, seen, copies = list(starts), set(), set()
        while waiting:
            made = waiting.pop()
            if made in seen or not passes(self._labels[made]):
                continue
            seen.add(made)
            if self._labels[made] == _COPY:
                copies.add(made)
            waiting.extend(self._sources(made))
        return copies


def _is_differentiated(label: str) -> bool:
    return label not in _CONSTANT


def is_leaf(array: mx.array) -> bool:
    """Return whether an array has no operation behind it: it is computed, or an argument of vmap or compile."""
    text = io.StringIO()
    mx.export_to_dot(text, array)
    return "->" not in text.getvalue()
