"""A draft of divergences: what fails, as Python for a plugin's hook, for a person to give the reasons."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from adprotocol.conformance._run.result import FAIL, PLUGIN, WRONG
from adprotocol.divergence import ERROR
from adprotocol.divergence import WRONG as DECLARED_WRONG

if TYPE_CHECKING:
    from adprotocol.conformance._run.result import Report, Result

_HEAD = '''"""What {backend} {version} does not allow the plugin to do right, drafted from a run of the suite.

A draft declares nothing: an empty `text` is refused. For each entry find out why it fails. Mend what is wrong
in the plugin. For what the system does not allow, write title, reason and remedy; merge entries of one reason.
"""

from adprotocol.extend import Divergence

DIVERGENCES = (
'''
_ENTRY = """    Divergence(
        name={name!r},
        title="",
        text="",
        remedy="",
        outcome={outcome!r},
        # {message}
        scenarios=(
{scenarios}
        ),
    ),
"""
_WIDTH = 110


def draft(report: Report) -> str:
    """Return Python with a divergence for each way in which scenarios fail, those of one error together."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in report.results:
        if result.outcome in (WRONG, FAIL) and result.cause == PLUGIN:
            # A wrong answer has its own numbers; an error of one text, its numbers apart, has one reason.
            kind = "" if result.outcome == WRONG else re.sub(r"[0-9.]+", "0", result.message)[:80]
            groups.setdefault((result.outcome, kind or result.hook), []).append(result)
    entries = [
        _ENTRY.format(
            name=f"draft-{number}",
            outcome=DECLARED_WRONG if outcome == WRONG else ERROR,
            message=" ".join(found[0].message.split())[:_WIDTH],
            scenarios="\n".join(f"            {result.id!r}," for result in found),
        )
        for number, ((outcome, _), found) in enumerate(groups.items(), 1)
    ]
    return _HEAD.format(backend=report.backend, version=report.framework_version) + "".join(entries) + ")\n"
