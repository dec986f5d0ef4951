"""What is one level further down, and forgotten: calls in calls, branches in calls, branches in branches."""

import functools

import toyad
import toyad_adprotocol as right

from mutants.branches import branches, is_known
from mutants.mutant import mutant
from mutants.outputs import choose
from mutants.preventions import guard
from mutants.queries import forgets_results, noting


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


@mutant("within_gradient")
def calls_in_calls():
    """Loses track at the call of a program that calls another."""
    noted = []
    made = forgets_calls(noted)

    def note(result):
        if len(toyad.STATE.stages) > 1:
            noted.append(result)

    return {**made, "toyad.jit": noting(made["toyad.jit"], note), "toyad.compile": noting(made["toyad.compile"], note)}


@mutant("within_gradient")
def branches_in_calls():
    """Loses track at the call of a program that branches."""
    noted = []

    def counted(pred, t, f, operands):
        if not is_known(pred) and len(toyad.STATE.stages) > 1:
            noted.append(pred)
        return choose(pred, t, f, operands)

    return {**forgets_calls(noted), **branches(counted)}


def guards_by_depth(change):
    """Return a mutant with another guard in a branch of a branch that is staged."""
    depth = []

    def deeper(fun, taken):
        def run(*operands):
            depth.append(taken)
            try:
                return fun(*operands)
            finally:
                depth.pop()

        return run

    def counted(pred, t, f, operands):
        if is_known(pred):
            return choose(pred, t, f, operands)
        return choose(pred, deeper(t, taken=True), deeper(f, taken=False), operands)

    def guarded(value, message):
        return (change if len(depth) > 1 else guard)(value, message)

    return {"prevent_gradient": guarded, **branches(counted)}


@mutant("prevent_gradient", guards_by_depth)
def unguarded_in_nested_branches(value, _message):
    """Guards nothing in a branch of a branch."""
    return value


@mutant("prevent_gradient", guards_by_depth)
def refused_in_nested_branches(value, message):
    """Refuses a value in a branch of a branch, whether it is taken or not."""
    raise right.gradient_prevented(value, message, "toyad")
