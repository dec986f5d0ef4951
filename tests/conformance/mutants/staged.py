"""Programs and branches that run later: their results, operands, guards and calls mistaken for each other."""

import functools

import toyad
import toyad_adprotocol as right

from adprotocol import extend
from mutants.branches import branches, choose, each_later, later
from mutants.mutant import mutant, noted
from mutants.preventions import guard, guards
from mutants.queries import answers, ask, forgets_results, noting

stop = right.non_differentiable


def kept_if_several(results):
    """Return what keeps a result that has several parts in a list, and returns it."""

    def keep(result):
        if isinstance(result, tuple):
            results.append(result)
        return result

    return keep


def as_the_first(results):
    """Return a query that answers for the first of the results of which a value is one."""

    def query(value):
        found = next((made for made in results if any(value is one for one in made)), (value,))
        return ask(found[0])

    return query


@mutant("within_gradient")
def results_alike():
    """Says of all results of a program what is true of the first."""
    results = []
    return {**noting(kept_if_several(results)), **answers(as_the_first(results))}


@mutant("non_differentiable", noting, beside="within_gradient")
def constant_beside_a_constant(result):
    """Makes all results of a program constant if the first is."""
    if not isinstance(result, tuple) or ask(result[0]) is not False:
        return result
    return tuple(stop(one) for one in result)


@mutant("cond")
def results_of_branches_alike():
    """Leaves it to the first result of a staged or batched cond whether all are tracked."""
    results = []
    keep = kept_if_several(results)
    return {
        **branches(lambda pred, t, f, operands: keep(choose(pred, t, f, operands))),
        **answers(as_the_first(results)),
    }


@mutant("cond", later)
def integers_become_arrays(pred, t, f, operands):
    """Gives staged branches arrays in the place of integers."""

    def change(leaf):
        return toyad.where(pred, leaf, leaf) if type(leaf) is int else leaf

    return choose(pred, t, f, tuple(extend.tree_map(change, operand) for operand in operands))


@mutant("cond", each_later)
def numbers_become_floats(fun, *operands):
    """Makes floats of the integers that both staged branches return."""
    result = fun(*operands)
    return float(result) if type(result) is int else result


@mutant("cond", later)
def numbers_like_the_first(pred, t, f, operands):
    """Gives a number from the second of two staged branches the type of that from the first."""
    kinds = []

    def first(*given):
        result = t(*given)
        kinds.append(type(result))
        return result

    def second(*given):
        result = f(*given)
        return int(result) if kinds == [int] and type(result) is float else result

    return choose(pred, first, second, operands)


@mutant("prevent_gradient")
def message_of_the_first():
    """Gives all guards of a program the message of the first."""
    messages = {}

    def first(value, message):
        program = toyad.STATE.stages[-1] if toyad.STATE.stages else None
        return guard(value, message if program is None else messages.setdefault(program, message))

    return guards(first)


def guards_by_branch(condition, *, tidy):
    """Return a mutant that guards nothing where a condition holds for the branches that are being traced.

    Without `tidy` a branch that an exception ends counts as one that goes on.
    """
    traced = []

    def noting(fun, taken):
        def run(*operands):
            traced.append(taken)
            try:
                result = fun(*operands)
            except Exception:
                if tidy:
                    traced.pop()
                raise
            traced.pop()
            return result

        return run

    def counted(pred, t, f, operands):
        return choose(pred, noting(t, taken=True), noting(f, taken=False), operands)

    def guarded(value, message):
        return value if condition(traced) else guard(value, message)

    return {"prevent_gradient": guarded, **later(counted)}


@mutant("prevent_gradient")
def unguarded_in_false_branches():
    """Guards nothing in the branch of a staged cond for what is false."""
    return guards_by_branch(lambda noted: False in noted, tidy=True)


@mutant("prevent_gradient", remembers=True, beside="cond")
def unguarded_after_an_error():
    """Takes everything after an exception in a branch for part of that branch, which nobody takes."""
    return guards_by_branch(lambda noted: bool(noted) and not toyad.STATE.stages[1:], tidy=False)


def forgets_calls(inside):
    """Return a mutant that says False of the results of programs in which `inside` had something to note."""
    results, kept = [], {}

    def noting_all(make):
        def made(fun):
            program = make(fun)

            @functools.wraps(fun)
            def call(*args):
                before = len(inside)
                result = program(*args)
                # A program that was traced before is not traced again.
                kept[id(program)] = program, kept.get(id(program), (None, False))[1] or len(inside) > before
                if kept[id(program)][1] and isinstance(result, toyad.Staged):
                    results.append(result)
                return result

            return call

        return made

    return {
        "toyad.jit": noting_all(toyad.jit),
        "toyad.compile": noting_all(toyad.compile),
        **forgets_results(results),
    }


@mutant("within_gradient", beside="cond")
def calls_in_calls():
    """Loses track at the call of a program that calls another."""
    inside = []
    made = forgets_calls(inside)

    def note(result):
        if len(toyad.STATE.stages) > 1:
            inside.append(result)
        return result

    return {**made, **noting(note, {name: made[name] for name in ("toyad.jit", "toyad.compile")})}


@mutant("within_gradient", beside="cond")
def branches_in_calls():
    """Loses track at the call of a program that branches."""
    inside = []

    def counted(pred, t, f, operands):
        if len(toyad.STATE.stages) > 1:
            inside.append(pred)
        return choose(pred, t, f, operands)

    return {**forgets_calls(inside), **later(counted)}


def guards_by_depth(change):
    """Return a mutant with another guard in a branch of a branch that is staged."""
    depth = []

    def deeper(fun, *operands):
        with noted(depth):
            return fun(*operands)

    def guarded(value, message):
        return (change if len(depth) > 1 else guard)(value, message)

    return {"prevent_gradient": guarded, **each_later(deeper)}


@mutant("prevent_gradient", guards_by_depth)
def unguarded_in_nested_branches(value, _message):
    """Guards nothing in a branch of a branch."""
    return value


@mutant("prevent_gradient", guards_by_depth)
def refused_in_nested_branches(value, message):
    """Refuses a value in a branch of a branch, whether it is taken or not."""
    raise right.gradient_prevented(value, message, "toyad")
