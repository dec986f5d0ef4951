"""The command line of the suite: what is written where, and what the exit status tells."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import small

from adprotocol.__main__ import main
from adprotocol.conformance import all_scenarios
from adprotocol.conformance._run import result, suite, supervisor

HERE = Path(__file__).parent
# In one process, for each takes as long to begin as all of these scenarios.
QUICK = ["-k", "within_gradient/vmap", "--jobs", "1"]


def run(*arguments):
    return main(["conformance", *map(str, arguments)])


def refused(capsys, *arguments):
    """The message with which a usage is refused."""
    with pytest.raises(SystemExit) as caught:
        run(*arguments)
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("usage: adprotocol conformance")
    return captured.err.rpartition("error: ")[2].strip()


@pytest.fixture
def here(monkeypatch):
    """Run the suite in this process, which has scenarios of its own."""

    def run(backend, *, jobs, **options):
        return suite.run(backend, **options)

    monkeypatch.setattr(supervisor, "run", run)


def started(*arguments, **options):
    path = os.pathsep.join(map(str, [HERE, HERE.parents[1], HERE.parents[1] / "examples" / "toyad"]))
    return subprocess.Popen(
        [sys.executable, "-m", "adprotocol", "conformance", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        **options,
    )


def finished(*arguments, **options):
    with started(*arguments, **options) as process:
        out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_all_well(capsys):
    assert run("numpy", *QUICK) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1].startswith("PASS: ")
    assert "scenarios ran (selected from " in captured.out
    assert "scenarios, " in captured.err


def test_something_is_wrong(capsys):
    assert run("--harness", "test_command:Faulty", *QUICK) == 1
    assert "jvp: ZeroDivisionError" in capsys.readouterr().out


class Faulty(small.Autograd):
    def jvp(self, fun, primal, tangent):
        raise ZeroDivisionError


def test_neither_backend_nor_harness(capsys):
    message = "name one backend (numpy, autograd, jax, torch), or a harness with --harness MODULE:CLASS"
    assert refused(capsys) == message


def test_a_harness_beside_the_plugin_that_it_is_for(capsys):
    assert run("numpy", "--harness", "small:Plain", "-k", "numbers") == 0
    assert "PASS: " in capsys.readouterr().out
    message = "the harness is for 'numpy', and 'jax' was named; leave that out"
    assert refused(capsys, "jax", "--harness", "small:Plain", *QUICK) == message


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "no backend 'nowhere'; there are numpy, autograd, jax, torch."),
        (["--harness", "jax"], "--harness 'jax' is not of the form MODULE:CLASS"),
        (["--harness", "nowhere:Nothing"], "--harness 'nowhere:Nothing' names nothing: ModuleNotFoundError"),
        (["--harness", "small:Nothing"], "--harness 'small:Nothing' names nothing: AttributeError"),
        (["--harness", ":"], "--harness ':' names nothing"),
        (["--harness", "json:dumps"], "is a function; a harness derives from"),
        (["numpy", "--device", "cuda:0"], "numpy has no device 'cuda:0' here; there are cpu"),
        (["--harness", "small:Plain", "--device", "cpu"], "numpy has no devices to choose from"),
        (["numpy", "--time-limit", "0"], "'0' is not a positive number of seconds"),
        (["numpy", "--time-limit", "-1"], "'-1' is not a positive number of seconds"),
        (["numpy", "--time-limit", "nan"], "'nan' is not a positive number of seconds"),
        (["numpy", "--time-limit", "inf"], "'inf' is not a positive number of seconds"),
        (["numpy", "--time-limit", "1e300"], "'1e300' is not a positive number of seconds"),
        (["numpy", "--time-limit", "soon"], "'soon' is not a positive number of seconds"),
        (["numpy", "--level", "must"], "invalid choice: 'must'"),
        (["numpy", "-k", "nowhere"], "nothing is selected by -k 'nowhere' --level MAY; --list shows what there is"),
        (["--list", "-k", "nowhere"], "no scenario has 'nowhere'"),
        (["--list", "--json", "-"], "--list runs nothing, so there is nothing to report"),
        (["numpy", "--json", "-", "--markdown", "-"], "only one report can go to standard output"),
        (["numpy", "--json", "-", "--badge", "-"], "only one report can go to standard output"),
        (["numpy", "--json", "nowhere/report.json"], "--json nowhere/report.json: there is no folder nowhere"),
        (["numpy", "--html", "."], "--html .: it is a folder"),
        (["numpy", "--json", ""], "--json : it is a folder"),
        (["numpy", "--json", "x" * 300], "File name too long"),
        (["numpy", "--json", "r", "--markdown", "./r"], "--json and --markdown both write ./r"),
        (["numpy", "--badge", "r.x", "--html", "r.x"], "--html and --badge both write r.x"),
        (["numpy", "jax"], "unrecognized arguments: jax"),
        (["numpy", "--nowhere"], "unrecognized arguments: --nowhere"),
    ],
)
def test_wrong_usage_says_what_is_wrong(capsys, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert words in refused(capsys, *arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_a_folder(capsys, tmp_path):
    (tmp_path / "file").write_text("kept")
    assert "there is no folder" in refused(capsys, "numpy", "--json", tmp_path / "file" / "report.json")


def test_a_folder_that_must_not_be_written_is_refused_before_the_run(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda place, mode: place != tmp_path)
    assert "is not writable" in refused(capsys, "numpy", "--json", tmp_path / "report.json")


def test_a_report_that_cannot_be_written_loses_no_other(capsys, tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("takes the device /dev/full")
    target = tmp_path / "report.md"
    assert run("numpy", *QUICK, "--json", "/dev/full", "--markdown", target) == 1
    assert "/dev/full could not be written: [Errno 28] No space left on device" in capsys.readouterr().err
    assert target.read_text(encoding="utf-8")


def test_reports_are_written_where_they_are_wanted(capsys, tmp_path):
    names = {"json": "r.json", "html": "r.html", "markdown": "r.md", "badge": "badge.json"}
    options = [word for name, file in names.items() for word in (f"--{name}", tmp_path / file)]
    assert run("numpy", *QUICK, *options) == 0
    assert {path.name for path in tmp_path.iterdir()} == set(names.values())
    report = result.from_json((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert report.ok
    assert json.loads((tmp_path / "badge.json").read_text(encoding="utf-8"))["label"] == "adprotocol"
    assert capsys.readouterr().out.splitlines()[-1].startswith("PASS: ")


def test_each_result_is_a_line_as_it_comes(capsys, tmp_path):
    lines, whole = tmp_path / "r.jsonl", tmp_path / "r.json"
    assert run("numpy", *QUICK, "--lines", lines, "--json", whole) == 0
    found = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    results = json.loads(whole.read_text(encoding="utf-8"))["results"]
    assert sorted(found, key=lambda one: one["id"]) == sorted(results, key=lambda one: one["id"])
    capsys.readouterr()
    assert "--lines writes to a file" in refused(capsys, "numpy", "--lines", "-")
    assert "--lines .: it is a folder" in refused(capsys, "numpy", "--lines", ".")


def test_the_number_of_processes_is_checked(capsys):
    assert "--jobs: '0' is not a positive number" in refused(capsys, "numpy", "--jobs", "0")
    assert "--jobs: 'all' is not a positive number" in refused(capsys, "numpy", "--jobs", "all")


def test_a_badge_is_json(capsys, tmp_path):
    assert run("numpy", *QUICK, "--badge", tmp_path / "badge") == 0
    assert json.loads((tmp_path / "badge").read_text(encoding="utf-8"))["schemaVersion"] == 1


@pytest.mark.parametrize("option", ["--json", "--html", "--markdown", "--badge"])
def test_a_report_on_standard_output_is_alone_there(capsys, option):
    assert run("numpy", *QUICK, option, "-") == 0
    out = capsys.readouterr().out
    assert "PASS: " not in out.splitlines()[-1]
    assert out.endswith("\n")
    if option in ("--json", "--badge"):
        json.loads(out)


class Printing(small.Plain):
    """Prints, in Python, to the stream of the interpreter and from compiled code."""

    def array(self, value):
        print("a print")  # noqa: T201
        sys.__stdout__.write("a stream\n")
        os.write(1, b"a system call\n")
        return super().array(value)


def test_a_harness_that_prints_leaves_the_report_pure():
    status, out, err = finished("--harness", "test_command:Printing", "--json", "-", "-k", "numbers")
    assert json.loads(out)["ok"] is True
    assert status == 0
    for printed in ("a print", "a stream", "a system call"):
        assert printed in err


def test_text_is_written_where_output_is_ascii():
    process = subprocess.run(
        [sys.executable, "-m", "adprotocol", "conformance", "numpy", *QUICK, "--markdown", "-"],
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    assert process.returncode == 0, process.stderr
    process.stdout.decode("ascii")


def surrogate(h):
    raise ValueError("a lone \udc80")


def test_a_message_that_is_no_text_is_written_as_its_escape(here, capsys, tmp_path):
    options = [tmp_path / name for name in ("r.json", "r.html", "r.md")]
    with small.scenarios(surrogate):
        status = run("--harness", "small:Plain", "--json", options[0], "--html", options[1], "--markdown", options[2])
    assert status == 1
    report = result.from_json(options[0].read_text(encoding="utf-8"))
    assert report.results[0].message == "ValueError: a lone \udc80"
    assert all("udc80" in path.read_text(encoding="utf-8") for path in options)


@pytest.mark.parametrize(
    ("level", "function", "status"),
    [("MAY", surrogate, 0), ("SHOULD", surrogate, 1), ("MUST", surrogate, 1), ("MAY", lambda h: h.check(0, "x"), 1)],
)
def test_the_exit_status_is_that_of_the_report(here, capsys, level, function, status):
    with small.scenarios(function, lambda_or_not, level=level):
        assert run("--harness", "small:Plain") == status


def lambda_or_not(h):
    h.array(1.0)


def test_a_problem_alone_fails_the_run(here, capsys):
    with small.scenarios(lambda_or_not):
        assert run("--harness", "test_command:Faulty") == 1


def test_the_level_leaves_out_what_is_less_binding(capsys):
    assert run("numpy", "--level", "MUST", "--json", "-") == 0
    assert {entry["level"] for entry in json.loads(capsys.readouterr().out)["results"]} == {"MUST"}


def test_words_may_be_repeated_and_may_be_globs(capsys):
    assert run("--list", "-k", "cond/jit", "-k", "cond/*-of-vmap") == 0
    lines = capsys.readouterr().out.splitlines()
    ids = [line.split()[2] for line in lines[:-1]]
    assert lines[-1] == f"{len(ids)} scenarios"
    wanted = [
        key
        for key in all_scenarios()
        if key.startswith("cond/jit") or (key.startswith("cond/") and key.endswith("-of-vmap"))
    ]
    assert ids == wanted


def test_the_list_has_every_scenario_with_level_rule_and_summary(capsys):
    assert run("--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(all_scenarios()) + 1
    for line, scenario in zip(lines, all_scenarios().values(), strict=False):
        assert line.split()[:3] == [scenario.level, scenario.rule, scenario.id]
        assert scenario.summary in line


def test_verbose_shows_the_traceback(here, capsys):
    with small.scenarios(surrogate):
        run("--harness", "small:Plain")
        assert "in surrogate" not in capsys.readouterr().out
        run("--harness", "small:Plain", "-v")
        assert "in surrogate" in capsys.readouterr().out


def test_a_time_limit_is_for_each_scenario(here, capsys):
    def hang(h):
        time.sleep(3)

    begin = time.perf_counter()
    with small.scenarios(hang, lambda_or_not):
        assert run("--harness", "small:Plain", "--time-limit", "0.2") == 1
    assert time.perf_counter() - begin < 2
    assert "it did not return within 0.2 s" in capsys.readouterr().out


class Broken(small.Plain):
    def __init__(self, device=None):
        raise RuntimeError("no driver")


def test_a_broken_backend_is_one_line_and_status_1(capsys):
    assert run("--harness", "test_command:Broken") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1] == "adprotocol conformance: Broken() raises RuntimeError: no driver"


def test_list_into_a_reader_that_goes_away_is_quiet():
    with started("--list") as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


def interrupts(h):
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    time.sleep(5)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_keeps_what_ran_and_shows_no_traceback(here, capsys, tmp_path):
    target = tmp_path / "report.json"
    with small.scenarios(lambda_or_not, interrupts, surrogate):
        assert run("--harness", "small:Plain", "--json", target) == 130
    captured = capsys.readouterr()
    assert captured.err.endswith("adprotocol conformance: interrupted after 1 of 3 scenarios\n")
    assert "interrupted after 1 of 3 scenarios" in captured.out
    report = result.from_json(target.read_text(encoding="utf-8"))
    assert [entry.outcome for entry in report.results] == ["pass"]
    assert not report.ok


def test_an_interrupt_before_anything_ran_shows_no_traceback(monkeypatch, capsys):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(supervisor, "run", interrupted)
    assert run("numpy") == 130
    assert capsys.readouterr().err.endswith("adprotocol conformance: interrupted\n")


def test_the_installed_program_is_the_same(capsys):
    status, out, _ = finished("numpy", *QUICK)
    assert status == 0
    assert "PASS: " in out


class Varied(small.Autograd):
    """Two ways to differentiate."""

    @property
    def variants(self):
        return {"grad": {"twin": self.grad}}


def listed(capsys, *arguments):
    assert run(*arguments, "--list") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return [line.split()[2] for line in captured.out.splitlines()[:-1]]


def test_the_list_of_a_backend_has_the_cases_that_its_harness_gives_rise_to(capsys):
    ids = listed(capsys, "--harness", "test_command:Varied", "-k", "within_gradient/grad")
    assert "within_gradient/grad" in ids
    assert any(name.endswith("@grad=twin") for name in ids)
    assert listed(capsys, "numpy", *QUICK) == listed(capsys, *QUICK) != []


def test_the_list_of_a_backend_is_what_a_run_of_it_selects(capsys):
    assert run("numpy", *QUICK, "--json", "-") == 0
    ran = [entry["id"] for entry in json.loads(capsys.readouterr().out)["results"]]
    assert listed(capsys, "numpy", *QUICK) == ran


def test_the_list_takes_a_harness_beside_a_backend(capsys):
    assert listed(capsys, "numpy", "--harness", "small:Plain", *QUICK) == listed(capsys, "numpy", *QUICK)


@pytest.mark.parametrize(
    "arguments", [["nowhere"], ["--harness", "jax"], ["--harness", "nowhere:Nothing"], ["numpy", "--device", "cuda:0"]]
)
def test_a_backend_that_there_is_not_is_refused_with_and_without_list(capsys, arguments):
    message = refused(capsys, *arguments)
    assert refused(capsys, *arguments, "--list") == message


class Unlisted(small.Plain):
    @property
    def variants(self):
        raise ZeroDivisionError


def test_the_list_of_a_harness_that_cannot_tell_its_variants_says_so(capsys):
    assert run("--harness", "test_command:Unlisted", "--list") == 1
    captured = capsys.readouterr()
    assert captured.out.endswith(" scenarios\n")
    assert "ZeroDivisionError" in captured.err
    assert run("--harness", "test_command:Broken", "--list") == 1
    assert capsys.readouterr().err == "adprotocol conformance: Broken() raises RuntimeError: no driver\n"


def without_jinja2(monkeypatch):
    from adprotocol.conformance._reports import written

    written.environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)


def test_without_jinja2_all_but_the_written_pages_work(capsys, monkeypatch, tmp_path):
    without_jinja2(monkeypatch)
    assert run("numpy", *QUICK, "--json", tmp_path / "r.json", "--badge", tmp_path / "badge.json") == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("PASS: ")
    assert (tmp_path / "badge.json").exists()


@pytest.mark.parametrize("option", ["--html", "--markdown"])
def test_a_page_without_jinja2_is_refused_with_the_remedy(capsys, monkeypatch, tmp_path, option):
    without_jinja2(monkeypatch)
    message = refused(capsys, "numpy", option, tmp_path / "report")
    assert message.endswith("need Jinja2, which is not installed: pip install 'adprotocol[conformance]'")
    assert list(tmp_path.iterdir()) == []


def test_the_suite_loads_jinja2_only_for_a_page(tmp_path):
    code = "import sys; from adprotocol.__main__ import main; main(sys.argv[1:]); assert 'jinja2' not in sys.modules"
    command = [sys.executable, "-c", code, "conformance", "numpy", *QUICK, "--json", str(tmp_path / "r.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_badge_called_svg_is_refused(capsys, tmp_path):
    assert "a badge is JSON" in refused(capsys, "numpy", "--badge", tmp_path / "badge.svg")
