"""Asking: what an answer is, and what asking leaves behind, which is nothing."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance.checks import Checked
from adprotocol.conformance.scenario import MAY, SHOULD, defaults
from adprotocol.errors import kind_of

_BOOLS = "PennyLane: a traced value where a bool is needed: https://github.com/PennyLaneAI/pennylane/issues/6932"

if TYPE_CHECKING:
    from adprotocol.conformance.scenario import Decorator

scenario: Decorator = defaults(
    "within_gradient",
    source="PyTorch: a canonical way to ask for a derivative: https://github.com/pytorch/pytorch/issues/84565",
)


@scenario(rule="W7", transform="grad", needs=("grad", "counter"))
def asking_runs_no_derivative(h: Checked) -> None:
    """Asking about a value adds no derivative computation.

    Expect as many runs of the derivative of a function whose result is asked about, and not used, as without asking.
    """

    def runs(*, ask: bool) -> int:
        identity, count = h.counter()

        def f(x: Any) -> Any:
            y = identity(x)
            return h.probe_by(x, y) if ask else 3.0 * x

        h.assert_equal(h.grad(f)(h.array(2.0)), 3.0, "the gradient")
        return int(count())

    with_asking, without = runs(ask=True), runs(ask=False)
    h.check(with_asking == without, f"asking made {with_asking} runs of the derivative, and not {without}")


@scenario(rule="W7", transform=("jit", "grad", "jvp", "grad of jit", "grad of grad", "grad of checkpoint"))
def asking_changes_nothing(h: Checked, transforms: str) -> None:
    """Asking changes neither value nor derivative under {transforms}.

    Value and derivative of x x x are the same with 20 questions in between: 8 and 12 at 2.

    Expect the value and derivative of x ** 3.
    """
    x = h.array(2.0)

    def f(x: Any) -> Any:
        y = x * x
        for value in (x, y, [x, y]) * 7:
            h.query(value)
        return y * x

    h.assert_equal(h.nest(transforms, f)(x), nesting.expected(transforms, lambda x: [x**3, 3 * x**2, 6 * x])(2.0)[0])
    h.assert_equal(x, 2.0, "the argument afterwards")


def _chooses_by_if(h: Checked, transforms: str) -> None:
    """Choose 3 x x in a gradient and 5 x x else by a Python `if`, for which the answer must be a bool."""

    def f(x: Any) -> Any:
        answer = adprotocol.within_gradient({"x": x})
        if not isinstance(answer, bool):
            msg = f"the answer is {kind_of(answer)}, and not a bool, in eager code"
            raise TypeError(msg)
        return 3.0 * x * x if answer else 5.0 * x * x

    k = 3.0 if nesting.differentiates(transforms) else 5.0
    h.assert_equal(
        h.nest(transforms, f)(h.array(2.0)),
        nesting.expected(transforms, lambda x: [k * x * x, 2 * k * x, 2 * k])(2.0)[0],
    )


@scenario(rule="W4", source=_BOOLS)
def a_bool_outside(h: Checked) -> None:
    """The answer is a bool outside AD.

    Expect 3 x ** 2 in a gradient, 5 x ** 2 else, by a Python if.
    """
    _chooses_by_if(h, "")


@scenario(
    level=SHOULD,
    rule="W4",
    transform=("grad", "jvp", "vmap", "vmap of grad", "grad of vmap", "grad of jvp"),
    source=_BOOLS,
)
def a_bool(h: Checked, transforms: str) -> None:
    """The answer is a bool under {transforms}.

    Expect 3 x ** 2 in a gradient, 5 x ** 2 else, by a Python if.
    """
    _chooses_by_if(h, transforms)


@scenario(level=MAY, rule="W4", transform="grad")
def explain(h: Checked) -> None:
    """`explain` returns the answer and names the plugin.

    Expect text with the name of the plugin and the answer for x, True, False or staged; False for a number; and then 3
    x, or 5 x under jit and vmap.
    """

    def f(x: Any) -> Any:
        text = adprotocol.explain(x, 1.0)
        answer = adprotocol.within_gradient(x)
        for word in (h.name, str(answer) if isinstance(answer, bool) else "staged", "False"):
            h.check(word in text, f"the explanation lacks {word!r}: {text}")
        return h.probe(x)

    h.assert_value_and_grad(f, [h.array(2.0)], 6.0, 3.0)
    # Where somebody else decides, an answer has no truth.
    for way in filter(h.has, ("jit", "vmap")):
        found = getattr(h, way)(f)(h.array([2.0]) if way == "vmap" else h.array(2.0))
        h.assert_equal(found, [10.0] if way == "vmap" else 10.0, f"under {way}")


@scenario(level=MAY, rule="W9")
def explain_what_has_no_derivative(h: Checked) -> None:
    """`explain` has a text for arrays whose dtype has no derivative.

    Expect text with the answer, False, for an integer, a boolean and a vector of integers.
    """
    for value in (1, True, [1, 2]):
        text = adprotocol.explain(h.array(value))
        h.check("False" in text, f"the explanation of {value} lacks the answer: {text}")


@scenario(
    rule="W1",
    needs=("devices",),
    source="PyTorch: gradients that are wrong on one device, where the input takes none: "
    "https://github.com/pytorch/pytorch/issues/183825",
)
def every_device(h: Checked) -> None:
    """The answers are the same on every device of this machine.

    Expect 5 x outside; 3 x times 11 c inside, at 2, 1: 66, gradient 33; on each device.
    """
    for device in h.devices():
        there = Checked(type(h.harness)(device))
        x, c = there.array(2.0), there.array(1.0)
        there.assert_equal(there.probe(x), 10.0, f"the layer on {device}")
        if there.has("grad"):
            f = functools.partial(_layers, there, c)
            there.assert_value_and_grad(f, [x], 66.0, 33.0, f"on {device}")


@scenario(
    rule="W1",
    transform="grad of jit",
    needs=("grad", "jit", "devices"),
    source="PyTorch: gradients that are wrong on one device, where the input takes none: "
    "https://github.com/pytorch/pytorch/issues/183825",
)
def every_device_under_jit(h: Checked) -> None:
    """The answers in a jitted function are the same on every device of this machine.

    Expect 3 x times 11 c inside, at 2, 1: 66, gradient 33; on each device.
    """
    for device in h.devices():
        there = Checked(type(h.harness)(device))
        x, c = there.array(2.0), there.array(1.0)
        there.assert_value_and_grad(there.jit(functools.partial(_layers, there, c)), [x], 66.0, 33.0, f"on {device}")


def _layers(h: Checked, c: Any, x: Any) -> Any:
    return h.probe(x) * h.scale(c, 7.0, 11.0)
