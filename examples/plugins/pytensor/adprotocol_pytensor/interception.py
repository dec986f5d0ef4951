"""Let PyTensor's gradients and functions answer the questions in their graphs.

PyTensor has no hook for it: an operation is told that it is differentiated when its
rule runs, and by then the rules after it have used its value. So four functions
inside PyTensor are wrapped, through which every gradient passes however it was
imported. Loops and `OpFromGraph` call ``grad`` for their inner graphs, with respect
to all inner inputs; there the questions were answered from outside, and stay.

A question has one answer in one compiled function: where a function returns a
gradient beside the value that was differentiated, the value is that of the gradient.
So what `pytensor.function` is given is wrapped too.
"""

from __future__ import annotations

import inspect
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import pytensor
from pytensor import gradient
from pytensor.compile import builders, maker
from pytensor.compile.io import SymbolicOutput
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.scan import op as scan

from adprotocol.errors import PluginError
from adprotocol_pytensor.resolution import Resolution, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# Set while PyTensor asks for the gradient of an inner graph, until that gradient begins.
_INNER: ContextVar[bool] = ContextVar("adprotocol_pytensor_inner", default=False)

# What is wrapped, with the arguments that the wrappers rely on.
_FORWARD = ("tangents", "disconnected_outputs", "return_disconnected")
_EXPECTED: dict[tuple[Any, str], tuple[str, ...]] = {
    (gradient, "_populate_var_to_app_to_idx"): ("outputs", "wrt", "consider_constant"),
    (gradient, "_populate_grad_dict"): ("var_to_app_to_idx", "grad_dict", "wrt", "cost_name"),
    (gradient, "_pushforward_direct"): ("f", "wrt", *_FORWARD),
    (gradient, "pushforward_through_pullback"): ("outputs", "inputs", *_FORWARD),
    (maker, "construct_function_ins_and_outs"): ("params", "outputs", "updates"),
    (builders, "grad"): (),
    (builders, "pushforward"): (),
    (scan, "grad"): (),
    (scan, "pushforward"): (),
}


class _Taken(NamedTuple):
    """What a gradient was taken of: with respect to what, and which questions became True."""

    wrt: tuple[Variable, ...]
    constants: tuple[Variable, ...]
    answered: frozenset[Variable]


# For each gradient those that went into it: a second derivative is also one of the first.
_TAKEN: WeakKeyDictionary[Variable, frozenset[_Taken]] = WeakKeyDictionary()


class _Paths(dict[Any, Any]):
    """PyTensor's map of the paths from `wrt` to the outputs, in the graph with its questions answered."""

    new: dict[Any, Any]
    taken: frozenset[_Taken]

    def __contains__(self, variable: object) -> bool:
        return super().__contains__(self.new.get(variable, variable))


def install() -> None:
    """Wrap PyTensor's functions, once."""
    if hasattr(gradient._populate_grad_dict, "__wrapped__"):
        return
    for (module, name), arguments in _EXPECTED.items():
        found = getattr(module, name, None)
        if found is None or tuple(inspect.signature(found).parameters)[: len(arguments)] != arguments:
            msg = (
                f"{module.__name__}.{name} is not what the plugin wraps, a function of {', '.join(arguments)}: this "
                f"version of PyTensor, {pytensor.__version__}, is not supported; install pytensor 3.0"
            )
            raise PluginError(msg)
    wrappers = (_paths, _terms, _direct, _by_pullbacks, _function, *[_of_inner_graph] * 4)
    for (module, name), wrapper in zip(_EXPECTED, wrappers, strict=True):
        original = getattr(module, name)
        wrapped = wrapper(original)
        wrapped.__wrapped__ = original  # type: ignore[attr-defined]
        setattr(module, name, wrapped)


def _of_inner_graph(original: Callable[..., Any]) -> Callable[..., Any]:
    def of_inner_graph(*args: Any, **kwargs: Any) -> Any:
        token = _INNER.set(True)
        try:
            return original(*args, **kwargs)
        finally:
            _INNER.reset(token)

    return of_inner_graph


def _resolved(outputs: Sequence[Any], wrt: Sequence[Any], constants: Any = (), **options: Any) -> Resolution:
    inner = _INNER.get()
    # A gradient that a rule of the user takes, inside the one that PyTensor asked for, is not its own.
    _INNER.set(False)
    return Resolution({}, direct=False) if inner else resolve(outputs, wrt, constants or (), **options)


