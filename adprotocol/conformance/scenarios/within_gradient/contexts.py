"""The query in generators, coroutines and contexts: decided by the value, whenever it is asked."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any

from adprotocol.conformance.scenario import defaults

if TYPE_CHECKING:
    from collections.abc import Generator

    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


_GENERATORS = "PyTorch: modes and paused generators: https://github.com/pytorch/pytorch/pull/49017"

scenario: Decorator = defaults("within_gradient", rule="W2", transform="grad")


def _layers(h: Checked) -> Generator[Any, Any, None]:
    """Take values that are sent with two factors, and yield them scaled."""
    result = None
    while True:
        result = h.scale(*(yield result))


@scenario(varies=True, source=_GENERATORS)
def generator(h: Checked) -> None:
    """A generator started outside a gradient and resumed inside answers for the values sent to it.

    Expect 11 c for a plain c before, inside of and after a gradient, 3 x inside of it, from one generator: 66, 33.
    """
    layers, c = _layers(h), h.array(1.0)
    next(layers)
    plain = (c, 7.0, 11.0)
    h.assert_equal(layers.send(plain), 11.0, "before")
    h.assert_value_and_grad(lambda x: layers.send((x, 3.0, 5.0)) * layers.send(plain), [h.array(2.0)], 66.0, 33.0)
    h.assert_equal(layers.send(plain), 11.0, "afterwards")


@scenario(source=_GENERATORS)
def paused_inside_gradient(h: Checked) -> None:
    """A generator started inside a gradient does not keep it.

    Expect 5 c for a plain value, from a generator that was begun inside of a gradient and is resumed after it.
    """
    layers, c = _layers(h), h.array(1.0)

    def f(x: Any) -> Any:
        next(layers)
        return layers.send((x, 3.0, 5.0))

    h.assert_value_and_grad(f, [h.array(2.0)], 6.0, 3.0)
    h.assert_equal(layers.send((c, 3.0, 5.0)), 5.0, "afterwards")


@scenario(source="PyTorch: modes and coroutines: https://github.com/pytorch/pytorch/issues/48713")
def contexts(h: Checked) -> None:
    """An empty context does not lose the answer, and a copy of the context does not keep it.

    Expect 3 x in an empty context, and in coroutines 7 x and 17 c: 244, gradient 122; 5 c in a copy of the context
    after the gradient.
    """
    c, kept = h.array(1.0), []

    async def scaled(x: Any, inside: float, outside: float) -> Any:
        await asyncio.sleep(0)
        return h.scale(x, inside, outside)

    def f(x: Any) -> Any:
        kept.append(contextvars.copy_context())
        product = asyncio.run(scaled(x, 7.0, 11.0)) * asyncio.run(scaled(c, 13.0, 17.0))
        return contextvars.Context().run(h.probe, x) + product

    # 3 x + 7 x * 17 c
    h.assert_value_and_grad(f, [h.array(2.0)], 244.0, 122.0)
    h.assert_equal(kept[0].run(h.probe, c), 5.0, "in a copy of the context, after the gradient")
