"""The mutants of a source: one expression of it replaced by another of nearly the same meaning.

What is prose is left alone, as a test of it would repeat it: docstrings, annotations, messages of errors, and strings
with a space in them.
"""

import ast
import dataclasses
import hashlib
import re
from pathlib import Path

COMPARISONS = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.BitXor: ast.BitAnd,
}
# Where a negation says the same as the other comparison.
NEGATED = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
# Calls whose strings are for a type checker.
TYPING = {"TypeVar", "ParamSpec", "NewType", "cast"}


@dataclasses.dataclass(frozen=True)
class Mutant:
    """`start` and `end` are offsets into the bytes of the file; `count` tells apart mutants that read the same."""

    path: str
    within: str
    line: int
    start: int
    end: int
    original: str
    mutated: str
    count: int = 0

    def applied(self, source):
        return source[: self.start] + f"({self.mutated})".encode() + source[self.end :]

    def rank(self, seed):
        """Where the mutant stands in the draw of a seed: the same wherever other code is edited."""
        key = (seed, self.path, self.within, self.original, self.mutated, self.count)
        return hashlib.sha256(repr(key).encode()).digest()

    def __str__(self):
        short = [" ".join(text.split()) for text in (self.original, self.mutated)]
        return f"{self.path}:{self.line} in {self.within}\n    - {short[0]}\n    + {short[1]}"


def mutants(root, paths):
    """Return the mutants of some files below a root."""
    return [mutant for path in paths for mutant in of_source((Path(root) / path).read_bytes(), path)]


def of_source(source, path):
    visitor = _Visitor(source, path)
    visitor.visit(ast.parse(source))
    return visitor.found


def places(source):
    """Return, for each line of a source, the function or class that it is in, and its text."""
    lines = source.decode().splitlines()
    within = ["<module>"] * len(lines)

    def walk(node, names):
        for child in ast.iter_child_nodes(node):
            inner = names
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                inner = [*names, child.name]
                begin = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                within[begin - 1 : child.end_lineno] = [".".join(inner)] * (child.end_lineno - begin + 1)
            walk(child, inner)

    walk(ast.parse(source), [])
    return [(name, text.strip()) for name, text in zip(within, lines, strict=True)]


class _Visitor(ast.NodeVisitor):
    def __init__(self, source, path):
        self.source, self.path, self.found, self.names = source, path, [], []
        self.lines = [0]
        for line in source.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))
        self.seen = {}

    def _add(self, node, mutated):
        start = self.lines[node.lineno - 1] + node.col_offset
        end = self.lines[node.end_lineno - 1] + node.end_col_offset
        within, original = ".".join(self.names) or "<module>", ast.unparse(node)
        key = within, original, mutated
        count = self.seen[key] = self.seen.get(key, -1) + 1
        self.found.append(Mutant(self.path, within, node.lineno, start, end, original, mutated, count))

    def _condition(self, test):
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._add(test, ast.unparse(test.operand))
        elif not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], NEGATED)):
            self._add(test, f"not ({ast.unparse(test)})")

    def visit_If(self, node):
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self._condition(node.test)
            self.generic_visit(node)

    def visit_While(self, node):
        self._condition(node.test)
        self.generic_visit(node)

    visit_IfExp = visit_While  # noqa: N815  (named by ast)

    def visit_comprehension(self, node):
        for test in node.ifs:
            self._condition(test)
        self.generic_visit(node)

    def visit_Compare(self, node):
        for number, op in enumerate(node.ops):
            ops = [*node.ops]
            ops[number] = COMPARISONS[type(op)]()
            self._add(node, ast.unparse(ast.Compare(node.left, ops, node.comparators)))
        self.generic_visit(node)

    def visit_BoolOp(self, node):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._add(node, ast.unparse(ast.BoolOp(other, node.values)))
        for number in range(len(node.values)):
            rest = node.values[:number] + node.values[number + 1 :]
            self._add(node, ast.unparse(ast.BoolOp(node.op, rest) if len(rest) > 1 else rest[0]))
        self.generic_visit(node)

    def visit_BinOp(self, node):
        if type(node.op) in ARITHMETIC:
            self._add(node, ast.unparse(ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)))
        self.generic_visit(node)

    def visit_Return(self, node):
        if node.value is not None and not isinstance(node.value, ast.Constant):
            self._add(node.value, "None")
        self.generic_visit(node)

    def visit_Lambda(self, node):
        if not isinstance(node.body, ast.Constant):
            self._add(node.body, "None")
        self.generic_visit(node)

    def visit_Constant(self, node):
        value = node.value
        if isinstance(value, bool):
            self._add(node, repr(not value))
        elif isinstance(value, (int, float, complex)):
            self._add(node, repr(value + 1))
        elif isinstance(value, str) and not re.search(r"\s", value):
            self._add(node, repr(f"{value}_"))

    def visit_Expr(self, node):
        # A docstring, or an ellipsis.
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_keyword(self, node):
        # An assertion of the code, as by `zip(strict=True)`.
        if node.arg != "strict":
            self.visit(node.value)

    def visit_Raise(self, node):
        pass

    def visit_JoinedStr(self, node):
        # Before Python 3.12 what is inside has no places of its own.
        pass

    def visit_Call(self, node):
        if not (isinstance(node.func, ast.Name) and node.func.id in TYPING):
            self.generic_visit(node)

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self.visit(node.value)

    def visit_arg(self, node):
        pass

    def visit_ClassDef(self, node):
        self.names.append(node.name)
        self.generic_visit(node)
        self.names.pop()

    def visit_FunctionDef(self, node):
        self.names.append(node.name)
        for part in (*node.decorator_list, node.args, *node.body):
            self.visit(part)
        self.names.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815  (as above)
