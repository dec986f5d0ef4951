"""The divergences of a plugin, as the suite reads them: what is wrong with one is a problem, and the run goes on."""

import sys

import pytest
from small import ToyHarness, made, ran, toy

from adprotocol.conformance._run.result import EXPECTED, PASS
from adprotocol.divergence import CORE
from adprotocol.extend import Divergence


def divergence(name, *scenarios, **known):
    return Divergence(name=name, **({"title": "A title", "text": "A text.", "scenarios": scenarios} | known))


def one(h):
    raise ValueError("refused")


def two(h):
    h.array(1.0)


def report(hook, harness=ToyHarness, **options):
    with toy() as plugin:
        plugin.hooks = plugin.hooks | {"divergences": hook}
        return ran(harness, one, two, **options)


def messages(hook, **options):
    found = report(hook, **options)
    assert not found.ok
    assert {problem.where for problem in found.problems} == {"divergences"}
    assert len(found.results) == 2
    assert found.results[1].outcome == PASS
    return [problem.message for problem in found.problems]


def test_right_divergences_have_no_problem_and_are_in_the_report():
    found = report(lambda: (divergence("known", "cond/one"),))
    assert found.ok
    assert found.results[0].outcome == EXPECTED
    assert [entry.name for entry in found.divergences] == ["known", *(entry.name for entry in CORE)]


def test_a_plugin_without_the_hook_declares_nothing():
    with toy(without=("divergences",)):
        found = ran(ToyHarness, two)
    assert found.ok
    assert [entry.name for entry in found.divergences] == [entry.name for entry in CORE]


@pytest.mark.parametrize("pattern", ["cond/three", "cond/three@grad=vjp", "cond/t[!w]o", "nowhere/*"])
def test_an_unknown_id_is_a_problem(pattern):
    assert messages(lambda: (divergence("known", "cond/one", pattern),)) == [
        f"divergence 'known' names the unknown scenario {pattern!r}"
    ]


def test_an_unknown_id_is_a_problem_although_the_scenarios_selected_are_others():
    found = report(lambda: (divergence("known", "cond/three"),), keywords=["two"])
    assert [problem.where for problem in found.problems] == ["divergences"]


def test_a_variant_that_this_harness_does_not_have_is_another_harness_s():
    assert report(lambda: (divergence("known", "cond/one", "cond/two@grad=vjp"),)).ok


def test_a_glob_names_what_it_matches():
    found = report(lambda: (divergence("known", "cond/o*"),))
    assert [result.outcome for result in found.results] == [EXPECTED, PASS]


def test_an_id_without_a_variant_names_the_scenario_alone():
    harness = made(ToyHarness, variants={"grad": {"again": ToyHarness().grad}})
    found = report(lambda: (divergence("known", "cond/one"),), harness, needs=("grad",), varies=True)
    assert {result.id: result.outcome for result in found.results} == {
        "cond/one": EXPECTED,
        "cond/one@grad=again": "fail",
        "cond/two": PASS,
        "cond/two@grad=again": PASS,
    }


def test_two_entries_that_name_one_scenario_are_a_problem():
    assert messages(lambda: (divergence("a", "cond/one"), divergence("b", "cond/*ne"))) == [
        "the divergences 'a' and 'b' both name 'cond/one'"
    ]


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (lambda: 1 / 0, "the hook divergences raises ZeroDivisionError"),
        (lambda: None, "NoneType"),
        (lambda: "text", "'str' object has no attribute 'name'"),
        (lambda: sys.exit(0), "SystemExit"),
    ],
)
def test_divergences_that_are_junk_is_a_problem(hook, words):
    (message,) = messages(hook)
    assert words in message
