"""The suite from a maintainer's own tests: under pytest and unittest, in three lines."""

import os
import re
import subprocess
import sys
import textwrap
import threading
from importlib import metadata
from pathlib import Path

import pytest
from small import Autograd, Plain, made, ran, scenarios

from adprotocol import conformance
from adprotocol.conformance import ConformanceTests, UsageError, WrongAnswer, all_scenarios, checked, harness_of

HERE = Path(__file__).parent

HARNESS = """
    from small import Autograd, Plain, made

    from adprotocol.conformance import ConformanceTests
"""


def python(folder, *arguments, source=""):
    """Run Python in a folder with a test module of that source."""
    (folder / "test_mine.py").write_text(textwrap.dedent(HARNESS) + textwrap.dedent(source))
    path = os.pathsep.join(map(str, [HERE, HERE.parents[1], HERE.parents[1] / "examples" / "toyad"]))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment | {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )


def pytests(folder, *arguments, source):
    # Warnings are errors: none of the suite's own comes through.
    options = ["-m", "pytest", "-p", "no:cacheprovider", "-W", "error", "-rA", "--no-header", "--tb=short"]
    done = python(folder, *options, *arguments, source=source)
    outcomes = re.findall(
        r"(?m)^(PASSED|FAILED|XFAIL|XPASS|SKIPPED|ERROR)\b.*?(?:::(test_\w+))?(?: - .*)?$", done.stdout
    )
    return done, [(outcome, name) for outcome, name in outcomes if outcome != "SKIPPED"]


def test_three_lines_are_enough(tmp_path):
    source = """
    class TestConformance(ConformanceTests):
        harness = Autograd
        keywords = ["within_gradient/grad", "cond/grad"]
    """
    done, outcomes = pytests(tmp_path, source=source)
    assert done.returncode == 0, done.stdout
    assert ("PASSED", "test_harness_and_divergences") in outcomes
    assert ("PASSED", "test_within_gradient_grad_of_jvp") in outcomes
    assert ("PASSED", "test_cond_grad") in outcomes
    assert {outcome for outcome, _ in outcomes} == {"PASSED"}
    assert "skipped" in done.stdout
    assert "it needs jit (the harness does not define it)" in done.stdout


def test_a_failure_shows_the_rule_what_was_expected_and_the_repro(tmp_path):
    source = """
    class Halved(Autograd):
        "Right for vectors and for functions of two arrays, which the harness is checked with."

        def grad(self, fun):
            def gradient(x, *others):
                slope = super(Halved, self).grad(fun)(x, *others)
                return slope if others or slope.shape else 0.5 * slope

            return gradient


    class TestConformance(ConformanceTests):
        harness = Halved
        keywords = ["cond/grad", "cond/jit"]
    """
    done, outcomes = pytests(tmp_path, "-k", "test_cond_grad and not inside", "-x", source=source)
    assert done.returncode == 1
    assert [outcome for outcome, _ in outcomes] == ["FAILED"]
    # The fault is the harness's, and said to be.
    assert re.search(r"fail: cond/grad\S* \(MUST, rule C\d\)", done.stdout)
    assert "without adprotocol, is" in done.stdout
    assert "found:   " in done.stdout
    assert "source:  " in done.stdout
    assert "(checked(harness_of('test_mine:Halved'))" in done.stdout


def test_a_fault_of_the_harness_fails_one_test_and_what_takes_it(tmp_path):
    source = """
    class TestConformance(ConformanceTests):
        harness = made(jvp=lambda self, fun, x, t: None)
        keywords = ["within_gradient/jvp", "within_gradient/grad-of-grad"]
    """
    done, outcomes = pytests(tmp_path, source=source)
    assert done.returncode == 1
    assert ("FAILED", "test_harness_and_divergences") in outcomes
    assert ("FAILED", "test_within_gradient_jvp") in outcomes
    assert ("PASSED", "test_within_gradient_grad_of_grad") in outcomes
    assert "harness: jvp: jvp(fun, primal, tangent) returned None; it returns two things" in done.stdout


def test_pytests_own_selection_and_a_class_of_a_class(tmp_path):
    source = """
    class Base(ConformanceTests):
        harness = Autograd
        keywords = ["within_gradient/grad", "within_gradient/jvp"]


    class TestNarrow(Base):
        keywords = ["within_gradient/jvp-of-jvp"]


    class TestOther(Base):
        harness = Plain
    """
    done, outcomes = pytests(tmp_path, "-k", "TestNarrow or TestOther", source=source)
    assert done.returncode == 0, done.stdout
    assert sorted(outcomes) == [
        ("PASSED", "test_harness_and_divergences"),
        ("PASSED", "test_harness_and_divergences"),
        *(("PASSED", name) for name in sorted(chosen("within_gradient/jvp-of-jvp"))),
    ]


