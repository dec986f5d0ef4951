"""The command ``python -m adprotocol conformance``: pytest on the suite, and its reports.

Exit status 0 means that nothing is wrong, 1 that something is (a scenario, the
harness, the plugin or its divergences), 2 wrong usage, 130 an interrupt by the
user: the report has what ran until then.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from adprotocol._cli import terminal
from adprotocol.conformance._reports import page, words, written
from adprotocol.conformance._run import backend as backends
from adprotocol.conformance._run import result
from adprotocol.conformance._run.backend import BrokenBackend, UsageError, need
from adprotocol.conformance._run.case import Case, select
from adprotocol.conformance.scenario import LEVELS, MAY
from adprotocol.conformance.scenarios import all_scenarios

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance._run.result import Report

SECONDS = 60.0
# So many processes at most, unless more are asked for: each holds the framework.
MOST = 4
# The reports that can be written to a file, by option: what each is, and who writes it.
_REPORTS: dict[str, tuple[str, Callable[[Report], str]]] = {
    "json": ("the whole report, for programs", result.to_json),
    "html": ("one self-contained page (needs Jinja2)", page.to_html),
    "markdown": ("Markdown", written.to_markdown),
    "badge": ("a badge, as the JSON that shields.io reads", written.to_badge),
}


def main(argv: list[str]) -> int:
    """Run the command and return its exit status; wrong usage exits with 2."""
    return terminal.interruptible("adprotocol conformance", lambda: _main(argv))


def _main(argv: list[str]) -> int:
    parser = _parser()
    arguments = parser.parse_args(argv)
    backend = arguments.harness or arguments.backend or ""
    files = {name: vars(arguments)[name] for name in _REPORTS if vars(arguments)[name] is not None}
    try:
        for option, number in (("--jobs", arguments.jobs), ("--time-limit", arguments.time_limit)):
            if not 0 < number < math.inf:
                parser.error(f"argument {option}: {number:g} is not a number above zero")
        if arguments.list:
            return _list(arguments, backend)
        if not backend:
            parser.error(f"name one backend ({', '.join(backends.names())}), or a harness with --harness MODULE:CLASS")
        _check_selection(arguments, backend)
        if "html" in files:
            page.need_jinja2()
        with contextlib.ExitStack() as stack:
            # What cannot be written is an error before the run. A lone surrogate is written as its escape.
            writers = {
                name: sys.stdout
                if file == "-"
                else stack.enter_context(Path(file).open("w", encoding="utf-8", errors="backslashreplace"))
                for name, file in files.items()
            }
            return _report(arguments, backend, writers)
    except BrokenPipeError:  # the reader has gone, which is not an error
        raise
    except (UsageError, OSError) as error:
        parser.error(str(error))
    except BrokenBackend as error:
        sys.stderr.write(f"adprotocol conformance: {error}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="adprotocol conformance",
        description="Run the conformance suite on the plugin of an AD system, or on numpy, and report.",
        epilog="exit status: 0 all well; 1 a scenario, the harness, the plugin or a divergence failed; 2 wrong usage",
    )
    add = parser.add_argument
    add("backend", nargs="?", metavar="BACKEND", help="the name of a plugin, as `info` shows it; or numpy")
    add("--harness", metavar="MODULE:CLASS", help="use this harness instead of that of the plugin it names")
    for name, (what, _) in _REPORTS.items():
        add(f"--{name}", metavar="FILE", help=f"write {what}; - is standard output")
    add("--since", metavar="FILE", help="say what has changed since the run that wrote FILE by --json")
    words = "run only what has this word in its id, transform or rule; a glob if it has * ? or [; may be repeated"
    add("-k", dest="keywords", action="append", default=[], metavar="WORD", help=words)
    level = "leave out scenarios less binding than this (default: %(default)s)"
    add("--level", choices=LEVELS, default=MAY, help=level)
    add("--device", help="the device of the arrays, one that the harness names")
    limit = "time limit of each scenario (default: %(default)g)"
    add("--time-limit", type=float, default=SECONDS, metavar="SECONDS", help=limit)
    jobs = "run the scenarios in so many processes beside each other (default: %(default)s, a core each)"
    add("--jobs", type=int, default=min(os.cpu_count() or 1, MOST), metavar="N", help=jobs)
    add("--list", action="store_true", help="list the scenarios, those of BACKEND if given, and run none")
    add("-v", "--verbose", action="store_true", help="show the traceback of each failure")
    return parser


def _list(arguments: argparse.Namespace, backend: str) -> int:
    """List the cases of a backend, or without one every scenario."""
    for case in (chosen := _selected(arguments, backend)):
        scenario = case.scenario
        needs = f" [{', '.join(scenario.needs)}]" if scenario.needs else ""
        sys.stdout.write(f"{scenario.level:<6} {scenario.rule:<3} {case.id}  {scenario.summary}{needs}\n")
    sys.stdout.write(f"{len(chosen)} scenarios\n")
    return 0


def _selected(arguments: argparse.Namespace, backend: str = "") -> list[Case]:
    """Return the cases of a backend, or without one the scenarios, that are asked for."""
    cases = list(map(Case, all_scenarios().values()))
    if backend:
        from adprotocol.conformance._run.run import Run  # noqa: PLC0415  (a list of every scenario does without NumPy)

        cases = Run(backends.backend_of(backend, arguments.device)).cases
    return select(cases, arguments.keywords, arguments.level)


def _check_selection(arguments: argparse.Namespace, backend: str) -> None:
    """Refuse a backend that does not exist, and a selection of nothing, before a worker starts."""
    if ":" not in backend:
        backends.refuse_unknown(backend)
    with contextlib.suppress(UsageError):
        if _selected(arguments):
            return
    # A word may be of a variant, which only the harness knows.
    if not _selected(arguments, backend):
        words_given = "".join(f" -k {word!r}" for word in arguments.keywords)
        raise UsageError(f"nothing is selected by{words_given} --level {arguments.level}; --list shows what there is")


def _report(arguments: argparse.Namespace, backend: str, writers: dict[str, TextIO]) -> int:
    """Run the suite, and write the reports."""
    for module, what in (("numpy", "NumPy"), ("pytest", "pytest"), ("xdist", "pytest-xdist")):
        need(module, f"the conformance suite needs {what}")
    from adprotocol.conformance._run import pytest_plugin  # noqa: PLC0415  (pytest is an optional dependency)

    earlier = result.read(arguments.since) if arguments.since else None
    # A report on standard output must not be mixed with text for people.
    stream = sys.stderr if sys.stdout in writers.values() else sys.stdout
    begin = time.perf_counter()
    selection = {"keywords": arguments.keywords, "level": arguments.level}
    imports = {"path": sys.path, "files": backends.expected_files()}
    options = {"backend": backend, "device": arguments.device, **selection, **imports}
    collector = pytest_plugin.Collector(backends.expression_of(backend, arguments.device), arguments.time_limit)
    with tempfile.TemporaryDirectory(prefix="adprotocol-", ignore_cleanup_errors=True) as folder:
        os.environ |= {pytest_plugin.VARIABLE: json.dumps(options), pytest_plugin.FOLDER: folder}
        status = pytest_plugin.main(collector, jobs=arguments.jobs, limit=arguments.time_limit, stream=stream)
    if collector.refusal is not None:
        raise collector.refusal
    interrupted = status == pytest_plugin.INTERRUPTED
    seconds = round(time.perf_counter() - begin, 2)
    report = collector.report(
        backend, interrupted=interrupted, seconds=seconds, level=arguments.level, keywords=tuple(arguments.keywords)
    )
    report = report if earlier is None else result.compared(report, earlier)
    shown = "\n".join(written.summary(report, verbose=arguments.verbose))
    stream.write(words.encodable(stream, f"{shown}\n"))
    for name, writer in writers.items():
        writer.write(words.encodable(writer, _REPORTS[name][1](report)))
    return terminal.INTERRUPTED if interrupted else int(not report.ok)
