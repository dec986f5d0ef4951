"""One point: what is installed, what runs, and what came of it."""

import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from adprotocol._dispatch.release import numbers, parsed

ROOT = Path(__file__).parent.parent.parent
ENVIRONMENTS = ROOT / "build" / "matrix"
# What the tests of every plugin need.
TOOLS = ("pytest", "hypothesis", "attrs")
SHOWN = re.compile(r"(\d+) (passed|failed|skipped|xfailed|errors?)")


@dataclass(frozen=True)
class Point:
    """Hold an entry of points.toml."""

    name: str
    suite: str
    tests: list
    packages: list = field(default_factory=list)
    floors: list = field(default_factory=list)
    index: str = ""

    def requirements(self):
        """Return what pip installs beside the checkout."""
        return [*self.packages, *lower_bounds(self.floors)]


def points():
    """Return the points by name."""
    found = tomllib.loads((Path(__file__).parent / "points.toml").read_text("utf-8"))
    return {entry["name"]: Point(**entry) for entry in found["point"]}


def lower_bounds(extras):
    """Return exactly the lower bounds of the metadata: of the dependencies, and of extras; none if none is named."""
    return [f"{name}=={version}" for name, version in bounds(extras).items()] if extras else []


def bounds(extras):
    """Return the lower bounds of the metadata by name: of the dependencies, and of extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    stated = project["dependencies"] + [one for extra in extras for one in project["optional-dependencies"][extra]]
    found = {}
    for requirement in stated:
        name, floor = parsed(requirement)
        if floor == "0":
            msg = f"{requirement!r} in pyproject.toml has no lower bound"
            raise ValueError(msg)
        found[name.lower()] = floor
    return found


def environment(point):
    """Return the interpreter of a point's environment.

    It is made, unless there is one with all that the point names: then it is used as
    it is, and only the checkout is installed. So a framework may be put there by other
    means than pip's, without packages for devices that are not there.
    """
    place = ENVIRONMENTS / point.name
    python = place / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    wanted = [*point.requirements(), *TOOLS, "--editable", f"{ROOT}[conformance]"]
    if point.index:
        wanted += ["--extra-index-url", point.index]
    if has(python, [*point.requirements(), *TOOLS, *bounds(["conformance"])]):
        wanted = ["--no-deps", "--editable", str(ROOT)]
    quiet = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *wanted], check=True, env=quiet)
    return python


def has(python, requirements):
    """Tell whether an environment has these distributions, each in the version that is asked for, if one is."""
    listed = subprocess.run(
        [str(python), "-m", "pip", "list", "--format", "json"], check=True, capture_output=True, text=True
    ).stdout
    installed = {canonical(entry["name"]): entry["version"] for entry in json.loads(listed)}
    for requirement in requirements:
        name, _, version = requirement.partition("==")
        found = installed.get(canonical(name))
        # A build for one kind of device ("2.6.0+cpu") is the release.
        if found is None or (version and numbers(found.partition("+")[0]) != numbers(version)):
            return False
    return True


def canonical(name):
    """Return the name of a distribution as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def run(point):
    """Run a point, and return its record."""
    python = environment(point)
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "PYTHON"))}
    clean |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "OMP_NUM_THREADS": "1"}
    # Before JAX 0.6 a program that is read from its cache may compute NaN.
    clean["JAX_ENABLE_COMPILATION_CACHE"] = "false"

    def call(*arguments):
        return subprocess.run(
            [str(python), "-m", *arguments], cwd=ROOT, env=clean, capture_output=True, text=True, check=False
        )

    suite = call("adprotocol", "conformance", point.suite, "--json", "-")
    data = json.loads(suite.stdout) if suite.stdout.startswith("{") else None
    tests = call("pytest", "-q", "-p", "no:cacheprovider", *point.tests)
    (ENVIRONMENTS / f"{point.name}.txt").write_text(suite.stderr + tests.stdout + tests.stderr, encoding="utf-8")
    counts = {word: int(count) for count, word in SHOWN.findall((tests.stdout.strip().splitlines() or [""])[-1])}
    return {
        "point": point.name,
        "python": (data or {}).get("python", ""),
        "versions": versions(call("pip", "list", "--format", "json").stdout),
        "suite": data["summary"]["sentence"] if data else f"did not run: {suite.stderr.strip()[-200:]}",
        "tests": counts,
        "ok": bool(data and data["ok"]) and tests.returncode == 0,
    }


def versions(listed):
    """Return the versions that matter of those that pip lists."""
    wanted = ("jax", "jaxlib", "torch", "autograd", "numpy", "optree", "pluggy")
    return {entry["name"]: entry["version"] for entry in json.loads(listed or "[]") if entry["name"] in wanted}
