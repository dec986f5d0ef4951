"""`within_gradient` beside the same question put through pluggy's hook call."""

import autograd.tracer
import jax
import pluggy
import pytest
import torch
from interleave import call
from row import compared

from adprotocol import within_gradient

hookspec = pluggy.HookspecMarker("bench")
hookimpl = pluggy.HookimplMarker("bench")


class Specification:
    @hookspec(firstresult=True)
    def within_gradient(self, value):
        """Return whether a derivative is propagated through `value`; None for another framework's."""


class Torch:
    @hookimpl
    def within_gradient(self, value):
        return value.requires_grad and torch.is_grad_enabled() if isinstance(value, torch.Tensor) else None


class Jax:
    @hookimpl
    def within_gradient(self, value):
        return isinstance(value, jax.core.Tracer) if isinstance(value, jax.Array) else None


class Autograd:
    @hookimpl
    def within_gradient(self, value):
        return True if isinstance(value, autograd.tracer.Box) else None


@pytest.mark.parametrize(
    ("what", "make", "answer"),
    [
        ("torch tensor that requires grad", lambda: torch.ones(3, requires_grad=True), True),
        ("concrete jax.Array", lambda: jax.numpy.ones(3), False),
        ("float", lambda: 1.0, None),
    ],
)
def test_hook_call(side_by_side, record, what, make, answer):
    manager = pluggy.PluginManager("bench")
    manager.add_hookspecs(Specification)
    for plugin in (Autograd, Jax, Torch):
        manager.register(plugin())
    x = make()

    def through_pluggy(value):
        return manager.hook.within_gradient(value=value)

    assert through_pluggy(x) is answer
    assert within_gradient(x) is bool(answer)
    found = side_by_side(call(within_gradient, x), call(through_pluggy, x))
    record(compared(f"within_gradient, {what}", "pluggy hook call, 3 plugins", found, at_least=5))
