"""Constants under every transformation, at all levels of nested derivatives, and where recording is off."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.harness import HIGHER_ORDER
from adprotocol.conformance.scenario import Decorator, defaults
from adprotocol.conformance.scenarios.grid import DERIVATIVE_PAIRS, LOOPS, SINGLE, compare, grid
from adprotocol.conformance.scenarios.programs import behind_a_gradient, in_both_orders, in_threads
from adprotocol.conformance.scenarios.within_gradient.functions import squares
from adprotocol.conformance.scenarios.within_gradient.modes import switched_parameter
from adprotocol.conformance.scenarios.within_gradient.parameters import NEEDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked


scenario: Decorator = defaults(
    "non_differentiable",
    rule="N1",
    transform="grad of grad",
    source="PyTorch: the switch and leaves: https://docs.pytorch.org/docs/stable/notes/autograd.html",
)


_PERTURBATION = "J. M. Siskind, B. A. Pearlmutter: Perturbation confusion and referential transparency, IFL 2005"
_LEVELS = (
    "JAX: nested gradients are all stopped: https://docs.jax.dev/en/latest/_autosummary/jax.lax.stop_gradient.html"
)
_VMAP = "PyTorch, vmap hides what is tracked: https://github.com/pytorch/pytorch/issues/158610"
_RECOMPILED = "PyTorch: what torch.compile guards on: https://docs.pytorch.org/docs/stable/torch.compiler_faq.html"


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


@scenario(source=_PERTURBATION)
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


@scenario(transform="jvp of jvp", source=_PERTURBATION)
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
    if h.has("grad of grad"):
        h.assert_equal(h.grad(h.grad(f))(x), 0.0, "the second derivative")


@scenario(rule="W9", source=_PERTURBATION)
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


@scenario(source=_RECOMPILED, transform="grad of {way}")
def closes_over_constant(h: Checked, way: str) -> None:
    """What a compiled function returns as a constant is one to the functions around it, in both first orders.

    Expect a compiled function returns the constant of x ** 2, by itself and from a branch: times 5 x, as it is
    untracked, 40 at 2 with the gradient 20; times x, 8 with the gradient 4.
    """
    x = h.array(2.0)

    def square(x: Any) -> Any:
        return adprotocol.non_differentiable(x * x)

    def of_a_branch(x: Any) -> Any:
        return adprotocol.cond(x > 0.0, square, lambda x: adprotocol.non_differentiable(-1.0 * x), x)

    def make(fun: Any) -> tuple[Any, Any]:
        constant = h.trace(way, fun)
        return constant, h.trace(way, lambda x: h.probe(constant(x)) * x)

    def plain(made: tuple[Any, Any]) -> None:
        _, outer = made
        h.assert_equal(outer(x), 40.0, "the plain call")

    def differentiated(made: tuple[Any, Any]) -> None:
        constant, outer = made
        h.assert_value_and_grad(outer, (x,), 40.0, 20.0, "compiled in a compiled function")
        h.assert_value_and_grad(lambda x: constant(x) * x, (x,), 8.0, 4.0, "compiled alone")
        h.assert_value_and_grad(lambda x: h.probe(constant(x)) * x, (x,), 40.0, 20.0, "asked outside")

    for fun in (square, of_a_branch):
        in_both_orders(functools.partial(make, fun), plain, differentiated)


@scenario(rule="N3", source=_RECOMPILED, transform="grad of {way}")
def decorated_around(h: Checked, way: str) -> None:
    """The constant of a compiled function, and a constant function that is compiled, have no derivative.

    Expect c(x) x with c a compiled constant function, or the constant of a compiled one: 8 at 2, gradient 4.
    """
    x = h.array(2.0)
    for name, f in (
        ("the constant of a compiled function", adprotocol.non_differentiable(h.trace(way, lambda x: x * x))),
        ("a constant function, compiled", h.trace(way, adprotocol.non_differentiable(lambda x: x * x))),
    ):
        h.assert_equal(f(x) * x, 8.0, f"{name}, called plain")
        h.assert_value_and_grad(lambda x, f=f: f(x) * x, (x,), 8.0, 4.0, name)
        h.assert_value_and_grad(h.trace(way, lambda x, f=f: f(x) * x), (x,), 8.0, 4.0, f"{name}, inside of another")
        h.assert_equal(f(x) * x, 8.0, f"{name}, called plain again")


@scenario(
    source="TensorFlow: stop_gradient: https://www.tensorflow.org/api_docs/python/tf/stop_gradient",
    transform="grad of {way}",
)
def beside_a_result(h: Checked, way: str) -> None:
    """A constant that a compiled function returns leaves the derivative of its other result alone.

    Expect a compiled function returns x ** 2 twice, once as a constant, behind None: at 2 the gradient of the constant
    is 0, of the other 4, and of their product 16.
    """
    x = h.array(2.0)
    try:
        nothing = h.trace(way, lambda x: (None, x))(x)[:1]
    except Exception:  # noqa: BLE001  (whatever it is, it is how the system refuses None)
        nothing = ()
    for constant in (0, 1):
        pair = h.trace(way, lambda x, constant=constant: (*nothing, *squares(x, constant)))
        for _ in range(2):
            h.assert_value_and_grad(lambda x: pair(x)[-2] * pair(x)[-1], (x,), 16.0, 16.0, "of the product")
            h.assert_value_and_grad(lambda x: pair(x)[-1 - constant] * 1.0, (x,), 4.0, 4.0, "of the variable")
            h.assert_value_and_grad(lambda x: pair(x)[constant - 2] + 0.0 * x, (x,), 4.0, 0.0, "of the constant")


@scenario(
    transform="",
    needs=NEEDS,
    source="TensorFlow: stop_gradient reads a variable: https://www.tensorflow.org/api_docs/python/tf/stop_gradient",
)
def parameter(h: Checked) -> None:
    """The constant of a parameter is its value, and takes no derivative.

    At p = 3 the gradient of constant(p) * p ** 2 is 18, of constant(p) + p it is 1, and of p ** 2 afterwards 6.
    """
    p = h.parameter(3.0, trains=True)
    h.assert_equal(h.parameter_grad(lambda: adprotocol.non_differentiable(p) * p * p, p), 18.0, "the gradient")
    h.assert_equal(h.parameter_grad(lambda: adprotocol.non_differentiable(p) + p, p), 1.0, "the gradient of the sum")
    h.assert_equal(adprotocol.non_differentiable(p), 3.0, "the constant")
    h.assert_equal(h.parameter_grad(lambda: p * p, p), 6.0, "the gradient afterwards")


@scenario(
    "parameter",
    transform="{way}",
    also_needs=NEEDS,
    native="grad of {way}",
    source="TensorFlow: stop_gradient reads a variable: https://www.tensorflow.org/api_docs/python/tf/stop_gradient",
)
def parameter_compiled(h: Checked, way: str) -> None:
    """In a compiled function the constant of a parameter takes no derivative either.

    Expect constant(p) p x compiled, with p = 3, x = 2: plain 18, gradient c x = 6, in both first orders.
    """
    x = h.array(2.0)

    def make() -> tuple[Any, Any]:
        p = h.parameter(3.0, trains=True)
        return p, h.trace(way, lambda x: adprotocol.non_differentiable(p) * p * x)

    def plain(made: tuple[Any, Any]) -> None:
        _, traced = made
        h.assert_equal(adprotocol.non_differentiable(traced(x)), 18.0, "the plain call")

    def differentiated(made: tuple[Any, Any]) -> None:
        p, traced = made
        h.assert_equal(h.parameter_grad(lambda: traced(x), p), 6.0, "the gradient")

    in_both_orders(make, plain, differentiated)


@adprotocol.non_differentiable
def _constant(x: Any) -> Any:
    return x


_MAKES: tuple[Callable[[Any], Any], ...] = (
    adprotocol.non_differentiable,
    lambda x: adprotocol.non_differentiable({"x": x})["x"],
    _constant,
)


@scenario(transform="grad", needs=("grad", "no_grad"), varies=True)
def made_under_the_switch(h: Checked) -> None:
    """The constant of a variable that is made under the switch is one behind it.

    Expect 11 c x with c the constant of x, made under the switch: at 2 the value 44 and the gradient 22, by a call, in
    a dict and by a decorated function.
    """
    for make in _MAKES:

        def f(x: Any, make: Any = make) -> Any:
            return h.scale(h.no_grad(lambda: make(x))(), 7.0, 11.0) * x

        h.assert_value_and_grad(f, (h.array(2.0),), 44.0, 22.0)


@scenario(transform="jvp", needs=("jvp", "no_grad"))
def made_under_the_switch_in_forward_mode(h: Checked) -> None:
    """Under the switch a constant is one for forward mode too, which some switches do not stop.

    Expect c x with c the constant of x, made under the switch: at 2 the value 4 and the tangent 2.
    """
    h.assert_value_and_tangent(
        lambda x: h.no_grad(lambda: adprotocol.non_differentiable(x))() * x, h.array(2.0), h.array(1.0), 4.0, 2.0
    )


@scenario(transform="", needs=("parameter", "parameter_grad", "no_grad"))
def parameter_under_the_switch(h: Checked) -> None:
    """The constant of a parameter that is made under the switch is one behind it.

    Expect 11 c p with c the constant of the parameter p, made under the switch: the gradient 22 at 2, by a call, in a
    dict and by a decorated function; also where it was made before the gradient began.
    """
    p = switched_parameter(h)
    for make in _MAKES:
        before = h.no_grad(lambda: make(p))()
        h.assert_equal(h.parameter_grad(lambda: h.scale(before, 7.0, 11.0) * p, p), 22.0, "the gradient, made before,")

        def f(make: Any = make) -> Any:
            return h.scale(h.no_grad(lambda: make(p))(), 7.0, 11.0) * p

        h.assert_equal(h.parameter_grad(f, p), 22.0, "the gradient")


@scenario(rule="N2", transform="", needs=("parameter", "parameter_grad", "no_grad"))
def model_under_the_switch(h: Checked) -> None:
    """The constants of a model's parameters that are made under the switch are constants behind it.

    Expect p times the constants of {p, [p]}, made under the switch, 1 and 3 of them: the gradient 8 at 2.
    """
    p = switched_parameter(h)

    def f() -> Any:
        frozen = h.no_grad(lambda: adprotocol.non_differentiable({"p": p, "list": [p]}))()
        return p * frozen["p"] + 3.0 * p * frozen["list"][0]

    h.assert_equal(h.parameter_grad(f, p), 8.0, "the gradient")
