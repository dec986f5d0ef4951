"""A mutant: the plugin of toyad with one thing wrong, in a hook or in the core function behind it.

A mutant is a function whose docstring says how it is wrong. It stands at a place, or
returns what it replaces: hooks by their name, and functions elsewhere by their dotted path.
"""

import contextlib
import functools
import types
from collections.abc import Callable
from dataclasses import dataclass
from unittest import mock

import toyad
import toyad_adprotocol as right

from adprotocol import plugins
from adprotocol._gradients import where as selection
from adprotocol.hookspecs import hookimpl

HOOKS = tuple(name for name, value in vars(right).items() if hasattr(value, "adprotocol_impl"))


@dataclass(frozen=True)
class Mutant:
    """Hold one way to be wrong; `hook` is the group of scenarios that has to notice."""

    hook: str
    name: str
    way: str
    make: Callable[[], dict]
    # So wrong that a scenario that it fails shows nothing.
    trivial: bool = False
    # It is made anew for each scenario, for it remembers what others did.
    remembers: bool = False
    # The hook whose scenarios are tried next, where those of `hook` that notice are of one make.
    beside: str = ""
    # Why scenarios of one make alone notice.
    alone: str = ""

    @property
    def id(self):
        """Return hook and name."""
        return f"{self.hook}/{self.name}"


MUTANTS = []


def mutant(hook, place=None, **more):
    """Enter a function as a mutant: what makes one or, with a place, what stands there."""

    def enter(function):
        name = function.__name__.strip("_").replace("_", "-")
        way = " ".join(function.__doc__.split()).rstrip(".")
        make = function if place is None else functools.partial(place, function)
        MUTANTS.append(Mutant(hook, name, way, make, **more))
        return function

    return enter


def at(target):
    """Return a place: a hook, or a dotted path."""
    return lambda function: {target: function}


def plugin(hooks):
    """Return the plugin of toyad with other hooks; one that is None is left out."""
    made = types.ModuleType("toyad_mutant")
    for name in HOOKS:
        setattr(made, name, getattr(right, name))
    for name, function in hooks.items():
        if function is None:
            delattr(made, name)
        else:
            setattr(made, name, hookimpl(function))
    return made


@contextlib.contextmanager
def active(mutated):
    """Put a mutant, or for None the plugin as it should be, in the place of toyad's plugin."""
    replaced = mutated.make() if mutated is not None else {}
    hooks = {name: function for name, function in replaced.items() if "." not in name}
    patches = {name: function for name, function in replaced.items() if "." in name}
    # What earlier mutants matched by patterns is remembered there.
    selection._MATCHES.clear()
    registered = plugins.register(plugin(hooks), "toyad")
    try:
        with contextlib.ExitStack() as stack:
            for target, new in patches.items():
                stack.enter_context(mock.patch(target, new))
            yield
    finally:
        plugins.unregister(registered.name)
        selection._MATCHES.clear()


@contextlib.contextmanager
def noted(flags, flag=True):
    """Keep a flag in a list for a while."""
    flags.append(flag)
    try:
        yield
    finally:
        flags.pop()


def tracers(value):
    """Return the tracers that stand for a value, that of the innermost level first."""
    found = []
    while isinstance(value, toyad.Tracer):
        found.append(value)
        value = value.below
    return found


def follows(kind, value):
    """Tell whether a tracer of a kind stands for a value."""
    return any(isinstance(tracer, kind) for tracer in tracers(value))


def innermost(value):
    """Return what is left of a value without its tracers: an array, or a result in a program."""
    while isinstance(value, toyad.Tracer):
        value = value.below
    return value


def is_staged(value):
    """Tell whether a value has a place in a program, so that toyad leaves answers open."""
    return isinstance(innermost(value), toyad.Staged)
