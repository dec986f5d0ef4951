"""Plugins that are registered, found and refused, and classes of `register_structure`."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import NonDifferentiable, errors
from adprotocol._dispatch import registry as plugins
from adprotocol.conformance.checks import Absent
from adprotocol.conformance.scenario import MAY, SHOULD, Decorator, defaults
from adprotocol.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from adprotocol._dispatch.registry import Plugin
    from adprotocol.conformance.checks import Checked


scenario: Decorator = defaults("plugins", rule="T11")


_ORDER = "pluggy: the order in which hooks are called: https://github.com/pytest-dev/pluggy/issues/250"


class Foreign:
    """An array of an AD system that nobody else knows."""

    shape: tuple[int, ...] = ()
    dtype = "float64"

    def __add__(self, other: Any) -> Any:
        """Refuse to add."""
        return NotImplemented


class ForeignPlugin:
    """Serve `Foreign` arrays, or other types, all of which are tracked; `calls` counts the questions."""

    def __init__(self, *types: type) -> None:
        self.types: tuple[type, ...] = types or (Foreign,)
        self.calls: int = 0

    @hookimpl(trylast=True)
    def array_types(self) -> tuple[type, ...]:
        """Claim the types."""
        return self.types

    @hookimpl
    def within_gradient(self, value: Any) -> bool:  # noqa: ARG002
        """Answer True."""
        self.calls += 1
        return True

    @hookimpl
    def non_differentiable(self, value: Any) -> Any:
        """Return the value."""
        return value

    @hookimpl
    def cond(self, pred: Any, true_fun: Any, false_fun: Any, operands: tuple[Any, ...]) -> Any:
        """Run the chosen branch."""
        return true_fun(*operands) if pred else false_fun(*operands)


class EagerPlugin(ForeignPlugin):
    """The same, before all others."""

    @hookimpl(tryfirst=True)
    def array_types(self) -> tuple[type, ...]:
        """Claim the types."""
        return self.types


@contextlib.contextmanager
def registered(implementation: object, framework: str = "foreignad") -> Iterator[Plugin]:
    """Register a plugin for the time of the block."""
    plugin = plugins.REGISTRY.register(implementation, framework)
    try:
        yield plugin
    finally:
        plugins.REGISTRY.unregister(plugin.name)


def plugin_of(h: Checked) -> Plugin:
    """Return the plugin that serves the harness; raises `Absent` for NumPy, which has none."""
    plugin: Any = plugins.REGISTRY.known().get(h.name)
    h.absent_if(plugin is None, f"{h.name} has no plugin: the core answers for it")
    return plugin  # type: ignore[no-any-return]


def still_right(h: Checked, when: str) -> None:
    """Check that the plugin of the harness answers, plain and, if the system differentiates, in a gradient."""
    h.assert_equal(h.probe(h.array(2.0)), 10.0, f"5 x at 2, {when}")
    if h.has("grad"):
        h.assert_value_and_grad(h.probe, (h.array(2.0),), 6.0, 3.0, when)


def imported_by(code: str) -> set[str]:
    """Return the packages that some code imports in a new interpreter, which finds this adprotocol."""
    root = str(pathlib.Path(adprotocol.__file__).parent.parent)
    code = (
        f"import sys; sys.path.insert(0, {root!r}); before = set(sys.modules); {code}; "
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    found = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False, timeout=180)  # noqa: S603
    if found.returncode:
        msg = f"import adprotocol fails in a new interpreter: {found.stderr[-500:]}"
        raise RuntimeError(msg)
    return set(found.stdout.split())


@scenario(
    rule="P1",
    transform="import",
    source="opt_einsum: importing TensorFlow imports JAX as well: https://github.com/dgasmith/opt_einsum/pull/135",
)
def imports_nothing(h: Checked) -> None:
    """`import adprotocol` imports no framework and no NumPy, nor does a question about a Python number.

    Expect in a new interpreter, after the import and a question about a number, neither NumPy nor the framework.
    """
    known = plugins.REGISTRY.known().get(h.name)
    framework = known.framework if known is not None else "numpy"
    found = imported_by("import adprotocol; assert adprotocol.within_gradient(1.0) is False")
    wrong = sorted({"numpy", framework} & found)
    h.check(not wrong, f"import adprotocol imports {', '.join(wrong)}")


@scenario(
    rule="P7",
    transform="import",
    source="PyTorch: trees by optree, which may not be there: https://github.com/pytorch/pytorch/pull/93139",
)
def imports_no_tree_library(h: Checked) -> None:
    """Structures are flattened without any other package: a tree library that is installed is not imported.

    Expect in a new interpreter, after a dataclass of numbers was flattened, the standard library and pluggy alone.
    """
    found = imported_by(
        "import dataclasses, adprotocol; Line = dataclasses.make_dataclass('Line', ['slope', 'offset']); "
        "assert adprotocol.trainable(Line(1.0, 2)) == Line(1.0, None)"
    )
    wrong = sorted(found - sys.stdlib_module_names - {"adprotocol", "pluggy"})
    h.check(not wrong, f"adprotocol.trainable imports {', '.join(wrong)}")


@scenario(rule="P1", source="pluggy: hook specifications: https://pluggy.readthedocs.io/en/stable/")
def hooks(h: Checked) -> None:
    """The types of the plugin are classes, its tracked values are of them, and `explain` is text.

    array_types returns the classes of tracked, traced and batched values; explain names plugin and answer.
    """
    plugin = plugin_of(h)
    h.check(plugin.state == plugins.ACTIVE, f"the plugin is {plugin.state}: {plugin.reason}")
    held = vars(sys.modules[plugin.hooks["array_types"].__module__]).values()
    private = [value.__name__ for value in held if getattr(value, "__name__", "").startswith("adprotocol._")]
    h.check(not private, f"its module holds what is private: {private}")
    h.check(bool(plugin.types) and all(isinstance(cls, type) for cls in plugin.types), f"its types are {plugin.types}")
    if not h.has("grad"):
        return

    def square(x: Any) -> Any:
        h.check(isinstance(x, plugin.types), f"the tracked {type(x).__qualname__} is of none of the types it claims")
        text = adprotocol.explain(x)
        h.check(isinstance(text, str) and f"plugin {h.name}" in text, f"explain says {text!r:.200}")
        answer = adprotocol.within_gradient(x)
        h.check((str(answer) if isinstance(answer, bool) else "staged") in text, f"explain says {text!r:.200}")
        return x * x

    h.assert_equal(h.grad(square)(h.array(3.0)), 6.0, "the gradient")
    if h.has("jit"):
        h.assert_equal(h.jit(square)(h.array(3.0)), 9.0, "under jit")
    if h.has("vmap"):
        h.assert_equal(h.vmap(square)(h.array([3.0])), [9.0], "under vmap")


def _special(plugin: Plugin) -> list[type]:
    """Return a subclass of each of the plugin's types that is not final."""
    made: list[type] = []
    for cls in plugin.types:
        with contextlib.suppress(TypeError):
            made.append(type("Special", (cls,), {}))
    return made


