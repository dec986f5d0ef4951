"""Leaves that are trained and should not be, or the other way round: `trainable` and `where` gone wrong."""

import fnmatch
import operator

import numpy as np
import toyad
import toyad_adprotocol as right

from adprotocol._dispatch.binding import not_trainable
from adprotocol._gradients import where as selection
from adprotocol._trees.treespec import paths
from adprotocol.errors import SelectionError
from mutants.mutant import at, mutant

GROUP = "trainable"
takes = right.trainable


def leaves(function):
    """Return a mutant with another answer for leaves."""

    # pluggy reads the names of the parameters.
    def trainable(value):
        return function(value)

    return {"trainable": trainable}


@mutant(GROUP, leaves)
def everything(_value):
    """Trains integers and booleans too."""
    return True


@mutant(GROUP, leaves)
def nothing(_value):
    """Says of every array that it never takes a gradient."""
    return


@mutant(GROUP, leaves)
def only_if_selected(value):
    """Trains no array, unless the call selects it."""
    return False if takes(value) else takes(value)


@mutant(GROUP, leaves, beside="value_and_grad")
def one_precision(value):
    """Trains arrays of the default precision only."""
    return None if value.dtype == np.float32 else takes(value)


@mutant(GROUP, leaves)
def integers(value):
    """Trains integers."""
    return True if value.dtype.kind in "iu" else takes(value)


@mutant(GROUP, leaves)
def booleans(value):
    """Trains booleans."""
    return True if value.dtype.kind == "b" else takes(value)


@mutant(GROUP, leaves)
def ignores_flags(value):
    """Trains a parameter whose flag says no."""
    return True if takes(value) is False else takes(value)


@mutant(GROUP, leaves)
def flags_are_final(value):
    """Never trains a parameter whose flag says no, even if the call selects it."""
    return None if takes(value) is False else takes(value)


@mutant(GROUP, leaves)
def parameters_only(value):
    """Trains parameters, and no other arrays."""
    return takes(value) if isinstance(value, toyad.Parameter) else None


@mutant(GROUP, leaves)
def arrays_only(value):
    """Trains arrays, and no parameters."""
    return None if isinstance(value, toyad.Parameter) else takes(value)


@mutant(GROUP, leaves)
def flags_of_tracers(value):
    """Does not know a tracer for something that can be trained."""
    return None if isinstance(value, toyad.Tracer) else takes(value)


@mutant(GROUP)
def frozen_python_floats():
    """Trains no float of Python's."""
    return {"adprotocol._dispatch.table.BINDINGS.PLAIN.trainable": not_trainable}


@mutant(GROUP)
def trained_python_integers():
    """Trains the integers of Python's."""
    from adprotocol._dispatch.table import BINDINGS

    known = BINDINGS.PLAIN.trainable
    return {
        "adprotocol._dispatch.table.BINDINGS.PLAIN.trainable": lambda value: (
            True if type(value) in (int, bool) else known(value)
        )
    }


@mutant(GROUP, at("adprotocol._dispatch.table.BINDINGS.LABEL.trainable"))
def trains_labels(_value):
    """Trains what is labelled as not differentiable."""
    return True


@mutant(GROUP, at("adprotocol._gradients.structure.check_opaque"))
def overlooks_hidden_arrays(*_):
    """Freezes an object in which arrays hide, instead of saying that it cannot look into it."""
    return


def choosing(function):
    """Return a mutant whose `trainable`, `partition` and gradients choose in another way."""
    return {
        "adprotocol._gradients.partition.select": function,
        "adprotocol._gradients.value_and_grad.select": function,
    }


real = selection.select


def with_default(joined, structures, where, **kw):
    """Choose by what the call selects and what is trained by default, joined."""
    default = real(structures, None)
    if where is None:
        return default
    return [list(map(joined, *both)) for both in zip(real(structures, where, **kw), default, strict=True)]


@mutant(GROUP, choosing)
def ignores_where(structures, _where, **kw):
    """Lets the defaults decide, whatever the call says."""
    return real(structures, None, **kw)


