"""`host_function` on tensors: NumPy's arrays in, and tensors of the same device out.

A host function is a rule whose derivative raises, so `custom_rule` leads it through
all transformations. Where a graph is traced, the call is an operator, which the
graph holds by a key.
"""

from __future__ import annotations

import functools
import itertools
import uuid
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from adprotocol.errors import GradientPreventedError, RuleError
from adprotocol.extend import Outline, numpy_dtype
from adprotocol.hookspecs import hookimpl
from adprotocol_torch import internals
from adprotocol_torch.custom_rule import custom_rule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Tensors = list[torch.Tensor]


@internals.skip  # as custom_rule
@hookimpl
def host_call(
    fun: Callable[[list[Any]], list[Any]],
    arrays: Tensors,
    like: Sequence[Any] | None,
    batched: bool,  # noqa: FBT001  (the hook's signature)
    message: str,
) -> Tensors:
    """Return what a function of NumPy arrays makes of tensors."""
    types = None if like is None else [(tuple(one.shape), _torch_dtype(one.dtype)) for one in like]
    return custom_rule(_HostRule(fun, types, batched=batched, message=message), arrays)[0]


class _HostRule:
    """A host function as a rule that raises."""

    name = "a host function"
    has_vjp = has_jvp = True
    reads: Sequence[bool] = ()
    reads_results = False
    once = ""
    linear: Any = None
    # Whether `run` is that of batches.
    is_batch = False

    def __init__(self, fun: Callable[..., list[Any]], types: Any, *, batched: bool, message: str) -> None:
        self.run = fun
        # The shape and dtype of each result, None if nobody knows.
        self.types = types
        self.is_batched = batched
        self.message = message

    def fun(self, arrays: Tensors) -> tuple[Tensors, Outline]:
        """Call the function, or put the call into the graph that is traced."""
        if internals.is_traced(arrays):
            key = f"{_PROCESS}-{next(_NUMBERS)}"
            _IN_GRAPHS[key] = self
            results = torch.ops.adprotocol.host_call(key, arrays)
        else:
            results = self.called(arrays)
        return results, Outline(count=len(results))

    def vjp(self, *_arguments: object) -> NoReturn:
        """Refuse reverse mode."""
        raise GradientPreventedError(self.message)

    jvp = vjp

    def called(self, arrays: Sequence[torch.Tensor]) -> Tensors:
        """Call the function on NumPy's arrays of the same values."""
        return [_of_torch(result).to(arrays[0].device) for result in self.run(list(map(_of_numpy, arrays)))]

    def batched(self, axes: Sequence[int | None], size: int) -> _HostRule:
        """Return the rule of batches at the given axes of the arrays."""
        import numpy as np  # noqa: PLC0415  (a host function has imported it)

        run = self.run

        def batch(arrays: list[Any], lead: int = 0) -> list[Any]:
            """Call it with arrays that have `lead` further axes first, those of the batches around this one."""
            rows = []
            for array, axis in zip(arrays, axes, strict=True):
                if axis is None:
                    shape = (*array.shape[:lead], size, *array.shape[lead:])
                    rows.append(np.broadcast_to(np.expand_dims(array, lead), shape))
                else:
                    rows.append(np.moveaxis(array, axis + lead, lead))
            if self.is_batched:
                results = run(rows, lead + 1) if self.is_batch else run(rows)
                for result in results:
                    if result.shape[lead : lead + 1] != (size,):
                        raise RuleError(
                            f"a host function with batched=True was given {size} rows, and returned an array of shape "
                            f"{tuple(result.shape)}; return one result for each row, in leading axes"
                        )
                return results
            if size == 0 and self.types is None:
                raise RuleError(
                    "a host function is batched with no rows, so nothing tells the shapes of its results; give it "
                    "host_function(like=...)"
                )
            if size == 0:
                return [_of_numpy(torch.empty((0, *shape), dtype=dtype)) for shape, dtype in self.types]
            results = [run([array[i] for array in rows]) for i in range(size)]
            return [np.stack(column) for column in zip(*results, strict=True)]

        types = None if self.types is None else [((size, *shape), dtype) for shape, dtype in self.types]
        rule = _HostRule(batch, types, batched=self.is_batched, message=self.message)
        rule.is_batch = True
        return rule


# The calls in graphs, for the life of the process. A cache of compiled graphs may outlive it: a key is of one process.
_IN_GRAPHS: dict[str, _HostRule] = {}
_NUMBERS = itertools.count()
_PROCESS = uuid.uuid4().hex


def _in_graph(key: str, arrays: Tensors) -> Tensors:
    call = _IN_GRAPHS.get(key)
    if call is None:
        msg = "a graph that another process has traced calls a host function; trace the function again in this process"
        raise RuleError(msg)
    return call.called(arrays)


def _without_values(key: str, arrays: Tensors) -> Tensors:
    types = _IN_GRAPHS[key].types
    if types is None:
        raise RuleError(
            "a host function is called where torch.compile or another tracer needs the shapes and dtypes of its "
            "results; tell them, host_function(like=...)"
        )
    return [torch.empty(shape, dtype=dtype, device=arrays[0].device) for shape, dtype in types]


def _of_numpy(array: torch.Tensor) -> Any:
    if array.dtype is torch.bfloat16:
        return array.view(torch.int16).numpy(force=True).view(numpy_dtype(torch.bfloat16))
    return array.numpy(force=True)


def _of_torch(array: Any) -> torch.Tensor:
    if array.dtype.kind == "V" and array.dtype.name == "bfloat16":  # the name of a dtype takes 3 µs
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(array)


_LIBRARY = torch.library.Library("adprotocol", "DEF")  # type: ignore[no-untyped-call]
_LIBRARY.define("host_call(str key, Tensor[] arrays) -> Tensor[]")  # type: ignore[no-untyped-call]
_LIBRARY.impl("host_call", _in_graph, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
torch.library.register_fake("adprotocol::host_call", _without_values, lib=_LIBRARY)


@functools.lru_cache(maxsize=64)
def _torch_dtype(dtype: Any) -> torch.dtype:
    import numpy as np  # noqa: PLC0415  (as above)

    try:
        return dtype if isinstance(dtype, torch.dtype) else _of_torch(np.empty(0, dtype)).dtype
    except TypeError as error:
        raise RuleError(f"the like of a host function tells the dtype {dtype}, which PyTorch does not take") from error
