"""Every mark for TorchDynamo, and every twin that it traces in place of a function: here, and nowhere else.

Dynamo interprets the bytecode of the function given to ``torch.compile``, and of
this library with it. It cannot follow a table that is filled during tracing: it
guards on what it read, and the guard would fail at once. Two marks tell it what to
do instead:

- `run_while_tracing`: run the function on the constants it is given, and keep the result;
- `trace_instead`: trace the twin in place of the function.

Both are attributes that PyTorch itself sets on functions, so setting them imports
nothing and costs an eager call nothing. In place of optree, which not all releases of
PyTorch can trace, Dynamo sees the traversal of `treespec`.

This module is the last of the core to be imported, and marks functions of the
others.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

from adprotocol._dispatch import registry, table, wrapper
from adprotocol._gradients import framework, where
from adprotocol._hooks import cond, prevent_gradient, within_gradient
from adprotocol._trees import declaration, node, path, traversal, treespec
from adprotocol.errors import GradientPreventedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol._gradients.structure import Structure

F = TypeVar("F", bound="Callable[..., Any]")


def run_while_tracing(function: F) -> F:
    """Mark a function that the compiler runs, on the constants it is given, instead of tracing it.

    ``torch.compiler.assume_constant_result`` sets this attribute.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]  # noqa: SLF001
    return function


def trace_instead(twin: Callable[..., Any]) -> Callable[[F], F]:
    """Mark a function that the compiler replaces by its twin when it traces.

    ``torch.compile`` sets this attribute on the functions that it wraps.
    """

    def mark(eager: F) -> F:
        eager._torchdynamo_inline = twin  # type: ignore[attr-defined]  # noqa: SLF001
        return eager

    return mark


def _stands_for(eager: Callable[..., Any]) -> Callable[[F], F]:
    """Let the compiler trace the decorated twin in place of `eager`, a function of another module."""

    def mark(twin: F) -> F:
        trace_instead(twin)(eager)
        return twin

    return mark


# What they read may change during tracing: plugins, types, classes and their fields.
for _function in (
    registry.load_plugins,
    table.resolve,
    node.admit_value,
    node.look_again,
    node.field_names,
    node.has_fields,
    declaration.class_declares,
    declaration.frozen_fields,
    framework.default,
    framework.named,
    where.matches,
    treespec.is_node,
    treespec.is_named_tuple,
    treespec.fields_of,
    treespec.in_order,
    treespec.entry_of,
):
    run_while_tracing(_function)


wrapper.COMPILER_MARKS += ["_torchdynamo", "_dynamo"]

trace_instead(table.resolved)(table.binding_of)


# Metadata is for people. Older releases of PyTorch cannot trace what reads it of a function that is made in the graph.
@_stands_for(wrapper.wrap)
def _wrap(wrapping: Callable[..., Any], fun: Callable[..., Any]) -> Callable[..., Any]:  # noqa: ARG001
    return wrapping


# Older releases of PyTorch cannot ask it of a partial, which has a function.
@_stands_for(cond.are_callable)
def _are_callable(true_fun: Any, false_fun: Any) -> bool:
    return (hasattr(true_fun, "func") or callable(true_fun)) and (hasattr(false_fun, "func") or callable(false_fun))


# Dynamo guards on what a static field holds; it need not, and in part cannot, hash it.
@_stands_for(node.check_static)
def _check_static(cls: type, held: tuple[tuple[str, Any], ...]) -> None:
    pass


@_stands_for(within_gradient.within_gradient)
def _within_gradient(*values: Any) -> Any:
    return within_gradient.ask(values or (within_gradient.NOT_GIVEN,))


# Dynamo cannot run the explanation of a plugin, and shows an error that is raised as a text.
@_stands_for(prevent_gradient.prevented)
def _prevented(leaf: Any, message: str, binding: Any) -> GradientPreventedError:  # noqa: ARG001
    return GradientPreventedError(
        f"{message} (prevent_gradient was given a value that is being differentiated in a function that is compiled; "
        "where its derivative is not wanted, pass non_differentiable(value))"
    )


@_stands_for(path.paths_of)
def _paths_of(tree: Any, spec: Any) -> path.Paths:
    return path.compute(tree, spec, named_tuples=False)


