"""The states of a cell of the support matrix: their names, signs and colours, the worst first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SILENT = "silently wrong"
DECLARED = "wrong, declared"
LOUD = "loud error"
STAGED = "staged"
RIGHT = "right"
ABSENT = "not applicable"
STATES = (SILENT, DECLARED, LOUD, STAGED, RIGHT, ABSENT)
# As a key lists them: what is hoped for first, what says nothing last.
SHOWN = (RIGHT, STAGED, LOUD, DECLARED, SILENT, ABSENT)


@dataclass(frozen=True, slots=True)
class Look:
    """Hold how a state is shown.

    The sign tells the states apart without the colours, and the colours without the sign: they are apart for
    readers who confuse red and green too. `path` draws the sign in a square of 16 units, for fonts differ.
    """

    sign: str
    meaning: str
    fill: str
    ink: str
    dark_fill: str
    dark_ink: str
    path: str


LOOKS: Mapping[str, Look] = {
    SILENT: Look(
        sign="!!",
        meaning="another answer, with no error",
        fill="#c4161c",
        ink="#ffffff",
        dark_fill="#ff5a52",
        dark_ink="#2a0000",
        path="M5.5 3V9M5.5 12V13M10.5 3V9M10.5 12V13",
    ),
    DECLARED: Look(
        sign="≠",
        meaning="another answer, with no error, which the plugin declares",
        fill="#e0b3e6",
        ink="#5b1a66",
        dark_fill="#77307f",
        dark_ink="#fbe3ff",
        path="M3.5 6.2H12.5M3.5 9.8H12.5M10.5 3 5.5 13",
    ),
    LOUD: Look(
        sign="✗",
        meaning="an error",
        fill="#ffd479",
        ink="#5c3d00",
        dark_fill="#8a5f00",
        dark_ink="#fff1d0",
        path="M4.5 4.5 11.5 11.5M11.5 4.5 4.5 11.5",
    ),
    STAGED: Look(
        sign="◐",
        meaning="right, decided when the transformation is applied",
        fill="#b5d8f5",
        ink="#0c4a7c",
        dark_fill="#17507f",
        dark_ink="#d0e9ff",
        path="M8 3.5a4.5 4.5 0 0 0 0 9a4.5 4.5 0 0 0 0-9V12.5M6.4 4.6V11.4M4.9 6.2V9.8",
    ),
    RIGHT: Look(
        sign="✓",
        meaning="right",
        fill="#b7e4cd",
        ink="#0b5136",
        dark_fill="#14573c",
        dark_ink="#c4f2dc",
        path="M4 8.5 7 11.5 12 5",
    ),
    ABSENT: Look(
        sign="-",
        meaning="the harness lacks a capability that it takes, or the system itself refuses the nesting",
        fill="#eceff2",
        ink="#5b6570",
        dark_fill="#2b3138",
        dark_ink="#9aa5b1",
        path="M5 8H11",
    ),
}


def kind(each: str) -> str:
    """Return the class that a state has in HTML and SVG."""
    return f"s{STATES.index(each)}"


def css(prefix: str) -> str:
    """Return the rules for the background and the text of the classes of `kind`, for light and dark."""
    light = "".join(f"{prefix}.{kind(each)}{{background:{look.fill};color:{look.ink}}}" for each, look in LOOKS.items())
    dark = "".join(
        f"{prefix}.{kind(each)}{{background:{look.dark_fill};color:{look.dark_ink}}}" for each, look in LOOKS.items()
    )
    return f"{light}@media (prefers-color-scheme:dark){{{dark}}}"
