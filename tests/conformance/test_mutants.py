"""The suite under test: wrong plugins are caught, each by a scenario of its hook, and each scenario catches one."""

import contextlib
import itertools
import json
from dataclasses import replace

import pytest
import toyad_adprotocol as right
from mutants import MUTANTS, Mutant, active, matrix
from mutants.__main__ import main

import adprotocol
from adprotocol.conformance import Absent, all_scenarios, nesting
from adprotocol.conformance.checks import Checked

# Of the scenarios that ask, those for which it does not matter what the answer is.
THAT_ASKING_CHANGES_NOTHING = {
    name
    for name in all_scenarios()
    if name.startswith(("within_gradient/asking-changes-nothing-", "within_gradient/freed-behind-"))
} | {"within_gradient/asking-leaves-no-gradient"}


def harmless():
    return Mutant(hook="cond", name="harmless", way="Is not wrong", make=dict)


def test_the_plugin_as_it_should_be_passes_every_scenario():
    assert matrix.failures() == {}


def test_there_are_at_least_60_ways_to_be_wrong_for_all_hooks():
    assert len({mutant.id for mutant in MUTANTS}) == len(MUTANTS) >= 60
    assert len({(mutant.hook, mutant.way) for mutant in MUTANTS}) == len(MUTANTS)
    assert {mutant.hook for mutant in MUTANTS} == {scenario.hook for scenario in all_scenarios().values()}


@pytest.mark.slow
def test_every_mutant_is_killed_by_a_scenario_of_its_hook_and_by_another_make_and_every_scenario_kills_one():
    found = matrix.quick_alone()
    assert [mutant.id for mutant in matrix.survivors(found)] == []
    assert [mutant.id for mutant in matrix.alone(found)] == []
    assert [scenario.id for scenario in matrix.idle(found, all_scenarios().values())] == []


def test_few_mutants_are_killed_by_one_make_alone_and_each_says_why():
    assert sum(bool(mutant.alone) for mutant in MUTANTS) <= 10


def test_scenarios_that_differ_by_a_transformation_are_of_one_make():
    under_grad, under_jvp, other = "cond/nan-in-operand-grad", "cond/nan-in-operand-jvp", "cond/grad"
    assert len(matrix.makes([under_grad, under_jvp])) == 1
    assert len(matrix.makes([under_grad, other])) == 2
    assert matrix.alone({harmless(): [under_grad, under_jvp]}) == [harmless()]
    assert matrix.alone({harmless(): [under_grad, other]}) == []
    assert matrix.alone({replace(harmless(), alone="a reason"): [under_grad]}) == []


def test_a_mutant_leaves_nothing_behind():
    for name in ("cond/wrong-branch", "value_and_grad/zeros-for-the-frozen", "plugins/tables-are-not-emptied"):
        (mutant,) = (mutant for mutant in MUTANTS if mutant.id == name)
        matrix.failures(mutant, list(all_scenarios().values())[::20])
    assert matrix.failures() == {}


def test_the_command_prints_a_row_for_each_mutant_chosen(capsys):
    assert main(["-k", "cond/converts-n", "--jobs", "1"]) == 0
    printed = capsys.readouterr().out
    assert "cond/converts-none" in printed
    assert "cond/converts-numbers" in printed
    assert "2 of 2 mutants are killed by scenarios of their hook" in printed


def test_the_command_as_json_names_the_scenarios_that_kill(capsys):
    assert main(["-k", "cond/none-runs-again", "--json", "--jobs", "1"]) == 0
    data = json.loads(capsys.readouterr().out)
    (row,) = data["mutants"]
    assert row["id"] == "cond/none-runs-again"
    assert "cond/one-branch-runs-once" in row["killed_by"]
    assert data["survivors"] == data["alone"] == data["idle"] == []


def test_a_survivor_is_named_and_fails_the_command(monkeypatch, capsys):
    monkeypatch.setattr("mutants.__main__.MUTANTS", [harmless()])
    assert main(["-k", "harmless", "--jobs", "1"]) == 1
    assert "SURVIVORS\n  cond/harmless: Is not wrong" in capsys.readouterr().out


def test_a_scenario_that_kills_nothing_fails_the_command(monkeypatch, capsys):
    scenarios = {"cond/grad": all_scenarios()["cond/grad"]}
    monkeypatch.setattr("mutants.__main__.all_scenarios", lambda: scenarios)
    monkeypatch.setattr("mutants.matrix.all_scenarios", lambda: scenarios)
    monkeypatch.setattr("mutants.__main__.MUTANTS", [harmless()])
    assert main(["--jobs", "1"]) == 1
    assert "SCENARIOS THAT KILL NOTHING\n  cond/grad" in capsys.readouterr().out


