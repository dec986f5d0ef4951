"""Modules of the size that people train: a question, a stand-in, and a gradient of a part."""

import copy

import pytest
import torch
from interleave import call, long_call
from row import compared
from torch import nn

from adprotocol import combine, partition, value_and_grad, within_gradient

SECONDS = 3.0


def encoder(layers):
    """Return a transformer's encoder in evaluation mode; four layers of it have 51 modules and more."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval()


def by_hand(module):
    return any(parameter.requires_grad for parameter in module.parameters())


@pytest.mark.parametrize("is_frozen", [False, True])
def test_question(side_by_side, record, is_frozen):
    module = encoder(5)
    assert len(list(module.modules())) > 50
    module.requires_grad_(not is_frozen)
    assert within_gradient(module) is by_hand(module) is not is_frozen
    found = side_by_side(call(within_gradient, module, unrolled=1), call(by_hand, module, unrolled=1))
    what = f"within_gradient, an encoder of {len(list(module.modules()))} modules{', all frozen' if is_frozen else ''}"
    record(compared(what, "any(p.requires_grad for p in parameters())", found, at_most=2.0))


def test_stand_in(side_by_side, record):
    module = encoder(5)
    parts = partition(module)
    x = torch.ones(1, 4, 64)
    torch.testing.assert_close(combine(*parts, like=module)(x), module(x))
    found = side_by_side(
        long_call(lambda: combine(*parts, like=module)), long_call(copy.deepcopy, module), seconds=SECONDS
    )
    record(compared("combine(like=module), an encoder of five layers", "copy.deepcopy", found, at_most=1.5))


@pytest.mark.parametrize("layers", [2, 12])
def test_part_of_an_encoder(side_by_side, record, layers):
    ours_module, module, x = encoder(layers), encoder(layers), torch.ones(8, 16, 64)
    trained = dict(module.layers[layers - 1].named_parameters(prefix=f"layers.{layers - 1}"))
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in trained)

    def loss(module, x):
        return module(x).pow(2).mean()

    def theirs(module, x):
        value = loss(module, x)
        return value.detach(), dict(zip(trained, torch.autograd.grad(value, list(trained.values())), strict=True))

    ours = value_and_grad(loss, where=f"layers.{layers - 1}.*")
    (_, gradient), (_, expected) = ours(ours_module, x), theirs(module, x)
    torch.testing.assert_close({name: gradient[name] for name in expected}, expected)
    found = side_by_side(long_call(ours, ours_module, x), long_call(theirs, module, x), seconds=SECONDS)
    what = f"value_and_grad(where=…) of the last layer of an encoder of {layers}"
    reason = "reads the module and replaces what is frozen in each call, for it may have changed"
    record(compared(what, "the flags set once, autograd.grad", found, at_most=1.5, reason=reason))
