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

import functools

from adprotocol._dispatch import dtype, registry, table, wrapper
from adprotocol._dispatch.binding import OPAQUE
from adprotocol._gradients import framework, where
from adprotocol._hooks import builtins, is_concrete, prevent_gradient, within_gradient
from adprotocol._hooks.where import arrays_held
from adprotocol._rules import closure, custom_derivative, host_function
from adprotocol._rules.outline import outlined
from adprotocol._trees import declaration, fields, held, node, traversal
from adprotocol._trees.treespec import build
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import GradientPreventedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from adprotocol._dispatch.binding import Binding
    from adprotocol._rules.outline import Outline

    F = TypeVar("F", bound=Callable[..., Any])


def run_while_tracing(function: F) -> F:
    """Mark a function that the compiler runs, on the constants it is given, instead of tracing it.

    ``torch.compiler.assume_constant_result`` sets this attribute.

    >>> from adprotocol.tracing import run_while_tracing
    >>> @run_while_tracing
    ... def name_of(cls):
    ...     return cls.__name__
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]  # noqa: SLF001
    return function


def trace_instead(substitute: Callable[..., Any]) -> Callable[[F], F]:
    """Mark a function that the compiler replaces by a substitute when it traces.

    ``torch.compile`` sets this attribute on the functions that it wraps.

    >>> from adprotocol.tracing import trace_instead
    >>> @trace_instead(lambda x: 2.0 * x)
    ... def doubled(x):
    ...     return x + x
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
    traversal.admit,
    node.in_order,
    fields.field_names,
    fields.has_fields,
    held.layout,
    declaration.declares,
    declaration.frozen_fields,
    framework.default,
    framework.named,
    where.matches,
    dtype.kind_of_dtype,
):
    run_while_tracing(_function)


wrapper.COMPILER_MARKS += ["_torchdynamo", "_dynamo"]


# Py_TPFLAGS_HAVE_GC
_IS_COLLECTED = 1 << 14


# Dynamo would guard on the table, which is filled while it traces.
@substitute_for(table.lookup)
def _lookup(cls: type) -> Binding:
    return getattr(table.BINDINGS, _name_of(cls))  # type: ignore[no-any-return]


@run_while_tracing
def _name_of(cls: type) -> str:
    import torch  # noqa: PLC0415  (Dynamo traces)

    name = table.resolve(cls)
    # PyTorch 2.9 follows no search of these in a graph: a shape holds numbers alone, and an instance of a class that
    # the collector of garbage skips refers to nothing.
    is_empty = cls is torch.Size or (name == table.BINDINGS.OPAQUE.name and not cls.__flags__ & _IS_COLLECTED)
    return table.BINDINGS.PLAIN.name if is_empty else name


@substitute_for(traversal.binding_for)
def _binding_for(value: Any) -> Binding:
    binding = _lookup(type(value))
    return traversal.admitted(value) if binding.kind is OPAQUE else binding


# Metadata is not needed in a graph. PyTorch 2.9 cannot trace what copies it.
@substitute_for(wrapper.wrap)
def _wrap(wrapping: Callable[..., Any], fun: Callable[..., Any]) -> Callable[..., Any]:  # noqa: ARG001
    return wrapping


# An error in a graph has the frames of what was traced.
@substitute_for(wrapper.leave_out)
def _leave_out(error: BaseException) -> None:
    pass


@substitute_for(fields.attributes)
def _attributes(value: Any) -> None:  # noqa: ARG001
    return None


# It cannot search a function.
@substitute_for(arrays_held)
def _arrays_held(fun: Any) -> list[Any]:  # noqa: ARG001
    return []


# An array of NumPy is a tensor in a graph, of no dtype object; so is a scalar of NumPy. Dynamo shows no dtype of it.
@substitute_for(held.holds_objects)
def _holds_objects(array: Any) -> bool:  # noqa: ARG001
    return False


@substitute_for(builtins.ask_array)
@substitute_for(is_concrete.array_is_concrete)
def _ask_array(array: Any) -> bool:  # noqa: ARG001
    return False


