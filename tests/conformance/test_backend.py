"""The backend of a run: found by name, given as a harness or by a path; what is not there says what is."""

import sys
import textwrap

import pytest
from small import Plain, ToyHarness, made, ran, toy

import adprotocol
from adprotocol.conformance import BrokenBackend, Harness, UsageError, harness_of, run
from adprotocol.conformance._run import backend as backends
from adprotocol.errors import PluginError


def fine(h):
    h.array(1.0)


def test_numpy_is_a_backend_without_a_plugin():
    found = backends.find("numpy")
    assert (found.name, found.plugin, found.plugin_version) == ("numpy", "adprotocol", adprotocol.__version__)
    assert found.hooks == frozenset()
    assert found.divergences() == ()
    assert ran("numpy", fine).ok


def test_a_plugin_brings_its_harness_with_the_versions():
    found = backends.find("autograd")
    assert isinstance(found.harness, Harness)
    assert (found.name, found.plugin, found.plugin_version) == ("autograd", "adprotocol", adprotocol.__version__)
    assert found.framework_version[0].isdigit()
    # Workers send it as text: PyTorch has a class of its own.
    assert type(backends.find("torch").framework_version) is str
    assert "vjp" in found.hooks
    assert found.expression == "harness_of('autograd')"


@pytest.mark.parametrize("name", ["nowhere", "", "Jax", "jax ", "numpy2"])
def test_an_unknown_backend_says_what_there_is(name):
    with pytest.raises(UsageError, match=r"no backend .*; there are numpy, autograd, jax, torch\."):
        run(name)


@pytest.mark.parametrize("given", [None, 3, int, object(), lambda device: Plain(), ["numpy"]])
def test_what_is_no_harness_is_refused(given):
    with pytest.raises(UsageError, match=r"a harness derives from adprotocol\.conformance\.Harness"):
        run(given)


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_harness_without_a_name_is_told_so(name):
    with pytest.raises(UsageError, match=r"Made has the name .*; set the attribute name to that of its plugin"):
        run(made(name=name))


class Placed(Plain):
    """NumPy on two devices."""

    def devices(self):
        return ("cpu", "attic")


def test_a_device_reaches_a_class_and_a_plugin():
    assert ran(Placed, fine, device="attic").device == "attic"
    with toy():
        assert ran("toyad", fine, device="fpga").device == "fpga"


def test_an_instance_stays_on_its_device():
    assert ran(Placed("attic"), fine).device == "attic"
    assert ran(Placed("attic"), fine, device="attic").device == "attic"
    with pytest.raises(UsageError, match="the device 'cpu' was asked for, and the harness of numpy is on 'attic'"):
        ran(Placed("attic"), fine, device="cpu")
    with pytest.raises(UsageError, match="the device 'cpu' was asked for, and the harness of numpy is on None"):
        ran(Placed(), fine, device="cpu")


def test_an_unknown_device_says_what_there_is():
    with pytest.raises(UsageError, match="numpy has no device 'cellar' here; there are cpu, attic"):
        run(Placed, device="cellar")
    with pytest.raises(UsageError, match="numpy has no device 'cuda:0' here; there are cpu"):
        run("numpy", device="cuda:0")


def test_a_harness_without_devices_says_so():
    with pytest.raises(UsageError, match="numpy has no device 'cpu' here; there are none"):
        run(Plain, device="cpu")


def with_harness(hook):
    plugin = toy()
    record = plugin.__enter__()
    record.hooks = record.hooks | {"harness": hook}
    return plugin


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (lambda device: 1 / 0, "the hook harness of the plugin 'toyad' raises ZeroDivisionError: division by zero"),
        (lambda device: sys.exit(0), "the hook harness of the plugin 'toyad' raises SystemExit: 0"),
        (lambda device: None, "the hook harness of the plugin 'toyad' returned a NoneType, no adprotocol.conf"),
        (lambda device: "toyad", "the hook harness of the plugin 'toyad' returned a str, no"),
    ],
)
def test_a_hook_harness_that_is_wrong_is_the_plugins_fault(hook, words):
    plugin = with_harness(hook)
    try:
        with pytest.raises(PluginError) as caught:
            run("toyad")
    finally:
        plugin.__exit__(None, None, None)
    assert isinstance(caught.value, BrokenBackend)
    assert words in str(caught.value)


def test_a_plugin_without_a_harness_says_how_to_name_one():
    with toy() as plugin:
        plugin.hooks = {key: hook for key, hook in plugin.hooks.items() if key != "harness"}
        with pytest.raises(UsageError, match=r"has no hook harness, .*name a harness with --harness MODULE:CLASS"):
            run("toyad")


