"""`within_gradient`: is a derivative propagated through this value, here and now?"""

from __future__ import annotations

from adprotocol._dispatch.binding import LABEL, NUMPY, OPAQUE, UNSET, always_false
from adprotocol._dispatch.registry import load_plugins
from adprotocol._dispatch.table import BINDINGS, TABLE, join, lookup
from adprotocol._trees.held import check_opaque, expand, holds_objects
from adprotocol._trees.traversal import leaves_by_class, tree_leaves
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import NoValuesError, OpaqueValueError, UndecidableError

if TYPE_CHECKING:
    from collections.abc import Collection


# Added to a False by `explain` where another value is being differentiated: a layer that asks about its data is off.
ASK_PARAMETERS = "another value is being differentiated here; to detect training, ask about the parameters of the model"


def within_gradient(value: Any = UNSET, /, *others: Any) -> Any:
    """Return whether a derivative is being propagated through any of the values, here and now.

    True exactly when the framework would propagate a derivative, forward or
    reverse, at any nesting level, through an operation applied at this point of
    the program to a leaf of one of the values. The values decide, never a flag
    that the library keeps; a framework's own switch (``torch.no_grad``) counts.

    >>> import adprotocol, autograd
    >>> adprotocol.within_gradient(1.0)
    False
    >>> print(autograd.grad(lambda x: x * 2.0 if adprotocol.within_gradient(x) else x)(1.0))
    2.0

    Args:
        value: an array of any shape and dtype, a number or any other value, or a
            container of them (dict, list, tuple, named tuple, dataclass,
            registered node). Integer and boolean arrays, numbers, strings, None,
            functions and NumPy arrays are False.
        *others: more values; True if any leaf of any value is tracked.

    Returns:
        A ``bool`` when the framework knows now. Under JAX's jit, scan or
        checkpoint it is a staged boolean scalar, shape ``()``, that becomes True
        or False when a transformation is applied later: branch on it with
        `adprotocol.cond`, not with ``if``.

    Raises:
        NoValuesError: no arguments (the answer depends on a value).
        MixedFrameworksError: the values belong to two frameworks.
        UnclaimedTypeError: an array of a framework without a plugin.
        OpaqueValueError: an object that hides framework arrays in attributes.
        PluginError: the plugin of the value's framework failed or is blocked.

    Source: ``NNlib.within_gradient`` (Julia), extended to forward mode and to staging
    compilers.
    """
    if others:
        return ask((value, *others))
    try:
        # Two steps: CPython 3.11 specialises an attribute and a call, but not a
        # call of a value held in a slot (25 ns).
        query = TABLE[type(value)].within_gradient
    except KeyError:
        pass  # answered below, so that an error there is not chained to this one
    else:
        # The first answer about a type has been checked in `ask`, below.
        return query(value)
    if value is UNSET:
        raise no_values()
    return ask((value,))


def ask(values: Collection[Any], within: Any = UNSET) -> Any:
    """Answer for several values of any kind; the values of a framework are asked about in one call.

    `within` is the container of the values that the caller was given, if they are in one, for messages.
    """
    tracked: list[Any] = []
    # What is a constant now may be an input of a staged program later, so it is asked about along with a tracer.
    constants: list[Collection[Any]] = []
    asked = sole = BINDINGS.PLAIN
    groups = leaves_by_class(values)
    # Look at every group: two frameworks are an error.
    for binding, leaves in groups:
        if binding.stands_for is not None:
            if binding.kind is not LABEL and (binding.kind is not NUMPY or any(map(holds_objects, leaves))):
                return ask(expand([leaf for _, group in groups for leaf in group]))
        elif binding.framework is not None:
            sole = binding if sole.framework is None else join(sole, binding)
            if binding.within_gradient is always_false:
                constants.append(leaves)
            else:
                asked = binding
                tracked += leaves
        elif binding.kind is OPAQUE:
            for leaf in leaves:
                check_opaque(leaf, tuple(values) if within is UNSET else (within,))
    if not tracked:
        return False
    if asked.any_within_gradient is not None and (constants or len(tracked) > 1):
        for leaves in constants:
            tracked += leaves
        return asked.any_within_gradient(tracked)
    answer: Any = False
    for leaf in tracked:
        one = asked.within_gradient(leaf)
        if one is True:
            return True
        if one is not False:
            answer = one if answer is False else answer | one
    return answer


def explain(*values: Any) -> str:
    """Explain in text what `within_gradient` answers for the values, and why.

    >>> import adprotocol
    >>> print(adprotocol.explain(1.0))
    float: False (a number or other value that no framework differentiates)

    Args:
        *values: as for `within_gradient`.

    Returns:
        One line for each leaf, with its type, its plugin, the answer and the reason.

    Raises:
        NoValuesError: no arguments.
    """
    if not values:
        raise no_values("explain")
    load_plugins()
    return "\n".join(map(_explain_leaf, expand(tree_leaves(values), whole=True)))


def _explain_leaf(leaf: Any) -> str:
    binding = lookup(type(leaf))
    plugin = f" [plugin {binding.framework}]" if binding.framework else ""
    try:
        answer = ask((leaf,))
    except (OpaqueValueError, UndecidableError) as error:
        return f"{type(leaf).__qualname__}: no answer ({error})"
    answered = answer if isinstance(answer, bool) else "staged"
    reason = binding.explain if isinstance(binding.explain, str) else binding.explain(leaf)
    return f"{type(leaf).__qualname__}{plugin}: {answered}" + (f" ({reason})" if reason else "")


def no_values(name: str = "within_gradient") -> NoValuesError:
    """Return the error for a call of the function of this name without values."""
    return NoValuesError(
        f"{name}() was called without values; the answer depends only on the values "
        "(there is no ambient flag): pass the arrays, or the parameters, that matter"
    )
