"""The tutorial, followed to the letter with the distribution as users install it: from nothing to a report."""

import doctest
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "tutorial.md"
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

# Files, and commands with what they print.
STEP = re.compile(
    r"^```\{code-block\} \w+\n:caption: (?P<name>\S+)\n\n(?P<code>.*?)^```\n"
    r"|^```console\n(?P<commands>.*?)^```\n(?:\n```text\n(?P<shown>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


def steps():
    return list(STEP.finditer(PAGE.read_text("utf-8")))


@pytest.mark.slow
def test_tutorial_from_an_empty_directory_to_the_report(wheel, tmp_path):
    (tmp_path / "toyad.py").write_bytes((ROOT / "examples" / "toyad" / "toyad.py").read_bytes())
    ran = 0
    for step in steps():
        if step["name"]:
            (tmp_path / step["name"]).write_text(step["code"], encoding="utf-8")
        elif step["commands"]:
            follow(step["commands"], step["shown"], tmp_path, wheel)
            ran += 1
    assert ran >= 6
    for report in ("report.json", "report.html", "report.md", "badge.json"):
        assert (tmp_path / report).stat().st_size > 100


def follow(commands, shown, directory, wheel):
    """Type the commands of a block into a shell, and compare what the last one prints."""
    typed = [line.removeprefix("$ ") for line in commands.splitlines()]
    script = "\n".join([". env/bin/activate"] * (directory / "env").exists() + typed)
    script = script.replace("'adprotocol[conformance]'", f"'adprotocol[conformance] @ {wheel.as_uri()}'")
    quiet = {"PIP_CONSTRAINT": str(ROOT / "constraints.txt"), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "COLUMNS": "120"}
    # False for `--no-compile`, as pip reads it: most of NumPy is never imported here.
    quiet["PIP_NO_COMPILE"] = "0"
    # The command has run all scenarios, and `tests/conformance/test_suite.py` runs them by the same function.
    quiet["PYTEST_ADDOPTS"] = "-k vmap"
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "PYTHON"))}
    done = subprocess.run(
        ["/bin/bash", "-c", script],
        cwd=directory,
        env={**environment, **quiet},
        capture_output=True,
        text=True,
        check=False,
    )
    told = f"$ {script}\n{done.stdout}{done.stderr}"
    assert done.returncode == (1 if shown and "FAIL:" in shown else 0), told
    if shown:
        assert doctest.OutputChecker().check_output(shown, done.stdout, LOOSELY), told


def test_the_page_has_every_file_of_the_example_as_it_is():
    last = {step["name"]: step["code"] for step in steps() if step["name"]}
    example = [path for path in (ROOT / "examples" / "toyad").iterdir() if path.is_file() and path.name != "toyad.py"]
    assert len(example) == 4
    for path in example:
        assert last[path.name] == path.read_text("utf-8")


def test_the_text_is_complete_as_it_is_read():
    text = PAGE.read_text("utf-8")
    assert "include}" not in text
    assert text.index("## Which kind of system is yours?") < text.index("## Minute 0")
