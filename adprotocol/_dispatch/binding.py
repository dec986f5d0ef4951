"""A binding: the functions that serve the values of one kind.

The table maps each type to a binding. A plugin yields a few of them; the core has
one for each kind of value that belongs to no framework
(`adprotocol._hooks.builtins`).
"""

from __future__ import annotations

from adprotocol._dispatch.dtype import is_inexact
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import PluginError
from adprotocol.messages import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from adprotocol.hookspecs import View

    # Takes an instance; returns the children, the metadata, and the names of the children in paths.
    Flatten = Callable[[Any], tuple[Sequence[Any], Any, tuple[Any, ...]]]
    # Takes the metadata and any children; returns an instance.
    Unflatten = Callable[[Any, Any], Any]


# What a value is to the library, as far as its type shows: the kinds of no framework, and those of one. Names, not an
# enum: its import costs 4 ms, and an attribute of it 70 ns for every value of a call, a global 10 (CPython 3.11).
PLAIN = "PLAIN"  # a number, string or other value that holds nothing
NUMPY = "NUMPY"  # an array of NumPy, or of another library without AD
CONTAINER = "CONTAINER"  # a node of the traversal
FUNCTION = "FUNCTION"
CLASS = "CLASS"
LABEL = "LABEL"  # a NonDifferentiable
OPAQUE = "OPAQUE"  # an object of an unknown class

ARRAY = "ARRAY"  # an array, tracer or box
CONSTANT = "CONSTANT"  # an array that never carries a derivative
VIEWED = "VIEWED"  # an array that is also a container, such as the box of a dict
OBJECT = "OBJECT"  # an object that is not an array and has a view, such as a module


class Unset:
    """The type of `UNSET`, the default of an argument that may be None."""

    def __repr__(self) -> str:
        return "<unset>"


UNSET = Unset()


def always_false(value: Any) -> bool:  # noqa: ARG001  (the signature of the hook)
    """Answer False: a value of this kind carries no derivative."""
    return False


def always_true(*_value: Any) -> bool:
    """Answer True: Python may look at the elements of a value of this kind; a derivative may enclose any call."""
    return True


def identity(value: Any) -> Any:
    """Return the identical object: a value of this kind is a constant already."""
    return value


def call_branch(pred: Any, true_fun: Any, false_fun: Any, operands: tuple[Any, ...]) -> Any:
    """Run the branch that a Python bool chooses, once."""
    return true_fun(*operands) if pred else false_fun(*operands)


def not_trainable(value: Any) -> None:
    """Answer None: a value of this kind cannot take a gradient."""


def trainable_by_dtype(value: Any) -> bool | None:
    """Answer by the dtype: arrays of floating-point and complex dtypes take gradients, and those without a dtype."""
    dtype = getattr(value, "dtype", UNSET)
    return True if dtype is UNSET or is_inexact(dtype) else None


