"""What a thread does in one step, compilers included; a wrong result is an AssertionError.

Two locks stand for what PyTorch itself allows in one thread at a time: its forward mode
has one level for the whole process, and Dynamo compiles in one thread. For autograd only
`adprotocol.grad` is used: its own ``grad`` counts the traces of all threads together.
"""

import contextlib
import dataclasses
import threading
from typing import Any

import autograd.numpy as anp
import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.autograd import forward_ad

from adprotocol import (
    NonDifferentiable,
    combine,
    cond,
    explain,
    grad,
    non_differentiable,
    partition,
    plugins,
    register_trainable,
    trainable,
    value_and_grad,
    within_gradient,
)
from adprotocol.errors import ConcurrencyError
from adprotocol.hookspecs import hookimpl


def check(got, want, what=""):
    """Compare numbers or arrays to the digits of float32."""
    got = got.detach() if hasattr(got, "detach") else got
    if not np.allclose(np.asarray(got), want, rtol=1e-4, atol=1e-6):
        msg = f"{what}: {got} instead of {want}"
        raise AssertionError(msg)


def layer(x):
    """Return 3 x while x is differentiated, and 5 x while it is not."""
    return cond(within_gradient(x), lambda x: x * 3.0, lambda x: x * 5.0, x)


@dataclasses.dataclass
class Line:
    """A model with one of each: an array that is trained, a label, and an integer."""

    slope: Any
    offset: Any
    order: int = 2

    def at(self, x):
        return (self.slope * x + self.offset).sum() * self.order


def torch_tape(number):
    x = torch.tensor([float(number)], requires_grad=True)
    check(torch.autograd.grad(layer(x).sum(), x)[0], [3.0], "tape")
    with torch.no_grad():
        check(layer(x), [5.0 * number], "no_grad")
    check(layer(x.detach()), [5.0 * number], "detached")


def torch_functions(number):
    x = torch.tensor([float(number), 1.0])
    check(torch.func.grad(lambda x: layer(x).sum())(x), [3.0, 3.0], "func.grad")
    check(torch.func.vmap(torch.func.grad(layer))(x), [3.0, 3.0], "vmap of func.grad")
    check(torch.func.vmap(layer)(x), [5.0 * number, 5.0], "vmap")


SHARED = torch.nn.Linear(2, 1)


def torch_modules(number):
    x = torch.tensor([float(number), 1.0])
    # Refused, as declared, while another thread is in the forward mode, whose level is that of the whole process.
    with contextlib.suppress(ConcurrencyError):
        _, gradients = value_and_grad(lambda m: m(x).sum())(SHARED)
        check(gradients["weight"], [[number, 1.0]], "shared module")
    own = torch.nn.Linear(2, 1)
    _, gradients = value_and_grad(lambda m: m(x).sum() ** 1, where="bias")(own)
    check(gradients["bias"], [1.0], "own module")
    assert gradients["weight"] is None
    assert all(parameter.requires_grad for parameter in own.parameters())


def autograd_gradients(number):
    check(grad(lambda x: anp.sin(x) * x)(float(number)), np.cos(number) * number + np.sin(number), "grad")
    outer = grad(lambda x: x * grad(lambda y: grad(lambda z: x * y * z**2)(float(number)))(1.0))
    check(outer(3.0), 12.0 * number, "grad of grad of grad")  # 2 x^2 number
    check(grad(lambda x: layer(x).sum())(np.full(2, 1.0 * number)), [3.0, 3.0], "layer")


def new_classes(_number):
    """Meet classes for the first time: a dataclass becomes a node, a declared one knows its fields."""
    fields = [("a", Any), ("b", Any)]
    cls = dataclasses.make_dataclass("New", fields)
    register_trainable(cls, ["a"])
    x = torch.ones(1, requires_grad=True)
    assert within_gradient(cls(1.0, x)) is True
    assert within_gradient(cls(1.0, x.detach())) is False
    assert trainable(cls(x, x)).b is None
    gradients = grad(lambda m: (m.a * m.b).sum())(cls(torch.full((1,), 2.0), torch.full((1,), 3.0)))
    check(gradients.a, [3.0], "new class")


def registrations(number):
    """Register a plugin for a class of this step, ask it, and unregister it."""

    class Box:
        pass

    class Boxes:
        @hookimpl
        def array_types(self):
            return (Box,)

        @hookimpl
        def within_gradient(self, value):
            return value.answer

        @hookimpl
        def non_differentiable(self, value):
            return number

        @hookimpl
        def cond(self, pred, true_fun, false_fun, operands):
            return (true_fun if pred.answer else false_fun)(*operands)

    box = Box()
    plugin = plugins.register(Boxes(), "stress")
    try:
        for box.answer in (True, False):
            assert within_gradient(box) is box.answer
            assert within_gradient({"box": [box]}, 1.0) is box.answer
            assert cond(box, lambda: 1, lambda: 2) == (1 if box.answer else 2)
        assert non_differentiable(box) == number
    finally:
        plugins.unregister(plugin.name)
    box.answer = True
    assert within_gradient(box) is False  # an object like any other


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
    tracked = torch.ones(1, requires_grad=True)
    for value in (1.0, "text", None, Opaque(), [Opaque(), 2.0], np.ones(2), jnp.ones(2), torch.ones(2)):
        assert within_gradient(value) is False
        assert "False" in explain(value)
    assert within_gradient({"x": [tracked]}, torch.ones(1)) is True
    label = NonDifferentiable(tracked)
    assert within_gradient(label) is False
    assert within_gradient(label + 1.0) is False


STEPS = (
    torch_tape,
    torch_functions,
    torch_modules,
    torch_forward,
    autograd_gradients,
    new_classes,
    registrations,
    jax_answers,
    jax_compiles,
    structures,
    questions,
)
# Seconds each.
SLOW = (torch_compiles,)
