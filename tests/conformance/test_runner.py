"""The runner: whatever a harness, a plugin or a scenario does is reported as what it is, and the next one runs."""

import ctypes
import io
import signal
import sys
import threading
import time
import warnings

import numpy as np
import pytest
from small import Autograd, Plain, ToyHarness, made, ran, scenarios, toy

from adprotocol import conformance
from adprotocol.conformance import Absent, UsageError, WrongAnswer
from adprotocol.conformance._run.case import Case, select
from adprotocol.conformance._run.result import EXPECTED, FAIL, NOT_APPLICABLE, PASS, WRONG, from_json, to_json
from adprotocol.conformance._run.suite import Interrupted
from adprotocol.conformance.checks import HarnessFault
from adprotocol.extend import Divergence, TreeLibrary


class Unprintable(Exception):  # noqa: N818
    def __str__(self):
        raise TypeError("no text")


class Rude(Exception):  # noqa: N818
    def __str__(self):
        raise SystemExit(0)


def first(h):
    h.array(1.0)


def last(h):
    h.assert_equal(h.array(1.0), 1.0)


def one(harness, function, **options):
    """The result of one scenario between two that pass, and the report."""
    report = ran(harness, first, function, last, **options)
    before, result, after = report.results
    assert before.outcome == after.outcome == PASS
    return result, report


def test_what_raises_nothing_passes():
    result, report = one(Plain, lambda h: None)
    assert (result.outcome, result.cause, result.message, result.repro) == (PASS, "", "", "")
    assert report.ok


