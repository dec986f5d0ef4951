"""The command line, run as users run it, beside third-party distributions made for each test."""

import json
import os
import re
import subprocess
import sys
import textwrap

import pytest

import adprotocol
from adprotocol.__main__ import main

BUNDLED = "jax,torch,autograd"

FRAMEWORK = """
    __version__ = "4.2"

    class Array:
        def __init__(self, tracked):
            self.tracked = tracked
"""

PLUGIN = """
    import fakefw
    from adprotocol.hookspecs import hookimpl

    @hookimpl
    def array_types():
        return (fakefw.Array,)

    @hookimpl
    def within_gradient(value):
        return value.tracked

    @hookimpl
    def non_differentiable(value):
        return fakefw.Array(False)

    @hookimpl
    def cond(pred, true_fun, false_fun, operands):
        return true_fun(*operands) if pred else false_fun(*operands)
"""
DECLARING = """
    @hookimpl
    def divergences():
        from adprotocol.extend import Divergence

        return [
            Divergence(
                name="tape",
                title="The tape",
                text="It is one for all threads.",
                remedy="Use one thread",
                scenarios=("within_gradient/thread*",),
                outcome="wrong",
            )
        ]
"""
HOOKS = ["array_types", "cond", "non_differentiable", "within_gradient"]

# `main`, with no plugins known but those of the test: the bundled ones would be problems of their own if blocked.
ALONE = f"""
import sys
import adprotocol
from adprotocol.__main__ import main
from adprotocol._dispatch.registry import REGISTRY

for name in {BUNDLED.split(",")}:
    REGISTRY.known().pop(name, None)
raise SystemExit(main(sys.argv[1:]))
"""

MEND = "in a plugin of your own, mend what the reason names"
FAULTS = {
    "import error": (
        "raise ImportError('fakefw has no attribute tape')\n" + textwrap.dedent(PLUGIN),
        "ImportError: fakefw has no attribute tape",
        "pip install --upgrade fake fakefw",
    ),
    "missing dependency": (
        "import nowhere_to_be_found\n" + textwrap.dedent(PLUGIN),
        "ModuleNotFoundError: No module named 'nowhere_to_be_found'",
        "plugin fakefw imports nowhere_to_be_found, which is missing: reinstall fake from where you got it",
    ),
    "missing hook": (PLUGIN.replace("@hookimpl\n    def cond", "def branch"), "lacks the required hook(s) cond", MEND),
    "raises when asked": (
        PLUGIN.replace("fakefw.Array,", "fakefw.Tape,"),
        "the hook array_types raises AttributeError: module 'fakefw' has no attribute 'Tape'",
        "tell the authors of fake",
    ),
}


