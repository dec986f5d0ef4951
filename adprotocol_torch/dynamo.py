"""`within_gradient` under ``torch.compile``: answered from the fake tensors while Dynamo traces.

Dynamo answers ``x.requires_grad`` from its record of the tensor at first sight,
which is wrong inside a compiled ``torch.func.grad``. But it traces with fake tensors
that pass through the real transformations, so `tracking` can check them like any
tensor. That needs a handler in Dynamo's own table. The table is private, and no
public hook sees the fake value and adds nothing to the graph.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import torch

from adprotocol.errors import UndecidableError
from adprotocol.extend import attribute_names, run_while_tracing, trace_instead
from adprotocol_torch import closure_search, fx_graph, internals, tracking
from adprotocol_torch.fx_graph import node_of

_INSTALLED = False


def mark() -> None:
    """Let Dynamo trace functions of this module in place of the eager ones."""
    trace_instead(within_gradient)(tracking.within_gradient)
    trace_instead(names_of)(attribute_names)


# Where a graph breaks at a question, Dynamo calls this one, before 2.7 too: then the answer is that of eager mode.
@internals.skip
def within_gradient(value: torch.Tensor) -> bool:
    """Answer `within_gradient` in a function that Dynamo traces."""
    install()
    answer = ask_fake(value)
    if answer == "batched":
        from adprotocol_torch.divergence import COMPILED_INSIDE_FUNC  # noqa: PLC0415  (for the message only)

        msg = (
            "within_gradient was asked in a function compiled by torch.compile and called inside torch.func.vmap; the "
            "compiled graph cannot tell a batch that is tracked from one that is not. "
            f"{COMPILED_INSIDE_FUNC.remedy}"
        )
        raise UndecidableError(msg)
    if answer == "dual":
        from adprotocol_torch.divergence import DUAL_LEVEL  # noqa: PLC0415  (for the message only)

        msg = (
            "within_gradient was asked in a function compiled by torch.compile and called inside "
            "torch.autograd.forward_ad.dual_level; the compiled graph cannot tell dual tensors from plain ones. "
            f"{DUAL_LEVEL.remedy}"
        )
        raise UndecidableError(msg)
    return answer  # type: ignore[return-value]  # a bool is left


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


@internals.skip
def ask_fake(value: torch.Tensor) -> bool | str:
    """Stand for the question in a traced function; `install` gives Dynamo the answer, or why there is none."""
    return tracking.within_gradient(value)


@run_while_tracing
def _iterates_over_attributes() -> bool:
    return internals.iterates_over_attributes()


def names_of(value: Any) -> Any:
    """Return the names in the ``__dict__`` of an instance, in a function that Dynamo traces."""
    if _iterates_over_attributes():
        return getattr(value, "__dict__", ())
    install()
    return held_names(value)


def held_names(value: Any) -> list[str]:
    """Stand for the names in a traced function; `install` gives Dynamo the answer."""
    msg = "held_names is answered by Dynamo's handler only"
    raise NotImplementedError(msg)


def unused_operands(results: list[torch.Tensor], operands: list[torch.Tensor]) -> list[int]:
    """Placeholder for the search in a traced function; `install` registers Dynamo's handler for it."""
    msg = "unused_operands is answered by Dynamo's handler only"
    raise NotImplementedError(msg)


def are_reached(value: torch.Tensor, held: list[torch.Tensor], tracked: list[torch.Tensor]) -> bool:
    """Stand for the search in a traced function; `install` gives Dynamo the answer."""
    msg = "are_reached is answered by Dynamo's handler only"
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


def hidden_part(module: torch.nn.Module) -> str | None:
    """Describe what hides a reference to a part of a module.

    In a traced function `install` registers Dynamo's handler for it.
    """
    return closure_search.find(module)


# The compilations in which a branch of a staged cond takes a gradient: their contexts, which last while Dynamo starts
# over (their numbers are used again after a reset).
_SELECTING: weakref.WeakSet[Any] = weakref.WeakSet()


@run_while_tracing
def selects() -> bool:
    """Tell whether `select_if_differentiated` has found a branch that torch.cond gets wrong in this compilation."""
    return _compilation() in _SELECTING


def _compilation() -> Any:
    from torch._guards import CompileContext  # noqa: PLC0415  (as in `install`)

    return CompileContext.try_get()  # None where nothing but export traces


def select_if_differentiated(results: list[torch.Tensor]) -> None:
    """Trace anew, with selects, if a branch of the staged cond with these results takes a gradient.

    The gradient would be zero: torch.cond runs its branches without autograd. So does
    a cond that is differentiated, where PyTorch has no whole derivative of torch.cond.
    In a traced function `install` gives Dynamo the answer.
    """


# What the branches of a staged cond return that a graph cannot hold, by branch. While Dynamo traces, as it stands for
# it; what is a constant, as it is, for a caller that Dynamo does not trace (torch.export without it).
_KEPT: dict[int, tuple[Any, Any]] = {}
_KEYS = itertools.count()


