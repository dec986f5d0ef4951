"""Constants under every transformation, and at all levels of nested derivatives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.harness import HIGHER_ORDER
from adprotocol.conformance.scenario import defaults
from adprotocol.conformance.scenarios.grid import DERIVATIVE_PAIRS, LOOPS, SINGLE, compare, grid
from adprotocol.conformance.scenarios.programs import behind_a_gradient, in_threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator

_PERTURBATION = "J. M. Siskind, B. A. Pearlmutter: Perturbation confusion and referential transparency, IFL 2005"

scenario: Decorator = defaults("non_differentiable", rule="N1", transform="grad of grad", source=_PERTURBATION)


def with_constant(x: float) -> list[float]:
    """Return the derivatives of c x x where c is x."""
    return [x**3, 2 * x**2, 2 * x, 0.0, 0.0]


def _estimated(x: float) -> list[float]:
    """Return the value of x ** 3 with the derivatives of x."""
    return [x**3, 1.0, 0.0, 0.0, 0.0]


@grid(
    "non_differentiable/",
    (*SINGLE, *DERIVATIVE_PAIRS, *LOOPS),
    rule="N1",
)
def constant(h: Checked, transforms: str) -> None:
    """A constant stays one under {transforms}.

    Expect {transforms} of c x x at 2.5, with c the constant of x.
    """
    compare(h, transforms, lambda x: adprotocol.non_differentiable(x) * x * x, with_constant)


@grid(
    "non_differentiable/straight-through-",
    ("grad", "jvp", "grad of jit", "jit of grad", "grad of vmap", "vmap of grad", "grad of grad", "compile of grad"),
    rule="N1",
)
def straight_through(h: Checked, transforms: str) -> None:
    """The straight-through estimator has the derivative of its input under {transforms}.

    Expect {transforms} of x + constant(x ** 3 - x) at 2.5, which has the value x ** 3 and the derivative of x.
    """
    compare(h, transforms, lambda x: x + adprotocol.non_differentiable(x * x * x - x), _estimated)


_LEVELS = (
    "JAX: nested gradients are all stopped: https://docs.jax.dev/en/latest/_autosummary/jax.lax.stop_gradient.html"
)
_VMAP = "PyTorch, vmap hides what is tracked: https://github.com/pytorch/pytorch/issues/158610"


@scenario()
def outer_variable_inside_inner_grad(h: Checked) -> None:
    """Inside a gradient in y, a constant of x is constant for the gradient in x around it.

    The gradient in y of constant(x) * y ** 2 * x at x = 2, y = 3 is 24, and its derivative in x is 6 * constant(x) =
    12.
    """

    def inner(x: Any) -> Any:
        return h.grad(lambda y: adprotocol.non_differentiable(x) * y * y * x)(h.array(3.0))

    h.assert_value_and_grad(inner, (h.array(2.0),), 24.0, 12.0)


@scenario(needs=("grad",), source=_LEVELS)
def every_level_is_stopped(h: Checked) -> None:
    """A constant of a value that two gradients track is constant for both.

    The gradient in y of constant(x * y) * y at x = 2, y = 3 is 6, a constant for x too: its derivative is 0.
    """

    def inner(x: Any) -> Any:
        return h.grad(lambda y: adprotocol.non_differentiable(x * y) * y)(h.array(3.0))

    h.assert_value_and_grad(inner, (h.array(2.0),), 6.0, 0.0)


@scenario(source=_LEVELS)
def other_variables_go_on(h: Checked) -> None:
    """Stopping the inner variable does not stop the outer one.

    The gradient in y of x * constant(y) * y at x = 2, y = 3 is 6, and its derivative in x is 3.
    """

    def inner(x: Any) -> Any:
        return h.grad(lambda y: x * adprotocol.non_differentiable(y) * y)(h.array(3.0))

    h.assert_value_and_grad(inner, (h.array(2.0),), 6.0, 3.0)


@scenario(transform="jvp of jvp")
def forward_mode_of_outer_variable(h: Checked) -> None:
    """Inside a forward derivative in y, a constant of x has no tangent of x.

    The tangent in y of constant(x) * x * y ** 2 at x = 2, y = 3 is 24, and its tangent in x is 6 * constant(x) = 12.
    """
    one = h.array(1.0)

    def inner(x: Any) -> Any:
        return h.jvp(lambda y: adprotocol.non_differentiable(x) * x * y * y, h.array(3.0), one)[1]

    h.assert_value_and_tangent(inner, h.array(2.0), one, 24.0, 12.0)


@scenario(
    transform="jvp of grad",
    source="PyTorch: detach, unlike no_grad, stops forward mode: https://github.com/pytorch/pytorch/issues/72202",
)
def forward_over_reverse(h: Checked) -> None:
    """A constant inside a gradient has no tangent of the forward mode around it.

    The gradient in y of constant(x * y) * y * x at x = 2, y = 3 is 6 * x = 12, and its tangent in x is 6.
    """

    def inner(x: Any) -> Any:
        return h.grad(lambda y: adprotocol.non_differentiable(x * y) * y * x)(h.array(3.0))

    h.assert_value_and_tangent(inner, h.array(2.0), h.array(1.0), 12.0, 6.0)


@scenario(transform="grad of vmap", source=_VMAP)
def one_of_two_batched(h: Checked) -> None:
    """Of two batched arguments that share a variable only one is stopped.

    Expect constant(a) b over rows a = b = v, summed: the gradient is v, not 2 v.
    """

    def f(v: Any) -> Any:
        return h.sum_of_rows(lambda a, b: adprotocol.non_differentiable(a) * b, v, v)

    h.assert_value_and_grad(f, (h.array([2.0, 3.0]),), 13.0, [2.0, 3.0])


@scenario(transform="grad of vmap", source=_VMAP)
def unbatched_inside_vmap(h: Checked) -> None:
    """A variable that the rows close over is stopped inside vmap, and differentiated beside it.

    Expect rows of constant(x) * x * w for w = 1 and 2: their sum is 12 at x = 2, with the gradient 3 * constant(x) = 6.
    """

    def f(x: Any) -> Any:
        return h.sum_of_rows(lambda w: adprotocol.non_differentiable(x) * x * w, h.array([1.0, 2.0]))

    h.assert_value_and_grad(f, (h.array(2.0),), 12.0, 6.0)


@scenario(rule="N3", transform="grad of vmap", source=_VMAP)
def decorated_under_vmap(h: Checked) -> None:
    """A decorated function treats rows of a batch, and values tracked by an outer gradient, as constants.

    Expect rows s(a, x) * a where s is a * x, decorated, for a = x and 4 x: their sum, 17 x ** 3, is 459 at 3, and its
    gradient 17 x ** 2 = 153, since s is constant.
    """

    @adprotocol.non_differentiable
    def s(a: Any, x: Any) -> Any:
        return a * x

    def f(x: Any) -> Any:
        return h.sum_of_rows(lambda a: s(a, x) * a, h.array([1.0, 4.0]) * x)

    h.assert_value_and_grad(f, (h.array(3.0),), 459.0, 153.0)


@scenario(
    transform="grad of scan",
    source="JAX: the body of a scan is traced once: https://docs.jax.dev/en/latest/_autosummary/jax.lax.scan.html",
)
def inside_scan(h: Checked) -> None:
    """A carry that each step stops carries no gradient to the next.

    The carry, stopped in each step, is multiplied by x and by 1, then 2: 2 x ** 3 is 16 at 2, and its gradient that of
    the last step alone, 8.
    """

    def f(x: Any) -> Any:
        last, _ = h.scan(lambda c, w: (adprotocol.non_differentiable(c) * x * w, w), x, h.array([1.0, 2.0]))
        return last

    h.assert_value_and_grad(f, (h.array(2.0),), 16.0, 8.0)


@scenario(
    transform="grad of {way}",
    source="JAX, what a jitted function closes over: https://github.com/jax-ml/jax/issues/2912",
)
def constant_closed_over(h: Checked, way: str) -> None:
    """A constant that a jitted function closes over stays constant.

    {way} closes over the constant c of x: c * x is 4 at 2, with the gradient 2 and the second derivative 0.
    """

    def f(x: Any) -> Any:
        c = adprotocol.non_differentiable(x)
        return h.trace(way, lambda y: c * y)(x)

    x = h.array(2.0)
    h.assert_value_and_grad(f, (x,), 4.0, 2.0)
    h.assert_equal(h.grad(h.grad(f))(x), 0.0, "the second derivative")


@scenario(rule="W9")
def result_is_not_within_outer_gradient(h: Checked) -> None:
    """A constant is within neither of two gradients.

    Inside a gradient in y the answer is False for constant(x y), and True for x and for y.
    """

    def inner(x: Any) -> Any:
        def f(y: Any) -> Any:
            c = adprotocol.non_differentiable(x * y)
            first, second, third = (h.digit(z) for z in (c, x, y))
            return (100.0 * first + 10.0 * second + third) * x * y

        return h.grad(f)(h.array(3.0))

    h.assert_value_and_grad(inner, (h.array(2.0),), 22.0, 11.0, "the digits are the answers for c, x and y")


@scenario(
    transform="threads",
    needs=("grad", "threads"),
    varies=True,
    source="PyTorch, grad mode is kept for each thread: https://docs.pytorch.org/docs/stable/notes/autograd.html",
)
def in_a_child_thread(h: Checked) -> None:
    """A constant made in a child thread of the differentiated function is constant.

    Expect x c with c the constant of x, made in a thread that the function starts, at 3: 9, with the gradient 3.
    """

    def product(stop: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def f(x: Any) -> Any:
            return x * in_threads(h, lambda: stop(x))[0]

        return f

    x = h.array(3.0)
    h.require_native(lambda: h.grad(product(lambda x: x * 1.0))(x), 6.0)
    h.assert_value_and_grad(product(adprotocol.non_differentiable), (x,), 9.0, 3.0)


@scenario(
    transform=("grad", "jvp", "grad of jit", "jvp of jit", "grad of vmap"),
    also_needs=("grad", HIGHER_ORDER),
    source="MLX, transformations inside of each other: https://ml-explore.github.io/mlx/build/html/usage/function_transforms.html",
)
def after_an_inner_gradient(h: Checked, transforms: str) -> None:
    """What a gradient inside has closed over can be made constant behind it, under {transforms}.

    Expect constant(y) y for y = x ** 2, which a gradient inside has closed over: the derivative is 16 at 2; for rows y
    and 2 y it is 80.
    """
    outer, _, inner = transforms.partition(" of ")
    x = h.array(2.0)

    def run(layer: Callable[[Any], Any]) -> Any:
        return h.nest(outer, behind_a_gradient(h, h.nest(inner, layer)))(x)

    h.require_native(lambda: run(lambda y: 4.0 * y), 48.0 if inner == "vmap" else 16.0)
    h.assert_equal(run(lambda y: adprotocol.non_differentiable(y) * y), 80.0 if inner == "vmap" else 16.0)
