"""Variables, which the system tracks from when they are made, and its own backward pass, behind every hook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import Decorator, defaults, scenario
from adprotocol.conformance.scenarios.rules import hosted, noted, ruled, square

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked

NEEDS = ("variable", "backward")
_KEPT: list[Any] = []  # what a function finds in its module
_LEAVES = "PyTorch: leaves and their gradients: https://docs.pytorch.org/docs/stable/notes/autograd.html"
_SWITCH = "PyTorch: no_grad and leaves: https://docs.pytorch.org/docs/stable/generated/torch.no_grad.html"

within: Decorator = defaults("within_gradient", rule="W1", needs=NEEDS, source=_LEAVES)
gradients: Decorator = defaults("value_and_grad", rule="T9", needs=("grad", *NEEDS), source=_LEAVES)
branches: Decorator = defaults("cond", rule="C4", needs=NEEDS, source=_LEAVES)
rules: Decorator = defaults("custom_derivative", rule="D6", needs=NEEDS, source=_LEAVES)
hosts: Decorator = defaults("host_function", rule="H2", needs=NEEDS, source=_LEAVES)


def grad_of(v: Any) -> Any:
    """Return the gradient that a variable has got so far; a system may have None for zeros."""
    return 0.0 if v.grad is None else v.grad


@within()
def variable_in_training(h: Checked) -> None:
    """A variable is tracked before and behind each backward pass, which leaves a gradient in it.

    Expect 3 v v at 3 with the cotangent 1/2: 9 is added to its gradient in each of three passes.
    """
    v = h.variable(3.0)
    for step in (1.0, 2.0, 3.0):
        h.assert_equal(h.digit(v), 1.0, f"the answer for the variable in pass {step:g}")
        h.assert_equal(h.digit(adprotocol.non_differentiable(v)), 0.0, f"the answer for its constant in pass {step:g}")
        h.backward(h.probe(v) * v, h.array(0.5))
        h.assert_equal(v.grad, 9.0 * step, f"the gradient behind pass {step:g}")


def _in_a_gradient(h: Checked, v: Any) -> Any:
    of_other = adprotocol.grad(lambda x: x * v * v, backend=h.name)(h.array(2.0))
    return of_other, adprotocol.value_and_grad(lambda m: m["v"] * m["v"], backend=h.name)({"v": v})


def _with_a_rule(h: Checked, v: Any) -> Any:
    return ruled(h, square, lambda ct, _, x: (7.0 * ct * x,))(v)


# For each hook its rule, and calls about a variable.
_CALLS: dict[str, tuple[str, Callable[[Checked, Any], Any]]] = {
    "within_gradient": ("W7", lambda h, v: (h.query(v), h.query([v, 2.0 * v]), adprotocol.explain(v))),
    "non_differentiable": ("N1", lambda _, v: adprotocol.non_differentiable({"v": v, "w": [v, 2.0 * v]})),
    "trainable": ("T5", lambda _, v: (adprotocol.trainable([v]), adprotocol.combine(*adprotocol.partition({"v": v})))),
    "value_and_grad": ("T5", _in_a_gradient),
    "cond": ("C4", lambda _, v: adprotocol.cond(True, lambda v: v * v, lambda v: v, v)),
    "custom_derivative": ("D6", _with_a_rule),
}


def leaves_gradients(h: Checked, call: Callable[[Checked, Any], Any]) -> None:
    """A call about a variable, or what closes over it, leaves its own gradient as it was, none or a number.

    Expect at 3 the gradient 2 of an earlier pass and none behind the call; then v v with the cotangent 1/2 adds 3.
    """
    old, new = h.variable(3.0), h.variable(3.0)
    h.backward(2.0 * old, h.array(1.0))
    for _ in range(2):
        call(h, old)
        call(h, new)
        h.assert_equal(old.grad, 2.0, "the gradient of the earlier pass")
        h.assert_equal(grad_of(new), 0.0, "the gradient of a variable that nobody differentiated")
    for v, want in ((old, 5.0), (new, 3.0)):
        h.backward(v * v, h.array(0.5))
        h.assert_equal(v.grad, want, "the gradient behind the next pass")


for _hook, (_rule, _call) in _CALLS.items():
    _needs = ("grad", *NEEDS) if _hook == "value_and_grad" else NEEDS
    scenario(f"{_hook}/leaves-gradients", {"call": _call}, rule=_rule, needs=_needs, source=_LEAVES)(leaves_gradients)


@gradients()
def closes_over_variable(h: Checked) -> None:
    """Value and gradient of a call carry the derivatives by variables that the function closes over.

    Expect x x v at 2, 3: 12 and the gradient 12; twice the value with the cotangent 3 gives v 24, and the gradient with
    1/4, where the system has second derivatives, 1.
    """
    v = h.variable(3.0)
    run = adprotocol.value_and_grad(lambda x: x * x * v, backend=h.name)
    value, gradient = run(h.array(2.0))
    h.assert_equal(value, 12.0, "the value")
    h.assert_equal(gradient, 12.0, "the gradient")
    h.backward(2.0 * value, h.array(3.0))
    h.assert_equal(v.grad, 24.0, "the gradient of the variable behind that of the value")
    if h.has("grad of grad"):
        h.backward(run(h.array(2.0))[1], h.array(0.25))
        h.assert_equal(v.grad, 25.0, "the gradient of the variable behind that of the gradient")


@gradients()
def given_variable(h: Checked) -> None:
    """The value carries the derivative by a variable that is given, times the cotangent that arrives at the value.

    Expect of 3 x x beside 5 x at 2, with the cotangent 3: 72 behind twice the value, 15 more behind the output; and of
    x ** 2 at (1, 2), the value of a pull, (6, 12).
    """
    v, w = h.variable(2.0), h.variable([1.0, 2.0])
    run = adprotocol.value_and_grad(lambda x: (3.0 * x * x, 5.0 * x), has_aux=True, backend=h.name)
    (value, _), gradient = run(v)
    h.assert_equal(gradient, 12.0, "the gradient")
    h.backward(2.0 * value, h.array(3.0))
    h.assert_equal(v.grad, 72.0, "the gradient of the variable behind that of the value")
    h.backward(run(v)[0][1], h.array(3.0))  # a pass may clear the graph
    h.assert_equal(v.grad, 87.0, "the gradient of the variable behind that of the auxiliary output")
    squares, pull = adprotocol.vjp(lambda x: x * x, w, backend=h.name)
    h.assert_equal(pull(h.array([1.0, 10.0]))[0], [2.0, 40.0], "the pull")
    h.backward(squares, h.array([3.0, 3.0]))
    h.assert_equal(w.grad, [6.0, 12.0], "the gradient of the vector")


@gradients()
def aux_closes_over_variable(h: Checked) -> None:
    """The auxiliary output carries the derivative by a variable that the function closes over.

    Expect 7 v beside x x at 2, v = 5, with the cotangent 3: 21.
    """
    v = h.variable(5.0)
    run = adprotocol.value_and_grad(lambda x: (x * x, 7.0 * v), has_aux=True, backend=h.name)
    (_, aux), gradient = run(h.array(2.0))
    h.assert_equal(gradient, 4.0, "the gradient")
    h.backward(aux, h.array(3.0))
    h.assert_equal(v.grad, 21.0, "the gradient of the variable")


@gradients(rule="T8", source=_LEAVES)
def computed_at_two_places(h: Checked) -> None:
    """What was computed from a variable is a leaf at each place where it stands.

    Expect a b ** 2 with 2 v at both places, at v = 3 / 2: the partial derivatives 9 and 18.
    """
    v = h.variable(1.5)
    y = 2.0 * v
    gradient = adprotocol.grad(lambda m: m["a"] * m["b"] * m["b"], backend=h.name)({"a": y, "b": y})
    h.assert_gradients(gradient, {"a": 9.0, "b": 18.0})


@gradients(needs=("grad",))
def results_are_constants(h: Checked) -> None:
    """What a call returns that nobody else differentiates is untracked, also what is made of new arrays inside of it.

    Expect of x c at 2, with the array c = 3 made inside or closed over, the answer False for value, gradient and c.
    """
    outside = h.array(3.0)
    of_number = adprotocol.value_and_grad(lambda _: 3.0, backend=h.name)(h.array(2.0))
    for found, what in zip(of_number, ("the value", "the gradient"), strict=True):
        h.assert_untracked(adprotocol.within_gradient(found), f"{what} of a function that returns a number")
    for make in (lambda: h.array(3.0), lambda: outside):

        def f(x: Any, make: Any = make) -> Any:
            c = make()
            return x * c, {"c": c, "product": 2.0 * c, "of x": x * c}

        (value, aux), gradient = adprotocol.value_and_grad(f, has_aux=True, backend=h.name)(h.array(2.0))
        h.assert_equal(value, 6.0, "the value")
        h.assert_equal(gradient, 3.0, "the gradient")
        for what, found in {"the value": value, "the gradient": gradient, **aux}.items():
            h.assert_untracked(adprotocol.within_gradient(found), f"{what} of a call")


@gradients(needs=("grad", *NEEDS, "no_grad"), source=_SWITCH)
def variable_under_the_switch(h: Checked) -> None:
    """What a call under the system's switch returns is untracked behind it, also if it closes over a variable.

    Expect x x v at 2, 3 under the switch, behind a call that raises: 12 and the gradient 12, both untracked, as are the
    constant of the variable, which has no gradient, and what a host function makes of it.
    """
    v = h.variable(3.0)
    run = adprotocol.value_and_grad(lambda x: x * x * v, backend=h.name)
    kept = list[Any]()

    def call() -> Any:
        with h.raises(ZeroDivisionError, adprotocol.ADProtocolError):
            adprotocol.grad(h.fail, backend=h.name)(h.array(2.0))
        kept.extend((adprotocol.non_differentiable(v), hosted(h, lambda x: 2.0 * x)(v)))
        h.check("False" in adprotocol.explain(v), "explain does not say False")
        found = run(h.array(2.0))
        kept.extend(found)  # as the plugin gave them: the harness may make constants of what `call` returns
        return (*found, h.digit(v))

    found = h.no_grad(call)()
    for what, result, want in zip(
        ("value", "gradient", "answer under the switch"), found, (12.0, 12.0, 0.0), strict=True
    ):
        h.assert_equal(result, want, f"the {what}")
        h.assert_untracked(adprotocol.within_gradient(result), f"the {what}")
    h.assert_equal(h.digit(v), 1.0, "the answer for the variable behind the switch")
    h.assert_equal(
        h.digit(kept), 0.0, "the answer for its constant, for the host function's result, and for the call's"
    )
    h.assert_equal(grad_of(v), 0.0, "the gradient of the variable")


@rules()
def rule_of_a_variable(h: Checked) -> None:
    """The rule runs in the backward pass, once for each pass, with the cotangent of this; a closure is refused.

    Expect x y and the integer 4 at 3, 4 with the rule (7 ct x, 11 ct y): no run for the value, then one for a pass with
    the cotangent 1/2, which gives 10.5 and 22, and one for another; an error where the function closes over y.
    """
    v, w, runs = h.variable(3.0), h.variable(4.0), list[Any]()
    f = ruled(
        h,
        lambda x, y: (x * y, h.array(4)),
        lambda ct, _, x, y: noted(runs, "rule", (7.0 * ct[0] * x, 11.0 * ct[0] * y)),
    )
    for step in (1, 2):
        value, four = f(v, w)
        h.assert_equal(value, 12.0, "the value")
        h.assert_equal(four, 4.0, "the integer beside the value")
        h.check(len(runs) == step - 1, f"the rule ran {len(runs)} times before pass {step}")
        h.backward(value, h.array(0.5))
        h.assert_equal(v.grad, 10.5 * step, "the first gradient")
        h.assert_equal(w.grad, 22.0 * step, "the second gradient")
        h.check(len(runs) == step, f"the rule ran {len(runs)} times in {step} passes")
    _KEPT[:] = [w]
    for closing in (lambda x: x * w, lambda x: x * _KEPT[0]):
        with h.raises(adprotocol.errors.RuleError):
            ruled(h, closing, lambda ct, _, x: (ct,))(v)


@hosts()
def variable_on_the_host(h: Checked) -> None:
    """Each result of a host function without a rule is tracked as its argument is, and its pass alone raises.

    Expect of (x, 2 x) at 3: 3 and 6, both tracked, and an error in a pass from the second.
    """
    results = hosted(h, lambda x: (x, 2.0 * x))(h.variable(3.0))
    for result, want in zip(results, (3.0, 6.0), strict=True):
        h.assert_equal(result, want, "a result")
        h.assert_equal(h.digit(result), 1.0, f"the answer for the result {want:g}")
    with h.raises(adprotocol.errors.GradientPreventedError):
        h.backward(1.0 * results[1], h.array(1.0))


@rules(rule="D15")
def variable_behind_an_error_in_a_rule(h: Checked) -> None:
    """An error in a rule in the backward pass leaves nothing behind, for what the function closes over too.

    Expect behind ZeroDivisionError, as it was raised, in a pass and in a gradient, a variable without gradient that is
    tracked, and 9 from 3 v v at 3 with the cotangent 1/2.
    """
    v = h.variable(3.0)

    def broken(*_: Any) -> Any:
        msg = "raised in the rule"
        raise ZeroDivisionError(msg)

    with h.raises(ZeroDivisionError, words=["raised in the rule"]):
        h.backward(ruled(h, square, broken)(v), h.array(1.0))
    if h.has("grad"):
        with h.raises(ZeroDivisionError, words=["raised in the rule"]):
            adprotocol.grad(lambda x: v * ruled(h, square, broken)(x), backend=h.name)(h.array(2.0))
    h.assert_equal(h.digit(v), 1.0, "the answer behind the error")
    h.backward(h.probe(v) * v, h.array(0.5))
    h.assert_equal(v.grad, 9.0, "the gradient behind the error")


@branches()
def branch_of_variables(h: Checked) -> None:
    """The backward pass goes through the branch that was chosen, and through elements that were chosen.

    Expect of 3 v w, chosen for v > 0, at (3, 4) with the cotangent 1/2: 6 in v and 4.5 in the w that is closed over.
    """
    v, w = h.variable(3.0), h.variable(4.0)
    chosen = adprotocol.cond(v > 0.0, lambda v: 3.0 * v * w, lambda v: 1.0 / (v - 3.0), v)
    h.backward(chosen, h.array(0.5))
    h.assert_equal(v.grad, 6.0, "the gradient of the operand")
    h.assert_equal(w.grad, 4.5, "the gradient of the variable that is closed over")
