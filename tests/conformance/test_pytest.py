"""The suite on pytest: as tests of a maintainer's own, and behind the command, which survives crashes and hangs."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from adprotocol.conformance import from_json
from adprotocol.conformance._run.result import CRASHED, FAIL, HARNESS, PASS, PLUGIN, TIME, WRONG
from adprotocol.conformance._run.run import CHECKS

HERE = Path(__file__).parent
MAIN = "import sys, breaking; from adprotocol.__main__ import main; sys.exit(main(['conformance', *sys.argv[1:]]))"
STRICT = """
[pytest]
addopts = --strict-markers --strict-config
filterwarnings = error
xfail_strict = true
"""
THREE_LINES = """
from adprotocol.conformance import suite

test_conformance = suite({})
"""


def environment(*names):
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "PYTHON"))}
    path = os.pathsep.join(map(str, [HERE, HERE.parents[1] / "examples" / "toyad"]))
    return clean | {"PYTHONPATH": path, "BREAKING": " ".join(names)}


def command(*names, arguments, cwd):
    program = [sys.executable, "-c", MAIN, "--harness", "breaking:Breaking", *arguments]
    return subprocess.run(
        program, env=environment(*names), cwd=cwd, capture_output=True, text=True, timeout=600, check=False
    )


def outcomes(report):
    return {result.id.removeprefix("cond/"): result.outcome for result in report.results}


def test_a_run_survives_crashes_and_hangs_and_reports_what_is_silently_wrong_first(tmp_path):
    files = [word for name in ("json", "html", "markdown", "badge") for word in (f"--{name}", f"{tmp_path}/{name}")]
    names = ("fine", "raises", "crashes", "wrong", "sleeps", "last")
    # Settings of the current directory are none of the run's.
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --nonsense\n")
    done = command(*names, arguments=["--jobs", "2", "--time-limit", "10", *files], cwd=tmp_path)
    assert done.returncode == 1
    report = from_json((tmp_path / "json").read_text())
    assert outcomes(report) == {
        "fine": PASS, "raises": FAIL, "crashes": CRASHED, "wrong": WRONG, "sleeps": FAIL, "last": PASS
    }  # fmt: skip
    assert [result.id for result in report.results] == [f"cond/{name}" for name in names]
    causes = {result.id.removeprefix("cond/"): result.cause for result in report.results}
    assert (causes["raises"], causes["crashes"], causes["sleeps"]) == (PLUGIN, PLUGIN, TIME)
    shown = done.stdout
    heads = [
        shown.index(head) for head in ("\n## Silently wrong: 1", "\n## Crashed: 1", "\n## Fail: 2", "\nFAIL: 6 of 6")
    ]
    assert heads == sorted(heads)
    assert "all_scenarios()['cond/wrong'].function(checked(harness_of('breaking:Breaking')))" in shown
    assert shown.splitlines()[-1].startswith("next: begin with what comes first above")
    assert "in sleeps" in done.stderr
    assert "in crashes" in done.stderr
    for name in ("html", "markdown"):
        text = (tmp_path / name).read_text()
        assert text.index("Silently wrong: 1") < text.index("Crashed: 1") < text.index("Fail: 2")
        assert all(f"cond/{name}" in text for name in names)
    assert json.loads((tmp_path / "badge").read_text())["message"] == "1 silently wrong"


def test_a_broken_system_ends_the_run_and_what_followed_has_no_result(tmp_path):
    arguments = ["--jobs", "1", "--json", "-"]
    done = command("fine", "poisons", "gradient", "last", arguments=arguments, cwd=tmp_path)
    assert done.returncode == 1
    report = from_json(done.stdout)
    assert outcomes(report) == {"fine": PASS, "poisons": FAIL}
    (problem,) = report.problems
    assert problem.where == "run"
    assert "cond/poisons left the system broken: grad of x * x * y at 3, 2 is 0.; 12. was expected" in problem.message
    assert problem.message.endswith("2 scenarios have no result")


def test_code_that_holds_the_interpreter_is_ended_with_its_stack(tmp_path):
    done = command("holds", "last", arguments=["--jobs", "1", "--time-limit", "2", "--json", "-"], cwd=tmp_path)
    assert outcomes(from_json(done.stdout)) == {"holds": FAIL, "last": PASS}
    assert "re/__init__.py" in done.stderr


def test_workers_share_a_folder_that_goes_with_the_run(tmp_path):
    done = command("leaves_a_file", arguments=["--jobs", "1", "--json", "-"], cwd=tmp_path)
    assert outcomes(from_json(done.stdout)) == {"leaves-a-file": PASS}


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_keeps_what_ran(tmp_path):
    program = [sys.executable, "-c", MAIN, "--harness", "breaking:Breaking", "--jobs", "1", "--json", "report.json"]
    names = environment("fine", "gradient", "waits", "last")
    with subprocess.Popen(
        program, env=names, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        # Each check of the harness, and two scenarios, have a mark once the command has their results.
        shown = ""
        while not re.search(rf"\n\n[.s]{{{len(CHECKS) + 2}}}", shown):
            character = process.stdout.read(1)
            assert character, shown
            shown += character
        while not (tmp_path / "waiting").exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=600)
    assert process.returncode == 130
    report = from_json((tmp_path / "report.json").read_text())
    assert outcomes(report) == {"fine": PASS, "gradient": PASS}
    assert report.problems[-1].message == "interrupted after 2 of 4 scenarios"


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "2")], ids=["one process", "two workers"])
def test_three_lines_in_a_maintainers_tests_under_strict_settings(tmp_path, workers):
    (tmp_path / "pytest.ini").write_text(STRICT)
    (tmp_path / "conftest.py").write_text("import breaking\n")
    (tmp_path / "test_conformance.py").write_text(
        THREE_LINES.format("breaking.Breaking").replace("\n\n", "\nimport breaking\n", 1)
    )
    names = ("fine", "wrong", "raises", "last")
    program = [sys.executable, "-m", "pytest", "-q", "--disable-plugin-autoload", *workers, "test_conformance.py"]
    done = subprocess.run(
        program, env=environment(*names), cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 1
    assert "2 failed" in done.stdout
    assert "test_conformance.py::test_conformance[cond/wrong]" in done.stdout
    assert "silently wrong: cond/wrong (MUST, rule C1)" in done.stdout
    assert "To reproduce:" in done.stdout


def test_what_follows_a_broken_system_is_skipped_in_a_maintainers_tests(tmp_path):
    (tmp_path / "test_conformance.py").write_text("import breaking\n" + THREE_LINES.format("breaking.Breaking"))
    program = [sys.executable, "-m", "pytest", "-q", "-rs", "--disable-plugin-autoload", "test_conformance.py"]
    names = environment("poisons", "last")
    done = subprocess.run(program, env=names, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert "1 failed" in done.stdout
    assert "not run: cond/poisons left the system broken" in done.stdout


def test_a_fault_of_the_harness_fails_its_check_and_the_rest_says_so(tmp_path):
    harness = "import small\n\n\nclass Wrong(small.Autograd):\n    jvp = lambda self, fun, x, t: (fun(x), 0.0 * t)\n"
    (tmp_path / "wrong.py").write_text(harness)
    program = [sys.executable, "-m", "adprotocol", "conformance", "--harness", "wrong:Wrong", "--json", "-"]
    program += ["-k", "within_gradient/jv[p]", "--jobs", "1"]
    done = subprocess.run(
        program, env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    report = from_json(done.stdout)
    assert [problem.message for problem in report.problems] == [
        "jvp: jvp of x * x at 3 along 2, result 1, is 0.; 12. was expected"
    ]
    (result,) = report.results
    assert (result.outcome, result.cause, result.ran) == (FAIL, HARNESS, False)


def test_the_package_imports_no_pytest_before_the_suite_runs():
    program = "import sys, adprotocol.conformance; print([name for name in sys.modules if 'pytest' in name])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
