"""One point: what is installed, what runs, and what came of it."""

import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from adprotocol._dispatch.release import numbers, parsed

ROOT = Path(__file__).parent.parent.parent
ENVIRONMENTS = ROOT / "build" / "matrix"
# What the tests of every plugin need.
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "attrs")
COUNT = re.compile(r"(\d+) (passed|failed|skipped|xfailed|errors?)")
REPORTED = ("jax", "jaxlib", "torch", "autograd", "numpy", "optree", "pluggy")


@dataclass(frozen=True)
class Point:
    """Hold a framework and what pip installs for it, beside the checkout."""

    name: str
    framework: str
    requirements: list
    index: str = ""

    @property
    def tests(self):
        return f"tests/{self.framework}_plugin"


def points(*, ends=False):
    """Return the points by name, or those at the two ends of each framework."""
    frameworks = tomllib.loads((Path(__file__).parent / "points.toml").read_text("utf-8"))
    table = {}
    for framework, entry in frameworks.items():
        floors = [f"{name}=={version}" for name, version in bounds([framework, "conformance"]).items()]
        releases = entry["releases"][-1:] if ends else entry["releases"]
        requirements = {"floors-" + framework: floors}
        requirements |= {f"{framework}-{release}": [f"{framework}=={release}"] for release in releases}
        for name, wanted in requirements.items():
            table[name] = Point(name, framework, wanted, entry.get("index", ""))
    return table


def bounds(extras):
    """Return the lower bounds of the metadata by name: of the dependencies, and of extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    floors = {}
    for requirement in project["dependencies"] + [
        one for extra in extras for one in project["optional-dependencies"][extra]
    ]:
        name, floor = parsed(requirement)
        if floor == "0":
            msg = f"{requirement!r} in pyproject.toml has no lower bound"
            raise ValueError(msg)
        floors[name.lower()] = floor
    return floors


def environment(point):
    """Return the interpreter of a point's environment.

    It is made, unless there is one with all that the point needs: then it is used as
    it is, and only the checkout is installed. So a framework may be put there by other
    means than pip's, without packages for devices that are not there.
    """
    place = ENVIRONMENTS / point.name
    python = place / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    if has(python, [*point.requirements, *TOOLS, *bounds(["conformance"])]):
        wanted = ["--no-deps", "--editable", str(ROOT)]
    else:
        index = ["--extra-index-url", point.index] if point.index else []
        wanted = [*point.requirements, *TOOLS, "--editable", f"{ROOT}[conformance]", *index]
    quiet = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *wanted], check=True, env=quiet)
    return python


def has(python, requirements):
    """Return whether an environment has these distributions, each in the version that is asked for, if one is."""
    installed = {canonical(name): version for name, version in installed_versions(python).items()}
    for requirement in requirements:
        name, _, version = requirement.partition("==")
        present = installed.get(canonical(name))
        # A build for one kind of device ("2.9.0+cpu") is the release.
        if present is None or (version and numbers(present.partition("+")[0]) != numbers(version)):
            return False
    return True


def installed_versions(python):
    """Return the version of each distribution in an environment by its name."""
    command = [str(python), "-m", "pip", "list", "--format", "json"]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {entry["name"]: entry["version"] for entry in json.loads(listing)}


def canonical(name):
    """Return the name of a distribution as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def run(point):
    """Run the conformance suite and the plugin's tests, and return the record of the point."""
    python = environment(point)
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "PYTHON"))}
    clean |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "OMP_NUM_THREADS": "1"}

    def call(*arguments):
        command = [str(python), "-m", *arguments]
        return subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, check=False)

    suite = call("adprotocol", "conformance", point.framework, "--json", "-")
    data = json.loads(suite.stdout) if suite.stdout.startswith("{") else None
    tests = call("pytest", "-q", "-n", "logical", "--maxprocesses", "8", "-p", "no:cacheprovider", point.tests)
    (ENVIRONMENTS / f"{point.name}.txt").write_text(suite.stderr + tests.stdout + tests.stderr, encoding="utf-8")
    counts = {word: int(count) for count, word in COUNT.findall((tests.stdout.strip().splitlines() or [""])[-1])}
    return {
        "point": point.name,
        "python": (data or {}).get("python", ""),
        "versions": {name: version for name, version in installed_versions(python).items() if name in REPORTED},
        "suite": data["summary"]["sentence"] if data else f"did not run: {suite.stderr.strip()[-200:]}",
        "tests": counts,
        "ok": bool(data and data["ok"]) and tests.returncode == 0,
    }
