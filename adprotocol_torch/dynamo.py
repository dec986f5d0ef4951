"""`within_gradient` under ``torch.compile``: answered from the fake tensors while Dynamo traces.

Dynamo answers ``x.requires_grad`` from its record of the tensor at first sight,
which is wrong inside a compiled ``torch.func.grad``. But it traces with fake tensors
that pass through the real transformations, so `tracking` can check them like any
tensor. That needs a handler in Dynamo's own table. The table is private, and no
public hook sees the fake value and adds nothing to the graph.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, TypeVar

import torch

import adprotocol
from adprotocol.errors import UndecidableError
from adprotocol.tracing import (
    CustomDerivative,
    answer_at_once,
    attribute_names,
    identities_of,
    run_while_tracing,
    trace_instead,
)
from adprotocol_torch import attributes, checkpoints, internals, tracking
from adprotocol_torch.custom_rule import custom_rule as eager_rule
from adprotocol_torch.custom_rule import left_to_eager_code as run_eagerly
from adprotocol_torch.tensors import remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


F = TypeVar("F", bound="Callable[..., Any]")

_ANSWERED: list[Callable[..., Any]] = []


def _answered(function: F) -> F:
    """Let the handler of the function's name, in `dynamo_handlers`, answer while Dynamo traces.

    A function without a body is called by what Dynamo traces alone.
    """
    _ANSWERED.append(function)
    return function


@run_while_tracing
def install() -> None:
    """Register the handlers with Dynamo; runs during tracing, before they are needed."""
    if _ANSWERED:
        # Imported here: it takes a second, and only Dynamo itself comes this way.
        from adprotocol_torch import dynamo_handlers  # noqa: PLC0415

        dynamo_handlers.register(_ANSWERED)
        _ANSWERED.clear()


def mark() -> None:
    """Let Dynamo trace functions of this module in place of the eager ones."""
    trace_instead(within_gradient)(tracking.within_gradient)
    trace_instead(any_within_gradient)(tracking.any_within_gradient)
    trace_instead(known_answer)(answer_at_once)
    trace_instead(not_concrete)(tracking.is_concrete)
    trace_instead(names_of)(attribute_names)
    trace_instead(identities_in_graph)(identities_of)
    trace_instead(tensor_names_in_graph)(attributes.tensor_names)
    trace_instead(custom_rule)(eager_rule)
    # Where a graph has broken at a call with a rule, Dynamo would compile the frames of that call one by one.
    internals.skip(CustomDerivative.__call__)
    # And of a question, whose answer is then that of eager code.
    internals.skip(adprotocol.is_concrete)


# Where a graph breaks at a question, Dynamo calls this one, and the answer is that of eager mode.
@internals.skip
def within_gradient(value: torch.Tensor) -> bool:
    """Answer `within_gradient` in a function that Dynamo traces."""
    install()
    return _answer(ask_fake(value))


@internals.skip
def any_within_gradient(values: Sequence[torch.Tensor]) -> bool:
    """Answer for several tensors in a function that Dynamo traces."""
    return any(map(within_gradient, values))


def known_answer(values: tuple[Any, ...]) -> bool | None:
    """Answer for tensors and constants in lists, tuples and dicts; None if there is anything else."""
    install()
    answer = any_fake(values)
    return None if answer is None else _answer(answer)


# Why there is no answer, and the divergence that declares it.
_UNANSWERED = {
    "batched": (
        "vmap; the compiled graph cannot tell a batch that is tracked from one that is not",
        "compiled-inside-func",
    ),
    "dual": ("dual_level; the compiled graph cannot tell dual tensors from plain ones", "dual-level-around-compiled"),
}


def _answer(answer: Any) -> bool:
    if isinstance(answer, str):
        inside, divergence = _UNANSWERED[answer]
        raise UndecidableError(
            "within_gradient was asked in a function compiled by torch.compile and called inside "
            f"{inside}. {remedy(divergence)}"
        )
    # With a guard on it: the graph must not serve the first pass of a reentrant checkpoint.
    if not answer and checkpoints.FIRST_PASSES:
        checkpoints.refuse_first_pass()
    return bool(answer)


def not_concrete(value: torch.Tensor) -> bool:  # noqa: ARG001
    """Answer `is_concrete` for a tensor in a graph: to look at it breaks the graph."""
    return False


@run_while_tracing
def inside_transform() -> bool:
    """Return whether torch.func or a dual level is active during tracing; guard on it: a change retraces."""
    internals.guard_dual_level()
    return internals.in_transform()


@_answered
@internals.skip
def ask_fake(value: torch.Tensor) -> bool | str:
    """Return the answer in a traced function, or why there is none."""
    return tracking.within_gradient(value)


@_answered
@internals.skip
def any_fake(values: tuple[Any, ...]) -> bool | str | None:
    """Return `ask_fake` for all tensors in some values; None if these hold anything that Dynamo has to trace."""
    return any(tracking.within_gradient(value) for value in values)


def identities_in_graph(leaves: Sequence[Any], _bindings: Any) -> dict[int, Any]:
    """Return the keys of the parameters among some leaves: no other tensor stands for one in a graph."""
    return {i: id(leaves[i]) for i in range(len(leaves)) if isinstance(leaves[i], torch.nn.Parameter)}


def names_of(value: Any) -> Any:
    """Return the names in the ``__dict__`` of an instance, in a function that Dynamo traces."""
    install()
    return held_names(value)


# until torch 2.10: Dynamo does not trace ``__dict__``.
@_answered
def held_names(value: Any) -> Any:
    """Return the names in the ``__dict__`` of an instance."""


def tensor_names_in_graph(owner: torch.nn.Module) -> Any:
    """Return the names of the attributes of a module that are tensors, or hold some."""
    install()
    return held_tensors(owner)


@_answered
def held_tensors(owner: torch.nn.Module) -> Any:
    """Return those names for a module that Dynamo stands for, without a guard on what else it holds."""


@run_while_tracing
def selects() -> bool:
    """Return whether `select_if_differentiated` has found a branch that torch.cond gets wrong in this compilation."""
    return internals.compilation() in internals.SELECTING


@_answered
def select_if_differentiated(results: list[torch.Tensor]) -> None:
    """Trace again, with selects, if a branch of the staged cond with these results takes a gradient.

    The gradient would be zero: torch.cond runs its branches without autograd. So does
    a cond that is differentiated, where PyTorch has no whole derivative of torch.cond.
    """


@internals.skip
def custom_rule(rule: Any, arrays: list[torch.Tensor]) -> tuple[list[torch.Tensor], Any]:
    """Leave a call with a rule to eager code, in a function that Dynamo traces."""
    install()
    return left_to_eager_code(rule, arrays)  # type: ignore[no-any-return]


left_to_eager_code: Any = _answered(run_eagerly)


# What the branches of a staged cond return that a graph cannot hold, by branch. What is a constant, as it is, for a
# caller that Dynamo does not trace (torch.export without it); and, while Dynamo traces, as it stands for it.
_KEPT: dict[str, tuple[Any, Any]] = {}
_KEYS = itertools.count()


@_answered
def new_key() -> str:
    """Return a key for what a branch returns.

    A text, for where torch.cond calls Dynamo itself, this makes symbols of integers that change.
    """
    return str(next(_KEYS))


@_answered
def keep(key: str, value: Any, variable: Any = None) -> None:
    """Keep what a branch returns besides tensors, in tuples."""
    _KEPT[key] = (value, variable)


@_answered
def kept(key: str, *, in_graph: bool = False) -> Any:
    """Return what a branch returned besides tensors, and keep it no longer."""
    return _KEPT.pop(key)[in_graph]


@_answered
def has_stopped() -> Any:
    """Return whether the innermost jvp of a function that Dynamo traces has switched gradients off so far."""


@_answered
def sharing(tensors: list[torch.Tensor]) -> bool:
    """Return whether two of the tensors share memory."""
    return len(set(map(internals.memory_of, tensors))) < len(tensors)