@scenario(
    level=MAY,
    source="PyTorch: support for subclasses of Tensor: https://github.com/pytorch/pytorch/issues/28361",
    rule="P3",
)
def subclasses(h: Checked) -> None:
    """A subclass of one of the plugin's types is served by it.

    The plugin gets each subclass that can be made of its types.
    """
    made = _special(plugin_of(h))
    h.absent_if(not made, "none of its types can be subclassed")
    for cls in made:
        found = [claimant.name for claimant in plugins.REGISTRY.claimants(cls)]
        h.check(found[:1] == [h.name], f"a subclass of {cls.__mro__[1].__qualname__} is served by {found or 'nobody'}")


@scenario(
    rule="P2", source="llm: a single broken plugin makes the program unusable: https://github.com/simonw/llm/pull/1351"
)
def broken(h: Checked) -> None:
    """A plugin that raises, has no classes, or has missing, unknown or wrong hooks is refused; others work.

    Expect a PluginError that names the fault, five times; the answers are as before.
    """

    class Lacking:
        @hookimpl
        def array_types(self) -> tuple[type, ...]:
            return (Foreign,)

    class Unknown(ForeignPlugin):
        @hookimpl
        def within_gradients(self, value: Any) -> bool:
            return bool(value)

    class Greedy(ForeignPlugin):
        @hookimpl
        def within_gradient(self, *values: Any) -> bool:
            return bool(values)

    class Raising(ForeignPlugin):
        @hookimpl
        def array_types(self) -> tuple[type, ...]:
            msg = "raised in the plugin"
            raise OSError(msg)

    wrong: Any = "Foreign"
    before = list(plugins.REGISTRY.known())
    cases = (
        (Lacking(), "cond"),
        (Unknown(), "within_gradients"),
        (Greedy(), "values"),
        (ForeignPlugin(wrong), "Foreign"),
        (Raising(), "raised"),
    )
    for implementation, word in cases:
        with h.raises(errors.PluginError, words=[word]), registered(implementation):
            pass
    h.check(list(plugins.REGISTRY.known()) == before, f"the plugins are {list(plugins.REGISTRY.known())} afterwards")
    still_right(h, "after the broken plugins")