def test_another_answer_is_silently_wrong():
    result, report = one(Plain, lambda h: h.assert_equal(h.array(2.0), 3.0))
    assert (result.outcome, result.cause) == (WRONG, "plugin")
    assert result.message == "the result is 2.; 3. was expected"
    assert result.repro
    assert not report.ok


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("a\n b"), "ValueError: a b"),
        (SystemExit(0), "SystemExit: 0"),
        (KeyboardInterrupt(), "KeyboardInterrupt: "),
        (GeneratorExit("closed"), "GeneratorExit: closed"),
        (RecursionError("deep"), "RecursionError: deep"),
        (MemoryError(), "MemoryError: "),
        (AssertionError("not a WrongAnswer"), "AssertionError: not a WrongAnswer"),
        (Unprintable(), "Unprintable, whose message cannot be shown: its __str__ raises TypeError"),
        (Rude(), "Rude, whose message cannot be shown: its __str__ raises SystemExit"),
        (ValueError("\udc80\x00"), "ValueError: \udc80\x00"),
        (pytest.fail.Exception("of pytest"), "Failed: of pytest"),
        (ExceptionGroup("two", [ValueError("x"), TypeError("y")]), "ExceptionGroup: two (2 sub-exceptions)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_exception_is_a_failure_that_speaks_up(error, message):
    def raises(h):
        raise error

    result, report = one(Plain, raises)
    assert (result.outcome, result.cause, result.message) == (FAIL, "plugin", message)
    assert "in raises" in result.detail
    assert not report.ok
    assert from_json(to_json(report)) == report


def test_a_real_recursion_is_shown_in_a_few_lines():
    def even(n):
        return odd(n + 1)

    def odd(n):
        return even(n + 1)

    result, _ = one(Plain, lambda h: even(0))
    assert result.message.startswith("RecursionError: maximum recursion depth exceeded")
    assert len(result.detail.splitlines()) < 100


def test_the_detail_has_the_cause_and_no_frame_of_the_suite():
    def raises(h):
        try:
            {}["missing"]
        except KeyError as error:
            raise ValueError("no answer") from error

    result, _ = one(Plain, raises)
    assert "KeyError: 'missing'" in result.detail
    assert "direct cause" in result.detail
    assert "conformance/runner.py" not in result.detail
    assert "conformance/clock.py" not in result.detail


def sleep(h):
    time.sleep(3)


def spin(h):
    while True:
        pass


def lock(h):
    held = threading.Lock()
    with held:
        held.acquire()


def native(h):
    ctypes.CDLL(None).sleep(3)


@pytest.mark.parametrize("hang", [sleep, spin, lock, native])
def test_what_hangs_is_reported_with_its_stack(hang):
    result, report = one(Plain, hang, seconds=0.2)
    assert (result.outcome, result.cause) == (FAIL, "time limit")
    assert result.message == "TimeLimit: it did not return within 0.2 s"
    assert f"in {hang.__name__}" in result.detail
    assert 0.2 <= result.seconds < 2
    assert not report.ok


def test_what_does_not_apply_says_why():
    def absent(h):
        raise Absent("no\tdevice of this kind")

    result, report = one(Plain, absent)
    assert (result.outcome, result.message) == (NOT_APPLICABLE, "no\tdevice of this kind")
    assert report.ok


def test_what_takes_an_absent_capability_does_not_apply_and_says_all_it_lacks():
    report = ran(made(absent={"jit": "no compiler"}), first, needs=("grad", "jit", "vmap"))
    (result,) = report.results
    assert result.outcome == NOT_APPLICABLE
    assert result.message == "it needs jit (no compiler), vmap (the harness does not define it)"


def test_a_run_where_nothing_applies_is_not_well():
    report = ran(Plain, first, needs=("grad",))
    assert not report.ok
    assert report.sentence() == "0 of 1 scenarios ran: 1 n/a"


def test_a_fault_of_the_harness_within_a_scenario_is_the_harnesses():
    def fault(h):
        raise HarnessFault("jit returned None")

    assert one(Plain, fault)[0].cause == "harness"


def test_an_error_in_a_method_of_the_harness_is_the_harnesses_inherited_ones_included():
    class Base(Plain):
        def stop_gradient(self, array):
            if array.shape == (2,):
                raise ValueError("only scalars")
            return array

    class Derived(Base):
        pass

    assert one(Derived, lambda h: h.stop_gradient(h.array([1.0, 2.0])))[0].cause == "harness"


def test_to_numpy_that_fails_only_later_is_the_harnesses_and_an_error():
    def to_numpy(self, array):
        return [1.0] if array.shape == (3,) else np.asarray(array)

    with toy():
        result, _ = one(
            made(ToyHarness, to_numpy=to_numpy), lambda h: h.assert_equal(h.array([1.0, 2.0, 3.0]), [1.0, 2.0, 3.0])
        )
    assert (result.outcome, result.cause) == (FAIL, "harness")
    assert result.message == "HarnessFault: to_numpy of the harness returned a list; it returns a NumPy array"


def wrong(h):
    raise WrongAnswer("another number")


def fails(h):
    raise ValueError("refused")


@pytest.mark.parametrize(
    ("level", "function", "ok"),
    [
        ("MUST", wrong, False),
        ("SHOULD", wrong, False),
        ("MAY", wrong, False),
        ("MUST", fails, False),
        ("SHOULD", fails, False),
        ("MAY", fails, True),
    ],
)
def test_the_level_decides_whether_a_failure_fails_the_run(level, function, ok):
    assert ran(Plain, first, function, level=level).ok is ok


def test_a_missing_error_is_a_failure_and_no_silent_answer():
    def quiet(h):
        with h.raises(ValueError):
            h.array(1.0)

    result, report = one(Plain, quiet)
    assert (result.outcome, result.cause, result.message) == (FAIL, "plugin", "no error; a ValueError was expected")
    assert not report.ok
    assert ran(Plain, first, quiet, level="MAY").ok


def test_a_missing_error_may_be_declared_as_silent():
    def it(h):
        with h.raises(ValueError):
            h.array(1.0)

    assert judged("wrong", it)[0].outcome == EXPECTED
    assert judged("error", it)[0].outcome == FAIL


def test_what_a_staged_predicate_is_needed_for_does_not_apply_where_it_is_known():
    def staged(h):
        h.require_staged("jit")
        h.check(False, "it ran")

    assert ran(made(Autograd, jit=lambda self, fun: fun), staged, needs=("jit",)).results[0].outcome == NOT_APPLICABLE
    with toy():
        assert ran(ToyHarness, staged, needs=("jit",)).results[0].message == "it ran"


def test_what_hangs_fails_the_run_at_any_level():
    assert not ran(Plain, first, sleep, level="MAY", seconds=0.2).ok


def test_the_worst_comes_first():
    report = ran(Plain, first, fails, sleep, wrong, last, seconds=0.2)
    assert [result.outcome for result in report.sorted()] == [WRONG, FAIL, FAIL, PASS, PASS]


@pytest.mark.parametrize(
    "change",
    [
        lambda: warnings.simplefilter("error"),
        lambda: np.seterr(all="raise"),
        lambda: np.seterr(all="print"),
    ],
)
def test_settings_that_a_harness_changes_reach_no_scenario_and_nobody_after_the_run(change):
    def array(self, value):
        change()
        return np.asarray(value)

    harness = made(Plain, array=array)

    def warns(h):
        warnings.warn("a framework's own", UserWarning, stacklevel=1)
        h.check(np.isnan(np.float64(0.0) / np.float64(0.0)), "0 / 0 is NaN")

    filters, errors = list(warnings.filters), np.geterr()
    with scenarios(first, warns):
        report = conformance.run(harness)
    assert [result.outcome for result in report.results] == [PASS, PASS]
    assert (list(warnings.filters), np.geterr()) == (filters, errors)


def test_a_harness_that_prints_disturbs_nothing(capsys):
    def array(self, value):
        print("array of", value)  # noqa: T201
        return np.asarray(value)

    assert ran(made(Plain, array=array), first).ok
    assert "array of" in capsys.readouterr().out


def test_a_harness_that_closes_its_streams_disturbs_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert ran(made(Plain, array=lambda self, value: (sys.stderr.close(), np.asarray(value))[1]), first).ok


def test_the_order_is_the_same_each_time_and_a_harness_may_be_run_twice():
    harness = Autograd()
    reports = [conformance.run(harness, keywords=["grad-of-jvp", "non_differentiable/grad"]) for _ in range(2)]
    assert reports[0].ok
    ids = [[result.id for result in report.results] for report in reports]
    assert ids[0] == ids[1]
    assert [result.outcome for result in reports[0].results] == [result.outcome for result in reports[1].results]


def test_no_thread_is_left_after_a_run():
    before = set(threading.enumerate())
    ran(Plain, first)
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive()


def test_progress_is_told():
    told = []
    report = ran(Plain, first, fails, on_start=told.append, on_result=told.append)
    assert told == [2, *report.results]


def test_an_error_of_who_listens_is_raised():
    with pytest.raises(ZeroDivisionError):
        ran(Plain, first, on_result=lambda _: 1 / 0)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e300, "60", None, True])
