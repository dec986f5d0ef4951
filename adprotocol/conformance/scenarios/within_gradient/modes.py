"""The query where a system has modes: functions compiled once, recomputation, its switch, flags of parameters."""

from __future__ import annotations

import contextlib
from typing import Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance.checks import Absent, Checked
from adprotocol.conformance.harness import HIGHER_ORDER
from adprotocol.conformance.scenario import SHOULD, WAYS, Decorator, defaults
from adprotocol.conformance.scenarios.within_gradient.parameters import NEEDS
from adprotocol.messages import one_line

scenario: Decorator = defaults(
    "within_gradient",
    rule="W2",
    source="PyTorch: the switch counts: https://docs.pytorch.org/docs/stable/notes/autograd.html",
)


_FLAGS = "PyTorch: a compiled frame reused after flags changed: https://github.com/pytorch/pytorch/issues/139476"
_REUSED = (
    "PyTorch: compile can reuse an inference graph where autograd should run: "
    "https://github.com/pytorch/pytorch/issues/100977"
)
_CHECKPOINT = "PyTorch: checkpoint runs the function twice: https://docs.pytorch.org/docs/stable/checkpoint.html"
_NO_GRAD_AROUND = (
    "functorch: a grad begun inside no_grad is not concerned by it: https://github.com/pytorch/functorch/pull/179"
)


@scenario(
    "compiled-once-{name}",
    rule="W6",
    source=_REUSED,
    params={
        name.replace(" ", "-"): {"transforms": name, "transform": f"grad of {name}"}
        for name in ("jit", "compile", "jit of vmap", "jit of checkpoint")
    },
)
def compiled_once(h: Checked, transforms: str) -> None:
    """One function under {transforms} answers correctly each time it is called, plain and differentiated in turn.

    Expect k x x with k = 3 in a gradient and 5 else, plain, differentiated, plain, differentiated, plain.
    """
    table = nesting.expected(transforms, lambda x: [x**2, 2 * x])
    made = h.nest(transforms, lambda x: h.probe(x) * x)
    for x in (3.0, 4.0):
        value, gradient = table(x)
        h.assert_equal(made(h.array(x)), 5.0 * value, f"plain at {x}")
        h.assert_value_and_grad(made, [h.array(x)], 3.0 * value, 3.0 * gradient, f"differentiated at {x}")
    h.assert_equal(made(h.array(3.0)), 5.0 * table(3.0)[0], "plain at the end")


@scenario(
    "compiled-under-gradient-first-{name}",
    rule="W6",
    source=_FLAGS,
    params={
        name.replace(" ", "-"): {"transforms": name, "transform": f"grad of {name}"}
        for name in ("jit", "compile", "jit of jit")
    },
)
def gradient_first(h: Checked, transforms: str) -> None:
    """One function under {transforms} that is first called in a gradient answers correctly each time.

    Expect k x x with k = 3 in a gradient and 5 else.
    """
    made = h.nest(transforms, lambda x: h.probe(x) * x)
    table, point = nesting.expected(transforms, lambda x: [x**2, 2 * x]), 3.0
    x, (value, gradient) = h.array(point), table(point)
    h.assert_value_and_grad(made, [x], 3.0 * value, 3.0 * gradient, "differentiated first")
    h.assert_equal(made(x), 5.0 * value, "plain afterwards")
    h.assert_value_and_grad(made, [x], 3.0 * value, 3.0 * gradient, "differentiated again")


@scenario(
    rule="W6",
    transform="grad of jit",
    source="JAX: a jitted function that captures a tracer: https://github.com/jax-ml/jax/issues/1945",
)
def jit_closes_over_tracked(h: Checked) -> None:
    """A jitted function closes over a tracked value, is called twice, then again outside the gradient.

    The closed-over x = 2 is tracked and the arguments 1 and 4 are not: 3 x times 11 a adds up to 330, with the gradient
    165; plain, 5 x times 11 a is 550.
    """
    a, b = h.array(1.0), h.array(4.0)

    def f(x: Any) -> Any:
        inner = h.jit(lambda a: h.probe(x) * h.scale(a, 7.0, 11.0))
        return inner(a) + inner(b)

    for _ in range(2):
        h.assert_value_and_grad(f, [h.array(2.0)], 330.0, 165.0)
        h.assert_equal(f(h.array(2.0)), 550.0, "the plain call afterwards")


