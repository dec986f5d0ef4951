"""PyTorch for generated programs: what a program calls by name. Each transformation maps scalar to scalar."""

import concurrent.futures
import contextlib
from functools import cached_property

import torch
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint as torch_checkpoint

from adprotocol import combine, within_gradient
from adprotocol_torch.conformance import without_guard_statistics
from fuzz.structures import by_pull, by_push, by_rows, packed, unpacked  # noqa: F401  (what programs call)

KINDS = {
    "grad": "func",
    "vjp": "func",
    "jacrev": "func",
    "backward": "tape",
    "accumulate": "cut",
    "jvp": "forward",
    "dual_level": "forward",
    "jacfwd": "tangent",
    "hessian": "tangent func",
    "vmap": "plain",
    "functional_call": "plain",
    "autocast": "plain",
    "checkpoint": "plain",
    "reentrant": "reentrant",
    "function": "hidden",
    "no_grad": "no_grad",
    "inference": "no_grad",
    "enable_grad": "enable_grad",
    "thread": "enable_grad",
}
OPERATIONS = ("inplace", "backward_only", "part")
GRADIENTS = ("module", "frozen module", "module run again", "stand-in of a module", "module under no_grad")
_FUNC, _FORWARD = ("grad", "vjp", "jacrev", "hessian"), ("jvp", "dual_level", "jacfwd", "hessian")
_TAPE = ("backward", "accumulate")
_AGAIN = ("checkpoint", "reentrant")
# What belongs to one thread, or sees all tensors of a block as constants.
_ALONE = ("thread", "inference")
_IN_FUNC = (*_TAPE, *_AGAIN, *_ALONE)
# What PyTorch refuses inside a transformation. A checkpoint runs again in the backward pass, when the level of
# forward mode or of vmap is over, and the answers are others: declared as run-twice.
REFUSED = {
    **dict.fromkeys(_FUNC, _IN_FUNC),
    **dict.fromkeys(("jvp", "jacfwd", "hessian"), (*_FORWARD, *_IN_FUNC, "function", "backward_only")),
    "dual_level": (*_FORWARD, *_AGAIN, *_ALONE, "function", "backward_only"),
    "vmap": (*_IN_FUNC, "dual_level"),
    "checkpoint": _FUNC,
    # It is for a plain backward alone.
    "reentrant": ("engine", "dual_level", *_FUNC, *_TAPE, *_ALONE),
    "backward": ("reentrant", "inference"),
    "accumulate": ("inference",),
    "function": (*_AGAIN, *_ALONE, "dual_level"),
    "inference": ("engine", *_FUNC, *_FORWARD, *_TAPE, *_AGAIN, "function", "enable_grad", "thread"),
    "engine": ("no_grad", "reentrant", *_ALONE),
}

# Compiled programs: a part of the transformations, and the compiler around all.
_BACKENDS = ("compiled_eager", "compiled_aot", "compiled_inductor")
_TRACED = ("grad", "vjp", "jacrev", "jvp", "jacfwd", "hessian", "vmap", "functional_call", "no_grad", "enable_grad")
COMPILED_KINDS = {**{name: KINDS[name] for name in _TRACED}, **dict.fromkeys(_BACKENDS, "plain"), "accumulate": "cut"}
COMPILED_REFUSED = {
    **{name: REFUSED.get(name, ()) for name in _TRACED},
    # Dynamo leaves its graph there, and compiles what is inside with the wrappers of torch.func, which it cannot read.
    **dict.fromkeys(_BACKENDS, ("accumulate", "compiled_inductor")),
    "accumulate": (),
    "engine": ("no_grad",),
}
# Dynamo refuses the others in derivatives.
COMPILED_OPERATIONS = ("inplace",)
# Of Dynamo, where a graph breaks inside of two derivatives of torch.func; code without this package meets it too.
COMPILED_ERRORS = ("AssertionError: False != True",)
COMPILED_AROUND = (
    *(("compiled_eager",),) * 10,
    *(("compiled_aot",),) * 6,
    *(("accumulate", "compiled_aot"),) * 3,
    ("compiled_inductor",),
)

without_guard_statistics()
precision = contextlib.nullcontext
grad, jacfwd, jacrev = torch.func.grad, torch.func.jacfwd, torch.func.jacrev
hessian = torch.func.hessian
sin = torch.sin


