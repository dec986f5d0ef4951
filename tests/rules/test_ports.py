"""The rules of docs/ported_rules.md, as they stand there, on every framework."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from ad_backends import AUTOGRAD, JAX, close, with_rules

import adprotocol
from adprotocol.conformance import check_rule
from adprotocol.errors import GradientPreventedError

PAGE = Path(__file__).parents[2] / "docs" / "ported_rules.md"
DEFINES = re.compile(r"(?:@|def |from scipy)")


def ported():
    """Run the blocks of the section that define, and none of those that show a result."""
    found = {"np": np, "custom_derivative": adprotocol.custom_derivative, "host_function": adprotocol.host_function}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        if DEFINES.match(code):
            exec(code, found)  # noqa: S102  (the page is ours)
    return SimpleNamespace(**found)


port = ported()


def with_known_gradient(x):
    return port.set_gradients((x**2).sum(), (x,), (2.0 * adprotocol.non_differentiable(x),))


@with_rules
def test_the_gradient_that_is_set_is_the_whole_one(ad):
    x = ad.make([1.0, -3.0])
    assert close(ad.derivative(with_known_gradient)(x), [2.0, -6.0])
    assert close(ad.derivative(lambda x: 5.0 * with_known_gradient(x))(x), [10.0, -30.0])
    assert close(ad.tangent(with_known_gradient, x, ad.make([1.0, 1.0])), -4.0)


@with_rules
def test_its_second_derivative_raises(ad):
    gradient = ad.derivative(with_known_gradient)
    with pytest.raises(GradientPreventedError, match="differentiated once"):
        ad.derivative(lambda x: (gradient(x) ** 2).sum())(ad.make([1.0, -3.0]))


A, B = np.array([0.5, 0.5]), np.array([0.3, 0.7])
COSTS = np.array([[0.1, 1.0], [0.9, 0.2]])
PLAN = np.array([[0.3, 0.2], [0.0, 0.5]])


@with_rules
def test_the_gradient_of_transport_by_its_costs_is_the_plan(ad):
    a, b, costs = map(ad.make, (A, B, COSTS))
    assert close(port.transport_cost(a, b, costs), (PLAN * COSTS).sum())
    assert close(ad.derivative(lambda costs: port.transport_cost(a, b, costs))(costs), PLAN)
    moved = ad.tangent(lambda b: port.transport_cost(a, b, costs), b, ad.make([1.0, -1.0]))
    assert close(moved, COSTS[0, 0] - COSTS[0, 1])


def density(seed, *, real=False):
    random = np.random.default_rng(seed)
    factor = random.normal(size=(3, 3)) + (0.0 if real else 1j) * random.normal(size=(3, 3))
    matrix = factor @ factor.conj().T
    return matrix / np.trace(matrix).real


def fidelity_of_both(x, make):
    first, second = make(density(1)), make(density(2))
    return port.fidelity(first + x * (second - first), second + x * x * (first - second))


@with_rules
def test_the_gradient_of_the_fidelity_is_that_of_finite_differences(ad):
    def value(x):
        return np.asarray(fidelity_of_both(x, np.asarray))

    want = (value(0.3 + 1e-5) - value(0.3 - 1e-5)) / 2e-5
    x = ad.make(0.3) + 0.0
    # Frameworks' own products of real and complex arrays are around the rule.
    got = ad.derivative(lambda x: fidelity_of_both(x, ad.make))(x)
    np.testing.assert_allclose(np.asarray(got), want, rtol=2e-3 if ad is JAX else 1e-5)


@with_rules
def test_the_fidelity_of_equal_states_has_a_gradient(ad):
    mixed = ad.make(np.eye(2) / 2.0)
    assert close(ad.derivative(lambda state: port.fidelity(state, mixed))(mixed), np.eye(2))


def test_every_mode_of_the_fidelity_agrees():
    # Its results are of real matrices only, since finite differences leave the Hermitian ones.
    report = check_rule(
        port.fidelity, density(1, real=True), density(2, real=True), backend=AUTOGRAD.name, finite_differences=False
    )
    assert report.findings
