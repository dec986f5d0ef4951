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
from typing import TYPE_CHECKING, Any

from adprotocol.errors import PluginError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

# How the scenarios of a divergence fail: with an error, or with another answer and no error.
ERROR, WRONG = "error", "wrong"


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
        errors: of an error, the name of its class or words of its message, one for each that may come. Another
            error is not an expected failure; without `errors` any is, but one that the harness raises.

    """

    name: str
    title: str
    text: str
    remedy: str = ""
    scenarios: tuple[str, ...] = ()
    outcome: str = ERROR
    errors: tuple[str, ...] = ()


def read_divergences(path: str | Path | Traversable) -> dict[str, Divergence]:
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
        path: the file, ``importlib.resources.files("adprotocol_mysystem") / "divergences.md"`` in a plugin, so that
            one in an archive is read too.

    Raises:
        PluginError: if an entry has other fields, or lines that are none; the error names it and the file.
    """
    found: dict[str, Divergence] = {}
    file = Path(path) if isinstance(path, str) else path
    for section in re.split(r"(?m)^## ", file.read_text(encoding="utf-8"))[1:]:
        title, _, entry = section.partition("\n")
        listed, _, text = entry.strip("\n").partition("\n\n")
        try:
            fields: dict[str, Any] = dict(line.removeprefix("- ").split(": ", 1) for line in listed.splitlines())
            for several in {"scenarios", "errors"} & fields.keys():
                fields[several] = tuple(item.strip(" `") for item in fields[several].split(","))
            declared = Divergence(**fields, title=title.strip(), text=text + "\n")
        except (TypeError, ValueError) as error:
            raise PluginError(
                f"{path}, below the heading {title!r}: {error}; write `- field: value` for name, remedy, outcome, "
                "errors and scenarios, an empty line, and the text"
            ) from error
        found[declared.name] = declared
    return found


# The divergences of every framework, and one that errors quote. Read when they are wanted: a program that is packed
# without data files serves values all the same.
CORE: tuple[Divergence, ...]
OBJECTS: Divergence


def __getattr__(name: str) -> Any:
    if name not in ("CORE", "OBJECTS"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.resources import files  # noqa: PLC0415  (5 ms, for what few programs ask)

    found = read_divergences(files("adprotocol") / "divergences.md")
    globals().update(CORE=tuple(found.values()), OBJECTS=found["objects"])
    return globals()[name]
