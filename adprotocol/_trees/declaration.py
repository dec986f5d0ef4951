"""The trainable fields that a class declares: `__trainable__`, `register_trainable` and field metadata."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from adprotocol._trees.fields import DECLARATION, field_names, fields_of, has_fields
from adprotocol._trees.node import BUILT_IN
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import DeclarationError
from adprotocol.messages import kind_of, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

METADATA = "trainable"

_REGISTERED: dict[type, tuple[str, ...]] = {}
# The fields that metadata freeze, by class.
_FROZEN: dict[type, tuple[str, ...]] = {}


def register_trainable(cls: type, names: Iterable[str]) -> None:
    """Declare the fields that take gradients, for a class that you do not own.

    >>> import adprotocol, collections
    >>> Kernel = collections.namedtuple("Kernel", ["variance", "lengthscale"])
    >>> adprotocol.register_trainable(Kernel, ["variance"])
    >>> adprotocol.trainable(Kernel(1.0, 2.0))
    Kernel(variance=1.0, lengthscale=None)

    Subclasses inherit the declaration, unless they have their own. It overrides a
    `__trainable__` of the same class. Registering again replaces it.

    Args:
        cls: a class whose instances are nodes of structures: a dataclass, a
            named tuple, an attrs class, a registered node, a torch module.
        names: the fields that take gradients; an empty list freezes all of them.
            For a torch module, names of parameters and submodules.

    Raises:
        DeclarationError: `cls` is not a class, `names` are not strings, or a field
            is unknown (if only instances show the fields of the class, raised at
            the first instance).
    """
    if not isinstance(cls, type):
        msg = f"register_trainable was given {kind_of(cls)}; give it a class and the names of its fields"
        raise DeclarationError(msg)
    given = _checked(cls, names)
    fields = _class_fields(cls)
    if fields is not None:
        _check_known(cls, given, fields)
    _REGISTERED[cls] = given


def _class_fields(cls: type) -> tuple[str, ...] | None:
    """Return the fields of a class, or None where only instances show them."""
    if has_fields(cls):
        return field_names(cls)
    return getattr(cls, "_fields", None) if issubclass(cls, tuple) else None


def declares(cls: type) -> bool:
    """Return whether a class declares trainable fields.

    >>> from adprotocol.extend import declares
    >>> declares(type("Kernel", (), {"__trainable__": ("variance",)})), declares(dict)
    (True, False)
    """
    if cls in BUILT_IN and cls not in _REGISTERED:
        return False
    return hasattr(cls, DECLARATION) or not _REGISTERED.keys().isdisjoint(cls.__mro__) or bool(frozen_fields(cls))


def refuse_opaque(cls: type) -> None:
    """Refuse a class that declares trainable fields but is no structure: all of an instance would be frozen."""
    if declares(cls):
        raise DeclarationError(
            f"{cls.__qualname__} declares trainable fields but is not a structure, so all of it would be frozen; make "
            "it a dataclass, or register it with optree or with the framework's own tree library"
        )


def trainable_names(value: Any, names: Iterable[str]) -> set[str]:
    """Return those of the fields `names` that the class of `value` declares trainable.

    Raises `DeclarationError` for an unknown name.

    >>> from adprotocol.extend import trainable_names
    >>> kernel = type("Kernel", (), {"__trainable__": ("variance",)})()
    >>> trainable_names(kernel, ["variance", "period"])
    {'variance'}
    """
    cls = type(value)
    known = tuple(names)
    declared = _declared(value)
    frozen = frozen_fields(cls)
    if declared is not None:
        # A static field of the framework may be declared too; it takes no gradient.
        _check_known(cls, declared, dict.fromkeys((*known, *(_class_fields(cls) or ()))))
    unnamed = {*(declared or ()), *frozen}.difference(known)
    if unnamed and known and known == tuple(map(str, range(len(known)))):
        raise DeclarationError(
            f"{cls.__qualname__} declares whether its field {min(unnamed)!r} is trainable, but is registered as a node "
            "without names for its children, so that none can be matched to it; register it with keys, as "
            "jax.tree_util.register_dataclass and register_pytree_with_keys do"
        )
    return set(known).intersection(known if declared is None else declared).difference(frozen)


def _declared(value: Any) -> tuple[str, ...] | None:
    cls = type(value)
    for base in cls.__mro__:
        if base in _REGISTERED:
            return _REGISTERED[base]
        if DECLARATION in base.__dict__:
            return _checked(cls, getattr(value, DECLARATION))
    return None


def frozen_fields(cls: type) -> tuple[str, ...]:
    """Return the fields of a dataclass or an attrs class whose metadata freezes them."""
    if cls in _FROZEN:
        return _FROZEN[cls]
    frozen = []
    for field in fields_of(cls):
        flag = field.metadata.get(METADATA, True)
        if type(flag) is not bool:
            raise DeclarationError(
                f"the metadata {METADATA!r} of the field {field.name!r} of {cls.__qualname__} is {flag!r:.60}; it must "
                "be a bool"
            )
        if not flag:
            frozen.append(field.name)
    _FROZEN[cls] = tuple(frozen)
    return _FROZEN[cls]


def _checked(cls: type, names: Any) -> tuple[str, ...]:
    # A mapping would be read by its keys only; an iterator is exhausted by the first instance.
    is_list = isinstance(names, Collection) and not isinstance(names, (Mapping, str))
    given = tuple(names) if is_list else (names,)
    wrong = [name for name in given if not isinstance(name, str)]
    if wrong:
        raise DeclarationError(
            f"{cls.__qualname__} declares {wrong[0]!r:.60}, {kind_of(wrong[0])}, as trainable; name its fields by "
            f"strings, as in {DECLARATION} = ('variance',)"
        )
    return given


def _check_known(cls: type, given: Iterable[str], fields: Iterable[str]) -> None:
    for name in given:
        if name not in fields:
            raise DeclarationError(
                f"{cls.__qualname__} declares {name!r} as trainable, but has no such field; the nearest are "
                f"{nearest(name, fields)}. Correct {DECLARATION} or the call of register_trainable"
            )
