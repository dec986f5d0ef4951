"""The ways of running the model, each of which imports its framework when it is run."""

from __future__ import annotations

import dataclasses
import functools
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adprotocol import value_and_grad
from adprotocol._demo import model

if TYPE_CHECKING:
    from collections.abc import Callable


PATHS = ("trend.slope", "trend.rate", "season.amplitude", "season.period")


@dataclass(frozen=True)
class Outcome:
    """Hold what one way of running the model gave.

    Args:
        value: the loss, evaluated.
        answers: what `within_gradient` answered, evaluated and, where there is a gradient, differentiated.
        training: the loss inside the call that differentiates; None where there is no gradient.
        gradient: its derivative by the path of the parameter, None where none was taken.
    """

    value: float
    answers: list[bool]
    training: float | None = None
    gradient: dict[str, float | None] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Framework:
    """Hold one way of running the model.

    Args:
        name: what the table calls it.
        module: what it needs.
        run: evaluates and differentiates the model.
    """

    name: str
    module: str
    run: Callable[[], Outcome]


def outcome(xp: Any, array: Callable[[Any], Any], compiled: Callable[[Any], Any] | None = None) -> Outcome:
    """Evaluate and differentiate the model; compiled once, what it answers is decided later, by who calls it."""
    t, y, kept = array(model.T), array(model.Y), array(model.KEPT)

    def called(m: model.Model) -> Any:
        return model.loss(m, t, y, kept, xp), model.mode(m)

    called = compiled(called) if compiled else called
    start = model.start(array)
    value, evaluated = called(start)
    (training, trained), gradient = value_and_grad(called, has_aux=True)(start)
    leaves = {name: None if part is None else float(part) for name, part in named(gradient).items()}
    return Outcome(float(value), [bool(evaluated), bool(trained)], float(training), leaves)


def named(tree: model.Model) -> dict[str, Any]:
    """Return the leaves of a model, or of a gradient, by their dotted paths."""
    return {path: operator.attrgetter(path)(tree) for path in PATHS}


def numpy() -> Outcome:
    """Evaluate under NumPy, which has no derivatives: nothing to answer but False."""
    import numpy as np

    start = model.start(np.float64)
    value = model.loss(start, np.array(model.T), np.array(model.Y), np.array(model.KEPT), np)
    return Outcome(float(value), [bool(model.mode(start))])


def autograd() -> Outcome:
    """Run under HIPS autograd: reverse mode on boxes around NumPy arrays."""
    import autograd.numpy as np

    return outcome(np, np.array)


def jax(*, jitted: bool) -> Outcome:
    """Run under JAX: every operation when it is called, or the model compiled by ``jax.jit``."""
    import jax
    import jax.numpy as jnp

    # On the CPU, where all of them are, for they are to agree to rounding.
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):  # noqa: FBT003  (JAX's signature)
        return outcome(jnp, functools.partial(jnp.array, dtype=jnp.float64), jax.jit if jitted else None)


def torch(*, compiled: bool) -> Outcome:
    """Run under PyTorch: eager, or the model compiled by ``torch.compile``."""
    import torch

    # Dynamo and AOTAutograd without the code generator: no C compiler is needed.
    compiler = functools.partial(torch.compile, backend="aot_eager", fullgraph=True)
    array = functools.partial(torch.tensor, dtype=torch.float64, device="cpu")
    return outcome(torch, array, compiler if compiled else None)


FRAMEWORKS = [
    Framework("NumPy", "numpy", numpy),
    Framework("autograd", "autograd", autograd),
    Framework("JAX", "jax", functools.partial(jax, jitted=False)),
    Framework("JAX jit", "jax", functools.partial(jax, jitted=True)),
    Framework("torch", "torch", functools.partial(torch, compiled=False)),
    Framework("torch compile", "torch", functools.partial(torch, compiled=True)),
]
