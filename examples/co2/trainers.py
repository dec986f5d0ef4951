"""The ways of training the kernel: one class for each framework, which is imported when it trains."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Protocol

import kernels
import training

if TYPE_CHECKING:
    from collections.abc import Callable

    from series import Series


class Trainer(Protocol):
    """One way of training the kernel."""

    name: str
    framework: str  # the module it needs
    extra: str  # the extra of this package that installs it

    def train(self, series: Series, advance: Callable[[float], None]) -> training.Fit:
        """Train on the series; `advance` is told the log marginal likelihood before each step."""


class Autograd:
    """HIPS autograd."""

    name = "autograd"
    framework = "autograd"
    extra = "autograd"

    def train(self, series: Series, advance: Callable[[float], None]) -> training.Fit:
        """Train on the series."""
        import autograd.numpy as np  # noqa: PLC0415

        return training.train(series, np, np.array, advance)


class JaxJit:
    """JAX, the whole step compiled by ``jax.jit``."""

    name = "JAX jit"
    framework = "jax"
    extra = "jax"

    def train(self, series: Series, advance: Callable[[float], None]) -> training.Fit:
        """Train on the series."""
        import jax  # noqa: PLC0415
        import jax.numpy as jnp  # noqa: PLC0415

        _register_with_jax()
        with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):  # noqa: FBT003  (JAX's signature)
            array = functools.partial(jnp.array, dtype=jnp.float64)
            return training.train(series, jnp, array, advance, jax.jit)


@functools.cache
def _register_with_jax() -> None:
    """Let kernels be arguments of ``jax.jit``; `adprotocol` takes them apart without."""
    import jax  # noqa: PLC0415

    for cls in (kernels.SquaredExponential, kernels.Periodic, kernels.Noise, kernels.Sum, kernels.Product):
        jax.tree_util.register_dataclass(cls)


class Torch:
    """PyTorch, eager."""

    name = "torch"
    framework = "torch"
    extra = "torch"

    def train(self, series: Series, advance: Callable[[float], None]) -> training.Fit:
        """Train on the series."""
        import torch  # noqa: PLC0415

        array = functools.partial(torch.tensor, dtype=torch.float64, device="cpu")
        return training.train(series, torch, array, advance)


TRAINERS: list[Trainer] = [Autograd(), JaxJit(), Torch()]


def reason(trainer: Trainer, error: Exception) -> tuple[str, str]:
    """Say in short and in full why a way of training gave nothing."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == trainer.framework:
        return "not installed", f"not installed; pip install 'adprotocol[{trainer.extra}]'"
    return "failed", f"failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
