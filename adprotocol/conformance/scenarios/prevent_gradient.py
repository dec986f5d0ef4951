"""`prevent_gradient`: what nobody differentiates passes, and what somebody does is an error with the message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import NonDifferentiable
from adprotocol.conformance import nesting
from adprotocol.conformance.harness import HIGHER_ORDER, PROMOTION
from adprotocol.conformance.scenario import MAY, SHOULD, Decorator, defaults
from adprotocol.conformance.scenarios.grid import PAIRS, SINGLE, X, compare, grid
from adprotocol.conformance.scenarios.models import Pair
from adprotocol.conformance.scenarios.non_differentiable.levels import with_constant
from adprotocol.conformance.scenarios.programs import behind_a_gradient, in_both_orders
from adprotocol.conformance.scenarios.within_gradient.parameters import NEEDS
from adprotocol.errors import GradientPreventedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked


scenario: Decorator = defaults(
    "prevent_gradient",
    rule="N5",
    source="NNlib: is this being differentiated: https://github.com/FluxML/NNlib.jl/pull/434",
    transform="grad of {way}",
)


_TENSORFLOW = "TensorFlow: an identity that refuses a gradient: "
_TENSORFLOW += "https://www.tensorflow.org/api_docs/python/tf/raw_ops/PreventGradient"
_CHECKS = "JAX: checks inside of transformed functions, and which of them failed: https://docs.jax.dev/en/latest/debugging/checkify_guide.html"
_CALLED = "TensorFlow: a function calls another: https://www.tensorflow.org/guide/function"
_NESTED = "jax-mps, wrong gradients of a nested cond: https://github.com/tillahoffmann/jax-mps/issues/195"


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


@scenario(needs=("grad", PROMOTION), transform="grad")
def integers_in_gradient(h: Checked) -> None:
    """Integers, texts and functions pass while something else is differentiated.

    Expect n x ** 2 for the integer n = 3, at 2: 12, gradient 12.
    """
    n = h.array(3)

    def f(x: Any) -> Any:
        guarded(["text", len, None, 3, x > 1.0])
        return guarded(n) * x * x

    h.assert_value_and_grad(f, [h.array(2.0)], 12.0, 12.0)


@scenario(
    source="JAX, static is not the same as not differentiable: https://github.com/jax-ml/jax/issues/2912",
    transform="grad",
)
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


@scenario(transform="grad")
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


@scenario(transform="grad")
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


MESSAGE = "nobody may differentiate this"


def guarded(value: Any) -> Any:
    """Return a value that nobody may differentiate."""
    return adprotocol.prevent_gradient(value, MESSAGE)


@grid("prevent_gradient/", (*SINGLE, *PAIRS), rule="N5")
def prevented(h: Checked, transforms: str) -> None:
    """`prevent_gradient` passes what nobody differentiates, and nothing else, under {transforms}.

    Without a derivative expect x ** 3 at 2.5. With one expect {transforms} of c x x for a guarded constant c of x, and
    an error with the message for a guarded x.
    """
    if not nesting.differentiates(transforms):
        compare(h, transforms, lambda x: guarded(x) * x * x, with_constant)
        return
    compare(h, transforms, lambda x: guarded(adprotocol.non_differentiable(x)) * x * x, with_constant)
    # A compiler that runs Python may show an error that is raised meanwhile as one of its own, with the text.
    traced = {"jit", "compile"} & {*nesting.parse(transforms)}
    expected = (Exception,) if traced else (GradientPreventedError,)
    with h.raises(*expected, words=[MESSAGE]):
        h.nest(transforms, lambda x: guarded(x) * x * x)(h.array(X))


@scenario(source=_CHECKS)
def two_messages(h: Checked, way: str) -> None:
    """Of two guards in a compiled function the one raises whose value is differentiated, with its own message.

    Expect x c of guarded x and c compiled, at 2, 3: 6 plain; in each gradient an error with the message of that one.
    """
    x, c = h.array(2.0), h.array(3.0)

    def product(x: Any, c: Any) -> Any:
        return adprotocol.prevent_gradient(x, "not the first") * adprotocol.prevent_gradient(c, "not the second")

    traced = h.trace(way, product)
    for _ in range(2):
        h.assert_equal(traced(x, c), 6.0, "the plain call")
        # A compiler that runs Python may show the error as one of its own, with the text.
        with h.raises(Exception, words=["not the second"]):
            h.grad(lambda c: traced(x, c))(c)
        with h.raises(Exception, words=["not the first"]):
            h.grad(lambda x: traced(x, c))(x)


@scenario(source=_CHECKS)
def in_the_other_branch(h: Checked, way: str) -> None:
    """A guard in the branch for what is not differentiated raises where something else is.

    Expect 7 c where c is differentiated, else 3 x c with x guarded, at 2, 3: 18 plain; an error in the gradient in x,
    and 21 with the gradient 7 in that in c.
    """
    x, c = h.array(2.0), h.array(3.0)

    def guarded(x: Any, c: Any) -> Any:
        return 3.0 * adprotocol.prevent_gradient(x, "not this one") * c

    traced = h.trace(way, lambda x, c: adprotocol.cond(h.query(c), lambda _, c: 7.0 * c, guarded, x, c))
    for _ in range(2):
        h.assert_equal(traced(x, c), 18.0, "the plain call")
        h.assert_value_and_grad(lambda c: traced(x, c), (c,), 21.0, 7.0, "in what decides")
        with h.raises(Exception, words=["not this one"]):
            h.grad(lambda x: traced(x, c))(x)


@scenario(source=_CHECKS)
def after_an_error_in_a_branch(h: Checked, way: str) -> None:
    """An exception in a branch that is being traced leaves nothing behind that disarms a guard.

    Expect the error of a branch; then of x ** 2 with x guarded, at 2: 4 plain, and an error in the gradient.
    """
    x = h.array(2.0)

    def fails(_: Any) -> Any:
        msg = "the branch fails"
        raise ValueError(msg)

    for t, f in ((fails, lambda x: 1.0 * x), (lambda x: 1.0 * x, fails)):
        failing = h.trace(way, lambda x, t=t, f=f: adprotocol.cond(h.query(x), t, f, x))
        with h.raises(Exception):
            # Compiled for what is asked, only the branch taken is there to fail.
            h.grad(failing)(x)
            failing(x)
        traced = h.trace(way, lambda x: adprotocol.prevent_gradient(x, "not this one") * x)
        for _ in range(2):
            h.assert_equal(traced(x), 4.0, "the plain call")
            with h.raises(Exception, words=["not this one"]):
                h.grad(traced)(x)


@scenario(native="grad of {way} of {way}", source=_CALLED)
def in_a_called_function(h: Checked, way: str) -> None:
    """A guard in a compiled function that another one calls raises as it does by itself.

    Expect x ** 3 with x guarded in a compiled function that another one calls: 8 plain; an error with the message in a
    gradient, and again; 4 where its constant is given.
    """
    x = h.array(2.0)
    inner = h.trace(way, lambda x: adprotocol.prevent_gradient(x, "not this one") * x)
    outer = h.trace(way, lambda x: inner(x) * x)
    of_constant = h.trace(way, lambda x: inner(adprotocol.non_differentiable(x)) * x)
    for _ in range(2):
        h.assert_equal(outer(x), 8.0, "the plain call")
        # A compiler that runs Python may show the error as one of its own, with the text.
        with h.raises(Exception, words=["not this one"]):
            h.grad(outer)(x)
        h.assert_value_and_grad(of_constant, (x,), 8.0, 4.0, "of a constant")


def _calling(h: Checked, way: str) -> tuple[Any, Any]:
    """Return x ** 2 with x guarded, and what has it times c in a branch where c is differentiated, else 5 x c."""
    inner = h.trace(way, lambda x: adprotocol.prevent_gradient(x, "not this one") * x)

    def outer(x: Any, c: Any) -> Any:
        return adprotocol.cond(h.query(c), lambda x, c: inner(x) * c, lambda x, c: 5.0 * x * c, x, c)

    return inner, h.trace(way, outer)


@scenario(native="grad of {way} of {way}", source=_CALLED)
def in_a_call_in_a_branch(h: Checked, way: str) -> None:
    """A guard in a function that a branch calls raises there and by itself, whichever call traced it.

    Expect x ** 2 with x guarded, in a compiled function that a branch of another calls where c is differentiated: 30
    plain at 2, 3; the gradient 4 in c; an error in x and c, and of the function by itself.
    """
    x, c, one = h.array(2.0), h.array(3.0), h.array(1.0)

    def in_the_branch(made: tuple[Any, Any]) -> None:
        _, outer = made
        h.assert_equal(outer(x, c), 30.0, "the plain call")
        h.assert_value_and_grad(lambda c: outer(x, c), (c,), 12.0, 4.0, "in what decides")
        # A compiler that runs Python may show the error as one of its own, with the text.
        with h.raises(Exception, words=["not this one"]):
            h.grad(lambda t: outer(t * x, t * c))(one)

    def by_itself(made: tuple[Any, Any]) -> None:
        inner, _ = made
        h.assert_equal(inner(x), 4.0, "the plain call of the function by itself")
        with h.raises(Exception, words=["not this one"]):
            h.grad(inner)(x)

    in_both_orders(lambda: _calling(h, way), in_the_branch, by_itself)


@scenario(level=MAY, native="grad of {way} of {way}", source=_CALLED)
def in_a_call_in_a_branch_not_taken(h: Checked, way: str) -> None:
    """A guard in a function that a branch calls passes where the branch is not taken.

    Expect 5 x c at 2, 3, with the gradient 15 in x, where a guard of x is in a function that the other branch calls.
    """
    x, c = h.array(2.0), h.array(3.0)
    inner, outer = _calling(h, way)
    h.assert_equal(inner(x), 4.0, "the plain call of the function by itself")
    for _ in range(2):
        h.assert_value_and_grad(lambda x: outer(x, c), (x,), 30.0, 15.0)


def _nested(h: Checked, way: str) -> Any:
    """Return x c with x guarded where both are differentiated, 3 x c where c is, else 5 x c."""

    def inner(x: Any, c: Any) -> Any:
        def guarded(x: Any, c: Any) -> Any:
            return adprotocol.prevent_gradient(x, "not this one") * c

        return adprotocol.cond(h.query(x), guarded, lambda x, c: 3.0 * x * c, x, c)

    return h.trace(way, lambda x, c: adprotocol.cond(h.query(c), inner, lambda x, c: 5.0 * x * c, x, c))


@scenario(source=_NESTED)
def in_nested_branches(h: Checked, way: str) -> None:
    """A guard in a branch of a branch raises where both are taken.

    The guard stands where both x and c are differentiated: an error in a gradient in both, and 5 x c = 30 at 2, 3
    plain.
    """
    x, c, one = h.array(2.0), h.array(3.0), h.array(1.0)

    def plain(traced: Any) -> None:
        h.assert_equal(traced(x, c), 30.0, "the plain call")

    def differentiated(traced: Any) -> None:
        # A compiler that runs Python may show the error as one of its own, with the text.
        with h.raises(Exception, words=["not this one"]):
            h.grad(lambda t: traced(t * x, t * c))(one)

    in_both_orders(lambda: _nested(h, way), plain, differentiated)


@scenario(level=SHOULD, source=_NESTED)
def in_nested_branches_not_taken(h: Checked, way: str) -> None:
    """A guard in a branch of a branch passes where the outer one is not taken.

    The guard stands where neither x nor c is differentiated, so it never raises: 30 plain at 2, 3; 18 with the gradient
    9 in x; 42 with the gradient 14 in c.
    """
    x, c = h.array(2.0), h.array(3.0)

    def inner(x: Any, c: Any) -> Any:
        def guarded(x: Any, c: Any) -> Any:
            return 5.0 * adprotocol.prevent_gradient(x, "not this one") * c

        return adprotocol.cond(h.query(c), lambda x, c: 7.0 * x * c, guarded, x, c)

    traced = h.trace(way, lambda x, c: adprotocol.cond(h.query(x), lambda x, c: 3.0 * x * c, inner, x, c))
    for _ in range(2):
        h.assert_equal(traced(x, c), 30.0, "the plain call")
        h.assert_value_and_grad(lambda x: traced(x, c), (x,), 18.0, 9.0, "in the guarded one")
        h.assert_value_and_grad(lambda c: traced(x, c), (c,), 42.0, 14.0, "in the other")
