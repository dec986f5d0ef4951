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
    """A function was called without the values that decide its answer."""


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
    """No plugin claims the type of an array, so the answer is unknown."""


class OpaqueValueError(ADProtocolError, TypeError):
    """An object hides framework arrays where no traversal can reach them."""


class NotConstantError(ADProtocolError, TypeError):
    """`non_differentiable` was given something that cannot be made constant."""


class GradientPreventedError(ADProtocolError, RuntimeError):
    """A value is differentiated that was given to `prevent_gradient`, or whose function has no such derivative."""


class RuleError(ADProtocolError, TypeError, ValueError):
    """A derivative rule is missing, cannot be applied, or returned what cannot be a derivative."""


class UndecidableError(ADProtocolError, RuntimeError):
    """The framework does not allow a right answer here."""


class TreeError(ADProtocolError, ValueError):
    """A structure cannot be traversed or rebuilt, or does not match another."""


class StructureError(ADProtocolError, TypeError):
    """`register_structure` was given what it cannot register."""


class DeclarationError(ADProtocolError, ValueError):
    """A class declares trainable fields that it does not have, or in a wrong form."""


class SelectionError(ADProtocolError, ValueError):
    """`where` selects a leaf that does not exist or cannot take a gradient, or does not select by bools."""


class NothingTrainableError(SelectionError):
    """An argument has no leaf that takes a gradient."""


class ArgumentError(ADProtocolError, TypeError, ValueError):
    """`value_and_grad` got no function, or impossible `argnums`; `prevent_gradient` a message that is not text."""


class OutputError(ADProtocolError, TypeError):
    """The differentiated function returned something other than a real floating-point scalar."""


class BackendError(ADProtocolError, ValueError):
    """No AD framework can compute a gradient, or the one named by `backend` cannot be used."""


class ConcurrencyError(ADProtocolError, RuntimeError):
    """Two threads use one stateful object, and differentiate it with different parts frozen."""


class PluginError(ADProtocolError, RuntimeError):
    """A plugin cannot serve the values of its framework; the cause is chained."""
