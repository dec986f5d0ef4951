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
    """

    what: str
    ours: str
    reference: str = ""
    ratio: str = ""
    target: str = ""
    met: bool | None = None
    noise: float | None = None
    cost: float | None = None

    @property
    def verdict(self) -> str:
        return {None: "", True: "met", False: "MISSED"}[self.met]


def compared(  # noqa: PLR0913  (a target of each kind)
    what: str,
    reference: str,
    found: Comparison,
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    below_ns: float | None = None,
) -> Row:
    """Return a row of two timed calls; of several targets one has to be met.

    The ratio is ours to the reference, or with `at_least` how many times faster
    ours is.
    """
    ratio = found.ratio if at_least is None else 1 / found.ratio
    targets: list[tuple[str, bool]] = []
    if at_most is not None:
        targets.append((f"≤ {at_most:g}", ratio <= at_most))
    if at_least is not None:
        targets.append((f"≥ {at_least:g}x faster", ratio >= at_least))
    if below_ns is not None:
        targets.append((f"≤ {below_ns:g} ns", found.ours * 1e9 <= below_ns))
    return Row(
        what=what,
        ours=duration(found.ours),
        reference=f"{reference}: {duration(found.reference)}",
        ratio=f"{ratio:.2f}" if at_least is None else f"{ratio:.3g}x faster",
        target=" or ".join(text for text, _ in targets),
        met=any(met for _, met in targets) if targets else None,
        noise=found.noise,
        cost=found.ratio,
    )


def added(what: str, reference: str, found: Comparison, microseconds: float | None = None) -> Row:
    """Return a row of what ours adds to a call, with the most that it may."""
    return Row(
        what=what,
        ours=duration(found.ours),
        reference=f"{reference}: {duration(found.reference)}",
        ratio=f"+ {duration(found.difference)}",
        target="" if microseconds is None else f"≤ + {microseconds:g} µs",
        met=None if microseconds is None else found.difference * 1e6 <= microseconds,
        noise=found.noise,
        cost=found.ratio,
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