def test_a_time_limit_that_is_none_is_refused(seconds):
    with pytest.raises(UsageError, match="a positive number of seconds"):
        conformance.run(Plain, seconds=seconds)


@pytest.mark.parametrize("level", ["must", "", None, 3])
def test_an_unknown_level_is_refused(level):
    with pytest.raises(UsageError, match="it is one of MUST, SHOULD, MAY"):
        conformance.run(Plain, level=level)


@pytest.mark.parametrize("keywords", ["jit", b"jit", [1], [None]])
def test_keywords_that_are_no_words_are_refused(keywords):
    with pytest.raises(UsageError, match="it is a list of words"):
        conformance.run(Plain, keywords=keywords)


def test_a_selection_of_nothing_runs_nothing():
    report = ran(Plain, first, keywords=["nowhere"])
    assert (report.results, report.total, report.ok) == ((), 1, False)


@pytest.mark.parametrize(
    ("keywords", "found"),
    [
        ((), ["cond/jit-of-vmap", "cond/grad", "cond/grad@grad=vjp"]),
        (["jit"], ["cond/jit-of-vmap"]),
        (["cond/grad"], ["cond/grad", "cond/grad@grad=vjp"]),
        (["@grad=vjp"], ["cond/grad@grad=vjp"]),
        (["cond/*-of-vmap"], ["cond/jit-of-vmap"]),
        (["*grad"], ["cond/grad"]),
        (["grad*"], []),
        (["C?"], ["cond/jit-of-vmap", "cond/grad", "cond/grad@grad=vjp"]),
        (["C2"], []),
        (["outer of inner"], ["cond/jit-of-vmap", "cond/grad", "cond/grad@grad=vjp"]),
        (["JIT"], []),
        (["nowhere", "jit"], ["cond/jit-of-vmap"]),
        (["[jk]it*"], []),
        (["*/[jk]it*"], ["cond/jit-of-vmap"]),
    ],
)
def test_what_words_and_globs_select(keywords, found):
    def jit_of_vmap(h): ...

    def grad(h): ...

    with scenarios(jit_of_vmap, grad, transform="outer of inner"):
        jit, plain = map(Case, conformance.all_scenarios().values())
    assert [case.id for case in select([jit, plain, Case(plain.scenario, "grad=vjp")], keywords)] == found


@pytest.mark.usefixtures("interruptible")
def test_the_interrupt_of_the_user_ends_the_run_and_keeps_what_ran():
    def interrupts(h):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(5)

    begin = time.perf_counter()
    with pytest.raises(KeyboardInterrupt) as caught:
        ran(Plain, first, fails, interrupts, last)
    assert time.perf_counter() - begin < 3
    assert isinstance(caught.value, Interrupted)
    report = caught.value.report
    assert [result.outcome for result in report.results] == [PASS, FAIL]
    assert [problem.message for problem in report.problems] == ["interrupted after 2 of 4 scenarios"]
    assert not report.ok


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_the_harness_is_checked_ends_the_run():
    def hang(self, value):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(5)

    with pytest.raises(Interrupted, match="interrupted after 0 of 0 scenarios"):
        ran(made(Plain, array=hang), first)


