"""HIPS autograd for generated programs: what a program calls by name. Each transformation maps scalar to scalar."""

import contextlib

import autograd
import autograd.numpy as anp
from autograd.differential_operators import make_jvp
from autograd.tracer import getval

KINDS = {
    "grad": "reverse",
    "elementwise_grad": "reverse",
    "vjp": "reverse",
    "jvp": "forward",
}
REFUSED = {}

precision = contextlib.nullcontext
grad, elementwise_grad = autograd.grad, autograd.elementwise_grad
sin, stop, native_value_and_grad = anp.sin, getval, autograd.value_and_grad


def const(number):
    return anp.float64(number)


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
