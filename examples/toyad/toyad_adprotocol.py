"""The adprotocol plugin for toyad.

A level of toyad puts a tracer of its own in the place of what it differentiates,
so everything is decided by the value. Where jit has yet to be told who will
differentiate, `toyad.is_differentiated` answers with a staged boolean, and
`toyad.cond` takes it.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import toyad
import toyad_rules

from adprotocol import NonDifferentiable
from adprotocol.extend import Branches, declares, gradient_prevented, trainable_names
from adprotocol.hookspecs import TreeLibrary, View, hookimpl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from toyad_harness import ToyHarness

    from adprotocol.extend import DerivativeRule, Outline

    Function = Callable[[list[Any]], tuple[list[Any], list[Any]]]

# toyad's own transformations pass labels on: what comes out of one is a constant.
toyad.CONTAINERS[NonDifferentiable] = (
    lambda label: ((label.held,), None),
    lambda _, children: NonDifferentiable(*children),
)


@hookimpl
def array_types() -> tuple[type, ...]:
    """Claim arrays, parameters and tracers, all subclasses of one."""
    return (toyad.Value,)


@hookimpl
def identity(value: Any) -> int | None:
    """A parameter is one leaf, however often a model holds it."""
    return id(value) if isinstance(value, toyad.Parameter) else None


@hookimpl
def within_gradient(value: Any) -> Any:
    """Ask toyad; integers are False, and the answer under jit is staged."""
    return toyad.is_differentiated(value)


@hookimpl
def non_differentiable(value: Any) -> Any:
    """Stop the derivatives of all levels."""
    return toyad.stop_gradient(value)


@hookimpl
def prevent_gradient(value: Any, message: str) -> Any:
    """Let toyad guard the value: the answer may be staged, and then the error comes with the derivative."""
    return toyad.guard(value, lambda x: gradient_prevented(x, message, "toyad: a level of grad or jvp follows it"))


@hookimpl
def is_concrete(value: Any) -> bool:
    """Look through what follows a derivative; a batch hides its elements, and a program what it reads."""
    while isinstance(value, (toyad.Dual, toyad.Recorded)):
        value = value.below
    is_read_later = isinstance(value, toyad.Parameter) and bool(toyad.STATE.stages)
    return isinstance(value, toyad.Array) and not is_read_later


@hookimpl
def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Let toyad choose; results and errors are those that users of every framework know."""
    if isinstance(pred, (bool, toyad.Array)):
        return toyad.cond(pred, true_fun, false_fun, *operands)
    # toyad stages only the arrays: dataclasses and labels it does not take apart, and of strings it knows nothing.
    branches = Branches((toyad.Value, np.ndarray, np.generic), true_fun, false_fun, operands)
    try:
        return branches.result(toyad.cond(pred, branches.run_true, branches.run_false))
    except toyad.BranchMismatch as error:
        raise branches.mismatch() from error


@hookimpl
def array_functions() -> Any:
    """Return the module, which has the three functions."""
    return toyad


@hookimpl
def trainable(value: Any) -> bool | None:
    """Floats take gradients, a parameter only if its flag says so; integers and booleans never do."""
    if not toyad.is_inexact(value):
        return None
    return value.trains if isinstance(value, toyad.Parameter) else True


@hookimpl
def vjp(
    fun: Function,
    leaves: list[Any],
    once: bool,  # noqa: ARG001, FBT001
) -> tuple[list[Any], list[Any], Callable[..., list[Any]]]:
    """Differentiate with respect to the leaves, and nothing else."""
    values = [toyad.read(leaf) if isinstance(leaf, toyad.Parameter) else leaf for leaf in leaves]
    with toyad.Tape() as trace:
        roots = [trace.root(toyad.lift(leaf)) for leaf in values]
        # A parameter counts wherever the function reads it.
        pairs = [(leaf, root) for leaf, root in zip(leaves, roots, strict=True) if isinstance(leaf, toyad.Parameter)]
        with toyad.watching(pairs):
            outputs, others = fun(list(roots))
        outputs = [toyad.lift(output) for output in outputs]

    def pull(cotangents: list[Any] | None) -> list[Any]:
        if cotangents is None:
            cotangents = [toyad.Array(np.ones((), outputs[0].dtype), outputs[0].device)]
        pairs = [(y, cotangent) for y, cotangent in zip(outputs, cotangents, strict=True) if cotangent is not None]
        return trace.backward(*zip(*pairs, strict=True), roots) if pairs else list(map(toyad.zeros, roots))

    return list(map(trace.lower, outputs)), list(map(trace.lower, others)), pull


