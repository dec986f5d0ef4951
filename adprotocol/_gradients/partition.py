"""`trainable`, `partition`, `combine`: the part of a model that takes gradients, and the rest."""

from __future__ import annotations

from adprotocol._dispatch.binding import UNSET
from adprotocol._gradients.structure import Structure
from adprotocol._gradients.where import select, select_once
from adprotocol._trees.merge import NotMergedError, merge
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import TreeError
from adprotocol.messages import kind_of, quoted

if TYPE_CHECKING:
    from collections.abc import Callable


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
            (``"*.variance"``, ``["layers.0.*", "scale"]``; * matches dots too). A
            pattern with a wildcard passes over leaves that can never take a gradient.

    Returns:
        The structure of `tree`. The leaves are the identical objects.

    Raises:
        SelectionError: a pattern matches nothing, a mask has another structure or
            holds something other than bools, a predicate returns something other
            than a bool, or a selected leaf can never take a gradient (for a pattern
            with a wildcard only if it selects no other leaf).
        DeclarationError: a class declares a field that it does not have.
        TreeError: the structure contains itself, is too deep, or has a node that
            cannot be rebuilt with None in it.
        MixedFrameworksError: arrays of two frameworks.
        OpaqueValueError: an object that hides framework arrays in attributes.

    After ``Flux.trainable`` and ``Optimisers.trainable`` (Julia).
    """
    structure = _selected(tree, where)
    return structure.only(structure.selected())


def trainable_mask(tree: Any, where: Any = None) -> Any:
    """Return the same structure with a bool at every leaf: whether it takes a gradient.

    Use the mask with ``optax.masked(optimizer, mask)``, or to make parameter groups for ``torch.optim``.

    >>> import adprotocol
    >>> model = {"kernel": {"variance": 1.0, "lengthscale": 2.0}, "order": 3}
    >>> adprotocol.trainable_mask(model, where="*.variance")
    {'kernel': {'variance': True, 'lengthscale': False}, 'order': False}

    Args:
        tree: as for `trainable`.
        where: as for `trainable`.

    Returns:
        The structure of `tree`, with True, False, or None where `tree` has None.
        A torch module gives a dict from qualified name to bool. `where` accepts
        the mask.

    Raises:
        ADProtocolError: as `trainable` does.

    The form is that of ``optax.masked`` and ``optax.partition``.
    """
    structure = _selected(tree, where)
    return structure.with_leaves(
        [None if leaf is None else selected for leaf, selected in zip(structure.leaves, structure.mask, strict=True)]
    )


def partition(
    tree: Any, where: Any = None, *, strict: bool = True, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[Any, Any]:
    """Return the trainable part and the rest, each with None where the other has the leaf.

    >>> import adprotocol
    >>> params, rest = adprotocol.partition({"w": 1.0, "order": 3})
    >>> params, rest
    ({'w': 1.0, 'order': None}, {'w': None, 'order': 3})
    >>> adprotocol.combine(params, rest)
    {'w': 1.0, 'order': 3}

    With ``strict=False`` any leaf may be selected, to split a structure for another purpose:

    >>> adprotocol.partition({"w": 1.0, "order": 3}, lambda path, leaf: isinstance(leaf, int), strict=False)
    ({'w': None, 'order': 3}, {'w': 1.0, 'order': None})

    Args:
        tree: as for `trainable`.
        where: as for `trainable`.
        strict: whether to refuse a selected leaf that cannot take a gradient
            (an integer, a label, a function).
        is_leaf: called with each node on the way down. If it returns True, the node is
            one leaf. Such a leaf takes no gradient, so pass ``strict=False`` too.

    Returns:
        Two structures like `tree`. The leaves are the identical objects.

    Raises:
        ADProtocolError: as `trainable` does.

    After ``equinox.partition``.
    """
    structure = _selected(tree, where, strict=strict, is_leaf=is_leaf)
    return structure.split()


def combine(*trees: Any, like: Any = UNSET) -> Any:
    """Merge structures: each leaf comes from the first that has it.

    >>> import adprotocol
    >>> adprotocol.combine({"w": 1.5, "order": None}, {"w": 1.0, "order": 3})
    {'w': 1.5, 'order': 3}

    With `like`, a model, the result can be called as the model can. For a
    ``torch.nn.Module``, whose structure is a dict from qualified name to tensor, the
    result is a stand-in: a module of the same class with the tensors of `trees`. The
    model is not touched.

    >>> import torch
    >>> module = torch.nn.Linear(2, 1)
    >>> params, rest = adprotocol.partition(module)
    >>> doubled = adprotocol.combine({name: 2.0 * p for name, p in params.items()}, rest, like=module)
    >>> x = torch.ones(2)
    >>> torch.equal(doubled(x), 2.0 * module(x))
    True

    Args:
        *trees: matching structures, with None where a leaf is missing, such as the
            parts that `partition` returns, or updated parameters and the old model.
        like: the model whose structure they have. Its leaves are not used.

    Returns:
        The structure of the first tree, or that of `like`. The leaves are the identical
        objects. Only the buffers of a module are copied, because a call may change them
        in place.

    Raises:
        TreeError: the structures differ, none was given, or, with `like`, none has
            one of its leaves.
        UndecidableError: the module is scripted or compiled, or holds a function that
            refers to a part of the module, or a tensor in a list or dict.

    After ``equinox.combine`` and ``torch.func.functional_call``.
    """
    if not trees:
        raise TreeError("combine() was called without structures; pass the parts that partition returned")
    merged = trees[0]
    try:
        for other in trees[1:] or trees:
            merged = merge(merged, other)
    except NotMergedError:
        merged = _combine_by_leaves(trees, like)
    if like is UNSET:
        return merged
    found, model = Structure(merged), Structure(like)
    model.check_like(found, "combine", "like", "argument 0")
    for i, leaf in enumerate(found.leaves):
        if leaf is None and model.leaves[i] is not None:
            raise TreeError(
                f"combine was given structures of which none has the leaf {quoted(model.paths[i])} of like, "
                f"{kind_of(like)}; pass the rest that partition returned too, or the model itself as the last argument"
            )
    return model.rebuild(found.leaves)


def _combine_by_leaves(trees: tuple[Any, ...], like: Any) -> Any:
    """Combine what `merge` does not: modules beside dicts, or structures that differ, with an error that says where."""
    structures = [Structure(tree) for tree in trees]
    first, name = (structures[0], "argument 0") if like is UNSET else (Structure(like), "like")
    leaves = structures[0].leaves
    for i, other in enumerate(structures):
        first.check_like(other, "combine", name, f"argument {i}")
        leaves = [later if leaf is None else leaf for leaf, later in zip(leaves, other.leaves, strict=True)]
    return first.with_leaves(leaves)


def _selected(tree: Any, where: Any, *, strict: bool = True, is_leaf: Callable[[Any], bool] | None = None) -> Structure:
    structure = Structure(tree, declared=where is None, is_leaf=is_leaf)
    structure.framework()  # refuses two frameworks
    select([structure], where, strict=strict)
    select_once([structure])
    return structure
