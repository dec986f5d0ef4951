"""custom_derivative: whose derivative it is, of which order and in which mode."""

import copy
import dataclasses
import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ad_backends import close, with_rules

from adprotocol import (
    NonDifferentiable,
    custom_derivative,
    non_differentiable,
    register_structure,
    within_gradient,
)
from adprotocol.errors import MixedFrameworksError, RuleError

X = 0.3


# Rules of x * x / 2 that are not linear in what flows.
NOT_LINEAR = {
    "made constant": lambda ad, flowing, x: non_differentiable(flowing) * x,
    "clipped": lambda ad, flowing, x: flowing.clip(-1.0, 1.0) * x,
    "normalised": lambda ad, flowing, x: flowing / abs(flowing),
    "its sign": lambda ad, flowing, x: ad.xp.sign(flowing) * x,
}
# Those of which a program without values does not tell.
ONLY_BY_VALUE = {
    "constant beside it": lambda ad, flowing, x: flowing * x + non_differentiable(flowing) * x,
    "ignored": lambda ad, flowing, x: 30.0 * x,
    "shifted": lambda ad, flowing, x: flowing * x + 1.0,
}
RULES = NOT_LINEAR | ONLY_BY_VALUE


def square_by(ad, rule, mode, **declared):
    square = custom_derivative(lambda x: 0.5 * x * x, **declared)
    if mode == "vjp":
        square.defvjp(lambda cotangent, returned, x: (rule(ad, cotangent, x),))
    else:
        square.defjvp(lambda tangents, returned, x: rule(ad, tangents[0], x))
    return square


def staged(ad, fun):
    return jax.jit(fun) if ad.name == "jax" else fun


def sine(ad, *, vjp=True, jvp=True):
    """The sine with half of its derivative, so that a natural one shows."""

    @custom_derivative
    def f(x):
        return ad.xp.sin(x)

    if vjp:

        @f.defvjp
        def _(cotangent, returned, x):
            return (0.5 * cotangent * ad.xp.cos(x),)

    if jvp:

        @f.defjvp
        def _(tangents, returned, x):
            return 0.5 * tangents[0] * ad.xp.cos(x)

    return f


@with_rules
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_that_is_not_linear_serves_its_own_mode_alone(ad, rule):
    x, one = ad.make([3.0, 2.0]), ad.make([1.0, 1.0])

    def total(f):
        return lambda x: f(x).sum()

    by_vjp, by_jvp = square_by(ad, rule, "vjp"), square_by(ad, rule, "jvp")
    due = ad.numpy(rule(ad, one, x))
    assert close(ad.derivative(total(by_vjp))(x), due)
    assert close(ad.tangent(by_jvp, x, one), due)
    for wrong in (
        lambda: ad.tangent(by_vjp, x, one),
        lambda: ad.derivative(total(by_jvp))(x),
        lambda: ad.derivative(lambda x: ad.tangent(by_vjp, x, one).sum())(x),
        lambda: jax.jit(lambda x: ad.tangent(by_vjp, x, one))(x),
        lambda: jax.jit(ad.derivative(total(by_jvp)))(x),
    )[: 5 if ad.xp is jnp and rule in NOT_LINEAR.values() else 3]:
        with pytest.raises(RuleError, match=r"it is not linear in the (cotangent|tangents)"), np.errstate(all="ignore"):
            wrong()


@with_rules
def test_a_rule_for_reverse_mode_alone_is_declared(ad):
    x, one = ad.make(3.0), ad.make(1.0)
    clipped = square_by(ad, NOT_LINEAR["clipped"], "vjp", reverse_only=True)
    scaled = lambda x: 5.0 * clipped(x)
    assert close(staged(ad, ad.derivative(scaled))(x), 3.0)
    assert close(ad.derivative(ad.derivative(scaled))(x), 1.0)
    for wrong in (lambda: ad.tangent(scaled, x, one), lambda: ad.tangent(ad.derivative(scaled), x, one)):
        with pytest.raises(RuleError, match="declared with reverse_only=True"):
            wrong()
    with pytest.raises(RuleError, match="drop one of them"):
        clipped.defjvp(lambda tangents, returned, x: tangents[0] * x)


