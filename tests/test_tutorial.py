"""The tutorial, followed to the letter with the distribution as users install it: from nothing to a report."""

import doctest
import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "tutorial.md"
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

# Files, changes to a function of one, downloads, and commands with what they print.
STEP = re.compile(
    r"^```\{code-block\} \w+\n:caption: (?P<name>\S+)(?P<part> \([^)\n]*\))?\n\n(?P<code>.*?)^```\n"
    r"|\{download\}`(?P<download>\S+) <(?P<source>\S+)>`"
    r"|^```console\n(?P<commands>.*?)^```\n(?:\n```text\n(?P<shown>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


# What pip finds in the new environment, rather than unpacks there; `release/clean.py` installs all of it.
THERE = ("pip", "pytest", "pytest-xdist", "numpy", "jinja2")


# How the environment is made, as the page says it and here.
MADE = "python3.11 -m venv env"
QUICKLY = (
    f"{sys.executable} -m venv --without-pip env && echo $PWD/there > $(echo env/lib/python*/site-packages)/there.pth"
)


def linked(folder, names):
    """Link distributions of this environment, and what they require, into a folder."""
    for found in map(importlib.metadata.distribution, names):
        for part in {file.parts[0] for file in found.files} - {"..", "__pycache__"}:
            if not (folder / part).exists():
                (folder / part).symlink_to(found.locate_file(part))
        linked(folder, [re.match(r"[\w.-]+", line)[0] for line in found.requires or () if ";" not in line])


def steps():
    return list(STEP.finditer(PAGE.read_text("utf-8")))


@pytest.mark.slow
def test_tutorial_from_an_empty_directory_to_the_report(wheel, tmp_path):
    ran = 0
    (tmp_path / "there").mkdir()
    linked(tmp_path / "there", THERE)
    for step in steps():
        if step["part"]:
            change(tmp_path / step["name"], step["code"])
        elif step["name"]:
            (tmp_path / step["name"]).write_text(step["code"], encoding="utf-8")
        elif step["download"]:
            (tmp_path / step["download"]).write_bytes((PAGE.parent / step["source"]).read_bytes())
        else:
            follow(step["commands"], step["shown"], tmp_path, wheel)
            ran += 1
    assert ran == 7
    for report in ("report.json", "report.html", "report.md", "badge.json"):
        assert (tmp_path / report).stat().st_size > 100


def change(path, code):
    """Put a hook in the place of the one with its name."""
    name = re.search(r"^def (\w+)", code, re.MULTILINE)[1]
    old = re.compile(rf"^@hookimpl\ndef {name}\(.*?(?=^@hookimpl|\Z)", re.MULTILINE | re.DOTALL)
    text, count = old.subn(lambda _: f"{code}\n\n", path.read_text("utf-8"))
    assert count == 1
    path.write_text(text, encoding="utf-8")


def follow(commands, shown, directory, wheel):
    """Type the commands of a block into a shell, and compare what the last one prints."""
    typed = [line.removeprefix("$ ").replace(MADE, QUICKLY) for line in commands.splitlines()]
    typed = [". env/bin/activate"] * (directory / "env").exists() + typed
    script = "\n".join(['pip() { python -m pip "$@"; }', *typed])
    script = script.replace("'adprotocol[conformance]'", f"'adprotocol[conformance] @ {wheel.as_uri()}'")
    quiet = {"PIP_CONSTRAINT": str(ROOT / "constraints.txt"), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "COLUMNS": "120"}
    # False for `--no-compile`, as pip reads it: most of NumPy is never imported here.
    quiet["PIP_NO_COMPILE"] = "0"
    # `tests/conformance/test_suite.py` runs all scenarios on the finished plugin.
    script = script.replace("toyad --json", "toyad -k vmap --json").replace("toyad --html", "toyad -k label --html")
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
        # With a selection the sentence says so.
        wanted = shown.replace(" ran: ", " ran...: ")
        assert doctest.OutputChecker().check_output(wanted, done.stdout, LOOSELY), told


def test_the_page_offers_every_file_of_the_example():
    offered = {(PAGE.parent / step["source"]).resolve() for step in steps() if step["download"]}
    assert offered == {path for path in (ROOT / "examples" / "toyad").iterdir() if path.is_file()}


def test_minute_0_is_on_the_first_screen():
    assert len(PAGE.read_text("utf-8").partition("## Minute 0")[0].split()) < 80
