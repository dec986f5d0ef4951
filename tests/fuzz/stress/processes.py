"""Labels, structures and gradients that cross to spawned processes."""

import numpy as np

from adprotocol import NonDifferentiable, grad, within_gradient
from fuzz import isolation
from fuzz.stress.steps import Line, check


def gradients_of(model, number):
    """Return the gradients of a model that was pickled, in a process where nothing was asked before."""
    assert within_gradient(model) is False
    assert isinstance(model.offset, NonDifferentiable)
    return grad(Line.at)(model, number)


def spawned(makes, count=1):
    """Let new processes differentiate models of each kind of array, and check what comes back."""
    with isolation.pool("spawn", count) as pool:
        waiting = []
        for number in range(1, 2 * count + 1):
            for make in makes:
                label = NonDifferentiable(make(np.ones(2, np.float32)))
                waiting.append(
                    (number, pool.submit(gradients_of, Line(make(np.full(2, 3.0, np.float32)), label), number))
                )
        for number, future in waiting:
            gradients = future.result(timeout=300)
            check(gradients.slope, [2.0 * number] * 2, "gradient of a spawned process")
            assert gradients.offset is None
    return len(waiting)
