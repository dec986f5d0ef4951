"""``python -m adprotocol demo``: one model file under every framework, then the training of another.

The exit status is 0 if everything that is installed agrees, 1 if not, 2 for wrong usage.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from adprotocol.demo import comparison, data, fitting, picture
from adprotocol.demo.report import Report

FEWEST = 20  # points; with fewer, years and seasons cannot be told apart
COMPARE, TRAIN = 1, 2  # the parts


def main(argv: list[str] | None = None) -> int:
    """Run the demo and return the exit status."""
    arguments = _arguments(argv)
    series, report = data.series(arguments.points), Report(plain=arguments.plain)
    good = True
    if arguments.part != TRAIN:
        good &= comparison.compare(series, report)
    if arguments.part is None:
        report.gap()
    if arguments.part != COMPARE:
        good &= fitting.fit(series, report, arguments.picture)
    return 0 if good else 1


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    most = len(data.read())
    parser = argparse.ArgumentParser(
        prog="adprotocol demo",
        description="Run one model file under every framework that is installed, and compare; train another under "
        "each, and compare.",
    )
    parser.add_argument("--points", type=int, default=most, help=f"observations to use, {FEWEST} to {most} (all)")
    parser.add_argument("--part", type=int, choices=(COMPARE, TRAIN), help="1 to compare, 2 to train; both without")
    parser.add_argument(
        "--picture", type=Path, metavar="FILE", help="draw the fit before and after the training, .png or .svg"
    )
    parser.add_argument("--plain", action="store_true", help="plain text, without rich")
    arguments = parser.parse_args(argv)
    if not FEWEST <= arguments.points <= most:
        parser.error(f"--points takes a number from {FEWEST} to {most}, not {arguments.points}")
    if arguments.picture is not None:
        if arguments.part == COMPARE:
            parser.error("--picture is of the training, which --part 1 leaves out")
        # Now, for the training takes a while.
        problem = picture.problem(arguments.picture)
        if problem:
            parser.error(problem)
    return arguments
