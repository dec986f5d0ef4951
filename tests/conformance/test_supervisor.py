"""A run survives what it tests: crashes, hangs that nothing can interrupt, and a system that is left broken."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import breaking
import pytest
import small

from adprotocol.conformance import BrokenBackend, UsageError, from_json
from adprotocol.conformance._reports import text
from adprotocol.conformance._run import supervisor
from adprotocol.conformance._run.result import CRASHED, FAIL, PASS
from adprotocol.conformance._run.suite import Interrupted

HERE = Path(__file__).parent


@pytest.fixture
def ran(monkeypatch):
    """The report of a run of some functions of `breaking`, by name, in other processes."""

    def run(*names, **options):
        monkeypatch.setenv("BREAKING", " ".join(names))
        with small.scenarios(*breaking.functions(), level="MUST", needs=()):
            return supervisor.run("breaking:Breaking", **options)

    return run


def outcomes(report):
    return {result.id.removeprefix("cond/"): result.outcome for result in report.results}


def test_a_crash_is_named_and_what_follows_runs(ran):
    told = []
    report = ran(
        "fine", "crashes", "gradient", "last", on_start=told.append, on_result=lambda result: told.append(result.id)
    )
    assert outcomes(report) == {"fine": PASS, "crashes": CRASHED, "gradient": PASS, "last": PASS}
    (crash,) = (result for result in report.results if result.outcome == CRASHED)
    assert crash.message == "the process was ended by SIGSEGV"
    assert "in crashes" in crash.detail
    assert str(HERE) not in crash.detail
    assert "crashes(checked(harness_of('breaking:Breaking')))" in crash.repro
    assert not report.ok
    assert report.sentence() == "4 of 4 scenarios ran: 1 crashed, 3 pass"
    assert told[0] == 4
    assert sorted(told[1:]) == sorted(result.id for result in report.results)


@pytest.mark.parametrize("jobs", [2, 3])
def test_several_processes_share_the_scenarios(ran, jobs):
    told = []
    names = ("fine", "crashes", "gradient", "poisons", "leaves", "last")
    report = ran(*names, jobs=jobs, on_start=told.append, on_result=lambda result: told.append(result.id))
    assert outcomes(report) == {
        "fine": PASS, "crashes": CRASHED, "gradient": PASS, "poisons": FAIL, "leaves": CRASHED, "last": PASS
    }  # fmt: skip
    assert [result.id for result in report.results] == [f"cond/{name}" for name in names]
    assert told[0] == len(names)
    assert sorted(told[1:]) == sorted(result.id for result in report.results)
    assert report.problems == ()


def test_processes_share_a_folder_that_goes_with_the_run(ran, monkeypatch, tmp_path):
    monkeypatch.setenv("FOUND", str(tmp_path / "found"))
    report = ran("leaves_a_file", "finds_the_file", jobs=2)
    assert outcomes(report) == {"leaves-a-file": PASS, "finds-the-file": PASS}
    folder = (tmp_path / "found").read_text()
    assert folder
    assert not Path(folder).exists()
    assert small.Autograd.folder is None


def test_an_error_in_one_process_ends_the_others(ran):
    with pytest.raises(UsageError, match="time limit is 0"):
        ran("fine", "holds", jobs=2, seconds=0)
    assert multiprocessing.active_children() == []


def test_a_process_that_ends_itself_is_a_crash(ran):
    report = ran("leaves", "last")
    assert outcomes(report) == {"leaves": CRASHED, "last": PASS}
    assert report.results[0].message == "the process ended, with status 7"


def test_code_that_never_releases_the_interpreter_is_a_crash_with_its_stack(ran, monkeypatch):
    monkeypatch.setattr(supervisor, "GRACE", 2.0)
    report = ran("fine", "holds", "last", seconds=0.2)
    assert outcomes(report) == {"fine": PASS, "holds": CRASHED, "last": PASS}
    assert "held the lock of the interpreter" in report.results[1].message
    assert "re/__init__.py" in report.results[1].detail


def test_every_scenario_may_crash(ran, monkeypatch):
    monkeypatch.setattr(supervisor, "AGAIN", 2)
    report = ran("crashes", "leaves", "last")
    assert outcomes(report) == {"crashes": CRASHED, "leaves": CRASHED}
    assert report.problems[-1].message == "given up after 2 processes: 2 scenarios have a result"


def test_what_leaves_the_system_broken_is_named_and_what_follows_is_right(ran):
    report = ran("fine", "poisons", "gradient", "last")
    assert outcomes(report) == {"fine": PASS, "poisons": FAIL, "gradient": PASS, "last": PASS}
    assert report.results[1].message == (
        "it leaves the system in a broken state: the gradient of x * x at 3 is 0.; 6. was expected"
    )
    assert report.problems == ()


def test_a_failure_that_leaves_the_system_broken_says_both(ran):
    report = ran("poisons_and_fails", "gradient")
    assert outcomes(report) == {"poisons-and-fails": FAIL, "gradient": PASS}
    assert report.results[0].message == (
        "ValueError: refused; it leaves the system in a broken state: the gradient of x * x at 3 is 0.; 6. was expected"
    )


def test_what_ran_on_a_broken_system_before_a_crash_runs_again(ran):
    report = ran("fine", "poisons", "crashes", "gradient")
    assert outcomes(report) == {"fine": PASS, "poisons": FAIL, "crashes": CRASHED, "gradient": PASS}
    assert [result.id for result in report.results] == ["cond/fine", "cond/poisons", "cond/crashes", "cond/gradient"]


def test_a_check_of_the_harness_that_crashes_is_a_fault_of_the_harness(ran):
    report = ran("jvp", "fine")
    assert outcomes(report) == {"fine": PASS}
    assert report.capabilities["jvp"] == "broken: its check crashed: the process was ended by SIGABRT"
    assert [problem.message for problem in report.problems] == [
        "jvp: its check crashed: the process was ended by SIGABRT"
    ]


def test_an_import_that_crashes_is_a_broken_backend():
    with pytest.raises(BrokenBackend, match="before the first scenario the process ended, with status 3"):
        supervisor.run("leaving:Harness")


def test_errors_before_the_run_are_raised_here():
    with pytest.raises(UsageError, match="no backend 'nowhere'"):
        supervisor.run("nowhere")
    with pytest.raises(UsageError, match="it is one of MUST, SHOULD, MAY"):
        supervisor.run("numpy", level="must")


def test_no_process_is_left(ran):
    ran("fine", "crashes")
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("interruptible")
def test_what_a_process_told_before_an_interrupt_is_kept_though_it_is_read_later(ran, monkeypatch, tmp_path):
    monkeypatch.setenv("FOUND", str(tmp_path / "found"))

    def interrupt(count):
        """Hold up what reads, until the process has told all it can, and is ended."""
        while not Path(os.environ["FOUND"]).exists():
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        while multiprocessing.active_children():
            time.sleep(0.01)

    with pytest.raises(Interrupted) as interrupted:
        ran("fine", "gradient", "waits", "last", on_start=interrupt)
    assert outcomes(interrupted.value.report) == {"fine": PASS, "gradient": PASS}


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_interrupt_keeps_what_ran_and_ends_all_processes(tmp_path, jobs):
    target = tmp_path / "report.json"
    path = os.pathsep.join(map(str, [HERE, HERE.parents[1] / "examples" / "toyad"]))
    command = [
        sys.executable,
        "-m",
        "adprotocol",
        "conformance",
        "--harness",
        "breaking:Breaking",
        "--json",
        str(target),
        "--jobs",
        jobs,
    ]
    environment = os.environ | {"PYTHONPATH": path, "BREAKING": "fine gradient waits last"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        while "waiting" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=20)[1]
    assert process.returncode == 130
    report = from_json(target.read_text(encoding="utf-8"))
    ran = outcomes(report)
    assert err.endswith(f"adprotocol conformance: interrupted after {len(ran)} of 4 scenarios\n")
    assert ran["fine"] == PASS
    assert "waits" not in ran
    if jobs == "1":
        assert ran == {"fine": PASS, "gradient": PASS}
    assert json.loads(target.read_text(encoding="utf-8"))["summary"][CRASHED] == 0


def test_the_text_shows_a_crash_with_the_failures(ran, tmp_path):
    report = ran("crashes", "last")
    with (tmp_path / "report.txt").open("w+", encoding="utf-8") as stream:
        text.write(report, stream)
        stream.seek(0)
        shown = stream.read()
    assert "CRASHED (1): the process ended, or had to be ended" in shown
    assert "cond/crashes  MUST C1  the process was ended by SIGSEGV" in shown
    assert shown.splitlines()[-1].startswith("next: begin with cond/crashes")
