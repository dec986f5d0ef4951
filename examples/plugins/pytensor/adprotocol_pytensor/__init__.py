"""The adprotocol plugin for PyTensor.

A graph is built first and differentiated later, so every answer is staged: a boolean
scalar of the graph, which becomes True in the graph of a gradient for what that
gradient differentiates, and is False wherever the graph is evaluated as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytensor
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.gradient import pushforward
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import vectorize_graph

from adprotocol import NonDifferentiable
from adprotocol.hookspecs import hookimpl
from adprotocol_pytensor import interception, rewriting
from adprotocol_pytensor.arrays import ArrayFunctions, of_dtype, variable
from adprotocol_pytensor.branching import choose
from adprotocol_pytensor.ops import Answer, Prevent, apart, as_answer, is_continuous, stop, within_gradient_op
from adprotocol_pytensor.resolution import differentiated, substitute

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol.extend import Divergence
    from adprotocol_pytensor.harness import PyTensorHarness

    Function = Callable[[list[Any]], tuple[list[Any], list[Any]]]

__all__ = ["differentiated"]

interception.install()
rewriting.install()


@pt._as_tensor_variable.register(NonDifferentiable)
def _as_tensor_variable(label: NonDifferentiable[Any], *args: Any, **kwargs: Any) -> Any:
    return pt.as_tensor_variable(label.value, *args, **kwargs)


@hookimpl
def array_types() -> tuple[type, ...]:
    """Claim every variable: inputs, shared variables, constants and what is computed from them."""
    return (Variable,)


@hookimpl
def within_gradient(value: Any) -> Any:
    """Put the question into the graph; dtypes without a derivative are False."""
    return as_answer(within_gradient_op(value)) if is_continuous(value) else False


@hookimpl
def any_within_gradient(values: Sequence[Any]) -> Any:
    """Put one question for several values into the graph."""
    values = [value for value in values if is_continuous(value)]
    return as_answer(within_gradient_op(*values)) if values else False


@hookimpl
def non_differentiable(value: Any) -> Any:
    """Stop all derivatives, in a way that PyTensor's rewrites before a gradient keep."""
    return stop(value) if is_continuous(value) else value


@hookimpl
def prevent_gradient(value: Any, message: str) -> Any:
    """Guard the value; the error comes when a gradient is taken through it."""
    return Prevent(message)(value) if is_continuous(value) else value


@hookimpl
def is_concrete(value: Any) -> bool:  # noqa: ARG001
    """Answer False: an operation on any variable, a constant included, gives a variable without a value."""
    return False


@hookimpl
def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Choose now if the predicate is a constant, else put an `ifelse` into the graph."""
    return choose(pred, true_fun, false_fun, operands)


@hookimpl
def array_functions() -> type[ArrayFunctions]:
    """Return the functions of PyTensor in the words of the array API standard."""
    return ArrayFunctions


@hookimpl
def trainable(value: Any) -> bool | None:
    """Floats take gradients, a shared variable whose tag says ``trainable = False`` only if it is selected."""
    if not is_continuous(value):
        return None
    return bool(getattr(value.tag, "trainable", True)) if isinstance(value, SharedVariable) else True


@hookimpl
def identity(value: Any) -> int | None:
    """A shared variable is one leaf, however often a model holds it."""
    return id(value) if isinstance(value, SharedVariable) else None


@hookimpl
def vjp(
    fun: Function,
    leaves: list[Any],
    once: bool,  # noqa: FBT001
) -> tuple[list[Any], list[Any], Callable[[list[Any] | None], list[Any]]]:
    """Differentiate the graph of the function, and put the leaves in the place of its inputs."""
    built = _Built(fun, leaves)

    def gradients_of(cost: Any, known: dict[Any, Any] | None) -> list[Any]:
        gradients = pytensor.grad(cost, built.inputs, known_grads=known, disconnected_inputs="ignore")
        # PyTensor lets a gradient keep the dtype of the value.
        return [of_dtype(gradient, made) for gradient, made in zip(gradients, built.inputs, strict=True)]

    outputs, others, gradients = built.results(gradients_of(built.ends[0], None) if once else [])

    def pull(cotangents: list[Any] | None) -> list[Any]:
        if cotangents is None:
            return gradients
        # Apart, as one variable may be several outputs, or what another output is computed from.
        known = {apart(y): ct for y, ct in zip(built.ends, cotangents, strict=True) if ct is not None}
        if not known:
            return [pt.zeros_like(leaf) for leaf in built.given]
        return substitute(gradients_of(None, known), built.places)

    return outputs, others, pull


@hookimpl
def jvp(fun: Function, leaves: list[Any], tangents: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Push tangents through the graph of the function, and put the leaves in the place of its inputs."""
    built = _Built(fun, leaves)
    # Copies, for PyTensor pushes nothing through an output, to others that are computed from it.
    ends = [end.copy() for end in built.ends]
    moved = pushforward(ends, built.inputs, tangents, disconnected_outputs="ignore")
    return built.results([of_dtype(tangent, y) for tangent, y in zip(moved, built.ends, strict=True)])


@hookimpl
def vmap(fun: Callable[[list[Any]], list[Any]], arrays: list[Any], chunk_size: int | None) -> list[Any]:  # noqa: ARG001
    """Vectorize the graph of a row: no memory is taken before it is compiled."""
    rows = [array[0].type() for array in arrays]
    results = list(map(pt.as_tensor, fun(list(rows))))
    stacked = vectorize_graph(results, dict(zip(rows, arrays, strict=True)))
    return [
        new if new.type.ndim > old.type.ndim else pt.alloc(new, arrays[0].shape[0], *new.shape)
        for old, new in zip(results, stacked, strict=True)
    ]


class _Built:
    """The graph of a function, from new inputs.

    A shared variable stands for itself, so what the function reads by another reference counts.
    """

    def __init__(self, fun: Function, leaves: list[Any]) -> None:
        self.given = list(map(variable, leaves))
        self.inputs = [leaf if isinstance(leaf, SharedVariable) else leaf.type() for leaf in self.given]
        outputs, others = fun(self.inputs)
        inner = differentiated([*map(variable, outputs), *others], self.inputs)
        self.ends, self.found = inner[: len(outputs)], inner[len(outputs) :]
        self.places = {made: leaf for made, leaf in zip(self.inputs, self.given, strict=True) if made is not leaf}

    def results(self, derivatives: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Return outputs, others and derivatives with the leaves in the place of the inputs."""
        count, more = len(self.ends), len(derivatives)
        results = substitute([*self.ends, *derivatives, *self.found], self.places)
        return results[:count], results[count + more :], results[count : count + more]


@hookimpl
def explain(value: Any) -> str:
    """Say when the answer is known."""
    if not is_continuous(value):
        return f"{value.type} has no derivative"
    if isinstance(value, Answer):
        return "an answer of within_gradient"
    kind = "constant" if isinstance(value, Constant) else "graph"
    return f"decided when a gradient of this {kind} is taken; branch on it with adprotocol.cond"


@hookimpl
def divergences() -> Sequence[Divergence]:
    """List what PyTensor does not allow to be done right."""
    from adprotocol_pytensor.divergence import DIVERGENCES

    return list(DIVERGENCES.values())


@hookimpl
def harness(device: str | None) -> PyTensorHarness:
    """Give the conformance suite what it needs."""
    from adprotocol_pytensor.harness import PyTensorHarness

    return PyTensorHarness(device)
