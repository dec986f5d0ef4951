"""The generated parts of the pages: what the code and the recorded results know.

The build of the documentation writes them into ``docs/generated`` (see `conf`), where
pages include them; they are not in version control. ``python docs/generate.py`` writes
them too. A further part is a function that returns its text, and an entry in `PARTS`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from adprotocol import divergence, errors
from adprotocol._dispatch import registry, release
from adprotocol.conformance import all_scenarios, to_html
from adprotocol.conformance.scenario import HOOKS

# A script beside this one; tests load this file from elsewhere.
sys.path.insert(0, str(Path(__file__).parent))
import pictures
import support as recorded
import support_matrix
from matrix_picture import matrix_to_svg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from adprotocol.conformance import Report, Scenario
    from adprotocol.extend import Divergence

GENERATED = Path(__file__).parent / "generated"

RELEASES = Path(__file__).parent / "releases.json"
PROJECT = Path(__file__).parent.parent / "pyproject.toml"

# The frameworks whose plugins ship with this distribution, in the order of the pages, with their names.
FRAMEWORKS = {"torch": "PyTorch", "autograd": "autograd", "jax": "JAX"}


def divergences() -> str:
    """Return the declared divergences, a section for each framework."""
    for framework in FRAMEWORKS:
        importlib.import_module(framework)
    registry.REGISTRY.refresh()
    known = registry.REGISTRY.known()
    sections = [_section(title, known[name].divergences()) for name, title in FRAMEWORKS.items()]
    return "\n".join([*sections, _section("All frameworks", divergence.CORE)])


def _section(title: str, entries: Iterable[Divergence]) -> str:
    return "\n".join([f"## {title}\n", *(f"### {entry.title}\n\n{entry.text.strip()}\n" for entry in entries)])


def scenarios() -> str:
    """Return the scenarios of the conformance suite, a section for each hook."""
    known = all_scenarios()
    parts = [f"There are {len(known)} scenarios.\n"]
    for hook in HOOKS:
        own = [scenario for scenario in known.values() if scenario.hook == hook]
        parts.append(f"## {hook}\n\n| scenario | | rule | what is asked | needs |\n|---|---|---|---|---|")
        parts.extend(_row(scenario) for scenario in own)
        parts.append("\nWhere they come from:\n")
        parts.extend(_origin(own))
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _row(scenario: Scenario) -> str:
    cells = (
        f"`{scenario.name}`",
        scenario.level,
        scenario.rule,
        " ".join(scenario.description.split()),
        ", ".join(scenario.needs),
    )
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _origin(own: Iterable[Scenario]) -> Iterator[str]:
    """Group the scenarios that come from the same source."""
    grouped: dict[str, list[str]] = {}
    for scenario in own:
        grouped.setdefault(scenario.source, []).append(scenario.name)
    for source, names in grouped.items():
        link = re.sub(r"https?://[^\s,)]*[^\s,).;:]", r"<\g<0>>", source.replace("<", "&lt;"))
        yield f"- {link}: {', '.join(f'`{name}`' for name in names)}"


def support() -> str:
    """Return the results of the plugins in a sentence each, and the support matrix as tables."""
    parts = ("", recorded.reports()), ("By third parties' plugins:\n", recorded.others())
    lines = [
        "\n".join(
            [
                *filter(None, [head]),
                *(f"- {report.backend} {report.framework_version}: {report.sentence()}." for report in found),
            ]
        )
        for head, found in parts
        if found
    ]
    return "\n\n".join([*lines, support_matrix.to_markdown(_matrix(*recorded.reports(), *recorded.others()))])


def support_summary() -> str:
    """Return the table of hooks by transformations for the three frameworks."""
    return support_matrix.summary(_matrix(*recorded.reports(pictures.FRAMEWORKS)))


def _matrix(*reports: Report) -> support_matrix.Matrix:
    return support_matrix.Matrix.of({report.backend: report for report in reports})


SUPPORT_TABLE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>adprotocol: support</title>
<style>
body {{ font-family: system-ui, sans-serif; margin: 2rem; }}
svg {{ max-width: 100%; height: auto; }}
.wide {{ overflow-x: auto; }}
</style>
</head>
<body>
<h1>What the plugins of adprotocol support</h1>
{picture}
<div class="wide" tabindex="0">
{table}
</div>
</body>
</html>
"""


def support_table() -> str:
    """Return the support matrix as a self-contained page: the picture, and a table that names the scenarios."""
    matrix = _matrix(*recorded.reports(), *recorded.others())
    return SUPPORT_TABLE.format(picture=support_picture(), table=support_matrix.to_html(matrix))


