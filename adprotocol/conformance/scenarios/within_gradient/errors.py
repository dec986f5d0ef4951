"""The query after something went wrong or is over: nothing is left behind."""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import MAY, defaults

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


_TRACE_COUNTER = "autograd: a counter of traces, shared and mutable: https://github.com/HIPS/autograd/pull/659"

scenario: Decorator = defaults("within_gradient", rule="W2")


def _beside_plain(h: Checked, x: Any) -> Any:
    return h.probe(x) * h.scale(h.array(1.0), 7.0, 11.0)


@scenario(
    transform=("grad", "jvp", "jit", "vmap", "grad of jit", "grad of checkpoint", "grad of grad"), source=_TRACE_COUNTER
)
def error_inside(h: Checked, transforms: str) -> None:
    """An error inside {transforms} leaves nothing behind.

    After an error inside: 5 x for a plain value; in a gradient 3 x times 11: 66, gradient 33.
    """
    x = h.array(2.0)

    with h.raises(Exception):
        h.nest(transforms, h.fail)(x)
    h.assert_equal(h.probe(x), 10.0, "the layer of a plain value after the error")
    if h.has("grad"):
        h.assert_value_and_grad(lambda x: _beside_plain(h, x), [x], 66.0, 33.0, "after the error")


@scenario(transform="grad of grad", needs=("grad",), source=_TRACE_COUNTER)
def error_inside_caught(h: Checked) -> None:
    """An error in an inner gradient, caught inside the outer one, ends only the inner one.

    Expect 3 x times 11 c at 2, 4: 264, gradient 132.
    """
    c = h.array(4.0)

    def f(x: Any) -> Any:
        with contextlib.suppress(ZeroDivisionError):
            h.grad(h.fail)(c)
        return h.probe(x) * h.scale(c, 7.0, 11.0)

    h.assert_value_and_grad(f, [h.array(2.0)], 264.0, 132.0)


@scenario(
    transform="grad",
    source="Flux: one global istraining() for all models: https://github.com/FluxML/Flux.jl/issues/909",
)
def freed_values(h: Checked) -> None:
    """Arrays made after a gradient are plain, although they may reuse the memory of freed ones.

    Expect 5 for each of 200 new arrays.
    """
    x = h.array(2.0)
    for _ in range(20):
        h.grad(lambda x: h.probe(x + 1.0) * h.probe(x))(x)
    gc.collect()
    made = [h.array(1.0) for _ in range(200)]
    for one in made:
        h.assert_untracked(adprotocol.within_gradient(one), "an array made after the gradients")
    h.assert_equal(h.probe(made[-1]), 5.0)


@scenario(
    level=MAY,
    transform="grad",
    source="JAX: values that escape from a nested trace: https://github.com/jax-ml/jax/issues/2048",
)
def escaped_value(h: Checked) -> None:
    """A value that escaped from a gradient does not disturb the answers for others.

    Expect an answer or an error for the value that escaped, whether it was asked about before or not; then 5 x, and 3 x
    times 11 in a gradient.
    """
    x, kept = h.array(2.0), []
    answers: list[Any] = []

    def f(x: Any, layer: Any) -> Any:
        kept.append(x)
        return layer(x)

    def g(x: Any) -> Any:
        for one in kept:
            answers.append(None)
            with contextlib.suppress(Exception):
                answers[-1] = adprotocol.within_gradient(one)
        return 3.0 * x

    for layer in (h.probe, lambda x: 3.0 * x):
        h.grad(lambda x, layer=layer: f(x, layer))(x)
    for call in (g, h.grad(g)):
        call(x)
        asked, unasked = answers[-2:]
        if isinstance(unasked, bool):
            h.assert_is(asked, unasked, "the answer where the value was asked about before it escaped")
    h.assert_equal(h.probe(x), 10.0, "the layer of a plain value")
    h.assert_value_and_grad(lambda x: _beside_plain(h, x), [x], 66.0, 33.0)
