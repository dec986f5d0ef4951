"""Calls inside calls over the same parameters, gone wrong."""

import toyad

from mutants.gradients import differentiate, hook
from mutants.mutant import mutant
from mutants.queries import answers, ask

GROUP = "value_and_grad"


def alone(value):
    """Return the value of a parameter without the levels that watch it."""
    return toyad.Array(value.value) if isinstance(value, toyad.Parameter) else value


@mutant(GROUP, hook)
def inner_leaves_are_released(fun, leaves):
    """Cuts the parameters of an inner call off from the outer one."""
    copies = {id(leaf): alone(leaf) for leaf in leaves}

    def watched(tracked):
        pairs = [(leaf, root) for leaf, root in zip(leaves, tracked, strict=True) if isinstance(leaf, toyad.Parameter)]
        with toyad.watching(pairs):
            return fun(tracked)

    return differentiate(watched, [copies[id(leaf)] for leaf in leaves])


@mutant(GROUP, hook)
def an_inner_call_ends_the_outer(fun, leaves):
    """Watches no parameter any more behind an inner call."""
    before = toyad.STATE.watched
    result = differentiate(fun, leaves)
    if before and any(isinstance(leaf, toyad.Parameter) for leaf in leaves):
        toyad.STATE.watched = ()
    return result


@mutant(GROUP, hook)
def an_inner_error_ends_the_outer(fun, leaves):
    """Watches no parameter any more behind an inner call that raises."""
    try:
        return differentiate(fun, leaves)
    except Exception:
        toyad.STATE.watched = ()
        raise


@mutant(GROUP)
def freezes_for_all_levels():
    """Replaces a parameter that a call does not select by a constant, also where an outer call selects it."""
    return {"freeze": alone}


@mutant(GROUP)
def freezes_nothing_it_watches():
    """Says False of a parameter that the innermost call does not select, whatever an outer call does."""
    selected = []

    def noting(fun, leaves):
        selected.append(leaves)
        try:
            return differentiate(fun, leaves)
        finally:
            selected.pop()

    def query(value):
        frozen = isinstance(value, toyad.Parameter) and selected and all(value is not leaf for leaf in selected[-1])
        return False if frozen else ask(value)

    return hook(noting) | answers(query)


@mutant(GROUP, hook)
def two_levels_only(fun, leaves):
    """Makes the gradient of a third level a constant."""
    value, aux, found = differentiate(fun, leaves)
    deep = len({root.trace.level for _, root in toyad.STATE.watched}) > 1
    return value, aux, [toyad.stop_gradient(slope) for slope in found] if deep else found


@mutant(GROUP, alone="PyTorch declares that the gradient of a parameter is a constant to a native one around it")
def forgets_native_levels():
    """Cuts a call off from a native gradient of a parameter around it."""
    native = []

    def parameter_grad(fun, parameter, real=toyad.parameter_grad):
        native.append(True)
        try:
            return real(fun, parameter)
        finally:
            native.pop()

    def detached(fun, leaves):
        value, aux, found = differentiate(fun, leaves)
        if not native or not any(isinstance(leaf, toyad.Parameter) for leaf in leaves):
            return value, aux, found
        return toyad.stop_gradient(value), aux, [toyad.stop_gradient(slope) for slope in found]

    return hook(detached) | {"toyad.parameter_grad": parameter_grad}


@mutant(GROUP, hook)
def closures_of_inner_calls_are_constants(fun, leaves):
    """Does not differentiate what the function of an inner call closes over, for the outer one."""
    value, aux, found = differentiate(fun, leaves)
    if not toyad.STATE.watched or all(isinstance(leaf, toyad.Parameter) for leaf in leaves):
        return value, aux, found
    return value, aux, [toyad.stop_gradient(slope) for slope in found]
