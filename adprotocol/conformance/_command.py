"""The command ``python -m adprotocol conformance``.

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
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from adprotocol._cli import terminal
from adprotocol.conformance._reports import badge, text, written
from adprotocol.conformance._reports.text import Progress
from adprotocol.conformance._reports.words import encodable
from adprotocol.conformance._run import declared, result, runner, supervisor
from adprotocol.conformance._run.backend import BrokenBackend, UsageError, names, of
from adprotocol.conformance._run.case import Case, select
from adprotocol.conformance._run.suite import Interrupted
from adprotocol.conformance._run.survey import Survey
from adprotocol.conformance.scenario import LEVELS, MAY
from adprotocol.conformance.scenarios import all_scenarios

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from adprotocol.conformance._run.result import Report, Result

# So many processes at most, unless more are asked for: each holds the framework.
MOST = 4
# The reports that can be written to a file, by option: what each is, and who writes it.
_REPORTS: dict[str, tuple[str, Callable[[Report], str]]] = {
    "json": ("the whole report, for programs", result.to_json),
    "html": ("one self-contained page (needs Jinja2)", written.to_html),
    "markdown": ("Markdown (needs Jinja2)", written.to_markdown),
    "badge": ("a badge, as the JSON that shields.io reads", badge.to_badge),
    "draft-divergences": ("Markdown that declares what fails, for a person to give the reasons", declared.draft),
}


def main(argv: list[str]) -> int:
    """Run the command and return its exit status; wrong usage exits with 2."""
    return terminal.interruptible("adprotocol conformance", lambda: _main(argv))


def _main(argv: list[str]) -> int:
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        files, backend = _files(arguments), _backend(arguments)
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
    add("--lines", metavar="FILE", help="write each result as it comes, a line of JSON")
    words = "run only what has this word in its id, transform or rule; a glob if it has * ? or [; may be repeated"
    add("-k", dest="keywords", action="append", default=[], metavar="WORD", help=words)
    level = "leave out scenarios less binding than this (default: %(default)s)"
    add("--level", choices=LEVELS, default=MAY, help=level)
    add("--device", help="the device of the arrays, one that the harness names")
    limit = "time limit of each scenario (default: %(default)g)"
    add("--time-limit", type=_seconds, default=runner.SECONDS, metavar="SECONDS", help=limit)
    jobs = "run the scenarios in so many processes beside each other (default: %(default)s, a core each)"
    add("--jobs", type=_count, default=min(os.cpu_count() or 1, MOST), metavar="N", help=jobs)
    add("--list", action="store_true", help="list the scenarios, those of BACKEND if given, and run none")
    add("-v", "--verbose", action="store_true", help="show the traceback of each failure")
    return parser


def _seconds(given: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < float(given) <= runner.LONGEST:
            return float(given)
    raise argparse.ArgumentTypeError(f"{given!r} is not a positive number of seconds")


def _count(given: str) -> int:
    if given.isdecimal() and int(given):
        return int(given)
    raise argparse.ArgumentTypeError(f"{given!r} is not a positive number")


def _backend(arguments: argparse.Namespace) -> str:
    """Return the name of the backend or the path of the harness; an empty text if a list does without."""
    if arguments.backend is None and arguments.harness is None and not arguments.list:
        raise UsageError(f"name one backend ({', '.join(names())}), or a harness with --harness MODULE:CLASS")
    if arguments.harness is not None and ":" not in arguments.harness:
        raise UsageError(f"--harness {arguments.harness!r} is not of the form MODULE:CLASS")
    return arguments.harness or arguments.backend or ""


def _files(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the file of each report that was asked for; one that cannot be written is an error before the run."""
    known = (*_REPORTS, "lines")
    files = {name: target for name, target in vars(arguments).items() if name in known and target is not None}
    if arguments.list and files:
        raise UsageError("--list runs nothing, so there is nothing to report")
    if files.get("badge", "").endswith(".svg"):
        raise UsageError(f"--badge {files['badge']}: a badge is JSON, from which shields.io draws the image")
    if {"html", "markdown"} & set(files):
        written.need_jinja2()
    if files.get("lines") == "-":
        raise UsageError("--lines writes to a file, which holds what ran whatever ends the run")
    if list(files.values()).count("-") > 1:
        raise UsageError("only one report can go to standard output")
    taken: dict[Path, str] = {}
    for name, target in files.items():
        if target == "-":
            continue
        if wrong := _unwritable(Path(target)):
            raise UsageError(f"--{name} {target}: {wrong}")
        other = taken.setdefault(Path(target).resolve(), name)
        if other != name:
            raise UsageError(f"--{other} and --{name} both write {target}")
    return files


