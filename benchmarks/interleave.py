"""Two calls timed side by side: alternating batches, and the median of the ratios of each round.

CPU time of the process: it leaves out what other programs take.

A shared machine drifts by tens of per cent within seconds. The two batches of a
round are a millisecond apart, so that the drift falls out of their ratio. Calls
of milliseconds and more (`long_call`) are batches of their own, and there are as
many rounds as a given time allows.
"""

from __future__ import annotations

import statistics
import time
import timeit
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROUNDS = 601
BATCH_SECONDS = 5e-4
WARM_UP = 5
# Of long calls, whatever time they take; the lower decile is the least of so many.
LEAST_ROUNDS = 9
# Of calls of which one round takes longer than so many seconds.
LONG_SECONDS, LEAST_LONG_ROUNDS = 2.0, 3
# Statements per turn of timeit's loop, whose own 8 ns would flatter the slower side of a short call.
UNROLLED = 20


@dataclass(frozen=True)
class Comparison:
    """Seconds per call, and the median over all rounds of ours / reference.

    The times are the lower deciles of the rounds: load from elsewhere only ever adds to them. The noise is half of the
    range in which the middle half of the ratios lies, relative to their median.
    """

    ours: float
    reference: float
    ratio: float
    noise: float


@dataclass(frozen=True)
class Call:
    """A timer of so many calls in a row."""

    timer: timeit.Timer
    unrolled: int

    def seconds(self, turns: int) -> float:
        """Return the seconds per call, over that many turns of timeit's loop."""
        return self.timer.timeit(turns) / (turns * self.unrolled)


def call(function: Callable[..., Any], *args: Any, unrolled: int = UNROLLED) -> Call:
    """Return a timer of ``function(*args)``, of local names only."""
    names = [f"a{i}" for i in range(len(args))]
    given = {"_f": function, **{f"_{name}": value for name, value in zip(names, args, strict=True)}}
    setup = "; ".join(["f = _f", *(f"{name} = _{name}" for name in names)])
    statement = f"f({', '.join(names)})"
    return Call(timeit.Timer("; ".join([statement] * unrolled), setup, time.process_time, given), unrolled)


def long_call(function: Callable[..., Any], *args: Any) -> Call:
    """Return a timer of a call that takes milliseconds or seconds."""
    return call(function, *args, unrolled=1)


def compare(ours: Call, reference: Call, rounds: int = ROUNDS, *, seconds: float | None = None) -> Comparison:
    """Time the two in turn, as `in_turn` does."""
    return paired(*in_turn((ours, reference), rounds, seconds=seconds))


def in_turn(calls: Sequence[Call], rounds: int = ROUNDS, *, seconds: float | None = None) -> list[list[float]]:
    """Return for each of several calls its seconds in each round; every other round begins with the last.

    With `seconds` there are as many of the `rounds` as that time allows, and one
    before them to warm up.
    """
    counts = [_count(timed) for timed in calls]
    warm_up = WARM_UP
    if seconds is not None:
        once = sum(timed.unrolled * count * timed.seconds(count) for timed, count in zip(calls, counts, strict=True))
        least = LEAST_ROUNDS if once < LONG_SECONDS else LEAST_LONG_ROUNDS
        rounds, warm_up = max(least, min(rounds, round(seconds / once))), 1
    times: list[list[float]] = [[] for _ in calls]
    for i in range(warm_up + rounds):
        order = range(len(calls))
        for k in order if i % 2 else reversed(order):
            taken = calls[k].seconds(counts[k])
            if i >= warm_up:
                times[k].append(taken)
    return times


def paired(ours: Sequence[float], reference: Sequence[float]) -> Comparison:
    """Return the comparison of two calls that took so long in each round."""
    pairs = list(zip(ours, reference, strict=True))
    low, ratio, high = statistics.quantiles([a / b for a, b in pairs], n=4)
    return Comparison(
        ours=statistics.quantiles(ours, n=10)[0],
        reference=statistics.quantiles(reference, n=10)[0],
        ratio=ratio,
        noise=(high - low) / 2 / ratio,
    )


def _count(timed: Call) -> int:
    """Return how many turns make a batch; the second time, when caches are filled."""
    timed.timer.timeit(1)
    count = 1
    while (taken := timed.timer.timeit(count)) < BATCH_SECONDS / 4:
        count *= 2
    return max(1, round(count * BATCH_SECONDS / taken))
