"""Tensors: the types that PyTorch owns, and what becomes one; and what errors advise."""

from __future__ import annotations

import functools
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import torch

from adprotocol.errors import SelectionError, UndecidableError
from adprotocol.extend import read_divergences
from adprotocol.hookspecs import hookimpl
from adprotocol.messages import full_kind_of
from adprotocol.tracing import run_while_tracing
from adprotocol_torch import internals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from adprotocol.extend import Divergence

try:
    import numpy as np
except ImportError:  # PyTorch does without
    _OF_NUMPY: Any = ()
else:
    _OF_NUMPY = (np.ndarray, np.generic)


@hookimpl
def array_types() -> dict[type, bool]:
    """Claim tensors, including parameters and other subclasses, and what is a bool of sizes in an export."""
    return {torch.Tensor: True, torch.SymBool: False}


def is_of_numpy(leaf: Any) -> bool:
    """Return whether a value is an array or a scalar of NumPy that a tensor may stand for, and no Python number."""
    if not isinstance(leaf, _OF_NUMPY) or isinstance(leaf, (float, complex)):
        return False
    # In a graph it is one that a tensor stands for already, and has no dtype of NumPy.
    return torch.compiler.is_dynamo_compiling() or leaf.dtype.kind in "biufc"


def tensor_of(leaf: Any) -> torch.Tensor:
    """Convert a number or a NumPy array to a tensor.

    A Python float becomes a float64 scalar: it keeps its digits, and with a float32
    tensor that has dimensions the result is float32, as with the float.
    """
    if isinstance(leaf, (float, complex)):
        return torch.tensor(leaf, dtype=torch.float64 if isinstance(leaf, float) else torch.complex128)
    if torch.compiler.is_dynamo_compiling():
        return torch.as_tensor(leaf)  # a tensor in the graph, in which an array has no flags and no mask
    if hasattr(leaf, "mask"):
        raise SelectionError(
            f"PyTorch would ignore the mask of {full_kind_of(leaf)}, so it cannot "
            f"differentiate with respect to it. {remedy('masked-arrays')}"
        )
    # PyTorch warns about read-only NumPy arrays, and refuses negative strides.
    shared = leaf.flags.writeable and all(stride >= 0 for stride in leaf.strides)
    return torch.as_tensor(leaf if shared else leaf.copy())


def converted(leaf: Any) -> Any:
    """Return a tensor for an array of NumPy, which no operation of PyTorch takes; what else it is as it is."""
    return tensor_of(leaf) if is_of_numpy(leaf) else leaf


def as_like(value: Any, like: Any) -> torch.Tensor:
    """Return a cotangent, a tangent, or what a rule returned, as a tensor of the dtype of another; None is zeros."""
    like = like if isinstance(like, torch.Tensor) else tensor_of(like)
    if value is None:
        return torch.zeros_like(like)
    if isinstance(value, torch.Tensor):
        is_like = value.dtype is like.dtype and value.device == like.device  # a microsecond less
        return value if is_like else value.to(like.device, like.dtype)
    return on_device(value, like.dtype, like.device)


def on_device(value: Any, dtype: torch.dtype | None, device: torch.device) -> torch.Tensor:
    """Return a number or an array of NumPy as a tensor: a GPU fills in a number, but waits for a copy."""
    if hasattr(value, "dtype"):
        return torch.as_tensor(value, dtype=dtype, device=device)
    return torch.full((), value, dtype=dtype, device=device)


def laid_out(gradient: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    """Return a gradient with its elements in memory as those of its leaf are, as ``backward()`` accumulates it.

    A fused optimiser of PyTorch reads by that order, whatever the strides say, and clipping writes in place.
    """
    if not (is_dense(gradient) and is_dense(leaf)) or (gradient.is_contiguous() and leaf.is_contiguous()):
        return gradient
    like = torch.empty_like(leaf)
    return gradient if gradient.stride() == like.stride() else like.copy_(gradient)


def has_strides(tensor: torch.Tensor) -> bool:
    """Return whether a tensor of any class lies in memory by its strides."""
    return tensor.layout is torch.strided and not tensor.is_nested


def is_float(leaf: Any) -> bool:
    """Return whether a leaf is a tensor that can carry a derivative."""
    return isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex())


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is an ordinary one, or a parameter, that lies in memory by its strides."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided


