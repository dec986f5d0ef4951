"""`register_structure`: one call that makes a class a node of every framework's own trees.

This package flattens dataclasses as they are. The frameworks do not: a structure
that is an argument of ``jax.jit`` or ``torch.vmap`` itself must be registered with
each. Their plugins do that (the hook `tree_library`), at the call, or, for a
framework imported later, when their import ends.
"""

from __future__ import annotations

import sys

from adprotocol._dispatch.post_import import call_after_import
from adprotocol._dispatch.registry import LOCK, REGISTRY
from adprotocol._trees import fields as by_name
from adprotocol._trees import node
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import DeclarationError, PluginError, StructureError
from adprotocol.messages import kind_of, nearest, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from adprotocol.hookspecs import TreeLibrary

# The label, for optree only: each plugin registers it with its framework's trees.
LABELS: dict[type, node.Functions] = {}

# The static fields of the classes registered, or the two functions that were given.
_STATIC: dict[type, Any] = {}


def register_structure(
    cls: Any = None,
    static: Iterable[str] = (),
    *,
    flatten: Callable[[Any], tuple[Any, Any]] | None = None,
    unflatten: Callable[[Any, Any], Any] | None = None,
) -> Any:
    """Make a class a node of every framework's own trees, also of a framework imported later.

    >>> import dataclasses, jax
    >>> from adprotocol import register_structure
    >>> @register_structure(static=("degree",))
    ... @dataclasses.dataclass(frozen=True)
    ... class Line:
    ...     slope: float
    ...     degree: int = 1
    >>> print(jax.jit(lambda line, x: line.slope * x**line.degree)(Line(2.0, degree=3), 2.0))
    16.0
    >>> jax.tree.map(lambda leaf: 10 * leaf, Line(2.0))
    Line(slope=20.0, degree=1)

    The functions of this package need no registration. Those of a framework do if an
    instance is an argument or a result: ``jax.jit``, ``jax.vmap``, optax, ``torch.func``,
    ``torch.vmap``, and optree in the namespace ``"adprotocol"``. No framework is imported.
    One that is imported later learns the class before its import returns. Instances are
    rebuilt without calling ``__init__``.

    Give a class of another kind, such as a quantity with a unit or a labelled array, with
    two functions, in the convention of the tree libraries:

    >>> class Quantity:
    ...     def __init__(self, magnitude, unit):
    ...         self.magnitude, self.unit = magnitude, unit
    >>> register_structure(
    ...     Quantity, flatten=lambda q: ((q.magnitude,), q.unit), unflatten=lambda unit, part: Quantity(*part, unit)
    ... ) is Quantity
    True
    >>> print(jax.grad(lambda q: q.magnitude**2)(Quantity(3.0, "m")).magnitude)
    6.0

    A tree library where the class is already registered keeps that registration.
    Registering a class again with the same static fields changes nothing. Register each
    subclass for itself.

    Args:
        cls: a dataclass (of any kind), an attrs class or a named tuple; with the two
            functions any class. Leave it out in the decorator
            ``@register_structure(static=...)``, which stands above ``@dataclass``.
        static: the names of fields that are part of the structure, not leaves: strings,
            functions, sizes. They are hashed and compared, and a framework compiles again
            for another value. Fields declared static as in Equinox and flax are static
            anyway. A named tuple cannot have any: PyTorch flattens all of its fields.
        flatten: returns the children of an instance, and the static data that rebuilds it.
        unflatten: returns an instance from the static data and any children, None included.

    Returns:
        The class itself.

    Raises:
        StructureError: not a class of these kinds, one function without the other or together with static
            fields, or registered before with other fields or functions.
        DeclarationError: a name in `static` is not a field.
        PluginError: a plugin cannot register the class.
    """
    if cls is None:
        return lambda decorated: register_structure(decorated, static, flatten=flatten, unflatten=unflatten)
    given = flatten is not None or unflatten is not None
    if given and not (isinstance(cls, type) and callable(flatten) and callable(unflatten) and not tuple(static)):
        msg = f"register_structure was given {shown(cls)}, flatten= or unflatten=; give a class and both functions"
        raise StructureError(msg)
    names: Any = (flatten, unflatten) if given else _static_fields(cls, static)
    with LOCK:
        known = _STATIC.get(cls)
        if known is None:
            _STATIC[cls] = names
    if known is not None:
        if known != names:
            raise StructureError(
                f"register_structure was given {cls.__qualname__} with {_listed(names)}, but it is registered with "
                f"{_listed(known)}; frameworks cannot forget a class: register it once"
            )
        return cls
    if flatten is not None and unflatten is not None:

        def named(value: Any) -> Any:
            children, metadata = flatten(value)
            return [*children], metadata, tuple(map(str, range(len(children))))

        _register(cls, node.checked(named, unflatten))
    elif not issubclass(cls, tuple):  # every tree library knows named tuples
        _register(cls, by_name.by_fields(cls, tuple(name for name in by_name.field_names(cls) if name in names)))
    return cls


