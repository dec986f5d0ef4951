"""The command line: `python -m adprotocol`, also installed as `adprotocol`.

Exit status 0 means all well, 1 that a check failed, 2 wrong usage, 130 an interrupt.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module

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
    parser = argparse.ArgumentParser(
        prog="adprotocol",
        description="List the plugins of adprotocol, check them, run the conformance suite, or see a demonstration.",
    )
    parser.add_argument("--version", action="version", version=f"adprotocol {adprotocol.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
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
    commands.add_parser("demo", help="run one model file under every framework that is installed, and compare")
    # It parses its own arguments, including --help.
    commands.add_parser("conformance", help="run the conformance suite on a plugin, and report", add_help=False)
    arguments, rest = parser.parse_known_args(argv)
    if arguments.command == "conformance":
        return int(import_module("adprotocol.conformance._command").main(rest))
    if rest:
        program = " ".join(filter(None, ["adprotocol", arguments.command]))
        parser.error(f"{program} does not take {' '.join(rest)}; see {program} --help")
    if arguments.command is None:
        parser.print_help()
        return 0
    if arguments.command == "demo":
        # The matrices are small: a second thread gains nothing, and on a busy machine the two wait for each other fifty
        # times as long as the work takes. NumPy and PyTorch read it at import.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        return int(import_module("adprotocol._demo.run").main())
    if arguments.command == "doctor":
        return doctor.main(REGISTRY, sys.stdout)
    facts = info.collect(REGISTRY, import_frameworks=arguments.import_frameworks)
    if arguments.json:
        info.write_json(facts, sys.stdout)
    else:
        info.write_text(facts, sys.stdout, verbose=arguments.verbose)
        sys.stdout.write(f"next: {doctor.next_step(facts, REGISTRY)}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
