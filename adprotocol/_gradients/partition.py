"""`trainable`, `partition`, `combine`: the part of a model that takes gradients, and the rest."""

from __future__ import annotations

from typing import Any

from adprotocol._gradients.structure import Structure
from adprotocol._gradients.where import select
from adprotocol._trees.path import quoted
from adprotocol._trees.traversal import treespecs_equal
from adprotocol.errors import TreeError


def trainable(tree: Any, where: Any = None) -> Any:
    """Return the same structure with None at every leaf that takes no gradient.

    >>> import adprotocol
    >>> model = {"kernel": {"variance": 1.0, "lengthscale": 2.0}, "order": 3}
    >>> adprotocol.trainable(model)
    {'kernel': {'variance': 1.0, 'lengthscale': 2.0}, 'order': None}
    >>> adprotocol.trainable(model, where="*.variance")
    {'kernel': {'variance': 1.0, 'lengthscale': None}, 'order': None}

    By default floating-point and complex arrays and Python floats take a
    gradient. Integers, bools, strings, None, functions, labels, module buffers,
    parameters with ``requires_grad=False``, and fields left out by
    `__trainable__`, `register_trainable` or the metadata ``{"trainable": False}``
    do not.

    Args:
        tree: arrays of any shapes and dtypes, in dataclasses, named tuples,
            attrs classes, dicts, lists, tuples, torch modules and registered
            nodes. A torch module gives a dict from qualified name to tensor.
        where: overrides declarations and flags for this call: a function of
            ``(path, leaf)`` that returns a bool; a mask, bools in the structure of
            `tree` or of its upper part; one pattern or several over dotted paths
            (``"*.variance"``, ``["layers.0.*", "scale"]``; * matches dots too).

    Returns:
        The structure of `tree`. The leaves are the identical objects.

    Raises:
        SelectionError: a pattern matches nothing, a mask has another structure or
            holds something other than bools, a predicate returns something other
            than a bool, or a selected leaf cannot take a gradient.
        DeclarationError: a class declares a field that it does not have.
        TreeError: the structure contains itself, is too deep, has two leaves with
            the same path, or has a node that cannot be rebuilt with None in it.
        MixedFrameworksError: arrays of two frameworks.
        OpaqueValueError: an object that hides framework arrays in attributes.

    After ``Flux.trainable`` and ``Optimisers.trainable`` (Julia).
    """
    structure, mask = _select(tree, where)
    return structure.with_leaves(
        [leaf if selected else None for leaf, selected in zip(structure.leaves, mask, strict=True)]
    )


def trainable_mask(tree: Any, where: Any = None) -> Any:
    """Return the same structure with a bool at every leaf: whether it takes a gradient.

    Optimisers take such a mask: ``optax.masked(optimizer, mask)``, or parameter groups of ``torch.optim``.

    >>> import adprotocol
    >>> model = {"kernel": {"variance": 1.0, "lengthscale": 2.0}, "order": 3}
    >>> adprotocol.trainable_mask(model, where="*.variance")
    {'kernel': {'variance': True, 'lengthscale': False}, 'order': False}

    Args:
        tree: as for `trainable`.
        where: as for `trainable`.

    Returns:
        The structure of `tree`, with True, False, or None where `tree` has None.
        A torch module gives a dict from qualified name to bool. The mask is also a
        `where`.

    Raises:
        ADProtocolError: as `trainable` does.

    As ``optax.masked`` and ``optax.partition`` take it.
    """
    structure, mask = _select(tree, where)
    return structure.with_leaves(
        [None if leaf is None else selected for leaf, selected in zip(structure.leaves, mask, strict=True)]
    )


def partition(tree: Any, where: Any = None, *, strict: bool = True) -> tuple[Any, Any]:
    """Return the trainable part and the rest, each with None where the other has the leaf.

    >>> import adprotocol
    >>> params, rest = adprotocol.partition({"w": 1.0, "order": 3})
    >>> params, rest
    ({'w': 1.0, 'order': None}, {'w': None, 'order': 3})
    >>> adprotocol.combine(params, rest)
    {'w': 1.0, 'order': 3}

    Without `strict` any leaf may be selected, to split a structure by another question:

    >>> adprotocol.partition({"w": 1.0, "order": 3}, lambda path, leaf: isinstance(leaf, int), strict=False)
    ({'w': None, 'order': 3}, {'w': 1.0, 'order': None})

    Args:
        tree: as for `trainable`.
        where: as for `trainable`.
        strict: whether to refuse a selected leaf that cannot take a gradient
            (an integer, a label, a function).

    Returns:
        Two structures like `tree`. The leaves are the identical objects.

    Raises:
        ADProtocolError: as `trainable` does.

    After ``equinox.partition``.
    """
    structure, mask = _select(tree, where, strict=strict)
    leaves = structure.leaves
    return (
        structure.with_leaves([leaf if selected else None for leaf, selected in zip(leaves, mask, strict=True)]),
        structure.with_leaves([None if selected else leaf for leaf, selected in zip(leaves, mask, strict=True)]),
    )


def combine(*trees: Any) -> Any:
    """Merge structures: each leaf comes from the first that has it.

    >>> import adprotocol
    >>> adprotocol.combine({"w": 1.5, "order": None}, {"w": 1.0, "order": 3})
    {'w': 1.5, 'order': 3}

    Args:
        *trees: matching structures, with None where a leaf is missing, such as the
            parts that `partition` returns, or updated parameters and the old model.

    Returns:
        The structure of the first. The leaves are the identical objects.

    Raises:
        TreeError: the structures differ, or none was given.

    After ``equinox.combine``.
    """
    if not trees:
        msg = "combine() was called without structures; pass the parts that partition returned"
        raise TreeError(msg)
    structures = [Structure(tree) for tree in trees]
    first = structures[0]
    for i, structure in enumerate(structures):
        if not treespecs_equal(structure.treespec, first.treespec):
            raise _differ(i, first, structure)
    columns = zip(*(structure.leaves for structure in structures), strict=True)
    return first.with_leaves([next((leaf for leaf in column if leaf is not None), None) for column in columns])


def _select(tree: Any, where: Any, *, strict: bool = True) -> tuple[Structure, list[bool]]:
    structure = Structure(tree)
    structure.framework()  # refuses two frameworks
    (mask,) = select([structure], where, strict=strict)
    return structure, mask


def _differ(i: int, first: Structure, other: Structure) -> TreeError:
    missing = [path for path in first.paths.of_leaves if path not in set(other.paths.of_leaves)]
    added = [path for path in other.paths.of_leaves if path not in set(first.paths.of_leaves)]
    if missing or added:
        where = f"{quoted(missing[0])} is only in the first" if missing else f"{quoted(added[0])} is only in number {i}"
    else:
        where = f"their nodes are of different classes or static fields ({first.treespec} and {other.treespec})"[:400]
    return TreeError(
        f"combine was given structures that do not match: {where}. Pass parts of one structure, with None for each "
        "missing leaf"
    )
