"""The picture: data and fit, before and after the training, by matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kernels
from training import mapped

if TYPE_CHECKING:
    from pathlib import Path

    from series import Series
    from training import Fit

SUFFIXES = (".png", ".svg")
SHOWN = 20.0  # years at the end of the series; with all of them a season is too narrow to see
AHEAD = 8.0  # years past the end
FINENESS = 40  # points of a curve in a year


def problem(path: Path) -> str:
    """Say why no picture could be written to the path, or return the empty string."""
    if path.suffix.lower() not in SUFFIXES:
        return f"--picture takes a file that ends in {' or '.join(SUFFIXES)}, not {path.name!r}"
    if not path.parent.is_dir():
        return f"--picture cannot write {path}: there is no directory {path.parent}"
    if path.is_dir():
        return f"--picture cannot write {path}: it is a directory"
    try:
        import matplotlib.figure  # noqa: F401, PLC0415
    except ImportError as error:
        return f"--picture needs matplotlib ({error}); pip install matplotlib"
    return ""


def draw(path: Path, series: Series, fit: Fit, name: str) -> None:
    """Write the picture: two panels with mean and two standard deviations, before and after."""
    import numpy as np  # noqa: PLC0415
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    t, y = np.array(series.t), np.array(series.y)
    first, last = max(t[0], t[-1] - SHOWN), t[-1] + AHEAD
    at = np.linspace(first, last, int(FINENESS * (last - first)))
    # Without pyplot: no display, and nothing of matplotlib's is changed for others.
    figure = Figure(figsize=(10.0, 6.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 1, sharex=True, sharey=True)
    figure.suptitle(f"Carbon dioxide at Mauna Loa: a Gaussian process, trained by {name}")
    for panel, kernel, when, value in zip(
        axes, (mapped(float, kernels.START), fit.kernel), ("Before", "After"), fit.values, strict=True
    ):
        mean, deviation = kernels.posterior(kernel, t, y, at, np)
        _panel(panel, series, at, mean, deviation)
        panel.set_title(f"{when} training: log marginal likelihood {value:.1f}", loc="left", fontsize="medium")
        panel.set_ylabel("CO2 (ppm)")
    axes[0].legend(loc="upper left", frameon=False)
    axes[1].set_xlabel("year")
    figure.savefig(path, dpi=150)


def _panel(panel: Any, series: Series, at: Any, mean: Any, deviation: Any) -> None:
    years, fitted = at + series.middle, mean + series.mean
    panel.fill_between(
        years,
        fitted - 2.0 * deviation,
        fitted + 2.0 * deviation,
        color="C0",
        alpha=0.3,
        linewidth=0.0,
        label="two standard deviations",
    )
    panel.plot(years, fitted, color="C0", linewidth=1.0, label="posterior mean")
    shown = [(t + series.middle, y + series.mean) for t, y in zip(series.t, series.y, strict=True) if t >= at[0]]
    panel.plot(*zip(*shown, strict=True), ".", color="black", markersize=4.0, label="quarterly means")
    panel.axvline(shown[-1][0], color="grey", linestyle=":", linewidth=1.0, label="end of the data")
    panel.margins(x=0.0)
