"""The one traversal: optree, in a namespace of our own.

`adprotocol._trees.node` says what is a container; everything else is a leaf, ``None``
and `NonDifferentiable` too. optree is imported when a container is first met.

Under ``torch.compile`` Dynamo replaces optree's C++ functions by Python it can
trace (``torch._dynamo.polyfills.pytree``), so nothing here is written twice.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from adprotocol._dispatch.table import bind, binding_of
from adprotocol._dynamo import forget_what_was_read
from adprotocol._trees.node import NAMESPACE, admit_value
from adprotocol.errors import TreeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def flatten(values: tuple[Any, ...]) -> list[Any]:
    """Return the leaves of several values in order; arrays and numbers cost one lookup each."""
    found: list[Any] = []
    for value in values:
        if is_container(value):
            found.extend(leaves(value))
        else:
            found.append(value)
    return found


def is_container(value: Any) -> bool:
    """Tell whether the traversal takes `value` apart; a type that plugins know is admitted on first sight."""
    key = binding_of(type(value)).key
    return key == "container" or (key == "opaque" and admit_value(value))


def leaves(tree: Any) -> list[Any]:
    """Return the leaves of one container in order; ``None`` is a leaf.

    Raises `TreeError` for a structure that contains itself or is too deep.
    """
    import optree  # noqa: PLC0415  (P1: not at import)

    while True:
        try:
            found = optree.tree_leaves(tree, none_is_leaf=True, namespace=NAMESPACE)
        except RecursionError as error:
            raise too_deep(tree) from error
        if not _admit_all(found):
            return found


def take_apart(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None, *, sees: Callable[[Any], bool] | None = None
) -> tuple[list[Any], Any]:
    """Return the leaves in order, and optree's treespec; what `is_leaf` says stays whole.

    `sees` is shown every node and leaf, and returns False.
    """
    import optree  # noqa: PLC0415

    while True:
        try:
            found, treespec = optree.tree_flatten(tree, sees or is_leaf, none_is_leaf=True, namespace=NAMESPACE)
        except RecursionError as error:
            raise too_deep(tree) from error
        if not _admit_all(found if is_leaf is None else [leaf for leaf in found if not is_leaf(leaf)]):
            return found, treespec


def one_level(tree: Any) -> tuple[list[Any], tuple[str, ...]] | None:
    """Return the children of one node and their names, or None for a leaf."""
    if not is_container(tree):
        return None
    import optree  # noqa: PLC0415

    node = optree.tree_flatten_one_level(tree, none_is_leaf=True, namespace=NAMESPACE)
    names = getattr(type(tree), "_fields", None) if isinstance(tree, tuple) else None
    return node.children, tuple(str(name) for name in (node.entries if names is None else names))


def rebuild(treespec: Any, found: Sequence[Any], tree: Any) -> Any:
    """Return a container like `tree`, whose treespec is given, with other leaves."""
    try:
        return treespec.unflatten(found)
    # Whatever the constructor of somebody's class raises when it is given other leaves.
    except Exception as error:
        # A treespec made in a graph is Dynamo's, and does not survive the end of the graph before that of the call.
        fresh = structure(tree)
        if type(fresh) is not type(treespec):
            return rebuild(fresh, found, tree)
        raise _not_rebuildable(tree, list(found), error) from error


def same(treespec: Any, other: Any) -> bool:
    """Tell whether two treespecs are equal; static fields that cannot be compared (arrays) are not."""
    try:
        return bool(treespec == other)
    # Whatever the comparison of somebody's static field raises.
    except Exception:  # noqa: BLE001
        return False


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return a container, or a single leaf, with `function` applied to every leaf."""
    if not is_container(tree):
        return function(tree)
    found, treespec = take_apart(tree)
    return rebuild(treespec, [function(leaf) for leaf in found], tree)


def structure(tree: Any) -> Any:
    """Return the optree treespec of `tree`, to compare structures by."""
    return take_apart(tree)[1]


def plain_array(array: Any) -> Any:
    """Return a view of a NumPy array of any subclass (masked, record) as a plain one."""
    return array.view(sys.modules["numpy"].ndarray)


def too_deep(tree: Any) -> TreeError:
    """Return the error for a structure that contains itself or is too deep."""
    return TreeError(
        f"the {type(tree).__qualname__} given to adprotocol contains itself, or is nested deeper than the "
        "traversal can follow; break the cycle, or pass the arrays themselves"
    )


def _not_rebuildable(tree: Any, found: list[Any], error: Exception) -> TreeError:
    path, cls = _refusing(tree, found)
    where = f"at {path!r} " if path else ""
    return TreeError(
        f"the {type(tree).__qualname__} given to adprotocol holds {where}a {cls.__qualname__} that cannot be rebuilt "
        f"from its parts ({type(error).__name__}: {error}); let the function that rebuilds it from its leaves take any "
        "leaf, None included (set the attributes, do not call a constructor that checks them), or pass the "
        "arrays themselves"
    )


def _refusing(tree: Any, found: list[Any]) -> tuple[str, type]:
    """Return the path and the class of the innermost node that refuses its new leaves."""
    import optree  # noqa: PLC0415

    waiting: list[tuple[str, Any, list[Any]]] = [("", tree, found)]
    refusing: tuple[str, type] = ("", type(tree))
    while waiting:
        path, node, mine = waiting.pop()
        level = one_level(node)
        if level is None:
            continue
        try:
            optree.tree_structure(node, none_is_leaf=True, namespace=NAMESPACE).unflatten(mine)
        # The same error as in `rebuild`, looked for deeper and deeper.
        except Exception:  # noqa: BLE001
            refusing = (path, type(node))
            waiting.clear()
            start = 0
            for child, name in zip(*level, strict=True):
                count = len(leaves(child))
                waiting.append((f"{path}.{name}" if path else name, child, mine[start : start + count]))
                start += count
    return refusing


def _admit_all(found: list[Any]) -> bool:
    """Make nodes of the container types among the leaves; tell whether there were any."""
    admitted = False
    for cls in {type(leaf) for leaf in found}:
        key = bind(cls)
        if key == "container":
            admitted = True
        elif key == "opaque":
            admitted |= admit_value(next(leaf for leaf in found if type(leaf) is cls))
    if admitted:
        forget_what_was_read()
    return admitted
