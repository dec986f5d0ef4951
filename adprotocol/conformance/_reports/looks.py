"""How an outcome and a state of a matrix cell look: signs, colours and the meaning in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from adprotocol.conformance._run.result import CRASHED, EXPECTED, FAIL, NOT_APPLICABLE, PASS, WRONG

if TYPE_CHECKING:
    from collections.abc import Mapping

# The states of a cell, the worst first.
SILENT = "silently wrong"
DECLARED = "wrong, declared"
LOUD = "loud error"
STAGED = "staged"
RIGHT = "right"
ABSENT = "not applicable"
STATES = (SILENT, DECLARED, LOUD, STAGED, RIGHT, ABSENT)

# The order of a legend: from right to wrong, then what says nothing about the plugin.
LEGEND = (RIGHT, STAGED, LOUD, DECLARED, SILENT, ABSENT)

# Beside the colour, which not every reader sees.
SIGNS: Mapping[str, str] = {WRONG: "!!", CRASHED: "✗✗", FAIL: "✗", EXPECTED: "~", PASS: "✓", NOT_APPLICABLE: "-"}

# An outcome has the colours of the state that it gives to a cell.
COLOURED_AS: Mapping[str, str] = {
    WRONG: SILENT,
    CRASHED: LOUD,
    FAIL: LOUD,
    EXPECTED: DECLARED,
    PASS: RIGHT,
    NOT_APPLICABLE: ABSENT,
}


class Look(NamedTuple):
    """Hold how a state looks.

    Signs differ without the colours, and colours without the signs, also for readers who confuse red and green.
    """

    sign: str
    meaning: str
    fill: str
    ink: str
    dark_fill: str
    dark_ink: str


_NO_ERROR = "a wrong answer with no error"
_ABSENT = "the harness lacks a capability, or the system itself refuses the nesting"
_STAGED = "right, decided when the transformation is applied"
_DECLARED = f"{_NO_ERROR}, which the plugin declares"

LOOKS: Mapping[str, Look] = {
    SILENT: Look("!!", _NO_ERROR, "#c4161c", "#ffffff", "#ff5a52", "#2a0000"),
    DECLARED: Look("≠", _DECLARED, "#e0b3e6", "#5b1a66", "#77307f", "#fbe3ff"),
    LOUD: Look("✗", "an error", "#ffd479", "#5c3d00", "#8a5f00", "#fff1d0"),
    STAGED: Look("◐", _STAGED, "#b5d8f5", "#0c4a7c", "#17507f", "#d0e9ff"),
    RIGHT: Look("✓", "right", "#b7e4cd", "#0b5136", "#14573c", "#c4f2dc"),
    ABSENT: Look("-", _ABSENT, "#eceff2", "#5b6570", "#2b3138", "#9aa5b1"),
}


def css_class(state: str) -> str:
    """Return the class of a state in HTML and SVG."""
    return f"s{STATES.index(state)}"
