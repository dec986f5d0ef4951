"""How an outcome and a state of a matrix cell look: signs, colours and the meaning in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from adprotocol.conformance._run.result import EXPECTED, FAIL, NOT_APPLICABLE, PASS, WRONG

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
SIGNS: Mapping[str, str] = {WRONG: "!!", FAIL: "✗", EXPECTED: "~", PASS: "✓", NOT_APPLICABLE: "-"}

# An outcome has the colours of the state that it gives to a cell.
COLOURED_AS: Mapping[str, str] = {
    WRONG: SILENT,
    FAIL: LOUD,
    EXPECTED: DECLARED,
    PASS: RIGHT,
    NOT_APPLICABLE: ABSENT,
}


class Look(NamedTuple):
    """Hold how a state looks.

    Signs differ without the colours, and colours without the signs, also for readers who confuse red and green.
    `path` draws the sign in a square of 16 units, since fonts differ.
    """

    sign: str
    meaning: str
    fill: str
    ink: str
    dark_fill: str
    dark_ink: str
    path: str


_NO_ERROR = "a wrong answer with no error"
_ABSENT = "the harness lacks a capability, or the system itself refuses the nesting"
_HALF_MOON = "M8 3.5a4.5 4.5 0 0 0 0 9a4.5 4.5 0 0 0 0-9V12.5M6.4 4.6V11.4M4.9 6.2V9.8"
_BARS = "M3.5 6.2H12.5M3.5 9.8H12.5M10.5 3 5.5 13"
_STAGED = "right, decided when the transformation is applied"
_DECLARED = f"{_NO_ERROR}, which the plugin declares"

LOOKS: Mapping[str, Look] = {
    SILENT: Look("!!", _NO_ERROR, "#c4161c", "#ffffff", "#ff5a52", "#2a0000", "M5.5 3V9M5.5 12V13M10.5 3V9M10.5 12V13"),
    DECLARED: Look("≠", _DECLARED, "#e0b3e6", "#5b1a66", "#77307f", "#fbe3ff", _BARS),
    LOUD: Look("✗", "an error", "#ffd479", "#5c3d00", "#8a5f00", "#fff1d0", "M4.5 4.5 11.5 11.5M11.5 4.5 4.5 11.5"),
    STAGED: Look("◐", _STAGED, "#b5d8f5", "#0c4a7c", "#17507f", "#d0e9ff", _HALF_MOON),
    RIGHT: Look("✓", "right", "#b7e4cd", "#0b5136", "#14573c", "#c4f2dc", "M4 8.5 7 11.5 12 5"),
    ABSENT: Look("-", _ABSENT, "#eceff2", "#5b6570", "#2b3138", "#9aa5b1", "M5 8H11"),
}


def css_class(state: str) -> str:
    """Return the class of a state in HTML and SVG."""
    return f"s{STATES.index(state)}"
