"""Draw the fit to the carbon dioxide record, before and after training: ``python docs/fit.py`` writes the picture."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "examples" / "co2"))

from pictures import for_day_and_night  # noqa: E402

import backends  # noqa: E402
import kernels  # noqa: E402
import series as data  # noqa: E402
from training import mapped  # noqa: E402

if TYPE_CHECKING:
    from series import Series

PICTURE = ROOT / "docs" / "_static" / "fit.svg"
SHOWN = 20.0  # years at the end of the series; with all of them a season is too narrow to see
AHEAD = 8.0  # years past the end
FINENESS = 40  # points of a curve in a year


def main() -> None:
    """Write two panels with mean and two standard deviations."""
    series = data.read()
    fit = backends.by_autograd(series)
    t, y = np.array(series.t), np.array(series.y)
    at = np.linspace(t[-1] - SHOWN, t[-1] + AHEAD, int(FINENESS * (SHOWN + AHEAD)))
    figure = Figure(figsize=(10.0, 6.5), layout="constrained")
    axes = figure.subplots(2, 1, sharex=True, sharey=True)
    figure.suptitle("Carbon dioxide at Mauna Loa: a Gaussian process, trained by autograd")
    for panel, kernel, when, value in zip(
        axes, (mapped(float, kernels.START), fit.kernel), ("Before", "After"), fit.values, strict=True
    ):
        mean, deviation = kernels.posterior(kernel, t, y, at, np)
        _panel(panel, series, at, mean, deviation)
        panel.set_title(f"{when} training: log marginal likelihood {value:.1f}", loc="left", fontsize="medium")
        panel.set_ylabel("CO2 (ppm)")
    axes[0].legend(loc="upper left", frameon=False)
    axes[1].set_xlabel("year")
    written = io.StringIO()
    figure.savefig(written, format="svg")
    PICTURE.write_text(for_day_and_night(written.getvalue()), encoding="utf-8")


def _panel(panel: Any, series: Series, at: Any, mean: Any, deviation: Any) -> None:
    years, fitted = at + series.middle, mean + series.mean
    band = {"color": "C0", "alpha": 0.3, "linewidth": 0.0, "label": "two standard deviations"}
    panel.fill_between(years, fitted - 2.0 * deviation, fitted + 2.0 * deviation, **band)
    panel.plot(years, fitted, color="C0", linewidth=1.0, label="posterior mean")
    shown = [(t + series.middle, y + series.mean) for t, y in zip(series.t, series.y, strict=True) if t >= at[0]]
    panel.plot(*zip(*shown, strict=True), ".", color="black", markersize=4.0, label="quarterly means")
    panel.axvline(shown[-1][0], color="grey", linestyle=":", linewidth=1.0, label="end of the data")
    panel.margins(x=0.0)


if __name__ == "__main__":
    main()