@scenario(source=_ORDER, rule="P3")
def two_for_one_type(h: Checked) -> None:
    """A second plugin for the same types that asks to come last changes no answer, and is reported.

    The plugin serves its types, with one that tries last beside it, which is not asked; both are reported.
    """
    plugin = plugin_of(h)
    other = ForeignPlugin(*plugin.types)
    # "aaa" comes first in the alphabet.
    with registered(other, "aaa") as second:
        still_right(h, "beside a second plugin for the same types")
        h.check(other.calls == 0, f"the second plugin was asked {other.calls} times")
        found = [(first, others) for _, first, others in plugins.REGISTRY.conflicts() if second.name in others]
        expected = [(h.name, [second.name])] * len(plugin.types)
        h.check(found == expected, f"the conflicts are {found}; {expected[:1]} was expected for each type")
        for cls in _special(plugin):
            served = [claimant.name for claimant in plugins.REGISTRY.claimants(cls)]
            h.check(served == [h.name, second.name], f"a subclass is served by {served}")
    still_right(h, "after the second plugin has gone")
    h.check(not [1 for _, _, others in plugins.REGISTRY.conflicts() if second.name in others], "a conflict stays")


@scenario(level=SHOULD, transform="grad", source=_ORDER, rule="P3")
def first_by_choice(h: Checked) -> None:
    """A second plugin that asks to come first serves the types until it is removed.

    The second plugin is asked about the tracked value, and the first one again after it has gone.
    """
    other = EagerPlugin(*plugin_of(h).types)

    def square(x: Any) -> Any:
        h.assert_is(adprotocol.within_gradient(x), want=True, what="the answer of the plugin that tries first")
        return x * x

    still_right(h, "before the second plugin")
    with registered(other) as second:
        h.assert_equal(h.grad(square)(h.array(3.0)), 6.0, "the gradient")
        found = {(first, *others) for _, first, others in plugins.REGISTRY.conflicts() if first == second.name}
        h.check(found == {(second.name, h.name)}, f"the conflicts are {found}")
        h.check(other.calls == 1, f"the plugin that tries first was asked {other.calls} times")
    still_right(h, "after the second plugin has gone")
    h.check(other.calls == 1, "a plugin that has gone was asked")


def power_class() -> type[Any]:
    """Return a new class, registered: of a coefficient and a shift, with the static field `power`."""

    class Power:
        def __post_init__(self: Any) -> None:
            if type(self.power) is not int:
                msg = "the constructor was called with something in the place of a static field"
                raise TypeError(msg)

        def __call__(self: Any, x: Any) -> Any:
            for _ in range(self.power):
                x = x * x
            return self.scale * x - self.shift

    fields: list[Any] = [("scale", Any), ("shift", Any), ("power", int, dataclasses.field(default=1))]
    made = dataclasses.make_dataclass("Power", fields, bases=(Power,), frozen=True)
    return adprotocol.register_structure(made, static=("power",))


@scenario(
    transform="{way}",
    also_needs=("node",),
    source="JAX: what is static is not what is not differentiable: https://github.com/jax-ml/jax/issues/2912",
)
def registered_structure(h: Checked, way: str) -> None:
    """A structure is an argument under {way}: its arrays are traced, and another static field is traced anew.

    Expect 2 x ** 2 - y for the power 1, 2 x ** 4 - y for the power 2: 17 and 161 at (3, 1), 15 at (3, 3).
    """
    power, x = power_class(), h.array(3.0)
    traced = h.trace(way, lambda model, x: model(x))
    h.assert_equal(traced(power(h.array(2.0), h.array(1.0)), x), 17.0, "with the power 1")
    h.assert_equal(traced(power(h.array(2.0), h.array(1.0), 2), x), 161.0, "with the power 2")
    h.assert_equal(traced(power(h.array(2.0), h.array(3.0)), x), 15.0, "with another shift")


@scenario(
    transform="{way}",
    also_needs=("node",),
    source="PyTorch: models return dataclasses: https://github.com/pytorch/pytorch/pull/93214",
)
def registered_subclass(h: Checked, way: str) -> None:
    """A subclass of a registered class is argument and result under {way} as what it is, never as its base.

    Expect a subclass with a field more, registered as its base is: itself, with 3 times that field, 12, and 2 of its
    base; one that is not registered is an error, or itself.
    """
    fields, base = [("offset", Any, dataclasses.field(default=None))], power_class()
    unregistered, made = (dataclasses.make_dataclass("Offset", fields, bases=(base,), frozen=True) for _ in range(2))
    adprotocol.register_structure(made, static=("power",))
    run = h.trace(way, lambda model: dataclasses.replace(model, offset=3.0 * model.offset))
    returned: type = unregistered
    with contextlib.suppress(Exception):  # an error of the system's will do
        returned = type(h.trace(way, lambda model: model)(unregistered(h.array(2.0), h.array(1.0), 1, h.array(4.0))))
    h.check(returned is unregistered, f"{way} returned a {returned.__name__} for what is not registered")
    for _ in range(2):
        found = run(made(h.array(2.0), h.array(1.0), 1, h.array(4.0)))
        h.check(type(found) is made, f"{way} returned a {type(found).__name__}")
        h.assert_equal(found.offset, 12.0, "the field of the subclass")
        h.assert_equal(found.scale, 2.0, "the field of its base")


