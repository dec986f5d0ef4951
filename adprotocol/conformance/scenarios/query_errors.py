"""The query after something went wrong or is over: nothing is left behind."""

from __future__ import annotations

import contextlib
import functools
import gc
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import MAY, scenario

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked

TRACE_COUNTER = "autograd: a counter of traces, shared and mutable: https://github.com/HIPS/autograd/pull/659"
GLOBAL_MODE = "Flux: one global istraining() for all models: https://github.com/FluxML/Flux.jl/issues/909"
ESCAPED = "JAX: values that escape from a nested trace: https://github.com/jax-ml/jax/issues/2048"


def _beside_plain(h: Checked, x: Any) -> Any:
    return h.layer(x) * h.scaled(h.array(1.0), 7.0, 11.0)


def after_error(h: Checked, transforms: str) -> None:
    """After an error inside: 5 x for a plain value; in a gradient 3 x times 11: 66, gradient 33."""
    x = h.array(2.0)

    def fails(x: Any) -> Any:
        h.layer(x)
        msg = "raised on purpose"
        raise ZeroDivisionError(msg)

    with h.raises(Exception):
        h.nest(transforms, fails)(x)
    h.equal(h.layer(x), 10.0, "the layer of a plain value after the error")
    if h.has("grad"):
        h.value_and_gradient(lambda x: _beside_plain(h, x), [x], 66.0, 33.0, "after the error")


for _transforms in ("grad", "jvp", "jit", "vmap", "grad of jit", "grad of checkpoint", "grad of grad"):
    scenario(
        f"within_gradient/error-inside-{_transforms.replace(' ', '-')}",
        rule="W2",
        transform=_transforms,
        source=TRACE_COUNTER,
        expects="5 x for a plain value; 3 x times 11, gradient 33, in a gradient",
        summary=f"An error inside {_transforms} leaves nothing behind.",
    )(functools.partial(after_error, transforms=_transforms))


@scenario(
    "within_gradient/error-inside-caught",
    rule="W2",
    needs=("grad",),
    transform="grad of grad",
    source=TRACE_COUNTER,
    expects="3 x times 11 c at 2, 4: 264, gradient 132",
)
def error_inside_caught(h: Checked) -> None:
    """An error in an inner gradient, caught inside the outer one, ends only the inner one."""
    c = h.array(4.0)

    def fails(y: Any) -> Any:
        h.layer(y)
        msg = "raised on purpose"
        raise ZeroDivisionError(msg)

    def f(x: Any) -> Any:
        with contextlib.suppress(ZeroDivisionError):
            h.grad(fails)(c)
        return h.layer(x) * h.scaled(c, 7.0, 11.0)

    h.value_and_gradient(f, [h.array(2.0)], 264.0, 132.0)


@scenario(
    "within_gradient/freed-values",
    rule="W2",
    transform="grad",
    source=GLOBAL_MODE,
    expects="5 for each of 200 new arrays",
)
def freed_values(h: Checked) -> None:
    """Arrays made after a gradient are plain, although they may reuse the memory of freed ones."""
    x = h.array(2.0)
    for _ in range(20):
        h.grad(lambda x: h.layer(x + 1.0) * h.layer(x))(x)
    gc.collect()
    made = [h.array(1.0) for _ in range(200)]
    for one in made:
        h.untracked(adprotocol.within_gradient(one), "an array made after the gradients")
    h.equal(h.layer(made[-1]), 5.0)


@scenario(
    "within_gradient/escaped-value",
    rule="W2",
    level=MAY,
    transform="grad",
    source=ESCAPED,
    expects="an answer or an error for the value that escaped; then 5 x, and 3 x times 11 in a gradient",
)
def escaped_value(h: Checked) -> None:
    """A value that escaped from a gradient does not disturb the answers for others."""
    x, kept = h.array(2.0), []

    def f(x: Any) -> Any:
        kept.append(x)
        return h.layer(x)

    h.grad(f)(x)
    with contextlib.suppress(Exception):
        adprotocol.within_gradient(kept[0])
    h.equal(h.layer(x), 10.0, "the layer of a plain value")
    h.value_and_gradient(lambda x: _beside_plain(h, x), [x], 66.0, 33.0)
