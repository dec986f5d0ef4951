"""The frameworks under which frozen parts are measured: ours, the same by hand, and the memory of both.

By hand the function that is differentiated closes over the frozen groups: ``fun({**model, **trained})``.
"""

from __future__ import annotations

import tracemalloc
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import autograd
import autograd.numpy
import autograd.scipy.linalg
import jax
import jax.numpy as jnp
import torch
from torch.autograd.graph import saved_tensors_hooks

from adprotocol import value_and_grad

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    Loss = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True)
class Framework:
    """What differs between the frameworks.

    ``ours`` and ``by_hand`` take the loss, the groups that train and patterns
    for them, and return a function of the parameters that gives the value and
    the gradient by group; ``timed`` is what is timed of it. ``memory`` returns the bytes that a call takes, under
    a name each.
    """

    name: str
    xp: Any
    array: Callable[[Any], Any]
    solve_lower: Callable[[Any, Any], Any]
    ours: Callable[[Loss, Sequence[str]], Callable[[dict[str, Any]], Any]]
    by_hand: Callable[[Loss, Sequence[str], dict[str, Any]], Callable[[dict[str, Any]], Any]]
    memory: Callable[[Callable[..., Any], dict[str, Any]], dict[str, int]]
    timed: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda call: call
    precision: Callable[[], AbstractContextManager[Any]] = nullcontext


def _jax_ours(loss: Loss, patterns: Sequence[str]) -> Any:
    return jax.jit(value_and_grad(loss, where=patterns))


def _jax_by_hand(loss: Loss, names: Sequence[str], parameters: dict[str, Any]) -> Any:
    def closed(model: dict[str, Any]) -> Any:
        trained = {name: model[name] for name in names}
        return jax.value_and_grad(lambda trained: loss({**model, **trained}))(trained)

    return jax.jit(closed)


def _jax_finished(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda parameters: jax.block_until_ready(call(parameters))


def _jax_memory(compiled: Any, parameters: dict[str, Any]) -> dict[str, int]:
    """Return what the compiled program allocates: outputs serve as temporaries too."""
    found = compiled.lower(parameters).compile().memory_analysis()
    return {"peak": found.temp_size_in_bytes + found.output_size_in_bytes}


def _torch_by_hand(loss: Loss, names: Sequence[str], parameters: dict[str, Any]) -> Any:
    trained = {name: _tracked(parameters[name]) for name in names}
    leaves = [leaf for group in trained.values() for leaf in (group.values() if isinstance(group, dict) else [group])]

    def closed(model: dict[str, Any]) -> Any:
        value = loss({**model, **trained})
        following = iter(torch.autograd.grad(value, leaves))
        gradient = {
            name: {field: next(following) for field in group} if isinstance(group, dict) else next(following)
            for name, group in trained.items()
        }
        return value.detach(), gradient

    return closed


def _tracked(group: Any) -> Any:
    if isinstance(group, dict):
        return {field: _tracked(leaf) for field, leaf in group.items()}
    return group.detach().clone().requires_grad_()


def _torch_memory(call: Callable[..., Any], parameters: dict[str, Any]) -> dict[str, int]:
    """Return the peak of the allocations, as the profiler lists them, and the tensors saved for backward."""
    saved: dict[int, int] = {}
    kept: list[Any] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        kept.append(storage)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        call(parameters)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        call(parameters)
    now = peak = 0
    for event in sorted(profiler.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return {"peak": peak, "saved": sum(saved.values())}


def _autograd_by_hand(loss: Loss, names: Sequence[str], parameters: dict[str, Any]) -> Any:
    def closed(model: dict[str, Any]) -> Any:
        trained = {name: model[name] for name in names}
        return autograd.value_and_grad(lambda trained: loss({**model, **trained}))(trained)

    return closed


def _autograd_memory(call: Callable[..., Any], parameters: dict[str, Any]) -> dict[str, int]:
    call(parameters)
    tracemalloc.start()
    call(parameters)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {"peak": peak}


def _ours(loss: Loss, patterns: Sequence[str]) -> Any:
    return value_and_grad(loss, where=patterns)


FRAMEWORKS = (
    Framework(
        name="JAX under jit",
        xp=jnp,
        array=jnp.asarray,
        solve_lower=lambda factor, right: jax.scipy.linalg.solve_triangular(factor, right, lower=True),
        ours=_jax_ours,
        by_hand=_jax_by_hand,
        timed=_jax_finished,
        memory=_jax_memory,
        precision=lambda: jax.enable_x64(True),  # noqa: FBT003  (its only argument)
    ),
    Framework(
        name="torch eager",
        xp=torch,
        array=torch.as_tensor,
        solve_lower=lambda factor, right: torch.linalg.solve_triangular(factor, right, upper=False),
        ours=_ours,
        by_hand=_torch_by_hand,
        memory=_torch_memory,
    ),
    Framework(
        name="autograd",
        xp=autograd.numpy,
        array=lambda array: array,
        solve_lower=lambda factor, right: autograd.scipy.linalg.solve_triangular(factor, right, lower=True),
        ours=_ours,
        by_hand=_autograd_by_hand,
        memory=_autograd_memory,
    ),
)
