"""``python examples/co2``: the composed kernel trained under every framework that is installed.

The exit status is 0 if all that are installed find the same optimum, 1 if not, 2 for wrong usage, 130 after an
interrupt.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import fitting
import picture
import series
from console import Report

FEWEST = 20  # points; with fewer, years and seasons cannot be told apart
INTERRUPTED = 130  # what a shell says of a program that was interrupted


def main(argv: list[str] | None = None) -> int:
    """Train, show the tables, and return the exit status."""
    arguments = _arguments(argv)
    try:
        found = fitting.fit(series.last(arguments.points), Report(plain=arguments.plain), arguments.picture)
    except KeyboardInterrupt:
        sys.stderr.write("\nexamples/co2: interrupted\n")
        return INTERRUPTED
    return 0 if found else 1


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    most = len(series.read())
    parser = argparse.ArgumentParser(
        prog="examples/co2", description="Train a composed kernel under every framework that is installed, and compare."
    )
    parser.add_argument("--points", type=int, default=most, help=f"observations to use, {FEWEST} to {most} (all)")
    parser.add_argument(
        "--picture", type=Path, metavar="FILE", help="draw the fit before and after the training, .png or .svg"
    )
    parser.add_argument("--plain", action="store_true", help="plain text, without rich")
    arguments = parser.parse_args(argv)
    if not FEWEST <= arguments.points <= most:
        parser.error(f"--points takes a number from {FEWEST} to {most}, not {arguments.points}")
    if arguments.picture is not None:
        # Now, for the training takes a while.
        problem = picture.problem(arguments.picture)
        if problem:
            parser.error(problem)
    return arguments
