"""What a rule must not return, and how it is told so."""

import numpy as np
import pytest
from ad_backends import close, with_rules

from adprotocol import custom_derivative
from adprotocol.errors import RuleError


def returning(gradients, tangent=None):
    @custom_derivative
    def f(x, d):
        return x * d["w"]

    f.defvjp(lambda cotangent, returned, x, d: gradients)
    if tangent is not None:
        f.defjvp(lambda tangents, returned, x, d: tangent)
    return f


def differentiated(ad, f):
    return ad.derivative(lambda x: f(x, {"w": x}).sum())(ad.make([1.0, 2.0]))


@with_rules
@pytest.mark.parametrize(
    ("gradients", "message"),
    [
        (None, "the vjp rule of f returned a NoneType; return a tuple with one gradient for each of the 2"),
        (np.ones(2), "the vjp rule of f returned an ndarray"),
        ([np.ones(2), None], "the vjp rule of f returned a list"),
        ((np.ones(2),), "the vjp rule of f returned a tuple of 1"),
        ((np.ones(2), None, None), "the vjp rule of f returned a tuple of 3"),
        (
            (np.ones(3), None),
            r"an array of shape \(3,\) as the gradient for argument 0, which is an array of shape \(2,\)",
        ),
        ((np.ones((2, 1)), None), r"an array of shape \(2, 1\) as the gradient for argument 0"),
        ((1.0, None), r"an array of shape \(\) as the gradient for argument 0, which is an array of shape \(2,\)"),
        ((lambda: np.ones(3), None), r"an array of shape \(3,\) as the gradient for argument 0"),
        (
            (np.ones(2) * 1j, None),
            "a complex array as the gradient for argument 0, which is real; return its real part",
        ),
        (("text", None), "returned a str as the gradient for argument 0, which is an array"),
        (([1.0, 2.0], None), "returned a list as the gradient for argument 0"),
        ((None, np.ones(2)), "returned an ndarray as the gradient for argument 1, which is a dict of 'w'"),
        ((None, {"v": np.ones(2)}), "returned a dict of 'v' as the gradient for argument 1, which is a dict of 'w'"),
        ((None, {}), "returned a dict of nothing as the gradient for argument 1"),
        ((None, {"w": np.ones(3)}), r"an array of shape \(3,\) as the gradient for argument 1 at 'w'"),
        ((None, [np.ones(2)]), "returned a list of 1 as the gradient for argument 1"),
        ((x for x in ()), "the vjp rule of f returned a generator"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, str) else "",
)
def test_a_gradient_of_another_count_structure_shape_or_kind(ad, gradients, message):
    with pytest.raises(RuleError, match=message):
        differentiated(ad, returning(gradients))


@with_rules
@pytest.mark.parametrize(
    ("tangent", "message"),
    [
        (np.ones(3), r"the jvp rule of f returned an array of shape \(3,\) as the tangent of the result"),
        ((np.ones(2),), "the jvp rule of f returned a tuple as the tangent of the result"),
        (np.ones(2) * 1j, "a complex array as the tangent of the result, which is real"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, str) else "",
)
def test_a_tangent_of_another_structure_shape_or_kind(ad, tangent, message):
    f = returning((None, None), tangent)
    x = ad.make([1.0, 2.0])
    with pytest.raises(RuleError, match=message):
        ad.tangent(lambda x: f(x, {"w": x}), x, x)


@with_rules
@pytest.mark.parametrize(
    ("result", "message"),
    [(None, "returned a NoneType"), ((x for x in ()), "returned a generator")],
    ids=["None", "generator"],
)
def test_a_function_has_to_return_something_to_differentiate(ad, result, message):
    f = custom_derivative(lambda x: result)
    f.defvjp(lambda cotangent, returned, x: (None,))
    with pytest.raises(RuleError, match=message):
        ad.derivative(lambda x: f(x) or x)(ad.make(1.0))


@with_rules
def test_residuals_have_to_be_returned_beside_the_result(ad):
    f = custom_derivative(has_residuals=True)(lambda x: x * 2.0)
    f.defvjp(lambda cotangent, returned, x: (None,))
    with pytest.raises(RuleError, match=r"return the pair \(result, residuals\)"):
        ad.derivative(f)(ad.make(1.0))


def two_arguments(x, y):
    return x * y


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda: custom_derivative(3.0), "was given a float, which is not a function"),
        (lambda: custom_derivative(staticmethod(two_arguments)), "put custom_derivative below @staticmethod"),
        (lambda: custom_derivative(two_arguments).defvjp(None), "two_arguments.defvjp was given a NoneType"),
    ],
    ids=["no function", "staticmethod", "no rule"],
)
def test_misuse_is_told_at_once(misuse, message):
    with pytest.raises(RuleError, match=message):
        misuse()