@hookimpl
def non_differentiable(value: torch.Tensor) -> torch.Tensor:
    """Detach a tensor from all levels of torch.func at once.

    Always, and not only while the tensor is tracked: a leaf may be asked to
    require gradients later, and a constant must not follow it.
    """
    return value.detach() if value.is_floating_point() or value.is_complex() else value


class ArrayFunctions:
    """The functions for `adprotocol.where` and `adprotocol.jacobian`."""

    moveaxis: Any = staticmethod(torch.movedim)  # which can be batched
    reshape: Any = staticmethod(torch.reshape)
    as_like: Any = staticmethod(as_like)
    gradient_is_ascent = True

    @staticmethod
    def where(mask: Any, one: Any, other: Any) -> Any:
        """Choose elementwise between tensors, numbers and arrays of NumPy."""
        given = (mask, one, other)
        device = next((value.device for value in given if isinstance(value, torch.Tensor)), None)
        return torch.where(*[tensor_of(value).to(device) if is_of_numpy(value) else value for value in given])

    @staticmethod
    def argmax(mask: Any) -> Any:
        """Return the position of an element that is True."""
        mask = converted(mask)
        plain = None if internals.functorch_is_active() else internals.at_hand(mask)
        if plain is not None:  # NumPy ends its search there: a hundredth of the time
            return plain.numpy().argmax()
        # There is no argmax of bools.
        # until torch 2.10: view(dtype) has no batching rule.
        return mask.reshape(-1).to(torch.uint8).argmax()

    @staticmethod
    def known_bool(pred: torch.Tensor) -> bool | None:
        """Return whether a predicate is True, if that needs no synchronisation."""
        return None if (plain := internals.at_hand(pred)) is None else bool(plain)

    @staticmethod
    def take(array: Any, indices: torch.Tensor, axis: int) -> Any:
        """Return the elements at these positions of an axis."""
        array = converted(array)
        is_known = not isinstance(indices, torch.Tensor)
        return array.narrow(axis, int(indices[0]), 1) if is_known else array.index_select(axis, indices)

    @staticmethod
    def stack(rows: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the rows of a Jacobian along a new leading axis."""
        if any(row.layout is not torch.strided for row in rows):
            raise refused_sparse()
        return torch.stack(list(rows))

    @staticmethod
    def basis(array: Any, count: int, start: int) -> torch.Tensor:
        """Return tensors like this one, of which number ``start + i`` has 1 at element i, and 0 elsewhere."""
        array = array if isinstance(array, torch.Tensor) else tensor_of(array)
        # Batched if the array is, for a function may change it in place.
        rows: torch.Tensor = array.new_zeros((count, array.numel()), layout=torch.strided)
        rows.diagonal(-start).fill_(1)
        return rows.reshape(count, *array.shape)


def refused_sparse() -> UndecidableError:
    """Return the error for a Jacobian by a parameter whose gradients are sparse."""
    return UndecidableError(
        "a Jacobian has rows of the gradient, and one gradient here is sparse (an Embedding with sparse=True); PyTorch "
        "has no batches of those. Make the module with sparse=False, or take single rows by vjp"
    )


@functools.cache
def _divergences() -> Mapping[str, Divergence]:
    return read_divergences(files("adprotocol_torch") / "divergences.md")


@hookimpl
def divergences() -> Sequence[Divergence]:
    """List the rules that PyTorch does not allow this plugin to keep."""
    return list(_divergences().values())


@run_while_tracing
def remedy(divergence: str) -> str:
    """Return what an error advises: the remedy of a divergence, one sentence."""
    return _divergences()[divergence].remedy
