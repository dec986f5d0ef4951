"""Asking: what an answer is, and what asking leaves behind, which is nothing."""

from __future__ import annotations

import functools
from typing import Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance.checks import Checked
from adprotocol.conformance.scenario import MAY, MUST, SHOULD, scenario
from adprotocol.conformance.scenarios.query import layer_by
from adprotocol.errors import kind_of

CANONICAL = "PyTorch: a canonical way to ask for a derivative: https://github.com/pytorch/pytorch/issues/84565"
BOOLS = "PennyLane: a traced value where a bool is needed: https://github.com/PennyLaneAI/pennylane/issues/6932"


@scenario(
    "within_gradient/asking-runs-no-derivative",
    rule="W7",
    needs=("grad", "counter"),
    transform="grad",
    source=CANONICAL,
    expects="as many runs of the derivative of a function whose result is asked about, and not used, as without asking",
)
def asking_runs_no_derivative(h: Checked) -> None:
    """Asking about a value adds no derivative computation."""

    def runs(*, ask: bool) -> int:
        identity, count = h.counter()

        def f(x: Any) -> Any:
            y = identity(x)
            return layer_by(h, x, y) if ask else 3.0 * x

        h.equal(h.grad(f)(h.array(2.0)), 3.0, "the gradient")
        return int(count())

    with_asking, without = runs(ask=True), runs(ask=False)
    h.holds(with_asking == without, f"asking made {with_asking} runs of the derivative, and not {without}")


def asking_changes_nothing(h: Checked, transforms: str) -> None:
    """Value and derivative of x x x are the same with 20 questions in between: 8 and 12 at 2."""
    x = h.array(2.0)

    def f(x: Any) -> Any:
        y = x * x
        for value in (x, y, [x, y]) * 7:
            h.asks(value)
        return y * x

    h.equal(h.nest(transforms, f)(x), nesting.expected(transforms, lambda x: [x**3, 3 * x**2, 6 * x])(2.0)[0])
    h.equal(x, 2.0, "the argument afterwards")


for _transforms in ("jit", "grad", "jvp", "grad of jit", "grad of grad", "grad of checkpoint"):
    scenario(
        f"within_gradient/asking-changes-nothing-{_transforms.replace(' ', '-')}",
        rule="W7",
        transform=_transforms,
        source=CANONICAL,
        expects="the value and derivative of x ** 3",
        summary=f"Asking changes neither value nor derivative under {_transforms}.",
    )(functools.partial(asking_changes_nothing, transforms=_transforms))


def is_a_bool(h: Checked, transforms: str) -> None:
    """A Python `if` chooses 3 x x in a gradient and 5 x x else, and the answers are of type bool."""

    def f(x: Any) -> Any:
        answer = adprotocol.within_gradient({"x": x})
        if not isinstance(answer, bool):
            msg = f"the answer is {kind_of(answer)}, and not a bool, in eager code"
            raise TypeError(msg)
        return 3.0 * x * x if answer else 5.0 * x * x

    k = 3.0 if nesting.differentiates(transforms) else 5.0
    h.equal(
        h.nest(transforms, f)(h.array(2.0)),
        nesting.expected(transforms, lambda x: [k * x * x, 2 * k * x, 2 * k])(2.0)[0],
    )


for _transforms in ("", "grad", "jvp", "vmap", "vmap of grad", "grad of vmap", "grad of jvp"):
    scenario(
        f"within_gradient/a-bool-{_transforms.replace(' ', '-') or 'outside'}",
        level=SHOULD if _transforms else MUST,
        rule="W4",
        transform=_transforms,
        source=BOOLS,
        expects="3 x x in a gradient, 5 x x else, by a Python if",
        summary=f"The answer is a bool {f'under {_transforms}' if _transforms else 'outside AD'}.",
    )(functools.partial(is_a_bool, transforms=_transforms))


@scenario(
    "within_gradient/explain",
    rule="W4",
    level=MAY,
    transform="grad",
    source=CANONICAL,
    expects="text with the name of the plugin and the answer for x, True or staged; False for a number; and then 3 x",
)
def explain(h: Checked) -> None:
    """`explain` returns the answer and names the plugin."""

    def f(x: Any) -> Any:
        text = adprotocol.explain(x, 1.0)
        known = isinstance(adprotocol.within_gradient(x), bool)
        for word in (h.name, "True" if known else "staged", "False"):
            h.holds(word in text, f"the explanation lacks {word!r}: {text}")
        return h.layer(x)

    h.value_and_gradient(f, [h.array(2.0)], 6.0, 3.0)


@scenario(
    "within_gradient/explain-what-has-no-derivative",
    rule="W9",
    level=MAY,
    source=CANONICAL,
    expects="text with the answer, False, for an integer, a boolean and a vector of integers",
)
def explain_what_has_no_derivative(h: Checked) -> None:
    """`explain` has a text for arrays whose dtype has no derivative."""
    for value in (1, True, [1, 2]):
        text = adprotocol.explain(h.array(value))
        h.holds("False" in text, f"the explanation of {value} lacks the answer: {text}")


@scenario(
    "within_gradient/every-device",
    rule="W1",
    needs=("devices",),
    source="PyTorch: gradients that are wrong on one device, where the input takes none: "
    "https://github.com/pytorch/pytorch/issues/183825",
    expects="5 x outside; 3 x times 11 c inside, at 2, 1: 66, gradient 33; on each device",
)
def every_device(h: Checked) -> None:
    """The answers are the same on every device of this machine."""
    for device in h.devices():
        there = Checked(type(h.harness)(device))
        x, c = there.array(2.0), there.array(1.0)
        there.equal(there.layer(x), 10.0, f"the layer on {device}")
        if there.has("grad"):
            f = functools.partial(_layers, there, c)
            there.value_and_gradient(f, [x], 66.0, 33.0, f"on {device}")


@scenario(
    "within_gradient/every-device-under-jit",
    rule="W1",
    needs=("grad", "jit", "devices"),
    transform="grad of jit",
    source="PyTorch: gradients that are wrong on one device, where the input takes none: "
    "https://github.com/pytorch/pytorch/issues/183825",
    expects="3 x times 11 c inside, at 2, 1: 66, gradient 33; on each device",
)
def every_device_under_jit(h: Checked) -> None:
    """The answers in a jitted function are the same on every device of this machine."""
    for device in h.devices():
        there = Checked(type(h.harness)(device))
        x, c = there.array(2.0), there.array(1.0)
        there.value_and_gradient(there.jit(functools.partial(_layers, there, c)), [x], 66.0, 33.0, f"on {device}")


def _layers(h: Checked, c: Any, x: Any) -> Any:
    return h.layer(x) * h.scaled(c, 7.0, 11.0)
