"""The AD systems that tests written once run on: how each makes arrays, and what it differentiates with natively."""

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import autograd
import autograd.numpy as anp
import closeness
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from autograd.tracer import Box


@dataclasses.dataclass(frozen=True)
class Backend:
    """`native` is value_and_grad of a function of a list of arrays, `derivative` that of a function of one."""

    name: str
    xp: Any
    make: Callable[..., Any]
    array_type: type
    native: Callable[[Any, list[Any]], tuple[Any, list[Any]]]
    derivative: Callable[[Any], Any]
    # The class of an array while it is being differentiated.
    tracked_type: type
    # The derivative of a function of one array in a direction, by forward mode.
    tangent: Callable[[Any, Any, Any], Any]
    vmap: Any = None

    def numpy(self, array):
        if isinstance(array, torch.Tensor):
            assert not array.requires_grad
        return np.asarray(array)


def _torch_native(fun, leaves):
    tracked = [torch.as_tensor(leaf).detach().clone().requires_grad_() for leaf in leaves]
    value = fun(tracked)
    return value.detach(), list(torch.autograd.grad(value, tracked, allow_unused=True, materialize_grads=True))


def _jax_make(value):
    return jnp.asarray(np.asarray(value, dtype=np.complex64 if np.iscomplexobj(value) else np.float32))


JAX = Backend(
    "jax",
    jnp,
    _jax_make,
    jax.Array,
    lambda fun, leaves: jax.value_and_grad(fun)(leaves),
    jax.grad,
    jax.core.Tracer,
    lambda fun, x, t: jax.jvp(fun, (x,), (t,))[1],
    jax.vmap,
)
TORCH = Backend(
    "torch",
    torch,
    lambda value: torch.tensor(np.asarray(value, dtype=complex if np.iscomplexobj(value) else float)),
    torch.Tensor,
    _torch_native,
    torch.func.grad,
    torch.Tensor,
    lambda fun, x, t: torch.func.jvp(fun, (x,), (t,))[1],
    torch.vmap,
)
AUTOGRAD = Backend(
    "autograd",
    anp,
    lambda value: np.asarray(value, dtype=complex if np.iscomplexobj(value) else float),
    np.ndarray,
    lambda fun, leaves: autograd.value_and_grad(fun)(leaves),
    autograd.grad,
    Box,
    lambda fun, x, t: autograd.make_jvp(fun)(x)(t)[1],
)
BACKENDS = (JAX, TORCH, AUTOGRAD)
# Those whose plugins apply derivative rules.
WITH_RULES = (JAX, TORCH, AUTOGRAD)

on_every_backend = pytest.mark.parametrize("ad", BACKENDS, ids=lambda ad: ad.name)
with_rules = pytest.mark.parametrize("ad", WITH_RULES, ids=lambda ad: ad.name)


def _detached(value):
    """Return a tensor as NumPy takes it, without history and without the wrappers of torch.func."""
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    while torch._C._functorch.maybe_get_level(value) != -1:
        value = torch._C._functorch.get_unwrapped(value)
    # NumPy takes no tensor inside of a transformation.
    return value.tolist() if torch._C._are_functorch_transforms_active() else value


def close(got, want):
    """Return whether two arrays or numbers are equal to the digits of float32."""
    return closeness.close(_detached(got), _detached(want))


def in_threads(count, work):
    """Run ``work(i)`` in `count` threads that start together, and raise what one raised."""
    barrier, errors = threading.Barrier(count), []

    def run(i):
        barrier.wait()
        try:
            work(i)
        except BaseException as error:  # noqa: BLE001  (raised again below)
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