class _Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(const(1.25))
        self.frozen = torch.nn.Parameter(const(0.5), requires_grad=False)
        self.register_buffer("offset", const(3.0))

    def forward(self, x):
        return self.weight * x + self.frozen * self.offset


class _Holder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(const(1.0))

    def forward(self, f):
        return f(self.weight)


class _Keeping(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(const(1.0))

    @cached_property
    def doubled(self):
        return 2.0 * self.weight

    def forward(self, x):
        return 0.5 * self.doubled * x + 1.5


def clear():
    """Drop what was compiled."""
    torch.compiler.reset()


def stacked(one, other):
    return torch.stack([one, other])


def boxed(x):
    return [x]


def inplace(x, number):
    y = x * 1.0
    y.mul_(number)
    return y


class _BackwardOnly(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.sin(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, cotangent):
        (x,) = ctx.saved_tensors
        return torch.cos(x) * cotangent


def backward_only(x):
    return _BackwardOnly.apply(x)


def const(number):
    return torch.tensor(number, dtype=torch.float64)


def stop(x):
    return x.detach()


def autocast(f):
    def cast(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return f(x)

    return cast


def run_again(net, x):
    """Call a module in a checkpoint, which an outer derivative runs again, where PyTorch allows one."""
    return net(x) if _only_by_functorch() else torch_checkpoint(net, x, use_reentrant=False)


def stand_in(weight):
    """Return a stand-in for a module that keeps what it has computed."""
    return combine({"weight": weight}, like=_KEEPING)


def quietly(f):
    """Call without gradients."""
    return torch.no_grad()(f)


def evaluated(net):
    """Return 1, if nothing of a module is differentiated."""
    return 1.0 if within_gradient(net) is False else float("nan")


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


def enable_grad(f):
    def within(x):
        with torch.enable_grad():
            return f(x)

    return within


def inference(f):
    def without(x):
        with torch.inference_mode():
            y = f(x)
        return y.clone()

    return without


def thread(f):
    def elsewhere(x):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            return pool.submit(f, x).result()

    return elsewhere


def checkpoint(f):
    return lambda x: torch_checkpoint(f, x, use_reentrant=False)


def reentrant(f):
    return lambda x: torch_checkpoint(f, x, use_reentrant=True)


def functional_call(f):
    return lambda x: torch.func.functional_call(_HOLDER, {"weight": x}, (f,))


def function(f):
    class Rule(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return f(x) * 1.0

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, cotangent):
            (x,) = ctx.saved_tensors
            return 0.5 * torch.cos(x) * cotangent

    return Rule.apply


def compiled_eager(f):
    return torch.compile(f, backend="eager")


def compiled_aot(f):
    return torch.compile(f, backend="aot_eager")


def compiled_inductor(f):
    return torch.compile(f, backend="inductor")


def _on_tape(f, x):
    with torch.enable_grad():
        x = x * 1.0
        if not x.requires_grad:
            x.requires_grad_()
        y = f(x)
        gradient = torch.autograd.grad(y, x, create_graph=True, allow_unused=True)[0] if y.requires_grad else None
    return x, y, torch.zeros_like(x) if gradient is None else gradient


def _reaches_others(leaf, value):
    """Return whether a value was computed from leaves besides its own."""
    waiting, seen = [value.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            if getattr(node, "variable", leaf) is not leaf:
                return True
            waiting += [following for following, _ in node.next_functions]
    return False


def backward(f):
    return lambda x: _on_tape(f, x)[2]


def accumulate(f):
    """Return what a plain backward leaves in `grad`: a constant to everybody else."""

    def accumulated(x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = f(x)
            if y.requires_grad:
                y.backward(retain_graph=True)
        return torch.zeros_like(x) if x.grad is None else x.grad

    return accumulated


def _only_by_functorch():
    within = torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0
    return within or torch.compiler.is_compiling()


def native_value_and_grad(f):
    def both(x):
        if not _only_by_functorch():
            leaf, value, gradient = _on_tape(f, x)
            # What nobody else differentiates is a constant: a reentrant checkpoint does nothing for one.
            if leaf.is_leaf and not _reaches_others(leaf, value):
                value, gradient = value.detach(), gradient.detach()
            return value, gradient
        gradient, value = torch.func.grad_and_value(f)(x)
        return value, gradient

    return both


native_value_and_push = native_value_and_grad
module, _HOLDER, _KEEPING = _Module(), _Holder(), _Keeping()
_KEEPING.doubled  # noqa: B018  (it is kept from here on)
