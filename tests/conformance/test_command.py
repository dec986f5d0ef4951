"""The command: its usage, its exit status and where its reports go."""

import json
import os

import pytest

from adprotocol.__main__ import main
from adprotocol.conformance import all_scenarios, from_json

QUICK = ("-k", "within_gradient/vma[p]", "--jobs", "1")


def run(*arguments):
    return main(["conformance", *map(str, arguments)])


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        run(*arguments)
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name one backend (numpy, "),
        (("--harness", "small"), "--harness 'small' is not of the form MODULE:CLASS"),
        (("numpy", "--list", "--json", "-"), "--list runs nothing"),
        (("numpy", "--json", "-", "--html", "-"), "only one report can go to standard output"),
        (("numpy", "--json", "."), "--json .: it is a folder"),
        (("numpy", "--json", "nowhere/report.json"), "--json nowhere/report.json: there is no folder nowhere"),
        (("numpy", "--level", "must"), "invalid choice: 'must'"),
        (("numpy", "--time-limit", "0"), "'0' is not a positive number of seconds"),
        (("numpy", "--jobs", "none"), "'none' is not a positive number"),
        (("--list", "-k", "nowhere"), "no scenario has 'nowhere'"),
        (("nowhere", *QUICK), "no backend 'nowhere'; there are numpy, "),
        (("numpy", "--device", "gpu", *QUICK), "numpy has no device 'gpu' here; there are cpu"),
        (("numpy", "-k", "nowhere", "--jobs", "1"), "nothing is selected by -k 'nowhere' --level MAY"),
        (("--harness", "nowhere:Harness", *QUICK), "--harness 'nowhere:Harness' names nothing"),
    ],
)
def test_wrong_usage_says_what_is_wrong(capsys, arguments, words):
    assert words in refused(capsys, *arguments)


@pytest.mark.parametrize("option", ["--json", "--html", "--markdown", "--badge"])
def test_a_report_on_standard_output_is_alone_there(capsys, option):
    assert run("numpy", *QUICK, option, "-") == 0
    out, err = capsys.readouterr()
    if option in ("--json", "--badge"):
        json.loads(out)
    else:
        assert out.startswith({"--html": "<!doctype html>", "--markdown": "# adprotocol conformance of numpy"}[option])
    assert "PASS: 1 of 1 scenarios ran (selected from " in err


def test_all_well_is_said_last(capsys):
    assert run("numpy", *QUICK) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1].startswith("PASS: 1 of 1 scenarios ran (selected from ")
    assert err == ""


def test_the_level_and_words_select(capsys, tmp_path):
    target = tmp_path / "report.json"
    assert run("numpy", "-k", "cond/*", "-k", "W9", "--level", "MUST", "--json", target) == 0
    report = from_json(target.read_text("utf-8"))
    assert {result.level for result in report.results} == {"MUST"}
    assert all(result.hook == "cond" or result.rule == "W9" for result in report.results)
    assert (report.keywords, report.level) == (("cond/*", "W9"), "MUST")


def test_a_report_that_cannot_be_written_loses_no_other(capsys, tmp_path):
    target = tmp_path / "report.md"
    full = "/dev/full"
    if not os.path.exists(full):  # noqa: PTH110
        pytest.skip("there is no /dev/full")
    assert run("numpy", *QUICK, "--json", full, "--markdown", target) == 1
    assert target.stat().st_size > 100
    assert "/dev/full could not be written" in capsys.readouterr().err


def test_the_list_has_every_scenario_with_level_rule_and_summary(capsys):
    assert run("--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"{len(all_scenarios())} scenarios"
    assert any("  within_gradient/grad  " in line and line.startswith("MUST") for line in lines)


def test_the_list_of_a_backend_has_its_variants(capsys):
    assert run("torch", "--list", "-k", "within_gradient/grad@*") == 0
    assert "within_gradient/grad@grad=" in capsys.readouterr().out
