"""Declarations of classes, and the parts of a model, gone wrong."""

import toyad

import adprotocol
from adprotocol._gradients import partition as parts
from adprotocol._trees import declaration
from mutants.mutant import mutant
from mutants.selections import GROUP


@mutant(GROUP)
def ignores_declarations():
    """Trains all fields, whichever a class declares."""
    return {"adprotocol._trees.declaration.trainable_names": lambda _value, names: set(names)}


@mutant(GROUP)
def ignores_class_attributes():
    """Does not read `__trainable__`."""
    return {"adprotocol._trees.declaration._declared": lambda value: declaration._REGISTERED.get(type(value))}


@mutant(GROUP)
def ignores_metadata():
    """Does not read the metadata of fields."""
    return {"adprotocol._trees.declaration.frozen_fields": lambda _cls: ()}


@mutant(GROUP)
def ignores_registration():
    """Forgets what was registered for a class."""
    return {"adprotocol.register_trainable": lambda _cls, _names: None}


@mutant(GROUP, remembers=True)
def declares_once_for_a_class():
    """Remembers what the first instance of a class declared."""
    known = {}
    declared = declaration._declared
    return {"adprotocol._trees.declaration._declared": lambda value: known.setdefault(type(value), declared(value))}


@mutant(GROUP)
def unknown_fields_pass():
    """Overlooks a declared field that the class does not have."""
    return {"adprotocol._trees.declaration._check_known": lambda *_: None}


@mutant(GROUP)
def cycles_overflow():
    """Raises Python's own error for a structure that contains itself."""
    return {"adprotocol._trees.traversal.too_deep": lambda _tree: RecursionError("too deep")}


@mutant(GROUP)
def swaps_the_parts():
    """Returns the rest first, and then what is trained."""
    return {"adprotocol.partition": lambda tree, where=None: parts.partition(tree, where)[::-1]}


@mutant(GROUP)
def keeps_all_in_the_rest():
    """Returns the whole as the rest."""
    return {"adprotocol.partition": lambda tree, where=None: (parts.partition(tree, where)[0], tree)}


@mutant(GROUP)
def last_tree_wins():
    """Combines by taking each leaf from the last tree that has it."""
    return {"adprotocol.combine": lambda *trees: parts.combine(*trees[::-1])}


@mutant(GROUP)
def combines_anything():
    """Returns the first tree where structures differ, instead of saying so."""

    def combine(*trees):
        try:
            return parts.combine(*trees)
        except adprotocol.errors.TreeError:
            return trees[0]

    return {"adprotocol.combine": combine}


@mutant(GROUP)
def copies_leaves():
    """Returns copies of the arrays that are trained."""

    def copied(tree, where=None):
        return adprotocol.extend.tree_map(
            lambda leaf: toyad.array(leaf) if isinstance(leaf, toyad.Array) else leaf, parts.trainable(tree, where)
        )

    return {"adprotocol.trainable": copied}


@mutant(GROUP)
def leaves_the_frozen_out():
    """Returns a structure without what is frozen."""

    def short(tree, where=None):
        found = parts.trainable(tree, where)
        return {key: value for key, value in found.items() if value is not None} if type(found) is dict else found

    return {"adprotocol.trainable": short}


@mutant(GROUP)
def false_for_the_frozen():
    """Returns False where None is due."""

    def marked(tree, where=None):
        return adprotocol.extend.tree_map(lambda leaf: False if leaf is None else leaf, parts.trainable(tree, where))

    return {"adprotocol.trainable": marked}
