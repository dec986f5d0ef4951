"""Tensors that only a hook or a custom ``backward`` computes with: PyTorch's graph does not show them."""

import operator

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from adprotocol import grad, non_differentiable
from adprotocol.errors import UndecidableError

TWO, THREE = torch.tensor(2.0), torch.tensor(3.0)


def scaled_by_a_hook(x, factor):
    y = x * 1.0
    y.register_hook(lambda g: g * factor)
    return y**2


def scaled_by_a_rule(x, factor):
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(_ctx, x):
            return x * 1.0

        @staticmethod
        def backward(_ctx, g):
            return g * factor

    return Scaled.apply(x) ** 2


@pytest.mark.parametrize("scaled", [scaled_by_a_hook, scaled_by_a_rule])
@pytest.mark.parametrize("differentiate", [grad, torch.func.grad])
def test_a_tracked_factor_in_the_backward_pass_is_refused(scaled, differentiate):
    if differentiate is torch.func.grad:
        factor = THREE.clone().requires_grad_()
        with pytest.raises(UndecidableError, match="has_aux=True"):
            grad(lambda x: scaled(x, factor))(TWO)
    else:
        with pytest.raises(UndecidableError, match="has_aux=True"):
            grad(lambda factor: grad(lambda x: scaled(x, factor))(TWO))(THREE)


@pytest.mark.parametrize("scaled", [scaled_by_a_hook, scaled_by_a_rule])
def test_the_remedy(scaled):
    def inner(factor):
        return grad(lambda x: (scaled(x, factor), factor), has_aux=True)(TWO)[0]

    assert inner(THREE) == 12.0
    assert grad(inner)(THREE) == 4.0


@pytest.mark.parametrize("scaled", [scaled_by_a_hook, scaled_by_a_rule])
def test_constants_and_what_is_differentiated_are_no_such_tensors(scaled):
    factor = THREE.clone().requires_grad_()
    assert grad(lambda x: scaled(x, non_differentiable(factor)))(TWO) == 12.0
    assert grad(lambda x: scaled(x, factor.detach()))(TWO) == 12.0
    assert grad(lambda x: scaled(x, THREE))(TWO) == 12.0
    assert grad(lambda x: scaled(x, x))(TWO) == 8.0
    with torch.no_grad():
        assert grad(lambda x: scaled(x, factor))(TWO) == 12.0


@pytest.mark.parametrize(
    "scaled",
    [
        lambda g, factor: torch.stack([g, factor]).prod(),
        lambda g, factor: torch.mul(g, other=factor),
        lambda g, factor: torch.zeros(1).index_put((torch.tensor([0]),), factor)[0] * g,
        lambda g, factor: filled(torch.zeros(1), factor)[0] * g,
        lambda g, factor: factor[None].unbind()[0] * g,
    ],
    ids=["in a list", "by keyword", "as a value", "assigned", "unbound"],
)
def test_a_tracked_factor_is_found_among_all_arguments(scaled):
    def loss(x, factor):
        y = x * 1.0
        y.register_hook(lambda g: scaled(g, factor))
        return y**2

    with pytest.raises(UndecidableError, match="tensor hook"):
        grad(lambda factor: grad(loss)(TWO, factor))(THREE)
    assert grad(loss)(TWO, THREE) == 12.0


def filled(vector, value):
    vector[0] = value
    return vector


VIEWS = {name: operator.attrgetter(name) for name in ("T", "mT", "H", "mH", "real", "imag")}
VIEWS |= {"unbind": lambda x: x.unbind()[0], "chunk": lambda x: x.chunk(2)[1]}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_view_belongs_to_what_it_is_a_view_of(view):
    matrix = torch.ones(2, 2, dtype=torch.complex64)
    hidden = matrix.clone().requires_grad_()

    def loss(x, is_hidden):
        y = x * 1.0
        y.register_hook(lambda g: g * 2 + view(hidden if is_hidden else x) * 0)
        return y.abs().sum()

    assert torch.equal(grad(loss)(matrix, is_hidden=False), 2 * matrix)
    with pytest.raises(UndecidableError, match="tensor hook"):
        grad(loss)(matrix, is_hidden=True)


def test_saved_tensors_and_a_part_that_is_run_again_are_no_such_tensors():
    teacher = torch.tensor(5.0, requires_grad=True)

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * x**2 * g

    def part(x):
        with torch.no_grad():
            factor = teacher * 1.0
        return Cube.apply(x * 1.0) * factor

    assert grad(lambda x: Cube.apply(x * 1.0))(TWO) == 12.0
    assert grad(lambda x: checkpoint(part, x, use_reentrant=False))(TWO) == 60.0


@pytest.mark.parametrize("stop", [torch.Tensor.detach, torch.detach, lambda factor: factor.data], ids=range(3))
def test_what_the_backward_pass_itself_makes_constant_is_no_such_tensor(stop):
    factor = THREE.clone().requires_grad_()

    def f(x):
        y = x * 1.0
        y.register_hook(lambda g: g * stop(factor))
        return y**2

    assert grad(f)(TWO) == 12.0


class Implicit(torch.autograd.Function):
    """Differentiates on leaves of its own, as adjoint methods do."""

    make = staticmethod(lambda x: x.detach().requires_grad_())

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            y = Implicit.make(x)
            return torch.autograd.grad(y.sin(), y, g)[0]


def by_assignment(x):
    y = x.detach()
    y.requires_grad = True
    return y


LEAVES = {
    "requires_grad_": lambda x: x.detach().requires_grad_(),
    "assignment": by_assignment,
    "factory": lambda x: torch.tensor(x.tolist(), requires_grad=True),
    "with a step between": lambda x: torch.zeros_like(x, requires_grad=True) * 0.0 + x.detach().requires_grad_() * 1.0,
}


@pytest.mark.parametrize("make", LEAVES.values(), ids=LEAVES)
def test_a_backward_with_leaves_of_its_own_hides_nothing(monkeypatch, make):
    monkeypatch.setattr(Implicit, "make", staticmethod(make))
    net = torch.nn.Linear(1, 1)
    f = lambda n: Implicit.apply(n(torch.ones(1, 1))).sum()
    assert torch.equal(grad(f)(net)["weight"], torch.autograd.grad(f(net), net.weight)[0])


def test_a_leaf_of_others_is_hidden_all_the_same(monkeypatch):
    other = torch.tensor(2.0, requires_grad=True)
    monkeypatch.setattr(Implicit, "make", staticmethod(lambda x: x.detach().requires_grad_() * other))
    with pytest.raises(UndecidableError, match="hook or the backward"):
        grad(Implicit.apply)(torch.tensor(1.0))
