"""The hook `vjp` on tinygrad: fresh nodes in the place of the leaves, and one `Tensor.gradient`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinygrad import Tensor
from tinygrad.uop.ops import Ops

from adprotocol.errors import UndecidableError
from adprotocol.hookspecs import hookimpl
from adprotocol_tinygrad import graph, realisation
from adprotocol_tinygrad.arrays import ArrayFunctions, with_storage

if TYPE_CHECKING:
    from collections.abc import Callable

    Function = Callable[[list[Any]], tuple[list[Any], list[Any]]]

_CUT = (
    "adprotocol.grad was given a function that computes a tensor at once (realize, a TinyJit, or reading a result of "
    "contiguous or clone): tinygrad then forgets what it was computed from, and the derivative would be zero without a "
    "word. Take this out of the function, or put the whole gradient into the TinyJit"
)

_ASSIGNED = (
    "pull was called after the value had been computed (numpy, item or realize), and the function assigns to a tensor: "
    "tinygrad would assign again. Call pull before you read the value, or compute a new tensor in place of assign"
)


@hookimpl
def trainable(value: Any) -> bool | None:
    """Floats take gradients, unless the flag `is_param` is off; integers and booleans never do."""
    return value.is_param if value.is_floating_point() else None


@hookimpl
def identity(value: Any) -> int | None:
    """A variable is one leaf, however often a model holds it; the result of an operation is no variable."""
    return id(value) if graph.is_source(value) else None


@hookimpl
def freeze(value: Any) -> Any:
    """Put a constant in the place of a variable, with the class and the attributes that a model reads."""
    constant = value.detach()
    constant.__class__ = type(value)
    vars(constant).update({name: held for name, held in vars(value).items() if name not in vars(constant)})
    return constant


@hookimpl
def vjp(
    fun: Function,
    leaves: list[Any],
    once: bool,  # noqa: FBT001
) -> tuple[list[Any], list[Any], Callable[[list[Any] | None], list[Any]]]:
    """Differentiate with respect to the leaves, and nothing else."""
    fresh = [graph.fresh(with_storage(leaf)) for leaf in leaves]
    arguments, numbers = [argument for argument, _ in fresh], {number for _, number in fresh}

    def gradients_of(value: Any) -> list[Tensor]:
        """Return the gradients of a scalar."""
        if not isinstance(value, Tensor) or not graph.carries_floats(value):
            return [ArrayFunctions.as_like(None, argument) for argument in arguments]
        found = Tensor(graph.inlined(value.uop, numbers)).gradient(*arguments)
        return [
            gradient if gradient.device is not None else gradient.clone(device=argument.device)
            for gradient, argument in zip(found, arguments, strict=True)
        ]

    graph.numbers.update(numbers)
    try:
        # Others with the same nodes, as the function may assign to what it is given.
        outputs, others = fun([Tensor(argument.uop) for argument in arguments])
        for y in outputs:
            if isinstance(y, Tensor) and not realisation.numbers_cut(y.uop).isdisjoint(numbers):
                raise UndecidableError(_CUT)
        gradients = gradients_of(outputs[0]) if once else []
    finally:
        graph.numbers.difference_update(numbers)
    # Graphs as they are now: a tensor that is computed before the pull leads to its buffer from then on.
    nodes = [y.uop if isinstance(y, Tensor) else None for y in outputs]

    def pull(cotangents: list[Any] | None) -> list[Any]:
        if cotangents is None:
            return gradients
        terms = []
        for y, node, ct in zip(outputs, nodes, cotangents, strict=True):
            if ct is not None and node is not None:
                if y.uop is not node and any(part.op is Ops.STORE for part in node.toposort()):
                    raise UndecidableError(_ASSIGNED)
                terms.append((Tensor(node) * ct).sum())
        graph.numbers.update(numbers)
        try:
            return gradients_of(sum(terms[1:], terms[0]) if terms else None)
        finally:
            graph.numbers.difference_update(numbers)

    return outputs, others, pull
