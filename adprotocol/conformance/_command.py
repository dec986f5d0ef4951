"""The command ``python -m adprotocol conformance``: pytest on the suite, and its reports.

Exit status 0 means that nothing is wrong, 1 that something is (a scenario, the
harness, the plugin or its divergences), 2 wrong usage, 130 an interrupt by the
user: the report has what ran until then.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from adprotocol._cli import terminal
from adprotocol.conformance._reports import page, words, written
from adprotocol.conformance._run import result
from adprotocol.conformance._run.backend import BrokenBackend, UsageError, expression_of, names, need, of
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
    try:
        files, backend = _files(arguments), _backend(arguments)
        select((), arguments.keywords, arguments.level)
        return _list(arguments, backend) if arguments.list else _report(arguments, backend, files)
    except UsageError as error:
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
        add(f"--{name}", dest=name, metavar="FILE", help=f"write {what}; - is standard output")
    words = "run only what has this word in its id, transform or rule; a glob if it has * ? or [; may be repeated"
    add("-k", dest="keywords", action="append", default=[], metavar="WORD", help=words)
    level = "leave out scenarios less binding than this (default: %(default)s)"
    add("--level", choices=LEVELS, default=MAY, help=level)
    add("--device", help="the device of the arrays, one that the harness names")
    limit = "time limit of each scenario (default: %(default)g)"
    add("--time-limit", type=_positive, default=SECONDS, metavar="SECONDS", help=limit)
    jobs = "run the scenarios in so many processes beside each other (default: %(default)s, a core each)"
    add("--jobs", type=_count, default=min(os.cpu_count() or 1, MOST), metavar="N", help=jobs)
    add("--list", action="store_true", help="list the scenarios, those of BACKEND if given, and run none")
    add("-v", "--verbose", action="store_true", help="show the traceback of each failure")
    return parser


def _positive(argument: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < float(argument) < float("inf"):
            return float(argument)
    raise argparse.ArgumentTypeError(f"{argument!r} is not a positive number of seconds")


def _count(argument: str) -> int:
    if argument.isdecimal() and int(argument):
        return int(argument)
    raise argparse.ArgumentTypeError(f"{argument!r} is not a positive number")


def _backend(arguments: argparse.Namespace) -> str:
    """Return the name of the backend or the path of the harness; an empty text if a list does without."""
    if arguments.backend is None and arguments.harness is None and not arguments.list:
        raise UsageError(f"name one backend ({', '.join(names())}), or a harness with --harness MODULE:CLASS")
    if arguments.harness is not None and ":" not in arguments.harness:
        raise UsageError(f"--harness {arguments.harness!r} is not of the form MODULE:CLASS")
    return arguments.harness or arguments.backend or ""


def _files(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the file of each report that was asked for; one that cannot be written is an error before the run."""
    files = {name: vars(arguments)[name] for name in _REPORTS if vars(arguments)[name] is not None}
    if arguments.list and files:
        raise UsageError("--list runs nothing, so there is nothing to report")
    if "html" in files:
        page.need_jinja2()
    if list(files.values()).count("-") > 1:
        raise UsageError("only one report can go to standard output")
    for name, target in files.items():
        path = Path(target)
        if target == "-":
            continue
        if path.is_dir() or not path.parent.is_dir():
            what = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
            raise UsageError(f"--{name} {target}: {what}")
    return files


def _list(arguments: argparse.Namespace, backend: str) -> int:
    """List the cases of a backend, or without one every scenario."""
    cases = list(map(Case, all_scenarios().values()))
    if backend:
        from adprotocol.conformance._run.run import Run  # noqa: PLC0415  (a list of every scenario does without NumPy)

        with contextlib.redirect_stdout(sys.stderr):
            cases = Run(of(backend, arguments.device)).cases
    chosen = select(cases, arguments.keywords, arguments.level)
    if not chosen:
        raise UsageError(f"no scenario has {', '.join(map(repr, arguments.keywords))}")
    for case in chosen:
        scenario = case.scenario
        needs = f" [{', '.join(scenario.needs)}]" if scenario.needs else ""
        sys.stdout.write(f"{scenario.level:<6} {scenario.rule:<3} {case.id}  {scenario.summary}{needs}\n")
    sys.stdout.write(f"{len(chosen)} scenarios\n")
    return 0


def _report(arguments: argparse.Namespace, backend: str, files: dict[str, str]) -> int:
    """Run the suite, and write the reports."""
    # A report on standard output must not be mixed with text for people.
    stream = sys.stderr if "-" in files.values() else sys.stdout
    report, interrupted = _run(arguments, backend, stream)
    if not report.results and not report.problems:
        selection = " ".join([*(f"-k {word!r}" for word in arguments.keywords), f"--level {arguments.level}"])
        raise UsageError(f"nothing is selected by {selection}; --list shows what there is")
    shown = "\n".join(written.summary(report, verbose=arguments.verbose))
    stream.write(words.encodable(stream, f"{shown}\n"))
    saved = [_save(_REPORTS[name][1](report), target) for name, target in files.items()]
    if interrupted:
        return terminal.INTERRUPTED
    return 0 if report.ok and all(saved) else 1


def _run(arguments: argparse.Namespace, backend: str, stream: TextIO) -> tuple[Report, bool]:
    """Return the report, and whether the user interrupted the run."""
    for module, what in (("numpy", "NumPy"), ("pytest", "pytest"), ("xdist", "pytest-xdist")):
        need(module, f"the conformance suite needs {what}")
    from adprotocol.conformance._run import pytest_plugin  # noqa: PLC0415  (pytest is an optional dependency)

    begin = time.perf_counter()
    selection = {"keywords": arguments.keywords, "level": arguments.level}
    options = {"backend": backend, "device": arguments.device, **selection}
    collector = pytest_plugin.Collector(expression_of(backend, arguments.device), arguments.time_limit)
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
    if arguments.harness and arguments.backend and report.backend != arguments.backend:
        what = f"the harness is for {report.backend!r}, and {arguments.backend!r} was named"
        raise UsageError(f"{what}; leave that out")
    return report, interrupted


def _save(content: str, target: str) -> bool:
    """Write a report and return whether it could be; a lone surrogate is written as its escape."""
    if target == "-":
        sys.stdout.write(words.encodable(sys.stdout, content))
        return True
    try:
        Path(target).write_text(content, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        sys.stderr.write(f"adprotocol conformance: {target} could not be written: {error}\n")
        return False
    return True
