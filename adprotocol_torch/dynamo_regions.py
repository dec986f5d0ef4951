"""Questions in the bodies of PyTorch's higher-order operators, which Dynamo traces once for several runs.

- In a loop (scan, while_loop, associative_scan) the tensors of the first step decide, though what is carried on may be
  tracked from the second step on. Whether it is shows at the end of the body. Then the first step of a scan is traced
  alone; elsewhere such a False is an error.
- The score of flex_attention has the flag of the query alone; it gets that of the key too.
- A nested compile region is used again for tensors of equal metadata. One that asks is traced for each call.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch._dynamo.exc import UnspecializeRestartAnalysis
from torch._dynamo.variables import higher_order_ops
from torch._dynamo.variables.functions import UserFunctionVariable

from adprotocol.errors import UndecidableError
from adprotocol_torch import fx_graph, internals, tracking
from adprotocol_torch.divergence import remedy
from adprotocol_torch.internals import pytree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# For each operator the class by which Dynamo calls it, and the places of its body and of what it carries.
_LOOPS = {
    "scan": ("ScanHigherOrderVariable", 0, 1),
    "while_loop": ("WhileLoopHigherOrderVariable", 1, 2),
    "associative_scan": ("AssociativeScanHigherOrderVariable", 0, 1),
}
_ATTENTION = "flex_attention"

# For each operator under way whose call is watched, the positions of inputs on which a False depends.
_WATCHED: list[set[int]] = []


def watch() -> None:
    """Let Dynamo call these operators by what watches them."""
    for name, _, _ in _LOOPS.values():
        _wrap(getattr(higher_order_ops, name, None), _call_loop)
    _wrap(getattr(higher_order_ops, "FlexAttentionHigherOrderVariable", None), _call_attention)
    internals.refuse_reuse(_has_question)


def _wrap(cls: Any, call: Callable[..., Any]) -> None:
    if cls is not None:
        name = "_call_function" if "_call_function" in vars(cls) else "call_function"
        setattr(cls, name, functools.partialmethod(call, vars(cls)[name]))


def note(tx: Any, node: Any, *, answer: bool) -> None:
    """Note a question about a node."""
    tracers = list(_around(tx.output.current_tracer))
    for tracer in tracers:
        # By this mark a region is known to ask.
        sources: Any = getattr(tracer, "traced_sources", set())
        sources.add(_QUESTION)
    loops = [tracer for tracer in tracers if _name(tracer) in {*_LOOPS, _ATTENTION}]
    if answer or not loops:
        return
    if len(loops) > len(_WATCHED):
        # Dynamo was called before the operators were watched.
        raise UnspecializeRestartAnalysis(restart_reason="a question of adprotocol inside a higher-order operator")
    for tracer, positions in zip(loops, reversed(_WATCHED), strict=False):
        positions.update(fx_graph.inputs_of(tx.output.current_tracer, node, tracer))


class _Question:
    """Mark, among the sources that a region reads, that it asks."""

    name = "adprotocol"


_QUESTION = _Question()


def _has_question(sources: Any) -> bool:
    found = _QUESTION in (sources or ())
    if found:
        sources.discard(_QUESTION)
    return found


def _around(tracer: Any) -> Iterator[Any]:
    while tracer is not None:
        yield tracer
        tracer = tracer.parent


def _name(tracer: Any) -> str:
    # Before 2.7 a tracer does not know its operator.
    return str(getattr(getattr(tracer, "source_target", None), "__name__", ""))


def _call_loop(self: Any, call: Callable[..., Any], tx: Any, args: Any, kwargs: Any) -> Any:
    positions: set[int] = set()
    _WATCHED.append(positions)
    try:
        result = call(self, tx, args, kwargs)
    finally:
        _WATCHED.pop()
    if positions:
        node = next(node for node in reversed(tx.output.graph.nodes) if node.target is self.value)
        _, body, carried = _LOOPS[self.value.__name__]
        graph = tx.output.nn_modules[node.args[body].target].graph
        later = fx_graph.tracked_later(graph, len(node.args[carried]))
        if later & positions:
            if self.value.__name__ == "scan":
                first: Any = _first_step_alone
                return UserFunctionVariable(first).call_function(tx, list(args), kwargs)
            msg = (
                f"within_gradient was asked in the body of {self.value.__name__} about a tensor that is not tracked in "
                "the first step, and is in the next: PyTorch traces the body once, with the answer of the first. "
                f"{remedy('carried-later')}"
            )
            raise UndecidableError(msg)
    return result


def _first_step_alone(combine_fn: Any, init: Any, xs: Any, additional_inputs: Any) -> Any:
    """Run the first step of a scan before the others; traced by Dynamo, in place of the scan."""
    carry, first = combine_fn(*init, *[x[0] for x in xs], *additional_inputs)
    if xs[0].shape[0] == 1:
        return carry, pytree.tree_map(lambda one: one.unsqueeze(0), first)
    later = [x[1:] for x in xs]
    carry, rest = torch.ops.higher_order.scan(
        combine_fn, pytree.tree_leaves(carry), later, additional_inputs=additional_inputs
    )
    return carry, pytree.tree_map(lambda one, others: torch.cat([one.unsqueeze(0), others]), first, rest)


def _call_attention(self: Any, call: Callable[..., Any], tx: Any, args: Any, kwargs: Any) -> Any:
    query, key = (variable.realize() for variable in args[:2])
    before = query.requires_grad
    query.requires_grad = before or key.requires_grad
    _WATCHED.append(set())
    try:
        return call(self, tx, args, kwargs)
    finally:
        query.requires_grad = before
        _WATCHED.pop()


def ask(tx: Any, node: Any) -> bool:
    """Answer for a node of the graph under way."""
    answer = tracking.within_gradient(node.meta["example_value"])
    note(tx, node, answer=answer)
    return answer
