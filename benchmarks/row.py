"""A row of the table: what was measured, ours beside the reference, and the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interleave import Comparison


@dataclass(frozen=True)
class Row:
    """Texts to print; ``met`` is None for a row without a target.

    `cost` is what a later run is held against, ours over the reference, and `noise` the relative spread of it.
    `reason` says what a call does beyond its reference, where the target leaves room for that: the most that quiet runs
    on several machines found, rounded up.
    """

    what: str
    ours: str
    reference: str = ""
    ratio: str = ""
    target: str = ""
    met: bool | None = None
    noise: float | None = None
    cost: float | None = None
    reason: str = ""

    @property
    def verdict(self) -> str:
        return {None: "", True: "met", False: "MISSED"}[self.met]


def compared(what: str, reference: str, found: Comparison, *, at_most: float | None = None, reason: str = "") -> Row:
    """Return a row of two timed calls: the target is the most that ours may take of the reference."""
    return Row(
        what=what,
        ours=duration(found.ours),
        reference=f"{reference}: {duration(found.reference)}",
        ratio=f"{found.ratio:.2f}",
        target="" if at_most is None else f"≤ {at_most:g}",
        met=None if at_most is None else found.ratio <= at_most,
        noise=found.noise,
        cost=found.ratio,
        reason=reason,
    )


def counted(what: str, reference: str, ours: int, expected: int) -> Row:
    """Return a row of two numbers that have to be equal."""
    return Row(what, str(ours), f"{reference}: {expected}", f"{ours / expected:.2f}" if expected else "", "equal",
               ours == expected, 0.0, ours / expected if expected else None)  # fmt: skip


def duration(seconds: float) -> str:
    """Return a time in the unit that reads best."""
    for unit, scale in (("ns", 1e9), ("µs", 1e6), ("ms", 1e3)):
        if seconds * scale < 999.5:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def size(count: int) -> str:
    """Return a number of bytes in megabytes."""
    return f"{count / 1e6:.3g} MB"
