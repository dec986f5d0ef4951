"""PyTorch frees the nodes that Python has seen inside of each other; with many in a row that ends the process."""

from __future__ import annotations

import random

import pytest

import adprotocol

torch = pytest.importorskip("torch")

SETUP = """
import torch
import adprotocol

STEPS = 5_000
scale = torch.ones(2, requires_grad=True)

def deep(x):
    for _ in range(STEPS):
        x = x + 1.0
    return x.sum()
"""

PROGRAMS = {
    "a gradient": "adprotocol.value_and_grad(deep)(torch.ones(2))",
    "a gradient that is differentiable": "adprotocol.value_and_grad(lambda x: deep(x * scale))(torch.ones(2))",
    "an auxiliary output that outlives the value": """
def halves(x):
    half = (x * scale).expand(2)
    for _ in range(STEPS):
        half = half + 1.0
    return deep(half), half

(value, half), gradient = adprotocol.value_and_grad(halves, has_aux=True)(torch.ones(2))
del value, gradient
del half
""",
    "a gradient in each step": """
x = scale
for _ in range(STEPS // 2):
    x = x + adprotocol.grad(lambda y: (y * y * scale).sum())(x) * 1e-9
del x
""",
    "a parameter of a module": """
module = torch.nn.Linear(2, 2)
with torch.no_grad():
    adprotocol.value_and_grad(lambda module: deep(module.weight))(module)
""",
}


# As deep as a stack of 8 MB allows is what a stack of 512 kB does not: a sixteenth of the steps would be too many.
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_long_graph_is_released(name, fresh):
    program = f"{SETUP}\n{PROGRAMS[name]}\nprint('released', flush=True)"
    threads = f"""
import threading
threading.stack_size(512 * 1024)
thread = threading.Thread(target=exec, args=({program!r}, {{}}))
thread.start()
thread.join()
"""
    assert fresh(threads, "torch") == (0, "released\n")


def test_the_random_numbers_of_a_program_are_its_own():
    state = random.getstate()
    for _ in range(200):
        adprotocol.grad(lambda x: x * x)(torch.tensor(1.0))
    assert random.getstate() == state
