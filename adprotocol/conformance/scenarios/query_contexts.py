"""The query in generators, coroutines and contexts: decided by the value, whenever it is asked."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any

from adprotocol.conformance.scenario import scenario

if TYPE_CHECKING:
    from collections.abc import Generator

    from adprotocol.conformance.checked import Checked

GENERATORS = "PyTorch: modes and paused generators: https://github.com/pytorch/pytorch/pull/49017"
COROUTINES = "PyTorch: modes and coroutines: https://github.com/pytorch/pytorch/issues/48713"


def _layers(h: Checked) -> Generator[Any, Any, None]:
    """Take values that are sent, and yield their layers."""
    result = None
    while True:
        result = h.layer((yield result))


@scenario(
    "within_gradient/generator",
    rule="W2",
    needs=("grad",),
    transform="grad",
    source=GENERATORS,
    expects="5 c for a plain value, 3 x inside of a gradient and 5 c after it, from one generator",
    varies=True,
)
def generator(h: Checked) -> None:
    """A generator that is begun outside of a gradient, and resumed inside of it, answers by what it is sent."""
    layers, c = _layers(h), h.array(1.0)
    next(layers)
    h.equal(layers.send(c), 5.0, "before")
    h.value_and_gradient(lambda x: layers.send(x) * layers.send(c), [h.array(2.0)], 30.0, 15.0)
    h.equal(layers.send(c), 5.0, "afterwards")


@scenario(
    "within_gradient/paused-inside-gradient",
    rule="W2",
    needs=("grad",),
    transform="grad",
    source=GENERATORS,
    expects="5 c for a plain value, from a generator that was begun inside of a gradient and is resumed after it",
)
def paused_inside_gradient(h: Checked) -> None:
    """A generator that was begun inside of a gradient does not keep it."""
    layers, c = _layers(h), h.array(1.0)

    def f(x: Any) -> Any:
        next(layers)
        return layers.send(x)

    h.value_and_gradient(f, [h.array(2.0)], 6.0, 3.0)
    h.equal(layers.send(c), 5.0, "afterwards")


@scenario(
    "within_gradient/contexts",
    rule="W2",
    needs=("grad",),
    transform="grad",
    source=COROUTINES,
    expects="3 x in an empty context and in a coroutine, inside of a gradient; 5 c in a copy of the context after it",
)
def contexts(h: Checked) -> None:
    """Neither an empty context loses the answer, nor does a copy of the context keep it."""
    c, kept = h.array(1.0), []

    async def layer(x: Any) -> Any:
        await asyncio.sleep(0)
        return h.layer(x)

    def f(x: Any) -> Any:
        kept.append(contextvars.copy_context())
        return contextvars.Context().run(h.layer, x) + asyncio.run(layer(x)) * asyncio.run(layer(c))

    # 3 x + 3 x * 5 c
    h.value_and_gradient(f, [h.array(2.0)], 36.0, 18.0)
    h.equal(kept[0].run(h.layer, c), 5.0, "in a copy of the context, after the gradient")
