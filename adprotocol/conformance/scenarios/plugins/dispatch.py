"""Values that no plugin or several claim, and the table from types to plugins."""

from __future__ import annotations

import ast
import contextlib
import importlib
import pathlib
import pkgutil
import threading
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import errors
from adprotocol.conformance.scenario import SHOULD, Decorator, defaults
from adprotocol.conformance.scenarios.plugins.registration import (
    Foreign,
    ForeignPlugin,
    plugin_of,
    registered,
    still_right,
)
from adprotocol.conformance.scenarios.programs import in_threads
from adprotocol.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from adprotocol.conformance.checks import Checked

_CACHE = "plum: a resolution overtaken by a registration is cached for good: https://github.com/beartype/plum/pull/316"

scenario: Decorator = defaults("plugins", rule="P5", source=_CACHE)


# What a plugin may import of adprotocol.
_MODULES = ("conformance", "errors", "extend", "hookspecs", "messages", "tracing")
_PUBLIC = {"adprotocol", *(f"adprotocol.{name}" for name in _MODULES)}


@scenario(
    transform="grad", source="SciPy: multiple namespaces for array inputs: https://github.com/scipy/scipy/issues/24052"
)
def two_frameworks(h: Checked) -> None:
    """Values of two frameworks in one call raise an error that names both.

    Expect MixedFrameworksError that names both, from each function, in any order and in containers; BackendError where
    one has gone.
    """
    other = Foreign()

    def square(x: Any) -> Any:
        calls: tuple[Callable[[], Any], ...] = (
            lambda: adprotocol.within_gradient(x, other),
            lambda: adprotocol.within_gradient([other, {"x": x}]),
            lambda: adprotocol.trainable({"x": x, "other": other}),
            lambda: adprotocol.grad(lambda x, _: x * x, backend=h.name)(x, other),
            lambda: adprotocol.grad(lambda x: x * x, backend="foreignad")(x),
        )
        for call in calls:
            with h.raises(errors.MixedFrameworksError, words=[h.name, "foreignad"]):
                call()
        return x * x

    with registered(ForeignPlugin()):
        h.assert_equal(h.grad(square)(h.array(3.0)), 6.0, "the gradient")
    with h.raises(errors.BackendError, words=["foreignad"]):
        adprotocol.grad(lambda x: x * x, backend="foreignad")(h.array(3.0))


@scenario(
    transform="grad",
    varies=True,
    source="SciPy: NumPy arrays beside those of a framework: https://github.com/scipy/scipy/pull/18668",
)
def numpy_mixes(h: Checked) -> None:
    """NumPy arrays and Python values mix with those of any framework.

    The answer for an array is the same beside NumPy arrays and Python values: 3 x, with the gradient 3; an error beside
    those of another framework.
    """
    import numpy as np

    others = (np.array([1.0, 2.0]), 1.0, 2, True, "text", None)

    def layer(x: Any) -> Any:
        with registered(ForeignPlugin()), h.raises(errors.MixedFrameworksError):
            adprotocol.within_gradient(*others, [x, Foreign()])
        h.assert_is(adprotocol.within_gradient(*others), want=False, what="the answer for the others")
        h.assert_is(adprotocol.trainable([x, *others])[0], x, "the leaf that takes a gradient")
        return adprotocol.cond(h.query(*others, [x]), lambda x: 3.0 * x, lambda x: 5.0 * x, x)

    h.assert_value_and_grad(layer, (h.array(2.0),), 6.0, 3.0)


@scenario(
    source="JAX: a mapping that is not registered is a leaf, silently: https://github.com/jax-ml/jax/issues/40517"
)
def unknown_framework(h: Checked) -> None:
    """An array of a framework without a plugin, or with one that is refused, is an error, not False.

    Expect UnclaimedTypeError that names the type, from each function, beside an array of the system too.
    """

    class Greedy(ForeignPlugin):
        @hookimpl
        def within_gradient(self, *values: Any) -> bool:
            return bool(values)

    array, other = h.array(2.0), Foreign()
    with h.raises(errors.PluginError), registered(Greedy()):
        pass
    for call in (
        lambda: adprotocol.within_gradient(other),
        lambda: adprotocol.within_gradient({"a": array, "other": [other]}),
        lambda: adprotocol.trainable({"a": array, "other": other}),
        lambda: adprotocol.non_differentiable([array, other]),
    ):
        with h.raises(errors.UnclaimedTypeError, words=["Foreign"]):
            call()
    still_right(h, "after an unknown type")