def new_key() -> int:
    """Return a key for what a branch returns; this and the next two functions run during tracing."""
    return next(_KEYS)


def keep(key: int, value: Any) -> None:
    """Keep what a branch returns besides tensors, in tuples."""
    _KEPT[key] = (None, value)


def kept(key: int) -> Any:
    """Return what a branch returned besides tensors, and keep it no longer."""
    return _KEPT.pop(key)[1]


@run_while_tracing
def install() -> None:
    """Register the handlers with Dynamo; runs during tracing, before they are needed."""
    global _INSTALLED  # noqa: PLW0603
    if _INSTALLED:
        return
    # Imported here: it takes a second, and only Dynamo itself comes this way.
    from torch._dynamo.exc import UnspecializeRestartAnalysis, Unsupported  # noqa: PLC0415
    from torch._dynamo.guards import install_guard  # noqa: PLC0415
    from torch._dynamo.variables import ConstantVariable  # noqa: PLC0415
    from torch._dynamo.variables.builder import SourcelessBuilder  # noqa: PLC0415
    from torch._dynamo.variables.ctx_manager import DualLevelContextManager  # noqa: PLC0415
    from torch._dynamo.variables.torch import TorchInGraphFunctionVariable  # noqa: PLC0415

    def answer(_self: Any, tx: Any, value: Any) -> Any:
        # The dual level around the compiled function can be guarded. The dual part of
        # an input cannot, and the fake tensor does not have it.
        install_guard(DualLevelContextManager._guards_singleton)  # noqa: SLF001
        dual_level, layers = internals.levels_around(tx.output)
        if dual_level >= 0:
            return ConstantVariable.create("dual")
        # Nor are the levels below the batch of an input, and no guard compares them.
        if any(layer.key() == internals.Transform.Vmap for layer in layers):
            return ConstantVariable.create("batched")
        return ConstantVariable.create(tracking.within_gradient(node_of(value).meta["example_value"]))

    def unused(_self: Any, tx: Any, results: Any, operands: Any) -> Any:
        nodes = [node_of(item) for item in operands.items]
        found = fx_graph.unused([node_of(item) for item in results.items], nodes)
        # torch.func itself gives zeros.
        found = [i for i in found if tracking.is_on_tape(nodes[i].meta["example_value"])]
        return SourcelessBuilder.create(tx, found)

    def reached(_self: Any, _tx: Any, value: Any, held: Any, tracked: Any) -> Any:
        tensors = [node_of(item).meta["example_value"] for item in held.items]
        return ConstantVariable.create(
            fx_graph.are_reached(node_of(value), tensors, [node_of(item) for item in tracked.items])
        )

    def selecting(_self: Any, tx: Any, results: Any) -> Any:
        modules = tx.output.nn_modules
        conds = {node for item in results.items for node in node_of(item).all_input_nodes}
        refused = not internals.differentiates_cond() and any(map(fx_graph.is_tracked, conds))
        if refused or any(fx_graph.takes_gradient(cond, modules) for cond in conds):
            _SELECTING.add(_compilation())
            # By which Dynamo itself starts over, with nothing kept of the first attempt.
            raise UnspecializeRestartAnalysis(restart_reason="a gradient inside a branch of adprotocol.cond")
        return ConstantVariable.create(None)

    def shared(_self: Any, tx: Any, tensors: Any) -> Any:
        return SourcelessBuilder.create(tx, sharing([node_of(item).meta["example_value"] for item in tensors.items]))

    def hides(_self: Any, _tx: Any, module: Any) -> Any:
        # A module that the function itself makes is a copy of one that was searched.
        given = module.value
        return ConstantVariable.create(closure_search.find(given) if "_modules" in vars(given) else None)

    def names(_self: Any, tx: Any, value: Any) -> Any:
        return SourcelessBuilder.create(tx, internals.attribute_names(tx, value))

    def key(_self: Any, _tx: Any) -> Any:
        return ConstantVariable.create(new_key())

    def keeping(_self: Any, _tx: Any, place: Any, value: Any) -> Any:
        try:
            constant = value.as_python_constant()
        except (NotImplementedError, Unsupported):
            constant = None
        _KEPT[place.as_python_constant()] = (value, constant)
        return ConstantVariable.create(None)

    def taking(_self: Any, _tx: Any, place: Any) -> Any:
        return _KEPT.pop(place.as_python_constant())[0]

    handlers = TorchInGraphFunctionVariable._get_handlers()  # noqa: SLF001
    for function, handler in (
        (ask_fake, answer),
        (unused_operands, unused),
        (are_reached, reached),
        (select_if_differentiated, selecting),
        (sharing, shared),
        (hidden_part, hides),
        (held_names, names),
        (new_key, key),
        (keep, keeping),
        (kept, taking),
    ):
        torch.compiler.allow_in_graph(function)  # type: ignore[no-untyped-call]
        handlers[function] = handler
    _INSTALLED = True
