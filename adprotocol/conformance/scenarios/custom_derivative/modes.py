"""Which rule is applied, how often, and what it knows: modes, orders, every transformation, rows of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance.checks import Absent, Checked
from adprotocol.conformance.harness import HIGHER_ORDER
from adprotocol.conformance.scenario import Decorator, defaults
from adprotocol.conformance.scenarios.arrays import assert_near
from adprotocol.conformance.scenarios.grid import DERIVATIVE_PAIRS, SINGLE, compare, grid
from adprotocol.conformance.scenarios.programs import behind_a_gradient
from adprotocol.conformance.scenarios.rules import (
    FUNCTION_SOURCE,
    VJP_SOURCE,
    hosted,
    noted,
    noting_product,
    product,
    ruled,
    square,
    vjp_of_cube,
)
from adprotocol.errors import GradientPreventedError, RuleError

if TYPE_CHECKING:
    from collections.abc import Callable


scenario: Decorator = defaults("custom_derivative", rule="D2", source=VJP_SOURCE, transform="grad")

_COMPLEX = "JAX: complex numbers and derivative rules: https://docs.jax.dev/en/latest/notebooks/autodiff_cookbook.html"
_SUMS = "PyTorch: a vmap of rules sums what rows share: https://docs.pytorch.org/docs/stable/notes/extending.func.html"


@scenario(rule="D1")
def value_of_the_function(h: Checked) -> None:
    """The value is that of the function, also where a derivative is propagated.

    Expect x f(x), with f = x ** 2 whose rule says 0, at 3: 27, gradient 9; so with the jvp alone.
    """
    for rules in ({"vjp": lambda *_: (None,)}, {"jvp": lambda tangents, *_: 0.0 * tangents[0]}):
        f = ruled(h, square, **rules)
        h.assert_equal(f(h.array(3.0)), 9.0, "the plain value")
        h.assert_value_and_grad(lambda x: x * f(x), [h.array(3.0)], 27.0, 9.0)


@scenario(rule="D1", also_needs=("dtypes", "cast"))
def dtypes(h: Checked) -> None:
    """Value and gradient keep dtype and shape, although the rule returns NumPy's 64 bits.

    Expect x x at 2: 4 with the gradient 7 of the rule, both in the dtype of x, for each dtype.
    """
    import numpy as np

    f = ruled(h, square, lambda _ct, _returned, x: (np.full(tuple(x.shape), 7.0),))
    for what in h.dtypes():
        x = h.cast(h.array([2.0, 2.0]), what)
        # A system's own gradient may be recorded for the next, to which an array of NumPy is lost.
        gradient = adprotocol.grad(lambda x: f(x)[1])(x)
        for name, found, due in (("value", f(x), 4.0), ("gradient", gradient, 7.0)):
            assert_near(h, found, due, f"the {name} at {what}", like=x)


def _of_two_rules(h: Checked) -> Any:
    """Return x ** 2 with the vjp 30 ct and the jvp 20 t."""
    return ruled(h, square, lambda ct, *_: (30.0 * ct,), lambda tangents, *_: 20.0 * tangents[0])


@scenario(transform="jvp", also_needs=("grad",))
def each_mode_its_own_rule(h: Checked) -> None:
    """Reverse mode uses the vjp and forward mode the jvp, where both are given.

    Expect x ** 2 with the vjp 30 ct and the jvp 20 t, at 3: gradient 30, tangent 20.
    """
    h.require_hook("vjp")
    h.assert_value_and_grad(_of_two_rules(h), [h.array(3.0)], 9.0, 30.0)
    h.assert_value_and_tangent(_of_two_rules(h), h.array(3.0), h.array(1.0), 9.0, 20.0)


_NOT_LINEAR: tuple[Callable[[Any], Any], ...] = (
    adprotocol.non_differentiable,
    lambda flowing: flowing * flowing,
    lambda flowing: flowing + 7.0,
)


@scenario(rule="D17", transform="jvp", also_needs=("grad",))
def vjp_that_is_not_linear(h: Checked) -> None:
    """Forward mode does not follow from a vjp that is not linear in the cotangent.

    Expect of a rule that makes a constant of the cotangent, squares or shifts it, that reverse mode uses it as it is,
    and that a tangent raises; so of one that is declared for reverse mode alone.
    """
    x, one = h.array(3.0), h.array(1.0)
    for change, slope in zip(_NOT_LINEAR, (6.0, 6.0, 48.0), strict=True):
        f = ruled(h, square, lambda ct, _, x: (2.0 * x * change(ct),))
        h.assert_equal(h.grad(f)(x), slope, "the gradient")
        with h.raises(RuleError, words=["linear", "defjvp"]):
            h.jvp(f, x, one)
    f = ruled(h, square, lambda ct, _, x: (2.0 * x * ct,), reverse_only=True)
    h.assert_equal(h.grad(f)(x), 6.0, "the gradient")
    with h.raises(RuleError, words=["reverse_only"]):
        h.jvp(f, x, one)


@scenario(rule="D17")
def jvp_that_is_not_linear(h: Checked) -> None:
    """Reverse mode does not follow from a jvp that is not linear in the tangent.

    Expect of a rule that makes a constant of the tangent, squares or shifts it, that a gradient raises.
    """
    h.require_hook("vjp")
    for change in _NOT_LINEAR:
        f = ruled(h, square, jvp=lambda ts, _, x: 2.0 * x * change(ts[0]))
        with h.raises(RuleError, words=["linear", "defvjp"]):
            h.grad(f)(h.array(3.0))


@scenario(transform="grad of jvp")
def gradient_of_the_tangent(h: Checked) -> None:
    """The tangent is that of the jvp also where it is differentiated in its direction.

    Expect x ** 2 with the vjp 30 ct and the jvp 20 t, at 3: the tangent has the gradient 20 in t.
    """
    found = h.grad(lambda t: h.jvp(_of_two_rules(h), h.array(3.0), t)[1])(h.array(1.0))
    h.assert_equal(found, 20.0, "the gradient of the tangent in the direction")


@scenario(transform=("grad", "jvp", "grad of jit", "grad of grad"))
def tangent_of_a_constant(h: Checked, transforms: str) -> None:
    """A jvp gets zeros for an argument that is not differentiated, and None for integers, under {transforms}.

    Expect f(a, b, n) = a b with the jvp 30 b da + 20 a db alone, of x and the constant 3 at either place, beside an
    integer: the derivatives 90 and 60, and 0 of these.
    """
    seen: list[Any] = []

    def jvp(tangents: Any, _: Any, a: Any, b: Any, __: Any) -> Any:
        return 30.0 * b * tangents[0] + 20.0 * a * noted(seen, tangents[2], tangents[1])

    f, c, n = ruled(h, lambda a, b, _: a * b, jvp=jvp), h.array(3.0), h.array(2)
    compare(h, transforms, lambda x: f(x, c, n), lambda x: [3.0 * x, 90.0, 0.0])
    compare(h, transforms, lambda x: f(c, x, n), lambda x: [3.0 * x, 60.0, 0.0])
    h.check(all(tangent is None for tangent in seen), f"the tangents of the integer are {seen!r:.80}")


@scenario(source=FUNCTION_SOURCE)
def cotangent_counts(h: Checked) -> None:
    """What follows the function arrives in its rule as the cotangent.

    Expect 7 f(x) + f(x) ** 2 with f = x ** 2 with the derivative 3 x ** 2, at 2: 44, gradient 12 (7 + 2 f) = 180.
    """
    f = ruled(h, square, vjp_of_cube)
    h.assert_value_and_grad(lambda x: 7.0 * f(x) + f(x) * f(x), [h.array(2.0)], 44.0, 180.0)


@scenario(rule="D3", also_needs=("counter",), source=FUNCTION_SOURCE)
def function_is_not_differentiated(h: Checked) -> None:
    """The operations in the function are never differentiated.

    Expect of x ** 2 computed by an operation that counts its derivatives, the gradient 7 of the rule, and 0 runs.
    """
    identity, count = h.counter()
    f = ruled(h, lambda x: identity(x) * x, lambda ct, *_: (7.0 * ct,))
    h.assert_value_and_grad(f, [h.array(3.0)], 9.0, 7.0)
    h.check(count() == 0, f"the derivative of an operation in the function was taken {count()} times")


@scenario(rule="D3", transform=("grad", "jvp", "grad of jit", "jvp of vmap"))
def without_a_rule(h: Checked, transforms: str) -> None:
    """A function that was given no rule runs plain, and raises under {transforms}.

    Expect f = x ** 2 without a rule: 4 at 2 plain, an error of this package under a derivative.
    """
    f = ruled(h, square)
    h.assert_equal(f(h.array(2.0)), 4.0, "the plain value")
    with h.raises(RuleError, GradientPreventedError, words=["rule"]):
        h.nest(transforms, f)(h.array(2.0))


@scenario(rule="D3")
def structure_without_a_rule(h: Checked) -> None:
    """A function of structures that was given no rule raises where it is differentiated.

    Expect x ** 2 in a dict, of a function without a rule: an error in a gradient by what is in a list or by name.
    """
    f = ruled(h, lambda xs, *, y: {"z": xs[0] * y})
    c = h.array(2.0)
    h.assert_equal(f([c, "text"], y=c)["z"], 4.0, "the plain value")
    for call in (lambda x: f([x, "text"], y=c)["z"], lambda x: f([c, "text"], y=x)["z"]):
        with h.raises(RuleError, GradientPreventedError, words=["rule"]):
            h.grad(call)(c)


def _reciprocal(x: float) -> list[float]:
    return [1 / x, -(x**-2), 2 * x**-3, -6 * x**-4, 24 * x**-5]


_ORDERS = ("grad of grad of grad", "jvp of jvp", "grad of jit of grad", "jvp of grad of vmap")


@scenario(
    rule="D4", source="jaxopt: Hessians through a rule: https://github.com/google/jaxopt/issues/474", transform=_ORDERS
)
def rule_of_the_result(h: Checked, transforms: str) -> None:
    """A result carries its derivative in the rule, under {transforms}.

    Expect 1 / x, with the rule -ct y ** 2 of its result y, at 2.5, and its derivatives.
    """
    compare(h, transforms, ruled(h, lambda x: 1.0 / x, lambda ct, y, _: (-ct * y * y,)), _reciprocal)


@scenario(rule="D4", transform=_ORDERS)
def rule_of_the_function(h: Checked, transforms: str) -> None:
    """A rule may call its own function, under {transforms}.

    Expect 1 / x = f, with the rule -ct f(x) ** 2, at 2.5, and its derivatives.
    """
    f = ruled(h, lambda x: 1.0 / x)
    f.defvjp(lambda ct, _, x: (-ct * f(x) * f(x),))
    compare(h, transforms, f, _reciprocal)


def _asking(h: Checked) -> Any:
    """Return x ** 2, whose rules return 3 x where x is differentiated in them, else 5 x."""
    return ruled(
        h, square, lambda ct, _, x: (ct * h.scale(x, 3.0, 5.0),), lambda tangents, _, x: tangents[0] * h.probe(x)
    )


@scenario(
    rule="D5",
    transform="grad of grad",
    source="NNlib: a rule that knows whether it is differentiated: https://github.com/FluxML/NNlib.jl/pull/434",
)
def asked_in_a_rule(h: Checked) -> None:
    """In a rule the arguments are tracked by an outer gradient.

    Expect a rule that returns 3 x where x is tracked, else 5 x: the second derivative 3.
    """
    h.assert_equal(h.grad(h.grad(_asking(h)))(h.array(2.0)), 3.0)


@scenario(rule="D5", transform="jvp of jvp")
def asked_in_a_jvp(h: Checked) -> None:
    """In a jvp the arguments are constants for its own level, and tracked by an outer one.

    Expect a jvp that returns 3 x where x is tracked, else 5 x, at 2: the tangent 10; the second derivative 3.
    """
    f, x, one = _asking(h), h.array(2.0), h.array(1.0)
    h.assert_value_and_tangent(f, x, one, 4.0, 10.0)
    h.assert_value_and_tangent(lambda x: h.jvp(f, x, one)[1], x, one, 6.0, 3.0)


@scenario(rule="D5", transform=("grad", "jvp", "grad of grad", "jvp of jit"))
def asked_in_the_function(h: Checked, transforms: str) -> None:
    """In the function itself nothing is differentiated, under {transforms}.

    Expect 3 x where the function finds x tracked, else 5 x, with the rule ct x ** 2, at 2.5: the derivatives of x ** 3
    / 3, and the value 12.5.
    """
    f = ruled(h, h.probe, lambda ct, _, x: (ct * x * x,))
    compare(h, transforms, f, lambda x: [5 * x, x**2, 2 * x, 2.0])


def _of_complex(h: Checked, *modes: str) -> Any:
    """Return the real part of c f(z x) for f = z ** 2 with the derivative 10 z: the gradient in x is -100 x."""
    import numpy as np

    try:
        z, c = h.array(1.0 + 2.0j), h.array(2.0 + 1.0j)
    except (TypeError, ValueError, NotImplementedError) as error:
        msg = f"the system has no complex arrays: {error}"
        raise Absent(msg) from error
    lift: Any = h.operations().get("complex") if h.has("operations") else None
    h.absent_if(lift is None, "the system names no operation from real numbers to complex ones")
    real = ruled(h, hosted(h, np.real, like=np.real), lambda ct, *_: (lift(ct),))
    real.defjvp(lambda tangents, *_: real(tangents[0]))
    rules: dict[str, Any] = {"vjp": lambda ct, _, z: (10.0 * ct * z,), "jvp": lambda ts, _, z: 10.0 * ts[0] * z}
    f = ruled(h, square, **{mode: rules[mode] for mode in modes})
    return lambda x: real(c * f(z * lift(x)))


@scenario(rule="D12", source=_COMPLEX, also_needs=("operations",))
def complex_cotangents(h: Checked) -> None:
    """No cotangent is conjugated, by either rule.

    Expect Re(c f(z x)) with c = 2 + i, z = 1 + 2 i and f(z) = z ** 2, the vjp 10 ct z, at 0.5: -2.5, gradient -50.
    """
    for mode in ("vjp", "jvp"):
        h.assert_value_and_grad(_of_complex(h, mode), [h.array(0.5)], -2.5, -50.0, f"by the {mode}")


@scenario(rule="D12", source=_COMPLEX, transform="jvp", also_needs=("operations",))
def complex_tangents(h: Checked) -> None:
    """No tangent is conjugated, by either rule.

    Expect as for cotangents: the tangent -50 by the vjp and by the jvp.
    """
    x, one = h.array(0.5), h.array(1.0)
    for mode in ("vjp", "jvp"):
        h.assert_value_and_tangent(_of_complex(h, mode), x, one, -2.5, -50.0, f"by the {mode}")


@scenario(rule="D14", transform="grad of vmap of jit")
def traced_before_the_rows(h: Checked) -> None:
    """A function that was traced before it is called in a batch keeps its rule there.

    Expect x ** 2 with the rule 3 x ** 2, traced by a plain call at 2, then in rows at 2 and 3: gradients 12 and 27.
    """
    f = h.jit(ruled(h, square, vjp_of_cube))
    h.assert_equal(f(h.array(2.0)), 4.0, "the plain call")
    h.assert_equal(h.grad(lambda v: h.sum_of_rows(f, v))(h.array([2.0, 3.0])), [12.0, 27.0], "the gradients")


@scenario(
    rule="D3",
    source="MLX, transformations inside of each other: https://ml-explore.github.io/mlx/build/html/usage/function_transforms.html",
    transform=("grad", "jvp", "grad of jit", "grad of vmap"),
    also_needs=("grad", HIGHER_ORDER),
)
def after_an_inner_gradient(h: Checked, transforms: str) -> None:
    """Of what a gradient inside has closed over the derivative is that of the rule, under {transforms}.

    Expect f(y) = y ** 2 with the rule 3 y ** 2, for y = x ** 2, which a gradient inside has closed over: the derivative
    is 192 at 2; for rows y and 2 y it is 1728.
    """
    outer, _, inner = transforms.partition(" of ")
    x = h.array(2.0)

    def run(layer: Callable[[Any], Any]) -> Any:
        return h.nest(outer, behind_a_gradient(h, h.nest(inner, layer)))(x)

    h.require_native(lambda: run(lambda y: 4.0 * y), 48.0 if inner == "vmap" else 16.0)
    h.assert_equal(run(ruled(h, square, vjp_of_cube)), 1728.0 if inner == "vmap" else 192.0)


_NESTINGS = (*SINGLE, *DERIVATIVE_PAIRS)
_TRACED_OR_BATCHED = tuple(name for name in _NESTINGS if set(nesting.parse(name)) - set(nesting.DERIVATIVES))


def _sum(x: float) -> list[float]:
    """Return the derivatives of twice x ** 2, by the rules those of x ** 3 and of 5 / 3 of it."""
    return [2 * x**2, 8 * x**2, 16 * x, 16.0, 0.0]


def in_each_mode(h: Checked, transforms: str) -> None:
    """A vjp and a jvp, the only rules of their functions, serve both modes under {transforms}.

    Expect {transforms} of twice x ** 2 at 2.5, where the rules say 3 x ** 2 and 5 x ** 2.
    """
    by_vjp = ruled(h, square, vjp_of_cube)
    by_jvp = ruled(h, square, jvp=lambda tangents, _, x: 5.0 * tangents[0] * x * x)
    compare(h, transforms, lambda x: by_vjp(x) + by_jvp(x), _sum)


grid("custom_derivative/", _TRACED_OR_BATCHED, rule="D14")(in_each_mode)


grid("custom_derivative/", sorted(set(_NESTINGS) - set(_TRACED_OR_BATCHED)), rule="D4")(in_each_mode)


@scenario(rule="D14", source=_SUMS, transform="grad of vmap")
def shared_by_rows(h: Checked) -> None:
    """The gradient of what the rows share is the sum over the rows.

    Expect the sum over v = (1, 2) of w v with the gradients 10 v in w, 20 w in v, at w = 3: 9, gradient 30 in w, (60,
    60) in v; with the jvp alone as well.
    """

    def jvp(tangents: Any, _: Any, w: Any, v: Any) -> Any:
        return 10.0 * tangents[0] * v + 20.0 * tangents[1] * w

    w, rows = h.array(3.0), h.array([1.0, 2.0])
    for rules in ({"vjp": lambda ct, _, w, v: (10.0 * ct * v, 20.0 * ct * w)}, {"jvp": jvp}):
        f = ruled(h, product, **rules)
        h.assert_value_and_grad(lambda w: h.sum_of_rows(lambda v: f(w, v), rows), [w], 9.0, 30.0, "shared")
        in_rows = h.grad(lambda v: h.sum_of_rows(lambda v: f(w, v), v))(rows)
        h.assert_equal(in_rows, [60.0, 60.0], "the gradient in the rows")


@scenario(
    source="JAX: axes that vmap maps: https://docs.jax.dev/en/latest/_autosummary/jax.vmap.html",
    rule="D14",
    transform="grad of vmap",
)
def rows_of_more_axes(h: Checked) -> None:
    """An argument that a row has broadcast keeps its axes, in the function and in the rule.

    Expect f(x v, v) for rows x = (1, 2) and v = (1, 2, 3), with f(a, b) = a b and the gradients 10 b and 20 a: ((1, 4,
    9), (2, 8, 18)); of two elements, weighed with 1 and 10, the gradients 40 and 900.
    """

    def jvp(tangents: Any, _: Any, a: Any, b: Any) -> Any:
        return 10.0 * tangents[0] * b + 20.0 * tangents[1] * a

    rows, v = h.array([1.0, 2.0]), h.array([1.0, 2.0, 3.0])
    for rules in ({"vjp": lambda ct, _, a, b: (10.0 * ct * b, 20.0 * ct * a)}, {"jvp": jvp}):
        f = ruled(h, product, **rules)

        def run(rows: Any, f: Any = f) -> Any:
            return h.vmap(lambda x: f(x * v, v))(rows)

        h.assert_equal(run(rows), [[1.0, 4.0, 9.0], [2.0, 8.0, 18.0]])
        slope = h.grad(lambda rows, run=run: run(rows)[0][1] + 10.0 * run(rows)[1][2])(rows)
        h.assert_equal(slope, [40.0, 900.0], "the gradient")


@scenario(transform=("vmap of grad", "vmap of jvp"), rule="D14")
def derivatives_by_rows(h: Checked, transforms: str) -> None:
    """Under {transforms} each row has its own derivative, also of what all rows share.

    Expect w v, at w = 3 and v = (1, 2), with the vjp 10 v, 20 w and the jvp 30 v, 40 w: in w (10, 20) and (30, 60), in
    v (60, 60) and (120, 120); a gradient that is not needed is not computed.
    """

    def jvp(tangents: Any, _: Any, w: Any, v: Any) -> Any:
        return 30.0 * tangents[0] * v + 40.0 * tangents[1] * w

    (f, runs), w, rows = noting_product(h, jvp), h.array(3.0), h.array([1.0, 2.0])
    mode, factor = transforms.partition(" of ")[2], 10.0 if "grad" in transforms else 30.0
    shared = h.vmap(lambda v: h.nest(mode, lambda w: f(w, v))(w))(rows)
    h.assert_equal(shared, [factor, 2.0 * factor], "the derivatives in what is shared")
    h.check("y" not in runs, "the gradient of the rows was computed in vain")
    own = h.vmap(h.nest(mode, lambda v: f(w, v)))(rows)
    h.assert_equal(own, [60.0, 60.0] if mode == "grad" else [120.0, 120.0], "the derivatives in the rows")
