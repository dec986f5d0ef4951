"""The adprotocol plugin for tinygrad.

tinygrad builds a graph and differentiates it afterwards, with respect to any tensor in it. So
a value is tracked if its graph leads to a variable, a tensor with storage of its own whose
flag `is_param` is on, or to an argument that a call of `adprotocol.grad` differentiates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinygrad import Tensor

from adprotocol.hookspecs import hookimpl
from adprotocol_tinygrad import graph, label, realisation, replay
from adprotocol_tinygrad.arrays import ArrayFunctions
from adprotocol_tinygrad.choice import cond
from adprotocol_tinygrad.gradient import freeze, identity, trainable, vjp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adprotocol.extend import Divergence
    from adprotocol_tinygrad.harness import TinygradHarness

__all__ = [
    "array_functions",
    "array_types",
    "cond",
    "divergences",
    "explain",
    "freeze",
    "harness",
    "identity",
    "is_concrete",
    "non_differentiable",
    "trainable",
    "vjp",
    "within_gradient",
]

realisation.watch()
replay.watch()
label.accept()


@hookimpl
def array_types() -> tuple[type, ...]:
    """Claim tensors."""
    return (Tensor,)


@hookimpl
def within_gradient(value: Any) -> bool:
    """Read the graph, and remember what the answer rests on if `TinyJit` captures it."""
    if not graph.carries_floats(value):
        return False
    walk = graph.Walk()
    tracked = walk.status(value.uop) == graph.TRACKED
    replay.note(walk.found)
    return tracked


@hookimpl
def non_differentiable(value: Any) -> Any:
    """Detach; a copy of the constant is one as well, by the flag that `clone` hands on."""
    return value.detach().is_param_(is_param=False) if value.is_floating_point() else value


@hookimpl
def is_concrete(value: Any) -> bool:  # noqa: ARG001
    """Answer False: a tensor has no ``bool``, in `TinyJit` or outside; ``item`` computes the graph."""
    return False


@hookimpl
def array_functions() -> type[ArrayFunctions]:
    """Return the functions of tinygrad in the words of the array API standard."""
    return ArrayFunctions


@hookimpl
def explain(value: Any) -> str:
    """Say what the graph tells."""
    if not value.is_floating_point():
        return f"dtype {value.dtype} has no derivative"
    if not graph.carries_floats(value):
        return "a number without a device, which tinygrad does not differentiate"
    if graph.is_tracked(value):
        return "its graph leads to a variable whose flag is_param is on, or to an argument of a gradient"
    return "its graph leads to no variable whose flag is_param is on, except through detach or what has no derivative"


@hookimpl
def divergences() -> Sequence[Divergence]:
    """List what tinygrad does not allow."""
    from adprotocol_tinygrad.divergence import DIVERGENCES

    return list(DIVERGENCES.values())


@hookimpl
def harness(device: str | None) -> TinygradHarness:
    """Give the conformance suite what it needs."""
    from adprotocol_tinygrad.harness import TinygradHarness

    return TinygradHarness(device)
