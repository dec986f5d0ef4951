"""The mutants of a seed: those that cosmic-ray finds in the library, without what a test would only repeat.

That is annotations, overloads, and what is raised, whose messages are prose.
"""

import ast
import collections
import hashlib
import re
import tomllib
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
EQUIVALENT = Path(__file__).parent / "equivalent.toml"
# Orders and equalities of what is compared by identity, which hardly ever run, and shifts, which are no mistakes.
UNUSUAL = re.compile(r"ComparisonOperator_(Is(Not)?_(?!Is)|(?!Is)\w+_Is)|BinaryOperator_\w+_[LR]Shift")


@dataclass(frozen=True)
class Mutant:
    """A mutation of cosmic-ray's, `spec`, by its place below any root, and what it does to its lines."""

    path: str
    within: str
    original: str
    mutated: str
    spec: MutationSpec = field(compare=False)

    def __str__(self):
        return f"{self.path}:{self.spec.start_pos[0]} in {self.within}\n    - {self.original}\n    + {self.mutated}"


def modules(begin=""):
    """Return the modules that are mutated: all but the texts of the scenarios."""
    found = (path.relative_to(ROOT) for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
    return sorted(str(path) for path in found if "scenarios" not in path.parts and str(path).startswith(begin))


def drawn(root, paths, seed):
    """Yield the mutants of some files in the order of a seed, one for each place.

    That order is the same wherever other code is edited.
    """
    ranked, counts, seen = [], collections.Counter(), set()
    for path, spec, text in _specs(root, paths):
        key = path, spec.definition_name, text, spec.operator_name, spec.start_pos[1]
        counts[key] += 1
        ranked.append((hashlib.sha256(repr((seed, key, counts[key])).encode()).digest(), path, spec))
    for _, path, spec in sorted(ranked, key=lambda entry: entry[0]):
        if (place := (path, spec.start_pos)) not in seen and (found := _mutant(root, path, spec)) is not None:
            seen.add(place)
            yield found


def every(root, path, *, within=None, original=None):
    """Yield all mutants of a file, or of one function, or of one line."""
    for _, spec, text in _specs(root, [path]):
        is_wanted = within in (None, _name(spec)) and original in (None, text)
        if is_wanted and (found := _mutant(root, path, spec)) is not None:
            yield found


def _specs(root, paths):
    """Yield each mutation with its file and the text of its line."""
    with use_db(":memory:", WorkDB.Mode.create) as found:
        init([Path(root) / path for path in paths], found, {})
        specs = [spec for item in found.work_items for spec in item.mutations]
    sources = {str(Path(root) / path): (path, (Path(root) / path).read_text("utf-8")) for path in paths}
    left = {path: list(_left_alone(source)) for path, source in sources.values()}
    for spec in specs:
        path, source = sources[str(spec.module_path)]
        is_left = any(begin <= spec.start_pos < end for begin, end in left[path])
        if not is_left and not UNUSUAL.search(spec.operator_name):
            yield path, attrs.evolve(spec, module_path=path), source.splitlines()[spec.start_pos[0] - 1].strip()


def _left_alone(source):
    """Yield where the parts of a source begin and end that are not mutated."""
    for node in ast.walk(ast.parse(source)):
        parts = [getattr(node, name, None) for name in ("annotation", "returns")]
        if isinstance(node, ast.Raise) or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            parts.append(node)
        parts += [one for one in getattr(node, "decorator_list", ()) if ast.unparse(one).endswith("overload")]
        for part in filter(None, parts):
            # A decorator begins with its sign.
            yield (part.lineno, max(part.col_offset - 1, 0)), (part.end_lineno, part.end_col_offset)


def _mutant(root, path, spec):
    """Return the mutant of a mutation, or None where the text is no Python then or means the same."""
    source = (Path(root) / path).read_text("utf-8")
    mutated = mutate_code(source, get_operator(spec.operator_name)(**spec.operator_args), spec.occurrence)
    try:
        if ast.dump(ast.parse(mutated)) == ast.dump(ast.parse(source)):
            return None
    except SyntaxError:
        return None
    before, after = source.splitlines(), mutated.splitlines()
    first, last = spec.start_pos[0] - 1, spec.end_pos[0]
    shown = (before[first:last], after[first : last + len(after) - len(before)])
    texts = (" ".join(" ".join(lines).split()) for lines in shown)
    return Mutant(path, _name(spec), *texts, spec)


def _name(spec):
    return spec.definition_name or "<module>"


def explanations():
    """Return the entries of the file, each the description of mutants and a reason."""
    return tomllib.loads(EQUIVALENT.read_text("utf-8"))["equivalent"]


def explanation(mutant, entries):
    """Return the reason why a mutant cannot be told from the original, or None."""
    names = ("path", "within", "original", "mutated")
    fitting = (e for e in entries if all(getattr(mutant, name) == e[name] for name in names if name in e))
    return next((entry["reason"] for entry in fitting), None)
