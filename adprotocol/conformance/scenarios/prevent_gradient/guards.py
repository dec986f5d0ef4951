"""`prevent_gradient`: what nobody differentiates passes, and what somebody does is an error with the message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import NonDifferentiable
from adprotocol.conformance.harness import HIGHER_ORDER, PROMOTION
from adprotocol.conformance.scenario import SHOULD, defaults
from adprotocol.conformance.scenarios.models import Pair
from adprotocol.conformance.scenarios.prevent_gradient.programs import MESSAGE, guarded
from adprotocol.conformance.scenarios.programs import behind_a_gradient
from adprotocol.conformance.scenarios.within_gradient.parameters import NEEDS
from adprotocol.errors import GradientPreventedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


_TENSORFLOW = "TensorFlow: an identity that refuses a gradient: "
_TENSORFLOW += "https://www.tensorflow.org/api_docs/python/tf/raw_ops/PreventGradient"

scenario: Decorator = defaults(
    "prevent_gradient",
    rule="N5",
    source="NNlib: is this being differentiated: https://github.com/FluxML/NNlib.jl/pull/434",
    transform="grad",
)


@scenario(transform="", source=_TENSORFLOW)
def value_is_the_same(h: Checked) -> None:
    """What nobody differentiates comes back as the identical object.

    Expect the identical object, or where an answer stays open the value: of floats, integers, bools and others.
    """
    for value in (1.5, 7, True, [1.5, -2.5], []):
        array = h.array(value)
        if isinstance(adprotocol.within_gradient(array), bool):
            h.assert_is(guarded(array), array, f"the array of {value}")
        h.assert_equal(guarded(array), value, f"the array of {value}, guarded")
    for other in (2.5, "text", None, guarded, [h.array(1), "text"]):
        h.assert_is(guarded(other), other, "what was given")


@scenario(transform="jit", source=_TENSORFLOW)
def value_under_jit(h: Checked) -> None:
    """In a traced program the value passes with all its bits.

    Expect 1 / x for x = -0, -infinity: the sign of zero is kept.
    """
    found = h.numpy(h.jit(lambda x: 1.0 / guarded(x))(h.array(-0.0)))
    h.check(bool(found < 0), f"1 / -0 is {found} behind the guard")


@scenario(needs=("grad", PROMOTION))
def integers_in_gradient(h: Checked) -> None:
    """Integers, texts and functions pass while something else is differentiated.

    Expect n x ** 2 for the integer n = 3, at 2: 12, gradient 12.
    """
    n = h.array(3)

    def f(x: Any) -> Any:
        guarded(["text", len, None, 3, x > 1.0])
        return guarded(n) * x * x

    h.assert_value_and_grad(f, [h.array(2.0)], 12.0, 12.0)


@scenario(source="JAX, static is not the same as not differentiable: https://github.com/jax-ml/jax/issues/2912")
def label_in_gradient(h: Checked) -> None:
    """A label passes, although it holds what is differentiated.

    Expect c x with c the label of x, at 3: 9, gradient 3.
    """
    h.assert_value_and_grad(lambda x: guarded(NonDifferentiable(x)) * x, [h.array(3.0)], 9.0, 3.0)
    h.assert_value_and_grad(lambda x: guarded({"c": NonDifferentiable(x)})["c"] * x, [h.array(3.0)], 9.0, 3.0)


@scenario(
    transform=("grad", "jvp", "grad of jit", "jvp of jit"),
    also_needs=("grad", HIGHER_ORDER),
    source="MLX, transformations inside of each other: https://ml-explore.github.io/mlx/build/html/usage/function_transforms.html",
)
def after_an_inner_gradient(h: Checked, transforms: str) -> None:
    """What a gradient inside has closed over raises behind it, under {transforms}.

    Expect y ** 2 with a guarded y = x ** 2, which a gradient inside has closed over, at 2: 16 plain and an error in a
    derivative; 16 where its constant is guarded.
    """
    outer, _, inner = transforms.partition(" of ")
    x = h.array(2.0)

    def behind(layer: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return behind_a_gradient(h, h.nest(inner, layer))

    f = behind(lambda y: guarded(y) * y)
    h.assert_equal(f(x), 16.0, "the plain call")
    # Where the system no longer tells, another error will do.
    with h.raises(Exception):
        h.nest(outer, f)(x)
    h.require_native(lambda: h.nest(outer, behind(lambda y: 4.0 * y))(x), 16.0)
    constant = behind(lambda y: guarded(adprotocol.non_differentiable(y)) * y)
    h.assert_equal(h.nest(outer, constant)(x), 16.0, "of a constant")


@scenario()
def container_in_gradient(h: Checked) -> None:
    """A container is walked, and the error names the path of the leaf.

    Expect an error with the message and the path 'rest.0.second'; without that leaf x, gradient 1.
    """
    c, x = h.array(4.0), h.array(2.0)

    def f(x: Any, leaf: Any) -> Any:
        guarded({"first": c, "rest": [Pair(c, leaf)], "label": NonDifferentiable(x)})
        return x

    h.assert_value_and_grad(lambda x: f(x, c), [x], 2.0, 1.0)
    with h.raises(GradientPreventedError, words=[MESSAGE, "rest.0.second"]):
        h.grad(lambda x: f(x, x))(x)


@scenario(transform="grad of jit")
def container_under_jit(h: Checked) -> None:
    """A container of traced leaves is rebuilt with guarded ones.

    Expect a b, in a container of both, at (2, 4): 8; an error with the message and the path 'b.0' in a gradient.
    """

    @h.jit  # type: ignore[untyped-decorator]
    def f(a: Any, b: Any) -> Any:
        tree = guarded({"a": adprotocol.non_differentiable(a), "b": (b, "text")})
        return a * tree["b"][0]

    h.assert_equal(f(h.array(2.0), h.array(4.0)), 8.0)
    h.assert_equal(h.grad(f)(h.array(2.0), h.array(4.0)), 4.0, "the gradient in a")
    with h.raises(GradientPreventedError, words=[MESSAGE, "b.0"]):
        h.grad(lambda b: f(h.array(2.0), b))(h.array(4.0))


@scenario(transform="grad of grad", source=_TENSORFLOW)
def outer_level(h: Checked) -> None:
    """A value that only the outer gradient differentiates raises in that alone.

    The gradient of x c in c, at (2, 4), is 2; its gradient in x is an error with the message.
    """
    c = h.array(4.0)

    def inner(x: Any) -> Any:
        return h.grad(lambda c: guarded(x) * c)(c)

    h.assert_equal(inner(h.array(2.0)), 2.0, "the inner gradient alone")
    with h.raises(GradientPreventedError, words=[MESSAGE]):
        h.grad(inner)(h.array(2.0))


@scenario(transform="grad of jit")
def compiled_once(h: Checked) -> None:
    """One compiled function runs plain, raises when it is differentiated, and runs plain again; in branches too.

    Expect 5 x plain, an error with the message in a gradient, and again.
    """

    def branch(x: Any) -> Any:
        return adprotocol.cond(x > 1.0, lambda x: 5.0 * guarded(x), lambda x: x, x)

    for f in (
        h.jit(lambda x: 5.0 * guarded(x)),
        h.jit(lambda x: adprotocol.cond(x < 1.0, lambda x: x, lambda x: 5.0 * guarded(x), x)),
        h.jit(lambda x: adprotocol.cond(x > 0.0, branch, lambda x: x, x)),
    ):
        for _ in range(2):
            h.assert_equal(f(h.array(2.0)), 10.0, "the plain call")
            with h.raises(GradientPreventedError, words=[MESSAGE]):
                h.grad(f)(h.array(2.0))


@scenario()
def after_error(h: Checked) -> None:
    """An error leaves nothing behind: the next gradient raises again, and what is not differentiated passes.

    Expect an error with the message in each of two gradients, x ** 2 at 2, 4, after each, and 4 for its gradient.
    """
    x = h.array(2.0)
    for _ in range(2):
        with h.raises(GradientPreventedError, words=[MESSAGE]):
            h.grad(lambda x: guarded(x) * x)(x)
        h.assert_equal(guarded(x) * x, 4.0, "the plain call")
        h.assert_value_and_grad(lambda x: x * x * guarded(h.array(1.0)), [x], 4.0, 4.0)


@scenario(
    transform="grad of vmap",
    source="JAX: axes that vmap maps: https://docs.jax.dev/en/latest/_autosummary/jax.vmap.html",
)
def rows_of_more_axes(h: Checked) -> None:
    """Under vmap a guarded value has the axes that it had.

    Expect x v times v with x v guarded, for rows x = (1, 2) and v = (1, 2, 3): ((1, 4, 9), (2, 8, 18)); an error with
    the message in a gradient.
    """
    rows, v = h.array([1.0, 2.0]), h.array([1.0, 2.0, 3.0])

    def run(rows: Any) -> Any:
        return h.vmap(lambda x: guarded(x * v) * v)(rows)

    h.assert_equal(run(rows), [[1.0, 4.0, 9.0], [2.0, 8.0, 18.0]])
    with h.raises(GradientPreventedError, words=[MESSAGE]):
        h.grad(lambda rows: run(rows)[1][2])(rows)


@scenario(transform=("grad", "jvp", "grad of jit", "grad of vmap"))
def made_constant_behind(h: Checked, transforms: str) -> None:
    """A guard whose value is made constant behind it raises too, under {transforms}.

    Expect x c with c a constant of a guarded x, at 2: an error with the message, though no derivative comes by it.
    """
    # A compiler that runs Python may show the error as one of its own, with the text.
    with h.raises(Exception, words=[MESSAGE]):
        h.nest(transforms, lambda x: adprotocol.non_differentiable(guarded(x)) * x)(h.array(2.0))


@scenario(transform="grad of custom rule", varies=True, source=_TENSORFLOW)
def inside_custom_rule(h: Checked) -> None:
    """A function with a derivative rule of its own is not differentiated inside.

    Expect x ** 2, doubled where x is tracked, with the derivative 7 of the rule, at 3: 9, gradient 7; the same where it
    is the function of another rule.
    """
    f = h.custom_rule(lambda x: guarded(x) * h.scale(x, 2.0, 1.0), lambda x: 7.0 + 0.0 * x)
    h.assert_value_and_grad(f, [h.array(3.0)], 9.0, 7.0)
    h.assert_value_and_grad(h.custom_rule(f, lambda x: 7.0 + 0.0 * x), [h.array(3.0)], 9.0, 7.0, "in another rule")


@scenario(transform="grad of no_grad", needs=("value_and_grad", "no_grad"), varies=True)
def as_the_question_says(h: Checked) -> None:
    """Under the system's own switch it passes if the answer is False, and raises if it is True.

    Expect an error exactly if within_gradient is True at that place.
    """
    seen: list[tuple[Any, bool]] = []

    def f(x: Any) -> Any:
        answer, raised = adprotocol.within_gradient(x), False
        try:
            guarded(x)
        except GradientPreventedError:
            raised = True
        seen.append((answer, raised))
        return 2.0 * x

    h.value_and_grad(lambda x: h.no_grad(f)(x) + x)(h.array(2.0))
    h.check(seen and all(answer is raised for answer, raised in seen), f"answers, and whether it raised: {seen}")


@scenario(level=SHOULD, transform=("grad", "grad of jit", "grad of vmap", "grad of jit of vmap"))
def in_branch_not_taken(h: Checked, transforms: str) -> None:
    """A guard in the branch that is taken where nobody differentiates passes under {transforms}.

    Guard the value in the branch that is taken where nobody differentiates.

    Expect 5 x, and 3 x with its gradient, at 2, and in rows at 2 and 4: the guard in the branch for evaluation passes,
    under a switch too.
    """

    def f(x: Any) -> Any:
        return adprotocol.cond(h.query(x), lambda x: 3.0 * x, lambda x: 5.0 * guarded(x), x)

    if h.has("no_grad") and transforms == "grad":
        h.grad(lambda x: h.no_grad(f)(x) + x)(h.array(2.0))
    made, rows = h.nest(transforms.partition(" of ")[2], f), 3.0 if "vmap" in transforms else 1.0
    h.assert_equal(made(h.array(2.0)), 10.0 * rows, "the plain call")
    h.assert_value_and_grad(made, [h.array(2.0)], 6.0 * rows, 3.0 * rows)


@scenario(
    transform="",
    needs=NEEDS,
    varies=True,
    source="TensorFlow: tapes watch trainable variables: https://www.tensorflow.org/guide/autodiff",
)
def parameter(h: Checked) -> None:
    """A guarded parameter may not be differentiated, and its constant may be computed with.

    Expect GradientPreventedError in the gradient of a guarded parameter; 3 where its constant is guarded.
    """
    p = h.parameter(3.0, trains=True)
    with h.raises(GradientPreventedError, words=["not this one"]):
        h.parameter_grad(lambda: adprotocol.prevent_gradient(p, "not this one") * p, p)
    h.assert_equal(
        h.parameter_grad(lambda: adprotocol.prevent_gradient(adprotocol.non_differentiable(p), "not this one") * p, p),
        3.0,
        "the gradient beside a guarded constant",
    )
