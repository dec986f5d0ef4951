"""The report as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from adprotocol.conformance._reports import words
from adprotocol.conformance._reports.entries import BAD, MEANINGS, cells, entries, missing, other_reasons
from adprotocol.conformance._run.backend import need
from adprotocol.conformance._run.result import EXPECTED, OUTCOMES, counts

if TYPE_CHECKING:
    from adprotocol.conformance._run.result import Report

TEMPLATE = Path(__file__).with_name("report.html.jinja")


def need_jinja2() -> None:
    """Raise `UsageError` with the remedy if Jinja2 is not installed."""
    need("jinja2", "reports in HTML need Jinja2")


def to_html(report: Report) -> str:
    """Return the report as one HTML page that takes nothing from elsewhere: to open, to send, to publish.

    Its script only filters; without it the page holds the same.
    """
    need_jinja2()
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415  (an optional dependency)

    made = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters |= {"clean": words.clean, "some": words.some}
    found = cells(report)
    known = {
        "cells": found,
        "rows": sorted({row for row, _ in found}, key=lambda row: (row != "no transform", row.endswith("..."), row)),
        "hooks": list(dict.fromkeys(result.hook for result in report.results)),
        "missing": missing(report),
        "other_reasons": other_reasons(report),
        "entries": {outcome: entries(report, outcome) for outcome in (*BAD, EXPECTED)},
    }
    constants = {"MEANINGS": MEANINGS, "OUTCOMES": OUTCOMES, "EXPECTED": EXPECTED, "counts": counts}
    return made.from_string(TEMPLATE.read_text("utf-8")).render(report=report, **known, **constants)