def _taken_in(outputs: Iterable[Any]) -> frozenset[_Taken]:
    """Return the gradients in a graph."""
    if not _TAKEN:
        return frozenset()
    # Equal constants are one, whatever they come from.
    graph = (variable for variable in ancestors(outputs) if not isinstance(variable, Constant))
    return frozenset().union(*(_TAKEN[variable] for variable in graph if variable in _TAKEN))


def _taken(
    resolution: Resolution, outputs: Sequence[Any], wrt: Sequence[Any], constants: Any = ()
) -> frozenset[_Taken]:
    """Return the gradients that go into a new one, itself included if it answered a question."""
    before = _taken_in(outputs)
    if not resolution.answered:
        return before
    return before | {_Taken(tuple(wrt), tuple(constants or ()), frozenset(resolution.answered))}


def _remember(results: Iterable[Any], taken: frozenset[_Taken]) -> None:
    for result in results if taken else ():
        if isinstance(result, Variable) and not isinstance(result, Constant):
            _TAKEN[result] = _TAKEN.get(result, frozenset()) | taken


def _paths(original: Callable[..., Any]) -> Callable[..., Any]:
    def paths(outputs: Sequence[Any], wrt: Sequence[Any], consider_constant: Any) -> Any:
        resolution = _resolved(outputs, wrt, consider_constant)
        new = resolution.new
        constants = [*(consider_constant or ())]
        constants += [new[variable] for variable in constants if variable in new]
        found = _Paths(original([new.get(out, out) for out in outputs], [new.get(x, x) for x in wrt], constants))
        found.new, found.taken = new, _taken(resolution, outputs, wrt, consider_constant)
        return found

    return paths


def _terms(original: Callable[..., Any]) -> Callable[..., Any]:
    def terms(var_to_app_to_idx: Any, grad_dict: Any, wrt: Sequence[Any], cost_name: Any = None) -> Any:
        if not isinstance(var_to_app_to_idx, _Paths):
            return original(var_to_app_to_idx, grad_dict, wrt, cost_name)
        new = var_to_app_to_idx.new
        grad_dict = {new.get(var, var): cotangent for var, cotangent in grad_dict.items()}
        results = original(dict(var_to_app_to_idx), grad_dict, [new.get(x, x) for x in wrt], cost_name)
        _remember(results, var_to_app_to_idx.taken)
        return results

    return terms


def _forward(original: Callable[..., Any], *, direct: bool) -> Callable[..., Any]:
    def forward(outputs: Sequence[Any], inputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        resolution = _resolved(outputs, inputs, direct=direct)
        new = resolution.new
        results = original([new.get(out, out) for out in outputs], [new.get(x, x) for x in inputs], *args, **kwargs)
        _remember(results, _taken(resolution, outputs, inputs))
        return results

    return forward


def _direct(original: Callable[..., Any]) -> Callable[..., Any]:
    return _forward(original, direct=True)


def _by_pullbacks(original: Callable[..., Any]) -> Callable[..., Any]:
    return _forward(original, direct=False)


def _function(original: Callable[..., Any]) -> Callable[..., Any]:
    def function(params: Any, outputs: Any = None, updates: Any = None, *args: Any, **kwargs: Any) -> Any:
        found = _Together(outputs, updates)
        return original(params, found.outputs, found.updates, *args, **kwargs)

    return function


class _Together:
    """What a function computes, with one answer for each question: True if a gradient in it answered so."""

    def __init__(self, outputs: Any, updates: Any) -> None:
        self.outputs, self.updates = outputs, updates
        if not _TAKEN:
            return
        several = isinstance(outputs, (list, tuple))
        targets = list(outputs) if several else [] if outputs is None else [outputs]
        pairs = list(updates.items() if isinstance(updates, dict) else updates or ())
        held = [getattr(target, "variable", target) for target in targets] + [value for _, value in pairs]
        roots = [value for value in held if isinstance(value, Variable)]
        taken = _taken_in(roots)
        if not taken:
            return
        wrt = [x for one in taken for x in one.wrt]
        constants = [x for one in taken for x in one.constants]
        new = resolve(roots, wrt, constants, only=frozenset().union(*(one.answered for one in taken))).new
        if not new:
            return
        made = [_replaced(target, new) for target in targets]
        self.outputs = made if several else made[0] if made else outputs
        self.updates = [(shared, _replaced(value, new)) for shared, value in pairs]


def _replaced(target: Any, new: dict[Variable, Variable]) -> Any:
    if isinstance(target, SymbolicOutput):
        return SymbolicOutput(new.get(target.variable, target.variable), borrow=target.borrow)
    return new.get(target, target) if isinstance(target, Variable) else target