@scenario(rule="W6", transform="grad of jit", source=_FLAGS)
def shape_compiled_anew(h: Checked) -> None:
    """A function traced again for another shape does not reuse the answer of the earlier trace.

    Expect 5 x plain and 3 x differentiated, for a scalar and for arrays of two lengths.
    """
    made = h.jit(h.probe)
    for value in (2.0, [2.0, 1.0], [2.0, 1.0, 4.0]):
        x = h.array(value)
        first: Any = (lambda y: y[0]) if isinstance(value, list) else (lambda y: y)
        h.assert_equal(first(h.grad(lambda x, first=first: first(made(x)))(x)), 3.0, f"the gradient at {value}")
        h.assert_equal(first(made(x)), 10.0, f"the plain call at {value}")


@scenario(
    level=SHOULD,
    transform="grad of custom rule",
    source="PyTorch: the forward of a Function tracks nothing: https://github.com/pytorch/pytorch/issues/55438",
    rule="W1",
)
def inside_a_rule_of_a_rule(h: Checked) -> None:
    """A gradient in a function with a rule does not track what a second rule inside of it has for its own.

    Expect the gradient of 5 z z with a rule 7 for 5 z, so 5 z + 7 z, in a function with the rule 9, at 2: 24 plain and
    the gradient 9.
    """
    x = h.array(2.0)

    def ruled(fun: Any) -> Any:
        inner = h.custom_rule(fun, lambda z: 7.0 + 0.0 * z)
        return h.custom_rule(h.grad(lambda z: inner(z) * z), lambda x: 9.0 + 0.0 * x)

    h.require_native(lambda: ruled(lambda z: 5.0 * z)(x), 24.0)
    f = ruled(h.probe)
    h.assert_equal(f(x), 24.0, "the plain call")
    # f(x) x has the derivative f(x) + 9 x.
    h.require_native(lambda: h.grad(lambda x: ruled(lambda z: 5.0 * z)(x) * x)(x), 42.0)
    h.assert_equal(h.grad(lambda x: f(x) * x)(x), 42.0, "the derivative of f(x) x")


@scenario(rule="W6", transform="grad of {way}", source=_FLAGS)
def result_of_a_branch(h: Checked, way: str) -> None:
    """What comes out of a staged branch is tracked if either branch carries a derivative.

    Expect 3 y for y = 2 x from one branch and a constant from the other, whichever is first: the gradient 6.
    """
    x, p, c = h.array(2.0), h.array(1.0), h.array(5.0)
    for what, swapped in (("the first", False), ("the second", True)):

        def f(x: Any, p: Any, swapped: bool = swapped) -> Any:
            branches = (lambda x: 2.0 * x), (lambda x: c)
            taken = p < 0.0 if swapped else p > 0.0
            return h.probe(adprotocol.cond(taken, *(branches[::-1] if swapped else branches), x))

        h.assert_equal(h.grad(h.trace(way, f))(x, p), 6.0, f"the gradient by {what}")


@scenario(transform="grad of checkpoint", varies=True, source=_CHECKPOINT, rule="W1")
def checkpoint_answers_alike(h: Checked) -> None:
    """The recomputation answers like the first pass, so value and gradient belong to one branch.

    Expect one and the same answer in each pass, or one left open; 3 x ** 2 and its gradient, at 3: 27, 18.
    """
    answers: list[Any] = []
    h.require_native(lambda: h.grad(h.checkpoint(lambda x: x * x))(h.array(3.0)), 6.0)

    def f(x: Any) -> Any:
        answers.append(h.query(x))
        return h.probe(x) * x

    h.assert_value_and_grad(h.checkpoint(f), [h.array(3.0)], 27.0, 18.0)
    known = {answer for answer in answers if isinstance(answer, bool)}
    h.check(known != {False, True}, f"the answers in the passes of one checkpoint are {answers}")
    h.check(known != {False}, f"the answers in a gradient are {answers}")


