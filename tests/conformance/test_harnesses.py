"""The harnesses of the three plugins: complete, right on closed forms without adprotocol, on the device asked for."""

from unittest import mock

import jax
import numpy as np
import pytest
import torch

import adprotocol
from adprotocol import conformance
from adprotocol.conformance import harness_of
from adprotocol.conformance._run import harness_checks
from adprotocol.conformance.harness import CAPABILITIES, REQUIRED

NAMES = ["jax", "torch", "autograd"]
EVERY = (*REQUIRED, *CAPABILITIES)

on_each = pytest.mark.parametrize("name", NAMES)


def forbidden(*_args, **_kwargs):
    msg = "a harness must not call adprotocol"
    raise AssertionError(msg)


@on_each
def test_the_suite_finds_nothing_wrong_with_the_harness(name):
    # One scenario and its variants; `test_support` runs them all.
    report = conformance.run(name, keywords=["within_gradient/gra[d]", "within_gradient/gra[d]@*"])
    assert report.problems == ()
    assert report.ok


@on_each
def test_each_capability_is_defined_or_has_a_reason_and_never_both(name):
    harness = harness_of(name)
    for capability in EVERY:
        assert harness.defines(capability) != (capability in harness.absent), capability
    assert all(reason.strip() for reason in harness.absent.values())


@pytest.mark.filterwarnings("ignore:Output seems independent of input:UserWarning")  # of autograd, and it is
@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph:UserWarning")  # of the variant by backward
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")  # of the reentrant checkpoint
@pytest.mark.parametrize(("name", "capability"), [(n, c) for n in NAMES for c in EVERY if harness_of(n).defines(c)])
def test_capabilities_are_right_without_adprotocol(name, capability):
    harness = harness_of(name)
    hooks = ("within_gradient", "non_differentiable", "cond", "value_and_grad", "grad", "trainable", "partition")
    ways = [None, *({capability: way} for way in harness.variants.get(capability, {}).values())]
    with mock.patch.multiple(adprotocol, **dict.fromkeys(hooks, forbidden)):
        for way in ways:
            harness_checks.check(harness, capability, way)


def test_the_switch_of_torch_does_not_reach_a_gradient_inside_of_it():
    h = harness_of("torch")
    x = torch.tensor(3.0, requires_grad=True)
    slope = h.no_grad(h.grad(lambda x: x * x))(x)
    assert slope == 6.0
    assert not slope.requires_grad
    assert not h.no_grad(lambda x: x * x)(x).requires_grad


@on_each
def test_arrays_are_made_on_the_device(name, monkeypatch):
    # Whether the harness is right is asked above; here it would be asked on every device.
    monkeypatch.setattr(harness_checks, "check", lambda *args, **options: None)
    for device in harness_of(name).devices():
        harness = harness_of(name, device)
        for value in (1.0, 1, True, 1j, [[1.0, 2.0]]):
            made = harness.array(value)
            if name == "jax":
                assert {f"{place.platform}:{place.id}" for place in made.devices()} == {device}
            elif name == "torch":
                assert str(made.device) == device
            assert np.array_equal(harness.to_numpy(made), value)
        # The brackets make it a glob, which matches one scenario alone.
        assert conformance.run(harness, keywords=["within_gradient/gra[d]"]).device == device


def test_every_device_of_jax_and_torch_is_named():
    assert list(harness_of("jax").devices()) == [f"cpu:{i}" for i in range(len(jax.devices("cpu")))]
    assert list(harness_of("torch").devices()) == ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]


def test_who_only_asks_does_not_load_the_harness(fresh):
    program = """
import sys
import autograd, jax, numpy, torch
import adprotocol
import adprotocol_autograd, adprotocol_jax, adprotocol_torch
for made in (jax.numpy.ones(2), torch.ones(2), numpy.ones(2)):
    assert adprotocol.within_gradient(made) is False
assert not [loaded for loaded in sys.modules if loaded.startswith("adprotocol.conformance") or "harness" in loaded]
"""
    assert fresh(program, "torch") == (0, "")
