"""The command: its usage, its exit status and where its reports go."""

import json
from unittest import mock

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
        (("--harness", "small", *QUICK), "no backend 'small'; there are numpy, "),
        (("numpy", "--json", "."), "Is a directory: '.'"),
        (("numpy", "--json", "nonesuch/report.json"), "No such file or directory: 'nonesuch/report.json'"),
        (("numpy", "--level", "must"), "invalid choice: 'must'"),
        (("numpy", "--time-limit", "long"), "invalid float value: 'long'"),
        (("numpy", "--jobs", "none"), "invalid int value: 'none'"),
        (("numpy", "--jobs", "0"), "argument --jobs: 0 is not a number above zero"),
        (("numpy", "--time-limit", "0"), "argument --time-limit: 0 is not a number above zero"),
        (("numpy", "--time-limit", "nan"), "argument --time-limit: nan is not a number above zero"),
        (("numpy", "--list", "-k", "cond/*", "-k", "nonesuch"), "no scenario matches 'nonesuch'"),
        (("numpy", *QUICK, "-k", "nonesuch"), "no scenario matches 'nonesuch'"),
        (("numpy", "-k", "within_gradient/explain", "--level", "MUST"), "nothing is selected by -k 'within_gra"),
        (("numpy", "--device", "gpu", *QUICK), "numpy has no device 'gpu' here; there are cpu"),
    ],
)
def test_wrong_usage_says_what_is_wrong(capsys, arguments, words):
    assert words in refused(capsys, *arguments)


@pytest.mark.parametrize(
    "arguments",
    [("nonesuch",), ("autograd", "-k", "wihtin"), ("autograd", "-k", "within_gradient/explain", "--level", "MUST")],
)
def test_a_mistyped_name_is_refused_before_a_worker_starts(capsys, monkeypatch, arguments):
    monkeypatch.setattr(pytest, "main", None)
    refused(capsys, *arguments)


def test_a_word_of_a_variant_selects(monkeypatch):
    monkeypatch.setattr(pytest, "main", mock.Mock(side_effect=KeyboardInterrupt))
    assert run("autograd", "-k", "within_gradient/grad@*") == 130


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


def test_what_has_changed_since_an_earlier_report_is_said(capsys, tmp_path):
    earlier = tmp_path / "earlier.json"
    assert run("numpy", *QUICK, "--json", earlier) == 0
    earlier.write_text(earlier.read_text("utf-8").replace('"outcome": "pass"', '"outcome": "fail"'))
    capsys.readouterr()
    assert run("numpy", *QUICK, "--since", earlier) == 0
    assert "    within_gradient/vmap: fail -> pass\n" in capsys.readouterr().out
    (tmp_path / "none.json").write_text("{}")
    assert "holds no report that --json wrote" in refused(capsys, "numpy", *QUICK, "--since", tmp_path / "none.json")
    assert "No such file" in refused(capsys, "numpy", *QUICK, "--since", tmp_path / "missing.json")


def test_the_level_and_words_select(capsys, tmp_path):
    target = tmp_path / "report.json"
    assert run("numpy", "-k", "cond/*", "-k", "W9", "--level", "MUST", "--json", target) == 0
    report = from_json(target.read_text("utf-8"))
    assert {result.level for result in report.results} == {"MUST"}
    assert all(result.hook == "cond" or result.rule == "W9" for result in report.results)
    assert (report.keywords, report.level) == (("cond/*", "W9"), "MUST")


def test_the_list_has_every_scenario_with_level_rule_and_summary(capsys):
    assert run("--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"{len(all_scenarios())} scenarios"
    assert any("  within_gradient/grad  " in line and line.startswith("MUST") for line in lines)


def test_the_list_of_a_backend_has_its_variants(capsys):
    assert run("torch", "--list", "-k", "within_gradient/grad@*") == 0
    assert "within_gradient/grad@grad=" in capsys.readouterr().out
