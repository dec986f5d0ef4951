"""What users of the frameworks have asked for over the years: frozen parts, labels on one field, compositions."""

import dataclasses
from collections import Counter
from typing import Any

import autograd
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from ad_backends import AUTOGRAD, JAX, TORCH, close, on_every_backend
from autograd.core import primitive_vjps
from torch_cost import nodes

from adprotocol import NonDifferentiable, combine, grad, partition, tree_map, value_and_grad

# 1. A structure with parts that take no gradient.


@dataclasses.dataclass(frozen=True)
class B:
    b1: Any
    b2: Any


@dataclasses.dataclass(frozen=True)
class A:
    a1: Any
    eps: Any
    b: B

    __trainable__ = ("a1",)


def records(ad):
    return A(a1=ad.make([1.0, 2.0]), eps=0.5, b=B(b1=ad.make([3.0, 4.0]), b2=ad.make([5.0, 6.0])))


def of_records(a):
    return ((a.a1 * a.b.b1) ** 2).sum() * a.eps


@on_every_backend
def test_gradient_of_nested_records_is_fed_straight_to_an_update(ad):
    model = records(ad)
    gradient = grad(of_records)(model)
    updated = tree_map(lambda p, g: p if g is None else p - 0.1 * g, model, gradient)
    assert close(updated.a1, [0.1, -1.2])
    assert updated.eps is model.eps
    assert updated.b.b1 is model.b.b1
    assert updated.b.b2 is model.b.b2
    params, rest = partition(model)
    stepped = dataclasses.replace(params, a1=params.a1 - 0.1 * gradient.a1)
    assert close(combine(stepped, rest).a1, [0.1, -1.2])
    assert combine(stepped, rest).b.b1 is model.b.b1


def test_gradient_of_nested_records_is_fed_straight_to_optax():
    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class RegisteredB(B):
        pass

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class RegisteredA(A):
        pass

    plain = records(JAX)
    model = RegisteredA(plain.a1, plain.eps, RegisteredB(plain.b.b1, plain.b.b2))
    optimizer = optax.sgd(0.1)
    params, rest = partition(model)
    updates, _ = optimizer.update(grad(of_records)(model), optimizer.init(params))
    updated = combine(optax.apply_updates(params, updates), rest)
    assert close(updated.a1, [0.1, -1.2])
    assert updated.b.b1 is plain.b.b1


def primitives(jaxpr):
    """Count the equations of a jaxpr by primitive, those of jaxprs within included."""
    counted = Counter()
    for equation in jaxpr.eqns:
        counted[equation.primitive.name] += 1
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda v: hasattr(v, "eqns")):
            jaxpr_within = inner if hasattr(inner, "eqns") else getattr(inner, "jaxpr", None)
            if hasattr(jaxpr_within, "eqns"):
                counted += primitives(jaxpr_within)
    return counted


@pytest.fixture
def counted_vjps(monkeypatch):
    """Count the calls of autograd's gradient functions by the name of the primitive."""
    counted = Counter()

    def counting(name, maker):
        def made(*args):
            vjp = maker(*args)

            def call(outgrad):
                counted[name] += 1
                return vjp(outgrad)

            return call

        return made

    for primitive, maker in list(primitive_vjps.items()):
        monkeypatch.setitem(primitive_vjps, primitive, counting(primitive.__name__, maker))
    return counted


# 2. A label on one field, no custom flatten.


@dataclasses.dataclass(frozen=True)
class SquaredExponential:
    variance: Any
    lengthscale: Any
    order: int = 2

    def __call__(self, r, xp):
        return self.variance * xp.exp(-0.5 * (r / self.lengthscale) ** self.order)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Registered:
    variance: Any
    lengthscale: Any
    order: int = dataclasses.field(default=2, metadata={"static": True})

    __call__ = SquaredExponential.__call__


def test_plain_jax_grad_runs_over_a_labelled_float_and_gives_zero_there():
    def loss(kernel):
        return kernel(2.0, jnp)

    model = Registered(NonDifferentiable(1.0), 1.0)
    gradient = jax.grad(loss)(model)
    assert close(gradient.lengthscale, 4 * np.exp(-2))
    assert isinstance(gradient.variance, NonDifferentiable)
    assert close(gradient.variance.held, 0.0)
    assert gradient.order == 2
    # Without the label there is something to be zeroed.
    assert close(jax.grad(loss)(Registered(1.0, 1.0)).variance, np.exp(-2))
    ours = grad(loss, backend="jax")(model)
    assert close(ours.lengthscale, gradient.lengthscale)
    assert ours.variance is None


def test_a_jitted_function_neither_recompiles_for_labels_nor_leaks_them():
    traces = []

    @jax.jit
    def step(kernel, r):
        traces.append(1)
        assert isinstance(kernel.variance.held, jax.core.Tracer)
        gradient = grad(lambda k: k(r, jnp).sum())(kernel)
        assert gradient.variance is None
        return gradient.lengthscale, kernel.variance

    r = jnp.array([0.0, 2.0])
    with jax.checking_leaks():
        for variance in (1.0, 2.0, 3.0):
            slope, label = step(Registered(NonDifferentiable(jnp.float32(variance)), 1.0), r)
            assert close(slope, variance * 4 * np.exp(-2))
            assert isinstance(label, NonDifferentiable)
            assert close(label.held, variance)
    assert len(traces) == 1


# 3. Compositions.


