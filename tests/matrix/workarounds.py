"""What the plugins do for releases of their frameworks, as their comments say, in two forms that `grep` finds.

``# until torch 2.13: reason`` is on a workaround, which may go once the lower bound of pyproject.toml is that release;
in place of the release there may be the address of an upstream issue. ``# since jax 0.11: what`` is on what newer
releases need.
"""

import io
import re
import tokenize
from dataclasses import dataclass

from adprotocol._dispatch.release import numbers
from matrix import point as matrix

FORM = re.compile(r"# (until|since) (?:(torch|jax|autograd) (\d[\d.]*\d)|(https://\S+/\d+)): \S")
RELEASE = re.compile(r"(?i)\b(?:pytorch|torch|jax|autograd|until|since|before)\W+\d+\.\d+|\bnewest\b")


@dataclass(frozen=True)
class Workaround:
    """Hold where a workaround is, the release that makes it needless, or the issue, and its comment."""

    place: str
    framework: str
    release: str
    issue: str
    comment: str


def comments():
    """Yield the place and the text of each comment in the plugins."""
    for path in sorted(matrix.ROOT.glob("adprotocol_*/*.py")):
        for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
            if token.type == tokenize.COMMENT:
                yield f"{path.relative_to(matrix.ROOT)}:{token.start[0]}", token.string


def workarounds():
    """Yield each workaround."""
    for place, comment in comments():
        if (match := FORM.search(comment)) and match[1] == "until":
            yield Workaround(place, match[2] or "", match[3] or "", match[4] or "", comment[match.start() :])


def due(floors):
    """Return the workarounds that no supported release needs; floors has the lower bound by framework."""
    return [
        one
        for one in workarounds()
        if one.framework in floors and numbers(one.release) <= numbers(floors[one.framework])
    ]
