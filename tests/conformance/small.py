"""Small harnesses, plugins and scenarios, right and wrong, for the tests of the suite's machinery."""

import contextlib
import functools
from unittest import mock

import autograd
import numpy as np
import toyad
import toyad_adprotocol
from toyad_harness import ToyHarness

from adprotocol import conformance, plugins
from adprotocol._dispatch import registry
from adprotocol.conformance import Harness, scenario
from adprotocol.conformance._run import backend

__all__ = ["Autograd", "OneLevel", "Plain", "ToyHarness", "made", "ran", "scenarios", "toy"]


class Plain(Harness):
    """NumPy: every answer is known without a plugin."""

    name = "numpy"
    absent = {"grad": "NumPy does not differentiate"}  # noqa: RUF012  (as maintainers write it)

    def array(self, value):
        return np.asarray(value)

    def to_numpy(self, array):
        return np.asarray(array)


class Autograd(Harness):
    """The three functions that are required, and forward mode."""

    name = "autograd"
    tolerance = 1e-9

    def array(self, value):
        return np.asarray(value)

    def to_numpy(self, array):
        return np.asarray(array)

    def grad(self, fun):
        return autograd.grad(fun)

    def jvp(self, fun, primal, tangent):
        return autograd.make_jvp(fun)(primal)(tangent)


_NO_SUCH = (
    *("jvp", "jit", "compile", "vmap", "checkpoint", "scan", "while_loop", "no_grad", "custom_rule", "counter"),
    *("abstract", "parameter", "parameter_grad", "assign", "set_flag", "module", "evaluate", "node"),
)


class OneLevel(ToyHarness):
    """toyad as a system of one level of reverse mode, as most are, and nothing else."""

    absent = {"grad of grad": "one level"} | dict.fromkeys(_NO_SUCH, "one level of reverse mode, and nothing else")

    def __init__(self, device=None):
        super().__init__(device)
        toyad.MOST = 1


for _name in _NO_SUCH:
    setattr(OneLevel, _name, None)


def made(base=Autograd, **members):
    """A harness that differs in a few members."""
    return type("Made", (base,), members)


@contextlib.contextmanager
def scenarios(*functions, **known):
    """Let there be only the scenarios of some functions, `cond/their-name`."""
    conformance.all_scenarios()
    backend.find("autograd")
    hooks = registry.REGISTRY.known()["autograd"].hooks
    # What autograd's plugin declares are other scenarios.
    with mock.patch.object(scenario, "_SCENARIOS", {}), mock.patch.dict(hooks, divergences=tuple):
        for function in functions:
            data = {
                "rule": "C1",
                "source": "docs/rules.md, C1",
                "description": "A summary",
                **getattr(function, "known", {}),
            }
            name = getattr(function, "__name__", "called").strip("_<>").replace("_", "-")
            scenario.scenario(f"cond/{name}", **(data | known))(function)
        yield


def ran(harness, *functions, level="MUST", needs=(), varies=False, **options):
    """The report of a run of some functions as scenarios."""
    with scenarios(*functions, level=level, needs=needs, varies=varies):
        return conformance.run(harness, **options)


@contextlib.contextmanager
def toy(without=(), **hooks):
    """Register the plugin of toyad, with some of its hooks replaced."""
    names = [name for name in dir(toyad_adprotocol) if hasattr(getattr(toyad_adprotocol, name), "adprotocol_impl")]
    members = {name: getattr(toyad_adprotocol, name) for name in names if name not in without}
    for name, function in hooks.items():
        original = getattr(toyad_adprotocol, name)
        members[name] = functools.wraps(original)(function)
    plugin = plugins.register(
        type("Plugin", (), {name: staticmethod(hook) for name, hook in members.items()})(), "toyad"
    )
    try:
        yield plugin
    finally:
        plugins.unregister(plugin.name)
