"""Plugins: lazy, checked one by one, looked up by type, and needing nothing private."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from adprotocol import cond, explain, grad, non_differentiable, within_gradient
from adprotocol._dispatch.registry import REGISTRY
from adprotocol._gradients import framework
from adprotocol.errors import BackendError, PluginError, PredicateError, UnclaimedTypeError
from adprotocol.hookspecs import TreeLibrary, hookimpl
from adprotocol.plugins import register, unregister


def run(code, **environment):
    import os

    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


class Box:
    def __init__(self, value, answer=True, name="x"):
        self.value, self.answer, self.name = value, answer, name


class SubBox(Box):
    pass


class Constant(Box):
    pass


class Staged:
    """A boolean that is known later; joined with |."""

    def __init__(self, *names):
        self.names = names

    def __or__(self, other):
        return Staged(*self.names, *other.names)


class Bag:
    def __init__(self, *items):
        self.items = items


class Toy:
    """Every required hook of a toy AD system, and those optional ones that a subclass adds."""

    types = (Box, Staged)

    @hookimpl
    def array_types(self):
        return self.types

    @hookimpl
    def within_gradient(self, value):
        return value.answer

    @hookimpl
    def non_differentiable(self, value):
        return Box(value.value, answer=False)

    @hookimpl
    def cond(self, pred, true_fun, false_fun, operands):
        if isinstance(pred, Staged):
            return ("staged", true_fun(*operands), false_fun(*operands))
        if not isinstance(pred, bool):
            raise PredicateError("toy")
        return ("toy", (true_fun if pred else false_fun)(*operands))


class FullToy(Toy):
    types = {Box: True, Constant: False, Staged: True}  # noqa: RUF012  (as authors write it)

    @hookimpl
    def any_within_gradient(self, values):
        return Staged("any", *(value.name for value in values))

    @hookimpl
    def tree_library(self):
        functions = (lambda bag: (bag.items, None), lambda _, items: Bag(*items))
        return TreeLibrary(lambda value: functions if type(value) is Bag else None)

    @hookimpl
    def explain(self, value):
        return f"toy {value.name}"


@pytest.fixture
def registered():
    names = []

    def add(implementation, framework="toyad"):
        plugin = register(implementation, framework)
        names.append(plugin.name)
        return plugin

    yield add
    for name in names:
        if name in REGISTRY.known():
            unregister(name)


def test_staged_answers_are_joined(registered):
    registered(Toy())
    staged = [Box(1, Staged(name)) for name in "abc"]
    assert within_gradient(staged[0]).names == ("a",)
    assert within_gradient(*staged).names == ("a", "b", "c")
    assert within_gradient(Box(1, answer=False), staged[1], Box(1, answer=False)).names == ("b",)
    assert within_gradient(*staged, Box(1)) is True
    assert cond(within_gradient(*staged), lambda: 1, lambda: 2) == ("staged", 1, 2)
    assert "staged" in explain(staged[0])


def test_optional_hooks(registered):
    registered(FullToy())
    a, b = Box(1, name="a"), Box(2, name="b")
    assert within_gradient(a) is True
    assert within_gradient(a, [b]).names == ("any", "a", "b")
    bag = Bag(a, 1.0, [Bag(b)])
    assert within_gradient(Bag(a)) is True
    assert within_gradient(bag).names == ("any", "a", "b")
    rebuilt = non_differentiable(bag)
    assert (type(rebuilt), rebuilt.items[0].answer, type(rebuilt.items[2][0])) == (Bag, False, Bag)
    constant = Constant(1)
    assert within_gradient(constant) is False  # without a call: its hook would say True
    assert non_differentiable(constant) is constant
    assert cond(True, lambda c: c.value, abs, constant) == ("toy", 1)
    assert within_gradient(type("SubConstant", (Constant,), {})(1)) is True  # a subclass may carry one
    assert "toy a" in explain(a)


class Other(Toy):
    types = (Box,)

    @hookimpl
    def within_gradient(self, value):
        return False


class OfSubBox(Other):
    types = (SubBox,)


class First(Other):
    @hookimpl(tryfirst=True)
    def within_gradient(self, value):
        return value  # as one that is staged


def test_nearest_base_root_module_and_tryfirst_come_before_the_alphabet(registered):
    registered(Toy(), "aaa")
    registered(OfSubBox(), "zzz")
    assert within_gradient(SubBox(1.0)) is False
    assert within_gradient(Box(1.0)) is True
    # A claim on a subclass is narrower, not a conflict.
    assert all(SubBox.__qualname__ not in entry[0] for entry in REGISTRY.conflicts())
    unregister("zzz")
    registered(Other(), Box.__module__.partition(".")[0])
    assert within_gradient(Box(1.0)) is False
    registered(First(), "zzzz")
    box = Box(1.0)
    assert within_gradient(box) is box


def returning(value):
    return lambda self: value


# What a plugin defines beside, or in place of, the hooks of `Toy`, and what its refusal says.
BAD = {
    "within_gradients": (lambda self, value: False, r"unknown hook 'within_gradients'"),
    "value_and_grad": (lambda self, fun, leaves: None, r"unknown hook 'value_and_grad'; its successor is vjp\(fun, "),
    "within_gradient": (lambda self, tensor: False, r"Argument\(s\) \{'tensor'\} are declared in the hookimpl"),
    "non_differentiable": (
        lambda self, value=None: value,
        r"takes \(value=None\); .* takes \(value\), as",
    ),
    "cond": (
        lambda self, operands, pred: operands,
        r"takes \(operands, pred\); .* takes \(pred, true_fun, false_fun, operands\), as",
    ),
    "vjp": (
        lambda self, fun, *leaves: None,
        r"takes \(fun, \*leaves\); .* takes \(fun, leaves, once\), as",
    ),
    "function_types": (returning((1,)), r"function_types returned 1, which is not a class"),
    "label_protocol": (returning(None), r"the hook label_protocol raises TypeError"),
    "is_recording": (hookimpl(wrapper=True)(lambda self: (yield)), r"'is_recording' takes \(\) and is a wrapper; "),
}
BAD_TYPES = {
    "not a class": (("Box",), "array_types returned 'Box', which is not a class that a framework owns; return the"),
    "not iterable": (1, "the hook array_types raises TypeError"),
}


def refused(implementation, message, registered):
    with pytest.raises(PluginError, match=message) as caught:
        registered(implementation)
    assert caught.value.__cause__ is not None
    assert "toyad" not in REGISTRY.known()
    assert within_gradient(torch.ones(1, requires_grad=True)) is True
    registered(Toy())
    assert within_gradient(Box(1.0)) is True


@pytest.mark.parametrize("hook", BAD)
def test_a_plugin_with_a_bad_hook_is_refused_alone(hook, registered):
    function, message = BAD[hook]
    function = function if hasattr(function, "adprotocol_impl") else hookimpl(function)
    refused(type("Bad", (Toy,), {hook: function})(), message, registered)


@pytest.mark.parametrize("fault", BAD_TYPES)
def test_a_plugin_that_lists_bad_types_is_refused_alone(fault, registered):
    types, message = BAD_TYPES[fault]
    refused(type("Bad", (Toy,), {"types": types})(), message, registered)


class Missing:
    @hookimpl
    def array_types(self):
        return (Box,)


class Unmarked(Toy):
    cond = staticmethod(lambda pred, true_fun, false_fun, operands: None)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (Missing, r"lacks the required hook\(s\) within_gradient, non_differentiable, cond"),
        (Unmarked, "defines cond without the decorator adprotocol.hookspecs.hookimpl; add it"),
        (object, "lacks the required hook"),
    ],
)
def test_a_plugin_without_a_required_hook_is_refused_alone(bad, message, registered):
    refused(bad(), message, registered)


def test_an_implementation_that_is_registered_again_is_reported(registered):
    toy = Toy()
    registered(toy)
    assert registered(toy, "other").name == "other"
    assert within_gradient(Box(1.0)) is True
    assert {(served, *others) for _, served, others in REGISTRY.conflicts()} == {("other", "toyad")}


def test_installed_plugins_cannot_be_unregistered():
    within_gradient(torch.ones(1))
    with pytest.raises(PluginError, match="ADPROTOCOL_BLOCK"):
        unregister("torch")


BROKEN = """
import adprotocol, autograd, brokenad
for question in (adprotocol.within_gradient, adprotocol.non_differentiable, adprotocol.explain):
    for value in (brokenad.Array(), [brokenad.Array()], brokenad.Sub()):
        try:
            question(value)
        except adprotocol.errors.PluginError as error:
            assert isinstance(error, RuntimeError)
            assert type(error.__cause__).__name__ == "{cause}", error.__cause__
            assert "brokenad" in str(error) and "{cause}" in str(error) and "doctor" in str(error), error
        else:
            raise SystemExit("no error")
