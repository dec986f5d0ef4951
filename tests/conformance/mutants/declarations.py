"""Declarations of classes, and the parts of a model, gone wrong."""

import toyad

import adprotocol
from adprotocol._gradients import partition as parts
from adprotocol._trees import declaration
from mutants.mutant import at, mutant
from mutants.selections import GROUP


@mutant(GROUP, at("adprotocol._trees.declaration.trainable_names"))
def ignores_declarations(_value, names):
    """Trains all fields, whichever a class declares."""
    return set(names)


@mutant(GROUP, at("adprotocol._trees.declaration._declared"))
def ignores_class_attributes(value):
    """Does not read `__trainable__`."""
    return declaration._REGISTERED.get(type(value))


@mutant(GROUP, at("adprotocol._trees.declaration.frozen_fields"))
def ignores_metadata(_cls):
    """Does not read the metadata of fields."""
    return ()


@mutant(GROUP, at("adprotocol.register_trainable"))
def ignores_registration(_cls, _names):
    """Forgets what was registered for a class."""
    return


@mutant(GROUP, remembers=True)
def declares_once_for_a_class():
    """Remembers what the first instance of a class declared."""
    known = {}
    declared = declaration._declared
    return {"adprotocol._trees.declaration._declared": lambda value: known.setdefault(type(value), declared(value))}


@mutant(GROUP, at("adprotocol._trees.declaration._check_known"))
def unknown_fields_pass(*_):
    """Overlooks a declared field that the class does not have."""
    return


@mutant(GROUP, at("adprotocol._trees.traversal.too_deep"), beside="within_gradient")
def cycles_overflow(_tree):
    """Raises Python's own error for a structure that contains itself."""
    return RecursionError("too deep")


@mutant(GROUP, at("adprotocol.partition"))
def swaps_the_parts(tree, where=None):
    """Returns the rest first, and then what is trained."""
    return parts.partition(tree, where)[::-1]


@mutant(GROUP, at("adprotocol.partition"))
def keeps_all_in_the_rest(tree, where=None):
    """Returns the whole as the rest."""
    return (parts.partition(tree, where)[0], tree)


@mutant(GROUP, at("adprotocol.combine"))
def last_tree_wins(*trees):
    """Combines by taking each leaf from the last tree that has it."""
    return parts.combine(*trees[::-1])


@mutant(GROUP, at("adprotocol.combine"))
def combines_anything(*trees):
    """Returns the first tree where structures differ, instead of saying so."""
    try:
        return parts.combine(*trees)
    except adprotocol.errors.TreeError:
        return trees[0]


@mutant(GROUP, at("adprotocol.trainable"))
def copies_leaves(tree, where=None):
    """Returns copies of the arrays that are trained."""
    return adprotocol.extend.tree_map(
        lambda leaf: toyad.array(leaf) if isinstance(leaf, toyad.Array) else leaf, parts.trainable(tree, where)
    )


@mutant(GROUP, at("adprotocol.trainable"))
def leaves_the_frozen_out(tree, where=None):
    """Returns a structure without what is frozen."""
    found = parts.trainable(tree, where)
    return {key: value for key, value in found.items() if value is not None} if type(found) is dict else found


@mutant(GROUP, at("adprotocol.trainable"))
def false_for_the_frozen(tree, where=None):
    """Returns False where None is due."""
    return adprotocol.extend.tree_map(lambda leaf: False if leaf is None else leaf, parts.trainable(tree, where))
