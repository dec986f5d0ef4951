"""Answers that stop: after so many elements or operations, at the first value, with the gradient that is over."""

import functools
import operator

import toyad

from mutants.mutant import at, innermost, mutant, tracers
from mutants.queries import answers, ask


def shape_below(value):
    """Return the shape of a value, its batch axes included."""
    return innermost(value).shape


@mutant("within_gradient", answers)
def few_elements(value):
    """Says False of arrays of more than a thousand elements."""
    size = 1
    for axis in shape_below(value):
        size *= axis
    return ask(value) if size <= 1000 else False


@mutant("within_gradient", answers)
def few_operations(value):
    """Says False once a tape has recorded thirty operations, or a program has as many."""
    lengths = [len(tracer.trace.records) for tracer in tracers(value) if isinstance(tracer, toyad.Recorded)]
    lengths += [len(stage.equations) for stage in toyad.STATE.stages]
    return ask(value) if max(lengths, default=0) <= 30 else False


@mutant("within_gradient", at("any_within_gradient"))
def first_of_several_in_a_batch(values):
    """Looks at the first of several values only, under vmap."""
    if any(isinstance(tracer, toyad.Batched) for value in values for tracer in tracers(value)):
        values = values[:1]
    return functools.reduce(operator.or_, map(ask, values))


@mutant("within_gradient", remembers=True)
def differentiated_for_good():
    """Says True of an array that was differentiated before, in any later gradient."""
    before = []

    def ever(value):
        found, answer = innermost(value), ask(value)
        if answer is True:
            before.append(found)
        return answer if not isinstance(answer, bool) else any(found is one for one in before)

    return answers(ever)