try:
    adprotocol.cond(True, lambda x: x, lambda x: x, brokenad.Array())
except adprotocol.errors.PluginError:
    pass
else:
    raise SystemExit("no error")
assert autograd.grad(lambda x: x * adprotocol.within_gradient(x))(1.0) == 1.0
assert adprotocol.within_gradient(1.0, [None]) is False
"""


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("import no_such_module_anywhere", "ModuleNotFoundError"),
        ("raise SystemExit(3)", "SystemExit"),
        ("from adprotocol.hookspecs import hookimpl\n@hookimpl\ndef unknown(value): ...", "PluginValidationError"),
    ],
)
def test_values_of_a_failed_framework_carry_the_cause(tmp_path, source, cause):
    (tmp_path / "brokenad.py").write_text("class Array: ...\nclass Sub(Array): ...\n", encoding="utf-8")
    (tmp_path / "brokenad_plugin.py").write_text(source, encoding="utf-8")
    folder = tmp_path / "brokenad_plugin-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: brokenad-plugin\nVersion: 1.0\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text("[adprotocol]\nbrokenad = brokenad_plugin\n", encoding="utf-8")
    ran = run(BROKEN.format(cause=cause), PYTHONPATH=str(tmp_path))
    assert ran.returncode == 0, ran.stderr[-800:]


BLOCKED = """
import adprotocol, autograd.numpy, numpy
from autograd.numpy.numpy_boxes import ArrayBox
try:
    adprotocol.within_gradient(ArrayBox(numpy.ones(1), None, None))