def _register(cls: type, functions: node.Functions) -> None:
    # Without the lock: it may wait for an import in another thread.
    REGISTRY.await_frameworks()
    with LOCK:
        node.STRUCTURES[cls] = functions
        for plugin in REGISTRY.active():
            try:
                _teach(plugin.tree_library, {cls: functions})
            # Any exception is the plugin's fault.
            except Exception as error:
                raise PluginError(f"the plugin {plugin.name!r} cannot register {cls.__qualname__}: {error}") from error
    node.forget((cls,))
    if "optree" in sys.modules:
        _teach_optree()
    else:
        call_after_import("optree", _teach_optree)


def _teach_optree(_name: str = "optree") -> None:
    optree = sys.modules["optree"]
    for cls, functions in (*node.STRUCTURES.items(), *LABELS.items()):
        # A class that others registered keeps that.
        if optree.register_pytree_node.get(cls, namespace=node.NAMESPACE) is None:
            optree.register_pytree_node(cls, *functions, namespace=node.NAMESPACE)


def _teach(library: TreeLibrary | None, structures: dict[type, Any]) -> None:
    for cls, functions in tuple(structures.items()):
        if library is not None and library.register is not None:
            library.register(cls, *functions)


REGISTRY.on_activate.append(lambda library: _teach(library, node.STRUCTURES))


def _static_fields(cls: Any, static: Iterable[str]) -> frozenset[str]:
    """Return the static fields of a class: those named, and those that its fields declare."""
    is_tuple = isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")
    is_by_fields = isinstance(cls, type) and by_name.has_fields(cls) and not by_name.is_enum(cls)
    if not (is_tuple or (is_by_fields and by_name.holds_attributes_alone(cls))):
        given = f"the class {cls.__qualname__}" if isinstance(cls, type) else kind_of(cls)
        what = "which is not a dataclass, an attrs class or a named tuple"
        if is_by_fields:
            what = "whose instances hold more than fields (it is a dict or an error too, or a field is a property)"
        raise StructureError(
            f"register_structure was given {given}, {what}. Make it one (`@register_structure` stands above "
            "`@dataclass`), or give the functions flatten= and unflatten="
        )
    named = (static,) if isinstance(static, str) else tuple(static)
    fields: tuple[str, ...] = cls._fields if is_tuple else by_name.field_names(cls)
    for name in named:
        if name not in fields:
            raise DeclarationError(
                f"register_structure was given {name!r:.60} as a static field of {cls.__qualname__}, which has no such "
                f"field; the nearest are {nearest(str(name), fields)}"
            )
    if is_tuple:
        if named:
            raise StructureError(
                f"register_structure was given static fields of the named tuple {cls.__qualname__}, but PyTorch "
                "flattens all fields of a named tuple; make it a dataclass (frozen=True, and unpack its fields by name)"
            )
        return frozenset()
    return frozenset(named) | by_name.declared_static(cls)


def _listed(names: Any) -> str:
    if isinstance(names, tuple):
        return f"the functions {shown(names[0])} and {shown(names[1])}"
    return f"the static fields {', '.join(map(repr, sorted(names))) or 'none'}"
