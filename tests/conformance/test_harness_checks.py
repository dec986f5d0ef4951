"""The harness under test: what it does wrong is its own fault, and is said before any scenario runs."""

import re

import numpy as np
import pytest
import toyad
from small import Autograd, ToyHarness, made, ran, toy

from adprotocol.conformance import Harness
from adprotocol.conformance._run import harness_checks
from adprotocol.conformance.harness import CAPABILITIES, KNOWN, REQUIRED

EVERY = (*REQUIRED, *CAPABILITIES)


def fine(h):
    h.array(1.0)


def problems(harness, **options):
    report = ran(harness, fine, **options)
    assert not report.ok
    return [problem.message for problem in report.problems]


@pytest.mark.parametrize("capability", EVERY)
def test_a_right_harness_passes_each_check(capability):
    harness_checks.check(ToyHarness(), capability)


def test_every_capability_has_a_check():
    assert set(harness_checks.PROBES) == set(KNOWN)


WRONG = {
    "array None": ({"array": lambda self, value: None}, "array", "array(3.0) returned None"),
    "array of floats alone": (
        {"array": lambda self, value: toyad.array(np.asarray(value, float))},
        "integer arrays",
        "the kind of array(2) is 'floating-point'; 'integer' was expected",
    ),
    "array of one element": (
        {"array": lambda self, value: toyad.array(np.atleast_1d(value))},
        "array",
        "shape (1,)",
    ),
    "array raises": ({"array": lambda self, value: 1 / 0}, "array", "division by zero"),
    "to_numpy list": (
        {"to_numpy": lambda self, array: [3.0]},
        "to_numpy",
        "to_numpy(array(3.0)) has shape (1,); () was expected",
    ),
    "to_numpy wrong": ({"to_numpy": lambda self, array: np.asarray(1.0)}, "to_numpy", "is 1.; 3. was expected"),
    "grad None": ({"grad": lambda self, fun: None}, "grad", "grad of the harness returned None, a NoneType"),
    "grad of None": ({"grad": lambda self, fun: lambda *xs: None}, "grad", "is None; 12. was expected"),
    "grad tuple": ({"grad": lambda self, fun: lambda *xs: (toyad.array(12.0),)}, "grad", "shape (1,)"),
    "grad wrong": ({"grad": lambda self, fun: lambda x, *y: 0.0 * x}, "grad", "is 0.; 12. was expected"),
    "grad of all": (
        {"grad": lambda self, fun: lambda *xs: [toyad.grad(fun)(*xs)] * len(xs)},
        "grad",
        "grad of x * x * y at 3, 2",
    ),
    "value_and_grad order": (
        {"value_and_grad": lambda self, fun: lambda *xs: toyad.value_and_grad(fun)(*xs)[::-1]},
        "value_and_grad",
        "value_and_grad of x * x * y at 3, 2, result 0, is 12.; 18. was expected",
    ),
    "value_and_grad one": (
        {"value_and_grad": lambda self, fun: toyad.grad(fun)},
        "value_and_grad",
        "it returns 2 things",
    ),
    "jvp ignores": (
        {"jvp": lambda self, fun, x, t: (fun(x), toyad.grad(fun)(x))},
        "jvp",
        "jvp of x * x at 3 along 2, result 1, is 6.; 12. was expected",
    ),
    "jit runs": ({"jit": lambda self, fun: fun(toyad.array(3.0), toyad.array(1.0))}, "jit", "object is not callable"),
    "compile wrong": ({"compile": lambda self, fun: lambda *xs: 2.0 * fun(*xs)}, "compile", "20.; 10. was expected"),
    "vmap nothing": ({"vmap": lambda self, fun: lambda *xs: xs[0]}, "vmap", "vmap of a * b + 1 has shape (2,)"),
    "checkpoint None": ({"checkpoint": lambda self, fun: lambda *xs: None}, "checkpoint", "None; 10. was expected"),
    "scan order": (
        {"scan": lambda self, fun, c, xs: toyad.scan(fun, c, xs)[::-1]},
        "scan",
        "scan with a carry of two, result 0, returned Array([3. 6.])",
    ),
    "scan None": (
        {"scan": lambda self, fun, c, xs: None},
        "scan",
        "scan with a carry of two returned None; it returns 2 things",
    ),
    "stop_gradient zero": ({"stop_gradient": lambda self, x: 0.0 * x}, "stop_gradient", "is 0.; 3. was expected"),
    "no_grad number": (
        {"no_grad": lambda self, fun: 9.0},
        "no_grad",
        "'float' object is not callable",
    ),
    "custom_rule own": (
        {"custom_rule": lambda self, fun, derivative: fun},
        "custom_rule",
        "its gradient is 6.; 7. was expected",
    ),
    "counter idle": (
        {"counter": lambda self: ((lambda x: x), lambda: 0)},
        "counter",
        "whether that was counted, result 2, is False; True was expected",
    ),
    "abstract idle": (
        {"abstract": lambda self, fun, *xs: None},
        "abstract",
        "whether abstract(fun, x) runs the function is False",
    ),
    "cast loses": ({"cast": lambda self, x, d: toyad.stop_gradient(toyad.cast(x, d))}, "cast", "back is False"),
    "parameter shared": ({"parameter": lambda self, value, trains: 3.0}, "parameter", "a new parameter each time"),
    "node copies": (
        {"node": lambda self, children: [1.0 * child for child in children]},
        "node",
        "which children of node([x, 2]) are x, result 0, is False",
    ),
    "threads number": ({"threads": lambda self: 2}, "threads", "the type of threads() is 'int'; 'bool' was expected"),
    "devices text": ({"devices": lambda self: "cpu"}, "devices", "whether devices() names some"),
    "devices none": ({"devices": lambda self: ()}, "devices", "whether devices() names some"),
}


