"""Let PyTensor's gradients answer the questions in the graph that they differentiate.

PyTensor has no hook for it: an operation is told that it is differentiated when its
rule runs, and by then the rules after it have used its value. So two functions inside
``pytensor.gradient.grad`` are wrapped, through which every gradient passes however
it was imported, and the one behind ``pushforward(use_op_pushforward=True)``. Loops
and `OpFromGraph` call ``grad`` for their inner graphs, with respect to all inner
inputs; there the questions were answered from outside, and stay as they are.
"""

from __future__ import annotations

import inspect
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import pytensor
import pytensor.gradient
from pytensor.compile import builders
from pytensor.scan import op as scan

from adprotocol.errors import PluginError
from adprotocol_pytensor.resolution import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Set while PyTensor asks for the gradient of an inner graph, until that gradient begins.
_INNER: ContextVar[bool] = ContextVar("adprotocol_pytensor_inner", default=False)

# What is wrapped, with the arguments that the wrappers rely on.
_EXPECTED = {
    "_populate_var_to_app_to_idx": ("outputs", "wrt", "consider_constant"),
    "_populate_grad_dict": ("var_to_app_to_idx", "grad_dict", "wrt", "cost_name"),
    "_pushforward_direct": ("f", "wrt", "tangents", "disconnected_outputs", "return_disconnected"),
}


class _Paths(dict[Any, Any]):
    """PyTensor's map of the paths from `wrt` to the outputs, in the graph with its questions answered."""

    new: dict[Any, Any]

    def __contains__(self, variable: object) -> bool:
        return super().__contains__(self.new.get(variable, variable))


def install() -> None:
    """Wrap PyTensor's functions, once."""
    module = pytensor.gradient
    if hasattr(module._populate_grad_dict, "__wrapped__"):  # noqa: SLF001
        return
    for name, arguments in _EXPECTED.items():
        found = getattr(module, name, None)
        if found is None or tuple(inspect.signature(found).parameters) != arguments:
            msg = (
                f"pytensor.gradient.{name} is not what the plugin wraps, a function of {', '.join(arguments)}: this "
                f"version of PyTensor, {pytensor.__version__}, is not supported; install pytensor 3.0"
            )
            raise PluginError(msg)
    module._populate_var_to_app_to_idx = _answering_paths(module._populate_var_to_app_to_idx)  # noqa: SLF001
    module._populate_grad_dict = _answering_terms(module._populate_grad_dict)  # noqa: SLF001
    module._pushforward_direct = _answering_pushforward(module._pushforward_direct)  # noqa: SLF001
    for caller in (builders, scan):
        caller.grad = _of_inner_graph(caller.grad)
        caller.pushforward = _of_inner_graph(caller.pushforward)


def _wrapping(original: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def mark(wrapper: Callable[..., Any]) -> Callable[..., Any]:
        wrapper.__wrapped__ = original  # type: ignore[attr-defined]
        return wrapper

    return mark


def _of_inner_graph(original: Callable[..., Any]) -> Callable[..., Any]:
    @_wrapping(original)
    def of_inner_graph(*args: Any, **kwargs: Any) -> Any:
        token = _INNER.set(True)
        try:
            return original(*args, **kwargs)
        finally:
            _INNER.reset(token)

    return of_inner_graph


def _is_inner() -> bool:
    """Tell whether PyTensor asked for this gradient; a gradient that a rule of the user takes in it is not its own."""
    inner = _INNER.get()
    _INNER.set(False)
    return inner


def _answering_paths(original: Callable[..., Any]) -> Callable[..., Any]:
    @_wrapping(original)
    def paths(outputs: Sequence[Any], wrt: Sequence[Any], consider_constant: Any) -> Any:
        new = {} if _is_inner() else resolve(outputs, wrt, consider_constant or ())
        if not new:
            return original(outputs, wrt, consider_constant)
        constants = [*(consider_constant or ())]
        constants += [new[variable] for variable in constants if variable in new]
        found = _Paths(original([new.get(out, out) for out in outputs], [new.get(x, x) for x in wrt], constants))
        found.new = new
        return found

    return paths


def _answering_terms(original: Callable[..., Any]) -> Callable[..., Any]:
    @_wrapping(original)
    def terms(var_to_app_to_idx: Any, grad_dict: Any, wrt: Sequence[Any], cost_name: Any = None) -> Any:
        if isinstance(var_to_app_to_idx, _Paths):
            new = var_to_app_to_idx.new
            grad_dict = {new.get(var, var): cotangent for var, cotangent in grad_dict.items()}
            wrt = [new.get(x, x) for x in wrt]
            var_to_app_to_idx = dict(var_to_app_to_idx)
        return original(var_to_app_to_idx, grad_dict, wrt, cost_name)

    return terms


def _answering_pushforward(original: Callable[..., Any]) -> Callable[..., Any]:
    @_wrapping(original)
    def pushforward(
        f: Sequence[Any],
        wrt: Sequence[Any],
        tangents: Sequence[Any],
        disconnected_outputs: Any = "raise",
        return_disconnected: Any = "zero",
    ) -> Any:
        new = {} if _is_inner() else resolve(f, wrt, direct=True)
        outputs, inputs = [new.get(out, out) for out in f], [new.get(x, x) for x in wrt]
        return original(outputs, inputs, tangents, disconnected_outputs, return_disconnected)

    return pushforward