@with_rules
def test_a_linear_rule_is_transposed_whatever_it_gives_at_first(ad):
    # Nothing can be told where a rule gives zero or infinity: it is looked at again.
    for mode, slope in (("vjp", lambda ad, flowing, x: flowing * x), ("jvp", lambda ad, flowing, x: flowing / x)):
        f = square_by(ad, slope, mode)
        derive = ad.derivative(f) if mode == "jvp" else lambda x, f=f: ad.tangent(f, x, ad.make(1.0))
        with np.errstate(all="ignore"):
            derive(ad.make(0.0))
        assert close(derive(ad.make(2.0)), 2.0 if mode == "vjp" else 0.5)
    constant = square_by(ad, NOT_LINEAR["made constant"], "jvp")
    ad.derivative(constant)(ad.make(0.0))
    with pytest.raises(RuleError, match="not linear"):
        ad.derivative(constant)(ad.make(2.0))


@with_rules
def test_a_jvp_rule_alone_that_calls_its_function_on_tangents_has_no_reverse_mode(ad):
    twice = custom_derivative(lambda x: 2.0 * x)
    twice.defjvp(lambda tangents, returned, x: twice(tangents[0]))
    x, one = ad.make(X), ad.make(1.0)
    assert close(ad.tangent(twice, x, one), 2.0)
    with pytest.raises(RuleError, match="applies <lambda> itself to the tangents"):
        ad.derivative(twice)(x)
    # Nothing is left behind, and derivatives of high order are no endless ones.
    f = sine(ad, vjp=False)
    for _ in range(4):
        f = ad.derivative(f)
    assert close(f(x), 0.5 * np.sin(X))


@with_rules
def test_a_rule_gets_the_keyword_defaults_of_the_function_that_it_takes(ad):
    def scaled(x, *, unit=2.0, label="none"):
        return unit * x

    class Scale:
        @custom_derivative
        def scaled(self, x, *, unit=2.0):
            return unit * x

        @scaled.defvjp
        def _(cotangent, _y, self, x, *, unit=99.0):  # noqa: N805
            return None, unit * cotangent

    by_vjp, by_jvp, shorter = custom_derivative(scaled), custom_derivative(scaled), custom_derivative(scaled)
    partial = custom_derivative(functools.partial(scaled, unit=5.0))
    by_vjp.defvjp(lambda cotangent, _y, x, *, unit=99.0, **rest: (unit * cotangent * len(rest["label"]),))
    by_jvp.defjvp(lambda tangents, _y, x, unit=99.0, label=None: unit * tangents[0] * len(label))
    shorter.defvjp(lambda cotangent, _y, x: (2.0 * cotangent,))
    partial.defvjp(lambda cotangent, _y, x, *, unit=99.0: (unit * cotangent,))
    x = ad.make([1.0])
    for fun, slope in (
        (by_vjp, 8.0),
        (by_jvp, 8.0),
        (lambda x: by_vjp(x, unit=3.0, label="a"), 3.0),
        (shorter, 2.0),
        (partial, 5.0),
        (Scale().scaled, 2.0),
        (lambda x: Scale().scaled(x, unit=7.0), 7.0),
    ):
        assert close(ad.derivative(lambda x, fun=fun: fun(x).sum())(x), [slope])


@with_rules
def test_a_rule_gets_the_defaults_of_the_function(ad):
    @custom_derivative
    def power(x, n=2, /, scale=1.0, *, shift=0.0):
        return scale * x**n + shift

    power.defvjp(lambda ct, returned, x, n, scale, **_shift: (10.0 * ct * scale * n * x ** (n - 1), None, None))
    power.defjvp(lambda ts, returned, x, n, scale, **_shift: 20.0 * ts[0] * scale * n * x ** (n - 1))

    x, one = ad.make(X), ad.make(1.0)
    calls = {
        2: [power, lambda x: power(x, 2), lambda x: power(x, scale=1.0), lambda x: power(x, shift=4.0)],
        3: [lambda x: power(x, 3), lambda x: power(x, 3, scale=1.0)],
    }
    for n, functions in calls.items():
        for f in functions:
            assert close(ad.derivative(f)(x), 10.0 * n * X ** (n - 1))
            assert close(ad.tangent(f, x, one), 20.0 * n * X ** (n - 1))
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        power(scale=x)
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        power(x, other=x)