class Binding:
    """Hold the hook functions for one kind of value.

    `framework` is the name of the plugin, or None for a kind of the core, which mixes
    with any framework; `part` tells apart several bindings of one kind. `flatten` and
    `unflatten` are those of a container (`adprotocol._trees.node`), None for a leaf;
    `contents` returns children, metadata, and names or None; `origin` is how its class is
    known (`adprotocol._trees.node.origin`). `stands_for` returns
    the values that a leaf stands for (an object array for its elements), or None if it is
    one itself.
    The instances are attributes of `adprotocol._dispatch.table.BINDINGS`, by `name`, so
    that a compiler that traces Python can follow the lookup.
    """

    kind: str
    framework: str | None
    name: str
    within_gradient: Callable[[Any], Any]
    any_within_gradient: Callable[[Sequence[Any]], Any] | None
    non_differentiable: Callable[[Any], Any]
    prevent_gradient: Callable[[Any, str], Any] | None
    is_concrete: Callable[[Any], bool]
    cond: Callable[[Any, Any, Any, tuple[Any, ...]], Any]
    trainable: Callable[[Any], bool | None]
    identity: Callable[[Any], Any] | None
    freeze: Callable[[Any], Any]
    is_recording: Callable[[], bool]
    vjp: Callable[[Any, list[Any], bool], tuple[list[Any], list[Any], Any]] | None
    jvp: Callable[[Any, list[Any], list[Any]], tuple[list[Any], list[Any], list[Any]]] | None
    vmap: Callable[[Any, list[Any], int | None], list[Any]] | None
    custom_rule: Callable[[Any, list[Any]], tuple[list[Any], Any]] | None
    host_call: Callable[[Any, list[Any], list[Any] | None, bool, str], list[Any]] | None
    array_functions: Callable[[], Any] | None
    view: Callable[[Any], View] | None
    stands_for: Callable[[Any], Sequence[Any] | None] | None
    flatten: Flatten | None
    unflatten: Unflatten | None
    contents: Callable[[Any], Sequence[Any]] | None
    origin: str | None
    explain: Callable[[Any], str] | str

    __slots__ = tuple(__annotations__)

    def __init__(self, kind: str, framework: str | None = None, part: str = "", **given: Any) -> None:
        self.kind = kind
        self.framework = framework
        self.name = part or kind if framework is None else f"{kind} {framework}{part}"
        for slot, value in (_DEFAULTS | given).items():
            setattr(self, slot, value)

    def __repr__(self) -> str:
        return f"<Binding {self.name}>"

    def functions(self, caller: str, *names: str) -> Any:
        """Return what the hook `array_functions` does; raise unless it has the functions that a caller needs."""
        functions = None if self.array_functions is None else self.array_functions()
        if all(hasattr(functions, name) for name in names):
            return functions
        needed = f"{caller} needs the hook array_functions of the plugin for {self.framework}"
        raise PluginError(
            f"{needed}, with {' and '.join(names)}; upgrade the plugin, or use the framework's own functions"
        )


# What a binding has in the slots that are not given; the first three are given always.
_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(Binding.__slots__[3:]),
    "within_gradient": always_false,
    "non_differentiable": identity,
    "is_concrete": always_true,
    "cond": call_branch,
    "trainable": not_trainable,
    "freeze": identity,
    "is_recording": always_true,
    "explain": "",
}

# The hooks that are given only what may carry a derivative.
_OF_TRACKED = ("within_gradient", "non_differentiable", "prevent_gradient")


def checked(binding: Binding, hook: str, entries: Any, count: int) -> Any:
    """Return what a hook returned for several arrays, if there is an entry for each."""
    if isinstance(entries, (list, tuple)) and len(entries) == count and type(None) not in list(map(type, entries)):
        return entries
    raise PluginError(
        f"the hook {hook} of the plugin {binding.framework!r} returned {shown(entries)}; it must return {count} "
        "array(s) there, as adprotocol.hookspecs documents"
    )


def framework_bindings(
    name: str, hooks: Mapping[str, Callable[..., Any]], views: Mapping[type, Callable[[Any], View]]
) -> dict[tuple[str, type | None], Binding]:
    """Return the bindings that the hooks of a plugin yield, by kind and, for those with a view, by the viewed type."""
    asked: dict[str, Any] = {"trainable": trainable_by_dtype}
    asked |= {hook: function for hook, function in hooks.items() if hook in _DEFAULTS}
    given = {hook: function for hook, function in asked.items() if hook not in _OF_TRACKED}
    bindings: dict[tuple[str, type | None], Binding] = {
        (ARRAY, None): Binding(ARRAY, name, **asked),
        (CONSTANT, None): Binding(CONSTANT, name, **given),
    }
    for number, (cls, view) in enumerate(views.items()):
        bindings[VIEWED, cls] = Binding(VIEWED, name, f" {number}", **asked, view=view)
        bindings[OBJECT, cls] = Binding(OBJECT, name, f" {number}", **given, view=view, stands_for=_asked(view))
    return bindings


def _asked(view: Callable[[Any], View]) -> Callable[[Any], Sequence[Any]]:
    return lambda value: view(value).asked()
