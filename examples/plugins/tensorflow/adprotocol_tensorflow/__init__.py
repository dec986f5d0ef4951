"""The adprotocol plugin for TensorFlow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from adprotocol.extend import ASK_PARAMETERS, gradient_prevented
from adprotocol.hookspecs import TreeLibrary, hookimpl
from adprotocol_tensorflow import branch, functions, module, recording, staging, structure
from adprotocol_tensorflow.arrays import ArrayFunctions
from adprotocol_tensorflow.composite import COMPOSITE
from adprotocol_tensorflow.gradient import jvp, vjp, vmap
from adprotocol_tensorflow.rules import custom_rule, host_call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from adprotocol.extend import Divergence
    from adprotocol.hookspecs import View
    from adprotocol_tensorflow.harness import TensorFlowHarness


@hookimpl
def array_types() -> tuple[type, ...]:
    """Claim tensors of all kinds, and variables."""
    return (tf.Tensor, tf.Variable, *COMPOSITE)


def _parts(values: Sequence[Any]) -> list[Any]:
    """Return tensors and variables that can carry a derivative."""
    found = []
    for value in values:
        parts = tf.nest.flatten(value, expand_composites=True) if isinstance(value, COMPOSITE) else [value]
        found += [part for part in parts if _is_inexact(part) or part.dtype in (tf.resource, tf.variant)]
    return found


def _is_inexact(value: Any) -> bool:
    return value.dtype.is_floating or value.dtype.is_complex


def _answer(values: Sequence[Any]) -> Any:
    parts = _parts(values)
    if not parts:
        return False
    if tf.executing_eagerly():
        return any(recording.eager(part) for part in parts)
    return staging.ask(parts)


@hookimpl
def within_gradient(value: Any) -> Any:
    """Ask what is open; in a traced function the answer is given in each call."""
    return _answer([value])


@hookimpl
def any_within_gradient(values: Sequence[Any]) -> Any:
    """Ask about several values with one input of the traced function."""
    return _answer(values)


@hookimpl
def non_differentiable(value: Any) -> Any:
    """Stop the derivative; of a variable, read it."""
    if isinstance(value, COMPOSITE):
        return tf.nest.map_structure(non_differentiable, value, expand_composites=True)
    if isinstance(value, tf.Variable):
        value = value.read_value()
    if not _is_inexact(value):
        return value
    if not tf.executing_eagerly():
        staging.note_constant()
    return tf.stop_gradient(value)


@hookimpl
def prevent_gradient(value: Any, message: str) -> Any:
    """Raise now, or in the call of the traced function that differentiates the value."""

    def error() -> Exception:
        return gradient_prevented(value, message, "tensorflow: a tape or forward accumulator follows it")

    parts = _parts([value])
    if parts and tf.executing_eagerly() and _answer([value]):
        raise error()
    if not tf.executing_eagerly():
        for part in parts:
            staging.guard(part, error)
    return value


@hookimpl
def is_concrete(value: Any) -> bool:
    """Answer False for symbolic tensors, and in a traced function for all: what is computed there is symbolic."""
    parts = tf.nest.flatten(value, expand_composites=True) if isinstance(value, COMPOSITE) else [value]
    return tf.executing_eagerly() and not any(map(tf.is_symbolic_tensor, parts))


@hookimpl
def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Branch in Python where the predicate is known, else by `tf.cond`."""
    return branch.cond(pred, true_fun, false_fun, operands)


@hookimpl
def array_functions() -> type[ArrayFunctions]:
    """Return the functions of TensorFlow in the words of the array API standard."""
    return ArrayFunctions


@hookimpl
def trainable(value: Any) -> bool | None:
    """Floats take gradients, a variable only if its flag says so; integers never do."""
    if not _is_inexact(value):
        return None
    return bool(value.trainable) if isinstance(value, tf.Variable) else True


@hookimpl
def identity(value: Any) -> Any:
    """A variable is one leaf, however often a model holds it."""
    return value.ref() if isinstance(value, tf.Variable) else None


@hookimpl
def tree_library() -> TreeLibrary:
    """Take apart what `tf.nest`, and with it `tf.function`, takes apart by the methods of the class, and give them."""
    return TreeLibrary(structure.node, register=structure.register)


@hookimpl
def views() -> Mapping[type, Callable[[Any], View]]:
    """Show the variables of a module, which is no container."""
    return {tf.Module: module.view}


@hookimpl
def label_protocol() -> Mapping[str, Any]:
    """Let labels in where tensors are."""
    return structure.label_protocol()


@hookimpl
def explain(value: Any) -> str:
    """Say what decides."""
    if not _parts([value]):
        return f"dtype {value.dtype.name} has no derivative"
    if not tf.executing_eagerly():
        return "decided in each call of the function that is being traced; branch on it with adprotocol.cond"
    if recording.eager(value):
        return "a tape or forward accumulator follows it"
    if recording.is_stopped():
        return "TensorFlow has stopped all recording here"
    return "no open tape or forward accumulator follows it" + (f"; {ASK_PARAMETERS}" if recording.recorders() else "")


@hookimpl
def divergences() -> Sequence[Divergence]:
    """List what TensorFlow does not allow to be done right."""
    from adprotocol_tensorflow.divergence import DIVERGENCES

    return list(DIVERGENCES.values())


@hookimpl
def harness(device: str | None) -> TensorFlowHarness:
    """Give the conformance suite what it needs."""
    from adprotocol_tensorflow.harness import TensorFlowHarness

    return TensorFlowHarness(device)


recording.install()
staging.install(_answer)
functions.install()
