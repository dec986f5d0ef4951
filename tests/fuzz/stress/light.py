"""What a thread does in one step, without JAX, so that the process may fork; a wrong result is an AssertionError.

For autograd only `adprotocol.grad` is used: its own ``grad`` counts the traces of all
threads together.
"""

import contextlib
import dataclasses
from typing import Any

import autograd.numpy as anp
import numpy as np
import torch

from adprotocol import (
    cond,
    grad,
    non_differentiable,
    plugins,
    register_trainable,
    trainable,
    value_and_grad,
    within_gradient,
)
from adprotocol.errors import ConcurrencyError
from adprotocol.hookspecs import hookimpl
from fuzz.stress.model import check, layer


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


TRACKED, PLAIN = torch.ones(1, requires_grad=True), torch.ones(1)


def torch_questions(_number):
    assert within_gradient({"x": [TRACKED]}, PLAIN) is True
    assert within_gradient({"x": [PLAIN]}, 1.0) is False


# What may be under way in a thread when another one forks: nothing that holds a lock of PyTorch's own.
AT_FORK = (autograd_gradients, registrations, torch_questions)
STEPS = (torch_tape, torch_functions, torch_modules, torch_questions, autograd_gradients, new_classes, registrations)
