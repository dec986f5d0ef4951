"""The data set of the demo: carbon dioxide at Mauna Loa, quarterly, as plain lists."""

from __future__ import annotations

import csv
import importlib.resources
import random
from dataclasses import dataclass

KEEP = 0.8  # the share of the observations that input dropout leaves


@dataclass(frozen=True)
class Series:
    """Hold a series of observations.

    Args:
        t: years, measured from the middle of the series.
        y: parts per million, measured from the mean of the series.
        mask: 1.0 where input dropout keeps the observation, else 0.0.
        middle: the year from which `t` is measured.
        mean: the parts per million from which `y` is measured.
    """

    t: list[float]
    y: list[float]
    mask: list[float]
    middle: float
    mean: float


def read() -> list[tuple[float, float]]:
    """Return the shipped rows: decimal year, parts per million."""
    text = importlib.resources.files("adprotocol.demo").joinpath("co2.csv").read_text(encoding="utf-8")
    rows = csv.reader(line for line in text.splitlines() if not line.startswith("#"))
    next(rows)  # the names of the columns
    return [(float(year), float(co2)) for year, co2 in rows]


def series(points: int) -> Series:
    """Return the last `points` observations, centred, with a mask that is the same on every call."""
    rows = read()[-points:]
    middle = sum(year for year, _ in rows) / len(rows)
    mean = sum(co2 for _, co2 in rows) / len(rows)
    # Drawn once, before any framework: each has a generator of its own, and all must drop the same points.
    draw = random.Random(0)  # noqa: S311  (no secret)
    return Series(
        t=[year - middle for year, _ in rows],
        y=[co2 - mean for _, co2 in rows],
        mask=[1.0 if draw.random() < KEEP else 0.0 for _ in rows],
        middle=middle,
        mean=mean,
    )