@pytest.mark.parametrize(("members", "capability", "words"), WRONG.values(), ids=WRONG)
def test_each_way_to_be_wrong_is_found(members, capability, words):
    with pytest.raises(Exception, match=re.escape(words)) as caught:
        harness_checks.check(made(ToyHarness, **members)(), capability)
    assert not isinstance(caught.value, AssertionError)


@pytest.mark.parametrize("tolerance", [float("nan"), -1e-3, 0.5, float("inf"), True])
def test_a_tolerance_that_lets_everything_or_nothing_pass_is_a_fault(tolerance):
    (message,) = problems(made(tolerance=tolerance))
    assert message == f"array: tolerance is {tolerance!r}; it is a number from 0 to 0.01"


@pytest.mark.parametrize("to_numpy", [lambda self, array: [3.0], lambda self, array: None, lambda self, array: 1 / 0])
def test_to_numpy_is_tried_even_where_arrays_are_those_of_numpy(to_numpy):
    (message,) = problems(made(to_numpy=to_numpy))
    assert message.startswith("to_numpy: ")


def test_a_harness_without_grad_is_told_how_to_say_so():
    class Without(Harness):
        name = "autograd"
        array = Autograd.array
        to_numpy = Autograd.to_numpy

    (message,) = problems(Without)
    assert message.endswith('Without does not define grad(); if the system has none, say so: absent = {"grad": "why"}')


def test_none_takes_an_inherited_capability_away():
    report = ran(made(jvp=None, absent={"jvp": "not today"}), fine)
    assert report.capabilities["jvp"] == "absent: not today"
    assert report.ok


def test_a_capability_of_the_instance_counts():
    harness = Autograd()
    harness.jit = lambda fun: fun
    assert ran(harness, fine).capabilities["jit"] == "there"


def test_a_fault_of_array_is_one_problem_and_what_takes_it_is_not_checked():
    report = ran(made(array=lambda self, value: None), fine)
    assert len(report.problems) == 1
    assert report.capabilities["array"].startswith("broken: array(3.0) returned None")
    assert report.capabilities["jvp"] == "broken: not checked, for array is broken"
    (result,) = report.results
    assert (result.outcome, result.cause) == ("fail", "harness")
    assert result.message.startswith("not run: the harness has faults")


def test_behind_a_fault_of_grad_nothing_else_is_checked():
    with toy():
        report = ran(made(ToyHarness, grad=lambda self, fun: None), fine)
    assert [problem.message.split(":")[0] for problem in report.problems] == ["grad"]
    assert report.capabilities["counter"] == "broken: not checked, for grad is broken"


@pytest.mark.parametrize("error", [SystemExit(0), RecursionError("too deep")])
def test_whatever_a_harness_raises_is_a_problem_of_the_harness(error):
    def fails(self, fun, primal, tangent):
        raise error

    (message,) = problems(made(jvp=fails))
    assert message == f"jvp: {type(error).__name__}: {error}"