@mutant(GROUP, choosing)
def opposite(structures, where, **kw):
    """Trains what the mask freezes."""
    if where is None:
        return real(structures, where, **kw)
    return [[not mine for mine in chosen] for chosen in real(structures, where, **kw)]


@mutant(GROUP, choosing)
def where_adds_only(structures, where, **kw):
    """Trains what the call selects, and what is trained by default."""
    return with_default(operator.or_, structures, where, **kw)


@mutant(GROUP, choosing)
def where_takes_away_only(structures, where, **kw):
    """Trains of what the call selects that which is trained by default."""
    return with_default(operator.and_, structures, where, **kw)


@mutant(GROUP)
def patterns_may_match_nothing():
    """Trains nothing where a pattern matches nothing, instead of saying so."""
    by_patterns = selection._by_patterns

    def silent(structures, patterns):
        try:
            return by_patterns(structures, patterns)
        except SelectionError:
            return [[False] * len(structure.leaves) for structure in structures]

    return {
        "adprotocol._gradients.where._by_patterns": silent,
        "adprotocol._gradients.value_and_grad._check_trainable": lambda *_: None,
    }


@mutant(GROUP, at("adprotocol._gradients.where._by_patterns"))
def one_pattern_may_match_nothing(structures, patterns, *, by_patterns=selection._by_patterns):
    """Overlooks one of several patterns that matches nothing."""
    found = []
    for pattern in patterns:
        try:
            found.append(by_patterns(structures, (pattern,)))
        except SelectionError:
            if len(patterns) == 1:
                raise
    return [[any(flags) for flags in zip(*of_structure, strict=True)] for of_structure in zip(*found, strict=True)]


@mutant(GROUP, at("adprotocol._gradients.where.match"))
def stars_stop_at_dots(treespec, pattern):
    """Lets a star match no dot."""

    def parts_match(name):
        names, patterns = name.split("."), pattern.split(".")
        return len(names) == len(patterns) and all(map(fnmatch.fnmatchcase, names, patterns))

    return [parts_match(name) for name in paths(treespec)]


@mutant(GROUP, at("adprotocol._gradients.where.match"))
def patterns_match_inside(treespec, pattern):
    """Takes a pattern for found that matches a part of a path."""
    return [fnmatch.fnmatchcase(name, f"*{pattern}*") for name in paths(treespec)]


@mutant(GROUP, at("adprotocol._gradients.where._patterns"))
def first_pattern_only(where, *, patterns=selection._patterns):
    """Looks at the first of several patterns."""
    return (found := patterns(where)) and found[:1]


@mutant(GROUP, at("adprotocol._gradients.where._by_mask"))
def masks_of_any_structure(structure, mask, *, by_mask=selection._by_mask):
    """Trains nothing of a structure that the mask does not fit, instead of saying so."""
    try:
        return by_mask(structure, mask)
    except SelectionError:
        return [False] * len(structure.leaves)


@mutant(GROUP, at("adprotocol._gradients.where._by_mask"))
def no_prefixes(structure, mask, *, by_mask=selection._by_mask):
    """Wants a mask to say something of every leaf."""
    from adprotocol._trees import traversal as tree

    if len(tree.tree_leaves((mask,))) != len(structure.leaves):
        msg = "the mask has another structure"
        raise SelectionError(msg)
    return by_mask(structure, mask)


@mutant(GROUP, at("adprotocol._gradients.where._by_predicate"), beside="value_and_grad")
def truth_of_anything(structure, predicate):
    """Takes the answer of a predicate for a bool, whatever it is."""
    return [bool(predicate(name, leaf)) for name, leaf in zip(structure.paths, structure.leaves, strict=True)]


@mutant(GROUP, at("adprotocol._gradients.where._by_predicate"))
def paths_with_slashes(structure, predicate, *, by_predicate=selection._by_predicate):
    """Shows predicates paths of another form."""
    return by_predicate(structure, lambda name, leaf: predicate(name.replace(".", "/"), leaf))


@mutant(GROUP, at("adprotocol._gradients.where._checked"))
def incapable_leaves_pass(structure, wanted):
    """Overlooks a selected leaf that cannot take a gradient."""
    able = structure.capable(wanted)
    return [mine and can is not None for mine, can in zip(wanted, able, strict=True)]
