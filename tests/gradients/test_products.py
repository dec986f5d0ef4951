"""`vjp`, `jvp` and `jacobian`: their errors, what they keep alive, how often they run, on every framework."""

import dataclasses
import gc
import weakref
from typing import Any

import autograd.numpy as anp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from ad_backends import AUTOGRAD, JAX, TORCH, close, on_every_backend

import adprotocol
from adprotocol import NonDifferentiable, grad, jacobian, jvp, vjp
from adprotocol.errors import ArgumentError, NothingTrainableError, OutputError, RuleError, UndecidableError


@dataclasses.dataclass
class Model:
    w: Any
    b: Any
    order: int = 2


def model_of(ad):
    return Model(ad.make([1.0, 2.0]), ad.make(0.5))


def affine(model, x):
    return model.w * x + model.b


@pytest.mark.parametrize("ad", [TORCH, AUTOGRAD], ids=lambda ad: ad.name)
def test_what_a_pull_needs_is_freed_with_it(ad):
    x = ad.make(np.ones(5))

    class Big:
        pass

    big = Big()
    here = weakref.ref(big)

    def fun(x, big=big):
        assert big is not None
        return x**3

    _, pull = vjp(fun, x)
    del big, fun
    assert here() is not None
    del pull
    gc.collect()
    assert here() is None


@on_every_backend
def test_a_wrong_cotangent_is_an_error_with_its_place(ad):
    _, pull = vjp(lambda x: {"a": x, "b": [2.0 * x]}, ad.make([1.0, 2.0]))
    for wrong, match in [
        (
            {"a": ad.make([1.0]), "b": [None]},
            r"pull was given an array of shape \(1,\) as cotangent of the value at 'a'",
        ),
        ({"a": None}, r"pull was given a dict of 'a' as cotangent of the value, which is a dict of 'a', 'b'"),
        ({"a": None, "b": [ad.make([1.0 + 1.0j, 0.0])]}, "a complex array as cotangent of the value at 'b' at 0"),
        (ad.make([1.0, 2.0]), "as cotangent of the value, which is a dict"),
        ({"a": "text", "b": [None]}, "pull was given a str as cotangent of the value at 'a'"),
    ]:
        with pytest.raises(ArgumentError, match=match):
            pull(wrong)


@on_every_backend
def test_a_wrong_tangent_is_an_error_with_its_place(ad):
    model, one = model_of(ad), ad.make([1.0, 1.0])
    for tangents, match in [
        ((Model(one, one, None), None), r"jvp was given an array of shape \(2,\) as tangent of argument 0 at 'b'"),
        ((Model(None, None, 1), None), "tangent of argument 0 at 'order', where there is no derivative"),
        ((None, None), "nothing moves"),
        ((None,), "2 primals and 1 tangents"),
        (one, "a tuple"),
    ]:
        with pytest.raises(ArgumentError, match=match):
            jvp(affine, (model, one), tangents)


@on_every_backend
def test_what_cannot_be_differentiated(ad):
    x = ad.make([1.0])
    with pytest.raises(ArgumentError, match="no primals"):
        vjp(lambda: x)
    with pytest.raises(ArgumentError, match="give it the function"):
        vjp(x, x)
    with pytest.raises(NothingTrainableError):
        vjp(lambda n: x * n, 3)
    with pytest.raises(OutputError, match="without an array"):
        vjp(lambda x: {"count": 3, "label": NonDifferentiable(x)}, x)
    with pytest.raises(OutputError, match="pair"):
        vjp(lambda x: x, x, has_aux=True)


@on_every_backend
@pytest.mark.parametrize("size", [1, 2])
def test_by_default_a_jacobian_needs_no_forward_mode(ad, size):
    @adprotocol.custom_derivative(reverse_only=True)
    def thrice(x):
        return ad.xp.stack([x, 2.0 * x, 3.0 * x])

    @thrice.defvjp
    def _(cotangent, _y, _x):
        return (cotangent[0] + 2.0 * cotangent[1] + 3.0 * cotangent[2],)

    x = ad.make([4.0, 5.0][:size])
    assert close(jacobian(thrice)(x), jacobian(thrice, mode="reverse")(x))
    with pytest.raises(RuleError):
        jacobian(thrice, mode="forward")(x)


