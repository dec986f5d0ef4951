"""``python -m adprotocol demo``: one model file under every framework that is installed, side by side.

The exit status is 0 if everything that is installed agrees, 1 if not, 2 for wrong usage, 130 after an interrupt.
"""

from __future__ import annotations

import argparse
import math
import sys
from typing import TYPE_CHECKING

from adprotocol._cli import terminal
from adprotocol._demo.frameworks import FRAMEWORKS, PATHS, Framework, Outcome
from adprotocol.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

TOLERANCE = 1e-8  # relative, in float64; what is seen is 1e-15
FROZEN = "season.period"
SITUATIONS = ("plain", "grad", "jit", "grad of jit")
ASKED = [f"within grad: {situation}" for situation in SITUATIONS]
LABELS = ["loss", "training loss", *(f"d {path}" for path in PATHS), *ASKED, "differs", "agrees"]
TITLE = "adprotocol/_demo/model.py: dataclasses, one field of them frozen"
LEGEND = (
    "Loss: evaluated. Training loss: inside the call that differentiates, where input dropout is on. d: the gradient, "
    "None where none was taken. Within grad: what within_gradient(model) answered in that call; n/a: there is no such "
    f"call. Differs: from the first that has the number, relatively; more than {TOLERANCE:.0e} in float64 is NO."
)


def main(argv: list[str] | None = None) -> int:
    """Run the demo and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="adprotocol demo", description="Run one model file under every framework that is installed, and compare."
    )
    parser.parse_args(argv)
    return terminal.interruptible("adprotocol demo", lambda: 0 if compare() else 1)


def compare() -> bool:
    """Run the model under every framework, show the table, and tell whether all that is installed agrees."""
    found = {framework.name: _run(framework) for framework in FRAMEWORKS}
    ran = {name: outcome for name, outcome in found.items() if isinstance(outcome, Outcome)}
    missing = {name: why for name, why in found.items() if not isinstance(why, Outcome)}
    first = next(iter(ran.values()), None)
    trained = next((outcome for outcome in ran.values() if outcome.gradient), None)
    columns = [_column(outcome, first, trained) for outcome in found.values()]
    good = bool(ran) and all(column[-1] in ("yes", "absent") for column in columns)
    notes = [*(f"{name}: {full}" for name, (_, full) in missing.items()), LEGEND, _verdict(ran, good=good)]
    _show([["", *found], *zip(LABELS, *columns, strict=True)], notes)
    return good


def _run(framework: Framework) -> Outcome | tuple[str, str]:
    """Return what a framework gave, or why it gave nothing, in short and in full."""
    sys.stderr.write(f"{framework.name} ... ")
    sys.stderr.flush()
    try:
        outcome: Outcome | tuple[str, str] = framework.run()
    except Exception as error:  # noqa: BLE001  (one broken framework must not hide the others)
        outcome = reason(framework, error)
    sys.stderr.write("done\n" if isinstance(outcome, Outcome) else f"{outcome[0]}\n")
    return outcome


def reason(framework: Framework, error: Exception) -> tuple[str, str]:
    """Say in short and in full why a framework gave nothing."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == framework.module:
        return "absent", f"not installed; pip install 'adprotocol[{framework.extra}]'"
    return "failed", f"failed: {one_line(error, 300)}"


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


def _column(outcome: Outcome | tuple[str, str], first: Outcome | None, trained: Outcome | None) -> list[str]:
    if not isinstance(outcome, Outcome):
        return [*["-"] * (len(LABELS) - 1), outcome[0]]
    differs = difference(outcome, first or outcome, trained)
    training = "n/a" if outcome.training is None else outcome.training
    numbers = [outcome.value, training, *(outcome.gradient.get(path, "n/a") for path in PATHS)]
    shown = [f"{number:.5f}" if isinstance(number, float) else str(number) for number in numbers]
    answers = [str(outcome.answers.get(situation, "n/a")) for situation in SITUATIONS]
    return [*shown, *answers, f"{differs:.0e}", "yes" if right(outcome) and differs <= TOLERANCE else "NO"]


def _show(rows: Sequence[Sequence[str]], notes: Sequence[str]) -> None:
    width = terminal.width_of(sys.stdout)
    lines = terminal.wrapped(TITLE, width)
    # Cut cells would hide the numbers that are to be compared: where they do not fit, there are several tables.
    for group in _fitting(rows, math.inf if width is None else width):
        lines += ["", *terminal.aligned([[row[0], *(row[i] for i in group)] for row in rows])]
    lines += ["", *(line for note in notes for line in terminal.wrapped(note, width or 70))]
    sys.stdout.write("\n".join(lines) + "\n")


def _fitting(rows: Sequence[Sequence[str]], width: float) -> list[list[int]]:
    """Return the positions of the columns after the first, in groups that fit beside it."""
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    groups: list[list[int]] = [[]]
    left = width - first
    for i, needed in enumerate(others, 1):
        if groups[-1] and needed + 1 > left:
            groups.append([])
            left = width - first
        groups[-1].append(i)
        left -= needed + 1
    return groups
