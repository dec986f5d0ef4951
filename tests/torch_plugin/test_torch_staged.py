"""A staged cond, and questions in graphs, where PyTorch alone would be wrong."""

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

from adprotocol import cond, grad, value_and_grad, within_gradient
from adprotocol.errors import UndecidableError

X, W = torch.ones(3), torch.tensor(2.0)


pytestmark = pytest.mark.usefixtures("compiler")


def compiled(fun, backend="eager", *, fullgraph=True):
    return torch.compile(fun, backend=backend, fullgraph=fullgraph)


def test_branches_that_return_integers_and_bools_are_trained():
    one, other = lambda x: (2 * x, 3, torch.tensor(5), x > 0), lambda x: (x**3, 4, torch.tensor(5), x < 0)

    def f(x):
        result, factor, integer, mask = cond(x.sum() > 0, one, other, x)
        return (result * factor).sum() + integer + mask.sum()

    run = compiled(f, "aot_eager")
    for sign, value, slope in ((1.0, 18.0, 6.0), (-1.0, -12.0, 12.0)):
        x = (sign * X).requires_grad_()
        found = run(x)
        assert found == value + 8.0
        assert torch.equal(torch.autograd.grad(found, x)[0], torch.full((3,), slope))
        assert run(sign * X) == found


ARRAY = np.array([2.0, 3.0], np.float32)


@pytest.mark.parametrize(
    ("way", "array"),
    # PyTorch compiles no function that uses an array with negative strides.
    [(way, array) for way in ("aot_eager", "vmap") for array in (ARRAY, ARRAY[0])] + [("vmap", ARRAY[::-1])],
)
def test_a_branch_returns_an_array_of_numpy(way, array):
    stage = torch.vmap if way == "vmap" else lambda f: compiled(f, way)
    times = torch.ones(array.shape)
    one = stage(lambda x: cond(x.sum() > 0, lambda x: array, lambda x: times * x.sum(), x))
    both = stage(lambda x: cond(x.sum() > 0, lambda x: [array], lambda x: [2 * array], x)[0])
    for sign, want, slope in ((1.0, array, 0.0), (-1.0, 2 * array, array.size)):
        x = torch.tensor([sign], requires_grad=True)
        found = one(x)
        assert np.array_equal(found.detach().reshape(array.shape), array if sign > 0 else sign * times)
        assert torch.autograd.grad((found + x.sum()).sum(), x)[0] == slope + array.size
        assert np.array_equal(both(x).reshape(array.shape), want)
        assert both(x).dtype is torch.float32


def test_a_scalar_of_numpy_that_is_a_float_takes_the_dtype_of_the_other_branch():
    found = torch.vmap(lambda x: cond(x > 0, lambda x: np.float64(3.0), lambda x: 2 * x, x))(torch.tensor([1.0, -1.0]))
    assert found.tolist() == [3.0, -2.0]
    assert found.dtype is torch.float32


def test_vmap_of_a_compiled_function():
    run = compiled(lambda x: 3.0 * x if within_gradient(x) else 5.0 * x, fullgraph=False)
    x = torch.ones(2, requires_grad=True)
    assert run(x).tolist() == [3.0, 3.0]
    assert torch.vmap(run)(x).tolist() == [3.0, 3.0]
    assert torch.vmap(run)(x.detach()).tolist() == [5.0, 5.0]
    value, gradient = value_and_grad(lambda x: torch.vmap(run)(x).sum())(torch.ones(2))
    assert (value, gradient.tolist()) == (6.0, [3.0, 3.0])
    whole = compiled(lambda x: 3.0 * x if within_gradient(x) else 5.0 * x)
    with pytest.raises(Exception, match="vmap"):
        torch.vmap(whole)(x)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_nested_reentrant_checkpoints_are_refused(layer, depth):
    def nested(fun, left):
        return fun if left == 0 else nested(lambda x: checkpoint(fun, x, use_reentrant=True), left - 1)

    with pytest.raises(UndecidableError, match="use_reentrant=False"):
        nested(layer, depth)(W.clone().requires_grad_())
    with torch.no_grad():
        assert nested(layer, depth)(W.clone().requires_grad_()) == 10.0