def _unwritable(path: Path) -> str:
    """Return why a file cannot be written, as far as that is known without writing; else an empty text."""
    try:
        if path.is_dir():
            return "it is a folder"
        if not path.parent.is_dir():
            return f"there is no folder {path.parent}"
    except OSError as error:
        return str(error.strerror)
    place = path if path.exists() else path.parent
    return "" if os.access(place, os.W_OK) else f"{place} is not writable"


def _list(arguments: argparse.Namespace, backend: str) -> int:
    """List the cases of a backend, or without one every scenario."""
    problems, every = [], list(map(Case, all_scenarios().values()))
    if backend:
        found = of(backend, arguments.device)
        with _prints_apart(), contextlib.closing(Survey(found, arguments.time_limit)) as survey:
            every, problems = survey.cases(), survey.problems
    chosen = select(every, arguments.keywords, arguments.level)
    if not chosen:
        raise UsageError(f"no scenario has {', '.join(map(repr, arguments.keywords))}")
    for case in chosen:
        scenario = case.scenario
        needs = f" [{', '.join(scenario.needs)}]" if scenario.needs else ""
        sys.stdout.write(f"{scenario.level:<6} {scenario.rule:<3} {case.id}  {scenario.summary}{needs}\n")
    sys.stdout.write(f"{len(chosen)} scenarios\n")
    for problem in problems:
        sys.stderr.write(f"adprotocol conformance: {problem.where}: {problem.message}\n")
    return 1 if problems else 0


def _report(arguments: argparse.Namespace, backend: str, files: dict[str, str]) -> int:
    """Run the suite, and write the reports."""
    report, interrupted = _run(arguments, backend)
    if not report.results and not interrupted:
        words = " ".join([*(f"-k {word!r}" for word in arguments.keywords), f"--level {arguments.level}"])
        raise UsageError(f"nothing is selected by {words}; --list shows what there is")
    # A report on standard output must not be mixed with text for people.
    if "-" not in files.values():
        text.write(report, sys.stdout, verbose=arguments.verbose)
    saved = [_save(_REPORTS[name][1](report), target) for name, target in files.items() if name in _REPORTS]
    if interrupted:
        sys.stderr.write(f"adprotocol conformance: {interrupted}\n")
        return terminal.INTERRUPTED
    return 0 if report.ok and all(saved) else 1


def _run(arguments: argparse.Namespace, backend: str) -> tuple[Report, str]:
    """Return the report, and the message of an interrupt by the user if there was one."""
    with Progress() as progress, contextlib.ExitStack() as stack:
        lines = stack.enter_context(Path(arguments.lines).open("w", encoding="utf-8")) if arguments.lines else None

        def advance(found: Result) -> None:
            progress.advance(found)
            if lines is not None:
                lines.write(json.dumps(asdict(found)) + "\n")
                lines.flush()

        try:
            report = supervisor.run(
                backend,
                keywords=arguments.keywords,
                level=arguments.level,
                device=arguments.device,
                jobs=arguments.jobs,
                seconds=arguments.time_limit,
                **({"plugin": arguments.backend} if arguments.harness and arguments.backend else {}),
                on_start=progress.start,
                on_result=advance,
            )
        except Interrupted as interrupt:
            return interrupt.report, str(interrupt)
    return report, ""


@contextlib.contextmanager
def _prints_apart() -> Iterator[None]:
    """Send what frameworks and harnesses print, compiled code included, to standard error: reports use the other."""
    try:
        output, error = sys.stdout.fileno(), sys.stderr.fileno()
    except (OSError, ValueError):  # captured, or closed
        with contextlib.redirect_stdout(sys.stderr):
            yield
        return
    sys.stdout.flush()
    kept = os.dup(output)
    os.dup2(error, output)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, output)
        os.close(kept)


def _save(content: str, target: str) -> bool:
    """Write a report and return whether it could be; a lone surrogate is written as its escape."""
    if target == "-":
        sys.stdout.write(encodable(sys.stdout, content))
        return True
    try:
        Path(target).write_text(content, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        sys.stderr.write(f"adprotocol conformance: {target} could not be written: {error}\n")
        return False
    return True