# Tracing is slow, so the two checks of paths are left out; `paths_of` checks when paths are needed.
@_stands_for(path.check_paths)
def _check_paths(tree: Any, spec: Any) -> None:
    pass


@_stands_for(path.check_keeps_none)
def _check_keeps_none(tree: Any, spec: Any, result: Any, leaves: Sequence[Any]) -> None:
    pass


# Dynamo cannot hold what optree says of a dict that lies beside a leaf.
@_stands_for(traversal.container_leaves)
def _container_leaves(tree: Any) -> list[Any]:
    found: list[Any] = []
    if type(tree) in (list, tuple):
        children = list(tree)
    elif type(tree) is dict and all(type(key) is str for key in tree):
        children = [tree[key] for key in sorted(tree)]  # in the order of optree
    else:
        return traversal.tree_flatten(tree)[0]
    for child in children:
        found.extend(_container_leaves(child) if traversal.is_container(child) else [child])
    return found


@_stands_for(traversal.tree_flatten)
def _tree_flatten(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None, *, visit: Callable[[Any], bool] | None = None
) -> tuple[list[Any], Any]:
    while True:
        found, spec = treespec.flatten(tree, visit or is_leaf)
        if not traversal.admit_all(found if is_leaf is None else [leaf for leaf in found if not is_leaf(leaf)]):
            return found, spec


@_stands_for(traversal.one_level)
def _one_level(tree: Any) -> Any:
    if not traversal.is_container(tree):
        return None
    children, names, metadata, rebuild = treespec.one_level(tree)
    return children, metadata, tuple([str(name) for name in names]), rebuild


@_stands_for(traversal.tree_unflatten)
def _tree_unflatten(spec: Any, leaves: Sequence[Any], tree: Any) -> Any:  # noqa: ARG001
    return spec.unflatten(list(leaves))


def _declares(value: Any) -> bool:
    return declaration.class_declares(type(value), declaration.REGISTRATIONS.number)


@_stands_for(declaration.declaring)
def _declaring() -> Callable[[Any], bool]:
    return _declares


# Dynamo cannot follow a dictionary that is filled during tracing, so every structure counts as declaring.
@_stands_for(declaration.flatten_declaring)
def _flatten_declaring(tree: Any) -> tuple[list[Any], Any, bool]:
    leaves, spec = traversal.tree_flatten(tree)
    return leaves, spec, True


@_stands_for(where.match)
def _match(paths: path.Paths, pattern: str) -> list[bool]:
    return [where.matches(name, pattern) for name in paths.of_leaves]


# A mask is a constant of the graph: Dynamo would fold optree's result for it, which it cannot store.
@_stands_for(where.by_mask)
def _by_mask(structure: Structure, mask: Any) -> list[bool]:
    if not _is_built_in(mask):
        return where.by_mask_of_any_class(structure, mask)
    flags = _flags_of(mask)
    paths = structure.paths.of_leaves
    found: list[bool] = []
    used = set()
    for name in paths:
        for prefix, flag in flags:
            if prefix in ("", name) or name.startswith(f"{prefix}."):
                found.append(flag)
                used.add(prefix)
    if len(found) != len(paths) or len(used) != len(flags):
        raise where.other_structure(structure, mask, [prefix for prefix, _ in flags])
    return found


def _is_built_in(mask: Any) -> bool:
    if type(mask) is dict:
        return all(_is_built_in(item) for item in mask.values())
    if type(mask) in (list, tuple):
        return all(_is_built_in(item) for item in mask)
    return mask is True or mask is False


@run_while_tracing
def _flags_of(mask: Any) -> tuple[tuple[str, bool], ...]:
    """Return the bools of a mask, each with its path."""
    flags, spec = traversal.tree_flatten(mask)
    return tuple(zip(path.paths_of(mask, spec).of_leaves, flags, strict=True))


@run_while_tracing
def _restart() -> None:
    # The exception with which Dynamo itself starts over, discarding the first attempt.
    dynamo = sys.modules["torch._dynamo.exc"]
    raise dynamo.UnspecializeRestartAnalysis(restart_reason="adprotocol met a class for the first time")


# Dynamo caches optree's registry at its first reading: a class registered since would stay a leaf.
@_stands_for(traversal.nodes_changed)
def _nodes_changed() -> None:
    _restart()
