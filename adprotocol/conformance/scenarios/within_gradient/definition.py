"""The definition: an answer agrees with the derivative, under every transformation."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance.harness import HIGHER_ORDER, PROMOTION
from adprotocol.conformance.scenario import Decorator, defaults
from adprotocol.conformance.scenarios.grid import LOOPS, PAIRS, SINGLE, compare, grid
from adprotocol.conformance.scenarios.programs import behind_a_gradient
from adprotocol.conformance.scenarios.rules import noted

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked

_ENZYME = "Enzyme.jl: is a function called inside autodiff? https://github.com/EnzymeAD/Enzyme.jl/issues/1761"

scenario: Decorator = defaults("within_gradient", rule="W1", transform="grad", source=_ENZYME)


_GLOBAL_MODE = "Flux: one global istraining() for all models: https://github.com/FluxML/Flux.jl/issues/909"
_TESSERACT = "tesseract-jax: what jit traces is taken for differentiated: https://github.com/pasteurlabs/tesseract-jax/issues/137"

# Values made of x, which is differentiated, and c, which is not.
_VALUES: dict[str, Callable[[Any, Any], Any]] = {
    "x": lambda x, _: x,
    "2 x / c - 1": lambda x, c: 2.0 * x / c - 1.0,
    "-x ** 2": lambda x, _: -(x**2),
    "c": lambda _, c: c,
    "c c + 1": lambda _, c: c * c + 1.0,
}


@scenario(transform=("grad", "jvp", "grad of jit", "jvp of jit", "grad of compile"))
def agrees_with_the_derivative(h: Checked, transforms: str) -> None:
    """The answer is what the system's own derivative shows, under {transforms}.

    For each value v made of x and a constant: k v x with k = 3 if the system has a derivative of v, else k = 5.
    """
    x, c = h.array(2.0), h.array(4.0)
    for name, made in _VALUES.items():

        def native(x: Any, made: Any = made) -> Any:
            return made(x, c) * x

        def asking(x: Any, made: Any = made) -> Any:
            return h.probe(made(x, c)) * x

        # The derivative of v x is v + x v'.
        value = float(h.numpy(made(x, c)))
        derivative = float(h.numpy(h.nest(nesting.parse(transforms)[0], native)(x)))
        differentiated = abs(derivative - value) > 1e-3
        h.assert_equal(h.nest(transforms, asking)(x), (3.0 if differentiated else 5.0) * derivative, f"with v = {name}")


@scenario(rule="W9", needs=("grad", PROMOTION), varies=True)
def comparison_times_constant(h: Checked) -> None:
    """A comparison of what is tracked, times a constant, is not tracked.

    Expect 5 v x for v = (x > 1) c, which has no derivative: 40, gradient 20.
    """
    c = h.array(4.0)
    h.assert_value_and_grad(lambda x: h.probe((x > 1.0) * c) * x, [h.array(2.0)], 40.0, 20.0)


@scenario(rule="W2", varies=True, source=_GLOBAL_MODE)
def same_array_outside(h: Checked) -> None:
    """The array that a gradient is called with is itself not tracked.

    Expect 3 x for the argument times 11 c for the array that was passed: 132, gradient 66.
    """
    c = h.array(2.0)
    h.assert_value_and_grad(lambda x: h.probe(x) * h.scale(c, 7.0, 11.0), [c], 132.0, 66.0)


@scenario(varies=True, source=_TESSERACT)
def second_argument(h: Checked) -> None:
    """An argument that is not differentiated is not tracked.

    Expect 3 x times 11 y at 2, 4: 264, gradient 132.
    """
    h.assert_value_and_grad(lambda x, y: h.probe(x) * h.scale(y, 7.0, 11.0), [h.array(2.0), h.array(4.0)], 264.0, 132.0)


@scenario(rule="W5", transform="grad of jit", source=_TESSERACT)
def second_argument_of_jit(h: Checked) -> None:
    """Of two arguments of a jitted function, only the differentiated one is tracked.

    Expect asked about x, about y and about both, at 3, 4: 3 x times 11 y times 3 x is 3564, with the gradient 2376;
    plain, 5 x times 11 y times 5 x is 9900.
    """
    jitted = h.jit(lambda x, y: h.probe(x) * h.scale(y, 7.0, 11.0) * h.probe(x, y, x))
    h.assert_value_and_grad(jitted, [h.array(3.0), h.array(4.0)], 3564.0, 2376.0)
    h.assert_equal(jitted(h.array(3.0), h.array(4.0)), 9900.0, "5 x * 11 y * 5 x afterwards")


@scenario(
    transform=tuple(
        f"{way}{outer} of {inner}" for way in ("", "jit of ") for outer in ("grad", "jvp") for inner in ("grad", "jvp")
    ),
    source="J. M. Siskind, B. A. Pearlmutter: Perturbation confusion and referential transparency, IFL 2005",
)
def levels_of_two_variables(h: Checked, transforms: str) -> None:
    """Of two levels each tracks a variable of its own, and neither a constant, under {transforms}.

    Expect {transforms}: the inner derivative, in y, of 3 x times 7 y times 17 c, differentiated in x: 357 at c = 1.
    """
    *way, outer, inner = nesting.parse(transforms)
    x, y, c = h.array(2.0), h.array(4.0), h.array(1.0)

    def run(layer: Callable[[Any, float, float], Any]) -> Any:
        def slope(x: Any) -> Any:
            return h.nest(inner, lambda y: layer(x, 3.0, 5.0) * layer(y, 7.0, 11.0) * layer(c, 13.0, 17.0))(y)

        return h.nest(" of ".join([*way, outer]), slope)(x)

    h.require_native(lambda: run(lambda v, inside, outside: (outside if v is c else inside) * v), 357.0)
    h.assert_equal(run(h.scale), 357.0)


_BEHIND = ("grad", "jvp", "grad of jit", "grad of compile", "grad of vmap")


@scenario(
    "after-an-inner-gradient-{name}",
    also_needs=("grad", HIGHER_ORDER),
    source="MLX, transformations inside of each other: https://ml-explore.github.io/mlx/build/html/usage/function_transforms.html",
    params={
        name.replace(" ", "-"): {"transforms": name, "transform": name, "varies": " of " not in name}
        for name in _BEHIND
    },
)
def after_an_inner_gradient(h: Checked, transforms: str) -> None:
    """What a gradient inside has closed over is tracked behind it, under {transforms}.

    Expect 3 y times 11 c for y = x ** 2, which a gradient inside has closed over: the derivative is 132 at 2; for rows
    x and 2 x it is 660, and for rows y and 2 y 396.
    """
    outer, _, inner = transforms.partition(" of ")
    x, c = h.array(2.0), h.array(1.0)

    def behind(layer: Callable[[Any], Any], factor: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return behind_a_gradient(h, lambda y: layer(y) * factor(c))

    def inside(layer: Callable[[Any], Any], factor: Callable[[Any], Any]) -> Any:
        return h.nest(transforms, behind(layer, factor))(x)

    def before(layer: Callable[[Any], Any], factor: Callable[[Any], Any]) -> Any:
        return h.nest(outer, behind(h.nest(inner, layer), factor))(x)

    for where, program, rows in (("inside", inside, 660.0), ("before", before, 396.0)):
        want = rows if inner == "vmap" else 132.0
        h.require_native(functools.partial(program, lambda y: 3.0 * y, lambda c: 11.0 * c), want)
        h.assert_equal(program(h.probe, lambda c: h.scale(c, 7.0, 11.0)), want, f"with the gradient {where}")


@scenario(rule="W2", transform="jvp", varies=True, source=_GLOBAL_MODE)
def results_are_plain(h: Checked) -> None:
    """The results of forward mode are no longer tracked.

    Expect 11 times the value 6 and 11 times the tangent 3 of 3 x.
    """
    value, tangent = h.jvp(h.probe, h.array(2.0), h.array(1.0))
    h.assert_equal(h.scale(value, 7.0, 11.0), 66.0, "the layer of the value")
    h.assert_equal(h.scale(tangent, 7.0, 11.0), 33.0, "the layer of the tangent")


@scenario(
    rule="W2",
    varies=True,
    source="Flux: layers should regularise in a gradient context only: https://github.com/FluxML/Flux.jl/issues/643",
)
def around_a_gradient(h: Checked) -> None:
    """The answer is False before and after a gradient and True inside, however often they alternate.

    Expect 5 x before, 3 x inside, 5 x afterwards, three times over, and False or an open answer on shapes alone.
    """
    x = h.array(2.0)
    answers: list[Any] = []
    for _ in range(3):
        h.assert_equal(h.probe(x), 10.0, "outside")
        h.assert_value_and_grad(h.probe, [x], 6.0, 3.0)
        if h.has("abstract"):
            h.abstract(lambda x: noted(answers, h.query(x), h.probe(x)), x)
    h.assert_equal(h.probe(x), 10.0, "at the end")
    h.check(not any(answer is True for answer in answers), "True was answered on shapes alone")


@scenario(
    rule="W2",
    transform="",
    source="Enzyme.jl: within_autodiff() without a value: https://github.com/EnzymeAD/Enzyme.jl/pull/1851",
)
def no_values(h: Checked) -> None:
    """There is no ambient answer: a question without values is an error.

    Expect TypeError, outside of a gradient and inside.
    """
    with h.raises(TypeError):
        adprotocol.within_gradient()  # type: ignore[call-arg]
    if not h.has("grad"):
        return

    def f(x: Any) -> Any:
        with h.raises(TypeError):
            adprotocol.within_gradient()  # type: ignore[call-arg]
        return h.probe(x)

    h.assert_equal(h.grad(f)(h.array(2.0)), 3.0, "the gradient of what asks without values, then with one")


@scenario(
    rule="W5",
    transform="abstract",
    source="Reactant.jl: within_autodiff is true inside compile: https://github.com/EnzymeAD/Reactant.jl/issues/442",
)
def abstract(h: Checked) -> None:
    """Abstract evaluation is not differentiation, and asking there raises no error.

    Expect no error; False or an answer left open, and True or left open under a gradient; then 5 x.
    """
    x, answers = h.array(2.0), []

    def f(x: Any) -> Any:
        answers.append(h.query(x))
        return h.probe(x)

    h.abstract(f, x)
    h.check(answers, "the function did not run")
    h.check(not any(answer is True for answer in answers), "True was answered under abstract evaluation alone")
    answers.clear()
    h.abstract(h.grad(f), x)
    h.check(not any(answer is False for answer in answers), "False was answered in a gradient, evaluated on shapes")
    h.assert_equal(h.probe(x), 10.0, "the layer afterwards")


_AROUND_LOOPS = (
    "jit of grad of scan",
    "jit of jvp of scan",
    "compile of grad of scan",
    "jit of grad of while_loop",
    "jit of jvp of while_loop",
    "compile of grad of while_loop",
)

_TRIPLES = (
    "grad of jit of vmap",
    "grad of vmap of jit",
    "jit of grad of vmap",
    "vmap of grad of jit",
    "jvp of grad of jit",
    "grad of jvp of vmap",
    "grad of grad of jit",
    "grad of jit of grad",
    "jvp of vmap of grad",
    "vmap of jit of vmap",
    "grad of scan of jit",
    "grad of checkpoint of jit",
    "grad of vmap of checkpoint",
    "compile of grad of vmap",
    "compile of jvp of grad",
    "grad of grad of grad",
)


@grid(
    "within_gradient/",
    (*SINGLE, *PAIRS, *LOOPS, *_AROUND_LOOPS, *_TRIPLES),
    rule="W5",
    also_vary=("vmap of grad",),
)
def answers(h: Checked, transforms: str) -> None:
    """`within_gradient` answers correctly under {transforms}.

    Expect {transforms} of 3 x ** 3 at 2.5 if that differentiates, since the answer is True, else of 5 x ** 3.
    """

    def f(x: Any) -> Any:
        return adprotocol.cond(h.query(x), lambda x: 3.0 * x * x * x, lambda x: 5.0 * x * x * x, x)

    k = 3.0 if nesting.differentiates(transforms) else 5.0
    compare(h, transforms, f, lambda x: [k * x**3, 3 * k * x**2, 6 * k * x, 6 * k, 0.0])
