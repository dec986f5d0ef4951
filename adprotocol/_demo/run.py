"""``python -m adprotocol demo``: one model file under every framework that is installed, side by side.

The exit status is 0 if everything that is installed agrees, else 1.
"""

from __future__ import annotations

import math
import sys

from adprotocol._cli import terminal
from adprotocol._demo.frameworks import FRAMEWORKS, PATHS, Framework, Outcome
from adprotocol.messages import one_line

TOLERANCE = 1e-8  # relative, in float64; what is seen is 1e-15
FROZEN = "season.period"
HEADINGS = ["", "loss", "training", *(path.rpartition(".")[2] for path in PATHS), "within", "agrees"]
TITLE = "adprotocol/_demo/model.py: dataclasses, one field of them frozen"
LEGEND = (
    "Loss: evaluated. Training: the loss inside the call that differentiates, where input dropout is on. Then the "
    "gradient by each parameter, None where none was taken. Within: what within_gradient(model) answered in the two "
    f"calls. Agrees: with the first row that has the number, up to {TOLERANCE:.0e} relatively, in float64."
)


def main() -> int:
    """Run the model under every framework, show the table, and return the exit status."""
    rows, notes = [HEADINGS], [LEGEND]
    first: Outcome | None = None
    good, ran = True, 0
    for framework in FRAMEWORKS:
        sys.stderr.write(f"{framework.name} ... ")
        sys.stderr.flush()
        try:
            outcome = framework.run()
        except Exception as error:  # noqa: BLE001  (one broken framework must not hide the others)
            absent = isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == framework.module
            good = good and absent
            rows.append([framework.name, *["-"] * (len(HEADINGS) - 2), "absent" if absent else "failed"])
            notes.append(f"{framework.name}: {_reason(framework, error, absent=absent)}")
        else:
            agrees = is_right(outcome) and differs(outcome, first or outcome) <= TOLERANCE
            # NumPy has no derivatives: the next is what gradients are compared with.
            first = first if first is not None and first.gradient else outcome
            good, ran = good and agrees, ran + 1
            rows.append([framework.name, *_cells(outcome), "yes" if agrees else "NO"])
        sys.stderr.write(f"{'done' if rows[-1][-1] in ('yes', 'NO') else rows[-1][-1]}\n")
    good = good and ran > 0
    verdict = "All agree to rounding." if good else "NOT all agree: see the table and the lines above."
    if ran < 2:
        verdict = "Only one ran: nothing to compare it with." if ran else "Nothing could run: see the lines above."
    width = terminal.width_of(sys.stdout)
    notes = [line for note in (*notes, verdict) for line in terminal.wrapped(note, width or 80)]
    sys.stdout.write("\n".join([TITLE, "", *terminal.aligned(rows), "", *notes]) + "\n")
    return 0 if good else 1


def _reason(framework: Framework, error: Exception, *, absent: bool) -> str:
    if absent:
        extra = "demo" if framework.module == "numpy" else framework.module
        return f"not installed; pip install 'adprotocol[{extra}]'"
    return f"failed: {one_line(error, 300)}"


def is_right(outcome: Outcome) -> bool:
    """Return whether the answers are right, the numbers finite, and exactly what is frozen has no gradient."""
    without = {name for name, part in outcome.gradient.items() if part is None}
    finite = all(map(math.isfinite, (outcome.value, *(part or 0.0 for part in outcome.gradient.values()))))
    answered = outcome.answers == [False, True][: len(outcome.answers)]
    return answered and finite and (without == {FROZEN} or not outcome.gradient)


def differs(outcome: Outcome, first: Outcome) -> float:
    """Return the largest relative difference from the first outcome; of a gradient, relative to its largest part."""
    differences = [abs(outcome.value / first.value - 1.0)]
    if outcome.training is not None and first.training is not None:
        differences.append(abs(outcome.training / first.training - 1.0))
        scale = max(abs(part or 0.0) for part in first.gradient.values())
        differences += [abs((outcome.gradient[name] or 0.0) - (first.gradient[name] or 0.0)) / scale for name in PATHS]
    return max(differences)


def _cells(outcome: Outcome) -> list[str]:
    training = "n/a" if outcome.training is None else outcome.training
    numbers = [outcome.value, training, *(outcome.gradient.get(path, "n/a") for path in PATHS)]
    shown = [f"{number:.4f}" if isinstance(number, float) else str(number) for number in numbers]
    return [*shown, " ".join(map(str, outcome.answers))]
