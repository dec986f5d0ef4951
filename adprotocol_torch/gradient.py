"""Value and gradient with PyTorch: the autograd engine in eager mode, torch.func in transformations and graphs.

The engine saves and computes what the hand-written ``torch.autograd.grad`` does
and no more. torch.func always builds the graph of the gradient as well, so it
serves only where the engine cannot: inside a transformation of torch.func,
where tensors are dual, and in a graph that Dynamo traces.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass  # the documented place of it

from adprotocol.errors import OutputError, SelectionError, UndecidableError, full_kind_of
from adprotocol.extend import check_output, combine_aux, map_aux, partition_aux
from adprotocol.hookspecs import hookimpl
from adprotocol_torch import aliases, autograd_graph, backward, distributed, dynamo, parameters
from adprotocol_torch.internals import (
    forward_ad,
    functorch_is_active,
    get_gradient_edge,
    never_compile,
    next_sequence_number,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class _Call:
    """One call of `value_and_grad`, to which its leaves refer; once it is over, nothing needs their gradient."""

    __slots__ = ("is_over",)

    def __init__(self) -> None:
        self.is_over = False


@hookimpl
def value_and_grad(fun: Callable[[list[Any]], tuple[Any, Any]], leaves: list[Any]) -> tuple[Any, Any, list[Any]]:
    """Return the value of ``fun(leaves)``, its auxiliary output, and the gradient for each leaf."""
    tensors = [_tensor(leaf) for leaf in leaves]
    if torch.compiler.is_dynamo_compiling() or functorch_is_active() or forward_ad._current_level >= 0:  # noqa: SLF001
        return _by_functorch(fun, tensors)
    return _by_engine(fun, tensors)


# Dynamo would compile it as a function of its own where a graph broke around it.
@never_compile
def _by_engine(fun: Callable[[list[Any]], tuple[Any, Any]], tensors: list[torch.Tensor]) -> tuple[Any, Any, list[Any]]:
    differentiable = torch.is_grad_enabled()
    call = _Call()
    undo: list[Callable[[], None]] = []
    try:
        with torch.inference_mode(mode=False), torch.enable_grad():
            undo.append(distributed.guard(tensors))
            undo.append(parameters.lift(tensors))
            tracked = [_tracked(tensor, call, differentiable=differentiable) for tensor in tensors]
            undo.append(parameters.enter(tensors, tracked))
            # A function that changes a copy in place changes what the name stands for, not what was given.
            inputs = [tensor if tensor.is_leaf else get_gradient_edge(tensor) for tensor in tracked]
            has_history = any(map(aliases.has_history, tracked))
            start = next_sequence_number()
            value, aux = fun(tracked)
            check_output(value, value)
            if not isinstance(value, torch.Tensor):
                _refuse_number(value, start)
            # The results must be differentiable themselves if anything outside this call
            # may need it: a leaf with a history, or something closed over.
            again = differentiable and _reaches_others(_tracked_results(value, aux), tracked)
            if isinstance(value, torch.Tensor) and value.requires_grad:
                is_compiled = _refuse_second_derivative(value)
                if has_history:
                    aliases.refuse_history(value, tracked, start)
                others = aliases.held_elsewhere(value, tensors, tracked, inputs, start)
                is_other = _others(tracked) if differentiable and not again else None
                one = torch.ones_like(value)
                if again and is_compiled:
                    # The derivative of a compiled function is no constant, though its node may be connected to this
                    # alone: before 2.13 PyTorch leaves the node out where all that it computes with is constant.
                    one.requires_grad_()
                    one._adprotocol_call = call  # type: ignore[attr-defined]  # noqa: SLF001
                found = backward.gradients(value, one, [*inputs, *others.values()], again=again, is_other=is_other)
                for i, more in zip(others, found[len(inputs) :], strict=True):
                    # The derivative with respect to what the tracked tensor is a copy of contains its own.
                    direct = found[i] if tracked[i].is_leaf else None
                    found[i] = more if direct is None or more is None else direct + more
                gradients = _separate(
                    [torch.zeros_like(t) if g is None else g for t, g in zip(tracked, found, strict=False)]
                )
            else:
                gradients = [torch.zeros_like(tensor) for tensor in tensors]
    finally:
        # Not before: a checkpoint runs parts of the function again for the derivative.
        call.is_over = True
        for leave in reversed(undo):
            leave()
    if not again:
        own = {id(tensor) for tensor in tracked}
        value = _detached(value, own)
        aux = map_aux(lambda leaf: _detached(leaf, own), aux)
    return value, aux, gradients


def _tracked_results(value: Any, aux: Any) -> list[torch.Tensor]:
    results = [value, *partition_aux(aux, torch.Tensor)[1]]
    return [result for result in results if isinstance(result, torch.Tensor) and result.requires_grad]


def _separate(gradients: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copy gradients that share memory: the terms of a sum do, and clipping writes in place.

    0.2 µs for each.
    """
    seen: set[int] = set()
    separate = []
    for gradient in gradients:
        memory = set(_memory(gradient))
        separate.append(gradient if seen.isdisjoint(memory) else gradient.clone())
        seen |= memory
    return separate


