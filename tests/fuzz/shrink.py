"""A smaller program with the same outcome: statements taken out, one at a time, while it stays."""

import dataclasses

from fuzz import isolation, outcome
from fuzz.program import Apply, Branch, Function, Gradient

# A compilation takes a second, any other run some milliseconds.
RUNS, COMPILATIONS = 500, 100


def _renamed(node, old, new):
    """Return a part of a program with a name replaced."""
    if isinstance(node, str):
        return new if node == old else node
    if isinstance(node, tuple):
        return tuple(_renamed(part, old, new) for part in node)
    if dataclasses.is_dataclass(node):
        parts = {field.name: getattr(node, field.name) for field in dataclasses.fields(node)}
        return dataclasses.replace(node, **{name: _renamed(part, old, new) for name, part in parts.items()})
    return node


def _smaller(function):
    """Yield programs with one statement or result less."""
    for i in range(len(function.results)):
        if len(function.results) > 1:
            yield dataclasses.replace(function, results=function.results[:i] + function.results[i + 1 :])
    for i, statement in enumerate(function.statements):
        before, after = function.statements[:i], function.statements[i + 1 :]
        # Without it: an earlier value has its place.
        instead = getattr(statement, "operand", None) or next(iter(getattr(statement, "args", ())), function.param)
        rest = _renamed(dataclasses.replace(function, statements=after), statement.name, instead)
        yield dataclasses.replace(rest, statements=before + rest.statements)
        # A transformation, gradient or branch: the statements of its function in its place.
        for inner in _functions(statement):
            if isinstance(statement, Apply | Branch | Gradient):
                rest = _renamed(dataclasses.replace(function, statements=after), statement.name, inner.results[0])
                inlined = _renamed(inner, inner.param, instead)
                rest = _renamed(rest, inner.param, instead)
                yield dataclasses.replace(rest, statements=before + inlined.statements + rest.statements)
        for name, plain in (("container", "none"), ("shape", 0), ("passed", "scalar"), ("is_joint", False)):
            if getattr(statement, name, plain) != plain:
                changed = dataclasses.replace(statement, **{name: plain})
                yield dataclasses.replace(function, statements=(*before, changed, *after))
        for field in dataclasses.fields(statement):
            part = getattr(statement, field.name)
            if isinstance(part, Function):
                for smaller in _smaller(part):
                    changed = dataclasses.replace(statement, **{field.name: smaller})
                    yield dataclasses.replace(function, statements=(*before, changed, *after))
            elif field.name == "asked" and len(part) > 1:
                for j in range(len(part)):
                    changed = dataclasses.replace(statement, asked=part[:j] + part[j + 1 :])
                    yield dataclasses.replace(function, statements=(*before, changed, *after))


def _functions(statement):
    parts = (getattr(statement, field.name) for field in dataclasses.fields(statement))
    return [part for part in parts if isinstance(part, Function)]


def shrink(result):
    """Return the result of the smallest program found that has the outcome of `result`, in some hundred runs."""
    limit, run = (COMPILATIONS, isolation.alone) if result.framework.is_compiled else (RUNS, outcome.run)
    smaller = _smaller(result.program)
    for _ in range(limit):
        program = next(smaller, None)
        if program is None:
            break
        other = run(program, result.framework)
        if other.outcome == result.outcome:
            result, smaller = other, _smaller(other.program)
    return result