class Kernel:
    def __add__(self, other):
        return Sum(self, other)

    def __mul__(self, other):
        return Product(self, other)


@dataclasses.dataclass(frozen=True)
class Sum(Kernel):
    left: Kernel
    right: Kernel

    def matrix(self, x, xp):
        return self.left.matrix(x, xp) + self.right.matrix(x, xp)


@dataclasses.dataclass(frozen=True)
class Product(Kernel):
    left: Kernel
    right: Kernel

    def matrix(self, x, xp):
        return self.left.matrix(x, xp) * self.right.matrix(x, xp)


@dataclasses.dataclass(frozen=True)
class RBF(Kernel):
    variance: Any
    lengthscale: Any

    def matrix(self, x, xp):
        return self.variance * xp.exp(-0.5 * ((x[:, None] - x[None, :]) / self.lengthscale) ** 2)


X = np.linspace(0.0, 3.0, 7)
Y = np.sin(X) + 0.3


def compose(variances, lengthscales):
    k1, k2, k3 = map(RBF, variances, lengthscales)
    return k1 + k2 * k3


@on_every_backend
@pytest.mark.parametrize("kind", ["floats", "arrays"])
def test_gradients_for_every_variance_of_a_composition_and_nothing_else(ad, kind):
    make = float if kind == "floats" else ad.make
    variances, lengthscales = [make(v) for v in (1.0, 0.5, 2.0)], [make(v) for v in (0.7, 1.5, 3.0)]
    kernel, x, y = compose(variances, lengthscales), ad.make(X), ad.make(Y)

    def loss(kernel, x, y):
        return y @ kernel.matrix(x, ad.xp) @ y

    value, gradient = value_and_grad(loss, where="*.variance")(kernel, x, y)
    want, native = ad.native(lambda vs: loss(compose(vs, lengthscales), x, y), variances)
    assert close(value, want)
    assert (type(gradient), type(gradient.right)) == (Sum, Product)
    for got, expected in zip((gradient.left, gradient.right.left, gradient.right.right), native, strict=True):
        assert type(got) is RBF
        assert close(got.variance, expected)
        assert got.lengthscale is None


def composite_loss(ad):
    """Return the negative log likelihood of a process whose mean is cheap: the factor does not depend on it."""
    x, y, noise = ad.make(X), ad.make(Y), ad.make(0.1 * np.eye(len(X)))

    def loss(model):
        factor = ad.xp.linalg.cholesky(model["kernel"].matrix(x, ad.xp) + noise)
        residual = ad.xp.linalg.solve(factor, y - model["mean"])
        return 0.5 * (residual**2).sum() + ad.xp.log(ad.xp.diagonal(factor, 0, -1, -2)).sum()

    return loss


def process(ad):
    return {"mean": ad.make(0.2), "kernel": compose(*map(list, ([1.0, 0.5, 2.0], [0.7, 1.5, 3.0])))}


def by_hand(loss, model):
    """The cheap gradient as one writes it: a function of the mean that closes over the kernel."""
    return lambda mean: loss({"mean": mean, "kernel": model["kernel"]})


@on_every_backend
def test_the_cheap_parameter_has_the_same_gradient_alone_and_with_all_others(ad):
    model, loss = process(ad), composite_loss(ad)
    alone, everything = grad(loss, where="mean")(model), grad(loss)(model)
    _, (native,) = ad.native(lambda leaves: by_hand(loss, model)(leaves[0]), [model["mean"]])
    assert close(alone["mean"], native)
    assert close(everything["mean"], native)
    assert alone["kernel"] == compose([None] * 3, [None] * 3)
    assert not close(everything["kernel"].left.lengthscale, 0.0)


def test_the_cheap_gradient_does_not_pay_for_the_cholesky_route_with_jax():
    model, loss = process(JAX), composite_loss(JAX)

    def ours(where):
        gradient = grad(loss, where=where)
        return primitives(jax.make_jaxpr(lambda mean: gradient({**model, "mean": mean})["mean"])(model["mean"]).jaxpr)

    hand = primitives(jax.make_jaxpr(jax.grad(by_hand(loss, model)))(model["mean"]).jaxpr)
    assert hand["cholesky"] == 1
    assert ours("mean") == hand
    assert ours(None)["triangular_solve"] > hand["triangular_solve"]


def test_the_cheap_gradient_does_not_pay_for_the_cholesky_route_with_torch():
    model, loss = process(TORCH), composite_loss(TORCH)
    graphs = []

    def watched(model):
        value = loss(model)
        graphs.append(nodes(value))
        return value

    grad(watched, where="mean")(model)
    torch.autograd.grad(by_hand(watched, model)(mean := model["mean"].clone().requires_grad_()), mean)
    grad(watched)(model)
    cheap, hand, everything = graphs
    assert cheap == hand
    assert not [name for name in cheap if "Cholesky" in name]
    assert [name for name in everything if "Cholesky" in name]


def test_the_cheap_gradient_does_not_pay_for_the_cholesky_route_with_autograd(counted_vjps):
    model, loss = process(AUTOGRAD), composite_loss(AUTOGRAD)
    grad(loss, where="mean")(model)
    cheap = counted_vjps.copy()
    counted_vjps.clear()
    autograd.grad(by_hand(loss, model))(model["mean"])
    assert cheap == counted_vjps
    assert cheap["cholesky"] == 0
    counted_vjps.clear()
    grad(loss)(model)
    assert counted_vjps["cholesky"] == 1
