"""Tasks of asyncio that interleave within one thread while values are differentiated."""

import asyncio
import collections
import time

import autograd
import jax
import jax.numpy as jnp
import torch

import adprotocol
from adprotocol import within_gradient
from fuzz.stress.steps import check, layer

COUNT = 20


def _interleaved(x, constant):
    """Let tasks ask about a value that is differentiated and about a constant, in turns, inside of a gradient."""

    async def ask(value, want):
        for _ in range(3):
            assert within_gradient(value) is want
            await asyncio.sleep(0)
        return layer(value)

    async def all_of_them():
        asked = [ask(x, True), ask(constant, False)] * (COUNT // 2)
        return await asyncio.gather(*asked)

    results = asyncio.run(all_of_them())
    return sum(results[::2]) + sum(results[1::2])


# The gradient of COUNT / 2 times 3 x.
GRADIENTS = {
    "jax": lambda: jax.grad(lambda x: _interleaved(x, jnp.float32(2.0)))(jnp.float32(1.0)),
    "torch.func": lambda: torch.func.grad(lambda x: _interleaved(x, torch.tensor(2.0)))(torch.tensor(1.0)),
    "autograd": lambda: adprotocol.grad(lambda x: _interleaved(x, 2.0))(1.0),
    "torch": lambda: adprotocol.grad(lambda x: _interleaved(x, torch.tensor(2.0)))(torch.tensor(1.0)),
}


async def _tape(number, done):
    """Record on PyTorch's tape across awaits, with the leaf tracked in some tasks and not in others."""
    is_tracked = bool(number % 2)
    x = torch.tensor([1.0 + number], requires_grad=is_tracked)
    y = x * 1.0
    for _ in range(3):
        await asyncio.sleep(0)
        assert within_gradient(x) is within_gradient(y) is is_tracked
        y = layer(y)
    check(y, [(3.0 if is_tracked else 5.0) ** 3 * (1.0 + number)], "tape")
    if is_tracked:
        await asyncio.sleep(0)
        check(torch.autograd.grad(y.sum(), x)[0], [27.0], "gradient of the tape")
    done["tape"] += 1


async def _in_a_thread(name, done):
    check(await asyncio.to_thread(GRADIENTS[name]), COUNT / 2 * 3.0, name)
    done[name] += 1


async def _everything(done):
    tapes = [_tape(number, done) for number in range(COUNT)]
    await asyncio.gather(*tapes, *(_in_a_thread(name, done) for name in GRADIENTS))


def run(seconds):
    """Return how often each was done."""
    done, end = collections.Counter(), time.monotonic() + seconds
    while not done or time.monotonic() < end:
        asyncio.run(_everything(done))
        # A native gradient of autograd, in one thread.
        check(autograd.grad(lambda x: _interleaved(x, 2.0))(1.0), COUNT / 2 * 3.0, "autograd.grad")
        done["autograd.grad"] += 1
    return done
