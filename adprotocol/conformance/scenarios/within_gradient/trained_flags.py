"""Parameters and their flags through time: operations on them, steps in place, flags that are turned on and off."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.checks import Absent
from adprotocol.conformance.scenario import defaults
from adprotocol.conformance.scenarios.within_gradient.parameters import NEEDS
from adprotocol.errors import one_line

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


scenario: Decorator = defaults(
    "within_gradient",
    rule="W3",
    source="PyTorch: leaves and their flags: https://docs.pytorch.org/docs/stable/notes/autograd.html",
)


@scenario(needs=NEEDS, source="tinygrad, optimizers: https://docs.tinygrad.org/nn/")
def parameter_updated_in_place(h: Checked) -> None:
    """After a step that updates it in place a parameter is tracked by its flag, as before.

    Expect 3 p in the gradient of p = 1, which was 2 before a constant was taken from it in place, and is computed later
    or at once: 3, twice; 11 q of q with its flag off, after the same.
    """
    p, q = h.parameter(2.0, trains=True), h.parameter(3.0, trains=False)

    def step(parameter: Any) -> None:
        same = parameter
        same -= adprotocol.non_differentiable(0.5 * parameter)
        if same is not parameter:
            msg = "its parameters are not updated in place by operators"
            raise Absent(msg)

    try:
        for parameter in (p, q):
            (h.no_grad(step) if h.has("no_grad") else step)(parameter)
    except (TypeError, RuntimeError) as error:
        raise Absent(one_line(error, 160)) from error
    h.require_native(lambda: h.parameter_grad(lambda: 3.0 * p, p), 3.0)
    h.assert_equal(h.parameter_grad(lambda: h.probe(p) * h.scale(q, 7.0, 11.0), p), 49.5, "the gradient")
    if h.has("evaluate"):
        p = h.evaluate(p)
    h.assert_equal(h.parameter_grad(lambda: h.probe(p) * h.scale(q, 7.0, 11.0), p), 49.5, "the gradient, computed")


@scenario(needs=(*NEEDS, "operations", "sum"))
def frozen_parameter_beside_results(h: Checked) -> None:
    """A parameter whose flag is off is not tracked for what operations make of it.

    Expect 3 p times 11 q, of which q has its flag off, while the results of all operations on q are held: the gradient
    33 q in p, 66 and 99.
    """
    p, q = h.parameter([1.0, 1.0], trains=True), h.parameter([2.0, 3.0], trains=False)
    if h.has("evaluate"):
        q = h.evaluate(q)
    held: list[Any] = []
    for operation in h.operations().values():
        with contextlib.suppress(Exception):  # what the system refuses
            held.append(operation(q))
    h.check(not any(h.numpy(h.digit(result)) for result in held), "a result of the parameter is said to be tracked")
    found = h.parameter_grad(lambda: h.sum(h.probe(p) * h.scale(q, 7.0, 11.0)), p)
    h.assert_equal(found, [66.0, 99.0], "the gradient")


@scenario(
    "closes-over-parameter-turned-{name}",
    rule="W6",
    transform="{way}",
    also_needs=(*NEEDS, "set_flag"),
    params={"on": {"flags": (False, True, False)}, "off": {"flags": (True, False, True)}},
)
def closes_over_parameter_turned(h: Checked, way: str, flags: tuple[bool, ...]) -> None:
    """A compiled function goes by the flag of a parameter it closes over, when that is turned {name} between calls.

    Expect 3 p c or 5 p c, whichever the eager function gives, for p with its flag off and on, and as it was before; 3 c
    in the gradient of the eager function.
    """
    p, c = h.parameter(2.0, trains=flags[0]), h.array(4.0)

    def f(x: Any) -> Any:
        return h.probe(p) * x

    traced = h.trace(way, f)
    for flag in flags:
        h.set_flag(p, trains=flag)
        want = h.numpy(adprotocol.non_differentiable(f(c)))
        h.assert_equal(adprotocol.non_differentiable(traced(c)), want, f"the call, with the flag {flag}")
        if flag:
            h.assert_equal(h.parameter_grad(lambda: f(c), p), 12.0, "the gradient of the eager function")
