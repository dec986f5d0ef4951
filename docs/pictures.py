"""The pictures of the README, the front page and the page of benchmarks.

`ratios` is drawn when the documentation is built. `support_short` is also in version
control, because the README shows it: ``python docs/pictures.py`` writes it, as the last
step of ``make support``.
"""

from __future__ import annotations

import html
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import support as recorded
from matrix_picture import PATHS, text_width
from support_matrix import ABSENT, LEGEND, LOOKS, RIGHT, STAGED, STATES, css_class, state_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DOCS = Path(__file__).parent
SUPPORT = DOCS / "_static" / "support.svg"
FRAMEWORKS = ("jax", "torch", "autograd")

# The rows: what a scenario's nesting holds, at whichever depth.
ROWS = {
    "": "no transformation",
    "grad": "reverse mode (grad, vjp, backward)",
    "jvp": "forward mode (jvp, dual numbers)",
    "jit": "jit",
    "compile": "torch.compile",
    "vmap": "vmap",
    "checkpoint": "checkpoint",
    "scan": "scan, loops",
    "custom rule": "custom derivative rules",
    "no_grad": "no_grad",
    "threads": "threads",
}
LEFT, CELL, ROW, MARGIN, SQUARE = 250, 120, 24, 16, 16
BAR, SLIVER = 52, 3  # the width of a bar, and that of the smallest share that is not zero


def support_short() -> str:
    """Return the results of the conformance suite as a picture: bars of shares, by transformation and framework."""
    reports = {report.backend: report for report in recorded.reports(FRAMEWORKS)}
    states = {
        (row, name): [
            state_of(report, result)
            for result in report.results
            if row in (result.transform.split(" of ") if result.transform else [""])
        ]
        for row in ROWS
        for name, report in reports.items()
    }
    parts, y = [], MARGIN + 38
    for column, (name, report) in enumerate(reports.items()):
        x = LEFT + CELL * column
        parts.append(
            _text(x, MARGIN + 14, name, "head") + _text(x, MARGIN + 28, report.framework_version or "", "small")
        )
    for row, title in ROWS.items():
        parts.append(_text(LEFT - 14, y + 12, title, "right"))
        for column, name in enumerate(reports):
            parts.append(_cell(LEFT + CELL * column, y, f"{name}, {title}", states[row, name]))
        y += ROW
    shown = {state for found in states.values() for state in found or [ABSENT]}
    x = MARGIN
    for state in (state for state in LEGEND if state in shown):
        parts.append(_mark(x, y + 10, state) + _text(x + SQUARE + 6, y + 22, state))
        x += SQUARE + 20 + round(text_width(state, 12))
    width, height = max(LEFT + CELL * len(reports) + MARGIN, x), y + 38
    title = f"Support: scenarios passed of those that ran, with {', '.join(reports)}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="adp-short" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{title}">\n<title>{title}</title>\n<style>\n{_style()}</style>\n'
        f'<rect class="ground" width="{width}" height="{height}" rx="10"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _cell(x: float, y: float, what: str, states: Sequence[str]) -> str:
    """Return a bar with the share of each state among the scenarios that ran, the best first, and how many passed."""
    counts = {state: count for state in reversed(STATES) if state != ABSENT and (count := states.count(state))}
    ran, passed = sum(counts.values()), counts.get(RIGHT, 0) + counts.get(STAGED, 0)
    told = ", ".join(f"{count} {state}" for state, count in counts.items()) or ABSENT
    drawn = [f"<title>{html.escape(f'{what}: {told}')}</title>"]
    if not ran:
        drawn.append(_mark(x, y, ABSENT))
    widths = {state: max(SLIVER, BAR * count / ran) for state, count in counts.items()}
    at, scale = x, BAR / sum(widths.values()) if ran else 0.0
    for state, width in widths.items():
        drawn.append(
            f'<rect class="{css_class(state)}" x="{at:.1f}" y="{y + 2}" width="{width * scale:.1f}" height="12"/>'
        )
        at += width * scale
    if ran:
        drawn.append(_text(x + BAR + 6, y + 12, f"{passed}/{ran}", "small"))
    return f"<g>{''.join(drawn)}</g>"


