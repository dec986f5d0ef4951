"""The command line, run as users run it, beside third-party distributions made for each test."""

import json
import os
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

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

FAULTS = {
    "import error": (
        "raise ImportError('fakefw has no attribute tape')\n" + textwrap.dedent(PLUGIN),
        "ImportError: fakefw has no attribute tape",
        "pip install --upgrade fake fakefw",
    ),
    "missing dependency": (
        "import nowhere_to_be_found\n" + textwrap.dedent(PLUGIN),
        "ModuleNotFoundError: No module named 'nowhere_to_be_found'",
        "pip install nowhere_to_be_found",
    ),
    "unknown hook": (
        PLUGIN.replace("def array_types", "def array_typs"),
        "unknown hook 'array_typs'",
        "rename array_typs to array_types",
    ),
    "wrong argument": (
        PLUGIN.replace("(value)", "(values)"),
        "Argument(s) {'values'} are declared in the hookimpl but can not be found in the hookspec",
        "name its arguments as in",
    ),
    "missing hook": (
        PLUGIN.replace("@hookimpl\n    def cond", "def branch"),
        "lacks the required hook(s) cond",
        "implement cond as adprotocol.hookspecs documents",
    ),
    "unmarked hook": (
        PLUGIN.replace("@hookimpl\n    def cond", "def cond"),
        "defines cond without the decorator adprotocol.hookspecs.hookimpl",
        "mark cond with @hookimpl",
    ),
    "hook that takes anything": (
        PLUGIN.replace(
            "def cond(pred, true_fun, false_fun, operands)", "def cond(pred, true_fun, false_fun, *operands)"
        ),
        "hook 'cond' takes *operands",
        "--upgrade fake",
    ),
    "claim on NumPy": (
        PLUGIN.replace("import fakefw", "import fakefw, numpy").replace("fakefw.Array,", "fakefw.Array, numpy.ndarray"),
        "array_types claims numpy.ndarray, which no framework owns",
        "return the framework's own classes from array_types",
    ),
    "wrapper": (
        PLUGIN.replace("@hookimpl\n    def cond", "@hookimpl(wrapper=True)\n    def cond").replace(
            "return true", "yield true"
        ),
        "hook 'cond' is a wrapper",
        "remove wrapper=True from its hooks",
    ),
    "wrapper that does not yield": (
        PLUGIN.replace("@hookimpl\n    def cond", "@hookimpl(wrapper=True)\n    def cond"),
        "function is not a generator function",
        "remove wrapper=True from its hooks",
    ),
    "raises when asked": (
        PLUGIN.replace("fakefw.Array,", "fakefw.Tape,"),
        "AttributeError: module 'fakefw' has no attribute 'Tape'",
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
            timeout=60,
        )

    def info(self, *arguments, block=BUNDLED):
        """The JSON of `info`: the entry of each plugin by name, and the conflicts."""
        done = self.python("-m", "adprotocol", "info", "--json", *arguments, block=block)
        assert done.returncode == 0, done.stderr
        data = json.loads(done.stdout)
        assert data["schema"] == 1
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
        "oldest": None,
        "newest_tried": None,
        "untried": False,
    }
    assert conflicts == []
    assert plugins["jax"]["state"] == plugins["torch"]["state"] == "blocked"


def test_info_in_text_truncates_nothing(site):
    done = site.plugin().python("-m", "adprotocol", "info", "--verbose", block=BUNDLED)
    assert done.returncode == 0
    assert f"fake 1.0          active   {', '.join(HOOKS)}\n" in done.stdout


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
    text = site.python("-m", "adprotocol", "info", block=BUNDLED).stdout
    assert "active   1 declared divergence\n" in text


