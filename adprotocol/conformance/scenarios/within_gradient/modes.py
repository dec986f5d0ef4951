"""The query where a system has modes: functions compiled once, recomputation, switches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance.scenario import SHOULD, defaults

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


_FLAGS = "PyTorch: a compiled frame reused after flags changed: https://github.com/pytorch/pytorch/issues/139476"
_REUSED = (
    "PyTorch: compile can reuse an inference graph where autograd should run: "
    "https://github.com/pytorch/pytorch/issues/100977"
)
_CHECKPOINT = "PyTorch: checkpoint runs the function twice: https://docs.pytorch.org/docs/stable/checkpoint.html"
_NO_GRAD_AROUND = (
    "functorch: a grad begun inside no_grad is not concerned by it: https://github.com/pytorch/functorch/pull/179"
)

scenario: Decorator = defaults("within_gradient", rule="W1")


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

        def f(x: Any, p: Any, swapped: bool = swapped) -> Any:  # noqa: FBT001
            branches = (lambda x: 2.0 * x), (lambda x: c)  # noqa: ARG005
            taken = p < 0.0 if swapped else p > 0.0
            return h.probe(adprotocol.cond(taken, *(branches[::-1] if swapped else branches), x))

        h.assert_equal(h.grad(h.trace(way, f))(x, p), 6.0, f"the gradient by {what}")


@scenario(transform="grad of checkpoint", varies=True, source=_CHECKPOINT)
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


@scenario(transform="grad of checkpoint", source=_CHECKPOINT)
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
    rule="W2",
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
    rule="W2",
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
    rule="W2",
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


@scenario(level=SHOULD, rule="W2", transform="no_grad of grad", source=_NO_GRAD_AROUND)
def no_grad_around_gradient(h: Checked) -> None:
    """A switch around a gradient that the system computes anyway does not make the answer False.

    Expect 3, as 4 comes out for x ** 2; not applicable where a gradient under the switch is none.
    """
    x = h.array(2.0)
    h.require_native(lambda: h.no_grad(h.grad(lambda x: x * x))(x), 4.0)
    h.assert_equal(h.no_grad(h.grad(h.probe))(x), 3.0)