def _memory(tensor: torch.Tensor) -> Iterator[int]:
    """Yield keys of the memory of a tensor, or of the tensors that it wraps, such as the local one of a DTensor."""
    if is_traceable_wrapper_subclass(tensor):
        parts = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
        for part in parts:
            if isinstance(part, torch.Tensor):  # a DTensor lists its mesh as well
                yield from _memory(part)
    else:
        yield tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)  # noqa: SLF001


def _tensor(leaf: Any) -> torch.Tensor:
    """Convert a leaf to a tensor.

    A Python float becomes a float64 scalar: it keeps its digits, and with a float32
    tensor that has dimensions the result is float32, as with the float.
    """
    if isinstance(leaf, torch.Tensor):
        return leaf
    if isinstance(leaf, (float, complex)):
        return torch.tensor(leaf, dtype=torch.float64 if isinstance(leaf, float) else torch.complex128)
    if hasattr(leaf, "mask"):
        from adprotocol_torch.divergence import MASKED_ARRAYS  # noqa: PLC0415  (for the message only)

        msg = (
            f"PyTorch would ignore the mask of {full_kind_of(leaf)}, so it cannot "
            f"differentiate with respect to it. {MASKED_ARRAYS.remedy}"
        )
        raise SelectionError(msg)
    # PyTorch warns about read-only NumPy arrays, and refuses negative strides.
    shared = leaf.flags.writeable and all(stride >= 0 for stride in leaf.strides)
    return torch.as_tensor(leaf if shared else leaf.copy())


def _tracked(tensor: torch.Tensor, call: _Call, *, differentiable: bool) -> torch.Tensor:
    """Return the tensor to differentiate with respect to: a leaf, or an alias of a tensor that is already tracked."""
    if torch.nn.parameter.is_lazy(tensor):
        return tensor  # the function sets its shape
    if tensor.is_inference():
        # Autograd does not see operations on it, whatever its flag.
        return tensor.detach().clone().requires_grad_()
    if tensor.requires_grad:
        if _is_own_leaf(tensor):
            # Its flag says that it is trained, not that an outer derivative is wanted.
            # It stays in place, with its hooks.
            return tensor
        if differentiable:
            # A copy, for the function may change it in place. No view: a compiled function saves views without their
            # history, so that a second derivative would be lost where it is refused otherwise.
            return tensor.clone()
    leaf = tensor.detach().requires_grad_()
    leaf._adprotocol_call = call  # type: ignore[attr-defined]  # noqa: SLF001
    return leaf


def _is_own_leaf(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, torch.nn.Parameter) and tensor.is_leaf and not parameters.is_variable(tensor)


def _reaches_others(results: list[torch.Tensor], tracked: list[torch.Tensor]) -> bool:
    """Tell whether the graph of the results reaches a leaf that this call does not track."""
    if results and any(not tensor.is_leaf for tensor in tracked):
        return True
    return any(map(_others(tracked), [result for result in results if result.is_leaf] + autograd_graph.leaves(results)))


def _others(tracked: list[torch.Tensor]) -> Callable[[torch.Tensor], bool]:
    """Return what tells the leaves that somebody else may differentiate with respect to."""
    own = {id(tensor) for tensor in tracked}

    def is_other(leaf: torch.Tensor) -> bool:
        call = getattr(leaf, "_adprotocol_call", None)  # of an inner or enclosing call
        return id(leaf) not in own and (call is None or not call.is_over)

    return is_other