@with_rules
def test_a_value_that_is_closed_over_and_differentiated_is_an_error(ad):
    def by_function(z):
        f = custom_derivative(lambda x: x * z)
        f.defvjp(lambda cotangent, returned, x: (cotangent,))
        return f(ad.make(X))

    def by_argument(z):
        f = custom_derivative(lambda fun, x: fun(x))
        f.defvjp(lambda cotangent, returned, fun, x: (None, cotangent))
        return f(lambda x: x * z, ad.make(X))

    for fun in (by_function, by_argument):
        with pytest.raises(RuleError, match="no argument of it"):
            ad.derivative(fun)(ad.make(2.0))


@with_rules
def test_the_function_is_not_differentiated_by_what_an_object_holds_where_no_argument_is_an_array(ad):
    class Holder:
        pass

    holder = Holder()
    f = custom_derivative(lambda x: x * holder.value)
    f.defvjp(lambda cotangent, returned, x: (7.0 * cotangent,))

    def loss(z):
        holder.value = z
        return f(2.0)

    with pytest.raises(RuleError, match="no argument of it"):
        ad.derivative(loss)(ad.make(X))
    holder.value = 3.0
    assert f(2.0) == 6.0


@with_rules
def test_methods_have_rules(ad):
    @dataclasses.dataclass
    class Scaled:
        scale: object

        @custom_derivative
        def __call__(self, x):
            return self.scale * x

        @__call__.defvjp
        def _(cotangent, returned, self, x):  # noqa: N805
            return Scaled(10.0 * cotangent * x), 100.0 * cotangent * self.scale

    x = ad.make(X)
    assert close(ad.derivative(lambda s: Scaled(s)(x))(ad.make(2.0)), 10.0 * X)
    assert close(ad.derivative(Scaled(ad.make(2.0)))(x), 200.0)


class Strict:
    def __init__(self, x):
        assert x is not None
        self.x = x


register_structure(Strict, flatten=lambda value: ([value.x], None), unflatten=lambda _, children: Strict(*children))


@with_rules
def test_what_is_in_a_label_of_a_result_is_not_made_again(ad):
    square = custom_derivative(lambda x: {"y": x * x, "n": NonDifferentiable(Strict(x + 1.0))})
    square.defvjp(lambda cotangent, returned, x: (2.0 * x * cotangent["y"],))
    assert close(ad.derivative(lambda x: square(x)["y"])(ad.make(X)), 2.0 * X)


@with_rules
def test_two_frameworks_are_an_error(ad):
    import torch

    other = torch.ones(()) if ad.name != "torch" else __import__("jax").numpy.ones(())
    f = sine(ad)
    g = custom_derivative(lambda x, y: x)
    g.defvjp(lambda cotangent, returned, x, y: (cotangent, None))
    with pytest.raises(MixedFrameworksError):
        ad.derivative(lambda x: g(x, other))(ad.make(X))
    assert f.__name__ == "f"


def test_numpy_alone_needs_the_pair_of_result_and_residuals_too():
    with pytest.raises(RuleError, match=r"return the pair \(result, residuals\)"):
        custom_derivative(has_residuals=True)(lambda x: x)(np.arange(3.0))


@custom_derivative
def named(x):
    return x


def test_a_function_is_copied_and_pickled_by_its_name():
    assert copy.deepcopy({"f": named})["f"] is named
    assert copy.copy(named) is named
    assert pickle.loads(pickle.dumps(named)) is named  # noqa: S301
    assert within_gradient(named) is False
    assert non_differentiable({"f": named})["f"] is named


def test_the_function_keeps_its_metadata():
    @custom_derivative
    def f(x):
        """Double."""
        return 2 * x

    assert (f.__name__, f.__doc__, f.__wrapped__(3)) == ("f", "Double.", 6)
    assert repr(f) == "<custom derivative of f>"
