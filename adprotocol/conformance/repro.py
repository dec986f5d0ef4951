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
    """Return a script that runs the function of a scenario; `harness` is the Python expression that makes one.

    What the function takes from its module is imported, so that the script stands alone.
    """
    function, keywords = _unwrapped(scenario.function)
    source = textwrap.dedent(inspect.getsource(function))
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.FunctionDef)
    # Without the decorators, which would enter the scenario again.
    body = "\n".join(source.splitlines()[definition.lineno - 1 :])
    arguments = "".join(f", {key}={value!r}" for key, value in keywords.items())
    second = f", {variant!r}" if variant else ""
    lines = [
        f"# {scenario.id}: {scenario.summary}",
        "from __future__ import annotations",
        "from typing import Any",
        "from adprotocol.conformance import Checked, checked, harness_of",
        *_imports(function),
        "",
        body,
        "",
        f"{function.__name__}(checked({harness}{second}){arguments})",
    ]
    return "\n".join(lines) + "\n"


def _unwrapped(function: Any) -> tuple[types.FunctionType, dict[str, Any]]:
    if isinstance(function, functools.partial):
        return function.func, dict(function.keywords)
    return function, {}


def _imports(function: types.FunctionType) -> list[str]:
    found: list[str] = []
    for name in sorted(_names(function.__code__)):
        value = function.__globals__.get(name)
        if value is None:
            continue
        if isinstance(value, types.ModuleType):
            head, _, tail = value.__name__.rpartition(".")
            if value.__name__ == name:
                found.append(f"import {name}")
            else:
                found.append(f"from {head} import {tail} as {name}" if head else f"import {value.__name__} as {name}")
        else:
            found.append(f"from {function.__module__} import {name}")
    return found


def _names(code: types.CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*(_names(constant) for constant in inner))
