"""The data set: carbon dioxide at Mauna Loa, quarterly, as plain lists."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("co2.csv")


@dataclass(frozen=True)
class Series:
    """Hold a series of observations.

    Args:
        t: years, measured from the middle of the series.
        y: parts per million, measured from the mean of the series.
        middle: the year from which `t` is measured.
        mean: the parts per million from which `y` is measured.
    """

    t: list[float]
    y: list[float]
    middle: float
    mean: float


def read(points: int | None = None) -> Series:
    """Return the observations, or the last few of them, centred."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    rows = csv.reader(line for line in lines if not line.startswith("#"))
    next(rows)  # the names of the columns
    given = [(float(year), float(co2)) for year, co2 in rows][-(points or 0) :]
    middle = sum(year for year, _ in given) / len(given)
    mean = sum(co2 for _, co2 in given) / len(given)
    return Series([year - middle for year, _ in given], [co2 - mean for _, co2 in given], middle, mean)