class Site:
    """A directory on the module path, with frameworks and the distributions of their plugins."""

    def __init__(self, path):
        self.path = path

    def module(self, name, source):
        (self.path / f"{name}.py").write_text(textwrap.dedent(source), encoding="utf-8")

    def distribution(self, name, entry_points="", metadata="", version="1.0"):
        folder = self.path / f"{name}-{version}.dist-info"
        folder.mkdir()
        header = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (folder / "METADATA").write_text(header + metadata, encoding="utf-8")
        (folder / "entry_points.txt").write_text(f"[adprotocol]\n{entry_points}\n", encoding="utf-8")

    def plugin(self, source=PLUGIN, framework=FRAMEWORK):
        if framework is not None:
            self.module("fakefw", framework)
        self.module("fakefw_plugin", source)
        self.distribution("fake", "fakefw = fakefw_plugin")
        return self

    def python(self, *arguments, block=""):
        environment = {**os.environ, "PYTHONPATH": str(self.path), "ADPROTOCOL_BLOCK": block}
        return subprocess.run(
            [sys.executable, *arguments],
            env=environment,
            cwd=self.path,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    def info(self, *arguments, block=BUNDLED):
        """The JSON of `info`: the entry of each plugin by name, and the conflicts."""
        done = self.python("-m", "adprotocol", "info", "--json", *arguments, block=block)
        assert done.returncode == 0, done.stderr
        data = json.loads(done.stdout)
        assert data["schema"] == 2
        return {entry["name"]: entry for entry in data["plugins"]}, data["conflicts"]

    def doctor(self, *arguments, block=""):
        """Exit status of `doctor` on the plugins of this site alone, its findings and its remedies."""
        done = self.python("-c", ALONE, "doctor", *arguments, block=block)
        assert not done.stderr
        *lines, last = done.stdout.splitlines()
        findings = [line for line in lines if not line.strip().startswith("remedy:")]
        remedies = [line.strip() for line in lines if line.strip().startswith("remedy:")]
        problems = [line for line in findings if line.startswith("PROBLEM")]
        assert len(problems) == len(remedies)
        assert last == f"{len(findings)} checks, {len(problems)} problem(s)"
        return done.returncode, problems, remedies, done.stdout


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def test_info_shows_an_active_third_party_plugin(site):
    plugins, conflicts = site.plugin().info()
    assert plugins["fakefw"] == {
        "name": "fakefw",
        "framework": "fakefw",
        "framework_version": "4.2",
        "distribution": "fake",
        "distribution_version": "1.0",
        "state": "active",
        "reason": "",
        "hooks": HOOKS,
        "divergences": [],
    }
    assert conflicts == []
    assert plugins["jax"]["state"] == plugins["torch"]["state"] == "blocked"


def test_info_shows_what_a_plugin_declares(site):
    plugins, _ = site.plugin(PLUGIN + DECLARING).info()
    assert plugins["fakefw"]["divergences"] == [
        {
            "name": "tape",
            "title": "The tape",
            "remedy": "Use one thread",
            "outcome": "wrong",
            "scenarios": ["within_gradient/thread*"],
        }
    ]
    assert "divergences" in plugins["fakefw"]["hooks"]
    assert plugins["jax"]["divergences"] == []
    text = site.python("-m", "adprotocol", "info", "--verbose", block=BUNDLED).stdout
    hooks = ", ".join(sorted([*HOOKS, "divergences"]))
    line = f"active, fakefw 4.2, plugin from fake 1.0; 1 declared divergence; hooks {hooks}"
    assert f"fakefw: {line}\n" in text


def test_a_manifest_that_raises_leaves_its_plugin_active(site):
    plugins, _ = site.plugin(PLUGIN + DECLARING.replace("outcome=", "outcomes=")).info()
    reason = (
        "plugin 'fakefw': the hook divergences raises TypeError: Divergence.__init__() got an unexpected keyword "
        "argument 'outcomes'"
    )
    assert plugins["fakefw"]["state"] == "active"
    assert plugins["fakefw"]["reason"].startswith(reason)
    assert plugins["fakefw"]["divergences"] == []
    status, problems, remedies, _ = site.doctor()
    assert status == 1
    assert len(problems) == 1
    assert reason in problems[0]
    assert "repair the hook divergences of plugin fakefw" in remedies[0]


def test_info_without_import_imports_nothing(site):
    loud = "raise SystemExit('imported')\n"
    plugins, _ = site.plugin(loud, framework=loud).info("--no-import", block="")
    assert plugins["fakefw"]["state"] == "not imported"
    assert plugins["fakefw"]["hooks"] == []
    code = ALONE.replace("raise SystemExit(main(sys.argv[1:]))", "main(['info', '--no-import'])") + (
        "assert not {'jax', 'torch', 'autograd', 'numpy', 'fakefw', 'fakefw_plugin'} & set(sys.modules)"
    )
    done = site.python("-c", code)
    assert done.returncode == 0, done.stderr


def test_a_framework_that_prints_does_not_spoil_the_json(site):
    plugins, _ = site.plugin(framework=FRAMEWORK + "\n    print('welcome')").info()
    assert plugins["fakefw"]["state"] == "active"


def test_doctor_is_content_with_a_healthy_plugin(site):
    status, problems, _, text = site.plugin().doctor()
    assert (status, problems) == (0, [])
    assert "ok       plugin fakefw (fake 1.0) is active for fakefw 4.2 and claims 1 type\n" in text


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_plugin_is_shown_with_reason_and_remedy(site, fault):
    source, reason, remedy = FAULTS[fault]
    plugins, _ = site.plugin(source).info()
    assert plugins["fakefw"]["state"] == "failed"
    assert reason in plugins["fakefw"]["reason"]
    assert plugins["fakefw"]["hooks"] == []
    status, problems, remedies, _ = site.doctor()
    assert status == 1
    assert len(problems) == 1
    assert reason in problems[0]
    assert remedy in remedies[0]
    assert "install nowhere" not in remedies[0]


def test_a_framework_whose_import_fails(site):
    site.plugin(framework="raise OSError('libfake.so not found')")
    plugins, _ = site.info()
    assert plugins["fakefw"]["state"] == "failed"
    assert plugins["fakefw"]["reason"] == "import fakefw raises OSError: libfake.so not found"
    status, problems, remedies, _ = site.doctor()
    assert status == 1
    assert "fakefw is installed, but import fakefw raises OSError" in problems[0]
    assert "--force-reinstall fakefw" in remedies[0]


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({}, "demo  (one model under each framework)"),
        ({"framework": None}, "pip install 'adprotocol[jax]'  (or torch, or autograd; NumPy needs no plugin)"),
        ({"source": "1 / 0"}, "doctor  (a remedy for 1 problem)"),
    ],
    ids=["healthy", "bare", "broken"],
)
def test_info_fits_a_screen_and_says_what_to_do_next(site, made, words):
    made = made.copy()
    site.plugin(*([made.pop("source")] if "source" in made else []), **made)
    lines = site.python("-c", ALONE, "info", block="").stdout.splitlines()
    assert len(lines) <= 24
    assert re.fullmatch(rf"next: python -m (adprotocol )?{re.escape(words)}", lines[-1])


