"""Several results of one program or cond, mistaken for each other."""

import toyad
import toyad_adprotocol as right

from mutants.branches import branches
from mutants.mutant import mutant
from mutants.queries import answers, ask

stop, choose = right.non_differentiable, right.cond


def noting(make, results):
    """Return a way to make programs that notes the results of each call, where it has several."""

    def made(fun):
        program = make(fun)

        def call(*args):
            result = program(*args)
            if isinstance(result, tuple):
                results.append(result)
            return result

        return call

    return made


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
    return {
        "toyad.jit": noting(toyad.jit, results),
        "toyad.compile": noting(toyad.compile, results),
        **answers(as_the_first(results)),
    }


@mutant("non_differentiable")
def constant_beside_a_constant():
    """Makes all results of a program constant if the first is."""

    def spreading(make):
        def made(fun):
            program = make(fun)

            def call(*args):
                result = program(*args)
                if not isinstance(result, tuple) or ask(result[0]) is not False:
                    return result
                return tuple(stop(one) for one in result)

            return call

        return made

    return {"toyad.jit": spreading(toyad.jit), "toyad.compile": spreading(toyad.compile)}


@mutant("cond")
def results_of_branches_alike():
    """Leaves it to the first result of a staged or batched cond whether all are tracked."""
    results = []

    def noted(pred, t, f, operands):
        result = choose(pred, t, f, operands)
        if isinstance(result, tuple):
            results.append(result)
        return result

    return {**branches(noted), **answers(as_the_first(results))}
