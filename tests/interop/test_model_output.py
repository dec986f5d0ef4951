"""The outputs of transformers: dataclasses that are ordered dicts too, registered with PyTorch's trees."""

from collections import OrderedDict
from dataclasses import dataclass

import pytest
import torch
from torch.utils import _pytree

from adprotocol import cond, grad, non_differentiable, prevent_gradient, value_and_grad, within_gradient
from adprotocol.errors import GradientPreventedError


class ModelOutput(OrderedDict):
    """As in transformers, cut down."""

    def __init_subclass__(cls):
        _pytree.register_pytree_node(
            cls,
            lambda output: (list(output.values()), list(output.keys())),
            lambda values, keys: cls(**dict(zip(keys, values, strict=True))),
            serialized_type_name=f"{cls.__module__}.{cls.__qualname__}",
        )

    def __post_init__(self):
        for name in self.__dataclass_fields__:
            if getattr(self, name) is not None:
                OrderedDict.__setitem__(self, name, getattr(self, name))


@dataclass
class Output(ModelOutput):
    loss: object = None
    logits: object = None
    hidden: object = None


X = torch.tensor([2.0, 3.0])


def test_questions_and_constants():
    tracked = Output(loss=X.clone().requires_grad_(), hidden=(X, X))
    assert within_gradient(tracked) is True
    assert within_gradient(Output(loss=X)) is False
    constant = non_differentiable(tracked)
    assert type(constant) is Output
    assert within_gradient(constant) is False
    assert constant["loss"].tolist() == constant.loss.tolist() == [2.0, 3.0]
    assert constant.logits is None
    assert len(constant.hidden) == 2
    with pytest.raises(GradientPreventedError):
        prevent_gradient(tracked, "no")


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_as_auxiliary_output(mode):
    with mode():
        (value, aux), slope = value_and_grad(lambda x: ((x**2).sum(), Output(loss=x, hidden=(x * 2.0,))), has_aux=True)(
            X
        )
    assert (value.item(), slope.tolist()) == (13.0, [4.0, 6.0])
    assert aux.loss.tolist() == [2.0, 3.0]
    assert not aux.hidden[0].requires_grad


def test_inside_vmap():
    found = torch.func.vmap(lambda p: cond(p > 2.0, lambda p: Output(loss=p), lambda p: Output(loss=2.0 * p), p))(X)
    assert found["loss"].tolist() == [4.0, 3.0]


def test_as_the_argument():
    slope = grad(lambda output: (output.loss * output["logits"]).sum())(Output(loss=X, logits=2.0 * X))
    assert type(slope) is Output
    assert slope.loss.tolist() == [4.0, 6.0]
    assert slope["logits"].tolist() == [2.0, 3.0]


def test_in_a_graph():
    compiled = torch.compile(lambda x: non_differentiable(Output(loss=x)).loss * x, backend="eager", fullgraph=True)
    x = X.clone().requires_grad_()
    assert torch.autograd.grad(compiled(x).sum(), x)[0].tolist() == [2.0, 3.0]
