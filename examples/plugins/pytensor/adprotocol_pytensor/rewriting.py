"""Take the plugin's operations out of a graph when it is compiled.

The rewrite runs in every mode that rewrites, and in none of the rewrites that may come
before a gradient (``canonicalize``, ``stabilize``), where the questions must stay.
Without it the operations evaluate to the same values.
"""

from __future__ import annotations

from typing import Any

from pytensor.compile.mode import optdb
from pytensor.graph.rewriting.basic import GraphRewriter

from adprotocol_pytensor.ops import Apart, Guard, Prevent, Stop, WithinGradient
from adprotocol_pytensor.simplification import FALSE, simplified

NAME = "adprotocol_answers"
# Before PyTensor merges and canonicalises, after it has inlined functions that were traced once; and each time after
# what does not change in a loop was taken out of it.
POSITIONS = (-0.005, 0.055, 1.601)


class AnswerFalse(GraphRewriter):
    """Replace the questions that no gradient has answered by False, and views by their values."""

    def add_requirements(self, fgraph: Any) -> None:
        """Need no feature of the graph."""

    def apply(self, fgraph: Any) -> None:
        """Rewrite the graph."""
        for node in fgraph.toposort():
            if isinstance(node.op, WithinGradient):
                results: Any = [FALSE]
            elif isinstance(node.op, (Apart, Guard, Prevent, Stop)):
                results = node.inputs[:1]
            else:
                results = simplified(node.op, node.inputs)
            if results is not None:
                fgraph.replace_all(list(zip(node.outputs, results, strict=True)), reason=NAME, import_missing=True)


def install() -> None:
    """Register the rewrite, once."""
    if f"{NAME}0" in optdb.__position__:
        return
    for number, position in enumerate(POSITIONS):
        optdb.register(f"{NAME}{number}", AnswerFalse(), "fast_run", "fast_compile", position=position)
