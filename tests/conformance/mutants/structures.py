"""Containers, types and plugins: what lies between a call and the hooks, gone wrong."""

from pathlib import Path

import toyad
import toyad_adprotocol as right

import adprotocol
from adprotocol import extend
from adprotocol._dispatch import registry
from adprotocol.extend import TreeLibrary
from mutants.mutant import mutant

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


@mutant("trainable")
def reversed_children():
    """Takes a container of its framework apart in another order than it puts it together."""

    def node(value):
        found = RIGHT.node(value)
        if found is None:
            return None
        flatten, unflatten = found

        def backwards(value):
            children, meta = flatten(value)
            return tuple(children)[::-1], meta

        return backwards, unflatten

    return library(node=node)


@mutant("non_differentiable")
def rebuilds_as_a_list():
    """Puts a container of its framework together as a list."""

    def node(value):
        found = RIGHT.node(value)
        return None if found is None else (found[0], lambda _, children: list(children))

    return library(node=node)


def registering(change):
    """Return a mutant that registers classes with functions that are changed."""

    return library(register=lambda cls, flatten, unflatten: RIGHT.register(cls, *change(flatten, unflatten)))


@mutant(GROUP)
def registers_no_class():
    """Does not register classes with its framework."""
    return library(register=None)


@mutant(GROUP)
def registers_without_static_fields():
    """Registers classes so that all of them share the static fields of the first instance."""

    def change(flatten, unflatten):
        first = []

        def shared(value):
            children, metadata, names = flatten(value)
            first.append(metadata)
            return children, first[0], names

        return shared, unflatten

    return registering(change)


@mutant(GROUP)
def registers_in_another_order():
    """Registers classes so that their children come back in another order."""
    return registering(
        lambda flatten, unflatten: (flatten, lambda meta, children: unflatten(meta, list(children)[::-1]))
    )


@mutant(GROUP)
def registers_a_constructor():
    """Registers classes so that they are rebuilt by calling them without their static fields."""
    return library(register=lambda cls, flatten, _: RIGHT.register(cls, flatten, lambda _, children: cls(*children)))


@mutant(GROUP)
def registers_labels_away():
    """Registers classes so that labels in them come back as what they hold."""
    return registering(
        lambda flatten, unflatten: (
            flatten,
            lambda meta, children: unflatten(meta, [extend.unlabelled(child) for child in children]),
        )
    )


@mutant(GROUP)
def arrays_without_tracers():
    """Claims arrays, and no tracers."""
    return {"array_types": lambda: (toyad.Array,)}


@mutant(GROUP)
def tracers_without_arrays():
    """Claims tracers, and no arrays."""
    return {"array_types": lambda: (toyad.Tracer, toyad.Staged)}


@mutant(GROUP)
def explanation_raises():
    """Raises where it should explain."""

    def explain(value):
        msg = "no explanation"
        raise RuntimeError(msg)

    return {"explain": explain}


@mutant(GROUP)
def explanation_lies():
    """Explains False, whatever the answer."""
    return {"adprotocol.explain": lambda *values: "\n".join(f"{type(value).__name__}: False" for value in values)}


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


@mutant(GROUP)
def wrong_signatures_pass():
    """Takes a plugin with hooks of another signature."""
    return {"adprotocol._dispatch.validation._fault": lambda *_: ""}


@mutant(GROUP)
def only_its_own_classes():
    """Serves the classes of the framework, and no subclasses that are defined elsewhere."""
    claimants = registry.REGISTRY.claimants
    return {
        "adprotocol._dispatch.registry.REGISTRY.claimants": lambda cls: [
            plugin for plugin in claimants(cls) if cls.__module__ == "toyad" or cls in plugin.types
        ]
    }


@mutant(GROUP)
def imports_numpy():
    """Imports NumPy when it is imported itself."""
    return {"adprotocol.__file__": str(Path(__file__).parent / "eager" / "adprotocol" / "__init__.py")}


@mutant(GROUP)
def imports_what_is_private():
    """Is of a module that imports from adprotocol what is not for plugins."""
    # This module is one.
    return {"array_types": lambda: (toyad.Value,)}


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


@mutant("trainable")
def combine_returns_the_model():
    """Returns the model that the result is to be like."""
    return {"adprotocol.combine": lambda *trees, like=None: combine(*trees) if like is None else like}


@mutant("trainable")
def combine_accepts_a_missing_leaf():
    """Leaves None in the model where no structure has a leaf."""

    def parts_alone(*trees, like=None):
        del like
        return combine(*trees)

    return {"adprotocol.combine": parts_alone}


@mutant("value_and_grad")
def combine_cuts_the_derivative():
    """Makes the leaves constant that are put into the model."""
    return {
        "adprotocol.combine": lambda *trees, like=None: (
            combine(*trees) if like is None else combine(*map(adprotocol.non_differentiable, trees), like=like)
        )
    }
