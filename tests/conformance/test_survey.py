"""What is said once of a harness, before any scenario: whether gradients nest, and whether arrays are tracked."""

import numpy as np
import pytest
import toyad
from small import Autograd, Plain, ToyHarness, made, ran, toy

from adprotocol import conformance
from adprotocol.conformance.harness import HIGHER_ORDER


def nothing(h):
    """Ask nothing."""


def once(fun):
    """A gradient that refuses to be differentiated."""

    def gradient(x, *rest):
        if isinstance(x, toyad.Tracer):
            raise NotImplementedError("one level only")
        return toyad.grad(fun)(x, *rest)

    return gradient


@pytest.fixture
def plugin():
    with toy():
        yield


def test_gradients_that_nest_are_found_by_trying():
    assert ran(Autograd, nothing).capabilities[HIGHER_ORDER] == "there"


def test_a_refusal_makes_what_takes_second_derivatives_not_applicable(plugin):
    report = conformance.run(made(ToyHarness, grad=lambda self, fun: once(fun)), keywords=["grad-of-grad"])
    assert report.problems == ()
    assert report.capabilities[HIGHER_ORDER] == (
        "absent: the system itself refuses it: NotImplementedError: one level only"
    )
    by_id = {result.id: result for result in report.results}
    assert by_id["within_gradient/grad-of-grad"].outcome == "n/a"
    assert by_id["within_gradient/two-variables-grad-of-grad"].outcome == "n/a"
    assert "grad of grad" in by_id["within_gradient/grad-of-grad"].message


def test_a_reason_may_be_given(plugin):
    harness = made(ToyHarness, absent={HIGHER_ORDER: "there is one tape"})
    report = conformance.run(harness, keywords=["grad-of-grad"])
    assert report.capabilities[HIGHER_ORDER] == "absent: there is one tape"
    assert {result.outcome for result in report.results} == {"n/a"}


def test_a_wrong_second_derivative_is_a_fault_of_the_harness(plugin):
    harness = made(ToyHarness, grad=lambda self, fun: lambda x, *rest: toyad.stop_gradient(toyad.grad(fun)(x, *rest)))
    report = conformance.run(harness, keywords=["within_gradient/grad-of-grad"])
    assert [problem.where for problem in report.problems] == ["harness"]
    assert "grad of grad of x ** 3 at 3, without adprotocol, is 0.; 18. was expected" in report.problems[0].message
    assert {(result.outcome, result.cause) for result in report.results} == {("fail", "harness")}


def test_a_system_without_gradients_has_none_of_gradients():
    assert ran(Plain, nothing).capabilities[HIGHER_ORDER] == "absent: it needs grad"


def test_arrays_that_are_tracked_are_said_to_be_so_once():
    with toy(within_gradient=lambda value: True):
        report = ran(ToyHarness, nothing)
    assert [problem.where for problem in report.problems] == ["harness"]
    assert "within_gradient(array(3.0)) is True although nothing is differentiated" in report.problems[0].message
    assert ran(Plain, nothing).problems == ()


def test_settings_of_numpy_end_with_a_check(plugin):
    def grad(self, fun):
        np.seterr(all="raise")
        return toyad.grad(fun)

    before = np.geterr()
    assert ran(made(ToyHarness, grad=grad), nothing).ok
    assert np.geterr() == before


@pytest.mark.parametrize(("name", "words"), [("jti", "did you mean jit?"), ("zzz", "a helper's name begins with")])
def test_a_misspelt_capability_is_no_missing_one(plugin, name, words):
    report = ran(made(ToyHarness, **{name: lambda self, fun: fun}), nothing)
    assert [problem.where for problem in report.problems] == ["harness"]
    assert report.problems[0].message.startswith(f"{name} is no attribute of a harness; ")
    assert words in report.problems[0].message


def test_helpers_and_variants_have_names_of_their_own(plugin):
    members = {
        "_helper": lambda self: None,
        "grad_by_vjp": lambda self, fun: self.grad(fun),
        "variants": property(lambda self: {"grad": {"vjp": self.grad_by_vjp}}),
    }
    members["grad_by_vjp"].__name__ = "grad_by_vjp"
    assert ran(made(ToyHarness, **members), nothing).problems == ()


def test_an_attribute_of_an_instance_is_looked_at_too(plugin):
    harness = ToyHarness()
    harness.compiled = True
    assert "did you mean compile?" in ran(harness, nothing).problems[0].message


class Counting(ToyHarness):
    """Counts its own levels, and takes the gradient for a constant at the outermost of them."""

    _level = 0

    def grad(self, fun):
        gradient = super().grad(fun)

        def counted(*args):
            Counting._level += 1
            try:
                slope = gradient(*args)
            finally:
                Counting._level -= 1
            return slope if Counting._level else toyad.stop_gradient(slope)

        return counted


def test_a_gradient_that_counts_its_levels_is_found(plugin):
    harness = Counting
    report = ran(harness, nothing)
    assert report.capabilities["grad"].startswith("broken: ")
    assert "count no levels, for adprotocol.grad may enclose you" in report.problems[-1].message


def test_a_plugin_whose_gradients_do_not_nest_is_no_fault_of_the_harness():
    import toyad_adprotocol

    def constant(fun, leaves):
        value, aux, found = toyad_adprotocol.value_and_grad(fun, leaves)
        return value, aux, [toyad.stop_gradient(slope) for slope in found]

    with toy(value_and_grad=constant):
        assert ran(ToyHarness, nothing).problems == ()
