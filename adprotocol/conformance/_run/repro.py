"""Repros: a failing scenario as Python to paste."""

from __future__ import annotations

import inspect
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adprotocol.conformance.scenario import Scenario


def repro(scenario: Scenario, harness: str, variant: str = "") -> str:
    """Return a script that runs a scenario, whose source follows; `harness` is the Python that makes the harness."""
    function = getattr(scenario.function, "func", scenario.function)
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except OSError:  # typed into a prompt
        source = ""
    checked = f"checked({harness}, {variant!r})" if variant else f"checked({harness})"
    lines = [
        f"# {scenario.id}: {' '.join(scenario.summary.split())}",
        "from adprotocol.conformance import all_scenarios, checked, harness_of",
        "",
        f"all_scenarios()[{scenario.id!r}].function({checked})",
        *(f"# {line}".rstrip() for line in source.splitlines()),
    ]
    return "\n".join(lines) + "\n"
