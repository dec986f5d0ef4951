"""What a rule is given and returns: gradients in the structure of the arguments, cotangents in that of the result."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import SHOULD, Decorator, defaults
from adprotocol.conformance.scenarios.models import Layer, Pair
from adprotocol.conformance.scenarios.rules import (
    FUNCTION_SOURCE,
    VJP_SOURCE,
    noted,
    noting_product,
    product,
    ruled,
    square,
    vjp_of_cube,
)
from adprotocol.errors import GradientPreventedError, RuleError

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked


scenario: Decorator = defaults("custom_derivative", rule="D6", source=VJP_SOURCE, transform="grad")


@scenario(also_needs=("stop_gradient",))
def rule_runs_for_a_derivative_alone(h: Checked) -> None:
    """A rule runs where its derivative is needed, and nowhere else.

    Expect f in a plain call, behind one that raises, and x f(c), f of the constant of x: no run of the rule; then one
    or more in a gradient.
    """
    runs: list[str] = []
    f = ruled(h, square, lambda ct, *_: (noted(runs, "vjp", ct),))
    x = h.array(3.0)
    with h.raises(ZeroDivisionError):
        ruled(h, h.fail, lambda ct, *_: (noted(runs, "vjp", ct),))(x)
    h.assert_equal(f(x), 9.0, "the plain value")
    h.assert_value_and_grad(lambda x: x * f(h.stop_gradient(x)), [x], 27.0, 9.0, "of a constant")
    h.assert_value_and_grad(lambda x: x * adprotocol.non_differentiable(f)(x), [x], 27.0, 9.0, "of a constant function")
    h.check(not runs, f"the rule ran {len(runs)} times where nothing of it is needed")
    h.assert_value_and_grad(f, [x], 9.0, 1.0)
    h.check(runs, "the rule did not run")


@scenario(transform=("grad", "jvp"))
def function_runs_once(h: Checked, transforms: str) -> None:
    """A call runs its function once, plain and under {transforms}, and its rule in the latter alone.

    Expect x ** 2 with the derivative 3 x ** 2 at 2: 4 plain, and 12, by one run of the function each.
    """
    runs: list[str] = []
    f = ruled(
        h,
        lambda x: noted(runs, "function", x * x),
        lambda ct, y, x: noted(runs, "rule", vjp_of_cube(ct, y, x)),
        lambda tangents, _, x: noted(runs, "rule", 3.0 * tangents[0] * x * x),
    )
    h.assert_equal(f(h.array(2.0)), 4.0, "the plain value")
    h.check(runs == ["function"], f"in a plain call these ran: {runs}")
    runs.clear()
    h.assert_equal(h.nest(transforms, f)(h.array(2.0)), 12.0, "the derivative")
    h.check(runs.count("function") == 1 and "rule" in runs, f"for a derivative these ran: {runs}")


@scenario(transform=("grad", "jvp", "grad of jit"), source=FUNCTION_SOURCE)
def gradients_as_functions(h: Checked, transforms: str) -> None:
    """A function in place of a gradient is called if that argument is differentiated, under {transforms}.

    Expect x y with the gradients 10 y and 20 x as functions, at (2, 5): 50 in x alone, 40 in y alone, and only the
    function of what is needed runs.
    """
    (f, runs), x, y = noting_product(h), h.array(2.0), h.array(5.0)
    h.assert_equal(h.nest(transforms, lambda x: f(x, y))(x), 50.0, "the derivative in x")
    h.check(set(runs) == {"x"}, f"for the derivative in x these ran: {runs}")
    runs.clear()
    h.assert_equal(h.nest(transforms, lambda y: f(x, y))(y), 40.0, "the derivative in y")
    h.check(set(runs) == {"y"}, f"for the derivative in y these ran: {runs}")


@scenario(transform=("grad", "jvp"))
def none_is_zero(h: Checked, transforms: str) -> None:
    """None in place of a gradient stands for zeros, under {transforms}.

    Expect x y whose rule has None for x and 20 x for y, at x = y = 3: 60; in x alone 0, and beside x ** 2 6.
    """
    f, x = ruled(h, product, lambda ct, _, x, __: (None, 20.0 * ct * x)), h.array(3.0)
    for what, fun, want in (("both", lambda x: f(x, x), 60.0), ("x", lambda x: f(x, h.array(3.0)), 0.0)):
        h.assert_equal(h.nest(transforms, fun)(x), want, f"the derivative in {what}")
    h.assert_equal(h.nest(transforms, lambda x: x * x + f(x, h.array(3.0)))(x), 6.0, "beside another")


@scenario(rule="D9", transform=("grad", "grad of jit"), source=FUNCTION_SOURCE)
def not_read(h: Checked, transforms: str) -> None:
    """What no rule reads is given as an array, with which the constructor of a class may compute, under {transforms}.

    Expect x s, where s is in a class that multiplies it by 1, with the gradient 3 for x: 3 at 2.
    """

    class Scale:
        def __init__(self, factor: Any) -> None:
            self.factor = 1.0 * factor

    pair: Any = {"flatten": lambda s: ((s.factor,), None), "unflatten": lambda _, children: Scale(*children)}
    adprotocol.register_structure(Scale, **pair)
    f = ruled(h, lambda x, s: x * s.factor, lambda ct, *_: (3.0 * ct, None))
    h.assert_equal(h.nest(transforms, lambda x: f(x, Scale(h.array(5.0))))(h.array(2.0)), 3.0, "the gradient")


# What a rule of two vectors of length 2 returns, and what the error names.
_WRONG: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (([1.0, 1.0, 1.0], None), ("argument 0", "(3,)", "(2,)")),
    (([[1.0, 1.0]], None), ("argument 0", "(1, 2)")),
    (([1.0], None), ("argument 0", "(1,)")),
    ((None, 1.0), ("argument 1", "()")),
    ((None, [[1.0, 1.0], [1.0, 1.0]]), ("argument 1", "(2, 2)")),
    (([1.0, 1.0],), ("a tuple of 1", "2 positional")),
    (([1.0, 1.0], None, None), ("a tuple of 3",)),
    (([1.0 + 1.0j, 1.0], None), ("argument 0", "complex", "real")),
)


@scenario(rule="D7", transform=("grad", "grad of vmap"))
def wrong_gradients(h: Checked, transforms: str) -> None:
    """A gradient of another shape, count or kind is an error, not a sum, under {transforms}.

    Expect a RuleError that names the function, the argument, and both shapes, for gradients of another shape, count or
    kind.
    """
    import numpy as np

    def made(value: Any) -> Any:
        return None if value is None else np.array(value)

    def weighted(x: Any, y: Any) -> Any:
        return x * y

    for given, words in _WRONG:
        f = ruled(h, weighted, lambda *_: tuple(map(made, given)))
        v = h.array([1.0, 2.0])
        with h.raises(RuleError, words=["weighted", *words]):
            h.nest(transforms, lambda x: f(x * v, x * v)[0])(h.array(2.0))


@scenario(rule="D7", transform="jvp")
def wrong_tangents(h: Checked) -> None:
    """A tangent of another shape, structure or kind is an error.

    Expect a RuleError that names the function: the tangent is a number, of another shape, in a tuple, or complex.
    """
    import numpy as np

    def doubled(v: Any) -> Any:
        return 2.0 * v

    v = h.array([1.0, 2.0])
    for given in (1.0, h.array([1.0, 2.0, 3.0]), (v,), np.array([1.0j, 1.0])):
        f = ruled(h, doubled, jvp=lambda *_: given)
        with h.raises(RuleError, words=["doubled", "tangent"]):
            h.jvp(f, v, v)


def _parts(x: Any) -> Any:
    """Return results whose names are in no order, and what is no array."""
    return {"c": x * x, "a": Pair(2.0 * x, [3.0 * x, 4]), "name": "text", "on": x > 0.0}


def _of_parts(h: Checked) -> Any:
    """Return the function of several results, with the derivatives 100, 10 and 1."""

    def vjp(ct: Any, *_: Any) -> Any:
        constants = ct["name"], ct["on"], ct["a"].second[1]
        h.check(constants == (None,) * 3, f"the cotangents of constant results are {constants}")
        return (100.0 * ct["c"] + 10.0 * ct["a"].first + 1.0 * ct["a"].second[0],)

    return ruled(h, _parts, vjp)


@scenario(rule="D8", transform=("grad", "jvp", "grad of jit"), source=FUNCTION_SOURCE)
def each_result_its_cotangent(h: Checked, transforms: str) -> None:
    """Each of several results has its own cotangent, zero if it is not used, under {transforms}.

    Expect of results at c, a.first and a.second the derivatives 100, 10 and 1; of 2, 3 and 5 times them 235; of 5 times
    a result whose tangent is a constant 0 and 7 times 3 x, with a jvp alone, 21.
    """
    f = _of_parts(h)

    def asked(y: Any) -> Any:
        return h.scale(y["c"], 2.0, 7.0) + h.scale(y["a"].first, 3.0, 11.0) + h.scale(y["a"].second[0], 5.0, 13.0)

    uses: list[tuple[Any, float]] = [
        (lambda y: y["c"], 100.0),
        (lambda y: y["a"].first, 10.0),
        (lambda y: y["a"].second[0], 1.0),
        (asked, 235.0),
    ]
    for use, want in uses:
        h.assert_equal(h.nest(transforms, lambda x: use(f(x)))(h.array(2.0)), want)
    stop = h.stop_gradient if h.has("stop_gradient") else adprotocol.non_differentiable
    f = ruled(h, lambda x: [stop(x), 3.0 * x], jvp=lambda ts, _, x: [stop(0.0 * x), 3.0 * ts[0]])
    found = h.nest(transforms, lambda x: 5.0 * f(x)[0] + 7.0 * f(x)[1])(h.array(2.0))
    h.assert_equal(found, 21.0, "beside a constant tangent")


@scenario(rule="D8")
def results_that_are_constants(h: Checked) -> None:
    """Integers, booleans and texts among the results are constants, and have no cotangents.

    4, 'text' and a bool beside floats come out as they are and untracked, with the cotangent None; that of an unused
    float is 0.
    """
    f = _of_parts(h)

    def loss(x: Any) -> Any:
        y = f(x)
        h.check((y["name"], y["a"].second[1]) == ("text", 4), f"the constants are {y['name']!r}, {y['a'].second[1]!r}")
        h.assert_untracked(adprotocol.within_gradient(y["on"]), "a boolean result")
        return y["a"].first * h.scale(y["c"], 3.0, 5.0)

    h.assert_equal(h.grad(loss)(h.array(2.0)), 3.0 * (10.0 * 4.0 + 100.0 * 4.0))


@scenario(rule="D8", also_needs=("dtypes", "cast"))
def results_of_two_dtypes(h: Checked) -> None:
    """Each result has its dtype, its cotangent has the same, and the gradient that of the argument.

    Expect 2 x as x is and 3 x in the next dtype: each in its own, with a cotangent in it; the gradients 20 and 200; and
    7 of a rule that returns 7 in either dtype, or NumPy's.
    """
    import numpy as np

    h.absent_if(len(h.dtypes()) == 1, "the system has one floating-point dtype")
    first, other = h.dtypes()[:2]

    def vjp(ct: Any, y: Any, _: Any) -> Any:
        same = (ct["other"].dtype, ct["first"].dtype) == (y["other"].dtype, y["first"].dtype)
        h.check(same, f"the cotangents are of {ct['other'].dtype} and {ct['first'].dtype}")
        return (10.0 * ct["first"] + 100.0 * h.cast(ct["other"], first),)

    f = ruled(h, lambda x: {"other": h.cast(3.0 * x, other), "first": 2.0 * x}, vjp)
    x = h.array(1.0)

    def part(x: Any, name: str, dtype: str) -> Any:
        h.check(f(x)[name].dtype == h.cast(x, dtype).dtype, f"{name} is of {f(x)[name].dtype}")
        return h.cast(f(x)[name], first)

    for name, dtype, want in (("first", first, 20.0), ("other", other, 200.0)):
        part(x, name, dtype)
        h.assert_equal(h.grad(lambda x: 2.0 * part(x, name, dtype))(x), want, f"of the {name}")
    for seven, dtype in itertools.product((np.float64(7.0), h.array(7.0), h.cast(h.array(7.0), other)), (first, other)):
        narrow, x = ruled(h, square, lambda *_, seven=seven: (seven,)), h.cast(x, dtype)
        found = h.grad(lambda x, narrow=narrow: h.cast(narrow(x), first))(x)
        h.check(found.dtype == x.dtype, f"the gradient in {dtype} is of {found.dtype}")
        h.assert_equal(found, 7.0, f"the gradient in {dtype} of a rule that returns {seven!r:.60}")


def _layered(layer: Any, values: Any, n: Any, name: Any) -> Any:
    return {"y": layer.scale * layer.weight * values[0] * n, "name": name}


@scenario(
    rule="D9",
    transform=("grad", "jvp", "grad of jit", "grad of vmap"),
    source="JAX: static arguments of rules: https://github.com/jax-ml/jax/issues/2912",
)
def structures(h: Checked, transforms: str) -> None:
    """Structures, labels and static values arrive in a rule as in the function, under {transforms}.

    Expect 10 w 3 v 7 for a dataclass of w and the label of 3, a list of v and a text, 7 and a name, at w = v = x.
    """
    c = h.array(3.0)

    def checked(layer: Any, values: Any, n: Any, name: Any) -> None:
        h.check(
            type(layer) is Layer and type(layer.scale) is adprotocol.NonDifferentiable,
            f"a rule got {type(layer).__name__}, {type(layer.scale).__name__}",
        )
        h.check((values[1], n, name) == ("text", 7, "name"), f"a rule got {values[1]!r}, {n!r}, {name!r}")

    def vjp(ct: Any, y: Any, *args: Any) -> Any:
        checked(*args)
        h.check(y["name"] == "name" and ct["name"] is None, f"a rule got the cotangent {ct['name']!r} of {y['name']!r}")
        layer, (v, _), n, _ = args
        common = 10.0 * ct["y"] * layer.scale.value * n
        return Layer(common * v, None), [lambda: common * layer.weight, None], None, None

    f = ruled(h, _layered, vjp)
    run = h.nest(transforms, lambda x: f(Layer(x, adprotocol.NonDifferentiable(c)), [x, "text"], 7, "name")["y"])
    # vmap adds a row at 2 x.
    h.assert_equal(run(h.array(2.0)), 840.0 * (5.0 if "vmap" in transforms else 1.0))


@scenario(rule="D9", level=SHOULD)
def functions_and_names(h: Checked) -> None:
    """Functions and labels may be arguments, and what may be given by position may be given by name.

    Expect x ** 2 with the rule ct g(x) c of arguments g, twice, and c, a label of 5: 20 at 2, by position or name.
    """
    label = adprotocol.NonDifferentiable(h.array(5.0))

    def vjp(ct: Any, _: Any, g: Any, x: Any, c: Any) -> Any:
        h.check(type(c) is adprotocol.NonDifferentiable, f"the rule got {type(c).__name__} for a label")
        return None, c * ct * g(x), None

    f = ruled(h, lambda g, x, c: x * x if g and c is not None else g, vjp)
    twice = lambda x: 2.0 * x  # noqa: E731
    h.assert_value_and_grad(lambda x: f(twice, x, label), [h.array(2.0)], 4.0, 20.0, "by position")
    h.assert_value_and_grad(lambda x: f(c=label, x=x, g=twice), [h.array(2.0)], 4.0, 20.0, "by name")


def _scaled(h: Checked) -> Any:
    def scaled(x: Any, *, scale: Any) -> Any:
        return x * scale

    return ruled(h, scaled, lambda ct, *_, scale: (10.0 * ct * scale,))


@scenario(rule="D10", transform=("grad", "grad of jit", "grad of vmap"))
def keyword_arguments(h: Checked, transforms: str) -> None:
    """A keyword-only argument is a constant, and raises where it is differentiated, under {transforms}.

    Expect scale x with the rule 10 scale, at scale = 3: gradient 30 in x; in scale an error that names it.
    """
    f, c, inner = _scaled(h), h.array(3.0), transforms.partition(" of ")[2]
    rows = 3.0 if inner == "vmap" else 1.0
    gradient = h.grad(lambda x: h.nest(inner, lambda s: f(x, scale=s))(c))(h.array(2.0))
    h.assert_equal(gradient, 30.0 * rows, "the gradient in x")
    with h.raises(GradientPreventedError, words=["scale"]):
        h.nest(transforms, lambda s: f(c, scale=s))(h.array(2.0))


@scenario(rule="D10", transform="jvp")
def keyword_tangents(h: Checked) -> None:
    """A keyword-only argument has no tangent.

    Expect scale x with scale in a dict of constants, at 3: tangent 30 in x; in scale an error that names it.
    """

    def scaled(x: Any, *, options: Any) -> Any:
        return x * options["scale"]

    def jvp(tangents: Any, _: Any, x: Any, *, options: Any) -> Any:
        h.assert_untracked(adprotocol.within_gradient(x), "an argument in the only level's rule")
        return 10.0 * tangents[0] * options["scale"]

    f = ruled(h, scaled, jvp=jvp)
    c, x, one = h.array(3.0), h.array(2.0), h.array(1.0)
    h.assert_value_and_tangent(lambda x: f(x=x, options={"scale": c, "name": "text"}), x, one, 6.0, 30.0)
    with h.raises(GradientPreventedError, words=["scale"]):
        h.jvp(lambda s: f(c, options={"scale": s}), x, one)


@scenario(rule="D7", transform="grad", source=FUNCTION_SOURCE)
def cotangent_of_a_matrix(h: Checked) -> None:
    """The cotangent of a matrix has each number in its place, also of one whose columns come first in memory.

    Expect of x, 2 by 2, with the rule 7 ct, weighed by ((1, 2), (3, 4)): 7 times the weights, rows and columns as they
    are, and so with the cotangent of a second result of another shape; and of the transpose of x, where arrays have T.
    """
    weights, x = [[1.0, 2.0], [3.0, 4.0]], h.array([[1.0, 1.0], [1.0, 1.0]])

    def weighed(y: Any) -> Any:
        return sum(weights[i][j] * y[i, j] for i in range(2) for j in range(2))

    f = ruled(h, lambda x: (x * x, 1.0 * x[0]), lambda ct, _, x: (7.0 * ct[0] + ct[1],))
    found = h.grad(lambda x: weighed(f(x)[0]) + 10.0 * f(x)[1][0] + 20.0 * f(x)[1][1])(x)
    h.assert_equal(found, [[17.0, 34.0], [31.0, 48.0]])
    if hasattr(x, "T"):
        transpose = ruled(h, lambda x: x.T, lambda ct, *_: (7.0 * ct,))
        h.assert_equal(h.grad(lambda x: weighed(transpose(x)))(x), [[7.0, 14.0], [21.0, 28.0]], "of the transpose")


@scenario(rule="D8", transform="jvp")
def tangent_of_integers(h: Checked) -> None:
    """A jvp gets None as the tangent of integers, which have none.

    Expect of 2 x at 3 along 1, beside integers, with the rule 7 t: 6 and the tangent 7, and None beside t.
    """
    seen: list[Any] = []
    f = ruled(h, lambda x, _: 2.0 * x, None, lambda ts, *_: noted(seen, ts[1], 7.0 * ts[0]))
    h.assert_value_and_tangent(lambda x: f(x, h.array([2, 2])), h.array(3.0), h.array(1.0), 6.0, 7.0)
    h.check(seen and all(tangent is None for tangent in seen), f"the tangents of the integers are {seen!r:.80}")
