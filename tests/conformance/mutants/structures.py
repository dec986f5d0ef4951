"""Containers, types and plugins: what lies between a call and the hooks, gone wrong."""

from pathlib import Path

import toyad
import toyad_adprotocol as right

import adprotocol
from adprotocol import extend
from adprotocol._dispatch import registry
from adprotocol.extend import TreeLibrary
from adprotocol.extend import tree_map as map_leaves
from mutants.mutant import at, mutant

GROUP = "plugins"
RIGHT = right.tree_library()


def library(**functions):
    """Return a mutant whose tree library has other functions."""
    known = {"node": RIGHT.node, "version": RIGHT.version, "register": RIGHT.register}
    return {"tree_library": lambda: TreeLibrary(**known | functions)}


@mutant("within_gradient")
def no_nodes():
    """Does not know the containers of its framework."""
    return library(node=lambda _value: None)


@mutant("trainable", lambda node: library(node=node))
def reversed_children(value):
    """Takes a container of its framework apart in another order than it puts it together."""
    found = RIGHT.node(value)
    if found is None:
        return None
    flatten, unflatten = found

    def backwards(value):
        children, meta = flatten(value)
        return tuple(children)[::-1], meta

    return backwards, unflatten


@mutant("non_differentiable", lambda node: library(node=node), beside="trainable")
def rebuilds_as_a_list(value):
    """Puts a container of its framework together as a list."""
    found = RIGHT.node(value)
    return None if found is None else (found[0], lambda _, children: list(children))


def registering(change):
    """Return a mutant that registers classes with functions that are changed."""
    return library(register=lambda cls, flatten, unflatten: RIGHT.register(cls, *change(flatten, unflatten)))


@mutant(GROUP)
def registers_no_class():
    """Does not register classes with its framework."""
    return library(register=None)


@mutant(GROUP, registering)
def registers_without_static_fields(flatten, unflatten):
    """Registers classes so that all of them share the static fields of the first instance."""
    first = []

    def shared(value):
        children, metadata, names = flatten(value)
        first.append(metadata)
        return children, first[0], names

    return shared, unflatten


@mutant(GROUP, registering)
def registers_in_another_order(flatten, unflatten):
    """Registers classes so that their children come back in another order."""
    return (flatten, lambda meta, children: unflatten(meta, list(children)[::-1]))


@mutant(GROUP, lambda register: library(register=register))
def registers_a_constructor(cls, flatten, unflatten):
    """Registers classes so that they are rebuilt by calling them without their static fields."""
    RIGHT.register(cls, flatten, lambda _, children: cls(*children))


@mutant(GROUP, registering)
def registers_labels_away(flatten, unflatten):
    """Registers classes so that labels in them come back as what they hold."""
    return (
        flatten,
        lambda meta, children: unflatten(meta, [extend.unlabelled(child) for child in children]),
    )


@mutant(GROUP, at("array_types"))
def arrays_without_tracers():
    """Claims arrays, and no tracers."""
    return (toyad.Array,)


@mutant(GROUP, at("array_types"))
def tracers_without_arrays():
    """Claims tracers, and no arrays."""
    return (toyad.Tracer, toyad.Staged)


@mutant(GROUP, at("explain"), beside="within_gradient")
def explanation_raises(value):
    """Raises where it should explain."""
    msg = "no explanation"
    raise RuntimeError(msg)


@mutant(GROUP, at("explain"), beside="within_gradient")
def explanation_decides(value):
    """Asks for the truth of an answer that is not known yet, to explain it."""
    return "differentiated" if toyad.is_differentiated(value) else "not differentiated"


@mutant(GROUP, at("adprotocol.explain"), beside="within_gradient")
def explanation_lies(*values):
    """Explains False, whatever the answer."""
    return "\n".join(f"{type(value).__name__}: False" for value in values)


@mutant(GROUP)
def tables_are_not_emptied():
    """Keeps serving a type as before when plugins change."""
    from adprotocol._dispatch import table

    def keep():
        with registry.LOCK:
            for plugin in registry.REGISTRY.active():
                for binding in plugin.bindings.values():
                    setattr(table.BINDINGS, binding.name, binding)

    return {"adprotocol._dispatch.registry.REGISTRY.on_change": [keep]}


@mutant(GROUP)
def frameworks_mix():
    """Lets the last of two frameworks answer, instead of refusing them."""

    def last(found, binding):
        return found if binding.framework is None else binding

    modules = ("_dispatch.table", "_hooks.within_gradient", "_gradients.structure")
    return {f"adprotocol.{module}.join": last for module in modules}


@mutant(GROUP, at("adprotocol._dispatch.plugin._fault"))
def wrong_signatures_pass(*_):
    """Takes a plugin with hooks of another signature."""
    return ""


@mutant(GROUP, at("adprotocol._dispatch.registry.REGISTRY.claimants"))
def only_its_own_classes(cls, *, claimants=registry.REGISTRY.claimants):
    """Serves the classes of the framework, and no subclasses that are defined elsewhere."""
    return [plugin for plugin in claimants(cls) if cls.__module__ == "toyad" or cls in plugin.types]


@mutant(GROUP)
def imports_numpy():
    """Imports NumPy when it is imported itself."""
    return {"adprotocol.__file__": str(Path(__file__).parent / "eager" / "adprotocol" / "__init__.py")}


@mutant(GROUP, at("array_types"))
def imports_what_is_private():
    """Is of a module that imports from adprotocol what is not for plugins."""
    # This module is one.
    return (toyad.Value,)


@mutant(GROUP)
def conflicts_are_silent():
    """Does not report two plugins that claim one type."""
    return {"adprotocol._dispatch.registry.REGISTRY.conflicts": list}


@mutant(GROUP, trivial=True)
def raises_in_every_hook():
    """Raises in every hook."""

    def refuse(*_):
        msg = "this plugin does nothing"
        raise RuntimeError(msg)

    return {
        "within_gradient": lambda value: refuse(),
        "non_differentiable": lambda value: refuse(),
        "cond": lambda pred, true_fun, false_fun, operands: refuse(),
        "trainable": lambda value: refuse(),
        "value_and_grad": lambda fun, leaves: refuse(),
        "tree_library": lambda: TreeLibrary(lambda value: refuse()),
        "explain": lambda value: refuse(),
    }


@mutant(GROUP, trivial=True)
def claims_nothing():
    """Claims no type that occurs."""

    class Nothing:
        """No value is of this type."""

    return {"array_types": lambda: (Nothing,)}


combine = adprotocol.combine


@mutant("trainable", at("adprotocol.combine"))
def combine_returns_the_model(*trees, like=None):
    """Returns the model that the result is to be like."""
    return combine(*trees) if like is None else like


@mutant("trainable", at("adprotocol.combine"), beside="value_and_grad")
def combine_accepts_a_missing_leaf(*trees, like=None):
    """Leaves None in the model where no structure has a leaf."""
    del like
    return combine(*trees)


tree_map = adprotocol.tree_map


@mutant("trainable", at("adprotocol.tree_map"))
def tree_map_drops_labels(fun, tree, *rest):
    """Returns what is in a label without the label."""
    return map_leaves(lambda leaf: getattr(leaf, "value", leaf), tree_map(fun, tree, *rest))


@mutant("value_and_grad", at("adprotocol.combine"), beside="trainable")
def combine_cuts_the_derivative(*trees, like=None):
    """Makes the leaves constant that are put into the model."""
    return combine(*trees) if like is None else combine(*map(adprotocol.non_differentiable, trees), like=like)
