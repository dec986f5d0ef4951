"""The suite under test: wrong plugins are caught, each by a scenario of its hook, and each scenario catches one."""

import json

import pytest
from mutants import MUTANTS, Mutant, matrix
from mutants.__main__ import main

from adprotocol.conformance import all_scenarios


def harmless():
    return Mutant(hook="cond", name="harmless", way="Is not wrong", make=dict)


@pytest.fixture(scope="module")
def found():
    return matrix.quick()


def test_the_plugin_as_it_should_be_passes_every_scenario():
    assert matrix.failures() == {}


def test_there_are_at_least_60_ways_to_be_wrong_for_all_hooks():
    assert len({mutant.id for mutant in MUTANTS}) == len(MUTANTS) >= 60
    assert len({(mutant.hook, mutant.way) for mutant in MUTANTS}) == len(MUTANTS)
    assert {mutant.hook for mutant in MUTANTS} == {scenario.hook for scenario in all_scenarios().values()}


@pytest.mark.slow
def test_every_mutant_is_killed_by_a_scenario_of_its_hook(found):
    assert [mutant.id for mutant in matrix.survivors(found)] == []


@pytest.mark.slow
def test_every_scenario_kills_a_mutant_that_is_right_in_other_things(found):
    assert [scenario.id for scenario in matrix.idle(found, all_scenarios().values())] == []


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
    assert "cond/none-is-a-result" in row["killed_by"]
    assert data["survivors"] == data["idle"] == []


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


def test_trivial_mutants_do_not_count_for_a_scenario():
    scenario = all_scenarios()["cond/grad"]
    trivial = Mutant(hook="cond", name="trivial", way="Raises", make=dict, trivial=True)
    assert matrix.idle({trivial: ["cond/grad"]}, [scenario]) == [scenario]
    assert matrix.idle({harmless(): ["cond/grad"]}, [scenario]) == []
