"""No hook asks JAX for the data of an array, and none moves data between host and device.

Shown in two ways. The ways from a concrete array to a value on the host, and the wait for
it, raise here. And JAX's own guard refuses transfers; on the CPU it notices those to the
device alone, as a control shows, so the patched arrays stand for the other direction.
"""

import re
from functools import partial

import every_hook
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jaxlib._jax import ArrayImpl

import adprotocol as ad
from adprotocol import cond, non_differentiable, value_and_grad, within_gradient

X = np.array([0.5, 2.0], np.float32)
READS = (
    "_value", "__array__", "__bool__", "__complex__", "__dlpack__", "__float__", "__index__", "__int__", "item",
    "tolist", "block_until_ready", "copy_to_host_async", "unsafe_buffer_pointer",
    "_single_device_array_to_np_array_did_copy",
)  # fmt: skip


class ReadError(Exception):
    pass


def _read(*_args, **_kwargs):
    raise ReadError


def _read_by(function, value, *args, **kwargs):
    if isinstance(value, ArrayImpl):
        raise ReadError
    return function(value, *args, **kwargs)


@pytest.fixture
def unreadable(monkeypatch):
    """Return a function that makes every concrete array unreadable."""

    def start():
        # As on an accelerator: where arrays are on the host `where` reads whether a function is chosen.
        monkeypatch.setattr("adprotocol_jax.internals.is_on_host", lambda _: False)
        for name in READS:
            is_property = isinstance(vars(ArrayImpl)[name], property)
            monkeypatch.setattr(ArrayImpl, name, property(_read) if is_property else _read)
        # NumPy reads the buffer of an array, which no method of the class shows.
        for function in (np.asarray, np.array):
            monkeypatch.setattr(np, function.__name__, partial(_read_by, function))

    yield start
    monkeypatch.undo()


def scanned(f):
    return lambda x: lax.scan(lambda carry, _: (f(carry), None), x, None, length=2)[0]


def summed(f):
    return lambda x: f(x).sum()


AROUND = {
    "plain": lambda f: f,
    "vmap": jax.vmap,
    "grad": lambda f: jax.grad(summed(f)),
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (x,))[1],
    "grad of jit": lambda f: jax.grad(summed(jax.jit(f))),
    "vmap of grad": lambda f: jax.vmap(jax.grad(summed(f))),
    "grad of scan": lambda f: jax.grad(summed(scanned(f))),
}
around = pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
hook = pytest.mark.parametrize("hook", every_hook.HOOKS, ids=lambda hook: hook.__name__)


@around
@hook
def test_concrete_arrays_are_never_read(hook, around, unreadable):
    x = jnp.asarray(X)
    unreadable()
    result = around(hook)(x)
    with pytest.raises(ReadError):
        float(result[0])


@pytest.mark.parametrize(
    "read",
    [
        lambda x: np.asarray(x),  # found in NumPy when it is called  # noqa: PLW0108
        float,
        bool,
        int,
        jax.device_get,
        jax.block_until_ready,
        lambda x: x.item(),
        lambda x: x.tolist(),
        lambda x: cond(x > 0, abs, abs, 1.0),  # its value decides which branch runs
    ],
)
def test_every_way_to_the_host_is_noticed(read, unreadable):
    x = jnp.asarray(2.0)
    unreadable()
    with pytest.raises(ReadError):
        read(x)


@hook
def test_no_transfer_in_a_compiled_program(hook):
    x, compiled = jnp.asarray(X), jax.jit(AROUND["grad"](hook))
    compiled(x)
    with jax.transfer_guard("disallow_explicit"):
        compiled(x)


def test_no_transfer_in_eager_hooks():
    x, model = jnp.asarray(X), {"w": jnp.asarray(X), "n": 3}
    with jax.transfer_guard("disallow_explicit"):
        assert within_gradient(x) is False
        non_differentiable(model)
        # Eager JAX transfers the numbers of any program: those of `where` like the one in jnp.where(x > x, x, 0.5).
        for hook in every_hook.WITHOUT_GRADIENTS:
            if "chosen" not in hook.__name__ and "numbers" not in hook.__name__:
                hook(x)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: ad.vjp(lambda x: x, x)[1](X)[0],
        lambda x: ad.vjp(lambda x: x.sum(), x)[1](2.0)[0],
        lambda x: ad.vjp(lambda x, _: x * x, x, x)[1](None)[1],
        lambda x: ad.jvp(lambda y: (y * y, x), (x,), (X,))[1][1],
        ad.jacobian(lambda x: x),
        ad.jacobian(lambda x: x * x, mode="forward", chunk_size=1),
        lambda x: ad.where(x > 1.0, lambda _: 2.0, lambda _: 0.5, x),
        lambda x: jax.vmap(lambda m: m["label"] * 2.0)({"label": ad.NonDifferentiable(x)}),
        lambda x: ad.tree_map(jnp.square, [ad.NonDifferentiable(x)])[0].value,
    ],
)
def test_results_are_on_the_device_of_the_array_or_go_wherever_they_are_needed(call):
    device = jax.devices()[1]
    x = jax.device_put(jnp.asarray(X), device)
    found = call(x)
    assert found.devices() == {device} or not found.committed  # as of jax.vjp
    assert (found.sum() + x).devices() == {device}


def test_the_guard_refuses_transfers_to_the_device_even_on_the_cpu():
    with jax.transfer_guard("disallow_explicit"):
        for transfer in (jnp.asarray, jax.device_put, jax.jit(lambda x: x)):
            with pytest.raises(jax.errors.JaxRuntimeError, match="Disallowed host-to-device"):
                transfer(X)


def test_gradients_transfer_what_those_of_jax_transfer(capfd):
    model = {"w": jnp.asarray(X), "frozen": jnp.asarray(X)}

    def transfers(function):
        function()
        capfd.readouterr()
        with jax.transfer_guard("log_explicit"):
            function()
        return len(re.findall("host-to-device|device-to-host", capfd.readouterr().err))

    product = lambda w, frozen: (w * w * frozen).sum()
    by_hand = transfers(lambda: jax.value_and_grad(lambda w: product(w, model["frozen"]))(model["w"]))
    assert by_hand > 0  # the cotangent 1
    assert transfers(lambda: value_and_grad(lambda m: product(m["w"], m["frozen"]), where="w")(model)) == by_hand