@scenario(rule="C1", transform="grad", source="docs/plugins.md, The hooks")
def refused_predicate(h: Checked) -> None:
    """The plugin refuses a predicate that is not a boolean scalar, with the common error type.

    Expect PredicateError for a tracked number, for a vector of bools and for None; no branch runs.
    """
    runs: list[Any] = []
    h.array(True)  # where all are numbers, a number is a predicate

    def square(x: Any) -> Any:
        refused: tuple[Any, ...] = (x, x * h.array([1.0, 2.0]) > x, None)
        for pred in refused:
            with h.raises(errors.PredicateError):
                adprotocol.cond(pred, runs.append, runs.append, x)
        return x * x

    h.assert_equal(h.grad(square)(h.array(3.0)), 6.0, "the gradient")
    h.check(not runs, "a branch ran although the predicate is refused")


@scenario(
    level=SHOULD,
    rule="P6",
    source="NumPyro: do not use private functions of JAX: https://github.com/pyro-ppl/numpyro/issues/32",
)
def nothing_private(h: Checked) -> None:
    """The plugin imports only public modules.

    Expect no import of adprotocol but of the modules for plugins, and of no name with a leading underscore.
    """
    plugin = plugin_of(h)
    point = plugin.entry_point
    name = point.module if point is not None else str(plugin.hooks["array_types"].__module__)
    found = [
        f"{path.name}, line {line}, imports {imported}"
        for path in sources(name)
        for line, imported in private(path.read_text(encoding="utf-8"))
    ]
    h.check(not found, f"the plugin imports what is not for plugins: {'; '.join(found)}")


def sources(name: str) -> list[pathlib.Path]:
    """Return the files of a module, and those below it if it is a package."""
    module = importlib.import_module(name)
    paths = [module.__file__] if module.__file__ else []
    for finder, below, _ in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{name}."):
        spec = finder.find_spec(below, None)
        if spec is not None and spec.origin is not None:
            paths.append(spec.origin)
    return [pathlib.Path(path) for path in paths if path.endswith(".py")]


def private(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of each import of adprotocol that is not for plugins."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names if alias.name not in _PUBLIC]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            open_to_all = node.module in _PUBLIC and node.module != "adprotocol"
            found = [
                name
                for name in full
                if name.rpartition(".")[2].startswith("_")
                or not (open_to_all or name in _PUBLIC or name.rpartition(".")[2] in adprotocol.__all__)
            ]
        else:
            continue
        yield from ((node.lineno, name) for name in found if name.partition(".")[0] == "adprotocol")


@scenario(rule="P4")
def table_follows_changes(h: Checked) -> None:
    """Cached answers for a type are dropped when plugins come and go.

    Expect UnclaimedTypeError, then the answer of the new plugin, then UnclaimedTypeError, twice; 5 x in between.
    """
    array = Foreign()
    for _ in range(2):
        with h.raises(errors.UnclaimedTypeError, words=["Foreign"]):
            adprotocol.within_gradient(array)
        with registered(ForeignPlugin()):
            h.assert_is(adprotocol.within_gradient(array), want=True, what="the answer of the new plugin")
            still_right(h, "beside a new plugin")
    with h.raises(errors.UnclaimedTypeError, words=["Foreign"]):
        adprotocol.within_gradient(array)
    still_right(h, "after the plugin has gone")


@scenario(rule="P4", transform="threads")
def first_sight_in_threads(h: Checked) -> None:
    """Types first seen in many threads at once get the same answer in all.

    Expect 5 x = 10 in each of eight threads, and 3 in the gradient of 3 x, right after the table was emptied.
    """
    array, meeting = h.array(2.0), threading.Barrier(8)

    def ask() -> tuple[Any, Any, Any]:
        with contextlib.suppress(threading.BrokenBarrierError):
            meeting.wait(5.0)
        plain = h.probe(array)
        gradient = adprotocol.grad(h.probe, backend=h.name)(array) if h.has("grad") else None
        return plain, adprotocol.trainable({"a": array})["a"], gradient

    for _ in range(3):
        with registered(ForeignPlugin()):
            pass
        for plain, leaf, gradient in in_threads(h, *[ask] * 8):
            h.assert_equal(plain, 10.0, "5 x in a thread")
            h.assert_is(leaf, array, "the leaf that takes a gradient, in a thread")
            if gradient is not None:
                h.assert_equal(gradient, 3.0, "the gradient in a thread")
