"""The errors that adprotocol raises on purpose.

Every one derives from `ADProtocolError` and from the built-in a caller would
expect, so that ``except TypeError`` keeps working. Each message says what was
given, who refused it, and what to do instead.
"""


class ADProtocolError(Exception):
    """Base of every error the library raises on purpose.

    >>> import adprotocol
    >>> try:
    ...     adprotocol.within_gradient()
    ... except adprotocol.ADProtocolError as error:
    ...     print(type(error).__name__)
    NoValuesError
    """


class NoValuesError(ADProtocolError, TypeError):
    """A hook was called without the values it decides by."""


class PredicateError(ADProtocolError, TypeError):
    """The predicate of `cond` is not a boolean."""


class PredicateShapeError(PredicateError, ValueError):
    """The predicate of `cond` is boolean, but not a scalar."""


class BranchError(ADProtocolError, TypeError):
    """A branch of `cond` cannot be called."""


class BranchMismatchError(ADProtocolError, TypeError):
    """The branches of a staged or batched `cond` differ in structure, shape or dtype."""


class MixedFrameworksError(ADProtocolError, TypeError):
    """One call was given values of two AD frameworks."""


class UnclaimedTypeError(ADProtocolError, TypeError):
    """An array whose type no plugin claims: the answer is not known."""


class OpaqueValueError(ADProtocolError, TypeError):
    """An object that hides framework arrays where no traversal can reach them."""


class NotConstantError(ADProtocolError, TypeError):
    """`non_differentiable` was given something that cannot be made constant."""


class UndecidableError(ADProtocolError, RuntimeError):
    """The framework does not let the question be answered rightly here."""


class TreeError(ADProtocolError, ValueError):
    """A structure that cannot be traversed: cyclic, too deep, or not rebuildable."""


class PluginError(ADProtocolError, RuntimeError):
    """A plugin that cannot serve the values of its framework; the cause is chained."""