def table_of(backend: str) -> str:
    """Return the page of a plugin's record: hooks by transformations, and the scenarios to which each cell leads."""
    (report,) = recorded.reports([backend])
    named = dataclasses.replace(report, plugin="adprotocol", plugin_version=report.adprotocol)
    return to_html(dataclasses.replace(named, python="of the record", platform="not recorded"))


def support_picture() -> str:
    """Return the picture of the support matrix of the three frameworks."""
    return matrix_to_svg(_matrix(*recorded.reports(pictures.FRAMEWORKS)))


def others_picture() -> str:
    """Return that of the plugins of others."""
    return matrix_to_svg(_matrix(*recorded.others()))


def error_index() -> str:
    """Return an entry of the index for each error, so that the search shows the page first."""
    names = [name for name, value in vars(errors).items() if isinstance(value, type)]
    return f"```{{index}} {', '.join(f'! {name}' for name in (*names, 'UsageError', 'BrokenBackend'))}\n```\n"


def cuda(path: Path = recorded.FOLDER / "cuda.json") -> str:
    """Return the record of the last run on a CUDA device, or that there is none."""
    if not path.exists():
        return "Not run on a GPU yet: there is no record.\n"
    found = json.loads(path.read_text(encoding="utf-8"))
    machine, tests, suites = found["machine"], found["tests"], found["conformance"]
    first = (
        f"The last record is of a {machine['device']} (compute capability {machine['capability']}), with PyTorch "
        f"{machine['torch']}, CUDA {machine['cuda']} and Python {machine['python']}:\n"
    )
    lines = [
        first,
        f"- tests: {tests['passed']} passed, {tests['failed']} failed, {tests['skipped']} skipped",
        *(f"  - not passed: `{name}`" for name in tests["not passed"]),
        *(f"- conformance of {suite['framework']} on {suite['device']}: {suite['summary']}" for suite in suites),
    ]
    return "\n".join(lines) + "\n"


def ranges() -> str:
    """Return the oldest release of each framework by the metadata, and the newest of the record, as a table."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    points = [point["versions"] for point in json.loads(RELEASES.read_text(encoding="utf-8")).values() if point["ok"]]
    lines = ["| framework | oldest | newest tried |", "|---|---|---|"]
    for name, title in sorted(FRAMEWORKS.items(), key=lambda item: item[1].lower()):
        newest = max((versions[name] for versions in points if name in versions), key=release.numbers)
        lines.append(f"| {title} | {release.parsed(extras[name][0])[1]} | {newest} |")
    needed = [*project["dependencies"], *(one for one in extras["conformance"] if one.startswith("numpy"))]
    beside = ", ".join(" ".join(release.parsed(one)) for one in needed)
    return "\n".join([*lines, "", f"Beside them, or newer: {beside}."]) + "\n"


def releases(path: Path = RELEASES) -> str:
    """Return the record of the releases as a table, a row for each environment."""
    lines = ["| environment | Python | releases | conformance | the plugin's tests |", "|---|---|---|---|---|"]
    for point in json.loads(path.read_text(encoding="utf-8")).values():
        versions = ", ".join(f"{name} {version}" for name, version in point["versions"].items())
        tests = ", ".join(f"{count} {word}" for word, count in point["tests"].items()) or "not run"
        mark = "" if point["ok"] else "**failed**: "
        lines.append(f"| {point['point']} | {point['python']} | {versions} | {mark}{point['suite']} | {tests} |")
    return "\n".join(lines) + "\n"


# Each generated part by its file name, with the function that returns its text.
PARTS: dict[str, Callable[[], str]] = {
    "cuda.md": cuda,
    "divergences.md": divergences,
    "scenarios.md": scenarios,
    "support.md": support,
    "error-index.md": error_index,
    "ranges.md": ranges,
    "releases.md": releases,
    "support-hooks.md": support_summary,
    "support-matrix.svg": support_picture,
    "support-others.svg": others_picture,
    "support-matrix.html": support_table,
    **{f"hooks-{backend}.html": functools.partial(table_of, backend) for backend in recorded.BACKENDS},
    "benchmarks.svg": pictures.ratios,
    "growth.svg": pictures.growth,
}


def main(folder: Path = GENERATED) -> None:
    """Write the parts into a folder; one that would not change is left alone, so that Sphinx does not read it again."""
    folder.mkdir(exist_ok=True)
    for name, generate in PARTS.items():
        path, text = folder / name, generate()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
