"""Model-agnostic meta-learning: one loop for a dataclass, a pytree and a ``torch.nn.Module``.

C. Finn, P. Abbeel, S. Levine, https://arxiv.org/abs/1703.03400
"""

from collections.abc import Callable
from typing import Any

from adprotocol import combine, grad, trainable
from neutral.descent import stepped


def adapt(loss: Callable[..., Any], model: Any, *task: Any, steps: int = 1, rate: float = 0.1) -> Any:
    """Return the model adapted to a task, differentiable with respect to the model; it is called as the model is."""
    adapted = model
    for _ in range(steps):
        gradient = grad(loss)(adapted, *task)
        adapted = combine(stepped(trainable(adapted), gradient, rate), adapted, like=model)
    return adapted


def meta_loss(loss: Callable[..., Any], model: Any, tasks: Any, *, steps: int = 1, rate: float = 0.1) -> Any:
    """Return the sum, over pairs of a training and a test task, of the loss after adaptation."""
    losses = [loss(adapt(loss, model, *train, steps=steps, rate=rate), *test) for train, test in tasks]
    return sum(losses[1:], losses[0])
