"""NonDifferentiable, the label for one field."""

import math
import operator

import autograd
import autograd.numpy as anp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from array_api_compat import array_namespace

from adprotocol import NonDifferentiable

A = np.array([3.0, 4.0])
T = torch.tensor([1.0, 2.0])

BINARY = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
]  # fmt: skip
INTEGER = [operator.and_, operator.or_, operator.xor]


def integer(x):
    if isinstance(x, torch.Tensor):
        return x.long()
    return x.astype(int) if isinstance(x, np.ndarray) else int(x)


@pytest.mark.parametrize("op", [*BINARY, *INTEGER], ids=lambda op: op.__name__)
@pytest.mark.parametrize("pair", [(7.5, 2.0), (7, 2), (A, np.array([2.0, 3.0])), (A, 2.0), (2, A), (T + 5, T)])
def test_operators_direct_and_reflected(op, pair):
    a, b = pair
    if op in INTEGER:
        a, b = integer(a), integer(b)
    want = op(a, b)
    for got in (
        op(NonDifferentiable(a), b),
        op(a, NonDifferentiable(b)),
        op(NonDifferentiable(a), NonDifferentiable(b)),
    ):
        assert type(got) is type(want)
        assert np.array_equal(np.asarray(got), np.asarray(want))


def test_matrix_product_unary_and_rounding():
    m = np.array([[1.0, 2.0], [3.0, 4.0]])
    label = NonDifferentiable(m)
    for got in (label @ m, m @ label, label @ label, torch.tensor(m) @ NonDifferentiable(torch.tensor(m))):
        assert np.array_equal(np.asarray(got), m @ m)
    assert (-NonDifferentiable(2.0), +NonDifferentiable(2.0), abs(NonDifferentiable(-2.0))) == (-2.0, 2.0, 2.0)
    assert ~NonDifferentiable(5) == -6
    assert (round(NonDifferentiable(2.6)), round(NonDifferentiable(1.234), 2)) == (3, 1.23)
    assert (math.floor(NonDifferentiable(2.6)), math.ceil(NonDifferentiable(2.6))) == (2, 3)
    value = NonDifferentiable(2.0)
    value += 1.0
    assert value == 3.0
    assert type(value) is float


def test_conversions():
    assert (float(NonDifferentiable(2.5)), int(NonDifferentiable(2.5)), complex(NonDifferentiable(2.5))) == (
        2.5,
        2,
        2.5,
    )
    assert (bool(NonDifferentiable(0.0)), bool(NonDifferentiable(torch.tensor(1.0)))) == (False, True)
    assert operator.index(NonDifferentiable(1)) == 1
    assert [10, 20][NonDifferentiable(1)] == 20
    with pytest.raises(TypeError):
        operator.index(NonDifferentiable(1.0))
    assert f"{NonDifferentiable(2.5):.2f}" == "2.50"
    assert repr(NonDifferentiable(2.5)) == "NonDifferentiable(2.5)"
    label = NonDifferentiable(A)
    assert (len(label), list(label), label[1], label[NonDifferentiable(0)]) == (2, [3.0, 4.0], 4.0, 3.0)
    assert 4.0 in label
    assert (label.shape, label.dtype, label.sum()) == ((2,), np.float64, 7.0)
    assert np.array_equal(label[label > 3.5], [4.0])
    with pytest.raises(TypeError):
        len(NonDifferentiable(1.0))
    with pytest.raises(AttributeError):
        _ = label.no_such_attribute


def test_numpy_functions():
    label = NonDifferentiable(A)
    out = np.empty(2)
    assert np.array_equal(np.sin(label), np.sin(A))
    assert np.add(label, 1.0, out=out) is out
    assert np.array_equal(out, [4.0, 5.0])
    assert np.add.reduce(label) == 7.0
    assert np.multiply.outer(label, label).shape == (2, 2)
    for got, want in (
        (np.stack([label, A]), np.stack([A, A])),
        (np.concatenate([A, label]), np.concatenate([A, A])),
        (np.where([True, False], label, 0.0), [3.0, 0.0]),
        (np.einsum("i,i", label, A), 25.0),
        (np.asarray(label), A),
        (np.array(label, dtype=np.float32), A),
        (np.float64(2.0) * label, 2 * A),
        (np.linalg.norm(label), 5.0),
        (np.clip(A, NonDifferentiable(3.5), None), [3.5, 4.0]),
    ):
        assert type(got) in (np.ndarray, np.float64)
        assert np.array_equal(got, want)