def chosen(word):
    return {f"test_{key.replace('/', '_').replace('-', '_')}" for key in all_scenarios() if word in key}


def test_a_class_without_a_harness_fails_and_says_so(tmp_path):
    source = """
    class TestConformance(ConformanceTests):
        pass
    """
    done, outcomes = pytests(tmp_path, source=source)
    assert outcomes == [("FAILED", "test_harness_and_divergences")]
    assert "TestConformance has no harness; set the attribute harness" in done.stdout


def test_the_class_itself_is_collected_nowhere(tmp_path):
    source = """
    class MyTests(ConformanceTests):
        harness = Plain
        keywords = ["nowhere"]
    """
    done, outcomes = pytests(tmp_path, "-o", "python_classes=*Tests", source=source)
    assert outcomes == [("PASSED", "test_harness_and_divergences")]
    assert "has no harness" not in done.stdout


@pytest.mark.parametrize("harness", ["nowhere", 3, "test_suite:Nothing", object])
def test_a_harness_that_is_none_is_an_error_when_the_class_is_made(harness):
    with pytest.raises(UsageError):
        type("Suite", (ConformanceTests,), {"harness": harness})


DECLARED = """
    import unittest

    import pytest
    from adprotocol.extend import Divergence
    from small import ToyHarness, toy


    def refuses(pred, true_fun, false_fun, operands):
        raise RuntimeError("no branches")


    registered = toy(cond=refuses)
    plugin = registered.__enter__()
    known = Divergence(name="branches", title="Branches", text="There are none.", scenarios=("cond/grad", "cond/jvp"))
    plugin.hooks = plugin.hooks | {"divergences": lambda: (known,)}


    class TestConformance(ConformanceTests, BASE):
        harness = ToyHarness
        keywords = ["cond/grad-of-jit", "cond/grad"]
        level = "MUST"
"""


def test_under_unittest(tmp_path):
    source = """
    import unittest


    class Conformance(ConformanceTests, unittest.TestCase):
        harness = Autograd
        keywords = ["within_gradient/grad-of-grad", "within_gradient/jit-of-jit"]
    """
    done = python(tmp_path, "-m", "unittest", "-v", "test_mine", source=source)
    assert done.returncode == 0, done.stderr
    assert re.search(r"test_within_gradient_grad_of_grad .*\n?.*\.\.\. ok", done.stderr)
    assert "skipped 'it needs jit (the harness does not define it)'" in done.stderr


def test_under_unittest_an_expected_failure_is_skipped_even_while_pytest_happens_to_be_imported(tmp_path):
    source = DECLARED.replace("BASE", "unittest.TestCase")
    done = python(tmp_path, "-m", "unittest", "-v", "-k", "test_cond_grad", "test_mine", source=source)
    assert "skipped 'expected failure: branches: RuntimeError: no branches'" in done.stderr
    # What is not declared.
    assert "AssertionError: fail: cond/grad-of-jit (MUST, rule C6)" in done.stderr
    assert done.returncode == 1


def test_under_pytest_an_expected_failure_is_one(tmp_path):
    done, outcomes = pytests(tmp_path, source=DECLARED.replace("BASE", "object"))
    assert ("XFAIL", "test_cond_grad") in outcomes
    assert "branches: RuntimeError: no branches" in done.stdout
    assert ("FAILED", "test_cond_grad_of_jit") in outcomes


@pytest.mark.parametrize("harness", [Plain, Plain(), "numpy"], ids=["class", "instance", "name"])
def test_the_harness_is_a_class_an_instance_or_a_name(harness):
    class Suite(ConformanceTests):
        keywords = ("within_gradient/numbers",)

    made_of = type("Suite", (Suite,), {"harness": harness})
    names = [name for name in dir(made_of) if name.startswith("test_within")]
    assert set(names) >= chosen("within_gradient/numbers")
    made_of().test_harness_and_divergences()


def test_level_and_words_select_as_those_of_run_do():
    class Suite(ConformanceTests):
        harness = Plain
        level = "MUST"

    report = conformance.run(Plain, level="MUST")
    tests = [getattr(Suite, name) for name in dir(Suite) if hasattr(getattr(Suite, name), "case")]
    assert {test.case.id for test in tests} == {result.id for result in report.results}
    assert all(test.__name__ == f"test_{re.sub('[^a-z0-9]', '_', test.case.id)}" for test in tests)


