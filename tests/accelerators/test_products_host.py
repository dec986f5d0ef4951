"""Products, Jacobians, choices and labels: where results lie, that nothing waits, graphs that are captured, streams.

Each runs on a GPU where there is one, and here by a stand-in for it: the device ``meta`` under modes that refuse what
a GPU waits for, a trace without values for a captured graph, and PyTorch's streams of the CPU, which do nothing.
"""

import contextlib

import every_hook
import numpy as np
import pytest
import torch
from test_torch_host import NeverFromTheHost, NeverOnTheHost
from torch.fx.experimental.proxy_tensor import make_fx

from adprotocol import NonDifferentiable, jacobian, jvp, tree_map, vjp, where

CUDA = pytest.param("cuda", marks=pytest.mark.cuda)


def square(x):
    return x * x


def among_matrices(x):
    matrices = x[:, None, None] * torch.ones(2, 2, device=x.device)
    return where(x[:, None, None] > 1.0, lambda m: m @ m, lambda m: m, matrices)


# The host waits for a copy of what lies there: of cotangents, tangents, and a regular matrix for those not chosen.
COPYING = {
    "a cotangent of the host": lambda x: vjp(square, x)[1](torch.ones(2, dtype=torch.float64))[0],
    "a cotangent of NumPy": lambda x: vjp(square, x)[1](np.ones(2))[0],
    "a tangent of the host": lambda x: jvp(square, (x,), (torch.ones(2, dtype=torch.float64),))[1],
    "a tangent of NumPy": lambda x: jvp(square, (x,), (np.ones(2),))[1],
    "a choice among matrices": among_matrices,
}
QUIET = {
    "a cotangent in half precision": lambda x: vjp(square, x)[1](x.half())[0],
    "a number for a cotangent": lambda x: vjp(lambda x: square(x).sum(), x)[1](2.0)[0],
    "None for a cotangent": lambda x: vjp(square, x)[1](None)[0],
    "a leaf without influence": lambda x: vjp(lambda x, _: square(x), x, x.double())[1](x)[1],
    "a number for a tangent": lambda x: jvp(lambda x: x * x, (x[0],), (2.0,))[1],
    "an output that does not move": lambda x: jvp(lambda y: (square(y), x), (x,), (x,))[1][1],
    "rows": jacobian(square),
    "rows one by one": jacobian(square, chunk_size=1),
    "rows of nothing": jacobian(lambda x: x[:0]),
    "columns": jacobian(square, mode="forward"),
    "columns of two leaves": lambda x: jacobian(lambda m: m["a"] * m["b"], mode="forward")({"a": x, "b": x})["b"],
    "a choice between numbers": lambda x: where(x > 1.0, lambda _: 2.0, lambda _: 0.5, x),
    "a choice of one function alone": lambda x: where(x > 9.0, torch.log, lambda x: x, x),
    "a label under vmap": lambda x: torch.vmap(lambda m: m["label"] * 2.0)({"label": NonDifferentiable(x)}),
    "a label that is mapped": lambda x: tree_map(square, [NonDifferentiable(x)])[0].value,
    "a label in a value": lambda x: vjp(lambda x: (x, NonDifferentiable(square(x))), x)[0][1].value,
}


@pytest.fixture(params=["meta", CUDA])
def device(request):
    return request.param


@contextlib.contextmanager
def never_waiting(device):
    if device == "cuda":
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)
    else:
        with NeverFromTheHost(), NeverOnTheHost():
            yield


@pytest.mark.parametrize("name", [*COPYING, *QUIET])
def test_results_lie_on_the_device(name, device):
    here, there = (torch.tensor([0.5, 2.0]).to(place) for place in ("cpu", device))
    with never_waiting(device) if name in QUIET else contextlib.nullcontext():
        found = (COPYING | QUIET)[name](there)
    want = (COPYING | QUIET)[name](here)
    assert (found.device.type, found.dtype, found.shape) == (device, want.dtype, want.shape)
    assert device == "meta" or torch.allclose(found.cpu(), want)


@pytest.mark.parametrize("hook", every_hook.HOOKS, ids=lambda hook: hook.__name__)
def test_a_trace_without_values_computes_again_what_the_hook_computes(hook):
    traced = make_fx(hook, tracing_mode="fake")(torch.tensor([0.5, 2.0]))
    x = torch.tensor([3.0, -1.0])
    assert torch.allclose(traced(x), hook(x))


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_a_pull_on_another_stream_than_its_call(device):
    streams = getattr(torch, device)
    one, other, x = streams.Stream(), streams.Stream(), torch.full((1 << 20,), 2.0, device=device)
    one.wait_stream(streams.current_stream())
    with streams.stream(one):
        value, pull = vjp(lambda x: x * x * x, x)
        _, tangent = jvp(lambda x: x * x * x, (x,), (value,))
    other.wait_stream(one)
    with streams.stream(other):
        (gradient,) = pull(tangent)
        chosen = where(gradient > tangent, lambda x: x * 2.0, lambda x: x, gradient)
    streams.current_stream().wait_stream(other)
    for found, want in ((tangent, 96.0), (gradient, 1152.0), (chosen, 2304.0)):
        assert bool((found == want).all())