def test_a_problem_has_the_traceback_down_to_the_harness():
    def fails(self, fun, primal, tangent):
        raise ValueError("deep down")

    (problem,) = ran(made(jvp=fails), fine).problems
    assert "in fails" in problem.detail
    assert problem.detail.rstrip().endswith("ValueError: deep down")
    assert "run.py" not in problem.detail


@pytest.mark.parametrize("absent", [None, ["jit"], "jit", 3])
def test_absent_that_is_no_mapping_is_one_problem(absent):
    (message,) = problems(made(absent=absent))
    assert re.fullmatch(r"absent: AttributeError: '\w+' object has no attribute 'items'", message)


def test_absent_that_raises_is_one_problem():
    assert problems(made(absent=property(lambda self: 1 / 0))) == ["absent: ZeroDivisionError: division by zero"]


def test_absent_that_names_an_unknown_capability_is_a_problem_and_the_rest_counts():
    report = ran(made(absent={"jitt": "a slip", "jit": "no compiler"}), fine)
    (problem,) = report.problems
    assert problem.message.startswith("absent names 'jitt', no capability and no nesting of grad, jvp, jit, ")
    assert report.capabilities["jit"] == "absent: no compiler"


def test_a_reason_may_be_anything_and_is_shown_on_one_line():
    assert ran(made(absent={"jit": 3, "vmap": "no\nbatches"}), fine).capabilities["jit"] == "absent: 3"
    assert ran(made(absent={"vmap": "no\nbatches"}), fine).capabilities["vmap"] == "absent: no batches"


@pytest.mark.parametrize(
    ("variants", "words"),
    [
        ([], "variants: AttributeError: 'list' object has no attribute 'items'"),
        ({"grad": [len]}, "variants: TypeError: 'list' object is not a mapping"),
        ({"gradient": {"vjp": len}}, "variants names gradient, no capability"),
        ({"grad": {"vjp": None}}, "variant grad=vjp: TypeError: 'NoneType' object is not callable"),
        ({"grad": {"vjp": lambda fun: None}}, "variant grad=vjp: grad of the harness returned None"),
        ({"grad": {"vjp": lambda fun: 1 / 0}}, "variant grad=vjp: ZeroDivisionError: division by zero"),
        ({"grad": {"vjp": lambda fun: lambda *xs: 0.0 * xs[0]}}, "variant grad=vjp: grad of x * x * y at 3, 2 is 0."),
    ],
)
def test_variants_that_are_none_are_problems(variants, words):
    (message,) = problems(made(variants=variants), needs=("grad",), varies=True)
    assert words in message


def test_variants_that_raise_are_a_problem():
    messages = problems(made(variants=property(lambda self: 1 / 0)), needs=("grad",), varies=True)
    assert messages == ["variants: ZeroDivisionError: division by zero"]


def test_a_report_has_every_fault_and_no_scenario_runs():
    calls = []
    wrong = made(
        ToyHarness,
        grad=lambda self, fun: lambda x, *xs: toyad.grad(fun)(x, *xs) * float(x.shape == ()),  # wrong for vectors
        vamp=lambda self, fun: fun,
        jvp=lambda self, fun, x, t: (fun(x), t),
        variants={"jit": {"broken": lambda fun: None}},
    )
    with toy():
        report = ran(wrong, calls.append)
    assert not calls
    assert (report.ran, report.blocked) == (0, 1)
    assert [problem.message.partition(",")[0] for problem in report.problems] == [
        "vamp is no capability; vmap is. The names of your own functions begin with an underscore",
        "grad: grad of v[0] * v[1] at [3",
        "jvp: jvp of x * x at 3 along 2",
        "variant jit=broken: TypeError: 'NoneType' object is not callable",
    ]


def test_several_faults_of_one_capability_are_one_message():
    def doubled(self, fun):
        return lambda x, *y: Autograd().grad(fun)(x, *y) * (1.0 if y else 2.0)

    assert problems(made(grad=doubled))[0].startswith(
        "grad: grad of v[0] * v[1] at [3, 4] is [8. 6.]; [4. 3.] was expected; "
        "grad of (1 - x / 2) ** 2 - -x at 3 is 3.; 1.5 was expected; "
    )


def test_variants_are_read_once_so_that_a_property_may_make_them():
    reads = []

    def variants(self):
        reads.append(1)
        return {"grad": {f"read{len(reads)}": self.grad}}

    report = ran(made(variants=property(variants)), fine, needs=("grad",), varies=True)
    assert [result.id for result in report.results] == ["cond/fine", "cond/fine@grad=read1"]
    assert report.ok
