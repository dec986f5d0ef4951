"""The grid: each hook under every transformation, and under pairs of them in both orders.

The functions of the grid are from a scalar to a scalar, so that transformations nest, and their derivatives are known
in closed form. The result of a row follows by the chain rule (`adprotocol.conformance.nesting`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adprotocol.conformance import nesting
from adprotocol.conformance.scenario import MUST, SHOULD, scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from adprotocol.conformance.checks import Checked

# Not 2, where x ** 2 and 2 x, and 3 x ** 2 and 6 x, are one number.
X = 2.5

SINGLE = nesting.TRANSFORMS
PAIRS = nesting.pairs()
DERIVATIVE_PAIRS = [pair for pair in PAIRS if nesting.differentiates(pair)]
LOOPS = (
    "grad of while_loop",
    "jvp of while_loop",
    "grad of jit of while_loop",
    "jvp of jit of while_loop",
    "grad of compile of while_loop",
    "grad of jit of scan",
    "jvp of jit of scan",
    "grad of compile of scan",
    "grad of scan of compile",
)

_SOURCES = {
    "jit": "PennyLane's qml.math.in_backprop is True under plain jit: "
    "https://docs.pennylane.ai/en/stable/code/api/pennylane.math.in_backprop.html",
    "compile": "PyTorch: requires_grad is read while Dynamo traces: "
    "https://docs.pytorch.org/docs/stable/torch.compiler_faq.html",
    "vmap": "PyTorch: requires_grad is False inside vmap: https://github.com/pytorch/pytorch/issues/134784",
    "checkpoint": "PyTorch: checkpoint runs the function twice: https://docs.pytorch.org/docs/stable/checkpoint.html",
    "scan": "JAX: the body of a scan is traced once: https://docs.jax.dev/en/latest/_autosummary/jax.lax.scan.html",
    "while_loop": "TensorFlow: a while loop of a graph, under a tape: "
    "https://www.tensorflow.org/api_docs/python/tf/while_loop",
    "jvp": "PyTorch: no switch tells forward mode: https://github.com/pytorch/pytorch/issues/128600",
    "grad": "PyTorch: a way to ask whether a derivative is wanted: https://github.com/pytorch/pytorch/issues/84565",
    "nested": "J. M. Siskind, B. A. Pearlmutter: Perturbation confusion and referential transparency, IFL 2005",
}


def _source(transforms: str) -> str:
    parts = nesting.parse(transforms)
    if sum(part in nesting.DERIVATIVES for part in parts) > 1:
        return _SOURCES["nested"]
    return next(_SOURCES[part] for part in (*nesting.OTHERS, "while_loop", *nesting.DERIVATIVES) if part in parts)


def grid(
    prefix: str,
    nestings: Iterable[str],
    *,
    rule: str,
    native: str = "{transforms}",
    also_vary: Iterable[str] = (),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Enter the decorated function under each nesting, which it takes as `transforms`; the ids begin with `prefix`."""

    def enter(function: Callable[..., None]) -> Callable[..., None]:
        for transforms in nestings:
            depth = len(nesting.parse(transforms))
            scenario(
                f"{prefix}{transforms.replace(' ', '-').replace('_', '-')}",
                {"transforms": transforms},
                level=MUST if depth <= 2 else SHOULD,
                rule=rule,
                transform=transforms,
                source=_source(transforms),
                varies=depth == 1 or transforms in also_vary,
                native=native.replace("{transforms}", transforms),
            )(function)
        return function

    return enter


def compare(h: Checked, transforms: str, fun: Callable[[Any], Any], table: nesting.Table, *points: float) -> None:
    """Compare what comes out at the points, by default X, and the value that comes with the outermost derivative.

    One transformed function serves all of them, as what a compiler keeps of the first call serves the next.
    """
    inner = nesting.value_before(transforms)
    outer = transforms if inner is None else nesting.parse(transforms)[0]
    before = h.nest(inner or "", fun)
    after = h.nest(outer, before)
    with_value = h.has("value_and_grad") and "grad" not in h.variant
    for at in points or (X,):
        x = h.array(at)
        value = nesting.expected(inner or "", table)(at)[0]
        if outer == "grad" and with_value:
            h.assert_equal(h.harness.value_and_grad(before)(x)[0], value, "the value that comes with the gradient")
        elif outer == "jvp":
            h.assert_equal(h.jvp(before, x, h.array(1.0))[0], value, "the value that comes with the tangent")
        what = f"the result at {at}" if len(points) > 1 else "the result"
        h.assert_equal(after(x), nesting.expected(transforms, table)(at)[0], what)