def _mark(x: float, y: float, state: str) -> str:
    name = css_class(state)
    return (
        f'<rect class="{name}" x="{x}" y="{y}" width="{SQUARE}" height="{SQUARE}" rx="3.5"/>'
        f'<path class="sign {name}" transform="translate({x} {y})" d="{PATHS[state]}"/>'
    )


def _text(x: float, y: float, content: str, name: str = "") -> str:
    named = f' class="{name}"' if name else ""
    return f'<text{named} x="{x}" y="{y}">{html.escape(content)}</text>'


def _style() -> str:
    def colours(ground: str, border: str, ink: str, faint: str, *, dark: bool) -> Iterator[str]:
        yield f".adp-short .ground{{fill:{ground};stroke:{border}}}"
        yield f".adp-short text{{fill:{ink}}}.adp-short .small{{fill:{faint}}}"
        for state, look in LOOKS.items():
            fill, sign = (look.dark_fill, look.dark_ink) if dark else (look.fill, look.ink)
            yield f".adp-short .{css_class(state)}{{fill:{fill}}}"
            yield f".adp-short .{css_class(state)}.sign{{fill:none;stroke:{sign}}}"

    return "\n".join(
        [
            ".adp-short text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}",
            ".adp-short .head{font-weight:600}.adp-short .small{font-size:11px}.adp-short .right{text-anchor:end}",
            ".adp-short .sign{stroke-width:1.8;stroke-linecap:round;stroke-linejoin:round}",
            *colours("#ffffff", "#d5dae0", "#1c232b", "#5b6570", dark=False),
            "@media (prefers-color-scheme:dark){",
            *colours("#15191e", "#363d46", "#dfe5eb", "#9aa5b1", dark=True),
            "}\n",
        ]
    )


@dataclass(frozen=True, slots=True)
class Ratio:
    """Hold one ratio of the table of benchmarks, ours to the reference: 2 means twice the time, or twice the count."""

    group: str
    value: float
    verdict: str


# The groups of the picture, by what a row's two texts hold; the first that matches.
GROUPS = {
    "a question, beside PennyLane's": r"qml\.math",
    "growth with leaves and graph nodes": r"a (graph|branch|dict) of [\d,]+ (nodes|leaves)",
    "a question, beside code by hand": r"^(within_gradient|non_differentiable)",
    "counts: instructions, nodes, compilations": r"^(HLO|nodes|compilations|torch\.compile\()",
    "the time to trace": r"^(jax\.jit|torch\.compile) traces",
    "cond, beside an if by hand or another library's": r"^cond",
    "a gradient through where, beside the double where": "^gradient through where",
    "a gradient, beside code by hand or other libraries": r"^value_and_grad",
    "products with a Jacobian, beside the framework's": r"^(vjp|jvp|jacobian|Hessian|Laplacian)",
    "a derivative rule, beside a native one": r"^a (rule|host function)",
    "partition and combine, beside Equinox's": r"^(partition|combine)",
    "frozen parts, beside code by hand: JAX jit": "JAX under jit",
    "frozen parts, beside code by hand: torch": "torch eager",
    "frozen parts, beside code by hand: autograd": ", autograd, ",
    "starting a process that imports it": "^(import|from) adprotocol",
    "others": "",
}


def table() -> list[list[str]]:
    """Return the cells of the table of benchmarks, a list for each row."""
    text = (DOCS / "tables" / "benchmarks.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| (.*) \|$", text)
    return [[cell.strip().replace("\\", "") for cell in re.split(r" \|(?: |$)", row)] for row in rows[2:]]


def found_ratios() -> list[Ratio]:
    """Return the ratios of the table, of times and counts; those of memory are beside them in the table."""
    found = []
    for what, _, reference, ratio, _, _, verdict, _ in table():
        if match := re.match(r"\d[\d.]*", ratio):
            group = next(name for name, pattern in GROUPS.items() if re.search(pattern, f"{what}, {reference}"))
            found.append(Ratio(group, float(match[0]), verdict.strip("*")))
    return found


# What matplotlib draws black on white, for a reader whose system is dark.
_BY_NIGHT = """<style>@media (prefers-color-scheme: dark) {
[style*="fill: #ffffff"] { fill: #15191e !important }
[style*="stroke: #000000"], [style*="stroke: #1c232b"] { stroke: #dfe5eb !important }
[style*="stroke: #000000"]:not([style*="fill"]) { fill: #dfe5eb }
[style*="stroke: #b0b0b0"] { stroke: #363d46 !important }
[id^="text_"] { fill: #dfe5eb }
}</style>
"""


