"""The size of each part, beside the most that it may have: growth is a decision, with a reason in the changelog.

A line of code holds neither a comment nor a docstring alone. `make lines` prints the table.
"""

import ast
import io
import re
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
CORE = "adprotocol"
ABOVE_THE_CORE = ("_cli", "_demo", "__main__")
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Budget:
    """Hold the most that a part may have, and, where it has more for the time being, how much and why."""

    part: str
    at_most: int
    for_now: int = 0
    reason: str = ""

    @property
    def limit(self):
        """Return what the part must not exceed today."""
        return max(self.at_most, self.for_now)


BUDGETS = (
    Budget(
        "core without rules, conformance, command line",
        3300,
        3678,
        "where 65; steepest_ascent 13; results and errors of hooks 42; "
        "structures: a search of objects that hide arrays 60, nodes that a constructor or a default"
        " would spoil 60, settings in nodes of a framework 25, forms and errors of where= 65, checks of what "
        "grad is given and returns 95, split and merge 70, whose users would wait longer; a label's operators"
        " 115; plugins that are broken, blocked or too old 300; rules and marks in graphs of torch.compile "
        "135, and what a plugin answers there at once 8; names of typing without its "
        "import 7; unknown classes 4; the gradient of one array without a structure 10",
    ),
    Budget(
        "core: rules",
        700,
        906,
        "shapes and structures of what a rule returns 60, which PyTorch would sum without a word; methods "
        "whose self is tracked 25; defaults by keyword, ufuncs and named tuples 35; host functions as rules 20; "
        "results of hooks 12; linear solves with a jvp alone 23; rules that are not linear, and reverse_only, 53; "
        "what a rule reads 28; bfloat16 of NumPy 14",
    ),
    Budget(
        "adprotocol_torch",
        2350,
        2589,
        "gradients through compiled functions 30; the threads of GPUs 3; rules in graphs of make_fx 15; anomaly mode "
        "in batched branches 28; "
        "matrices that a batched cond must not invert 17; NumPy's "
        "arrays from branches 16; gradients of a compiled cond's branches 45; leaves of graphs without a "
        "detour, for the time of a trace, 34; second derivatives of rules with residuals 30; lists of "
        "parameters made before the call 46; questions and flags that Dynamo answers in place of tracing them 30",
    ),
    Budget(
        "adprotocol_jax",
        1120,
        1246,
        "host functions under eager vmap 31, linear functions with rules that are transposed and effects in rules 16; "
        "whether a staged rule is linear 60; residuals, solvers and results of JAX 0.11 16",
    ),
    Budget(
        "adprotocol_autograd",
        410,
        444,
        "where of arrays that broadcast, which autograd differentiates wrongly, 13; whether a rule is linear 17",
    ),
    Budget(
        "command line and demo",
        450,
        477,
        "Ctrl-C and a reader that goes away 11, one remedy for each finding of doctor 6; what to do next, in info, 9",
    ),
    Budget(
        "conformance without scenarios",
        1700,
        2122,
        "check_rule, for authors of rules, 171; reports as Markdown, page and badge 170; what a capability of"
        " a harness has to do 203; ending where the framework is left broken, and trying it alone, 60; repros"
        " 30; run() without pytest's command line 20; a wrong result of the hook harness 2; one copy of a plugin in all"
        " processes, and its files, 65; what one level cannot be asked, and what changed since an earlier run, 55",
    ),
    Budget(
        "scenarios",
        8300,
        8466,
        "what plugins get wrong that have neither jit nor vmap 10; NumPy's arrays beside those of a GPU 17; where 116; "
        "rules that are not linear 32",
    ),
    Budget("tests/conformance", 3300),
    Budget(
        "tests, all lines",
        33_000,
        33_800,
        "rules that are not linear, losses made anew of numbers, what rules read, wrong results of hooks; the copy "
        "that the command tests, and mutants of a system of one level, 300",
    ),
    Budget("declared divergences", 45),
)


def code_lines(text):
    """Return how many lines of a module are code."""
    numbers = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            numbers.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node):
            numbers.difference_update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(numbers)


def part_of(path):
    """Return the part of the table that a module belongs to."""
    package, *inner = path.with_suffix("").parts
    if package == "tests":
        return "tests/conformance" if inner[0] == "conformance" else None
    if package != CORE:
        return package
    if inner[:2] == ["conformance", "scenarios"]:
        return "scenarios"
    if inner[0] == "conformance":
        return "conformance without scenarios"
    if inner[0] == "_rules":
        return "core: rules"
    return "command line and demo" if inner[0] in ABOVE_THE_CORE else "core without rules, conformance, command line"


def sizes(root=ROOT):
    """Return the size of each part by its name."""
    counts = dict.fromkeys((budget.part for budget in BUDGETS), 0)
    for path in sorted((*root.glob(f"{CORE}*/**/*.py"), *root.glob("tests/**/*.py"))):
        text = path.read_text("utf-8")
        relative = path.relative_to(root)
        if relative.parts[0] == "tests":
            counts["tests, all lines"] += len(text.splitlines())
        if part := part_of(relative):
            counts[part] += code_lines(text)
    for path in root.glob(f"{CORE}_*/divergences.md"):
        counts["declared divergences"] += len(re.findall("^- name:", path.read_text("utf-8"), re.MULTILINE))
    return counts


def main():
    """Print the table, and return 1 if a part is over its limit."""
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for title in ("lines of code", "now", "at most", ""):
        table.add_column(title, justify="right" if title in ("now", "at most") else "left")
    counts = sizes()
    for budget in BUDGETS:
        count = counts[budget.part]
        over = f"{count - budget.at_most:,} over: {budget.reason}" if count > budget.at_most else ""
        style = "red" if count > budget.limit else ""
        table.add_row(budget.part, f"{count:,}", f"{budget.at_most:,}", over, style=style)
    Console(width=None if sys.stdout.isatty() else 160, highlight=False).print(table)
    return int(any(counts[budget.part] > budget.limit for budget in BUDGETS))


if __name__ == "__main__":
    sys.exit(main())
