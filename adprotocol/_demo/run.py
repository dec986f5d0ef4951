"""``python -m adprotocol demo``: one model file under every framework that is installed, side by side.

The exit status is 0 if everything that is installed agrees, 1 if not, 2 for wrong usage, 130 after an interrupt.
"""

from __future__ import annotations

import argparse
import math
import sys
import textwrap
from typing import TYPE_CHECKING

from adprotocol._demo import model
from adprotocol._demo.frameworks import FRAMEWORKS, Framework, Outcome, named

if TYPE_CHECKING:
    from collections.abc import Sequence

TOLERANCE = 1e-8  # relative, in float64; what is seen is 1e-15
FROZEN = "season.period"
SITUATIONS = ("plain", "grad", "jit", "grad of jit")
TITLE = "adprotocol/_demo/model.py: dataclasses, one field of them frozen"
LEGEND = (
    "Loss: evaluated. Training loss: inside the call that differentiates, where input dropout is on. d: the gradient, "
    "None where none was taken. Within grad: what within_gradient(model) answered in that call; n/a: there is no such "
    f"call. Differs: from the first that has the number, relatively; more than {TOLERANCE:.0e} in float64 is NO."
)
STYLES = {"yes": "green", "NO": "red", "failed": "red", "absent": "dim"}
INTERRUPTED = 130  # what a shell says of a program that was interrupted


def main(argv: list[str] | None = None) -> int:
    """Run the demo and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="adprotocol demo", description="Run one model file under every framework that is installed, and compare."
    )
    parser.add_argument("--plain", action="store_true", help="plain text, without rich")
    arguments = parser.parse_args(argv)
    try:
        return 0 if compare(plain=arguments.plain) else 1
    except KeyboardInterrupt:
        sys.stderr.write("\nadprotocol demo: interrupted\n")
        return INTERRUPTED


def compare(*, plain: bool) -> bool:
    """Run the model under every framework, show the table, and tell whether all that is installed agrees."""
    ran: dict[str, Outcome] = {}
    missing: dict[str, tuple[str, str]] = {}  # in short and in full: why there is no outcome
    for framework in FRAMEWORKS:
        sys.stderr.write(f"{framework.name} ... ")
        sys.stderr.flush()
        try:
            ran[framework.name] = framework.run()
        except Exception as error:  # noqa: BLE001  (one broken framework must not hide the others)
            missing[framework.name] = reason(framework, error)
        sys.stderr.write(f"{missing.get(framework.name, ('done',))[0]}\n")
    first = next((outcome for outcome in ran.values() if outcome.gradient), None)
    differences = {name: difference(outcome, next(iter(ran.values())), first) for name, outcome in ran.items()}
    agrees = {name: right(outcome) and differences[name] <= TOLERANCE for name, outcome in ran.items()}
    good = bool(ran) and all(agrees.values()) and all(short == "absent" for short, _ in missing.values())
    notes = [f"{name}: {full}" for name, (_, full) in missing.items()] + [LEGEND, _verdict(ran, good=good)]
    columns = [
        _column(ran[framework.name], differences[framework.name], agrees=agrees[framework.name])
        if framework.name in ran
        else ["-"] * (len(_labels()) - 1) + [missing[framework.name][0]]
        for framework in FRAMEWORKS
    ]
    rows = list(zip(_labels(), *columns, strict=True))
    _show(["", *(framework.name for framework in FRAMEWORKS)], rows, notes, plain=plain)
    return good


def reason(framework: Framework, error: Exception) -> tuple[str, str]:
    """Say in short and in full why a framework gave nothing."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == framework.module:
        return "absent", f"not installed; pip install 'adprotocol[{framework.extra}]'"
    return "failed", f"failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}"


def difference(outcome: Outcome, evaluated: Outcome, trained: Outcome | None) -> float:
    """Return the largest relative difference from the first outcomes; of a gradient, relative to its largest part."""
    found = [abs(outcome.value / evaluated.value - 1.0)]
    if outcome.training is not None and trained is not None and trained.training is not None:
        found.append(abs(outcome.training / trained.training - 1.0))
        scale = max(abs(part or 0.0) for part in trained.gradient.values())
        parts = [(outcome.gradient[name] or 0.0, part or 0.0) for name, part in trained.gradient.items()]
        found += [abs(part - other) / scale for part, other in parts]
    return math.nan if any(map(math.isnan, found)) else max(found)  # max() would pass over NaN


def right(outcome: Outcome) -> bool:
    """Tell whether the answers are those of their situations, and exactly what is frozen has no gradient."""
    without = {name for name, part in outcome.gradient.items() if part is None}
    answers = all(answer == ("grad" in situation) for situation, answer in outcome.answers.items())
    return answers and (without == {FROZEN} or not outcome.gradient)


def _verdict(ran: dict[str, Outcome], *, good: bool) -> str:
    if not ran:
        return "Nothing could run: see the lines above."
    if not good:
        return "NOT all agree: see the table and the lines above."
    return "All agree to rounding." if len(ran) > 1 else f"Only {next(iter(ran))} ran: nothing to compare it with."


def _labels() -> list[str]:
    paths = [f"d {path}" for path in named(model.start(float))]
    return ["loss", "training loss", *paths, *(f"within grad: {s}" for s in SITUATIONS), "differs", "agrees"]


def _column(outcome: Outcome, differs: float, *, agrees: bool) -> list[str]:
    parts = [outcome.gradient.get(path, "n/a") for path in named(model.start(float))]
    numbers: list[float | str | None] = [outcome.value, "n/a" if outcome.training is None else outcome.training, *parts]
    answers = [str(outcome.answers.get(situation, "n/a")) for situation in SITUATIONS]
    shown = [f"{number:.5f}" if isinstance(number, float) else str(number) for number in numbers]
    return [*shown, *answers, f"{differs:.0e}", "yes" if agrees else "NO"]


def _show(heads: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str], *, plain: bool) -> None:
    try:
        from rich import box  # noqa: PLC0415
        from rich.console import Console  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415
    except ImportError:
        plain = True
    if plain:
        sys.stdout.write("\n".join([TITLE, "", *aligned([heads, *rows]), "", *map(textwrap.fill, notes)]) + "\n")
        return
    console = Console(highlight=False, markup=False)
    console.print(TITLE)
    # Cut cells would hide the numbers that are to be compared: where they do not fit, there are several tables.
    for group in _fitting([heads, *rows], console.width):
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0)
        table.add_column("", no_wrap=True)
        for i in group:
            table.add_column(heads[i].replace(" ", "\n"), justify="right", vertical="bottom", no_wrap=True)
        for row in rows:
            table.add_row(row[0], *(Text(row[i], style=STYLES.get(row[i], "")) for i in group))
        console.print("", table, sep="\n")
    console.print("", *notes, sep="\n")


def _fitting(rows: Sequence[Sequence[str]], width: int) -> list[list[int]]:
    """Return the positions of the columns after the first, in groups that fit beside it."""
    first = max(len(row[0]) for row in rows)
    # A heading may be of several lines.
    widths = [
        max(len(word) for cell in column for word in cell.split()) for column in list(zip(*rows, strict=True))[1:]
    ]
    groups: list[list[int]] = [[]]
    left = width - first
    for i, needed in enumerate(widths, 1):
        if groups[-1] and needed + 1 > left:
            groups.append([])
            left = width - first
        groups[-1].append(i)
        left -= needed + 1
    return groups


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a plain-text table: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [" ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]
