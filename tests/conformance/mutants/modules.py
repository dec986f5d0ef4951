"""Modules that are shown wrongly: the view of toyad's modules gone wrong."""

import toyad
import toyad_adprotocol as right

from adprotocol import extend
from adprotocol.extend import View
from mutants.mutant import at, mutant

# Why scenarios of one make alone notice.
ONE_WAY = "a harness alone names a class of models, and what that leaves out is asked about in one way"
GROUP = "value_and_grad"
places, right_view = right.places, right.view


def shows(view):
    """Return a mutant with another view of modules."""
    return {"views": lambda: {toyad.Module: view}}


@mutant(GROUP, at("toyad_adprotocol.places"))
def declarations_of_modules_are_ignored(module, prefix="", *, frozen=False):
    """Trains what the class of a module leaves out."""
    return ((name, owner, part, False) for name, owner, part, _ in places(module, prefix, frozen=frozen))


@mutant(GROUP, at("toyad_adprotocol.places"))
def declarations_end_at_the_next_module(module, prefix="", *, frozen=False):
    """Trains what is in a module that the class of another leaves out."""
    for name, owner, part, out in places(module, prefix, frozen=frozen):
        yield name, owner, part, out and owner is module


@mutant(GROUP, shows)
def tied_modules_are_two(module):
    """Shows a module that stands at two places as two."""
    found = {path: (owner, name) for path, owner, name, _ in places(module)}
    own = {path: getattr(owner, name) for path, (owner, name) in found.items()}

    def fill(parts):
        for path, (owner, name) in found.items():
            setattr(owner, name, parts[path])
        return module, lambda: fill(own)

    return View(own, None, fill)


@mutant(GROUP, shows)
def modules_stay_filled(module):
    """Leaves what the function was given in the module."""
    shown = right_view(module)

    def fill(parts):
        filled, _ = shown.fill(parts)
        return filled, lambda: None

    return View(shown.container, shown.flags, fill, shown.aliases)


@mutant(GROUP, shows)
def flags_of_modules_are_ignored(module):
    """Trains parameters of modules whose flags are off."""
    shown = right_view(module)
    return View(shown.container, dict.fromkeys(shown.container, True), shown.fill, shown.aliases)


@mutant(GROUP, shows, alone=ONE_WAY)
def buffers_are_parameters(module):
    """Takes all arrays of a module for its parameters."""
    shown = right_view(module)
    arrays = {name: part for name, part in vars(module).items() if type(part) is toyad.Array}

    def fill(parts):
        vars(module).update({name: parts[name] for name in arrays})
        filled, undo = shown.fill(parts)

        def put_back():
            undo()
            vars(module).update(arrays)

        return filled, put_back

    flags = {**shown.flags, **dict.fromkeys(arrays, True)}
    return View({**shown.container, **arrays}, flags, fill, shown.aliases)


@mutant(GROUP, shows, alone="what is combined like a module is asked about in one way")
def combined_in_the_module(module):
    """Puts what is combined like a module into that module."""
    shown = right_view(module)
    return View(shown.container, shown.flags, shown.fill, shown.aliases, lambda parts: shown.fill(parts)[0])


@mutant(GROUP, shows)
def declarations_train_what_is_frozen(module):
    """Trains what the class of a module declares although its flag is off."""
    shown = right_view(module)
    flags = {path: not out for path, _, _, out in places(module) if path in shown.container}
    declares = extend.declares(type(module))
    return View(shown.container, flags if declares else shown.flags, shown.fill, shown.aliases)


@mutant(GROUP, shows)
def neighbours_have_the_name_of_a_tie(module):
    """Lets a pattern for a tied module select what stands beside it as well."""
    shown = right_view(module)
    names = {f"{alias.partition('.')[0]}: {path}": path for alias in shown.aliases for path in shown.container}
    return View(shown.container, shown.flags, shown.fill, {**shown.aliases, **names})