except adprotocol.errors.PluginError as error:
    assert "ADPROTOCOL_BLOCK" in str(error)
else:
    raise SystemExit("no error")
"""


def test_values_of_a_blocked_framework_are_an_error():
    ran = run(BLOCKED, ADPROTOCOL_BLOCK="autograd")
    assert ran.returncode == 0, ran.stderr[-800:]


@pytest.mark.parametrize("cls", [object, float, dict, type(lambda: None), np.ndarray], ids=lambda cls: cls.__name__)
def test_what_no_framework_owns_is_not_to_be_claimed(cls, registered):
    class Greedy(Toy):
        types = (Box, cls)

    with pytest.raises(PluginError, match=rf"returned {cls!r}, which is not a class that a framework owns"):
        registered(Greedy())


def test_without_any_entry_point_errors_say_that_the_metadata_are_missing(monkeypatch):
    class Array:
        dtype, shape = "float32", ()

        def __array_namespace__(self):
            return None

    monkeypatch.setattr(REGISTRY, "plugins", {})
    monkeypatch.setattr(framework, "_DEFAULT", {})
    with pytest.raises(UnclaimedTypeError, match="No distribution has an entry point in the group 'adprotocol'"):
        within_gradient(Array())
    with pytest.raises(BackendError, match="in a frozen application bundle them"):
        grad(lambda x: x**2)(1.0)
