"""A case and its outcome: what the suite makes of a scenario that passes, fails, answers wrongly or does not apply."""

import contextlib
import warnings

import numpy as np
import pytest
import toyad
import toyad_adprotocol
from small import Autograd, ToyHarness, made, ran, scenarios, toy

from adprotocol.conformance import Absent, UsageError, checked, run
from adprotocol.conformance._run.result import EXPECTED, FAIL, HARNESS, NOT_APPLICABLE, PASS, PLUGIN, WRONG
from adprotocol.extend import Divergence


def passes(h):
    h.assert_equal(h.array(1.0), 1.0)


def answers_wrongly(h):
    h.assert_equal(h.array(1.0), 2.0)


def refuses(h):
    raise ValueError("refused")


def exits(h):
    raise SystemExit(3)


def misses_an_error(h):
    with h.raises(ZeroDivisionError):
        h.array(1.0)


def applies_not(h):
    raise Absent("it has no moon")


def gets_no_array(h):
    h.numpy(h.harness)


def one(harness, function, **options):
    (result,) = ran(harness, function, **options).results
    return result


@pytest.mark.parametrize(
    ("function", "outcome", "cause", "message"),
    [
        (passes, PASS, "", ""),
        (answers_wrongly, WRONG, PLUGIN, "cond: the result is 1.; 2. was expected"),
        (refuses, FAIL, PLUGIN, "ValueError: refused"),
        (exits, FAIL, PLUGIN, "SystemExit: 3"),
        (misses_an_error, FAIL, PLUGIN, "cond: no error; a ZeroDivisionError was expected"),
        (applies_not, NOT_APPLICABLE, "", "it has no moon"),
        (gets_no_array, FAIL, HARNESS, "HarnessFault: to_numpy of the harness returned"),
    ],
)
def test_each_outcome_with_its_cause_and_message(function, outcome, cause, message):
    harness = made(to_numpy=lambda self, array: array if array is self else np.asarray(array))
    result = one(harness, function)
    assert (result.outcome, result.cause) == (outcome, cause)
    assert result.message.startswith(message)
    assert bool(result.repro) == (outcome in (WRONG, FAIL))
    assert bool(result.detail) == (outcome in (WRONG, FAIL))


@pytest.mark.parametrize(("level", "bad"), [("MUST", True), ("SHOULD", True), ("MAY", False)])
def test_a_failure_counts_by_its_level_and_a_wrong_answer_at_any(level, bad):
    assert one(Autograd, refuses, level=level).bad == bad
    assert one(Autograd, answers_wrongly, level=level).bad


def test_what_the_harness_lacks_does_not_apply_with_the_reason():
    result = one(made(absent={"jit": "no compiler"}), passes, needs=("jit", "vmap"))
    assert result.outcome == NOT_APPLICABLE
    assert result.message == "it needs jit (no compiler), vmap (the harness does not define it)"


@pytest.mark.parametrize(
    ("outcome", "function", "expected"),
    [
        ("wrong", answers_wrongly, (EXPECTED, "")),
        ("wrong", misses_an_error, (EXPECTED, "")),
        ("error", refuses, (EXPECTED, "")),
        ("error", answers_wrongly, (WRONG, "plugin")),
        ("wrong", refuses, (FAIL, "plugin")),
        ("error", passes, (FAIL, "divergences")),
    ],
)
def test_a_declared_divergence_is_strict_in_that_it_fails_and_how(outcome, function, expected):
    entry = Divergence(name="known", title="A title", text="A text.", scenarios=("cond/*",), outcome=outcome)
    with toy() as plugin:
        plugin.hooks = plugin.hooks | {"divergences": lambda: (entry,)}
        result = one(ToyHarness, function)
    assert (result.outcome, result.cause) == expected
    assert result.divergence == ("known" if expected[0] == EXPECTED else "")


def in_the_harness(h):
    h.array({})


@pytest.mark.parametrize(
    ("errors", "function", "expected"),
    [
        (("ValueError",), refuses, EXPECTED),
        (("Exception",), refuses, EXPECTED),
        (("TypeError", "refuse"), refuses, EXPECTED),
        (("TypeError",), refuses, FAIL),
        ((), in_the_harness, FAIL),
        (("it was given object",), in_the_harness, EXPECTED),
        (("Fault",), gets_no_array, FAIL),
    ],
)
def test_a_declared_divergence_names_its_error_and_is_none_of_the_harness(errors, function, expected):
    class Strict(ToyHarness):
        def array(self, value):
            if isinstance(value, dict):
                raise TypeError("it was given object")
            return super().array(value)

        def to_numpy(self, array):
            return array if array is self else super().to_numpy(array)

    entry = Divergence(name="known", title="A title", text="A text.", scenarios=("cond/*",), errors=errors)
    with toy() as plugin:
        plugin.hooks = plugin.hooks | {"divergences": lambda: (entry,)}
        result = one(Strict, function)
    assert result.outcome == expected
    if errors == ("TypeError",):
        assert "the divergence 'known' declares 'TypeError', which this is not" in result.message