def test_the_array_namespace_is_that_of_the_value():
    for value in (A, jnp.ones(2)):
        assert array_namespace(NonDifferentiable(value)) is value.__array_namespace__()
    assert array_namespace(NonDifferentiable(jnp.ones(2)), jnp.ones(2)) is jnp
    seen = []
    jax.grad(lambda k: seen.append(array_namespace(k["a"])) or k["b"])({"a": NonDifferentiable(jnp.ones(2)), "b": 1.0})
    assert seen == [jnp]
    for value in (1.0, T):
        assert not hasattr(NonDifferentiable(value), "__array_namespace__")


def test_torch_functions_in_eager_mode():
    x = T.clone().requires_grad_()
    held = (T * 3).requires_grad_()
    label = NonDifferentiable(held)
    assert label.held is held
    for plain in (label * 2, label.value, label[0], label.sum(), torch.sin(label), next(iter(label)), -label):
        assert type(plain) is torch.Tensor
        assert not plain.requires_grad
    for result, want in (
        (torch.add(label, x), 4 * T),
        (torch.stack([label, x])[1], T),
        (torch.cat([x, label])[:2], T),
        (torch.where(x > 1.5, label, x), torch.tensor([1.0, 6.0])),
        (torch.einsum("i,i->i", label, x), 3 * T * T),
        (x * label, 3 * T * T),
        (label / x, torch.tensor([3.0, 3.0])),
        (x + NonDifferentiable(2.0), T + 2),
        (torch.mul(x, other=label), 3 * T * T),
        (torch.nn.functional.linear(x, NonDifferentiable(torch.eye(2))), T),
        (x[NonDifferentiable(torch.tensor(1))], T[1]),
    ):
        assert type(result) is torch.Tensor
        assert torch.equal(result, want)
        assert result.requires_grad
        (gradient,) = torch.autograd.grad(result.sum(), held, allow_unused=True)
        assert gradient is None
    (dx,) = torch.autograd.grad((x * label).sum(), x)
    assert torch.equal(dx, 3 * T)


C = NonDifferentiable(A)
AUTOGRAD = {
    "label / x": (lambda x: C / x, [-3.0, -1.0]),
    "x ** label": (lambda x: x**C, [3.0, 32.0]),
    "2 ** (label - x)": (lambda x: NonDifferentiable(2.0) ** x, np.log(2.0) * np.array([2.0, 4.0])),
    "label @ x": (lambda x: C @ x, A),
    "dot": (lambda x: anp.dot(C, x), A),
    "einsum": (lambda x: anp.einsum("i,i", C, x), A),
    "tensordot": (lambda x: anp.tensordot(x, C, 1), A),
    "stack": (lambda x: anp.stack([C, x]), [1, 1]),
    "concatenate": (lambda x: anp.concatenate([x, C]), [1, 1]),
    "array": (lambda x: anp.array([C, x]), [1, 1]),
    "where": (lambda x: anp.where(np.array([True, False]), x, C), [1, 0]),
    "maximum": (lambda x: anp.maximum(C, x), [0, 0]),
    "sin of the label": (lambda x: anp.sin(C) * x, np.sin(A)),
    "index": (lambda x: x[NonDifferentiable(1)], [0, 1]),
}


@pytest.mark.parametrize("name", AUTOGRAD)
def test_autograd_functions(name):
    f, want = AUTOGRAD[name]
    x = np.array([1.0, 2.0])
    total = lambda x: anp.sum(f(x))
    assert np.allclose(autograd.grad(total)(x), want)
    assert np.allclose(autograd.make_jvp(total)(x)(np.array([1.0, 10.0]))[1], np.dot(want, [1.0, 10.0]))


def test_an_error_inside_the_value_is_shown_as_it_is():
    label = NonDifferentiable({"w": jnp.float32(1.0)})
    del label.held
    with pytest.raises(AttributeError, match="held"):
        label.value  # noqa: B018  (the property is what is tested)


@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept")  # PyTorch's, at any ufunc
def test_numpy_on_the_left_of_a_tensor():
    x = np.array([1.0, 2.0], np.float32)
    assert torch.equal(x * NonDifferentiable(T), torch.tensor([1.0, 4.0]))
    assert bool((x == NonDifferentiable(T)).all())
    assert (x @ NonDifferentiable(T)).item() == 5.0
