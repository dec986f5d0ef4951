"""What the `mutants.py` of the plugins share: each breaks its plugin on purpose, against the conformance suite.

    python mutants.py                every mutant: which scenario notices it first
    python mutants.py NAME ...       these alone
    python mutants.py --all NAME ... every scenario that notices it, not the first alone
    python mutants.py --quick NAME   with the scenarios of the hooks that it breaks, and no others
    python mutants.py --show NAME    what a short program prints with the plugin as it is, and with a patch
    python mutants.py --list

A name may be a pattern. Mutants are functions in `mutants.py`, and patches in `patches.toml`, whose names begin with
`patch/`: each puts another text in the place of one in the plugin, and has a program to which this makes a difference.
Their `hook` is the suite's name of it: `custom_derivative`, not `custom_rule`.

Each mutant runs in a process of its own. Scenarios of the hooks that it breaks run first. The exit status is 1 if one
survives.
"""

# ruff: noqa: S603, T201  (a script)

from __future__ import annotations

import argparse
import fnmatch
import functools
import importlib
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adprotocol.conformance import run
from adprotocol.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Break = Callable[[], None]

QUERY, CONSTANT, COND, GUARD, GRADIENT, TRAINABLE = (
    "within_gradient/*",
    "non_differentiable/*",
    "cond/*",
    "prevent_gradient/*",
    "value_and_grad/*",
    "trainable/*",
)
PRODUCTS = ("vjp/*", "jvp/*", "jacobian/*")
RULES = ("custom_derivative/*", "host_function/*")
HOOKS = (QUERY, CONSTANT, COND, GUARD, GRADIENT, TRAINABLE, *PRODUCTS, *RULES, "plugins/*")

SURVIVED = 3  # the exit status


class Noticed(Exception):  # noqa: N818
    """A scenario has noticed the mutant."""


