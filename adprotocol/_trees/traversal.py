"""The one traversal: optree, in a namespace of our own.

`adprotocol._trees.node` decides which classes are nodes; everything else is a leaf,
including ``None`` and `NonDifferentiable`. optree is imported when a container is
first met.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adprotocol._dispatch.binding import CONTAINER, OPAQUE
from adprotocol._dispatch.table import binding_of
from adprotocol._trees.node import NAMESPACE, admit_value, look_again
from adprotocol.errors import TreeError, with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def tree_leaves(values: tuple[Any, ...]) -> list[Any]:
    """Return the leaves of several values in order; arrays and numbers cost one lookup each."""
    found: list[Any] = []
    for value in values:
        if is_container(value):
            found.extend(container_leaves(value))
        else:
            found.append(value)
    return found


def is_container(value: Any) -> bool:
    """Tell whether the traversal flattens `value`; a type that a plugin knows becomes a node when it is first met."""
    kind = binding_of(type(value)).kind
    return kind is CONTAINER or (kind is OPAQUE and admit_value(value))


def container_leaves(tree: Any) -> list[Any]:
    """Return the leaves of one container in order; ``None`` is a leaf.

    Raises `TreeError` for a structure that contains itself or is too deep.
    """
    import optree  # noqa: PLC0415  (P1: not at import)

    if look_again():
        nodes_changed()
    while True:
        try:
            found = optree.tree_leaves(tree, none_is_leaf=True, namespace=NAMESPACE)
        except RecursionError as error:
            raise too_deep(tree) from error
        if not admit_all(found):
            return found


def tree_flatten(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None, *, visit: Callable[[Any], bool] | None = None
) -> tuple[list[Any], Any]:
    """Return the leaves in order, and the treespec; a node for which `is_leaf` is true stays whole.

    `visit`, which replaces `is_leaf`, is called with every node and leaf and returns False.
    """
    import optree  # noqa: PLC0415

    if look_again():
        nodes_changed()
    while True:
        try:
            found, treespec = optree.tree_flatten(tree, visit or is_leaf, none_is_leaf=True, namespace=NAMESPACE)
        except RecursionError as error:
            raise too_deep(tree) from error
        if not admit_all(found if is_leaf is None else [leaf for leaf in found if not is_leaf(leaf)]):
            return found, treespec


def flatten_one_level(tree: Any) -> tuple[list[Any], tuple[str, ...]] | None:
    """Return the children of one node and their names, or None for a leaf."""
    node = one_level(tree)
    return None if node is None else (node[0], node[2])


def one_level(tree: Any) -> tuple[list[Any], Any, tuple[str, ...], Callable[[Any, list[Any]], Any]] | None:
    """Return the children of one node, its metadata, their names, and what rebuilds it; None for a leaf."""
    if not is_container(tree):
        return None
    import optree  # noqa: PLC0415

    # A plain tuple before optree 0.14, a named one since.
    children, metadata, entries, unflatten = optree.tree_flatten_one_level(tree, none_is_leaf=True, namespace=NAMESPACE)
    names = getattr(type(tree), "_fields", None) if isinstance(tree, tuple) else None
    return (
        children,
        metadata,
        tuple([str(name) for name in (entries if names is None else names)]),
        unflatten,
    )


def tree_unflatten(treespec: Any, leaves: Sequence[Any], tree: Any) -> Any:
    """Return a container like `tree`, whose treespec is `treespec`, with other leaves."""
    try:
        return treespec.unflatten(leaves)
    # A user's constructor may raise anything when given other leaves.
    except Exception as error:
        if not is_native(treespec):
            return tree_unflatten(tree_structure(tree), leaves, tree)
        raise _not_rebuildable(tree, list(leaves), error) from error


def is_native(treespec: Any) -> bool:
    """Tell whether a treespec is optree's own; a compiler may make another kind, valid only in its graph."""
    return type(treespec).__module__.startswith("optree")


def treespecs_equal(treespec: Any, other: Any) -> bool:
    """Tell whether two treespecs are equal; those whose static fields cannot be compared (arrays) are not."""
    try:
        return bool(treespec == other)
    # The comparison of a user's static fields may raise anything.
    except Exception:  # noqa: BLE001
        return False


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return a container, or a single leaf, with `function` applied to every leaf."""
    if not is_container(tree):
        return function(tree)
    leaves, treespec = tree_flatten(tree)
    return tree_unflatten(treespec, [function(leaf) for leaf in leaves], tree)


def tree_structure(tree: Any) -> Any:
    """Return the treespec of `tree`, to compare structures by."""
    return tree_flatten(tree)[1]


def too_deep(tree: Any) -> TreeError:
    """Return the error for a structure that contains itself or is too deep."""
    return TreeError(
        f"the {type(tree).__qualname__} given to adprotocol contains itself, or is nested deeper than the "
        "traversal can follow; break the cycle, or pass the arrays themselves"
    )


def _not_rebuildable(tree: Any, leaves: list[Any], error: Exception) -> TreeError:
    path, cls = _refusing(tree, leaves)
    where = f"at {path!r} " if path else ""
    return TreeError(
        f"the {type(tree).__qualname__} given to adprotocol holds {where}{with_article(cls.__qualname__)} that cannot "
        f"be rebuilt from its leaves ({type(error).__name__}: {error}); let its unflatten function accept any leaf, "
        "None included (set the attributes instead of calling a constructor that checks them), or pass the arrays "
        "themselves"
    )


def _refusing(tree: Any, leaves: list[Any]) -> tuple[str, type]:
    """Return the path and the class of the innermost node that refuses its new leaves."""
    import optree  # noqa: PLC0415

    waiting: list[tuple[str, Any, list[Any]]] = [("", tree, leaves)]
    refusing: tuple[str, type] = ("", type(tree))
    while waiting:
        path, node, new = waiting.pop()
        level = flatten_one_level(node)
        if level is None:
            continue
        try:
            optree.tree_structure(node, none_is_leaf=True, namespace=NAMESPACE).unflatten(new)
        # The error of `tree_unflatten` again: go on below this node to find the innermost one.
        except Exception:  # noqa: BLE001
            refusing = (path, type(node))
            waiting.clear()
            start = 0
            for child, name in zip(*level, strict=True):
                count = len(container_leaves(child))
                waiting.append((f"{path}.{name}" if path else name, child, new[start : start + count]))
                start += count
    return refusing


def admit_all(leaves: list[Any]) -> bool:
    """Register the container types among the leaves as nodes; return whether there were any."""
    admitted = False
    for cls in {type(leaf) for leaf in leaves}:
        kind = binding_of(cls).kind
        if kind is CONTAINER:
            admitted = True
        elif kind is OPAQUE:
            admitted |= admit_value(next(leaf for leaf in leaves if type(leaf) is cls))
    if admitted:
        nodes_changed()
    return admitted


def nodes_changed() -> None:
    """Do nothing in eager code: a compiler that is tracing has to read optree's registry again."""