@substitute_for(builtins.trainable_array)
def _trainable_array(array: Any) -> bool | None:
    import torch  # noqa: PLC0415  (Dynamo traces)

    return True if torch.as_tensor(array).is_floating_point() or torch.as_tensor(array).is_complex() else None


@substitute_for(within_gradient.within_gradient)
def _within_gradient(*values: Any) -> Any:
    if not values:
        raise within_gradient.no_values()
    answer = answer_at_once(values)
    return within_gradient.ask(values) if answer is None else answer


def answer_at_once(values: tuple[Any, ...]) -> bool | None:  # noqa: ARG001
    """Answer for values that the compiler knows, which takes it less than tracing what asks; for plugins to replace."""
    return None


@substitute_for(is_concrete.is_concrete)
def _is_concrete(*values: Any) -> bool:
    if not values:
        raise within_gradient.no_values("is_concrete")
    return is_concrete.all_concrete(values)


# Dynamo cannot run the explanation of a plugin, and shows an error that is raised as a text.
@substitute_for(prevent_gradient.prevented)
def _prevented(leaf: Any, message: str, binding: Any) -> GradientPreventedError:  # noqa: ARG001
    return GradientPreventedError(
        f"{message} (a value is being differentiated in a function that is compiled; "
        "where its derivative is not wanted, pass non_differentiable(value))"
    )


@substitute_for(node.check_none)
def _check_none(value: Any, children: Any, metadata: Any, flatten: Any, unflatten: Any) -> None:
    pass


@substitute_for(traversal.tree_unflatten)
def _tree_unflatten(spec: Any, leaves: Sequence[Any], tree: Any, show: Any = None) -> Any:  # noqa: ARG001
    return build(spec, iter(leaves), show)


class EagerCall:
    """A call that a compiled graph leaves to eager code; the hook `custom_rule` gets it in place of a rule.

    A graph cannot hold a rule, whose derivative is chosen by the transformations around it. Eager code that the
    compiler's next stage traces can: there the call with these arrays does what it does anywhere.
    """

    def __init__(self, function: Any, arguments: Outline) -> None:
        self.function = function
        self.arguments = arguments

    def closed_over(self) -> list[Any]:
        """Return the arrays that the function and its rules use besides its arguments, as far as they can be found."""
        has_rule = isinstance(self.function, custom_derivative.CustomDerivative)
        used = [self.function.fun, *[rule.given for rule in self.function.rules]] if has_rule else []
        return [array for function in used for array in (*closure.closed_over(function), *closure.by_name(function))]

    def fun(self, arrays: Sequence[Any]) -> tuple[list[Any], Outline]:
        """Call the function with these arrays; return the arrays of its result and the rest."""
        args, static = self.arguments.filled(arrays)
        return outlined(*traversal.tree_flatten(self.function(*args, **static), labels=True))


@substitute_for(custom_derivative.CustomDerivative.__call__)
def _call_with_rule(self: custom_derivative.CustomDerivative, *args: Any, **static: Any) -> Any:
    return _left_to_eager_code(self, args, static, has_residuals=self.has_residuals)


@substitute_for(host_function.HostFunction.__call__)
def _call_on_host(self: host_function.HostFunction, *args: Any, **static: Any) -> Any:
    return _left_to_eager_code(self, args, static, has_residuals=False)


# Dynamo knows no methods made by hand.
@substitute_for(wrapper.Wrapper.__get__)
def _bound(self: Any, instance: Any, owner: type | None = None) -> Any:  # noqa: ARG001
    return self if instance is None else functools.partial(self, instance)


def _left_to_eager_code(function: Any, args: Any, static: Any, *, has_residuals: bool) -> Any:
    leaves, treespec = traversal.tree_flatten((args, static), labels=True)
    binding = traversal.sole_framework(leaves, table.BINDINGS.PLAIN)
    if binding.framework is None:
        returned = function.fun(*args, **static)
        return returned[0] if has_residuals else returned
    arrays, arguments = outlined(leaves, treespec)
    call: Any = EagerCall(function, arguments)
    custom_rule: Any = binding.custom_rule
    results, outline = custom_rule(call, arrays)
    return outline.filled(results)
