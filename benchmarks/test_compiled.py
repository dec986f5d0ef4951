"""The compiled program: what a branch on `within_gradient` leaves in it, which should be nothing.

The table calls the branch ``h = cond(within_gradient(x), train, evaluate, x)``.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from row import counted
from torch._dynamo.utils import counters

from adprotocol import cond, within_gradient

WEIGHTS = np.linspace(-1.0, 1.0, 16, dtype=np.float32).reshape(4, 4)


def _jax_train(x):
    return jnp.sum(jnp.tanh(jnp.tanh(x @ WEIGHTS + 0.5) @ WEIGHTS.T) ** 2)


def _jax_evaluate(x):
    return jnp.sum(jnp.sin(x) @ WEIGHTS * jnp.exp(-x))


def _jax_asked(x):
    return cond(within_gradient(x), _jax_train, _jax_evaluate, x)


def instructions(fun, x):
    """Count the instructions of the optimised program, those inside fusions included."""
    text = jax.jit(fun).lower(x).compile().as_text()
    return len(re.findall(r"^\s+(?:ROOT )?%\S+ = ", text, flags=re.MULTILINE))


@pytest.mark.parametrize(
    ("what", "asked", "by_hand"),
    [
        ("jit(h)", _jax_asked, _jax_evaluate),
        ("jit(vmap(h))", jax.vmap(_jax_asked), jax.vmap(_jax_evaluate)),
        ("jit(grad(h))", jax.grad(_jax_asked), jax.grad(_jax_train)),
        ("jit(grad(jit(h)))", jax.grad(jax.jit(_jax_asked)), jax.grad(jax.jit(_jax_train))),
        (
            "jit(vmap(grad(checkpoint(h))))",
            jax.vmap(jax.grad(jax.checkpoint(_jax_asked))),
            jax.vmap(jax.grad(jax.checkpoint(_jax_train))),
        ),
    ],
)
def test_hlo(benchmark, record, what, asked, by_hand):
    x = jnp.linspace(0.1, 0.9, 4)
    x = jnp.stack([x, 2 * x]) if "vmap" in what else x
    np.testing.assert_allclose(jax.jit(asked)(x), jax.jit(by_hand)(x), rtol=1e-5)
    ours = benchmark.pedantic(instructions, args=(asked, x), rounds=1)
    expected = instructions(by_hand, x)
    assert expected > 5
    branch = "train" if "grad" in what else "evaluate"
    record(counted(f"HLO instructions, {what}", f"{branch} in its place", ours, expected))


def _torch_train(x):
    return torch.tanh(torch.tanh(x * 2.0 + 0.5) @ torch.ones(4, 4)).square().sum()


def _torch_evaluate(x):
    return (torch.sin(x) * torch.exp(-x)).sum()


def _torch_asked(x):
    return cond(within_gradient(x), _torch_train, _torch_evaluate, x)


class Counting:
    """A backend that runs the graphs as they are, and keeps them."""

    def __init__(self):
        self.graphs = []

    def __call__(self, module, inputs):
        self.graphs.append(module.graph)
        return module.forward

    @property
    def nodes(self):
        return [len(graph.nodes) for graph in self.graphs]


def _switched(backend, fun, times):
    """Call a compiled function with gradients on, then off, several times over."""
    compiled = torch.compile(fun, backend=backend, fullgraph=True)
    x = torch.linspace(0.1, 0.9, 4, requires_grad=True)
    results = []
    for _ in range(times):
        results.append(compiled(x))
        with torch.no_grad():
            results.append(compiled(x))
    return x, results


def test_torch_compile(benchmark, record):
    torch.compiler.reset()
    counters.clear()
    ours = Counting()
    x, results = benchmark.pedantic(_switched, args=(ours, _torch_asked, 3), rounds=1)
    with torch.no_grad():
        for i, result in enumerate(results):
            torch.testing.assert_close(result, (_torch_evaluate if i % 2 else _torch_train)(x))
    breaks = sum(counters["graph_break"].values())
    by_hand = {}
    for name, fun in (("train", _torch_train), ("evaluate", _torch_evaluate)):
        by_hand[name] = Counting()
        torch.compile(fun, backend=by_hand[name], fullgraph=True)(x)
    assert by_hand["train"].nodes[0] > 5
    first, second = [*ours.nodes, 0, 0][:2]
    record(
        counted("torch.compile(h, fullgraph=True): graph breaks", "must be", breaks, 0),
        counted("nodes of the graph, x requires grad", "train in its place", first, by_hand["train"].nodes[0]),
        counted("nodes of the graph under no_grad", "evaluate in its place", second, by_hand["evaluate"].nodes[0]),
        counted("compilations: grad, no_grad, three times over", "one for each mode", len(ours.graphs), 2),
    )