def test_a_framework_that_is_not_installed_is_no_problem(site):
    plugins, _ = site.plugin(framework=None).info()
    assert plugins["fakefw"]["state"] == "not installed"
    assert plugins["fakefw"]["framework_version"] is None
    status, problems, _, text = site.doctor()
    assert (status, problems) == (0, [])
    assert "fakefw is not installed; to get it: python -m pip install 'fakefw'" in text


def test_a_framework_is_installed_by_the_extra_of_its_plugin_if_there_is_one(site):
    site.module("fakefw_plugin", PLUGIN)
    site.distribution("fake", "fakefw = fakefw_plugin", "Provides-Extra: fakefw\n")
    assert "python -m pip install 'fake[fakefw]'" in site.doctor()[3]


def test_a_blocked_plugin(site):
    plugins, _ = site.plugin().info(block=f"{BUNDLED},fakefw")
    assert plugins["fakefw"]["state"] == "blocked"
    assert plugins["fakefw"]["hooks"] == []
    status, problems, remedies, _ = site.doctor(block="fakefw")
    assert status == 1
    assert "is blocked" in problems[0]
    assert "remove fakefw from the environment variable ADPROTOCOL_BLOCK" in remedies[0]


def test_a_blocked_name_of_no_plugin_is_a_problem(site):
    status, problems, remedies, _ = site.plugin().doctor(block="fakfw")
    assert status == 1
    assert len(problems) == 1
    assert "ADPROTOCOL_BLOCK names 'fakfw', and no plugin has that name" in problems[0]
    assert "replace it by fakefw" in remedies[0]
    assert "remove it; the plugins are fakefw" in site.doctor(block="zzz")[2][0]


def test_the_version(site):
    done = site.python("-m", "adprotocol", "--version")
    assert (done.returncode, done.stdout) == (0, f"adprotocol {adprotocol.__version__}\n")


@pytest.mark.parametrize("command", ["info", "doctor", "demo"])
def test_an_interrupt_leaves_a_line_and_no_traceback(monkeypatch, capsys, command):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("adprotocol._cli.info.collect", interrupted)
    monkeypatch.setattr("adprotocol._cli.doctor.collect", interrupted)
    monkeypatch.setattr("adprotocol._demo.run.main", interrupted)
    assert main([command]) == 130
    assert capsys.readouterr().err == "\nadprotocol: interrupted\n"


def test_two_distributions_that_claim_one_type(site):
    site.plugin()
    site.module("other_plugin", PLUGIN)
    site.distribution("other", "fakefw = other_plugin")
    plugins, conflicts = site.info()
    assert {plugins[name]["distribution"] for name in ("fakefw", "fakefw#2")} == {"fake", "other"}
    assert conflicts == [{"type": "fakefw.Array", "served_by": "fakefw", "passed_over": ["fakefw#2"]}]
    status, problems, remedies, _ = site.doctor()
    assert status == 1
    assert len(problems) == 1
    assert "fakefw.Array is claimed by 2 plugins: fakefw serves it, not fakefw#2" in problems[0]
    assert "pip uninstall fake or python -m pip uninstall other" in remedies[0]
    assert "conflict: fakefw.Array is served by fakefw" in site.python("-m", "adprotocol", "info", block=BUNDLED).stdout


# Asks about a value of the framework, and prints the error.
ASKING = """
import fakefw
import adprotocol

try:
    adprotocol.within_gradient(fakefw.Array(True))
except adprotocol.errors.PluginError as error:
    print(error)
else:
    print("answered")
"""


def requiring(site, bound, source=PLUGIN):
    """Install a plugin for fakefw 4.2 that requires some releases."""
    site.module("fakefw", FRAMEWORK)
    site.module("fakefw_plugin", source)
    site.module("asking", ASKING)
    site.distribution("fake", "fakefw = fakefw_plugin", f"Requires-Dist: fakefw{bound}; extra == 'fakefw'\n")
    asked = site.python("asking.py", block=BUNDLED)
    assert asked.returncode == 0, asked.stderr
    return asked.stdout, site.info()[0]["fakefw"], *site.doctor()


@pytest.mark.parametrize("source", [PLUGIN, FAULTS["import error"][0]], ids=["loads", "would not load"])
def test_a_framework_older_than_its_plugin_requires_is_refused(site, source):
    asked, entry, status, problems, remedies, _ = requiring(site, "<9,>=4.10", source)
    reason = "fakefw 4.2 is older than 4.10, the oldest that its plugin works with: upgrade fakefw"
    assert reason in asked
    assert entry["state"] == "failed"
    assert status == len(problems) == 1
    assert reason in problems[0]
    assert remedies == ["remedy: python -m pip install --upgrade 'fakefw>=4.10'"]


