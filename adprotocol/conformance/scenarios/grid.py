"""The grid: each hook under every transformation, and under pairs of them in both orders."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from adprotocol.conformance import nesting
from adprotocol.conformance.scenario import MUST, SHOULD, scenario
from adprotocol.conformance.scenarios.nested import (
    X,
    answers,
    around,
    branches,
    chosen,
    constant,
    estimated,
    model,
    partial_gradient,
    plain,
    prevented,
    quarter,
    straight_through,
    tracked,
    with_constant,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_SOURCES = {
    "jit": "PennyLane's qml.math.in_backprop is True under plain jit: "
    "https://docs.pennylane.ai/en/stable/code/api/pennylane.math.in_backprop.html",
    "compile": "PyTorch: requires_grad is read while Dynamo traces: "
    "https://docs.pytorch.org/docs/stable/torch.compiler_faq.html",
    "vmap": "PyTorch: requires_grad is False inside vmap: https://github.com/pytorch/pytorch/issues/134784",
    "checkpoint": "PyTorch: checkpoint runs the function twice: https://docs.pytorch.org/docs/stable/checkpoint.html",
    "scan": "JAX: the body of a scan is traced once: https://docs.jax.dev/en/latest/_autosummary/jax.lax.scan.html",
    "while_loop": "TensorFlow: a while loop of a graph, under a tape: https://www.tensorflow.org/api_docs/python/tf/while_loop",
    "jvp": "PyTorch: no switch tells forward mode: https://github.com/pytorch/pytorch/issues/128600",
    "grad": "PyTorch: a way to ask whether a derivative is wanted: https://github.com/pytorch/pytorch/issues/84565",
    "nested": "J. M. Siskind, B. A. Pearlmutter: Perturbation confusion and referential transparency, IFL 2005",
}


def _source(transforms: str) -> str:
    parts = nesting.parse(transforms)
    if sum(part in nesting.DERIVATIVES for part in parts) > 1:
        return _SOURCES["nested"]
    return next(_SOURCES[part] for part in (*nesting.OTHERS, "while_loop", *nesting.DERIVATIVES) if part in parts)


def _enter(  # noqa: PLR0913
    hook: str,
    function: Callable[..., None],
    nestings: Iterable[str],
    *,
    rule: str,
    summary: str,
    expects: Callable[[str], str],
    prefix: str = "",
    native: str = "{}",
) -> None:
    for transforms in nestings:
        depth = len(nesting.parse(transforms))
        scenario(
            f"{hook}/{prefix}{transforms.replace(' ', '-').replace('_', '-')}",
            level=MUST if depth <= 2 else SHOULD,  # noqa: PLR2004
            rule=rule,
            transform=transforms,
            source=_source(transforms),
            expects=expects(transforms),
            summary=summary.format(transforms),
            varies=depth == 1,
            native=native.format(transforms),
        )(functools.partial(function, transforms=transforms))


def _number(transforms: str, table: nesting.Table, at: float = X) -> str:
    return f"{nesting.expected(transforms, table)(at)[0]:g}"


def _answer(transforms: str) -> str:
    if nesting.differentiates(transforms):
        return f"{transforms} of x ** 3, since the answer is True: {_number(transforms, tracked)} at 2.5"
    return f"{transforms} of 5 x ** 2, since the answer is False: {_number(transforms, plain)} at 2.5"


def _prevented(transforms: str) -> str:
    if nesting.differentiates(transforms):
        return (
            f"{transforms} of c x x with a guarded constant c of x: {_number(transforms, with_constant)} at 2.5; an "
            "error with the message for a guarded x"
        )
    return f"{transforms} of x ** 3, since nobody differentiates: {_number(transforms, with_constant)} at 2.5"


def _branches(transforms: str) -> str:
    below, above = (_number(transforms, chosen, at) for at in (X, 2.0 * X))
    return f"{transforms} of x ** 3 above 3, else of x ** 2: {below} at 2.5, {above} at 5"


_SINGLE = nesting.TRANSFORMS
_PAIRS = nesting.pairs()
_DERIVATIVE_PAIRS = [pair for pair in _PAIRS if nesting.differentiates(pair)]
_LOOPS = (
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
_AROUND_LOOPS = (
    "jit of grad of scan",
    "jit of jvp of scan",
    "compile of grad of scan",
    "jit of grad of while_loop",
    "jit of jvp of while_loop",
    "compile of grad of while_loop",
)
_TRIPLES = (
    "grad of jit of vmap",
    "grad of vmap of jit",
    "jit of grad of vmap",
    "vmap of grad of jit",
    "jvp of grad of jit",
    "grad of jvp of vmap",
    "grad of grad of jit",
    "grad of jit of grad",
    "jvp of vmap of grad",
    "vmap of jit of vmap",
    "grad of scan of jit",
    "grad of checkpoint of jit",
    "grad of vmap of checkpoint",
    "compile of grad of vmap",
    "compile of jvp of grad",
    "grad of grad of grad",
)

_enter(
    "within_gradient",
    answers,
    (*_SINGLE, *_PAIRS, *_LOOPS, *_AROUND_LOOPS, *_TRIPLES),
    rule="W5",
    summary="`within_gradient` answers correctly under {}.",
    expects=_answer,
)
_enter(
    "non_differentiable",
    constant,
    (*_SINGLE, *_DERIVATIVE_PAIRS, *_LOOPS),
    rule="N1",
    summary="A constant stays one under {}.",
    expects=lambda transforms: (
        f"{transforms} of c x x, with c the constant of x: {_number(transforms, with_constant)} at 2.5"
    ),
)
_enter(
    "non_differentiable",
    straight_through,
    ("grad", "jvp", "grad of jit", "jit of grad", "grad of vmap", "vmap of grad", "grad of grad", "compile of grad"),
    rule="N1",
    summary="The straight-through estimator has the derivative of its input under {}.",
    expects=lambda transforms: (
        f"{transforms} of x + constant(x ** 3 - x), which has the derivative of x: "
        f"{_number(transforms, estimated)} at 2.5"
    ),
    prefix="straight-through-",
)
_enter(
    "prevent_gradient",
    prevented,
    (*_SINGLE, *_PAIRS),
    rule="N5",
    summary="`prevent_gradient` passes what nobody differentiates, and nothing else, under {}.",
    expects=_prevented,
)
_enter(
    "cond",
    branches,
    (*_SINGLE, *_DERIVATIVE_PAIRS, *_LOOPS),
    rule="C6",
    summary="A branch is chosen and differentiated under {}.",
    expects=_branches,
)
_enter(
    "value_and_grad",
    model,
    (*_SINGLE, *_DERIVATIVE_PAIRS),
    rule="T9",
    summary="The gradient of a model with a frozen part is right inside {}.",
    expects=lambda transforms: (
        f"{transforms} of our gradient in w of w ** 3 b, with x at w and, frozen, at b: "
        f"{_number(transforms, partial_gradient)} at 2.5, and None for b"
    ),
    prefix="inside-",
    native="{} of grad",
)
_enter(
    "value_and_grad",
    around,
    (*_SINGLE, *_DERIVATIVE_PAIRS),
    rule="T9",
    summary="The gradient of a model is right around {}.",
    expects=lambda transforms: (
        f"our value and gradient of {transforms} of x ** 4 / 4: {_number(transforms, quarter)} and "
        f"{_number(f'grad of {transforms}', quarter)} at 2.5"
    ),
    prefix="of-",
    native="grad of {}",
)