@hookimpl
def jvp(fun: Function, leaves: list[Any], tangents: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Let a tangent flow with each leaf."""
    values = [toyad.lift(toyad.read(leaf) if isinstance(leaf, toyad.Parameter) else leaf) for leaf in leaves]
    with toyad.Forward() as trace:
        duals = list(map(trace.root, values, tangents))
        read = [(leaf, dual) for leaf, dual in zip(leaves, duals, strict=True) if isinstance(leaf, toyad.Parameter)]
        with toyad.watching(read):
            outputs, others = fun(duals)
        outputs = [toyad.lift(output) for output in outputs]
    return list(map(trace.lower, outputs)), list(map(trace.lower, others)), list(map(trace.tangent, outputs))


@hookimpl
def vmap(fun: Callable[[list[Any]], list[Any]], arrays: list[Any], chunk_size: int | None) -> list[Any]:  # noqa: ARG001
    """Compute the rows at once, whatever their number: memory is no concern of toyad."""
    return toyad.vmap(lambda *rows: fun(list(rows)))(*arrays)


@hookimpl
def custom_rule(rule: DerivativeRule, arrays: list[Any]) -> tuple[list[Any], Outline]:
    """Let a primitive run the function, whose derivatives are the rule's."""
    call = toyad_rules.Call(rule)
    return toyad_rules.ruled(*arrays, call=call), call.outline


@hookimpl
def host_call(
    fun: Callable[[list[Any]], list[Any]],
    arrays: list[Any],
    like: list[Any] | None,
    batched: bool,  # noqa: FBT001
    message: str,
) -> list[Any]:
    """Let a primitive call the function, where the arrays are at hand."""
    return toyad_rules.host(*arrays, fun=fun, like=like, batched=batched, message=message)


@hookimpl
def tree_library() -> TreeLibrary:
    """Flatten what toyad's registry knows, as it does; enter new classes."""
    return TreeLibrary(lambda value: toyad.CONTAINERS.get(type(value)), _enter_in_registry)


def _enter_in_registry(cls: type, flatten: Callable[[Any], Any], unflatten: Callable[[Any, Any], Any]) -> None:
    # toyad has no use for the names of children.
    toyad.CONTAINERS.setdefault(cls, (lambda value: flatten(value)[:2], unflatten))


@hookimpl
def views() -> dict[type, Callable[[Any], View]]:
    """Show the parameters of a module by qualified name, each under its first."""
    return {toyad.Module: view}


def places(module: toyad.Module, prefix: str = "", *, frozen: bool = False) -> Iterator[tuple[str, Any, str, bool]]:
    """Yield the parameters of a module: qualified name, owner, attribute, and whether a declaration leaves them out."""
    parts = vars(module)
    trained = trainable_names(module, parts) if declares(type(module)) else parts
    for name, part in parts.items():
        out = frozen or name not in trained
        if isinstance(part, toyad.Parameter):
            yield prefix + name, module, name, out
        held = part if isinstance(part, dict) else dict(enumerate(part)) if isinstance(part, list) else {}
        below = {f"{name}.{key}": one for key, one in held.items()} or {name: part}
        for path, one in below.items():
            if isinstance(one, toyad.Module):
                yield from places(one, f"{prefix}{path}.", frozen=out)


def view(module: toyad.Module) -> View:
    """Return the view of a module, which is filled by its attributes."""
    own: dict[str, toyad.Parameter] = {}
    flags, first, aliases = {}, {}, {}
    found = list(places(module))
    for path, owner, name, out in found:
        part = getattr(owner, name)
        if first.setdefault(id(part), path) == path:
            own[path], flags[path] = part, trainable(part) and not out
        else:
            aliases[path] = first[id(part)]

    def fill(parts: dict[str, Any]) -> tuple[toyad.Module, Callable[[], None]]:
        def put(values: dict[str, Any]) -> None:
            for path, owner, name, _ in found:
                setattr(owner, name, values[aliases.get(path, path)])

        put(parts)
        return module, lambda: put(own)

    def rebuild(parts: dict[str, Any]) -> toyad.Module:
        made: toyad.Module = _copied(module, {})
        for path, owner, name, _ in places(made):
            setattr(owner, name, parts[aliases.get(path, path)])
        return made

    return View(own, flags, fill, aliases, rebuild)


def _copied(part: Any, known: dict[int, Any]) -> Any:
    """Return a copy of a module, and of the modules in it; what they hold is the same."""
    if isinstance(part, list):
        return [_copied(one, known) for one in part]
    if isinstance(part, dict):
        return {key: _copied(one, known) for key, one in part.items()}
    if isinstance(part, toyad.Module) and id(part) not in known:
        made = known[id(part)] = copy.copy(part)
        vars(made).update({name: _copied(one, known) for name, one in vars(part).items()})
    return known.get(id(part), part)


@hookimpl
def explain(value: Any) -> str:
    """Say what the tracer tells."""
    if not toyad.is_inexact(value):
        return f"dtype {value.dtype} has no derivative"
    answer = toyad.is_differentiated(value)
    if not isinstance(answer, bool):
        return "decided when what jit traces is run; branch on it with adprotocol.cond"
    return f"{'a' if answer else 'no'} level of grad or jvp follows this {type(value).__name__}"


@hookimpl
def harness(device: str | None) -> ToyHarness:
    """Give the conformance suite what it needs."""
    from toyad_harness import ToyHarness  # noqa: PLC0415  (of use only to the suite)

    return ToyHarness(device)
