"""PyTorch for generated programs: what a program calls by name. Each transformation maps scalar to scalar."""

import contextlib

import torch
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint as torch_checkpoint

KINDS = {
    "grad": "func",
    "vjp": "func",
    "jacrev": "func",
    "backward": "tape",
    "jvp": "forward",
    "dual_level": "forward",
    "jacfwd": "tangent",
    "vmap": "plain",
    "checkpoint": "plain",
    "no_grad": "no_grad",
}
COMPILED = {name: KINDS[name] for name in ("grad", "vjp", "jacrev", "jvp", "jacfwd", "vmap", "no_grad")}
_FORWARD = ("jvp", "dual_level", "jacfwd")
# What PyTorch refuses inside a transformation. A checkpoint runs again in the backward pass, when the level of
# forward mode or of vmap is over: tests/fuzz/test_fuzz.py has what comes of that.
REFUSED = {
    **dict.fromkeys(("grad", "vjp", "jacrev"), ("backward", "checkpoint")),
    **dict.fromkeys(("jvp", "jacfwd"), (*_FORWARD, "backward", "checkpoint")),
    "dual_level": (*_FORWARD, "checkpoint"),
    "vmap": ("backward", "dual_level", "checkpoint"),
    "checkpoint": ("grad", "vjp", "jacrev"),
}

precision = contextlib.nullcontext
grad, jacfwd, jacrev = torch.func.grad, torch.func.jacfwd, torch.func.jacrev
sin = torch.sin


def const(number):
    return torch.tensor(number, dtype=torch.float64)


def stop(x):
    return x.detach()


def vjp(f):
    def pulled(x):
        y, pull = torch.func.vjp(f, x)
        return pull(torch.ones_like(y))[0] + 0.25 * y

    return pulled


def jvp(f):
    def pushed(x):
        y, tangent = torch.func.jvp(f, (x,), (torch.ones_like(x),))
        return tangent + 0.25 * y

    return pushed


def dual_level(f):
    def pushed(x):
        with forward_ad.dual_level():
            y, tangent = forward_ad.unpack_dual(f(forward_ad.make_dual(x, torch.ones_like(x))))
            return 0.25 * y if tangent is None else tangent + 0.25 * y

    return pushed


def vmap(f):
    return lambda x: torch.func.vmap(f)(x * torch.tensor([1.0, 0.5], dtype=x.dtype)).sum()


def no_grad(f):
    def without(x):
        with torch.no_grad():
            return f(x)

    return without


def checkpoint(f):
    return lambda x: torch_checkpoint(f, x, use_reentrant=False)


def _on_tape(f, x):
    with torch.enable_grad():
        x = x * 1.0
        if not x.requires_grad:
            x.requires_grad_()
        y = f(x)
        gradient = torch.autograd.grad(y, x, create_graph=True, allow_unused=True)[0] if y.requires_grad else None
    return y, torch.zeros_like(x) if gradient is None else gradient


def backward(f):
    return lambda x: _on_tape(f, x)[1]


def _only_by_functorch():
    within = torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0
    return within or torch.compiler.is_compiling()


def native_value_and_grad(f):
    def both(x):
        if not _only_by_functorch():
            return _on_tape(f, x)
        gradient, value = torch.func.grad_and_value(f)(x)
        return value, gradient

    return both
