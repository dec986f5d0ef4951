"""Flags of parameters, the switch of the system, and a small training by them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance.checks import Absent
from adprotocol.conformance.scenario import WAYS, defaults
from adprotocol.conformance.scenarios.within_gradient.parameters import NEEDS
from adprotocol.errors import one_line

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator

scenario: Decorator = defaults(
    "within_gradient",
    rule="W2",
    source="PyTorch: the switch counts: https://docs.pytorch.org/docs/stable/notes/autograd.html",
)


@scenario(rule="W3", needs=NEEDS, source="tinygrad, optimizers: https://docs.tinygrad.org/nn/")
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


@scenario(
    rule="W3",
    needs=(*NEEDS, "operations", "sum"),
    source="PyTorch: leaves and their flags: https://docs.pytorch.org/docs/stable/notes/autograd.html",
)
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
    source="PyTorch: leaves and their flags: https://docs.pytorch.org/docs/stable/notes/autograd.html",
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


def switched_parameter(h: Checked) -> Any:
    """Return a parameter of the value 2; a system whose switch does not concern parameters has none of it."""
    p = h.parameter(2.0, trains=True)
    h.require_native(lambda: h.parameter_grad(lambda: p * h.no_grad(lambda: p * p)(), p), 4.0)
    return p


@scenario(needs=(*NEEDS, "no_grad"))
def parameter_under_the_switch(h: Checked) -> None:
    """A parameter is not tracked where the switch is off, and is again where it is on.

    Expect 5 p under the switch, a constant, times 7 p outside: at 2 the value 140 and the gradient 70.
    """
    p, values = switched_parameter(h), []

    def f() -> Any:
        value = h.no_grad(lambda: h.scale(p, 3.0, 5.0))() * h.scale(p, 7.0, 11.0)
        values.append(adprotocol.non_differentiable(value))
        return value

    h.assert_equal(h.parameter_grad(f, p), 70.0, "the gradient")
    h.assert_equal(values[0], 140.0, "the value under the gradient")


@scenario(needs=(*NEEDS, "no_grad"))
def results_under_the_switch(h: Checked) -> None:
    """What was computed from a parameter is not tracked under the switch, and is behind it.

    Expect under the switch False for p p, for 2 p and for a dict with p, then True for each; False for what a compiled
    p c gave under the switch.
    """
    p, one = switched_parameter(h), h.array(1.0)
    programs = [h.trace(way, lambda c: p * c) for way in WAYS if h.has(way)]

    def f() -> Any:
        asked = (p * p, {"p": p})
        inside = h.no_grad(lambda: [h.digit(value) for value in (*asked, 2.0 * p)])()
        made = h.no_grad(lambda: [program(one) for program in programs])()
        after = [h.digit(value) for value in (*made, *asked, 2.0 * p)]
        return sum(10.0**i * found for i, found in enumerate(reversed([*inside, *after]))) * p

    h.assert_equal(h.parameter_grad(f, p), 111.0, "the gradient, whose digits are the answers,")


@scenario(needs=("grad", "parameter", "no_grad"))
def parameter_of_no_gradient(h: Checked) -> None:
    """A switch under two gradients, neither in the parameter, leaves it untracked.

    Expect 5 p under the switch, where no gradient is one in p: 10 x y at 2, the gradient 10 x in y, and 10 in x.
    """
    p, y = h.parameter(2.0, trains=True), h.array(4.0)

    def slope(x: Any) -> Any:
        return x * adprotocol.grad(lambda y: y * h.no_grad(lambda: h.probe(p))(), backend=h.name)(y)

    h.assert_equal(h.grad(slope)(h.array(3.0)), 10.0, "the gradient")


@scenario("parameter-under-the-switch", transform="{way}", also_needs=(*NEEDS, "no_grad"), native="grad of {way}")
def parameter_under_the_switch_compiled(h: Checked, way: str) -> None:
    """A compiled function that runs under the switch asks about a parameter that is not tracked there.

    Expect a compiled 5 p c under the switch, a constant, times 7 p: at 2 the gradient 70, twice.
    """
    p, one = switched_parameter(h), h.array(1.0)
    traced = h.trace(way, lambda c: h.scale(p, 3.0, 5.0) * c)
    for _ in range(2):
        found = h.parameter_grad(lambda: h.no_grad(lambda: traced(one))() * h.scale(p, 7.0, 11.0), p)
        h.assert_equal(found, 70.0, "the gradient")


def _dropout(training: Any, x: Any) -> Any:
    """Return 3 x in training and 5 x outside of it."""
    return adprotocol.cond(training, lambda x: 3.0 * x, lambda x: 5.0 * x, x)


@scenario(
    rule="W1",
    transform=("grad", "jvp", "grad of jit", "jit of grad", "grad of checkpoint", "grad of vmap"),
    source="Flux: layers should regularise in a gradient context only: https://github.com/FluxML/Flux.jl/issues/643",
)
def training_first_layer(h: Checked, transforms: str) -> None:
    """Asked about the parameters, dropout works on data in a first layer, under {transforms}.

    The parameter w times the dropped-out data 4, plus 7 or 11 times 4 by a question about the data: 12 w + 44.
    """
    data = h.array(4.0)

    def model(w: Any) -> Any:
        training = h.query({"w": w})
        return w * _dropout(training, data) + h.scale(data, 7.0, 11.0)

    want = nesting.expected(transforms, lambda w: [12.0 * w + 44.0, 12.0])(2.0)[0]
    h.assert_equal(h.nest(transforms, model)(h.array(2.0)), want)
    # Outside of a derivative the same model evaluates.
    h.assert_equal(model(h.array(2.0)), 84.0, "the model alone")


@scenario(
    rule="W9",
    needs=("grad",),
    source="Flux: layers should regularise in a gradient context only: https://github.com/FluxML/Flux.jl/issues/643",
)
def training_behind_frozen_encoder(h: Checked) -> None:
    """Behind a frozen encoder no derivative flows through the activations, but the parameters answer True.

    Expect head times 3 times encoder times data: 3 * 5 * 2 * 4 = 120, with the gradient 24 for the head alone.
    """
    asked: list[Any] = []

    def loss(model: dict[str, Any], data: Any) -> Any:
        training = h.query(model)
        hidden = model["encoder"] * data
        asked.append(h.query(hidden))
        return model["head"] * _dropout(training, hidden)

    model = {"encoder": h.array(2.0), "head": h.array(5.0)}
    value, gradient = adprotocol.value_and_grad(loss, where="head", backend=h.name)(model, h.array(4.0))
    h.assert_equal(value, 120.0, "the value")
    h.assert_gradients(gradient, {"encoder": None, "head": 24.0})
    h.assert_untracked(asked[0], "the activations behind the encoder")
    h.assert_equal(loss(model, h.array(4.0)), 200.0, "the model alone")
