"""Transformations as text: what they do, and the closed forms of what must come out, each told by the other."""

import pytest
import toyad
from numpy.polynomial import Polynomial
from toyad_harness import ToyHarness

from adprotocol.conformance import checked, nesting

ALL = [*nesting.TRANSFORMS, *nesting.pairs()]
H = checked(ToyHarness())
WAVES = Polynomial([1.0, -2.0, 0.5, 0.25, 1.0, 0.125])


def table(x):
    return [float(WAVES.deriv(order)(x)) if order else float(WAVES(x)) for order in range(6)]


def waves(x):
    return sum((c * x**k for k, c in enumerate(WAVES.coef) if k), start=WAVES.coef[0] + 0.0 * x)


def came_out(transforms, fun, x):
    return float(H.numpy(nesting.apply(H, transforms, fun)(toyad.array(x))))


@pytest.mark.parametrize("transforms", ["", *ALL])
def test_the_closed_form_is_what_comes_out(transforms):
    assert came_out(transforms, waves, 0.75) == pytest.approx(nesting.expected(transforms, table)(0.75)[0])


@pytest.mark.parametrize(
    ("transforms", "differentiates", "before"),
    [
        ("", False, None),
        ("jit", False, None),
        ("jit of vmap", False, None),
        ("grad", True, ""),
        ("jvp of jit", True, "jit"),
        ("jit of grad", True, None),
        ("grad of jit of jvp", True, "jit of jvp"),
    ],
)
def test_what_differentiates_and_which_value_comes_along(transforms, differentiates, before):
    assert nesting.differentiates(transforms) is differentiates
    assert nesting.value_before(transforms) == before