@with_rules
def test_a_rule_that_takes_other_arguments(ad):
    f = custom_derivative(lambda x: x * 2.0)
    f.defvjp(lambda cotangent, returned: (cotangent,))
    words = r"\(cotangent, returned, \*args\).* takes 2 positional arguments but 3 were given"
    with pytest.raises(RuleError, match=words):
        ad.derivative(f)(ad.make(1.0))
    g = custom_derivative(lambda x: x * 2.0)
    g.defvjp(lambda cotangent, returned, x: (len(3),))
    with pytest.raises(TypeError, match="has no len") as raised:
        ad.derivative(g)(ad.make(1.0))
    assert not isinstance(raised.value, RuleError)


@with_rules
def test_a_rule_of_one_argument_may_return_the_gradient_itself(ad):
    f = custom_derivative(lambda x: x * 2.0)
    f.defvjp(lambda cotangent, returned, x: 7.0 * cotangent)
    assert close(ad.derivative(f)(ad.make(3.0)), 7.0)
    of_dict = custom_derivative(lambda d: d["a"] * 2.0)
    of_dict.defvjp(lambda cotangent, returned, d: {"a": 7.0 * cotangent})
    assert close(ad.derivative(lambda x: of_dict({"a": x}))(ad.make(3.0)), 7.0)
    of_tuple = custom_derivative(lambda pair: pair[0] * 2.0)
    of_tuple.defvjp(lambda cotangent, returned, pair: 7.0 * cotangent)
    forgotten = custom_derivative(lambda x: x * 2.0)
    forgotten.defvjp(lambda cotangent, returned, x: None)
    for wrong in (lambda x: of_tuple((x,)), forgotten):
        with pytest.raises(RuleError, match="return a tuple with one gradient"):
            ad.derivative(wrong)(ad.make(3.0))


def test_a_second_rule_is_an_error():
    f = custom_derivative(two_arguments)
    f.defvjp(lambda cotangent, returned, x, y: (y, x))
    with pytest.raises(RuleError, match="was given a second rule"):
        f.defvjp(lambda cotangent, returned, x, y: (y, x))
    f.defjvp(lambda tangents, returned, x, y: x)


@with_rules
def test_an_object_that_hides_a_differentiated_value_is_an_error(ad):
    class Hidden:
        def __init__(self, value):
            self.value = value

    f = custom_derivative(lambda hidden: hidden.value * 2.0)
    f.defvjp(lambda cotangent, returned, hidden: (None,))
    with pytest.raises(TypeError, match="Hidden"):
        ad.derivative(lambda x: f(Hidden(x)))(ad.make(1.0))
    result = custom_derivative(lambda x: Hidden(x))  # noqa: PLW0108
    result.defvjp(lambda cotangent, returned, x: (None,))
    if ad.name != "autograd":  # inside whose primitive the value is NumPy's
        with pytest.raises(TypeError, match="Hidden"):
            ad.derivative(lambda x: result(x).value)(ad.make(1.0))
