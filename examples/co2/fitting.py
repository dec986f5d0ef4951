"""The composed kernel, trained everywhere, and the optima compared."""

from __future__ import annotations

import importlib.util
import math
from typing import TYPE_CHECKING

import kernels
import oracle
import picture
from agreement import CONVERGED, OPTIMUM_TOLERANCE, Verdict, frozen, optima
from trainers import TRAINERS, reason
from training import STEPS, Fit, named

if TYPE_CHECKING:
    from pathlib import Path

    from console import Report
    from series import Series

PARAMETERS_LEGEND = (
    f"Kernel: {kernels.START}. Variances are in ppm squared, the period and lengthscales in years; the lengthscale of "
    "the Periodic has no unit. Gradient: at the end, by the first; None: frozen."
)
HEADERS = (
    "trained by",
    "value at\nthe start",
    "value at\nthe end",
    "slope at\nthe start",
    "slope at\nthe end",
    "same optimum",
)
LEGEND = (
    "Value: log marginal likelihood. Slope: norm of its gradient with respect to the logarithms of the trained "
    "parameters. Same optimum: relative difference of the value and of every parameter from the first row, at most "
    f"{OPTIMUM_TOLERANCE:.0e}; the slope fell to {CONVERGED:g} of what it was or less; what is frozen did not move and "
    "has None for a gradient, and nothing else has."
)


def fit(series: Series, report: Report, path: Path | None) -> bool:
    """Train the kernel under every framework, show the tables, and tell whether all found the same optimum."""
    fits: dict[str, Fit] = {}
    reasons: dict[str, tuple[str, str]] = {}
    for trainer in TRAINERS:
        with report.bar(trainer.name, STEPS) as advance:
            try:
                fits[trainer.name] = trainer.train(series, advance)
            except Exception as error:  # noqa: BLE001  (one broken framework must not hide the others)
                reasons[trainer.name] = reason(trainer, error)

    found = optima(fits)
    checked, oracle_notes = _check(series, fits)
    good = bool(fits) and checked and all(verdict.agrees for verdict in found.values())
    good = good and all(short == "not installed" for short, _ in reasons.values())
    title = f"examples/co2/kernels.py trained on {len(series.t)} quarters, {STEPS} steps of Adam"
    if fits:
        report.table(title, ("parameter", "start", *fits, "gradient"), _parameters(fits), [PARAMETERS_LEGEND])
        report.gap()
    rows = [
        _row(name, fits[name], found[name]) if name in fits else [name, *["-"] * 4, reasons[name][0]]
        for name in (trainer.name for trainer in TRAINERS)
    ]
    notes = [f"{name}: {full}" for name, (_, full) in reasons.items()]
    notes += [*oracle_notes, LEGEND]
    if not fits:
        notes.append("Nothing could be trained: see the lines above.")
    elif not good:
        notes.append("NOT all found one optimum: see the rows and lines above.")
    elif len(fits) == 1:
        notes.append(f"Only {next(iter(fits))} trained: there is nothing to compare it with.")
    else:
        notes.append("All found the same optimum.")
    drawn, note = _picture(path, series, fits)
    report.table("" if fits else title, HEADERS, rows, [*notes, note])
    return good and drawn


def _check(series: Series, fits: dict[str, Fit]) -> tuple[bool, list[str]]:
    """Compare the first optimum with finite differences, which know nothing of gradients."""
    if not fits or importlib.util.find_spec("numpy") is None:
        return True, ["Finite differences: not done, for they need NumPy and one optimum."]
    name, first = next(iter(fits.items()))
    slopes = oracle.slopes(first.kernel, series)
    kept = {path: slopes.pop(path) for path in frozen()}
    slope = math.hypot(*slopes.values())
    said = "".join(f"; of {path}, which is frozen, it is {value:.0f}" for path, value in kept.items())
    return slope <= CONVERGED * first.norms[0], [
        f"Finite differences of the NumPy code, at the optimum of {name}: the slope is {slope:.0e}{said}."
    ]


def _parameters(fits: dict[str, Fit]) -> list[list[str]]:
    gradient = named(next(iter(fits.values())).gradient)
    numbers = [named(each.kernel) for each in fits.values()]
    return [
        [
            path,
            f"{float(start):g}",
            *(f"{each[path]:.6g}" for each in numbers),
            "None" if gradient[path] is None else f"{gradient[path]:.0e}",
        ]
        for path, start in named(kernels.START).items()
    ]


def _row(name: str, result: Fit, verdict: Verdict) -> list[str]:
    agrees = "yes" if verdict.agrees else "NO"
    return [
        name,
        *(f"{value:.4f}" for value in result.values),
        *(f"{norm:.2g}" for norm in result.norms),
        agrees if verdict.difference == 0.0 else f"{agrees} ({verdict.difference:.0e})",
    ]


def _picture(path: Path | None, series: Series, fits: dict[str, Fit]) -> tuple[bool, str]:
    if path is None:
        return True, "To see the fit before and after: python examples/co2 --picture fit.png"
    if not fits:
        return False, f"There is no fit to draw: {path} was not written."
    name, first = next(iter(fits.items()))
    try:
        picture.draw(path, series, first, name)
    except OSError as error:
        return False, f"{path} was not written: {error}"
    return True, f"The fit before and after, by {name}: {path}"
