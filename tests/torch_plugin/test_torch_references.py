"""Parameters that the function to differentiate reaches otherwise than by its argument."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.autograd import forward_ad

from adprotocol import grad, non_differentiable, trainable, within_gradient
from adprotocol.errors import NothingTrainableError, UndecidableError


@pytest.fixture
def net():
    module = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(module.weight, 3.0)
    return module


@pytest.fixture
def decayed(net):
    """w + w^2 with the second term over a list: 1 + 2 * 3 = 7, second derivative 2."""
    parameters = list(net.parameters())
    return lambda module: module(torch.ones(1, 1)).sum() + sum((p**2).sum() for p in parameters)


def test_weight_decay_over_a_list_of_parameters(net, decayed):
    assert grad(decayed)(net)["weight"] == 7.0
    with torch.no_grad():
        assert grad(decayed)(net)["weight"] == 7.0


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_inside_torch_func_a_reference_is_refused(net, decayed, mode):
    with mode(), pytest.raises(UndecidableError, match="another reference than its argument"):
        torch.vmap(lambda c: grad(lambda n: c * decayed(n))(net)["weight"])(torch.ones(2))
    with mode(), forward_ad.dual_level(), pytest.raises(UndecidableError, match="another reference than its argument"):
        grad(decayed)(net)
    with mode(), pytest.raises(UndecidableError, match="another reference than its argument"):
        torch.vmap(lambda c: grad(lambda n: c * grad(decayed)(n)["weight"].sum())(net)["weight"])(torch.ones(2))
    found = torch.vmap(lambda c: grad(lambda n: c * sum((p**2).sum() for p in net.parameters()))(net)["weight"])
    assert found(torch.ones(2)).flatten().tolist() == [6.0, 6.0]  # the module holds what is differentiated


def test_in_a_nested_derivative_a_reference_is_refused(net, decayed):
    def without_gradients(n):
        with torch.no_grad():
            inner = grad(decayed)(n)["weight"]
        return (inner * n.weight).sum()

    for outer in (lambda n: grad(decayed)(n)["weight"].sum(), without_gradients):
        with pytest.raises(UndecidableError, match="another reference than its argument"):
            grad(outer)(net)


def test_where_trains_against_the_flag_at_all_places(net, decayed):
    net.requires_grad_(False)
    held, answers = net.weight, []

    def loss(n):
        answers.append((within_gradient(held), within_gradient(n.weight)))
        return decayed(n)

    assert grad(loss, where="weight")(net)["weight"] == 7.0
    assert grad(lambda held, n: loss(n), where="0")([held], net) == [7.0]
    assert answers == [(True, True)] * 2
    assert not held.requires_grad
    with pytest.raises(UndecidableError, match="another reference"):
        torch.vmap(lambda c: c * grad(loss, where="weight")(net)["weight"])(torch.ones(1))
    assert not held.requires_grad


def test_threads_select_one_parameter_against_its_flag(net):
    net.requires_grad_(False)
    inside, outside = threading.Event(), threading.Event()

    def waits(n):
        inside.set()
        assert outside.wait(60)
        return (n.weight**2).sum()

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(grad(waits, where="weight"), net)
        assert inside.wait(60)
        assert grad(lambda p: (p["w"] ** 2).sum(), where="w")({"w": net.weight})["w"] == 6.0
        assert trainable(net)["weight"] is None
        outside.set()
        assert first.result()["weight"] == 6.0
    assert not net.weight.requires_grad


def test_a_value_computed_before_the_call_is_refused_for_a_parameter():
    p = torch.nn.Parameter(torch.tensor(2.0))
    before = p * 3
    with pytest.raises(UndecidableError, match="computed, before the call"):
        grad(lambda p: before * p)(p)
    assert grad(lambda p: non_differentiable(before) * p)(p) == 6.0
    assert grad(lambda p: 3 * p * p)(p) == 12.0
    before.backward()  # the graph is as it was
    assert p.grad == 3.0


def test_one_module_or_parameter_at_two_arguments_has_the_whole_derivative_at_the_first():
    module = torch.nn.Linear(1, 1, bias=False)
    both = grad(lambda a, b: (a(torch.ones(1, 1)) + 2 * b(torch.ones(1, 1))).sum(), argnums=(0, 1))(module, module)
    assert both == ({"weight": torch.tensor([[3.0]])}, {"weight": None})
    second = grad(lambda a, b: (a(torch.ones(1, 1)) + 2 * b).sum(), argnums=(0, 1))(module, module.weight)
    assert second == ({"weight": torch.tensor([[3.0]])}, None)
    with pytest.raises(NothingTrainableError, match="argument 1"):
        grad(lambda a, b: a(torch.ones(1, 1)).sum() + b, argnums=(0, 1))(module, 1)