def refuses(*args):
    raise RuntimeError("the plugin is broken")


HOOKS = {
    "within_gradient": lambda value: refuses(),
    "non_differentiable": lambda value: refuses(),
    "cond": lambda pred, true_fun, false_fun, operands: refuses(),
    "trainable": lambda value: refuses(),
    "value_and_grad": lambda fun, leaves: refuses(),
    "tree_library": lambda: TreeLibrary(lambda value: refuses()),
    "explain": lambda value: refuses(),
}


def test_a_plugin_that_raises_in_every_hook_fails_loudly_and_the_run_goes_to_its_end():
    with toy(**HOOKS):
        report = conformance.run(ToyHarness, keywords=["/grad", "/jit", "straight-through-grad"])
    assert report.problems == ()
    bad = [result for result in report.results if result.outcome in (FAIL, WRONG)]
    assert len(bad) > 20
    assert {result.hook for result in bad} >= {"within_gradient", "non_differentiable", "value_and_grad", "cond"}
    assert not [result.id for result in bad if result.outcome == WRONG]
    assert all("the plugin is broken" in result.message for result in bad if result.rule == "W5")
    assert all(result.cause == "plugin" for result in bad)
    assert not report.ok


def test_a_plugin_without_the_optional_hook_value_and_grad():
    with toy(without=("value_and_grad",)):
        report = conformance.run(ToyHarness, keywords=["value_and_grad/inside-grad", "cond/grad"])
    outcomes = {result.hook: result.outcome for result in report.results}
    assert outcomes == {"value_and_grad": NOT_APPLICABLE, "cond": PASS}
    assert "value_and_grad (the plugin does not have this optional hook)" in report.results[0].message + (
        report.results[-1].message
    )


def test_a_hook_that_hangs_is_reported_for_each_scenario():
    with toy(within_gradient=lambda value: time.sleep(3)):
        report = conformance.run(ToyHarness, keywords=["within_gradient/jit"], seconds=0.2)
    assert {(result.outcome, result.cause) for result in report.results[:1]} == {(FAIL, "time limit")}


def declares(outcome, *identifiers):
    divergence = Divergence(name="known", title="Known", text="It is so.", scenarios=identifiers, outcome=outcome)
    return {"divergences": lambda: (divergence,)}


def judged(outcome, function, **options):
    with toy() as plugin:
        plugin.hooks = plugin.hooks | declares(outcome, "cond/it")
        function.__name__ = "it"
        return one(ToyHarness, function, **options)


def test_an_expected_error_is_an_expected_failure():
    def it(h):
        raise ValueError("refused")

    result, report = judged("error", it)
    assert (result.outcome, result.divergence, result.message) == (EXPECTED, "known", "ValueError: refused")
    assert report.ok


def test_an_expected_wrong_answer_is_an_expected_failure():
    result, report = judged("wrong", lambda h: h.assert_equal(2.0, 3.0))
    assert (result.outcome, result.divergence) == (EXPECTED, "known")
    assert report.ok


@pytest.mark.parametrize("outcome", ["error", "wrong"])
def test_an_expected_failure_that_passes_fails(outcome):
    result, report = judged(outcome, lambda h: None)
    assert (result.outcome, result.cause) == (FAIL, "divergences")
    assert result.message == "it passes, although the divergence 'known' declares that it fails; remove that"
    assert not report.ok


def test_an_expected_failure_that_passes_fails_the_run_even_if_it_only_may_be():
    assert not judged("error", lambda h: None, level="MAY")[1].ok


def test_a_wrong_answer_where_an_error_is_declared_is_silently_wrong():
    result, report = judged("error", lambda h: h.assert_equal(2.0, 3.0))
    assert result.outcome == WRONG
    assert result.message.endswith("(the divergence 'known' declares 'error', which this is not)")
    assert not report.ok


def test_an_error_where_a_wrong_answer_is_declared_is_a_failure():
    def it(h):
        raise ValueError("refused")

    result, report = judged("wrong", it)
    assert (result.outcome, result.cause) == (FAIL, "plugin")
    assert result.message.endswith("(the divergence 'known' declares 'wrong', which this is not)")
    assert not report.ok


def test_what_hangs_and_a_fault_of_the_harness_are_no_errors_that_one_declares():
    def it(h):
        raise HarnessFault("jit returned None")

    assert judged("error", it)[0].outcome == FAIL
    assert judged("error", lambda h: time.sleep(3), seconds=0.2)[0].outcome == FAIL


def test_what_does_not_apply_may_be_declared():
    def it(h):
        raise Absent("no such device")

    result, report = judged("error", it)
    assert result.outcome == NOT_APPLICABLE
    assert report.ok