def test_a_word_that_no_mutant_has_is_wrong_usage(capsys):
    assert main(["-k", "nosuchmutant"]) == 2
    assert "nosuchmutant" in capsys.readouterr().err


def named(name):
    return next(mutant for mutant in MUTANTS if mutant.id == name)


def grid_of_the_query():
    """Return the scenarios that ask one question under nested transformations, which their names spell."""
    return {
        scenario.id: scenario
        for scenario in all_scenarios().values()
        if scenario.id == f"within_gradient/{scenario.transform.replace(' ', '-').replace('_', '-')}"
    }


@pytest.mark.parametrize(("answer", "differentiating"), [("always-false", True), ("always-true", False)])
def test_every_scenario_of_the_grid_notices_the_answer_that_is_wrong_there(answer, differentiating):
    concerned = [
        scenario
        for scenario in grid_of_the_query().values()
        if nesting.differentiates(scenario.transform) is differentiating
    ]
    assert len(concerned) > 10
    noticed = matrix.failures(named(f"within_gradient/{answer}"), concerned)
    assert [scenario.id for scenario in concerned if scenario.id not in noticed] == []


def asking():
    """Return the scenarios of the query in which the plugin is asked."""
    asked, found = [], []

    def within_gradient(value):
        asked.append(value)
        return right.within_gradient(value)

    counting = Mutant("within_gradient", "counting", "Counts", lambda: {"within_gradient": within_gradient})
    for scenario in all_scenarios().values():
        if scenario.hook == "within_gradient":
            asked.clear()
            matrix.failures(counting, [scenario])
            found += [scenario] if asked else []
    return found


def test_every_scenario_that_asks_notices_that_all_answers_are_the_opposite():
    scenarios = asking()
    assert len(scenarios) > 150
    noticed = matrix.failures(named("within_gradient/negated"), scenarios)
    assert {scenario.id for scenario in scenarios if scenario.id not in noticed} == THAT_ASKING_CHANGES_NOTHING


class Swapped:
    """A query that notes its answers, and then gives two of them in each other's place."""

    def __init__(self):
        self.right, self.noted, self.order, self.asked = adprotocol.within_gradient, [], None, 0

    def __call__(self, *values):
        answer = self.right(*values)
        if self.order is None:
            self.noted.append(answer)
            return answer
        self.asked += 1
        # What follows a wrong answer may be asked oftener.
        return self.noted[self.order[self.asked - 1]] if self.asked <= len(self.order) else answer

    def pairs(self, reach=5):
        """Return the orders in which two answers that differ, and are near each other, are exchanged."""
        places = range(len(self.noted))
        for i, j in itertools.combinations(places, 2):
            if j - i <= reach and {self.noted[i], self.noted[j]} == {True, False}:
                yield [{i: j, j: i}.get(place, place) for place in places]

    def play(self, order):
        self.order, self.asked = order, 0


def test_no_scenario_passes_with_two_answers_in_each_others_place(monkeypatch):
    # Without stages each answer is known, and can be given elsewhere; threads ask in any order.
    eager = dict.fromkeys(("jit", "compile", "checkpoint"), lambda fun: fun)
    asking = [s for s in all_scenarios().values() if s.rule == "C7" or s.hook == "within_gradient"]
    scenarios = [s for s in asking if s.id not in THAT_ASKING_CHANGES_NOTHING]
    blind, exchanged = set(), set()
    with active(None), matrix.fresh_harness() as harness:
        for scenario in (s for s in scenarios if s.transform not in ("threads", "abstract")):
            query = Swapped()
            with monkeypatch.context() as patch:
                patch.setattr("adprotocol.within_gradient", query)
                with contextlib.suppress(Absent):
                    scenario.function(Checked(harness, eager))
                for order in query.pairs():
                    query.play(order)
                    exchanged.add(scenario.id)
                    with contextlib.suppress(Exception):
                        scenario.function(Checked(harness, eager))
                        blind.add(scenario.id)
    assert len(exchanged) > 40
    assert blind == set()


def test_trivial_mutants_do_not_count_for_a_scenario():
    scenario = all_scenarios()["cond/grad"]
    trivial = Mutant(hook="cond", name="trivial", way="Raises", make=dict, trivial=True)
    assert matrix.idle({trivial: ["cond/grad"]}, [scenario]) == [scenario]
    assert matrix.idle({harmless(): ["cond/grad"]}, [scenario]) == []
