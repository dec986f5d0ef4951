"""What a thread does in one step, with JAX and compilers too; a wrong result is an AssertionError.

Two locks stand for what PyTorch itself allows in one thread at a time: its forward mode
has one level for the whole process, and Dynamo compiles in one thread.
"""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.autograd import forward_ad

from adprotocol import (
    NonDifferentiable,
    combine,
    explain,
    non_differentiable,
    partition,
    trainable,
    value_and_grad,
    within_gradient,
)
from fuzz.stress import light
from fuzz.stress.model import Line, check, layer

FORWARD, DYNAMO = threading.Lock(), threading.Lock()

COMPILED = jax.jit(layer)


def jax_answers(number):
    x = jnp.float32(number)
    check(COMPILED(x), 5.0 * number, "jit")
    check(jax.grad(COMPILED)(x), 3.0, "grad of jit")
    check(jax.vmap(jax.grad(COMPILED))(jnp.full(2, x)), [3.0, 3.0], "vmap of grad of jit")
    check(jax.jvp(COMPILED, (x,), (x,))[1], 3.0 * number, "jvp of jit")


def jax_compiles(number):
    compiled = jax.jit(lambda x: layer(x) * number)
    check(compiled(jnp.float32(2.0)), 10.0 * number, "new jit")
    check(jax.grad(compiled)(jnp.float32(2.0)), 3.0 * number, "grad of new jit")


def torch_forward(number):
    x = torch.tensor([float(number)])
    with FORWARD:
        check(torch.func.jvp(layer, (x,), (x,))[1], [3.0 * number], "func.jvp")
        with forward_ad.dual_level():
            check(forward_ad.unpack_dual(layer(forward_ad.make_dual(x, x))).tangent, [3.0 * number], "dual")
            check(layer(x), [5.0 * number], "without a tangent")


def torch_compiles(number):
    # A graph has no answer while any thread is in a dual level.
    with DYNAMO, FORWARD:
        compiled = torch.compile(lambda x: layer(x) * number, backend="eager", fullgraph=True)
        x = torch.ones(1, requires_grad=True)
        check(torch.autograd.grad(compiled(x).sum(), x)[0], [3.0 * number], "compiled")
        check(compiled(torch.ones(1)), [5.0 * number], "compiled, plain")
        torch.compiler.reset()


def structures(number):
    for make in (np.asarray, jnp.asarray, torch.as_tensor):
        model = Line(make(np.full(2, 3.0, np.float32)), NonDifferentiable(make(np.ones(2, np.float32))))
        value, gradients = value_and_grad(Line.at)(model, number)
        check(value, 2.0 * 2 * (3.0 * number + 1.0), f"value, {make.__module__}")
        check(gradients.slope, [2.0 * number] * 2, f"gradient, {make.__module__}")
        assert gradients.offset is None
        assert gradients.order is None
        assert combine(*partition(model)).order == 2
        assert trainable(model).offset is None


class Opaque:
    """An object that nobody flattens."""


def questions(_number):
    for value in (1.0, "text", None, Opaque(), [Opaque(), 2.0], np.ones(2), jnp.ones(2), torch.ones(2)):
        assert within_gradient(value) is False
        assert "False" in explain(value)
    held = np.empty(2, dtype=object)
    held[:] = [torch.ones(1, requires_grad=True)], 1.0
    assert within_gradient(held) is True
    assert within_gradient(non_differentiable(held)) is False
    label = NonDifferentiable(torch.ones(1, requires_grad=True))
    assert within_gradient(label) is False
    assert within_gradient(label + 1.0) is False


def warm_up():
    """Use the forward mode once: PyTorch scripts its formulas then, and CPython parses in one thread at a time."""
    torch_forward(1)


STEPS = (*light.STEPS, jax_answers, jax_compiles, torch_forward, structures, questions)
# Seconds each.
SLOW = (torch_compiles,)
