"""Two calls timed side by side: alternating batches, and the median of the ratios of each round.

A shared machine drifts by tens of per cent within seconds. The two batches of a
round are a millisecond apart, so that the drift falls out of their ratio.
"""

from __future__ import annotations

import statistics
import timeit
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 601
BATCH_SECONDS = 5e-4
WARM_UP = 5
# Statements per turn of timeit's loop, whose own 8 ns would flatter the slower side of a short call.
UNROLLED = 20


@dataclass(frozen=True)
class Comparison:
    """Seconds per call, and the medians over all rounds of ours / reference and of ours - reference.

    The times are the lower deciles of the rounds: load from elsewhere only ever adds to them.
    """

    ours: float
    reference: float
    ratio: float
    difference: float


def call(function: Callable[..., Any], *args: Any) -> timeit.Timer:
    """Return a timer of ``function(*args)``, of local names only."""
    names = [f"a{i}" for i in range(len(args))]
    given = {"_f": function, **{f"_{name}": value for name, value in zip(names, args, strict=True)}}
    setup = "; ".join(["f = _f", *(f"{name} = _{name}" for name in names)])
    statement = f"f({', '.join(names)})"
    return timeit.Timer("; ".join([statement] * UNROLLED), setup, globals=given)


def compare(ours: timeit.Timer, reference: timeit.Timer, rounds: int = ROUNDS) -> Comparison:
    """Time the two in turn; which one begins changes from round to round."""
    counts = {timer: _count(timer) for timer in (ours, reference)}
    times: dict[timeit.Timer, list[float]] = {ours: [], reference: []}
    for i in range(WARM_UP + rounds):
        for timer in (ours, reference) if i % 2 else (reference, ours):
            taken = timer.timeit(counts[timer]) / (counts[timer] * UNROLLED)
            if i >= WARM_UP:
                times[timer].append(taken)
    pairs = list(zip(times[ours], times[reference], strict=True))
    return Comparison(
        ours=statistics.quantiles(times[ours], n=10)[0],
        reference=statistics.quantiles(times[reference], n=10)[0],
        ratio=statistics.median(a / b for a, b in pairs),
        difference=statistics.median(a - b for a, b in pairs),
    )


def _count(timer: timeit.Timer) -> int:
    """Return how many turns make a batch; the second time, when caches are filled."""
    timer.timeit(1)
    count = 1
    while (taken := timer.timeit(count)) < BATCH_SECONDS / 4:
        count *= 2
    return max(1, round(count * BATCH_SECONDS / taken))
