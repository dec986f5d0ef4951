"""HIPS autograd for generated programs: what a program calls by name. Each transformation maps scalar to scalar."""

import contextlib

import autograd
import autograd.extend
import autograd.numpy as anp
from autograd import builtins
from autograd.differential_operators import make_jvp
from autograd.tracer import getval

from fuzz.structures import by_pull, by_push, by_rows, packed, unpacked  # noqa: F401  (what programs call)

KINDS = {
    "grad": "reverse",
    "elementwise_grad": "reverse",
    "jacobian": "reverse",
    "hessian": "reverse reverse",
    "vjp": "reverse",
    "with_value": "forward",
    "of_dict": "reverse",
    "of_list": "reverse",
    "of_tuple": "reverse",
    "jvp": "forward",
    # A primitive: what it returns is tracked wherever its argument is.
    "checkpoint": "primitive",
}
OPERATIONS = ("backward_only",)
# The first pass of a checkpoint shows no mark, as is declared; and it has no rule for forward mode.
REFUSED = {"checkpoint": ("question", "jvp"), "jvp": ("checkpoint", "backward_only"), "engine": ()}

precision = contextlib.nullcontext
grad, elementwise_grad, jacobian, hessian = (
    autograd.grad,
    autograd.elementwise_grad,
    autograd.jacobian,
    autograd.hessian,
)
checkpoint = autograd.checkpoint
sin, stop, native_value_and_grad = anp.sin, getval, autograd.value_and_grad
native_value_and_push = native_value_and_grad
backward_only = autograd.extend.primitive(anp.sin)
autograd.extend.defvjp(backward_only, lambda _, x: lambda g: g * anp.cos(x))


def const(number):
    return anp.float64(number)


def stacked(one, other):
    return anp.array([one, other])


def boxed(x):
    """Put a value into a container of autograd's own, a box where the value is one."""
    return builtins.tuple((1.0, builtins.list([x])))


def vjp(f):
    def pulled(x):
        pull, y = autograd.make_vjp(f)(x)
        return pull(1.0) + 0.25 * y

    return pulled


def jvp(f):
    def pushed(x):
        y, tangent = make_jvp(f)(x)(1.0)
        return tangent + 0.25 * y

    return pushed


def with_value(f):
    def both(x):
        y, gradient = autograd.value_and_grad(f)(x)
        return gradient + 0.25 * y

    return both


def of_dict(f):
    def gradient(x):
        found = autograd.grad(lambda d: f(d["a"] * d["b"]))({"a": x, "b": 0.5})
        return found["a"] + 0.25 * found["b"]

    return gradient


def of_list(f):
    return lambda x: sum(autograd.grad(lambda d: f(d[0] * d[1]))([x, 0.5]))


def of_tuple(f):
    return lambda x: sum(autograd.grad(lambda d: f(d[0] + d[1]))((x, 0.5)))
