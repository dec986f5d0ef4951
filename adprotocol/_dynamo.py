"""Every mark for TorchDynamo, and every substitute that it traces in place of a function: here, and nowhere else.

Dynamo interprets the bytecode of the function given to ``torch.compile``, and of
this library with it. It cannot follow a table that is filled during tracing: it
guards on what it read, and the guard would fail at once. Two marks tell it what to
do instead:

- `run_while_tracing`: run the function on the constants it is given, and keep the result;
- `trace_instead`: trace the substitute in place of the function.

Both are attributes that PyTorch itself sets on functions, so setting them imports
nothing and costs an eager call nothing.

This module is the last of the core to be imported, and marks functions of the
others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from adprotocol._dispatch import dtype, registry, table, wrapper
from adprotocol._dispatch.binding import OPAQUE, UNSET
from adprotocol._gradients import framework, where
from adprotocol._hooks import cond, prevent_gradient, within_gradient
from adprotocol._trees import declaration, fields, merge, node, path, traversal
from adprotocol._trees.treespec import build
from adprotocol.errors import GradientPreventedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from adprotocol._dispatch.binding import Binding

F = TypeVar("F", bound="Callable[..., Any]")


def run_while_tracing(function: F) -> F:
    """Mark a function that the compiler runs, on the constants it is given, instead of tracing it.

    ``torch.compiler.assume_constant_result`` sets this attribute.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]  # noqa: SLF001
    return function


def trace_instead(substitute: Callable[..., Any]) -> Callable[[F], F]:
    """Mark a function that the compiler replaces by a substitute when it traces.

    ``torch.compile`` sets this attribute on the functions that it wraps.
    """

    def mark(eager: F) -> F:
        eager._torchdynamo_inline = substitute  # type: ignore[attr-defined]  # noqa: SLF001
        return eager

    return mark


def substitute_for(eager: Callable[..., Any]) -> Callable[[F], F]:
    """Let the compiler trace the decorated substitute in place of `eager`, a function of another module."""

    def mark(substitute: F) -> F:
        trace_instead(substitute)(eager)
        return substitute

    return mark


# What they read may change during tracing: plugins, types, classes and their fields.
for _function in (
    registry.load_plugins,
    table.resolve,
    traversal.admit,
    node.generation,
    node.refresh,
    node.in_order,
    node.same_keys,
    fields.field_names,
    fields.has_fields,
    declaration.class_declares,
    declaration.frozen_fields,
    framework.default,
    framework.named,
    where.matches,
    dtype.kind_of_dtype,
):
    run_while_tracing(_function)


wrapper.COMPILER_MARKS += ["_torchdynamo", "_dynamo"]


# Dynamo would guard on the table, which is filled while it traces.
@substitute_for(table.lookup)
def _lookup(cls: type) -> Binding:
    return getattr(table.BINDINGS, table.resolve(cls))  # type: ignore[no-any-return]


@substitute_for(traversal.binding_for)
def _binding_for(value: Any) -> Binding:
    binding = _lookup(type(value))
    return traversal.admitted(value) if binding.kind is OPAQUE else binding


# Metadata is not needed in a graph. Older releases of PyTorch cannot trace what reads it of a function made there.
@substitute_for(wrapper.wrap)
def _wrap(wrapping: Callable[..., Any], fun: Callable[..., Any]) -> Callable[..., Any]:  # noqa: ARG001
    return wrapping


# Older releases of PyTorch cannot ask it of a partial, which has a function.
@substitute_for(cond.are_callable)
def _are_callable(true_fun: Any, false_fun: Any) -> bool:
    return (hasattr(true_fun, "func") or callable(true_fun)) and (hasattr(false_fun, "func") or callable(false_fun))


# Dynamo guards on what a static field holds; it need not, and in part cannot, hash it.
# A set is traced one item at a time, the keys of a dict are not; and what is traced is worth looking up beforehand.
@substitute_for(traversal.are_leaves_of)
def _are_leaves_of(known: dict[type, Binding], values: Any, *, opened: bool) -> bool:
    for cls in dict.fromkeys(map(type, values)):
        if cls not in known:
            binding = _lookup(cls)
            if binding.flatten is not None or binding.kind is OPAQUE or (opened and binding.view is not None):
                return False
            known[cls] = binding
    return True


@substitute_for(traversal.gather)
def _gather(values: Any) -> Any:
    return traversal.tree_leaves(tuple(values))


@substitute_for(table.sole_framework)
def _sole_framework(values: Iterable[Any], found: Binding | None = None) -> Binding:
    sole = table.BINDINGS.PLAIN if found is None else found
    leaves = list(values)
    for cls in dict.fromkeys(map(type, leaves)):
        binding = _lookup(cls)
        if binding is not sole:
            sole = table.join(sole, binding)
            if binding.framework is None and binding.stands_for is not None:
                for leaf in [leaf for leaf in leaves if type(leaf) is cls]:
                    sole = _sole_framework(binding.stands_for(leaf) or (), sole)
    return sole


@substitute_for(fields.attributes)
def _attributes(value: Any) -> None:  # noqa: ARG001
    return None


@substitute_for(fields.check_static)
def _check_static(cls: type, held: tuple[tuple[str, Any], ...]) -> None:
    pass


@substitute_for(within_gradient.within_gradient)
def _within_gradient(*values: Any) -> Any:
    return within_gradient.ask(values or (UNSET,))


# Dynamo cannot run the explanation of a plugin, and shows an error that is raised as a text.
@substitute_for(prevent_gradient.prevented)
def _prevented(leaf: Any, message: str, binding: Any) -> GradientPreventedError:  # noqa: ARG001
    return GradientPreventedError(
        f"{message} (prevent_gradient was given a value that is being differentiated in a function that is compiled; "
        "where its derivative is not wanted, pass non_differentiable(value))"
    )


@substitute_for(path.paths_of)
def _paths_of(tree: Any, spec: Any) -> path.Paths:
    return path.compute(tree, spec)


# Tracing is slow, so the two checks of paths are left out; `paths_of` checks when paths are needed.
@substitute_for(path.check_paths)
def _check_paths(tree: Any, spec: Any) -> None:
    pass


@substitute_for(merge.repeat_paths)
def _repeat_paths(names: tuple[Any, ...]) -> bool:  # noqa: ARG001
    return False


@substitute_for(path.keeps_none)
def _keeps_none(tree: Any, spec: Any) -> bool:  # noqa: ARG001
    return True


@substitute_for(traversal.tree_unflatten)
def _tree_unflatten(spec: Any, leaves: Sequence[Any], tree: Any, show: Any = None) -> Any:  # noqa: ARG001
    return build(spec, iter(leaves), show)


@substitute_for(where.match)
def _match(paths: path.Paths, pattern: str) -> list[bool]:
    return [where.matches(name, pattern) for name in paths.of_leaves]
