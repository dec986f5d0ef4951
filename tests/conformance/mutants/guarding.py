"""Guards with the message of another, in branches that are forgotten, and disarmed by an exception."""

import toyad

from mutants.branches import branches, is_known
from mutants.mutant import mutant
from mutants.outputs import choose
from mutants.preventions import guard, guards


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
    noted = []

    def noting(fun, taken):
        def run(*operands):
            noted.append(taken)
            try:
                result = fun(*operands)
            except Exception:
                if tidy:
                    noted.pop()
                raise
            noted.pop()
            return result

        return run

    def counted(pred, t, f, operands):
        if is_known(pred):
            return choose(pred, t, f, operands)
        return choose(pred, noting(t, taken=True), noting(f, taken=False), operands)

    def guarded(value, message):
        return value if condition(noted) else guard(value, message)

    return {"prevent_gradient": guarded, **branches(counted)}


@mutant("prevent_gradient")
def unguarded_in_false_branches():
    """Guards nothing in the branch of a staged cond for what is false."""
    return guards_by_branch(lambda noted: False in noted, tidy=True)


@mutant("prevent_gradient", remembers=True)
def unguarded_after_an_error():
    """Takes everything after an exception in a branch for part of that branch, which nobody takes."""
    return guards_by_branch(lambda noted: bool(noted) and not toyad.STATE.stages[1:], tidy=False)
