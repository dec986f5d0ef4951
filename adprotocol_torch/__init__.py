"""The adprotocol plugin for PyTorch: its hooks, each from the module that implements it.

A tensor can be tracked in three ways: in reverse mode (`requires_grad`), in forward
mode (dual numbers, which `no_grad` does not stop), and by torch.func, whose
wrappers hide both. `tracking` checks all three in eager mode; under
``torch.compile`` `dynamo` checks the fake tensors with which Dynamo traces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adprotocol.hookspecs import hookimpl
from adprotocol_torch import checkpoints, dynamo, pytrees
from adprotocol_torch.cond import array_functions, cond
from adprotocol_torch.custom_rule import custom_rule
from adprotocol_torch.gradient import jvp, vjp, vmap
from adprotocol_torch.host_call import host_call
from adprotocol_torch.modules import views
from adprotocol_torch.parameters import freeze, identity, is_recording, trainable
from adprotocol_torch.pytrees import label_protocol, tree_library
from adprotocol_torch.tensors import array_types, divergences, non_differentiable
from adprotocol_torch.tracking import any_within_gradient, explain, is_concrete, within_gradient

if TYPE_CHECKING:
    from adprotocol.conformance import Harness

pytrees.register_label()
checkpoints.register()
dynamo.mark()


@hookimpl
def harness(device: str | None) -> Harness:
    """Return the conformance harness for PyTorch."""
    from adprotocol_torch.conformance import TorchHarness  # noqa: PLC0415

    return TorchHarness(device)
