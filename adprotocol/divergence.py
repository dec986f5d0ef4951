"""A divergence: one rule that a framework does not allow its plugin to keep, as data.

A plugin writes its divergences in a Markdown file beside its code, reads them by
`read_divergences`, and lists them in the optional hook `divergences`. Its errors
quote them, ``python -m adprotocol info --json`` writes them, the conformance
suite expects the scenarios that they name to fail, and the documentation shows
them: all share one text. `CORE` holds the divergences of every framework.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adprotocol.errors import PluginError

# How the scenarios of a divergence fail: with an error, or with another answer and no error.
ERROR, WRONG = "error", "wrong"

_FIELDS = ("name", "remedy", "outcome", "scenarios")
_FIELD = re.compile(rf"- ({'|'.join(_FIELDS)}): (.+)")
_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_SCENARIO = re.compile(r"!?[^\s/@!]+/[^\s/@]+(@[^\s/@]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Declare one rule that the framework does not allow the plugin to keep.

    >>> from adprotocol.extend import Divergence
    >>> Divergence(
    ...     name="two-runs",
    ...     title="Checkpoint by two runs",
    ...     text="The first run records nothing, so the answer is False there.",
    ...     remedy="Ask outside and close over the answer",
    ...     scenarios=("within_gradient/checkpoint*",),
    ...     outcome="wrong",
    ... ).name
    'two-runs'

    Args:
        name: a slug, the same in every version.
        title: a heading, in Markdown.
        text: Markdown for the documentation: what happens, why, and what to do; it may hold runnable examples.
        remedy: one imperative sentence without the full stop, for errors to quote; empty if there is none.
        scenarios: the ids of the conformance suite that fail because of it, ``hook/name`` or ``hook/name@variant``;
            they may be glob patterns, and one that begins with ``!`` excludes: of those that match an id the last
            decides. ``("cond/*", "!cond/vmap*")`` names all of `cond` but these.
        outcome: how they fail, for a user too: ``"error"``, or ``"wrong"`` for another answer and no error.

    Raises:
        PluginError: if a field is not as described.
    """

    name: str
    title: str
    text: str
    remedy: str = ""
    scenarios: tuple[str, ...] = ()
    outcome: str = ERROR

    def __post_init__(self) -> None:
        if not _SLUG.fullmatch(self.name):
            raise _wrong(self, "has a name that is not a slug", "write words of a-z and 0-9, joined by hyphens")
        if not self.text.strip():
            raise _wrong(self, "has an empty text", "say what happens, why, and what to do")
        if self.outcome not in (ERROR, WRONG):
            raise _wrong(self, f"has the outcome {self.outcome!r}", f"write {ERROR!r} or {WRONG!r}")
        for scenario in self.scenarios:
            if not _SCENARIO.fullmatch(scenario):
                raise _wrong(self, f"names the scenario {scenario!r}", "write 'hook/name' or 'hook/name@variant'")


def _wrong(divergence: Divergence, what: str, remedy: str) -> PluginError:
    return PluginError(f"the declared divergence {divergence.name!r:.60} {what}; {remedy}")


def read_divergences(path: str | Path) -> dict[str, Divergence]:
    r"""Read the divergences in a Markdown file, by name.

    A heading of the second level opens each, and is its title. A list of fields follows, then, after an empty line,
    the text. What stands before the first heading is for readers of the file.

    >>> import pathlib, tempfile
    >>> from adprotocol.extend import read_divergences
    >>> path = pathlib.Path(tempfile.mkdtemp(), "divergences.md")
    >>> lines = [
    ...     "## Checkpoint by two runs",
    ...     "",
    ...     "- name: two-runs",
    ...     "- remedy: Ask outside and close over the answer",
    ...     "- outcome: wrong",
    ...     "- scenarios: `within_gradient/checkpoint*`, `cond/checkpoint`",
    ...     "",
    ...     "The first run records nothing, so the answer is False there.",
    ... ]
    >>> path.write_text("\n".join(lines)) > 0
    True
    >>> read_divergences(path)["two-runs"].scenarios
    ('within_gradient/checkpoint*', 'cond/checkpoint')

    Args:
        path: the file, ``Path(__file__).with_name("divergences.md")`` in a module of the plugin.

    Raises:
        PluginError: if the file has no entry, or one that is not as described; the error names both.
    """
    found: dict[str, Divergence] = {}
    for heading, *lines in _sections(Path(path).read_text(encoding="utf-8")):
        title = heading.removeprefix("## ").strip()
        where = f"{path}, below the heading {title!r}"
        fields: dict[str, Any] = {}
        listed, _, text = "\n".join(lines).strip("\n").partition("\n\n")
        for line in listed.splitlines():
            field = _FIELD.fullmatch(line)
            if field is None or field[1] in fields:
                msg = f"{where}: {line!r:.80} is no field; write `- field: value`, each of {', '.join(_FIELDS)} once"
                raise PluginError(msg)
            fields[field[1]] = field[2]
        if "scenarios" in fields:
            fields["scenarios"] = tuple(item.strip(" `") for item in fields["scenarios"].split(","))
        try:
            entry = Divergence(**{"name": "", **fields}, title=title, text=text + "\n")
        except PluginError as error:
            msg = f"{where}: {error}"
            raise PluginError(msg) from error
        if entry.name in found:
            msg = f"{where}: an entry before it has the name {entry.name!r}; rename one"
            raise PluginError(msg)
        found[entry.name] = entry
    if not found:
        msg = f"{path} declares no divergence; open each with a heading of the second level, `## Title`"
        raise PluginError(msg)
    return found


def _sections(page: str) -> list[list[str]]:
    """Return the lines below each heading of the second level, that heading first."""
    sections: list[list[str]] = [[]]
    fenced = False
    for line in page.splitlines():
        fenced ^= line.startswith("```")
        if line.startswith("## ") and not fenced:
            sections.append([])
        sections[-1].append(line)
    return sections[1:]


# The divergences of every framework, and one that errors quote. Read when they are wanted: a program that is packed
# without data files serves values all the same.
CORE: tuple[Divergence, ...]
OBJECTS: Divergence


def __getattr__(name: str) -> Any:
    if name not in ("CORE", "OBJECTS"):
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    found = read_divergences(Path(__file__).with_name("divergences.md"))
    globals().update(CORE=tuple(found.values()), OBJECTS=found["objects"])
    return globals()[name]