def test_the_harness_of_a_second_plugin_for_one_framework_is_the_second_plugins():
    with toy(), toy() as second:
        second.hooks = second.hooks | {"harness": ToyHarness}
        assert backends.find("toyad#2").harness.name == "toyad#2"


def test_a_harness_without_a_name_takes_that_of_its_plugin():
    with toy() as plugin:
        plugin.hooks = plugin.hooks | {"harness": made(ToyHarness, name="")}
        assert harness_of("toyad").name == "toyad"


@pytest.mark.parametrize(
    "path", ["small", "small:", ":Plain", "nowhere:Plain", "small:Nothing", "small:Plain:x", "small:.x"]
)
def test_a_path_that_names_nothing_says_what_it_is(path):
    with pytest.raises(BrokenBackend, match="as MODULE:CLASS, raises"):
        backends.load(path)


def test_a_path_names_a_class_an_instance_or_what_is_inside():
    for path in ("small:Plain", "test_backend:INSTANCE", "test_backend:Outer.Inner"):
        assert harness_of(path).name == "numpy"
    assert harness_of("test_backend:Placed", "attic").device == "attic"
    found = backends.load("test_backend:Placed", "attic")
    assert found.expression == "harness_of('test_backend:Placed', 'attic')"


INSTANCE = Plain()


class Outer:
    class Inner(Plain):
        pass


def test_the_expression_of_an_inner_class_makes_it_again():
    expression = backends.around(Outer.Inner).expression
    assert type(eval(expression, {"harness_of": harness_of})) is Outer.Inner  # noqa: S307


@pytest.fixture
def importable(tmp_path, monkeypatch):
    """A folder whose module `faulty` can be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "faulty", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        ("raise RuntimeError('no licence')", BrokenBackend, "raises RuntimeError: no licence"),
        ("raise SystemExit(0)", BrokenBackend, "raises SystemExit: 0"),
        ("class Harness(", BrokenBackend, "SyntaxError"),
        ("import nowhere_to_be_found", BrokenBackend, "No module named 'nowhere_to_be_found'"),
        ("print('hello')\nHarness = 3", UsageError, "3 is an int; a harness derives from"),
    ],
)
def test_a_module_that_cannot_be_imported_is_said_to_be(importable, capsys, source, error, words):
    (importable / "faulty.py").write_text(source)
    with pytest.raises(error) as caught:
        backends.load("faulty:Harness")
    assert words in str(caught.value)
    assert capsys.readouterr().out == ""


PLUGIN = """
    from adprotocol.hookspecs import hookimpl

    class Array: ...

    @hookimpl
    def array_types(): return (Array,)
    @hookimpl
    def within_gradient(value): return True
    @hookimpl
    def non_differentiable(value): return value
    @hookimpl
    def cond(pred, true_fun, false_fun, operands): return true_fun(*operands)
"""


COMMAND = """
import os, sys
os.environ |= {environment}
sys.path.insert(0, {folder!r})
from adprotocol.__main__ import main
sys.exit(main(["conformance", "fakefw", "--jobs", "1"]))
"""


def command(fresh, folder, framework="", plugin=PLUGIN, **environment):
    """Run the command beside an installed third-party plugin `fake` of the framework `fakefw`."""
    if framework is not None:
        (folder / "fakefw.py").write_text(textwrap.dedent(framework))
    (folder / "fake.py").write_text(textwrap.dedent(plugin))
    info = folder / "fake-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fake\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[adprotocol]\nfakefw = fake\n")
    return fresh(COMMAND.format(environment=environment, folder=str(folder)), "numpy", "pytest")


@pytest.mark.parametrize(
    ("given", "status", "words"),
    [
        ({"framework": None}, 1, "importing fakefw raises ModuleNotFoundError: No module named 'fakefw'"),
        ({"ADPROTOCOL_BLOCK": "fakefw"}, 1, "the plugin 'fakefw' is blocked"),
        ({}, 2, "the plugin 'fakefw' has no hook harness"),
        ({"framework": "raise OSError('libfake.so')"}, 1, "importing fakefw raises OSError: libfake.so"),
        ({"framework": "import nowhere"}, 1, "importing fakefw raises ModuleNotFoundError: No module named 'nowhere'"),
        ({"plugin": "raise ImportError('half of it')"}, 1, "the plugin 'fakefw' is failed: ImportError: half of it."),
        ({"plugin": PLUGIN.replace("value", "x")}, 1, "the plugin 'fakefw' is failed: "),
    ],
)
def test_a_plugin_that_cannot_serve_is_reported_as_what_it_is(fresh, tmp_path, given, status, words):
    exit_status, output = command(fresh, tmp_path, **given)
    assert exit_status == status
    assert words in output
    assert "Traceback" not in output
