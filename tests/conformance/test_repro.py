"""Repros: what is pasted fails in the same way, for every scenario."""

import builtins
import functools
import symtable
import types
import warnings

import pytest
from small import Autograd, ToyHarness, made, ran, scenarios, toy

from adprotocol import conformance
from adprotocol.conformance import WrongAnswer, all_scenarios
from adprotocol.conformance._run.repro import repro
from adprotocol.conformance._run.result import FAIL, PASS, WRONG
from adprotocol.errors import one_line

OFFSET = 1.0


class Small(Autograd):
    """At the top of a module, as a maintainer's is."""


def execute(text):
    with warnings.catch_warnings():
        # As while the suite runs.
        warnings.simplefilter("ignore")
        exec(compile(text, "<repro>", "exec"), {"__name__": "__main__"})  # noqa: S102


def globals_of(text):
    """The names that a script takes from outside of its functions."""
    found, tables = set(), [symtable.symtable(text, "<repro>", "exec")]
    while tables:
        current = tables.pop()
        found |= {symbol.get_name() for symbol in current.get_symbols() if symbol.is_global()}
        tables.extend(current.get_children())
    return found


def test_the_repro_of_every_scenario_takes_no_name_that_is_not_there():
    missing = {}
    for identifier, scenario in all_scenarios().items():
        text = repro(scenario, "harness_of('numpy')")
        # The function itself is shown, so that one sees what is run.
        assert "].function(" not in text, identifier
        *definitions, _call = text.rstrip().split("\n")
        space = {"__name__": "__main__"}
        exec(compile("\n".join(definitions), "<repro>", "exec"), space)  # noqa: S102
        missing[identifier] = [name for name in globals_of(text) if name not in space and not hasattr(builtins, name)]
    assert len(missing) > 500
    assert {identifier: names for identifier, names in missing.items() if names} == {}


@pytest.fixture(scope="module")
def passed():
    """What passes under autograd, under which more applies than under NumPy."""
    return [result for result in conformance.run("autograd").results if result.outcome == PASS and result.seconds < 0.5]


def test_the_repro_of_what_passes_passes(passed):
    assert len(passed) > 300
    known = all_scenarios()
    for result in passed:
        identifier, _, variant = result.id.partition("@")
        execute(repro(known[identifier], "harness_of('autograd')", variant))


# Broken in one way each: always False, a constant of the first argument only, a cond that takes the other branch.
BROKEN = {
    "never tracked": {"within_gradient": lambda value: False},
    "no constant": {"non_differentiable": lambda value: value},
    "other branch": {"cond": lambda pred, true_fun, false_fun, operands: false_fun(*operands)},
    "raises": {"cond": lambda pred, true_fun, false_fun, operands: {}["no branch"]},
}


@pytest.mark.parametrize("hooks", BROKEN.values(), ids=BROKEN)
def test_the_repro_of_what_fails_fails_in_the_same_way(hooks):
    with toy(**hooks):
        report = conformance.run("toyad", keywords=["*/grad", "*/jvp", "*/jit", "straight-through", "cond/*nan*"])
        failed = [result for result in report.results if result.outcome in (WRONG, FAIL)]
        assert failed
        for result in failed:
            with pytest.raises(Exception) as caught:
                execute(result.repro)
            assert isinstance(caught.value, WrongAnswer) == (result.outcome == WRONG)
            assert result.message == (str(caught.value) if result.outcome == WRONG else one_line(caught.value))


def refused(h):
    h.assert_equal(h.grad(lambda x: x * x)(h.array(3.0)), 5.0 + OFFSET - OFFSET)


def test_the_repro_has_the_harness_and_the_names_of_the_module():
    (result,) = ran(Small, refused).results
    assert result.repro.splitlines() == [
        "# cond/refused: A summary",
        "from __future__ import annotations",
        "from typing import Any",
        "from adprotocol.conformance import Checked, checked, harness_of",
        "from test_repro import OFFSET",
        "",
        "def refused(h):",
        "    h.assert_equal(h.grad(lambda x: x * x)(h.array(3.0)), 5.0 + OFFSET - OFFSET)",
        "",
        "refused(checked(harness_of('test_repro:Small')))",
    ]
    with pytest.raises(WrongAnswer, match=r"the result is 6.; 5. was expected"):
        execute(result.repro)


