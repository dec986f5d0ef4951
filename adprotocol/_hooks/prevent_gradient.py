"""`prevent_gradient`: the same value, and an error where it is differentiated.

The answer of `within_gradient` decides. Where that is staged, the plugin's hook puts
an operation into the program that passes the value on and has no derivative.
"""

from __future__ import annotations

from adprotocol._dispatch.binding import NUMPY, OBJECT
from adprotocol._dispatch.shape import sizes
from adprotocol._dispatch.table import lookup
from adprotocol._hooks.non_differentiable import object_array
from adprotocol._hooks.within_gradient import ask
from adprotocol._trees.held import holds_objects
from adprotocol._trees.traversal import is_container, tree_flatten, tree_unflatten
from adprotocol._trees.treespec import paths
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import ArgumentError, GradientPreventedError, PluginError
from adprotocol.messages import kind_of

if TYPE_CHECKING:
    from adprotocol._dispatch.binding import Binding


def prevent_gradient(value: Any, /, message: str) -> Any:
    """Return a value unchanged, and raise an error with `message` where it is differentiated.

    >>> import adprotocol, autograd
    >>> def lookup(x):
    ...     return adprotocol.prevent_gradient(x, "the table has no derivative") // 0.5
    >>> lookup(1.3)
    2.0
    >>> try:
    ...     autograd.grad(lookup)(1.3)
    ... except adprotocol.ADProtocolError as error:
    ...     print(str(error).partition(" (")[0])
    the table has no derivative

    The error is raised exactly where `within_gradient` of the value is True: in this
    call if the framework knows the answer now. Under JAX's jit, scan or checkpoint it
    is raised when a transformation is applied later: ``jit(f)`` runs, and
    ``grad(jit(f))`` raises. The check costs no operation in the compiled program. Use
    the result: a compiler may drop an unused operation together with its error.

    Args:
        value: an array of any shape and dtype, or a container (dict, list, tuple,
            named tuple, dataclass, registered node). Integers, strings, functions,
            labels and other values that carry no derivative pass.
        message: the error message (str).

    Returns:
        The value. A container is rebuilt only if a leaf is replaced.

    Raises:
        GradientPreventedError: a leaf is being differentiated, or, for a staged
            function, is differentiated later.
        ArgumentError: `message` is not a string.
        PluginError: the answer is staged, and the plugin has no hook
            ``prevent_gradient``.
        ADProtocolError: as `within_gradient` does.

    Source: ``tf.raw_ops.PreventGradient`` (TensorFlow).
    """
    if not isinstance(message, str):
        msg = f"prevent_gradient was given {kind_of(message)} as message; give the text that the error will show"
        raise ArgumentError(msg)
    return _guard(value, message)


def _guard(value: Any, message: str) -> Any:
    if not is_container(value):
        return _checked(value, message)
    leaves, treespec = tree_flatten(value)
    guarded = [_checked(leaf, f"{message} (at {path!r})") for leaf, path in zip(leaves, paths(treespec), strict=True)]
    if [new for new, old in zip(guarded, leaves, strict=True) if new is not old]:
        return tree_unflatten(treespec, guarded, value)
    return value


def _checked(leaf: Any, message: str) -> Any:
    binding = lookup(type(leaf))
    if binding.prevent_gradient is not None:
        return binding.prevent_gradient(leaf, message)
    if binding.kind is OBJECT and binding.view is not None:
        # Shown as a container, for the paths in it; a leaf that is staged cannot be put back.
        view = binding.view(leaf)
        if not [part for part in (view.container, *view.others()) if _guard(part, message) is not part]:
            return leaf
    if binding.kind is NUMPY and holds_objects(leaf):
        return object_array(leaf, lambda element: _guard(element, message))
    answer = ask((leaf,))
    if answer is False:
        return leaf
    if answer is True:
        raise prevented(leaf, message, binding)
    raise PluginError(
        f"prevent_gradient was given {kind_of(leaf)}, and whether it is differentiated is staged: it is decided when a "
        f"transformation is applied later. The plugin {binding.framework!r} has no hook prevent_gradient that would "
        f"raise then ({message}). Upgrade the plugin, or give it that hook (adprotocol.hookspecs says how)"
    )


def prevented(leaf: Any, message: str, binding: Binding) -> GradientPreventedError:
    """Return the error for a leaf of which its plugin says that it is differentiated, with the plugin's reason."""
    reason = binding.explain if isinstance(binding.explain, str) else binding.explain(leaf)
    return gradient_prevented(leaf, message, ": ".join(filter(None, (binding.framework, reason))))


def gradient_prevented(value: Any, message: str, reason: str) -> GradientPreventedError:
    """Return the error for a value that is differentiated; `reason` says who does, as `explain` would.

    >>> from adprotocol.extend import gradient_prevented
    >>> error = gradient_prevented(2.0, "the table has no derivative", "toyad: a tape follows it")
    >>> print(str(error).partition(";")[0])
    the table has no derivative (a float is being differentiated by toyad: a tape follows it
    """
    shape, dtype = sizes(value), getattr(value, "dtype", None)
    shaped = f" of shape {shape and tuple(shape)} and dtype {dtype}" if hasattr(value, "shape") else ""
    return GradientPreventedError(
        f"{message} ({kind_of(value)}{shaped} is being differentiated by {reason}; where its derivative is not wanted, "
        "pass non_differentiable(value))"
    )
