"""Metadata of wrapped functions, without the marks of compilers."""

import functools

import pytest
import torch

import adprotocol


@pytest.fixture(params=["non_differentiable", "value_and_grad", "grad"])
def hook(request):
    return getattr(adprotocol, request.param)


def test_metadata_is_kept(hook):
    def loss(x: float) -> float:
        """Return x."""
        return x

    loss.unit = "ppm"
    wrapped = hook(loss)
    assert (wrapped.__name__, wrapped.__doc__, wrapped.unit) == ("loss", "Return x.", "ppm")
    assert wrapped.__wrapped__ is loss


def test_a_callable_object_needs_no_name_and_keeps_its_state(hook):
    wrapped = hook(functools.partial(max, 1.0))
    assert not hasattr(wrapped, "func")
    module = torch.nn.Linear(1, 1)
    assert "_parameters" not in vars(adprotocol.grad(module))


def test_the_constant_of_a_compiled_function_is_constant_in_a_graph():
    twice = adprotocol.non_differentiable(torch.compile(lambda x: x * 2.0, backend="eager"))
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    total = torch.compile(lambda x: (twice(x) * x).sum(), backend="eager")(x)
    (gradient,) = torch.autograd.grad(total, x)
    assert gradient.tolist() == [2.0, 4.0]


def test_the_gradient_of_a_compiled_function_can_be_compiled():
    cube = torch.compile(lambda x: (x**3).sum(), backend="eager")
    gradient = torch.compile(adprotocol.grad(cube), backend="eager")(torch.tensor([1.0, 2.0]))
    assert gradient.tolist() == [3.0, 12.0]