class Varied(Autograd):
    """Another gradient, which the check does not tell from a right one."""

    @property
    def variants(self):
        return {"grad": {"halved": lambda fun: lambda x, *rest: self.halved(fun, x, *rest)}}

    def halved(self, fun, x, *rest):
        slope = self.grad(fun)(x, *rest)
        return slope if rest or slope.shape else 0.5 * slope


def right(h):
    h.assert_equal(h.grad(lambda x: x * x)(h.array(3.0)), 6.0)


def test_the_repro_of_a_variant_names_it():
    report = ran(Varied, right, needs=("grad",), varies=True)
    assert [result.outcome for result in report.results] == [PASS, WRONG]
    assert report.results[1].repro.endswith("right(checked(harness_of('test_repro:Varied'), 'grad=halved'))\n")
    with pytest.raises(WrongAnswer, match=r"is 3.; 6. was expected"):
        execute(report.results[1].repro)


def test_the_repro_of_a_device_names_it():
    with toy():
        report = ran("toyad", refused, device="fpga")
        assert "checked(harness_of('toyad', 'fpga'))" in report.results[0].repro
        with pytest.raises(WrongAnswer):
            execute(report.results[0].repro)


def scaled(h, factor, *, offset):
    h.assert_equal(h.array(2.0), 2.0 * factor + offset)


def test_the_repro_of_a_partial_function_has_its_keywords():
    partial = functools.partial(scaled, factor=1.0, offset=3.0)
    partial.known = {"summary": "Two\nlines"}
    (result,) = ran(Small, partial).results
    assert result.repro.endswith("scaled(checked(harness_of('test_repro:Small')), factor=1.0, offset=3.0)\n")
    with pytest.raises(WrongAnswer, match=r"is 2.; 5. was expected"):
        execute(result.repro)


def closing_over(expected):
    def closed(h):
        h.assert_equal(h.array(2.0), expected)

    return closed


class Called:
    """A scenario that is no function."""

    __name__ = "called"

    def __call__(self, h):
        h.assert_equal(h.array(2.0), 3.0)


NAMELESS = {}
exec("def sourceless(h):\n    h.assert_equal(h.array(2.0), 3.0)\n", NAMELESS)  # noqa: S102


@pytest.mark.parametrize(
    "function",
    [
        closing_over(3.0),
        lambda h: h.assert_equal(h.array(2.0), 3.0),
        Called(),
        NAMELESS["sourceless"],
        types.MethodType(Called.__call__, Called()),
    ],
    ids=["closure", "lambda", "object", "no source", "method"],
)
def test_a_function_that_does_not_stand_alone_is_called_by_its_id(function):
    with scenarios(function):
        (result,) = conformance.run(Small).results
        assert result.outcome == WRONG
        assert f"all_scenarios()[{result.id!r}].function(checked(harness_of('test_repro:Small')))" in result.repro
        with pytest.raises(WrongAnswer, match=r"is 2.; 3. was expected"):
            execute(result.repro)


def hidden(h):
    h.assert_equal(NOTHING, 3.0)


NOTHING = None


def test_a_name_that_is_none_is_imported_too():
    (result,) = ran(Small, hidden).results
    with pytest.raises(WrongAnswer, match=r"the result is None"):
        execute(result.repro)


def test_a_harness_made_in_a_function_is_named_as_far_as_it_goes():
    class Local(Autograd):
        pass

    (result,) = ran(Local, refused).results
    with pytest.raises(conformance.UsageError, match="names nothing"):
        execute(result.repro)


def test_the_repro_does_not_enter_the_scenario_again():
    before = list(all_scenarios())
    with toy():
        execute(repro(all_scenarios()["cond/grad"], "harness_of('toyad')"))
    assert list(all_scenarios()) == before


def test_a_passing_scenario_has_no_repro():
    (result,) = ran(made(ToyHarness, name="numpy"), lambda h: None).results
    assert (result.outcome, result.repro) == (PASS, "")