@pytest.mark.parametrize("bound", [">=3.9", ">=4.2.0", "<9"])
def test_a_framework_as_new_as_its_plugin_requires_works(site, bound):
    asked, entry, status, *_ = requiring(site, bound)
    assert (asked, entry["state"], status) == ("answered\n", "active", 0)


def test_a_gradient_of_numbers_says_which_release_is_refused(site):
    site.module("fakefw", FRAMEWORK)
    site.distribution(
        "fake",
        "fakefw = fakefw_plugin\n[adprotocol.numpy]\nfakefw = fakefw_plugin",
        "Requires-Dist: fakefw>=5; extra == 'fakefw'\n",
    )
    done = site.python("-c", "import adprotocol; adprotocol.grad(lambda x: x * x)(2.0)", block=BUNDLED)
    assert "BackendError: the arguments hold only NumPy arrays and Python numbers" in done.stderr
    assert "fakefw 4.2 is older than 5, the oldest that its plugin works with" in done.stderr.splitlines()[-1]
    assert "backend='" not in done.stderr  # nobody named one
    site.module("fakefw", "raise ImportError('no such library')")
    done = site.python("-c", "import adprotocol; adprotocol.grad(lambda x: x * x)(2.0)", block=BUNDLED)
    assert " fakefw cannot be imported (no such library); install it" in done.stderr


def test_pluggy_that_cannot_be_imported(site):
    site.module("pluggy", "raise ImportError('built for another Python')")
    status, problems, _, _ = site.plugin().doctor()
    assert status == 1
    assert "ImportError: built for another Python" in problems[0]


BESIDE = """
import sys, torch
sys.path.insert(0, {path!r})
import adprotocol, fakefw
from adprotocol.errors import PluginError

def refused():
    try:
        adprotocol.within_gradient(fakefw.Array(True))
    except PluginError as error:
        return isinstance(error.__cause__, ImportError) and "doctor" in str(error)

assert refused()
assert adprotocol.within_gradient(torch.ones(2, requires_grad=True)) is True
assert adprotocol.within_gradient(torch.ones(2)) is False
assert adprotocol.within_gradient(1.0, [2]) is False
assert refused()
"""


def test_a_broken_plugin_leaves_the_others_working(site, fresh):
    pytest.importorskip("torch")
    site.plugin(FAULTS["import error"][0])
    assert fresh(BESIDE.format(path=str(site.path)), "torch") == (0, "")


def test_doctor_finds_the_bundled_plugins_well(site):
    done = site.python("-m", "adprotocol", "doctor")
    assert done.returncode == 0, done.stdout
    assert "PROBLEM" not in done.stdout


def test_without_a_command_the_help_is_shown(capsys):
    assert main([]) == 0
    written = capsys.readouterr()
    assert "check the installation; show each problem with its remedy" in written.out
    assert not written.err


@pytest.mark.parametrize(
    "arguments", [["--verbose"], ["heal"], ["info", "--yaml"], ["doctor", "jax"], ["demo", "--points"]]
)
def test_wrong_usage(capsys, arguments):
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    written = capsys.readouterr()
    assert raised.value.code == 2
    assert "usage: adprotocol" in written.err
    assert not written.out


@pytest.mark.parametrize("arguments", [["info", "--no-import"], ["--help"], ["conformance", "--list"]])
def test_a_reader_that_goes_away_is_no_error_to_be_shown(arguments):
    read, write = os.pipe()
    os.close(read)
    # Buffered, what is written fails at the end alone.
    buffered = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-m", "adprotocol", *arguments],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=buffered,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None  # importing it raises ImportError
from adprotocol.__main__ import main
raise SystemExit(main(["conformance", "--list", "-k", "within_gradient/grad"]))
"""


def test_the_scenarios_can_be_listed_without_numpy(site):
    done = site.python("-c", WITHOUT_NUMPY)
    assert (done.returncode, done.stderr) == (0, "")
    assert "within_gradient/grad" in done.stdout


@pytest.mark.parametrize(("lacking", "status"), [("numpy", 2), ("something_of_numpy", 1)])
def test_the_suite_without_numpy_says_what_to_install(site, lacking, status):
    site.module("numpy", f"raise ModuleNotFoundError('not there', name={lacking!r})")
    done = site.python("-m", "adprotocol", "conformance", "numpy")
    assert done.returncode == status
    assert ("pip install 'adprotocol[conformance]'" in done.stderr) is (lacking == "numpy")
    assert ("Traceback" in done.stderr) is (lacking != "numpy")
