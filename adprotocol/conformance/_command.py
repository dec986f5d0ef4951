"""The command ``python -m adprotocol conformance``.

Exit status 0 means that nothing is wrong, 1 that something is (a scenario, the
harness, the plugin or its divergences), 2 wrong usage, 130 an interrupt by the
user: the report has what ran until then.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from adprotocol.conformance._reports import badge, text, written
from adprotocol.conformance._reports.progress import Progress
from adprotocol.conformance._run import declared, result, runner, suite
from adprotocol.conformance._run.backend import BrokenBackend, UsageError, names, of
from adprotocol.conformance._run.case import Case, select
from adprotocol.conformance._run.suite import Interrupted
from adprotocol.conformance.harness import CAPABILITIES
from adprotocol.conformance.scenario import LEVELS, MAY
from adprotocol.conformance.scenarios import all_scenarios

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from adprotocol.conformance._run.result import Problem, Report, Result

# Seconds beyond the limit of a scenario: a whole step is measured, reports included.
_GRACE = 30.0
# A day: faulthandler has an upper limit.
_LONGEST = 86400.0

# The status that shells give an interrupted program.
INTERRUPTED = 130


def main(argv: list[str]) -> int:
    """Run the command and return its exit status; wrong usage exits with 2."""
    try:
        return _main(argv)
    except KeyboardInterrupt:
        sys.stderr.write("adprotocol conformance: interrupted\n")
        return INTERRUPTED


def _main(argv: list[str]) -> int:
    parser = _parser()
    arguments = parser.parse_args(argv)
    files = _files(arguments, parser)
    if arguments.list and files:
        parser.error("--list runs nothing, so there is nothing to report")
    given = [name for name in (arguments.backend, arguments.harness) if name is not None]
    if len(given) != 1 and (given or not arguments.list):
        parser.error(f"name one backend ({', '.join(names())}), or a harness with --harness MODULE:CLASS")
    if arguments.harness is not None and ":" not in arguments.harness:
        parser.error(f"--harness {arguments.harness!r} is not of the form MODULE:CLASS")
    try:
        if arguments.list:
            return _list(arguments, parser)
        report, interrupted = _run(arguments)
    except UsageError as error:
        parser.error(str(error))
    except BrokenBackend as error:
        sys.stderr.write(f"adprotocol conformance: {error}\n")
        return 1
    if not report.results and not interrupted:
        parser.error(f"nothing is selected by {_selection(arguments)}; --list shows what there is")
    # A report on standard output must not be mixed with text for people.
    if "-" not in files.values():
        text.write(report, sys.stdout, verbose=arguments.verbose)
    saved = [_save(_WRITERS[name](report), target) for name, target in files.items()]
    if interrupted:
        sys.stderr.write(f"adprotocol conformance: {interrupted}\n")
        return INTERRUPTED
    return 0 if report.ok and all(saved) else 1


def _run(arguments: argparse.Namespace) -> tuple[Report, str]:
    """Return the report, and the message of an interrupt by the user if there was one."""
    with _prints_apart(), Progress() as progress, _watch(arguments.time_limit) as watch:

        def start(total: int) -> None:
            watch()
            progress.start(total)

        def advance(result: Result) -> None:
            watch()
            progress.advance(result)

        try:
            report = suite.run(
                arguments.backend or arguments.harness,
                keywords=arguments.keywords,
                level=arguments.level,
                device=arguments.device,
                seconds=arguments.time_limit,
                on_start=start,
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


@contextlib.contextmanager
def _watch(seconds: float) -> Iterator[Callable[[], None]]:
    """Yield a function to call while the run makes progress; if it is not called, the process ends with its stack.

    This is for code that hangs holding the interpreter's lock, which no thread can time. Before the first scenario
    every capability may take its time.
    """

    def watch(times: int = 2) -> None:
        limit = min(times * seconds + _GRACE, _LONGEST)
        if sys.__stderr__ is not None:
            faulthandler.dump_traceback_later(limit, exit=True, file=sys.__stderr__)

    watch(2 * len(CAPABILITIES))
    try:
        yield watch
    finally:
        faulthandler.cancel_dump_traceback_later()


_WRITERS: dict[str, Callable[[Report], str]] = {
    "json": result.to_json,
    "html": written.to_html,
    "markdown": written.to_markdown,
    "badge": badge.to_badge,
    "draft_divergences": declared.draft,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="adprotocol conformance",
        description="Run the conformance suite on the plugin of an AD system, or on numpy, and report.",
        epilog="exit status: 0 all well; 1 a scenario, the harness, the plugin or a divergence failed; 2 wrong usage",
    )
    parser.add_argument(
        "backend", nargs="?", metavar="BACKEND", help="the name of a plugin, as `info` shows it; or numpy"
    )
    parser.add_argument("--harness", metavar="MODULE:CLASS", help="use this harness instead of that of the plugin")
    for name, what in (
        ("json", "the whole report, for programs"),
        ("html", "one self-contained page (needs Jinja2)"),
        ("markdown", "Markdown (needs Jinja2)"),
        ("badge", "a badge, as the JSON that shields.io reads"),
        ("draft-divergences", "Python that declares what fails, for a person to give the reasons"),
    ):
        parser.add_argument(f"--{name}", metavar="FILE", help=f"write {what}; - is standard output")
    parser.add_argument(
        "-k",
        dest="keywords",
        action="append",
        default=[],
        metavar="WORD",
        help="run only what has this word in its id, transform or rule; a glob if it has * ? or [; may be repeated",
    )
    parser.add_argument(
        "--level", choices=LEVELS, default=MAY, help="leave out scenarios less binding than this (default: %(default)s)"
    )
    parser.add_argument("--device", help="the device of the arrays, one that the harness names")
    parser.add_argument(
        "--time-limit",
        type=_seconds,
        default=runner.SECONDS,
        metavar="SECONDS",
        help="time limit of each scenario (default: %(default)g)",
    )
    parser.add_argument(
        "--list", action="store_true", help="list the scenarios, those of BACKEND if given, and run none"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="show the traceback of each failure")
    return parser


def _seconds(given: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < float(given) <= runner.LONGEST:
            return float(given)
    msg = f"{given!r} is not a positive number of seconds"
    raise argparse.ArgumentTypeError(msg)


def _files(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> dict[str, str]:
    """Return the file of each report that was asked for; one that cannot be written is an error before the run."""
    given = {name: getattr(arguments, name) for name in _WRITERS}
    files = {name: target for name, target in given.items() if target is not None}
    if files.get("badge", "").endswith(".svg"):
        parser.error(f"--badge {files['badge']}: a badge is JSON, from which shields.io draws the image")
    if {"html", "markdown"} & set(files):
        try:
            written.need_jinja2()
        except UsageError as error:
            parser.error(str(error))
    if list(files.values()).count("-") > 1:
        parser.error("only one report can go to standard output")
    taken: dict[Path, str] = {}
    for name, target in files.items():
        if target == "-":
            continue
        wrong = _unwritable(Path(target))
        if wrong:
            parser.error(f"--{_option(name)} {target}: {wrong}")
        other = taken.setdefault(Path(target).resolve(), name)
        if other != name:
            parser.error(f"--{_option(other)} and --{_option(name)} both write {target}")
    return files


def _option(name: str) -> str:
    return name.replace("_", "-")


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


def _save(content: str, target: str) -> bool:
    """Write a report and return whether it could be; a lone surrogate is written as its escape."""
    if target == "-":
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        sys.stdout.write(content.encode(encoding, "backslashreplace").decode(encoding))
        return True
    try:
        Path(target).write_text(content, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        sys.stderr.write(f"adprotocol conformance: {target} could not be written: {error}\n")
        return False
    return True


def _selection(arguments: argparse.Namespace) -> str:
    words = " ".join(f"-k {word!r}" for word in arguments.keywords)
    return f"{words} --level {arguments.level}".strip()


def _list(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """List the cases of a backend, or without one every scenario."""
    given = arguments.backend or arguments.harness
    problems: list[Problem] = []
    every = list(map(Case, all_scenarios().values()))
    if given is not None:
        with _prints_apart():
            listing = runner.Runner(of(given, arguments.device), arguments.time_limit)
            try:
                every = listing.survey.cases()
            finally:
                listing.survey.close()
        problems = listing.survey.problems
    chosen = select(every, arguments.keywords, arguments.level)
    if not chosen:
        parser.error(f"no scenario has {', '.join(map(repr, arguments.keywords))}")
    for case in chosen:
        sys.stdout.write(_line(case))
    sys.stdout.write(f"{len(chosen)} scenarios\n")
    for problem in problems:
        sys.stderr.write(f"adprotocol conformance: {problem.where}: {problem.message}\n")
    return 1 if problems else 0


def _line(case: Case) -> str:
    scenario = case.scenario
    needs = f" [{', '.join(scenario.needs)}]" if scenario.needs else ""
    return f"{scenario.level:<6} {scenario.rule:<3} {case.id}  {scenario.summary}{needs}\n"