@scenario(
    transform="vmap",
    also_needs=("node",),
    source="PyTorch: models return dataclasses: https://github.com/pytorch/pytorch/pull/93214",
)
def registered_structure_under_vmap(h: Checked) -> None:
    """A structure is the argument and the result of a batched function.

    Expect rows of a structure, (1, 2) and (3, 5): 2 x and a label of y + 1 in a structure of rows, with its static
    field, 2 and 3.
    """
    power = power_class()
    run = h.vmap(lambda row: power(2.0 * row.scale, NonDifferentiable(row.shift + 1.0), row.power))
    for static in (2, 3):
        result = run(power(h.array([1.0, 3.0]), h.array([2.0, 5.0]), static))
        h.check(type(result) is power, f"vmap returned a {type(result).__name__}")
        h.assert_equal(result.scale, [2.0, 6.0], "the first field")
        h.check(isinstance(result.shift, NonDifferentiable), f"a {type(result.shift).__name__} came for a label")
        h.assert_equal(result.shift, [3.0, 6.0], "the second field")
        h.assert_equal(result.power, static, "the static field")


@scenario(
    transform="grad of {way}",
    also_needs=("node",),
    source="JAX, a type for what is not to be differentiated: https://github.com/jax-ml/jax/issues/2588",
)
def registered_structure_with_a_label(h: Checked, way: str) -> None:
    """A label in a structure that crosses {way} is a constant there, and still a label.

    Expect x ** 3 - x, where the last x is in a label: 6 and the gradient 12 at 2.
    """
    power = power_class()

    def fun(model: Any, x: Any) -> Any:
        h.check(isinstance(model.shift, NonDifferentiable), f"a {type(model.shift).__name__} came for a label")
        return model(x)

    def f(x: Any) -> Any:
        return h.trace(way, fun)(power(x, NonDifferentiable(x)), x)

    h.assert_value_and_grad(f, (h.array(2.0),), 6.0, 12.0)


def _special_node(h: Checked) -> Callable[..., Any]:
    """Return what makes instances, of an array and a text, of a class that inherits from that of a node."""

    def make(*children: Any) -> Any:
        made = h.node(children)
        made.__class__ = cls
        return made

    h.absent_if(not h.has("node"), "its plugin registers no structures with a tree library")
    try:
        cls = type("Special", (type(h.node(())),), {"power": 1})
        make()
    except TypeError as error:
        msg = f"the class of a node has no others below it: {error}"
        raise Absent(msg) from error
    return make


@scenario(source="JAX: custom nodes and their constructors: https://docs.jax.dev/en/latest/custom_pytrees.html")
def rebuilt_without_the_constructor(h: Checked) -> None:
    """The framework's tree library takes a structure apart, and rebuilds it without the constructor of its class.

    Expect the array itself among the children, tracked where it is, and of any others an instance with these, while the
    constructor raises; of a class that is registered, or, where none is, of one derived from that of a node.
    """
    library: Any = plugin_of(h).tree_library
    h.absent_if(library is None, "its plugin has no tree library")
    make: Any = power_class() if library.register is not None else _special_node(h)
    array = h.array(2.0)
    made = make(array, "shift")
    node: Any = library.node(made)
    h.absent_if(node is None, "its tree library does not flatten what others registered, or derived from its nodes")

    def child(x: Any) -> Any:
        first = next(iter(node[0](make(x, "shift"))[0]))
        h.assert_is(first, x, "the first child")
        return first * first

    h.assert_equal(child(array), 4.0, "the square of the first child")
    if h.has("grad"):
        h.assert_equal(h.grad(child)(array), 4.0, "its gradient")
    cls = type(made)
    cls.__init__ = cls.__post_init__ = lambda *_, **__: h.fail(array)
    _, metadata, *_ = node[0](made)
    rebuilt: Any = node[1](metadata, ["scale", None])
    h.assert_is(type(rebuilt), cls, "the class of what was rebuilt")
    held = [*node[0](rebuilt)[0], rebuilt.power]
    h.check(held == ["scale", None, 1], f"what was rebuilt holds {held}")