class Branching(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(W.clone())
        self.register_buffer("scale", torch.tensor(3.0))

    def forward(self, x):
        return cond(x.sum() > 0, lambda x: x * self.w, lambda x: x * self.scale, x)


@pytest.mark.parametrize("strict", [True, False])
def test_a_parameter_in_a_branch_is_exported(strict):
    exported = torch.export.export(Branching(), (X,), strict=strict).module()
    assert exported(X).tolist() == [2.0] * 3
    assert exported(-X).tolist() == [-3.0] * 3


def expanded(x, w):
    return cond((x * x).sum() > 0, lambda x: (x * x).sum() ** 0.5, lambda x: 0.0 * x.sum(), x)


def transposed(x, w):
    x = x.reshape(2, 2)
    return cond(x.sum() > 0, lambda x: (x.transpose(0, 1) @ x).sum(), lambda x: (x[0] * w).sum(), x)


def several(x, w):
    return cond(x.sum() > 0, lambda a, b: a.sum() * b, lambda a, b: (a[:2] * a[2:] * b).sum(), x * 2.0, w * 3.0)


@pytest.mark.parametrize("f", [expanded, transposed, several])
def test_branches_whose_gradients_have_other_strides(f):
    run = compiled(f, "aot_eager")
    for point in ([0.0, 0.0, 0.0, 0.0], [3.0, 4.0, 0.0, 1.0]):
        x, w = torch.tensor(point, requires_grad=True), W.clone().requires_grad_()
        value, want = run(x, w), f(x, w)
        assert torch.allclose(value, want)
        found = torch.autograd.grad(value, [x, w], materialize_grads=True)
        for slope, other in zip(found, torch.autograd.grad(want, [x, w], materialize_grads=True), strict=True):
            assert torch.allclose(slope, other)


def of_matrix(function):
    def f(a):
        return cond(torch.linalg.det(a) > 0, lambda a: function(a).sum(), lambda a: a.sum() * 0.0 - 1.0, a)

    return f


MATRICES = [
    lambda a: torch.linalg.slogdet(a)[1],
    torch.linalg.inv,
    torch.linalg.cholesky,
    torch.logdet,
    lambda a: torch.linalg.solve(2.0 * a, torch.ones(2)),
    lambda a: a.inverse(),
]
SINGULAR, REGULAR = torch.tensor([[0.0, 0.0], [0.0, 4.0]]), torch.tensor([[2.0, 0.5], [0.5, 4.0]])


@pytest.mark.parametrize("function", MATRICES)
def test_a_branch_that_is_not_taken_does_not_raise(function):
    f = of_matrix(function)
    both = torch.stack([SINGULAR, REGULAR])
    want = torch.stack([torch.zeros(2, 2), torch.func.grad(lambda a: function(a).sum())(REGULAR)])
    assert torch.allclose(torch.vmap(torch.func.grad(f))(both), want, atol=1e-5)
    assert torch.allclose(torch.stack([grad(f)(a) for a in both]), want, atol=1e-5)


@pytest.mark.parametrize("function", MATRICES[:2])
def test_a_branch_that_is_not_taken_does_not_raise_in_a_graph(function):
    f = of_matrix(function)
    slope = compiled(torch.func.grad(f), "aot_eager")
    assert slope(SINGULAR).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert torch.allclose(slope(REGULAR), torch.func.grad(lambda a: function(a).sum())(REGULAR), atol=1e-5)


def test_an_error_in_a_batched_branch_says_which():
    def checked(x):
        raise ArithmeticError

    with pytest.raises(ArithmeticError) as caught:
        torch.vmap(lambda x: cond(x > 0, lambda x: x, checked, x))(X)
    assert "checked" in caught.value.__notes__[0]
    assert "torch.where(pred, x, safe)" in caught.value.__notes__[0]
