"""The command line: `python -m adprotocol`, also installed as `adprotocol`.

Exit status 0 means all well, 1 that a check failed, 2 wrong usage, 130 an interrupt.
"""

from __future__ import annotations

import argparse
import os
import sys

import adprotocol
from adprotocol._cli import doctor, info, terminal
from adprotocol._dispatch.registry import REGISTRY


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit status; wrong usage exits with 2."""
    try:
        return terminal.interruptible("adprotocol", lambda: _main(argv))
    except BrokenPipeError:
        # The reader has gone (`head`, say). The unwritten rest must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _main(argv: list[str] | None) -> int:
    parser = _parser()
    arguments, rest = parser.parse_known_args(argv)
    if arguments.command == "demo":
        return _demo(rest)
    if arguments.command == "conformance":
        return _conformance(rest)
    if rest:
        parser.error(f"{arguments.command} does not take {' '.join(rest)}; see adprotocol {arguments.command} --help")
    if arguments.command == "doctor":
        return _doctor()
    return _info(as_json=arguments.json, import_frameworks=arguments.import_frameworks, verbose=arguments.verbose)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="adprotocol",
        description="List the plugins of adprotocol, check them, run the conformance suite, or see a demonstration.",
    )
    parser.add_argument("--version", action="version", version=f"adprotocol {adprotocol.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    info_parser = commands.add_parser("info", help="list the plugins and their state")
    info_parser.add_argument("--json", action="store_true", help="write JSON, for programs")
    info_parser.add_argument(
        "--no-import",
        dest="import_frameworks",
        action="store_false",
        help="do not import the installed frameworks: quick, but does not show whether their plugins work",
    )
    info_parser.add_argument("--verbose", action="store_true", help="list the hooks of each plugin, too")
    commands.add_parser("doctor", help="check the installation; show each problem with its remedy")
    # The demonstration parses its own arguments, including --help.
    commands.add_parser(
        "demo",
        help="run one model file under every framework that is installed, and compare",
        add_help=False,
    )
    commands.add_parser("conformance", help="run the conformance suite on a plugin, and report", add_help=False)
    return parser


def _info(*, as_json: bool, import_frameworks: bool, verbose: bool) -> int:
    facts = info.collect(REGISTRY, import_frameworks=import_frameworks)
    if as_json:
        info.write_json(facts, sys.stdout)
    else:
        info.write_text(facts, sys.stdout, verbose=verbose)
    return 0


def _doctor() -> int:
    checks = list(doctor.diagnose(info.collect(REGISTRY, import_frameworks=True), REGISTRY))
    terminal.write((line for check in checks for line in check.lines()), sys.stdout, 9)
    problems = sum(bool(check.remedy) for check in checks)
    sys.stdout.write(f"{len(checks)} checks, {problems} problem(s)\n")
    return 1 if problems else 0


def _demo(argv: list[str]) -> int:
    # The matrices are small: a second thread gains nothing, and on a busy machine the two wait for each other fifty
    # times as long as the work takes. NumPy and PyTorch read it at import.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from adprotocol._demo import run  # noqa: PLC0415  (the other commands do not need it)

    return run.main(argv)


def _conformance(argv: list[str]) -> int:
    from adprotocol.conformance import _command as command  # noqa: PLC0415  (the other commands do not need it)

    return command.main(argv)


if __name__ == "__main__":
    raise SystemExit(main())