def test_a_nesting_that_the_system_refuses_does_not_apply_and_one_it_gets_wrong_is_the_harnesss_fault():
    def refusing(x):
        raise NotImplementedError("no loops here")

    def lazy(x):
        class Unevaluated:
            def __array__(self, *_, **__):
                raise NotImplementedError("no loops here")

        return Unevaluated()  # the error comes with the value

    for wrong, outcome, cause in (
        (lambda _: refusing, NOT_APPLICABLE, ""),
        (lambda _: lazy, NOT_APPLICABLE, ""),
        (lambda fun: lambda x: fun(x) + x, FAIL, HARNESS),
        (lambda fun: fun, FAIL, PLUGIN),
    ):

        def jit(self, fun, wrong=wrong):
            # What the check of jit calls has two arguments.
            return lambda x, *y: fun(x, *y) if y else wrong(fun)(x)

        with scenarios(refuses, level="MUST", transform="jit of grad", needs=()):
            (result,) = run(made(jit=jit)).results
        assert (result.outcome, result.cause) == (outcome, cause)


def test_what_follows_a_broken_system_has_no_result():
    switch = []

    class Breaks(Autograd):
        def grad(self, fun):
            gradient = super().grad(fun)
            return lambda x, *y: (0.0 if switch else 1.0) * gradient(x, *y)

    def breaks(h):
        switch.append(True)

    report = ran(Breaks, passes, breaks, answers_wrongly)
    assert [result.outcome for result in report.results] == [PASS, FAIL]
    assert report.results[1].message == (
        "it leaves the system in a broken state: grad of x * x * y at 3, 2 is 0.; 12. was expected"
    )
    (problem,) = report.problems
    assert problem.message.startswith("cond/breaks left the system broken: ")
    assert problem.message.endswith("; 1 scenarios have no result")


def test_warnings_are_no_results_though_the_caller_makes_them_errors():
    def warns(h):
        warnings.warn("experimental", UserWarning, stacklevel=1)
        np.array(1.0) / np.array(0.0)

    assert one(Autograd, warns).outcome == PASS


def test_a_context_that_a_refused_nesting_holds_is_left_too():
    entered = []

    @contextlib.contextmanager
    def context():
        entered.append(1)
        try:
            yield
        finally:
            entered.remove(1)

    def refusing(self, fun):
        def call(x, *y):
            if y:  # the check of jit
                return fun(x, *y)
            if entered:
                raise RuntimeError("a context is still entered")
            manager = context()  # a framework that enters it and raises before it leaves
            manager.__enter__()
            raise NotImplementedError("no loops here")

        return call

    def looks(h):
        h.check(not entered, "a context is still entered")

    def asks(h):
        h.jit(lambda x: x)(h.array(3.0))

    with scenarios(asks, looks, level="MUST", transform="grad of jit", needs=("grad",)):
        results = run(made(jit=refusing)).results
    assert [result.outcome for result in results] == [NOT_APPLICABLE, PASS]
    assert "no loops here" in results[0].message


def test_an_open_answer_is_noted_as_staged():
    def asks(h):
        h.jit(h.probe)(h.array(3.0))

    with toy():
        assert one(ToyHarness, asks, needs=("jit",)).staged
    assert not one(Autograd, passes).staged


def test_a_scenario_that_varies_runs_once_more_with_each_variant():
    def differentiates(h):
        h.assert_equal(h.grad(lambda x: x * x)(h.array(3.0)), 6.0)

    harness = made(variants=property(lambda self: {"grad": {"again": self.grad}}))
    report = ran(harness, differentiates, needs=("grad",), varies=True)
    assert [result.id for result in report.results] == ["cond/differentiates", "cond/differentiates@grad=again"]
    checked(harness(), "grad=again")
    with pytest.raises(UsageError, match="has no variant 'grad=other'; there are grad=again"):
        checked(harness(), "grad=other")


def test_the_repro_runs_and_fails_in_the_same_way():
    repro = one(Autograd, answers_wrongly).repro
    assert "def answers_wrongly(h):" in repro
    with scenarios(answers_wrongly, level="MUST", needs=()), pytest.raises(AssertionError, match="was expected"):
        exec(repro, {})  # noqa: S102  (it is to be pasted)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"keywords": "jit"}, "keywords is 'jit'; it is a list"), ({"level": "must"}, "it is one of MUST, SHOULD, MAY")],
)
def test_a_wrong_selection_is_refused(options, words):
    with pytest.raises(UsageError, match=words):
        run("numpy", **options)


def test_a_wrong_result_says_which_answer_is_wrong_and_under_what():
    nestings = ("vmap", "jit-of-grad", "grad-of-vmap-of-jit")
    with toy(within_gradient=lambda value: isinstance(value, toyad.Batched)):
        found = run(ToyHarness, keywords=[f"within_gradient/{name}" for name in nestings]).results
    messages = {result.id.partition("/")[2]: result.message for result in found}
    assert messages["vmap"].startswith("within_gradient said True under vmap: the result is ")
    assert messages["jit-of-grad"].startswith(
        "within_gradient said False under jit of grad: the result is 93.75; 56.25 "
    )
    with toy(cond=lambda pred, t, f, operands: toyad_adprotocol.cond(pred, f, t, operands)):
        (result,) = run(ToyHarness, keywords=["cond/gra[d]"]).results
    assert result.message.startswith("cond under grad: the value that comes with the gradient is ")