@on_every_backend
def test_an_error_of_the_function_is_raised_by_its_first_run(ad):
    runs = []

    def failing(x):
        runs.append(x)
        msg = "the user's"
        raise ValueError(msg)

    with pytest.raises(ValueError, match="the user's"):
        jacobian(failing)(ad.make([4.0]))
    assert len(runs) == 1


@on_every_backend
@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_rows_in_chunks_and_auxiliary_output(ad, mode):
    whole, aux = jacobian(lambda x: (x**2, {"x": x, "n": 7}), has_aux=True, mode=mode, chunk_size=2)(
        ad.make([1.0, 2.0, 3.0, 4.0, 5.0])
    )
    assert close(whole, np.diag([2.0, 4.0, 6.0, 8.0, 10.0]))
    assert close(aux["x"], [1.0, 2.0, 3.0, 4.0, 5.0])
    assert aux["n"] == 7


@on_every_backend
def test_the_number_of_runs(ad):
    runs = []

    def fun(p):
        runs.append(1)
        return ad.xp.stack([p["a"] * p["b"], p["a"]])

    p = {"a": ad.make(2.0), "b": ad.make(3.0)}
    jacobian(fun, mode="reverse")(p)
    assert len(runs) == 1
    jacobian(fun, mode="forward")(p)
    assert len(runs) == (3 if ad is AUTOGRAD else 2)  # once, by vmap; for each element without
    runs.clear()
    assert close(jacobian(lambda t: fun({"a": t, "b": t}))(ad.make(3.0)), [6.0, 1.0])
    assert len(runs) == 1


def test_wrong_modes_and_chunks():
    for arguments in ({"mode": "both"}, {"chunk_size": 0}, {"chunk_size": True}):
        with pytest.raises(ArgumentError, match="jacobian was given"):
            jacobian(lambda x: x, **arguments)


class Sine(torch.autograd.Function):
    """One without forward mode; `pulled` is its backward pass."""

    @staticmethod
    def forward(ctx, x, pulled):
        ctx.save_for_backward(x)
        ctx.pulled = pulled
        return x.sin()

    @staticmethod
    def backward(ctx, cotangent):
        return ctx.pulled(ctx.saved_tensors[0].cos(), cotangent), None


def jax_sine(pulled):
    """Return the sine of JAX with a backward pass."""
    fun = jax.custom_vjp(jnp.sin)
    fun.defvjp(lambda x: (jnp.sin(x), jnp.cos(x)), lambda slope, cotangent: (pulled(slope, cotangent),))
    return fun


X = np.array([0.3, -1.2, 0.7])
SYMMETRIC = np.array([[4.0, 0.5, 0.1], [0.5, 3.0, 0.2], [0.1, 0.2, 2.2]])


def squared(x):
    """Return the sum of the squared eigenvalues, whose Hessian is 2; autograd's rule asks whether anything arrives."""
    return anp.sum(anp.linalg.eigh(SYMMETRIC + anp.diag(x))[0] ** 2)


# Backward passes that ask whether anything arrives.
ASK = {
    "torch": (torch.tensor, lambda x: Sine.apply(x, lambda slope, g: slope * g if g.any() else None)),
    "jax": (jnp.array, jax_sine(lambda slope, g: slope * g if jnp.any(g) else 0.0 * g)),
    "jax-cond": (
        jnp.array,
        jax_sine(lambda slope, g: jax.lax.cond(jnp.any(g != 0), lambda g: slope * g, jnp.zeros_like, g)),
    ),
}


@pytest.mark.parametrize(("make", "fun"), ASK.values(), ids=ASK)
def test_a_backward_pass_that_asks_whether_anything_arrives_is_pushed(make, fun):
    x, t = make(X), make([1.0, -2.0, 1.0])
    for around, more in ((fun, 0.0), (lambda x: fun(x) + x**2, 2 * X)):
        assert close(jvp(around, (x,), (t,))[1], (np.cos(X) + more) * [1.0, -2.0, 1.0])
        assert close(jacobian(around, mode="forward", chunk_size=1)(x), np.diag(np.cos(X) + more))


def test_eigenvalues_have_a_hessian_in_forward_mode():
    assert np.allclose(jacobian(grad(squared), mode="forward")(X), 2 * np.eye(3))


