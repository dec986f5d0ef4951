"""The adprotocol plugin for MLX.

`within_gradient` reads the graph behind a value (`graph`) and finds out which
derivatives are active (`levels`); where vmap is to put in the values, the answer is
staged (`answer`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx import nn

from adprotocol.extend import ASK_PARAMETERS
from adprotocol.hookspecs import hookimpl
from adprotocol_mlx import answer, branch, modules, prevention, trace
from adprotocol_mlx.arrays import ArrayFunctions
from adprotocol_mlx.gradient import jvp, vjp, vmap
from adprotocol_mlx.rules import custom_rule, host_call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol.conformance import Harness
    from adprotocol.extend import Divergence
    from adprotocol.hookspecs import View


@hookimpl
def array_types() -> tuple[type, ...]:
    """Claim arrays; MLX has no other class for what is traced."""
    return (mx.array,)


@hookimpl
def within_gradient(value: Any) -> Any:
    """Read the answer from the graph behind the value."""
    return answer.ask((value,))


@hookimpl
def any_within_gradient(values: Sequence[Any]) -> Any:
    """Read the answer from the graph behind all values."""
    return answer.ask(values)


@hookimpl
def non_differentiable(value: Any) -> Any:
    """Stop the derivatives of all levels."""
    return prevention.constant(value)


@hookimpl
def prevent_gradient(value: Any, message: str) -> Any:
    """Refuse what is tracked; guard what vmap is to put in."""
    return prevention.prevent(value, message)


@hookimpl
def is_concrete(value: Any) -> bool:
    """Answer False for what depends on an argument of vmap or compile; under grad MLX computes when asked."""
    if trace.is_applying_vjp():  # as a checkpoint runs its function again
        return trace.has_values([value])
    return not (trace.is_tracing() and trace.is_open(value))


@hookimpl
def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Run the chosen branch if the predicate can be computed, else both, guarded."""
    return branch.branch(pred, true_fun, false_fun, operands)


@hookimpl
def array_functions() -> type[ArrayFunctions]:
    """Return the functions of MLX in the words of the array API standard."""
    return ArrayFunctions


@hookimpl
def trainable(value: Any) -> bool | None:
    """Answer by the dtype; flags are those of modules."""
    return True if answer.is_inexact(value) else None


@hookimpl
def views() -> dict[type, Callable[[Any], View]]:
    """Show the arrays of a module by qualified name."""
    return {nn.Module: modules.view}


@hookimpl
def label_protocol() -> dict[str, Any]:
    """Let MLX's functions read a label as the array that it holds."""
    return {"__mlx_array__": lambda label: mx.array(label.value)}


@hookimpl
def explain(value: Any) -> str:
    """Say what the graph tells."""
    if not answer.is_inexact(value):
        return f"dtype {value.dtype} has no derivative"
    found = answer.ask((value,))
    if found is True:
        return "the graph behind it leads back to what is differentiated"
    if found is False:
        return "the graph behind it leads back to nothing that is differentiated" + (
            f"; {ASK_PARAMETERS}" if trace.is_tracing() else ""
        )
    return "decided when vmap puts in the values; branch on it with adprotocol.cond"


@hookimpl
def divergences() -> Sequence[Divergence]:
    """List the declared divergences of MLX."""
    from adprotocol_mlx.divergence import DIVERGENCES

    return list(DIVERGENCES.values())


@hookimpl
def harness(device: str | None) -> Harness:
    """Return the conformance harness for MLX."""
    from adprotocol_mlx.harness import MlxHarness

    return MlxHarness(device)
