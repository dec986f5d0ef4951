"""The ways of running the model: one class for each, which imports its framework when it is run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from adprotocol.demo import model

if TYPE_CHECKING:
    from adprotocol.demo.data import Series
    from adprotocol.demo.trainers import Trainer


@dataclass(frozen=True)
class Trained:
    """Hold what a call that differentiates the model gave.

    Args:
        value: the log marginal likelihood inside that call.
        gradient: its derivative for each parameter.
    """

    value: float
    gradient: dict[str, float]


@dataclass(frozen=True)
class Outcome:
    """Hold what one way of running the model gave.

    Args:
        value: the log marginal likelihood, evaluated.
        answers: what `within_gradient` answered, by situation; a situation that does not occur is absent.
        trained: value and gradient in training; None where there is no gradient.
    """

    value: float
    answers: dict[str, bool]
    trained: Trained | None = None


class Backend(Protocol):
    """One way of running the model."""

    name: str
    framework: str  # the module it needs
    extra: str  # the extra of this package that installs it

    def run(self, series: Series) -> Outcome:
        """Evaluate and differentiate the model on the series."""


class NumPy:
    """NumPy: no derivatives, so nothing to answer but False."""

    name = "NumPy"
    framework = "numpy"
    extra = "demo"

    def run(self, series: Series) -> Outcome:
        """Evaluate the model."""
        import numpy as np  # noqa: PLC0415

        t, y, mask = np.array(series.t), np.array(series.y), np.array(series.mask)
        params = {name: np.float64(value) for name, value in model.START.items()}
        value = model.log_marginal_likelihood(params, t, y, mask, np)
        return Outcome(float(value), {"plain": bool(model.mode(params))})


class Autograd:
    """HIPS autograd: reverse mode on boxes around NumPy arrays."""

    name = "autograd"
    framework = "autograd"
    extra = "autograd"

    def run(self, series: Series) -> Outcome:
        """Evaluate and differentiate the model."""
        import autograd  # noqa: PLC0415
        import autograd.numpy as np  # noqa: PLC0415

        t, y, mask = np.array(series.t), np.array(series.y), np.array(series.mask)
        start = {name: np.array(value) for name, value in model.START.items()}
        answers: list[float] = []

        def loss(params: Any) -> Any:
            answers.append(model.mode(params))
            return model.log_marginal_likelihood(params, t, y, mask, np)

        value = float(loss(start))
        training, gradient = autograd.value_and_grad(loss)(start)
        return Outcome(value, _answers(*answers, compiled=False), _trained(training, gradient))


class Jax:
    """JAX, eager: every operation runs when it is called."""

    name = "JAX"
    framework = "jax"
    extra = "jax"
    jitted = False

    def run(self, series: Series) -> Outcome:
        """Evaluate and differentiate the model."""
        import jax  # noqa: PLC0415
        import jax.numpy as jnp  # noqa: PLC0415

        # On the CPU, where all of them are, for they are to agree to rounding.
        with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):  # noqa: FBT003  (JAX's signature)
            t, y, mask = jnp.array(series.t), jnp.array(series.y), jnp.array(series.mask)
            start = {name: jnp.array(value) for name, value in model.START.items()}

            def loss(params: Any) -> Any:
                return model.log_marginal_likelihood(params, t, y, mask, jnp), model.mode(params)

            # Compiled once: what it answers is decided later, by who calls it.
            called = jax.jit(loss) if self.jitted else loss
            value, evaluated = called(start)
            (training, trained), gradient = jax.value_and_grad(called, has_aux=True)(start)
            answers = _answers(evaluated, trained, compiled=self.jitted)
            return Outcome(float(value), answers, _trained(training, gradient))


class JaxJit(Jax):
    """JAX, the model compiled by ``jax.jit``, and the compiled model differentiated."""

    name = "JAX jit"
    jitted = True


class Torch:
    """PyTorch, eager."""

    name = "torch"
    framework = "torch"
    extra = "torch"
    compiled = False

    def run(self, series: Series) -> Outcome:
        """Evaluate and differentiate the model."""
        import torch  # noqa: PLC0415

        def array(value: float | list[float]) -> torch.Tensor:
            return torch.tensor(value, dtype=torch.float64, device="cpu")

        t, y, mask = array(series.t), array(series.y), array(series.mask)

        def loss(params: Any) -> Any:
            return model.log_marginal_likelihood(params, t, y, mask, torch), model.mode(params)

        # Dynamo and AOTAutograd without the code generator: no C compiler is needed.
        called: Any = torch.compile(loss, backend="aot_eager", fullgraph=True) if self.compiled else loss
        start = {name: array(value) for name, value in model.START.items()}
        value, evaluated = called(start)
        leaves = {name: leaf.requires_grad_() for name, leaf in start.items()}
        training, trained = called(leaves)
        gradient = dict(zip(leaves, torch.autograd.grad(training, list(leaves.values())), strict=True))
        answers = _answers(evaluated, trained, compiled=self.compiled)
        return Outcome(float(value), answers, _trained(training.detach(), gradient))


class TorchCompile(Torch):
    """PyTorch, the model compiled by ``torch.compile``, and the compiled model differentiated."""

    name = "torch compile"
    compiled = True


BACKENDS: list[Backend] = [NumPy(), Autograd(), Jax(), JaxJit(), Torch(), TorchCompile()]


def _trained(value: Any, gradient: Any) -> Trained:
    return Trained(float(value), {name: float(gradient[name]) for name in model.START})


def _answers(evaluated: Any, trained: Any, *, compiled: bool) -> dict[str, bool]:
    plain, grad = ("jit", "grad of jit") if compiled else ("plain", "grad")
    return {plain: bool(evaluated), grad: bool(trained)}


def reason(backend: Backend | Trainer, error: Exception) -> tuple[str, str]:
    """Say in short and in full why a way of running the model gave nothing."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == backend.framework:
        return "not installed", f"not installed; pip install 'adprotocol[{backend.extra}]'"
    return "failed", f"failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
