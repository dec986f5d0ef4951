"""The mutants of a seed: those that cosmic-ray finds in the library, without what a test would only repeat.

That is annotations, overloads, and what is raised, whose messages are prose.
"""

import ast
import random
import re
from dataclasses import dataclass, field
from pathlib import Path

import attrs
from cosmic_ray.commands import init
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("adprotocol", "adprotocol_jax", "adprotocol_torch", "adprotocol_autograd")
# Orders and equalities of what is compared by identity, which hardly ever run, and shifts, which are no mistakes.
UNUSUAL = re.compile(r"ComparisonOperator_(Is(Not)?_(?!Is)|(?!Is)\w+_Is)|BinaryOperator_\w+_[LR]Shift")


@dataclass(frozen=True)
class Mutant:
    """A mutation of cosmic-ray's, `spec`, by its place below any root, and what it does to its lines."""

    path: str
    original: str
    mutated: str
    spec: MutationSpec = field(compare=False)

    def __str__(self):
        within = self.spec.definition_name or "<module>"
        return f"{self.path}:{self.spec.start_pos[0]} in {within}\n    - {self.original}\n    + {self.mutated}"


def modules(begin=""):
    """Return the modules that are mutated: all but the texts of the scenarios."""
    paths = (path.relative_to(ROOT) for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
    return sorted(str(path) for path in paths if "scenarios" not in path.parts and str(path).startswith(begin))


def mutants(root, paths, seed):
    """Yield the mutants of some files in an order of the seed, one for each place."""
    sources = {path: (Path(root) / path).read_text("utf-8") for path in paths}
    specs, places = sorted(_specs(root, sources), key=repr), set()
    random.Random(seed).shuffle(specs)  # noqa: S311  (no secret)
    for path, spec in specs:
        if (path, spec.start_pos) not in places and (mutant := _mutant(path, sources[path], spec)) is not None:
            places.add((path, spec.start_pos))
            yield mutant


def _specs(root, sources):
    """Yield the path of each mutation, and the mutation."""
    with use_db(":memory:", WorkDB.Mode.create) as database:
        init([Path(root) / path for path in sources], database, {})
        specs = [spec for item in database.work_items for spec in item.mutations]
    untouched = {path: list(_untouched(source)) for path, source in sources.items()}
    for spec in specs:
        path = str(Path(spec.module_path).relative_to(root))
        if UNUSUAL.search(spec.operator_name) or any(a <= spec.start_pos < b for a, b in untouched[path]):
            continue
        yield path, attrs.evolve(spec, module_path=path)


def _untouched(source):
    """Yield where the parts of a source begin and end that are not mutated."""
    for node in ast.walk(ast.parse(source)):
        parts = [getattr(node, name, None) for name in ("annotation", "returns")]
        if isinstance(node, ast.Raise) or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            parts.append(node)
        parts += [one for one in getattr(node, "decorator_list", ()) if ast.unparse(one).endswith("overload")]
        for part in filter(None, parts):
            # A decorator begins with its sign.
            yield (part.lineno, max(part.col_offset - 1, 0)), (part.end_lineno, part.end_col_offset)


def _mutant(path, source, spec):
    """Return the mutant of a mutation, or None where the text is no Python then or means the same."""
    mutated = mutate_code(source, get_operator(spec.operator_name)(**spec.operator_args), spec.occurrence)
    try:
        if ast.dump(ast.parse(mutated)) == ast.dump(ast.parse(source)):
            return None
    except SyntaxError:
        return None
    before, after = source.splitlines(), mutated.splitlines()
    first, last = spec.start_pos[0] - 1, spec.end_pos[0]
    lines = (before[first:last], after[first : last + len(after) - len(before)])
    return Mutant(path, *(" ".join(" ".join(text).split()) for text in lines), spec)