def test_a_wrong_selection_is_an_error():
    with pytest.raises(UsageError, match="it is one of MUST"):
        type("Suite", (ConformanceTests,), {"harness": Plain, "level": "must"})
    with pytest.raises(UsageError, match="it is a list of words"):
        type("Suite", (ConformanceTests,), {"harness": Plain, "keywords": "jit"})
    with pytest.raises(UsageError, match="a positive number of seconds"):
        type("Suite", (ConformanceTests,), {"harness": Plain, "seconds": 0})


def a_number(h):
    h.assert_equal(h.array(1.0), 1.0)


def another(h):
    h.assert_equal(h.array(1.0), 2.0)


def an_error(h):
    raise ValueError("refused")


def suite(*functions, level="MUST", **members):
    with scenarios(*functions, level=level):
        return type("Suite", (ConformanceTests,), {"harness": Plain, **members})()


def test_what_may_fail_is_an_expected_failure_and_what_is_silently_wrong_is_not():
    with pytest.raises(AssertionError, match="silently wrong: cond/another"):
        suite(another, level="MAY").test_cond_another()
    with pytest.raises(pytest.xfail.Exception, match="it MAY fail: ValueError: refused"):
        suite(an_error, level="MAY").test_cond_an_error()
    with pytest.raises(AssertionError, match="fail: cond/an-error"):
        suite(an_error, level="SHOULD").test_cond_an_error()


def test_a_method_that_the_class_defines_stands():
    ran_own = []
    suite(another, test_cond_another=lambda self: ran_own.append(1)).test_cond_another()
    assert ran_own == [1]


def test_a_test_says_its_level_rule_and_summary():
    assert suite(a_number).test_cond_a_number.__doc__ == "MUST C1: A summary"


def test_what_hangs_fails_in_time_and_the_next_test_runs():
    def hang(h):
        threading.Event().wait(3)

    made_of = suite(hang, a_number, seconds=0.2)
    with pytest.raises(AssertionError, match="did not return within"):
        made_of.test_cond_hang()
    made_of.test_cond_a_number()


def test_every_scenario_and_variant_has_a_test_of_its_own():
    harness = made(variants={"grad": {"a_b": Autograd().grad, "a": Autograd().grad}})
    Suite = type("Suite", (ConformanceTests,), {"harness": harness})  # noqa: N806
    count = sum(hasattr(getattr(Suite, name), "case") for name in dir(Suite))
    assert count == conformance.run(harness, keywords=["nowhere"]).total


def test_nothing_is_loaded_into_the_pytest_runs_of_others():
    groups = {point.group for point in metadata.distribution("adprotocol").entry_points}
    assert groups == {"adprotocol", "adprotocol.numpy", "console_scripts"}


def test_importing_the_suite_does_not_import_pytest():
    program = "import sys, adprotocol.conformance; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_variant_that_is_not_there_says_which_are():
    harness = made(variants={"grad": {"vjp": Autograd().grad}})()
    with pytest.raises(UsageError, match="autograd has no variant 'grad=vpj'; there are grad=vjp"):
        checked(harness, "grad=vpj")
    with pytest.raises(UsageError, match="numpy has no variant 'jit=x'; there are none"):
        checked(harness_of("numpy"), "jit=x")


def test_a_scenario_by_hand():
    with pytest.raises(WrongAnswer):
        another(checked(harness_of("numpy")))
    all_scenarios()["within_gradient/vmap"].function(checked(harness_of("numpy")))


def test_a_harness_is_found_by_name_or_path():
    assert type(harness_of("small:Plain")) is Plain
    assert ran("small:Plain", a_number).ok


def test_tests_behind_one_that_leaves_the_system_broken_are_skipped(tmp_path):
    source = """
    class Fragile(Autograd):
        _broken = False

        def grad(self, fun):
            gradient = super().grad(fun)
            return lambda x, *rest: (0.0 if Fragile._broken else 1.0) * gradient(x, *rest)

        def jvp(self, fun, primal, tangent):
            Fragile._broken = len(used) > 2
            used.append(fun)
            return super().jvp(fun, primal, tangent)

    used = []

    class TestConformance(ConformanceTests):
        harness = Fragile
        keywords = ["within_gradient/jvp", "within_gradient/grad"]
    """
    done, outcomes = pytests(tmp_path, source=source)
    assert [outcome for outcome, _ in outcomes].count("FAILED") == 1
    assert "the system is broken: the gradient of x * x at 3 is 0.; 6. was expected" in done.stdout
    assert re.search(r"SKIPPED .*not run: behind within_gradient/", done.stdout)