def _refuse_second_derivative(value: torch.Tensor) -> bool:
    """Refuse to differentiate the derivative of a compiled function; return whether there is a compiled function.

    PyTorch cannot, and does not always raise: the node of that derivative is
    connected only to arguments that were saved unchanged, so the rest would silently
    be zero. Walks the graph only once something was compiled.
    """
    if "torch._functorch.aot_autograd" not in sys.modules:
        return False
    is_compiled = False
    for node, _ in autograd_graph.walk([value]):
        is_compiled |= type(node).__name__ == "CompiledFunctionBackward"
        if type(node).__name__ == "CompiledFunctionBackwardBackward":
            from adprotocol_torch.divergence import SECOND_DERIVATIVE  # noqa: PLC0415  (for the message only)

            msg = (
                "PyTorch cannot differentiate the derivative of a function compiled by torch.compile. "
                f"{SECOND_DERIVATIVE.remedy}"
            )
            raise UndecidableError(msg)
    return is_compiled


def _refuse_number(value: Any, start: int) -> None:
    """Refuse a Python number that was computed from tracked tensors: its derivative is lost, not zero."""
    if torch.compiler.is_dynamo_compiling() or next_sequence_number() != start:
        from adprotocol_torch.divergence import PYTHON_NUMBERS  # noqa: PLC0415  (for the message only)

        msg = (
            f"the differentiated function returned the Python number {value} computed from tracked tensors; item() "
            f"and float() cut off the derivative. {PYTHON_NUMBERS.remedy}"
        )
        raise OutputError(msg)


def _detached(leaf: Any, own: set[int]) -> Any:
    if isinstance(leaf, torch.Tensor) and leaf.requires_grad and (not leaf.is_leaf or id(leaf) in own):
        return leaf.detach()
    return leaf


def _by_functorch(
    fun: Callable[[list[Any]], tuple[Any, Any]], tensors: list[torch.Tensor]
) -> tuple[Any, Any, list[Any]]:
    if torch.is_grad_enabled():
        return _by_functorch_with_gradients(fun, tensors)
    # As with the engine, gradients are on in the function, and what comes out has none.
    with torch.enable_grad():
        value, aux, gradients = _by_functorch_with_gradients(fun, tensors)
    return _without_history(value), map_aux(_without_history, aux), [_without_history(g) for g in gradients]


def _without_history(leaf: Any) -> Any:
    """Return a tensor without its history, but with its tangent, which `detach` would cut; gradients are off."""
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


@never_compile  # as _by_engine
def _by_functorch_with_gradients(
    fun: Callable[[list[Any]], tuple[Any, Any]], tensors: list[torch.Tensor]
) -> tuple[Any, Any, list[Any]]:
    tensors = [parameters.current(tensor) for tensor in tensors]
    # A flag of a parameter is no outer derivative here either.
    own = [_is_own_leaf(tensor) for tensor in tensors]
    leaves = [tensor.detach() if flag else tensor for tensor, flag in zip(tensors, own, strict=True)]
    # torch.func accepts only tensors as auxiliary output.
    rest: list[Any] = []
    undo: list[Callable[[], None]] = []

    def checked(tracked: list[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        # Asked here: where a graph breaks, this is compiled as a function of its own.
        is_traced = torch.compiler.is_dynamo_compiling()
        # A graph knows no number of the node; there every Python number is refused.
        start = -1 if is_traced else next_sequence_number()
        if not is_traced:
            undo.append(distributed.guard(tensors))
        undo.append(parameters.enter(tensors, tracked))
        value, aux = fun(tracked) if is_traced else aliases.substituted(fun, tensors, tracked)
        check_output(value, value)
        if not isinstance(value, torch.Tensor):
            _refuse_number(value, start)
            value = torch.tensor(value)
        elif is_traced and any(own):
            held = [tensor for tensor, flag in zip(tensors, own, strict=True) if flag]
            dynamo.install()
            if dynamo.are_reached(value, held, tracked):
                raise aliases.in_graph()
        others, inside = partition_aux(aux, torch.Tensor)
        rest.append(others)
        return value, inside

    try:
        gradients, (value, inside) = torch.func.grad_and_value(checked, has_aux=True)(leaves)
    finally:
        for leave in undo:
            leave()
    hooked = [_hooked(tensor, g) if flag else g for tensor, g, flag in zip(tensors, gradients, own, strict=True)]
    return value, combine_aux(rest[0], inside), hooked


def _hooked(parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Run the hooks of a parameter, which torch.func leaves out and the engine runs."""
    for hook in list((parameter._backward_hooks or {}).values()):  # noqa: SLF001
        changed = hook(gradient)
        gradient = gradient if changed is None else changed
    return gradient
