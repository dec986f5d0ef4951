"""The training under each framework, which is imported when it trains."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import kernels
import training

if TYPE_CHECKING:
    from collections.abc import Callable

    from series import Series


def by_autograd(series: Series) -> training.Fit:
    """Train with HIPS autograd."""
    import autograd.numpy as np

    return training.train(series, np, np.array)


def by_jax(series: Series) -> training.Fit:
    """Train with JAX, the whole step compiled by ``jax.jit``."""
    import jax
    import jax.numpy as jnp

    _register_with_jax()
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):  # noqa: FBT003  (JAX's signature)
        return training.train(series, jnp, functools.partial(jnp.array, dtype=jnp.float64), jax.jit)


@functools.cache
def _register_with_jax() -> None:
    """Let kernels be arguments of ``jax.jit``; `adprotocol` takes them apart without."""
    import jax

    for cls in (kernels.SquaredExponential, kernels.Periodic, kernels.Noise, kernels.Sum, kernels.Product):
        jax.tree_util.register_dataclass(cls)


def by_torch(series: Series) -> training.Fit:
    """Train with PyTorch, eager."""
    import torch

    return training.train(series, torch, functools.partial(torch.tensor, dtype=torch.float64, device="cpu"))


# By name, the module that is needed, and the training.
TRAIN: dict[str, tuple[str, Callable[[Series], training.Fit]]] = {
    "autograd": ("autograd", by_autograd),
    "JAX jit": ("jax", by_jax),
    "torch": ("torch", by_torch),
}
