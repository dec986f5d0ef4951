"""The size of each part, beside the most that it may have: growth is a decision.

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
    """Hold the most that a part may have."""

    part: str
    limit: int


BUDGETS = (
    Budget("core without rules, conformance, command line", 4180),
    Budget("core: rules", 900),
    Budget("adprotocol_torch", 2925),
    Budget("adprotocol_jax", 1252),
    Budget("adprotocol_autograd", 460),
    Budget("command line and demo", 480),
    Budget("conformance without scenarios", 2180),
    Budget("scenarios", 9470),
    Budget("tests/conformance", 2680),
    Budget("tests, all lines", 30_200),
    Budget("declared divergences", 46),
    Budget("words of all pages", 31_400),
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
    for path in (root / "README.md", *root.glob("docs/*.md")):
        counts["words of all pages"] += len(path.read_text("utf-8").split())
    return counts


def main():
    """Print the table, and return 1 if a part is over its limit."""
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for title in ("lines of code", "now", "at most"):
        table.add_column(title, justify="left" if title == "lines of code" else "right")
    counts = sizes()
    for budget in BUDGETS:
        count = counts[budget.part]
        table.add_row(budget.part, f"{count:,}", f"{budget.limit:,}", style="red" if count > budget.limit else "")
    Console(width=None if sys.stdout.isatty() else 160, highlight=False).print(table)
    return int(any(counts[budget.part] > budget.limit for budget in BUDGETS))


if __name__ == "__main__":
    sys.exit(main())
