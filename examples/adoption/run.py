"""Change released libraries so that they use this package, and run their tests before and after.

``python examples/adoption/run.py`` runs all, with names only those. For each folder here the release that
``adoptions.toml`` names is installed in an environment of its own in ``build/adoption``, which is kept, and its source
is downloaded for its tests. These run, and those in ``test_gained.py``, on each of its back ends, before and after
``change.patch`` is applied to the installed package. Exits with 1 if fewer tests pass after it than before, or a gain
fails.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import urllib.request
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PLACES = ROOT / "build" / "adoption"
PACKAGES = "import sysconfig; print(sysconfig.get_path('purelib'))"
CONSTRAINTS = ["--constraint", str(ROOT / "constraints.txt")]


def pip(python, *arguments):
    """Run pip in an environment."""
    subprocess.run([str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], check=True)


def prepared(name, library):
    """Return the interpreter of an environment with a library as it was released, its packages, and its tests."""
    place = PLACES / name
    python = place / "env" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(place / "env")], check=True)
    tests = place / library.get("folder", "")
    if not tests.exists():
        if not any(place.glob("*.tar.gz")):
            download(python, library, place)
        (archive,) = place.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(place / "source", filter="data")
        (source,) = (place / "source").iterdir()
        shutil.copytree(source / library["folder"], tests)
    if (HERE / name / "conftest.py").exists():
        shutil.copy(HERE / name / "conftest.py", tests)
    extras = f"{ROOT}[{library['extras']}]"
    pip(python, "install", *CONSTRAINTS, "--editable", extras, library["release"], "pytest", *library["packages"])
    if "instead" in library:
        pip(python, "install", *library["instead"])
    found = subprocess.run([python, "-c", PACKAGES], check=True, capture_output=True, text=True)
    packages = Path(found.stdout.strip())
    if applies(packages, name, "--reverse"):
        apply(packages, name, "--reverse")
    return python, packages, place if "folder" in library else packages


def download(python, library, place):
    """Download the source of a release: what pip finds, or where its tests are if that has none."""
    if "source" in library:
        urllib.request.urlretrieve(library["source"], place / "source.tar.gz")  # noqa: S310  (our own table names it)
    else:
        project = library["release"].partition("==")[0]
        pip(python, "download", "--no-deps", "--no-binary", project, "--dest", str(place), library["release"])


def apply(packages, name, *options, check=True):
    """Apply the patch of a library to its installed package, outside of the repository that this lies in."""
    command = ["git", "apply", *options, str(HERE / name / "change.patch")]
    alone = {**os.environ, "GIT_CEILING_DIRECTORIES": str(packages.parent)}
    return subprocess.run(command, cwd=packages, env=alone, check=check, capture_output=not check)


def applies(packages, name, *options):
    """Return whether the patch can be applied."""
    return apply(packages, name, "--check", *options, check=False).returncode == 0


def passed(python, place, chosen, *tests):
    """Run tests, with a back end that is `chosen` by a variable, and return how many pass and how many fail."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "PYTHON"))} | chosen
    # Apart from the configuration of this repository.
    apart = ["-c", os.devnull, "--rootdir", str(place)]
    command = [str(python), "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider", *apart, *tests]
    done = subprocess.run(command, cwd=place, env=clean, capture_output=True, text=True, check=False)
    last = (done.stdout.strip().splitlines() or [done.stderr])[-1]
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error)", last)}
    if not counts:
        sys.stderr.write(done.stdout + done.stderr)
    return counts.get("passed", 0), counts.get("failed", 0) + counts.get("error", 0)


def main():
    """Run what is named, and return the exit status."""
    known = tomllib.loads((HERE / "adoptions.toml").read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *known], help=f"some of {', '.join(known)} (all)")
    chosen = parser.parse_args().names or list(known)
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for title in ("release", "lines", "tests: passed, failed", "after", "gained: passed, failed", "after", "minutes"):
        table.add_column(title)
    failed = False
    for name in chosen:
        begin, library = time.monotonic(), known[name]
        python, packages, place = prepared(name, library)
        chosen = [{library["variable"]: each} for each in library["backends"]] if "variable" in library else [{}]
        suites = library["tests"], ["--noconftest", str(HERE / name / "test_gained.py")]
        before = [[passed(python, place, each, *suite) for each in chosen] for suite in suites]
        apply(packages, name)
        after = [[passed(python, place, each, *suite) for each in chosen] for suite in suites]
        for old, new in zip(before[0], after[0], strict=True):
            failed |= new[0] < old[0] or new[1] > old[1]
        failed |= any(wrong or not count for count, wrong in after[1])
        patch = (HERE / name / "change.patch").read_text(encoding="utf-8")
        lines = [len(re.findall(rf"^[{sign}](?![{sign}])", patch, re.MULTILINE)) for sign in "-+"]
        counts = [each for pair in zip(before, after, strict=True) for each in pair]
        results = ["; ".join(f"{count}, {wrong}" for count, wrong in each) for each in counts]
        minutes = f"{(time.monotonic() - begin) / 60:.1f}"
        table.add_row(library["release"], f"-{lines[0]} +{lines[1]}", *results, minutes)
    Console(width=None if sys.stdout.isatty() else 140, highlight=False).print(table)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
