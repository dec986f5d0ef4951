"""The adprotocol plugin for PyTorch: its hooks, each from the module that implements it.

A tensor can be tracked in three ways: in reverse mode (`requires_grad`), in forward
mode (dual numbers, which `no_grad` does not stop), and by torch.func, whose
wrappers hide both. `tracking` checks all three in eager mode; under
``torch.compile`` `dynamo` checks the fake tensors with which Dynamo traces.
"""

from adprotocol_torch import dynamo, label
from adprotocol_torch.cond import cond
from adprotocol_torch.declared import divergences, harness
from adprotocol_torch.gradient import value_and_grad
from adprotocol_torch.label import label_protocol
from adprotocol_torch.modules import view, view_types
from adprotocol_torch.node import tree_node
from adprotocol_torch.parameters import freeze, identity
from adprotocol_torch.tensors import array_types, non_differentiable, trainable
from adprotocol_torch.tracking import explain, within_gradient

__all__ = [
    "array_types",
    "cond",
    "divergences",
    "explain",
    "freeze",
    "harness",
    "identity",
    "label_protocol",
    "non_differentiable",
    "trainable",
    "tree_node",
    "value_and_grad",
    "view",
    "view_types",
    "within_gradient",
]

label.register()
dynamo.mark()