# Those of which nothing can be followed: they detach the cotangent, or leave the framework.
LEAVE = {
    "detached": (torch.tensor, lambda x: Sine.apply(x, lambda slope, g: slope * g.detach())),
    "without-gradients": (torch.tensor, lambda x: Sine.apply(x, torch.no_grad()(lambda slope, g: slope * g))),
    "numpy": (
        torch.tensor,
        lambda x: Sine.apply(x, lambda slope, g: torch.tensor(slope.detach().numpy() * g.detach().numpy())),
    ),
    "jax": (jnp.array, jax_sine(lambda slope, g: slope * jax.lax.stop_gradient(g))),
}


@pytest.mark.filterwarnings("ignore:the value of the differentiated function does not depend")
@pytest.mark.parametrize(("make", "fun"), LEAVE.values(), ids=LEAVE)
def test_a_backward_pass_that_cannot_be_followed_is_no_tangent_of_zero(make, fun):
    x = make(X)
    assert close(jacobian(fun, chunk_size=1)(x), np.diag(np.cos(X)))
    for around in (fun, lambda x: fun(x) + x**2):
        with pytest.raises(UndecidableError, match=r"cannot be transposed.*mode='reverse'.*custom_derivative"):
            jvp(around, (x,), (make([1.0, -2.0, 1.0]),))
    with pytest.raises(UndecidableError, match="cannot be transposed"):  # beside an output in another unit
        jvp(lambda x: (fun(x), 4e3 * x), (x,), (make([1.0, 1.0, 1.0]),))


@pytest.mark.parametrize("around", [jax.jit, jax.checkpoint, lambda f: lambda x: jax.lax.map(f, x[None])[0], jax.vmap])
def test_a_linear_backward_pass_of_jax_is_pushed_where_no_values_are_known(around):
    fun = jax_sine(lambda slope, g: slope * g)
    tangent = lambda x: jvp(fun, (x,), (jnp.ones_like(x),))[1]
    assert close(around(tangent)(jnp.array(X)), np.cos(X))
    assert close(jax.grad(lambda x: around(tangent)(x).sum())(jnp.array(X)), -np.sin(X))
    with pytest.raises(UndecidableError, match="under a compiler or vmap"):
        around(lambda x: jvp(ASK["jax-cond"][1], (x,), (jnp.ones_like(x),))[1])(jnp.array(X))


@on_every_backend
def test_a_tangent_lies_in_memory_of_its_own(ad):
    x, t = ad.make([1.0, 2.0]), ad.make([3.0, 4.0])
    for fun in (lambda x: x, lambda x: {"x": x, "again": x}):
        moved = jvp(fun, (x,), (t,))[1]
        parts = list(moved.values()) if isinstance(moved, dict) else [moved]
        assert not any(np.shares_memory(ad.numpy(part), ad.numpy(t)) for part in parts if ad is not JAX)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
@pytest.mark.parametrize("around", [lambda f: f, jax.jit])
def test_empty_arrays_in_chunks(mode, around):
    def fun(x):
        return {"x": x, "none": x[:0]}, x[:0]

    whole, aux = around(jacobian(fun, has_aux=True, mode=mode, chunk_size=2))(jnp.arange(3.0))
    assert close(whole["x"], np.eye(3))
    assert whole["none"].shape == (0, 3)
    assert aux.shape == (0,)
    assert around(jacobian(lambda x: 2.0 * x, mode=mode, chunk_size=2))(jnp.ones(0)).shape == (0, 0)


@pytest.mark.parametrize("chunk_size", [1, 2])
def test_chunks_in_eager_code_run_it_eagerly(chunk_size):
    branching = lambda x: x * 2.0 if x[0] > 0.0 else x
    assert close(jacobian(branching, mode="forward", chunk_size=1)(jnp.ones(3)), 2.0 * np.eye(3))
    host = adprotocol.custom_derivative(adprotocol.host_function(np.sin))
    host.defjvp(adprotocol.host_function(lambda tangents, _, x: np.cos(x) * tangents[0]))
    assert close(jacobian(host, mode="forward", chunk_size=chunk_size)(jnp.array(X)), np.diag(np.cos(X)))
