"""The badge: the result in a few words, for a README, as data for shields.io and as an image."""

from __future__ import annotations

import html
import json
import math
from typing import TYPE_CHECKING

from adprotocol.conformance._run.result import EXPECTED, FAIL, PASS, WRONG

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adprotocol.conformance._run.result import Report

LABEL = "adprotocol"

# The colours of shields.io by name, dark enough for white text here.
_COLOURS: Mapping[str, str] = {
    "red": "#c4161c",
    "orange": "#a84b00",
    "lightgrey": "#5f6872",
    "yellow": "#7a6400",
    "yellowgreen": "#566a00",
    "green": "#2f6f1f",
    "brightgreen": "#1b7f2e",
}


def to_badge(report: Report) -> str:
    """Return the JSON text that an endpoint badge of shields.io is made of, which ends with a newline."""
    message, colour = _said(report)
    data = {
        "schemaVersion": 1,
        "label": LABEL,
        "message": message,
        "color": colour,
        # An error's colour cannot be overridden in the address of the badge.
        "isError": not report.ok,
    }
    return json.dumps(data, indent=1) + "\n"


def _said(report: Report) -> tuple[str, str]:
    """Return the message and the colour: the worst there is, else how many of those that ran passed."""
    counts = report.counts()
    failed = sum(result.bad for result in report.results if result.outcome == FAIL)
    problems = len(report.problems)
    if counts[WRONG]:
        return f"{counts[WRONG]} silently wrong", "red"
    if failed:
        return f"{failed} of {report.ran + report.blocked} fail", "red"
    if problems:
        return f"{problems} problem{'s' * (problems > 1)}", "orange"
    if not report.ran:
        return "nothing ran", "lightgrey"
    passed = f"{counts[PASS]}/{report.ran}"
    silent = f", {report.declared_wrong} declared silent" if report.declared_wrong else ""
    if len(report.results) < report.total:
        # A selection says so: it would look like the whole.
        return f"{passed} of {report.total} selected{silent}", "yellow"
    if silent:
        return f"{passed}{silent}", "yellowgreen"
    if counts[EXPECTED]:
        return f"{passed}, {counts[EXPECTED]} declared", "green"
    return passed, "green" if counts[FAIL] else "brightgreen"


def to_svg(report: Report) -> str:
    """Return a small image of the badge that takes nothing from elsewhere."""
    message, colour = _said(report)
    left, right = _width(LABEL), _width(message)
    width, said = left + right, html.escape(f"{LABEL}: {message}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{said}">\n'
        f"<title>{said}</title>\n"
        f'<clipPath id="adp-badge"><rect width="{width}" height="20" rx="3"/></clipPath>\n'
        f'<g clip-path="url(#adp-badge)"><rect width="{left}" height="20" fill="#444c56"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{_COLOURS[colour]}"/></g>\n'
        '<g fill="#fff" font-family="Verdana,Geneva,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">\n'
        f"{_text(left / 2, left, LABEL)}\n{_text(left + right / 2, right, message)}\n</g>\n</svg>\n"
    )


def _width(text: str) -> int:
    # About seven units for each character of these fonts; `textLength` makes it so in all others.
    return math.ceil(6.6 * len(text)) + 10


def _text(x: float, width: int, text: str) -> str:
    fitted = f'textLength="{width - 10}" lengthAdjust="spacingAndGlyphs"'
    return f'<text x="{x:g}" y="14" {fitted}>{html.escape(text)}</text>'
