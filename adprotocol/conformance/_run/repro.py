"""Repros: a failing scenario as Python to paste."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adprotocol.conformance.scenario import Scenario


def repro(scenario: Scenario, harness: str, variant: str = "") -> str:
    """Return a script that runs the function of a scenario; `harness` is the Python expression of the harness.

    Names that the function uses from its module are imported, so that the script
    stands alone. A function that cannot stand alone is called by the id of its scenario.
    """
    function, keywords = _unwrapped(scenario.function)
    made = f"checked({harness}, {variant!r})" if variant else f"checked({harness})"
    definition = _definition(function)
    if definition is None:
        lines = [
            "from adprotocol.conformance import all_scenarios, checked, harness_of",
            "",
            f"all_scenarios()[{scenario.id!r}].function({made})",
        ]
    else:
        body, names = definition
        arguments = "".join(f", {key}={value!r}" for key, value in keywords.items())
        if any(callable(value) for value in keywords.values()):
            arguments = f", **all_scenarios()[{scenario.id!r}].function.keywords"
        lines = [
            "from __future__ import annotations",
            "from typing import Any",
            "from adprotocol.conformance import Checked, all_scenarios, checked, harness_of",
            *_imports(function, names),
            "",
            body,
            "",
            f"{function.__name__}({made}{arguments})",
        ]
    return "\n".join([f"# {scenario.id}: {' '.join(scenario.summary.split())}", *lines]) + "\n"


def _unwrapped(function: Any) -> tuple[Any, dict[str, Any]]:
    if isinstance(function, functools.partial) and not function.args:
        return function.func, dict(function.keywords)
    return function, {}


def _definition(function: Any) -> tuple[str, list[str]] | None:
    """Return the source of a function without its decorators, and the names it uses; None if it cannot stand alone."""
    if not isinstance(function, types.FunctionType) or function.__code__.co_freevars:
        return None
    try:
        source = textwrap.dedent(inspect.getsource(function))
        (found,) = ast.parse(source).body
    except (OSError, SyntaxError, ValueError):  # no source, or part of a line
        return None
    if not isinstance(found, ast.FunctionDef):
        return None
    # The decorators would register the scenario again.
    found.decorator_list = []
    names = {node.id for node in ast.walk(found) if isinstance(node, ast.Name)}
    return "\n".join(source.splitlines()[found.lineno - 1 :]), sorted(names)


def _imports(function: types.FunctionType, names: list[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        if name not in function.__globals__ or name == "Any":
            continue
        value = function.__globals__[name]
        if not isinstance(value, types.ModuleType):
            found.append(f"from {function.__module__} import {name}")
            continue
        head, _, tail = value.__name__.rpartition(".")
        line = f"from {head} import {tail}" if head else f"import {tail}"
        found.append(line if tail == name else f"{line} as {name}")
    return found
