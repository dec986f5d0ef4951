"""`within_gradient` under ``torch.compile``: answered from the fake tensors while Dynamo traces.

Dynamo answers ``x.requires_grad`` from its record of the tensor at first sight,
which is wrong inside a compiled ``torch.func.grad``. But it traces with fake tensors
that pass through the real transformations, so `tracking` can check them like any
tensor. That needs a handler in Dynamo's own table. The table is private, and no
public hook sees the fake value and adds nothing to the graph. Tried with PyTorch
2.13.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch

from adprotocol.errors import UndecidableError
from adprotocol.extend import run_while_tracing, trace_instead
from adprotocol_torch import internals, tracking

if TYPE_CHECKING:
    from collections.abc import Callable

_INSTALLED = False


def mark() -> None:
    """Let Dynamo trace `within_gradient` of this module in place of the eager one."""
    trace_instead(within_gradient)(tracking.within_gradient)


def within_gradient(value: torch.Tensor) -> bool:
    """Answer `within_gradient` in a function that Dynamo traces."""
    install()
    answer = ask_fake(value)
    if answer is None:
        from adprotocol_torch.divergence import DUAL_LEVEL  # noqa: PLC0415  (for the message only)

        msg = (
            "within_gradient was asked in a function compiled by torch.compile and called inside "
            "torch.autograd.forward_ad.dual_level; the compiled graph cannot tell dual tensors from plain ones. "
            f"{DUAL_LEVEL.remedy}"
        )
        raise UndecidableError(msg)
    return answer


@run_while_tracing
def inside_transform() -> bool:
    """Tell whether torch.func or a dual level is active during tracing; guard on it, so that a change traces again."""
    # Imported here as in `install`.
    from torch._dynamo.guards import install_guard  # noqa: PLC0415
    from torch._dynamo.variables.ctx_manager import DualLevelContextManager  # noqa: PLC0415
    from torch._guards import TracingContext  # noqa: PLC0415

    if TracingContext.try_get() is not None:  # Dynamo's; export without it has none
        install_guard(DualLevelContextManager._guards_singleton)  # noqa: SLF001
    return internals.functorch_is_active() or internals.forward_ad._current_level >= 0  # noqa: SLF001


def ask_fake(value: torch.Tensor) -> bool | None:
    """Check a tensor in a traced function, where `install` registers Dynamo's handler for it."""
    return tracking.within_gradient(value)


def unused_operands(results: list[torch.Tensor], operands: list[torch.Tensor]) -> list[int]:
    """Placeholder for the search in a traced function; `install` registers Dynamo's handler for it."""
    msg = "unused_operands is answered by Dynamo's handler only"
    raise NotImplementedError(msg)


def sharing(tensors: list[torch.Tensor]) -> list[int]:
    """Return the positions of the tensors that share memory with an earlier one.

    In a traced function `install` registers Dynamo's handler for it.
    """
    seen: set[int] = set()
    found = []
    for i, tensor in enumerate(tensors):
        if tensor.layout is torch.strided and not tensor.is_nested:
            memory = tensor.untyped_storage()._cdata  # noqa: SLF001
            if memory in seen:
                found.append(i)
            seen.add(memory)
    return found


# Per branch of a staged cond, the constants in its result that a graph cannot hold, by place.
_NOTES: dict[int, dict[int, Any]] = {}
_KEYS = itertools.count()


def new_notes() -> int:
    """Start to record the constants of a branch; this and the next two functions run during tracing."""
    key = next(_KEYS)
    _NOTES[key] = {}
    return key


def note(key: int, place: int, constant: Any) -> None:
    """Record the constant that a branch returns at a place."""
    _NOTES[key][place] = constant


def taken_notes(key: int) -> list[tuple[int, Any]]:
    """Return the constants recorded for a branch, and drop the record."""
    return sorted(_NOTES.pop(key).items())


@run_while_tracing
def install() -> None:
    """Register the handlers with Dynamo; runs during tracing, before they are needed."""
    global _INSTALLED  # noqa: PLW0603
    if _INSTALLED:
        return
    # Imported here: it takes a second, and only Dynamo reaches this line.
    from torch._dynamo.guards import install_guard  # noqa: PLC0415
    from torch._dynamo.variables import ConstantVariable  # noqa: PLC0415
    from torch._dynamo.variables.builder import SourcelessBuilder  # noqa: PLC0415
    from torch._dynamo.variables.ctx_manager import DualLevelContextManager  # noqa: PLC0415
    from torch._dynamo.variables.torch import TorchInGraphFunctionVariable  # noqa: PLC0415

    def answer(_self: Any, tx: Any, value: Any) -> Any:
        # The dual level around the compiled function can be guarded. The dual part of
        # an input cannot, and the fake tensor does not have it.
        install_guard(DualLevelContextManager._guards_singleton)  # noqa: SLF001
        if tx.output.dual_level >= 0:
            return ConstantVariable.create(None)
        return ConstantVariable.create(tracking.within_gradient(_node(value).meta["example_value"]))

    def unused(_self: Any, tx: Any, results: Any, operands: Any) -> Any:
        found = _unused([_node(item) for item in results.items], [_node(item) for item in operands.items])
        return SourcelessBuilder.create(tx, found)

    def shared(_self: Any, tx: Any, tensors: Any) -> Any:
        return SourcelessBuilder.create(tx, sharing([_node(item).meta["example_value"] for item in tensors.items]))

    def run(function: Callable[..., Any]) -> Callable[..., Any]:
        def handler(_self: Any, tx: Any, *arguments: Any) -> Any:
            return SourcelessBuilder.create(tx, function(*(argument.as_python_constant() for argument in arguments)))

        return handler

    handlers = TorchInGraphFunctionVariable._get_handlers()  # noqa: SLF001
    for function, handler in (
        (ask_fake, answer),
        (unused_operands, unused),
        (sharing, shared),
        (new_notes, run(new_notes)),
        (note, run(note)),
        (taken_notes, run(taken_notes)),
    ):
        torch.compiler.allow_in_graph(function)  # type: ignore[no-untyped-call]
        handlers[function] = handler
    _INSTALLED = True


def _node(value: Any) -> Any:
    return value.as_proxy().node


def _unused(results: list[Any], operands: list[Any]) -> list[int]:
    """Return the positions of the operands from which no derivative flows into the results."""
    seen: set[Any] = set()
    stack = list(results)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node not in operands:
            stack.extend(parent for parent in node.all_input_nodes if _carries(parent))
    return [i for i, node in enumerate(operands) if node not in seen]


def _carries(node: Any) -> bool:
    value = node.meta.get("example_value")
    return not isinstance(value, torch.Tensor) or tracking.within_gradient(value)