@scenario(transform="grad of checkpoint", source=_CHECKPOINT, rule="W1")
def checkpoint_closes_over_tracked(h: Checked) -> None:
    """In a checkpointed function a tracked closed-over value is tracked, a constant argument is not.

    Expect 3 x times 11 c at 2, 4: 264, gradient 132; then 5 x times 11 c: 440.
    """
    c = h.array(4.0)

    def f(x: Any) -> Any:
        return h.checkpoint(lambda c: h.probe(x) * h.scale(c, 7.0, 11.0))(c)

    h.assert_value_and_grad(f, [h.array(2.0)], 264.0, 132.0)
    h.assert_equal(f(h.array(2.0)), 440.0, "the plain call afterwards")


def _is_consistent(h: Checked, value: Any, slope: Any) -> None:
    # With x added: 5 x, which has no derivative here, or 3 x with its derivative.
    found = (round(float(h.numpy(value)), 3), round(float(h.numpy(slope)), 3))
    h.check(found in {(12.0, 1.0), (8.0, 4.0)}, f"value and derivative are {found}; (12, 1) or (8, 4) was expected")


@scenario(
    transform="grad of no_grad",
    needs=("value_and_grad", "no_grad"),
    varies=True,
    source="PyTorch: gradients are enabled or disabled locally: "
    "https://docs.pytorch.org/docs/stable/generated/torch.no_grad.html",
)
def no_grad_in_reverse_mode(h: Checked) -> None:
    """Under the system's own switch the answer matches whether a derivative results.

    Expect 5 x with no derivative, or 3 x with its derivative; x is added.
    """
    _is_consistent(h, *h.value_and_grad(lambda x: h.no_grad(h.probe)(x) + x)(h.array(2.0)))


@scenario(
    transform="jvp of no_grad",
    varies=True,
    source="PyTorch: no_grad has no effect in forward mode: https://github.com/pytorch/pytorch/issues/78961",
)
def no_grad_in_forward_mode(h: Checked) -> None:
    """A switch that forward mode ignores does not make the answer False.

    Expect 5 x with no derivative, or 3 x with its derivative; x is added.
    """
    _is_consistent(h, *h.jvp(lambda x: h.no_grad(h.probe)(x) + x, h.array(2.0), h.array(1.0)))


@scenario(
    transform="grad",
    needs=("grad", "no_grad"),
    source="PyTorch: a generator paused inside no_grad keeps it switched on: "
    "https://github.com/pytorch/pytorch/pull/49017",
)
def after_no_grad(h: Checked) -> None:
    """Once the switch is off again, also after an error, the answer is True as before.

    Expect 3 x after the switch was on, after an error under it, and after it was on twice.
    """

    def f(x: Any) -> Any:
        h.no_grad(h.probe)(x)
        once = h.probe(x)
        with h.raises(ZeroDivisionError):
            h.no_grad(h.fail)(x)
        h.no_grad(h.no_grad(h.probe))(x)
        return once + h.probe(x)

    h.assert_value_and_grad(f, [h.array(2.0)], 12.0, 6.0)


@scenario(level=SHOULD, transform="no_grad of grad", source=_NO_GRAD_AROUND)
def no_grad_around_gradient(h: Checked) -> None:
    """A switch around a gradient that the system computes anyway does not make the answer False.

    Expect 3, as 4 comes out for x ** 2; not applicable where a gradient under the switch is none.
    """
    x = h.array(2.0)
    h.require_native(lambda: h.no_grad(h.grad(lambda x: x * x))(x), 4.0)
    h.assert_equal(h.no_grad(h.grad(h.probe))(x), 3.0)


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
        h.absent_if(same is not parameter, "its parameters are not updated in place by operators")

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


@scenario(needs=("grad", "parameter", "no_grad", HIGHER_ORDER))
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