def for_day_and_night(picture: str) -> str:
    """Return a picture of matplotlib's with the colours of a dark ground where the reader's system is dark."""
    return picture.replace("<defs>", f"{_BY_NIGHT}<defs>", 1)


def ratios() -> str:
    """Return the ratios of the benchmarks as a picture, a line for each group of rows."""
    import matplotlib as mpl  # noqa: PLC0415  (half a second, for one picture)
    from matplotlib.figure import Figure  # noqa: PLC0415

    points = found_ratios()
    groups = [name for name in GROUPS if any(point.group == name for point in points)]
    marks = {
        "met": ("o", "#1b7f5c", "target met"),
        "MISSED": ("X", "#c05a00", "target missed"),
        "": ("s", "#8a94a0", "no target"),
    }
    with mpl.rc_context({"svg.hashsalt": "adprotocol", "font.size": 9}):
        figure = Figure(figsize=(8.2, 0.36 * len(groups) + 1.3), layout="constrained")
        axes = figure.subplots()
        for verdict, (marker, colour, label) in marks.items():
            chosen = [point for point in points if point.verdict == verdict]
            lines = [groups.index(point.group) for point in chosen]
            values = [point.value for point in chosen]
            axes.scatter(values, lines, s=42, c=colour, marker=marker, alpha=0.6, linewidths=0, label=label)
        axes.axvline(1.0, color="#1c232b", linewidth=0.8)
        axes.set_xscale("log")
        at = [0.03, 0.1, 0.2, 0.5, 1, 2, 5, 10]
        axes.set_xticks(at, [f"{tick:g}" for tick in at])
        axes.minorticks_off()
        axes.set_yticks(range(len(groups)), groups)
        axes.set_ylim(len(groups) - 0.5, -0.5)
        axes.grid(axis="x", linewidth=0.4)
        axes.set_xlabel("ours / reference: left of 1 less time or fewer, right of 1 more")
        axes.legend(loc="upper center", bbox_to_anchor=(0.3, 1.12), ncols=3, frameon=False)
        axes.spines[["top", "right", "left"]].set_visible(False)
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None})
    return for_day_and_night(written.getvalue())


_GROWTH = re.compile(r"(.+), a (?:dict|graph|branch) of ([\d,]+) (leaves|nodes)")
_UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def growth() -> str:
    """Return the cost against the leaves of a structure and the nodes of a graph as a picture, by hand dashed."""
    import matplotlib as mpl  # noqa: PLC0415  (half a second, for one picture)
    from matplotlib.figure import Figure  # noqa: PLC0415

    lines: dict[str, dict[str, list[tuple[int, float, float]]]] = {"leaves": {}, "nodes": {}}
    for what, ours, reference, *_ in table():
        if match := _GROWTH.fullmatch(what):
            point = int(match[2].replace(",", "")), _seconds(ours), _seconds(reference)
            lines[match[3]].setdefault(match[1], []).append(point)
    with mpl.rc_context({"svg.hashsalt": "adprotocol", "font.size": 9}):
        figure = Figure(figsize=(8.2, 3.2), layout="constrained")
        for axes, (unit, calls) in zip(figure.subplots(1, 2), lines.items(), strict=True):
            for (name, points), colour in zip(calls.items(), ("#1b7f5c", "#2a6fb0"), strict=False):
                counts, times, references = zip(*points, strict=True)
                axes.loglog(counts, times, color=colour, marker="o", markersize=4, label=name)
                axes.loglog(counts, references, color=colour, linestyle="--", linewidth=1, label=f"{name}: reference")
            axes.set_xlabel(unit)
            axes.grid(linewidth=0.3)
            if calls:
                axes.legend(frameon=False, fontsize=8)
            axes.spines[["top", "right"]].set_visible(False)
        figure.axes[0].set_ylabel("seconds of CPU time for a call")
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None})
    return for_day_and_night(written.getvalue())


def _seconds(text: str) -> float:
    """Return the duration at the end of a cell."""
    number, unit = text.rpartition(": ")[2].split()
    return float(number) * _UNITS[unit]


if __name__ == "__main__":
    SUPPORT.write_text(support_short(), encoding="utf-8")
