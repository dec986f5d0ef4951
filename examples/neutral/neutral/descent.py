"""An optimiser loop over any model."""

from collections.abc import Callable
from typing import Any

from adprotocol import combine, trainable, tree_map, value_and_grad


def descend(
    loss: Callable[..., Any], model: Any, *data: Any, steps: int, rate: float, where: Any = None
) -> tuple[Any, list[Any]]:
    """Minimise ``loss(model, *data)`` by gradient descent; return the model and the loss of each step.

    Args:
        loss: a function of the model and the data that returns a scalar.
        model: a structure of arrays: dataclasses, dicts, pytrees. A
            ``torch.nn.Module`` gives a dict of its tensors.
        *data: passed on.
        steps: how many.
        rate: the step length.
        where: which leaves are trained, as for `adprotocol.trainable`.
    """
    run = value_and_grad(loss, where=where)
    values = []
    for _ in range(steps):
        value, gradient = run(model, *data)
        values.append(value)
        model = combine(stepped(trainable(model, where), gradient, rate), model, like=model)
    return model, values


def stepped(params: Any, gradient: Any, rate: float) -> Any:
    """Return the parameters one step down the gradient; None stays None."""
    return tree_map(lambda p, g: p - rate * g, params, gradient)
