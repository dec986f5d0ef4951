"""The graph behind arrays, as ``mx.export_to_dot`` prints it.

MLX is lazy: an array knows the operation that makes it and the arrays that go in,
and ``mx.grad`` and ``mx.jvp`` walk this graph once the function has returned. So
what a derivative will go through can be read from the graph. Python sees it only
as text. A line names an array or joins one to an operation, which has a number (its
address) that no other living operation has.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import mlx.core as mx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_LABEL = re.compile(r'^\{ (\d+) \[label ="(.*?)", shape', re.MULTILINE)
_INPUT = re.compile(r'^"(\w+)" -> (\d+)$', re.MULTILINE)
_OUTPUT = re.compile(r'^(\d+) -> "(\w+)"$', re.MULTILINE)

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
        dot = text.getvalue()
        self._labels: dict[int, str] = {int(number): label for number, label in _LABEL.findall(dot)}
        self._inputs: dict[int, list[str]] = {number: [] for number in self._labels}
        for name, number in _INPUT.findall(dot):
            self._inputs[int(number)].append(name)
        self._made: dict[str, int] = {name: int(number) for number, name in _OUTPUT.findall(dot)}

    def copies(self) -> set[int]:
        """Return the copies of arguments that a derivative would go back to, by number."""
        roots = [number for name, number in self._made.items() if name.startswith("asked")]
        return self._reached(roots, lambda label: label not in _CONSTANT)

    def made_by_copy(self) -> dict[str, int]:
        """Return those of the arrays that are such copies themselves, by name."""
        return {
            name: number
            for name, number in self._made.items()
            if name.startswith("asked") and self._labels[number] == _COPY
        }

    def of_checkpoint(self, copies: Iterable[int]) -> bool:
        """Tell whether one of the copies is an argument of the second run of a checkpoint."""
        return any(self._labels.get(source) == _DEPENDS for copy in copies for source in self._sources(copy))

    def of_copies(self, copies: Iterable[int]) -> bool:
        """Tell whether one of the copies depends on another."""
        return any(self._reached(self._sources(copy), lambda _label: True) for copy in copies)

    def _sources(self, number: int) -> list[int]:
        return [self._made[name] for name in self._inputs[number] if name in self._made]

    def _reached(self, numbers: Iterable[int], passes: Callable[[str], bool]) -> set[int]:
        waiting, seen, copies = list(numbers), set(), set()
        while waiting:
            number = waiting.pop()
            if number in seen or not passes(self._labels[number]):
                continue
            seen.add(number)
            if self._labels[number] == _COPY:
                copies.add(number)
            waiting.extend(self._sources(number))
        return copies


def is_leaf(array: mx.array) -> bool:
    """Tell whether an array has no operation behind it: it is computed, or an argument of vmap or compile."""
    text = io.StringIO()
    mx.export_to_dot(text, array)
    return "->" not in text.getvalue()
