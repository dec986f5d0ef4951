"""The first part of the demo: the one model file, evaluated and differentiated everywhere, and compared."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from adprotocol.demo import oracle
from adprotocol.demo.agreement import TOLERANCE, Verdict, training_difference, verdicts
from adprotocol.demo.backends import BACKENDS, Outcome, reason

if TYPE_CHECKING:
    from adprotocol.demo.data import Series
    from adprotocol.demo.report import Report

DIFFERENCES_TOLERANCE = 1e-6  # of finite differences, which lose digits to cancellation
SITUATIONS = ("plain", "grad", "jit", "grad of jit")
HEADERS = (
    "run by",
    "value",
    "training\nvalue",
    "gradient\nnorm",
    "\nplain",
    "under\ngrad",
    "under\njit",
    "grad\nof jit",
    "agrees",
)
LEGEND = (
    "Value: log marginal likelihood, evaluated. Training value: the same inside the call that differentiates, where "
    "input dropout is on. Plain, under grad, under jit, grad of jit: what within_gradient(params) answered in that "
    "call; n/a: there is no such call. Agrees: relative difference from the first row that has the number, at most "
    f"{TOLERANCE:.0e} in float64."
)


def compare(series: Series, report: Report) -> bool:
    """Run the model under every backend, show the table, and tell whether everything installed agrees to rounding."""
    ran: dict[str, Outcome] = {}
    reasons: dict[str, tuple[str, str]] = {}  # in short and in full: why there is no outcome
    for backend in BACKENDS:
        with report.progress(backend.name):
            try:
                ran[backend.name] = backend.run(series)
            except Exception as error:  # noqa: BLE001  (one broken framework must not hide the others)
                reasons[backend.name] = reason(backend, error)
    with report.progress("finite differences"):
        checked, oracle_note = _check(series, ran)

    found = verdicts(ran)
    good = bool(ran) and checked and all(verdict.agrees for verdict in found.values())
    good = good and all(short == "not installed" for short, _ in reasons.values())
    rows = [
        _row(name, ran[name], found[name]) if name in ran else [name, *["-"] * 7, reasons[name][0]]
        for name in (backend.name for backend in BACKENDS)
    ]
    notes = [f"{name}: {full}" for name, (_, full) in reasons.items()]
    notes += [*_gradient(ran), oracle_note, LEGEND]
    if good and len(ran) == 1:
        notes.append(f"Only {next(iter(ran))} ran: there is nothing to compare it with.")
    elif good:
        notes.append("All agree to rounding.")
    elif ran:
        notes.append("NOT all agree: see the rows and lines above.")
    else:
        notes.append("Nothing could run: see the lines above.")
    title = f"adprotocol/demo/model.py on {len(series.t)} quarters of carbon dioxide at Mauna Loa"
    report.table(title, HEADERS, rows, notes)
    return good


def _check(series: Series, ran: dict[str, Outcome]) -> tuple[bool, str]:
    """Compare the first gradient with finite differences, which know nothing of modes."""
    name, trained = next(((name, outcome.trained) for name, outcome in ran.items() if outcome.trained), ("", None))
    if trained is None or "NumPy" not in ran:
        return True, "Finite differences: not done, for they need NumPy and one gradient."
    difference = training_difference(trained, oracle.finite_differences(series))
    return difference <= DIFFERENCES_TOLERANCE, (
        f"Finite differences of the NumPy code, with the observations left out by hand and the constant held, differ "
        f"from {name} by {difference:.0e}."
    )


def _row(name: str, outcome: Outcome, verdict: Verdict) -> list[str]:
    trained = outcome.trained
    agrees = "yes" if verdict.agrees else "NO"
    return [
        name,
        f"{outcome.value:.4f}",
        f"{trained.value:.4f}" if trained else "n/a",
        f"{math.hypot(*trained.gradient.values()):.3f}" if trained else "n/a",
        *(str(outcome.answers.get(situation, "n/a")) for situation in SITUATIONS),
        agrees if verdict.difference == 0.0 else f"{agrees} ({verdict.difference:.0e})",
    ]


def _gradient(ran: dict[str, Outcome]) -> list[str]:
    for name, outcome in ran.items():
        if outcome.trained:
            parts = [f"{parameter} {part:.4g}" for parameter, part in outcome.trained.gradient.items()]
            return [f"Gradient by {name}: {', '.join(parts)}."]
    return []
