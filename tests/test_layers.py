"""The order of the layers: each imports only from layers below it, lazy and type-only imports included.

``docs/architecture.md`` draws them.
"""

import ast
import dataclasses
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# From the bottom up. The members of one layer do not import each other.
CORE = (
    {"_typing"},
    {"errors", "messages", "typing"},
    {"divergence"},
    {"hookspecs"},
    {"_dispatch"},
    {"_trees"},
    {"_hooks"},
    {"_rules"},
    {"_gradients"},
    {"_dynamo"},
    {"_public"},
    {"extend", "plugins", "tracing", "__init__"},
    {"_cli", "_pyinstaller"},
    {"_demo"},
    {"conformance"},
    {"__main__"},
)
CONFORMANCE = (
    {"harness"},
    {"nesting"},
    {"scenario"},
    {"checks"},
    {"scenarios"},
    {"_run"},
    {"_reports"},
    {"__init__"},
    {"_command"},
)
PLUGINS = ("adprotocol_jax", "adprotocol_torch", "adprotocol_autograd")
# All that a plugin may import of this library, like any stranger's.
FOR_PLUGINS = {
    "adprotocol",
    *(f"adprotocol.{name}" for name in ("conformance", "errors", "extend", "hookspecs", "messages", "tracing")),
}
FRAMEWORKS = ("jax", "torch", "autograd")


def modules(package):
    """Return the path of each module of a package by its name."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path, names):
    """Return the modules among `names` that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                found.add(submodule if submodule in names else node.module)
    return found & set(names)


def layer(name, package):
    """Return the layer of a module: the first part of its name below the package."""
    return name.removeprefix(package).lstrip(".").partition(".")[0] or "__init__"


def upward(package, layers):
    """Return the imports that do not lead to a lower layer, as pairs of modules."""
    height = {name: number for number, members in enumerate(layers) for name in members}
    files = modules(package)
    found = []
    for name, path in files.items():
        for target in imports(path, files):
            here, there = layer(name, package), layer(target, package)
            if here != there and height[there] >= height[here]:
                found.append((name, target))
    return found


@pytest.mark.parametrize(("package", "layers"), [("adprotocol", CORE), ("adprotocol/conformance", CONFORMANCE)])
def test_every_layer_imports_lower_layers_only(package, layers):
    assert upward(package, layers) == []


@pytest.mark.parametrize("package", ["adprotocol", *PLUGINS])
def test_no_module_imports_itself_by_way_of_others(package):
    files = modules(package)
    graph = {name: imports(path, files) - {name} for name, path in files.items()}
    # A package's own name stands for its __init__, which its modules do not import.
    while True:
        ends = {name for name, targets in graph.items() if not targets & set(graph)}
        if not ends:
            break
        graph = {name: targets for name, targets in graph.items() if name not in ends}
    assert sorted(graph) == []


@pytest.mark.parametrize("package", PLUGINS)
def test_a_plugin_imports_what_any_stranger_may(package):
    core = modules("adprotocol")
    used = set().union(*(imports(path, core) for path in modules(package).values()))
    assert used <= FOR_PLUGINS


def test_the_core_names_no_framework_outside_of_dynamo():
    found = []
    for name, path in modules("adprotocol").items():
        if name == "adprotocol._dynamo" or layer(name, "adprotocol") in ("_demo", "conformance"):
            continue
        found += [(name, node.lineno, word) for node, word in words(ast.parse(path.read_text("utf-8"))) if named(word)]
    assert found == []


def words(tree):
    """Yield the names and constants of the code, without docstrings and messages, which are prose."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node, node.id
        elif isinstance(node, ast.Attribute):
            yield node, node.attr
        elif isinstance(node, ast.alias):
            yield node, node.name
        elif isinstance(node, ast.ImportFrom):
            yield node, node.module
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            yield node, node.value


def named(word):
    # A mark of arrays, by which several libraries know those of others.
    parts = word.replace(".", " ").replace("_", " ").lower().split()
    return word != "__jax_array__" and any(framework in parts for framework in FRAMEWORKS)


def test_records_cannot_be_changed_and_take_no_other_attribute():
    # The demo has the dataclasses that a user would write, a scenario those that it is about.
    written = ("adprotocol._demo.", "adprotocol.conformance.scenarios.")
    records = [
        cls
        for package in ("adprotocol", *PLUGINS)
        for name in modules(package)
        if not name.endswith(".hook-adprotocol")  # it runs within PyInstaller
        for cls in vars(importlib.import_module(name)).values()
        if isinstance(cls, type) and dataclasses.is_dataclass(cls) and cls.__module__ == name
    ]
    own = [cls for cls in records if not cls.__module__.startswith(written)]
    assert [cls for cls in own if not cls.__dataclass_params__.frozen or "__slots__" not in vars(cls)] == []
    assert len(own) >= 5
