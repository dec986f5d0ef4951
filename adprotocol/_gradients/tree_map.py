"""`tree_map`: a function applied to each leaf of a structure, as in optimiser steps."""

from __future__ import annotations

from adprotocol._gradients.structure import Structure
from adprotocol._hooks.label import NonDifferentiable
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.messages import add_note, kind_of, quoted

if TYPE_CHECKING:
    from collections.abc import Callable


def tree_map(fun: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Apply `fun` to each leaf of `tree`, and to the leaves of other structures at the same places.

    >>> import adprotocol
    >>> model = {"w": 1.0, "order": None, "scale": adprotocol.NonDifferentiable(4.0)}
    >>> adprotocol.tree_map(lambda leaf: 10.0 * leaf, model)
    {'w': 10.0, 'order': None, 'scale': NonDifferentiable(40.0)}

    A step of gradient descent, where a gradient has None for a frozen leaf:

    >>> gradient = {"w": 0.5, "order": None, "scale": None}
    >>> adprotocol.tree_map(lambda leaf, slope: leaf if slope is None else leaf - slope, model, gradient)
    {'w': 0.5, 'order': None, 'scale': NonDifferentiable(4.0)}

    Args:
        fun: called with a leaf of `tree` and the leaves of `rest` at the same place.
        tree: arrays of any shapes and dtypes, in dataclasses, named tuples, attrs
            classes, dicts, lists, tuples, torch modules and registered nodes. None in
            it stays None. A label is a node: `fun` gets the value in it, constant, and
            the result is labelled again.
        *rest: structures like `tree`. `fun` gets None where one has None, and the
            value where one has a label.
        is_leaf: called with each node, label and None. If it returns True, `fun` gets
            that as one leaf.

    Returns:
        A structure of the class of `tree`. A torch module gives a dict from
        qualified name to what `fun` returned.

    Raises:
        TreeError: the structures differ, or one cannot be traversed or rebuilt.

    After ``jax.tree.map`` and ``optree.tree_map``.
    """
    structure = Structure(tree, is_leaf=is_leaf)
    others = [Structure(other, is_leaf=is_leaf) for other in rest]
    for i, other in enumerate(others):
        structure.check_like(other, "tree_map", "tree", f"argument {i + 2}")
    rows = list(zip(structure.leaves, *[other.leaves for other in others], strict=True))
    try:
        mapped = [_apply(fun, leaf, beside, is_leaf) for leaf, *beside in rows]
    except TypeError as error:
        alone = [i for i, (leaf, *beside) in enumerate(rows) if leaf is not None and any(one is None for one in beside)]
        if alone:
            add_note(
                error,
                f"The function of tree_map gets {kind_of(structure.leaves[alone[0]])} at "
                f"{quoted(structure.paths[alone[0]])} and None beside it, as a gradient has for what it leaves out: "
                "map over trainable(tree) and combine, or let the function return the leaf where the other is None",
            )
        raise
    return structure.with_leaves(mapped)


def _apply(fun: Callable[..., Any], leaf: Any, beside: list[Any], is_leaf: Callable[[Any], bool] | None) -> Any:
    if leaf is None or isinstance(leaf, NonDifferentiable):
        if is_leaf is not None and is_leaf(leaf):
            return fun(leaf, *beside)
        if leaf is None:
            return None
    values = [other.value if isinstance(other, NonDifferentiable) else other for other in beside]
    if not isinstance(leaf, NonDifferentiable):
        return fun(leaf, *values)
    inside = leaf.value  # a structure, maybe
    values = [tree_map(lambda _leaf: None, inside) if value is None else value for value in values]
    return NonDifferentiable(tree_map(fun, inside, *values, is_leaf=is_leaf))