class Mutants:
    """The mutants of one plugin."""

    def __init__(self, plugin: str, script: str) -> None:
        """Break the plugin of this name; `script` is the file that is run again for each mutant."""
        self.plugin = plugin
        self.script = script
        self.breaks: dict[str, tuple[Break, tuple[str, ...]]] = {}
        text = Path(script).with_name("patches.toml").read_text(encoding="utf-8")
        self.patches: dict[str, dict[str, str]] = {f"patch/{one['name']}": one for one in tomllib.loads(text)["patch"]}
        self.prelude: str = tomllib.loads(text)["prelude"]
        for name, patch in self.patches.items():
            self.breaks[name] = (
                _documented(functools.partial(self._apply, patch), patch["says"]),
                (patch["hook"] + "/*",),
            )

    def mutant(self, *hooks: str) -> Callable[[Break], Break]:
        """Register a function that breaks the plugin, with the hooks that it breaks."""

        def register(break_: Break) -> Break:
            self.breaks[break_.__name__.replace("_", "-")] = break_, hooks
            return break_

        return register

    def replace(self, hook: str, change: Callable[..., Any]) -> None:
        """Put another function in the place of a hook; it is given the original before the arguments."""
        module = importlib.import_module(f"adprotocol_{self.plugin}")
        setattr(module, hook, hookimpl(_changed(getattr(module, hook), change)))

    def _apply(self, patch: dict[str, str]) -> None:
        """Put a copy of the plugin with the patch before the plugin itself, which is not imported yet."""
        package = f"adprotocol_{self.plugin}"
        folder = Path(tempfile.mkdtemp())
        shutil.copytree(Path(self.script).with_name(package), folder / package)
        file = folder / package / patch["file"]
        text = file.read_text(encoding="utf-8")
        if text.count(patch["old"]) != 1:
            msg = f"{patch['file']} has not once what the patch {patch['name']} replaces"
            raise ValueError(msg)
        file.write_text(text.replace(patch["old"], patch["new"]), encoding="utf-8")
        sys.path.insert(0, str(folder))

    def show_here(self, name: str, *, applied: bool) -> None:
        """Run the program of a patch in this process."""
        if applied:
            self._apply(self.patches[name])
        exec(compile(self.prelude + self.patches[name]["show"], name, "exec"), {"__name__": name})  # noqa: S102

    def run_here(self, name: str, *, every: bool, quick: bool) -> int:
        """Break the plugin in this process, and print which scenarios notice it."""
        if name not in self.patches:  # a function changes what the plugin has, before it is asked
            importlib.import_module(f"adprotocol_{self.plugin}")
        break_, hooks = self.breaks.get(name, (None, ()))
        if break_ is not None:
            break_()
        others = [] if quick and hooks else [hook for hook in HOOKS if hook not in hooks]
        found = 0

        def on_result(result: Any) -> None:
            nonlocal found
            # A slow machine is no notice.
            if result.outcome in ("silently wrong", "fail") and result.cause != "time limit":
                found += 1
                print(f"  {result.outcome}: {result.id}: {result.message:.160}", flush=True)
                if not every:
                    raise Noticed

        try:
            for keywords in filter(None, (list(hooks), others)):
                report = run(self.plugin, keywords=keywords, on_result=on_result)
                if report.problems and not found:
                    found += 1
                    print(f"  problem: {report.problems[0].message:.160}", flush=True)
                if found:
                    break
        except Noticed:
            pass
        return found

    def main(self) -> int:
        """Run the mutants that the command line names, each in a process of its own."""
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("names", nargs="*", metavar="NAME", help="'none' is the plugin as it is")
        parser.add_argument("--all", action="store_true", help="do not stop at the first scenario that notices")
        parser.add_argument("--quick", action="store_true", help="only the scenarios of the hooks that a mutant breaks")
        parser.add_argument("--show", action="store_true", help="run the programs of patches with and without them")
        parser.add_argument("--list", action="store_true")
        parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
        options = parser.parse_args()
        if options.list:
            for name, (break_, _) in self.breaks.items():
                print(f"{name:34} {break_.__doc__}")
            return 0
        if options.show and options.here:
            self.show_here(options.names[0].removesuffix("!"), applied=options.names[0].endswith("!"))
            return 0
        if options.here:
            return 0 if self.run_here(options.names[0], every=options.all, quick=options.quick) else SURVIVED
        known = [*self.breaks, *(["none"] if options.names else [])]
        chosen = {name: fnmatch.filter(known, name) for name in options.names or ["*"]}
        unknown = [name for name, found in chosen.items() if not found]
        if unknown:
            parser.error(f"no such mutant: {', '.join(unknown)}; --list shows them")
        names = [name for found in chosen.values() for name in found]
        if options.show:
            for name in filter(self.patches.__contains__, names):
                for what, argument in (("as it is", name), ("patched", f"{name}!")):
                    print(f"{name}, {what}:", flush=True)
                    command = [sys.executable, self.script, "--here", "--show", argument]
                    subprocess.run(command, check=False, stderr=subprocess.DEVNULL)
            return 0
        flags = [flag for flag, given in (("--all", options.all), ("--quick", options.quick)) if given]
        survivors = self._survivors(names, flags)
        noticed = len(names) - len(survivors)
        print(f"{noticed} of {len(names)} are noticed; survivors: {', '.join(survivors) or 'none'}")
        return 1 if survivors else 0

    def _survivors(self, names: Sequence[str], flags: Iterable[str]) -> list[str]:
        survivors = []
        for name in names:
            print(name, flush=True)
            command = [sys.executable, self.script, "--here", name, *flags]
            status = subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode
            if status:
                survivors.append(name)
                print("  SURVIVES" if status == SURVIVED else f"  ends with status {status}", flush=True)
        return survivors


def _documented(break_: Break, says: str) -> Break:
    """Return a function with a docstring."""

    def documented() -> None:
        break_()

    documented.__doc__ = says
    return documented


def _changed(original: Callable[..., Any], change: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the name and the arguments of a hook, which pluggy looks at."""

    @functools.wraps(original)
    def changed(*args: Any) -> Any:
        return change(original, *args)

    return changed