def test_a_manifest_that_raises_leaves_its_plugin_active(site):
    plugins, _ = site.plugin(PLUGIN + DECLARING.replace('"tape"', '"The tape"')).info()
    reason = (
        "plugin 'fakefw': the hook divergences raises PluginError: the declared divergence 'The tape' has a name that "
        "is not a slug"
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
    assert "plugin fakefw (fake 1.0) is active for fakefw 4.2" in text
    assert "plugin fakefw serves 1 type, as it claims" in text
    _, _, _, more = site.doctor("--verbose")
    assert f"is active for fakefw 4.2 with the hooks {', '.join(HOOKS)}\n" in more
    assert "plugin fakefw serves fakefw.Array, as it claims" in more
    assert len(more.splitlines()) == len(text.splitlines())


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


def test_the_remedy_for_a_wrong_argument_shows_the_signature(site):
    source = PLUGIN.replace("within_gradient(value)", "within_gradient(x)").replace("value.tracked", "x.tracked")
    assert "within_gradient(value)" in site.plugin(source).doctor()[2][0]


def test_a_framework_whose_import_fails(site):
    site.plugin(framework="raise OSError('libfake.so not found')")
    plugins, _ = site.info()
    assert plugins["fakefw"]["state"] == "failed"
    assert plugins["fakefw"]["reason"] == "import fakefw raises OSError: libfake.so not found"
    status, problems, remedies, _ = site.doctor()
    assert status == 1
    assert "fakefw is installed, but import fakefw raises OSError" in problems[0]
    assert "--force-reinstall fakefw" in remedies[0]


def test_a_framework_that_is_not_installed_is_no_problem(site):
    plugins, _ = site.plugin(framework=None).info()
    assert plugins["fakefw"]["state"] == "not installed"
    assert plugins["fakefw"]["framework_version"] is None
    status, problems, _, text = site.doctor()
    assert (status, problems) == (0, [])
    assert "fakefw is not installed; to get it: python -m pip install fakefw" in text


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
    assert "remove fakefw from the environment variable ADPROTOCOL_BLOCK (now 'fakefw')" in remedies[0]


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
    monkeypatch.setattr("adprotocol._demo.run.main", interrupted)
    assert main([command]) == 130
    assert capsys.readouterr().err == "\nadprotocol: interrupted\n"


WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None  # importing it raises ImportError
from adprotocol.__main__ import main
raise SystemExit(main(["conformance", *sys.argv[1:]]))
"""


def test_the_scenarios_can_be_listed_without_numpy(site):
    done = site.python("-c", WITHOUT_NUMPY, "--list", "-k", "within_gradient/grad")
    assert (done.returncode, done.stderr) == (0, "")
    assert "within_gradient/grad" in done.stdout


def test_running_without_numpy_names_the_extra(site):
    # In a module of that name, since the scenarios run in a process of their own.
    site.module("numpy", """raise ModuleNotFoundError("No module named 'numpy'", name="numpy")""")
    done = site.python("-m", "adprotocol", "conformance", "numpy")
    assert (done.returncode, done.stdout) == (2, "")
    assert "needs NumPy, which is not installed: pip install 'adprotocol[conformance]'" in done.stderr


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


def test_a_type_that_the_core_serves_itself(site):
    status, problems, remedies, _ = site.plugin(PLUGIN.replace("fakefw.Array,", "fakefw.Array, float")).doctor()
    assert status == 1
    assert "array_types claims float, which no framework owns" in problems[0]
    assert "return the framework's own classes from array_types" in remedies[0]


def test_array_types_that_do_not_say_true_or_false(site):
    source = PLUGIN.replace("(fakefw.Array,)", "{fakefw.Array: None}")
    status, problems, remedies, _ = site.plugin(source).doctor()
    assert status == 1
    assert "array_types maps fakefw.Array to None, which is not a bool" in problems[0]
    assert "return True for each class whose instances can carry a derivative" in remedies[0]


def test_a_framework_older_than_its_plugin_is_made_for(site):
    site.module("fakefw", FRAMEWORK)
    site.module("fakefw_plugin", PLUGIN)
    site.distribution("fake", "fakefw = fakefw_plugin", "Requires-Dist: fakefw<9,>=4.10; extra == 'fakefw'\n")
    status, problems, remedies, _ = site.doctor()
    assert status == 1
    assert "fakefw 4.2 is older than 4.10" in problems[0]
    assert "--upgrade 'fakefw>=4.10'" in remedies[0]


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


def ranged(site, oldest, newest, source=PLUGIN):
    """Install a plugin for fakefw 4.2 that declares a range of releases."""
    site.module("fakefw", FRAMEWORK)
    site.module("fakefw_plugin", source)
    site.module("asking", ASKING)
    bounds = {"fakefw": f">={oldest}", "fakefw-tried": f"=={newest}"}
    metadata = "".join(f"Requires-Dist: fakefw{bound}; extra == '{extra}'\n" for extra, bound in bounds.items())
    site.distribution("fake", "fakefw = fakefw_plugin", metadata)
    asked = site.python("asking.py", block=BUNDLED)
    assert asked.returncode == 0, asked.stderr
    return asked.stdout, site.info()[0]["fakefw"], *site.doctor()


@pytest.mark.parametrize("source", [PLUGIN, FAULTS["import error"][0]], ids=["loads", "would not load"])
def test_a_framework_older_than_the_declared_range_is_refused(site, source):
    asked, entry, status, problems, remedies, _ = ranged(site, "4.10", "4.12", source)
    reason = "fakefw 4.2 is older than 4.10, the oldest that works (fakefw 4.10 to 4.12 were tried): upgrade fakefw"
    assert reason in asked
    assert entry["state"] == "failed"
    assert (entry["oldest"], entry["newest_tried"], entry["untried"]) == ("4.10", "4.12", False)
    assert status == len(problems) == 1
    assert reason in problems[0]
    assert remedies == ["remedy: python -m pip install --upgrade 'fakefw>=4.10'"]


def test_a_framework_newer_than_the_declared_range_works_and_is_said_to_be_untried(site):
    asked, entry, status, _, _, text = ranged(site, "3.9", "4.1.9")
    assert asked == "answered\n"
    assert (entry["state"], entry["untried"]) == ("active", True)
    assert status == 0
    assert "(fakefw 4.2 was not tried, 3.9 to 4.1.9 were)" in text
    table = site.python("-m", "adprotocol", "info", block=BUNDLED).stdout
    assert "fakefw 4.2 was not tried, 3.9 to 4.1.9 were\n" in table


def test_a_gradient_of_numbers_says_which_release_is_refused(site):
    site.module("fakefw", FRAMEWORK)
    site.distribution(
        "fake",
        "fakefw = fakefw_plugin\n[adprotocol.numpy]\nfakefw = fakefw_plugin",
        "Requires-Dist: fakefw>=5; extra == 'fakefw'\nRequires-Dist: fakefw==6; extra == 'fakefw-tried'\n",
    )
    done = site.python("-c", "import adprotocol; adprotocol.grad(lambda x: x * x)(2.0)", block=BUNDLED)
    assert "BackendError: the arguments hold only NumPy arrays and Python numbers" in done.stderr
    assert "fakefw 4.2 is older than 5, the oldest that works" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("fault", ["import error", "raises when asked"])
def test_a_plugin_that_fails_with_a_framework_newer_than_the_declared_range(site, fault):
    source, reason, _ = FAULTS[fault]
    asked, entry, status, problems, remedies, _ = ranged(site, "3.9", "4.1", source)
    for text in (asked, entry["reason"], problems[0]):
        assert "fakefw 4.2 is newer than 4.1, the newest that was tried, and the plugin fails with it" in text
        assert reason in text
        assert "install one of fakefw 3.9 to 4.1" in text
    assert status == 1
    assert "--upgrade fake; if it still fails, python -m pip install 'fakefw>=3.9,<=4.1'" in remedies[0]
    assert "authors" not in remedies[0]


def test_a_framework_inside_the_declared_range(site):
    asked, entry, status, _, _, text = ranged(site, "4.2.0", "4.2")
    assert asked == "answered\n"
    assert (entry["state"], entry["untried"]) == ("active", False)
    assert status == 0
    assert "not tried" not in text


def test_the_ranges_of_the_bundled_plugins():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    tried = set((Path(__file__).parents[2] / "constraints.txt").read_text(encoding="utf-8").splitlines())
    record = json.loads((Path(__file__).parents[2] / "docs" / "releases.json").read_text(encoding="utf-8"))
    for point in record.values():
        if point["ok"]:
            tried |= {f"{name}=={version}" for name, version in point["versions"].items()}
    for framework in extras.keys() & {name.removesuffix("-tried") for name in extras if name.endswith("-tried")}:
        (pin,), (floor,) = extras[f"{framework}-tried"], extras[framework]
        assert pin in tried  # by the tests of this project, or in the matrix
        assert floor.startswith(f"{framework}>=")


def test_a_requirement_that_is_too_old(site):
    site.distribution("pluggy", version="0.1")
    status, problems, remedies, _ = site.doctor()
    assert status == 1
    assert "pluggy 0.1 is older than" in problems[0]
    assert "--upgrade 'pluggy>=" in remedies[0]


def test_a_requirement_whose_import_fails(site):
    site.module("pluggy", "raise ImportError('built for another Python')")
    status, problems, remedies, _ = site.doctor()
    assert status == 1
    assert "import pluggy raises ImportError: built for another Python" in problems[0]
    assert "--force-reinstall 'pluggy>=" in remedies[0]


def test_a_broken_plugin_leaves_the_others_working(site):
    pytest.importorskip("torch")
    site.plugin(FAULTS["import error"][0]).module(
        "user",
        """
        import torch
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
        """,
    )
    done = site.python("-m", "user", block="jax,autograd")
    assert done.returncode == 0, done.stderr


def test_doctor_finds_the_bundled_plugins_well(site):
    done = site.python("-m", "adprotocol", "doctor")
    assert done.returncode == 0, done.stdout
    assert "PROBLEM" not in done.stdout


@pytest.mark.parametrize("status", [0, 1])
def test_demo_is_given_its_arguments_and_gives_the_status(monkeypatch, status):
    given = []

    def demo(argv):
        given.append(argv)
        return status

    monkeypatch.setattr("adprotocol._demo.run.main", demo)
    assert main(["demo", "--points", "10", "--help"]) == status
    assert given == [["--points", "10", "--help"]]


@pytest.mark.parametrize("arguments", [[], ["heal"], ["info", "--yaml"], ["doctor", "jax"]])
def test_wrong_usage(site, arguments):
    done = site.python("-m", "adprotocol", *arguments)
    assert done.returncode == 2
    assert "usage: adprotocol" in done.stderr
    assert not done.stdout


@pytest.mark.parametrize(
    "arguments", [["info", "--json", "--no-import"], ["info", "--no-import"], ["--help"], ["conformance", "--list"]]
)
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


@pytest.mark.parametrize(("lacking", "status"), [("numpy", 2), ("something_of_numpy", 1)])
def test_the_suite_without_numpy_says_what_to_install(site, lacking, status):
    site.module("numpy", f"raise ModuleNotFoundError('not there', name={lacking!r})")
    done = site.python("-m", "adprotocol", "conformance", "numpy")
    assert done.returncode == status
    assert ("pip install 'adprotocol[conformance]'" in done.stderr) is (lacking == "numpy")
    assert ("Traceback" in done.stderr) is (lacking != "numpy")
