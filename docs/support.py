"""The record of what the plugins support: the JSON of the conformance suite, cut to what changes only with the code.

``python docs/support.py`` runs the suite on each plugin and writes
``docs/support/NAME.json``, and the figures of the README and the front page;
``--check`` writes nothing, shows what differs, and exits with 1 if something does.
`generate` draws the support matrix from these files.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adprotocol.conformance import all_scenarios
from adprotocol.conformance._run.result import NOT_APPLICABLE, SCHEMA, Report, Result
from adprotocol.divergence import Divergence

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from adprotocol.conformance import Scenario


FOLDER = Path(__file__).parent / "support"
BACKENDS = ("jax", "torch", "autograd", "numpy")
# The records of the plugins in examples/plugins, which `make plugins` writes.
OTHERS = FOLDER / "plugins"
# The pages that say how many scenarios run, in the words of `figures`.
ROOT = Path(__file__).parent.parent
SHOWN = (ROOT / "README.md", ROOT / "docs" / "index.md")
FIGURES = re.compile(r"[\d,]+ scenarios on JAX, [\d,]+ on PyTorch and [\d,]+ on autograd")
KEPT = ("id", "outcome", "staged", "divergence")


def measure(backend: str, *options: str) -> dict[str, Any]:
    """Return the JSON of the suite for a backend, run with options in processes of its own on two CPU devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    done = subprocess.run(
        [sys.executable, "-m", "adprotocol", "conformance", backend, "--json", "-", *options],
        check=False,
        stdout=subprocess.PIPE,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def record(data: dict[str, Any]) -> dict[str, Any]:
    """Return what is kept of the JSON of the suite: no times, no machine."""
    results = [{key: result[key] for key in KEPT if result[key]} for result in data["results"]]
    wanted = {result["divergence"] for result in data["results"]}
    titles = {entry["name"]: entry for entry in data["divergences"] if entry["name"] in wanted}
    return {
        "schema": data["schema"],
        "backend": data["backend"],
        "framework_version": data["framework_version"].partition("+")[0],
        "ok": data["ok"],
        "divergences": [{key: entry[key] for key in ("name", "title", "outcome")} for entry in titles.values()],
        "results": results,
    }


def text_of(recorded: dict[str, Any]) -> str:
    """Return the text of a record, a line for each result."""
    head = {key: value for key, value in recorded.items() if key != "results"}
    lines = ",\n".join(f"  {json.dumps(result)}" for result in recorded["results"])
    return f'{json.dumps(head, indent=1)[:-2]},\n "results": [\n{lines}\n ]\n}}\n'


def reports(backends: Iterable[str] = BACKENDS) -> list[Report]:
    """Return the recorded reports, with the data that each scenario has now."""
    return [_report(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))) for name in backends]


def others() -> list[Report]:
    """Return the recorded reports of third parties' plugins, by name."""
    return [_report(json.loads(path.read_text(encoding="utf-8"))) for path in sorted(OTHERS.glob("*.json"))]


def _report(recorded: dict[str, Any]) -> Report:
    if recorded["schema"] != SCHEMA:
        msg = f"docs/support/{recorded['backend']}.json has schema {recorded['schema']}; run `make support`"
        raise ValueError(msg)
    known = all_scenarios()
    ids = [entry["id"].partition("@")[0] for entry in recorded["results"]]
    # A third party's record may be of an earlier suite, with scenarios that are no more.
    pairs = zip(recorded["results"], ids, strict=True)
    results = [_result(entry, known[scenario]) for entry, scenario in pairs if scenario in known]
    divergences = [Divergence(text="Not recorded.", **entry) for entry in recorded["divergences"]]
    return Report(
        backend=recorded["backend"],
        framework_version=recorded["framework_version"],
        total=len(results),
        results=tuple(results),
        divergences=tuple(divergences),
    )


def _result(entry: dict[str, Any], scenario: Scenario) -> Result:
    message = "the harness lacks a capability" if entry["outcome"] == NOT_APPLICABLE else ""
    return Result.of(scenario, message=message, **entry)


def difference(name: str, text: str) -> str:
    """Return how a record differs from the file; empty if it does not."""
    path = FOLDER / f"{name}.json"
    now = path.read_text(encoding="utf-8") if path.exists() else ""
    return "\n".join(difflib.unified_diff(now.splitlines(), text.splitlines(), path.name, "now", lineterm="", n=0))


def figures() -> str:
    """Return how many scenarios of the records ran, as the README and the front page say it."""
    jax, torch, autograd = (f"{report.ran:,}" for report in reports(("jax", "torch", "autograd")))
    return f"{jax} scenarios on JAX, {torch} on PyTorch and {autograd} on autograd"


def main(argv: Sequence[str] | None = None) -> int:
    """Write or check the records; return 1 if one that is checked differs, or a plugin does not conform."""
    parser = argparse.ArgumentParser(description="Run the conformance suite on each plugin and record the results.")
    parser.add_argument("backends", nargs="*", default=BACKENDS, help="names of plugins (default: all of this package)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a record differs")
    arguments = parser.parse_args(argv)
    status = 0
    for name in arguments.backends:
        data = measure(name)
        sys.stdout.write(f"{name}: {data['summary']['sentence']} in {data['seconds']:.0f} s\n")
        text = text_of(record(data))
        changes = difference(name, text)
        status |= not data["ok"]
        if changes and arguments.check:
            sys.stdout.write(changes + "\n")
            status = 1
        elif changes:
            FOLDER.mkdir(exist_ok=True)
            (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")
    if not arguments.check:
        for page in SHOWN:
            page.write_text(FIGURES.sub(figures(), page.read_text(encoding="utf-8")), encoding="utf-8")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
