"""`custom_derivative`: a function with a derivative rule of its own, on every framework."""

from __future__ import annotations

import functools

from adprotocol._dispatch.binding import ARRAY, CONSTANT, FUNCTION, NUMPY, OBJECT, OPAQUE, PLAIN, checked
from adprotocol._dispatch.table import BINDINGS, TABLE, install, lookup
from adprotocol._dispatch.wrapper import Wrapper
from adprotocol._hooks import builtins as _builtins  # noqa: F401  (the binding of functions, which is installed here)
from adprotocol._hooks.prevent_gradient import prevent_gradient
from adprotocol._hooks.within_gradient import ask
from adprotocol._rules.closure import hidden_error, hold_tracked, may_hold
from adprotocol._rules.host_function import HostFunction
from adprotocol._rules.outline import Arguments, is_array
from adprotocol._rules.rule import DerivativeRule, Rule
from adprotocol._rules.signature import by_position, completed
from adprotocol._trees.held import holds_objects
from adprotocol._trees.traversal import sole_framework, tree_flatten
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import RuleError
from adprotocol.messages import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol._dispatch.binding import Binding
    from adprotocol._trees.treespec import Treespec


def custom_derivative(
    fun: Callable[..., Any] | None = None, *, has_residuals: bool = False, reverse_only: bool = False
) -> Any:
    """Give a function a derivative rule of its own, written once for every framework.

    >>> import adprotocol, autograd, autograd.numpy as np
    >>> @adprotocol.custom_derivative
    ... def log1pexp(x):
    ...     return np.logaddexp(0.0, x)
    >>> @log1pexp.defvjp
    ... def log1pexp_vjp(cotangent, returned, x):
    ...     return (cotangent / (1.0 + np.exp(-x)),)
    >>> print(autograd.grad(log1pexp)(0.0), autograd.grad(autograd.grad(log1pexp))(0.0))
    0.5 0.25

    The rule given to ``.defvjp`` is for reverse mode. It gets the cotangent, what the
    function returned, and its arguments. It returns a tuple with a gradient for each
    positional argument, in that argument's structure, or the gradient itself for a single
    argument that is no tuple. None in the tuple stands for zeros. A function without
    arguments in place of a gradient is called only if that gradient is needed.

    The rule given to ``.defjvp`` is for forward mode. It gets the tuple of tangents in
    place of the cotangent, and returns the tangent of the result. One rule is enough: both
    are linear in what flows, so the other follows. Everything in a rule carries its own
    derivative, so derivatives of higher order differentiate the rule. Nothing is
    conjugated: ``Re sum(vjp(ct) * t) == Re sum(ct * jvp(t))``.

    Integers, strings, functions, labels and keyword-only arguments are constants. No
    derivative goes through the operations of the function or the values it closes over.

    Args:
        fun: the function, of arrays of any shapes and dtypes, structures of them, and
            other values. Without it, a decorator.
        has_residuals: whether the function returns a pair ``(result, residuals)``. Callers
            get the result, rules the pair. Residuals are of any type in eager code, and
            structures of arrays where a compiler traces. Such a rule is differentiated once.
            It may leave out the arguments, which are then not saved.
        reverse_only: whether the rule for reverse mode is not linear in the cotangent, such
            as one that clips it. Forward mode then raises.

    Returns:
        The function, with its metadata and the methods ``defvjp`` and ``defjvp``. With
        NumPy arrays and numbers alone it calls `fun`.

    Raises:
        RuleError: a rule is missing, is given twice, or returns a gradient of another
            count, structure or shape, or a complex one for a real argument; the function
            closes over a differentiated value; a mode without a rule needs the transpose of
            one that is not linear or is `reverse_only`.
        GradientPreventedError: a keyword-only argument is differentiated, or a rule that is
            differentiated once is differentiated again.

    After ``jax.custom_vjp``, ``jax.custom_jvp``, ``torch.autograd.Function`` and ``ChainRulesCore.rrule`` (Julia).
    """
    if fun is None:
        return functools.partial(custom_derivative, has_residuals=has_residuals, reverse_only=reverse_only)
    if isinstance(fun, (staticmethod, classmethod, property)) or not callable(fun):
        below = f"; put custom_derivative below @{type(fun).__name__}" if hasattr(type(fun), "__get__") else ""
        raise RuleError(f"custom_derivative was given {kind_of(fun)}, which is not a function{below}")
    return CustomDerivative(fun, has_residuals=has_residuals, reverse_only=reverse_only)


class CustomDerivative(Wrapper):
    """A function that `custom_derivative` made, with its rules.

    Attributes:
        vjp: the rule for reverse mode, None if there is none.
        jvp: the rule for forward mode.
        linear: the choices of inputs for which a rule was found to be linear, None if its author says that it is not.
    """

    def __init__(self, fun: Callable[..., Any], *, has_residuals: bool, reverse_only: bool) -> None:
        if has_residuals and isinstance(fun, HostFunction):
            fun.has_residuals = True
        super().__init__(fun)
        self.has_residuals = has_residuals
        self.vjp: Rule | None = None
        self.jvp: Rule | None = None
        self.linear: set[tuple[Any, ...]] | None = None if reverse_only else set()
        # How many arguments rules get by position, defaults included; known as soon as there is a rule.
        self.count: int = 0
        # The function and rules whose closures are looked into at each call.
        self.watched: list[Any] = [fun] if may_hold(fun) else []
        # The rules for calls whose arguments are all arrays, by framework and number; they hold nothing of a call.
        self.known: dict[tuple[Binding, int] | None, DerivativeRule] = {}

    def __repr__(self) -> str:
        return f"<custom derivative of {self.name}>"

    @property
    def rules(self) -> list[Rule]:
        """Return those that there are."""
        return [rule for rule in (self.vjp, self.jvp) if rule is not None]

    def defvjp(self, vjp: Callable[..., Any]) -> Callable[..., Any]:
        """Give the rule for reverse mode: ``vjp(cotangent, returned, *args, **static)`` returns the gradients."""
        self.vjp = self._accepted(vjp, self.vjp, "defvjp")
        return vjp

    def defjvp(self, jvp: Callable[..., Any]) -> Callable[..., Any]:
        """Give the rule for forward mode: ``jvp(tangents, returned, *args, **static)`` returns the result's tangent."""
        self.jvp = self._accepted(jvp, self.jvp, "defjvp")
        return jvp

    def _accepted(self, rule: Any, known: Rule | None, method: str) -> Rule:
        """Check a new rule, and make its record."""
        if not callable(rule):
            raise RuleError(f"{self.name}.{method} was given {kind_of(rule)}; give a function")
        if self.linear is None and method == "defjvp":
            msg = f"{self.name} was declared with reverse_only=True and given a rule for forward mode; drop one of them"
            raise RuleError(msg)
        if known is not None:
            msg = f"{self.name}.{method} was given a second rule, {rule!r:.99}; it has {known.given!r:.99}; give one"
            raise RuleError(msg)
        self.count = len(by_position(self.fun))
        if may_hold(rule):
            self.watched.append(rule)
        self.known.clear()
        return Rule(rule, self.fun, has_residuals=self.has_residuals)

    def result_of(self, returned: Any) -> Any:
        """Return the result in what the function returned, without the residuals."""
        if not self.has_residuals:
            return returned
        if type(returned) is not tuple or len(returned) != 2:  # noqa: PLR2004
            msg = f"{self.name} has residuals, but returned {kind_of(returned)}; return the pair (result, residuals)"
            raise RuleError(msg)
        return returned[0]

    def once(self) -> str:
        """Return why the rules can be differentiated only once, as the text of an error; empty if they always can."""
        if self.has_residuals:
            what, remedy = "uses residuals (has_residuals=True)", "compute in it from the arguments and the result"
        elif any(rule.host is not None for rule in self.rules):
            what, remedy = "is a host function", "write it with functions that have rules themselves"
        else:
            return ""
        return f"the rule of {self.name} {what}, so it is differentiated once only; for other derivatives, {remedy}"

    def __call__(self, *args: Any, **static: Any) -> Any:
        """Call the function; where a derivative is propagated, it is that of the rule."""
        leaves: Sequence[Any] = args
        treespec: Treespec = None
        binding = sole_of_leaves((*args, *static.values()) if static else args)
        if binding is None or (binding.framework is not None and (static or len(args) < self.count)):
            args, static = completed(self.fun, args, static)
            leaves, treespec = tree_flatten((args, static), labels=True)
            binding = sole_framework(leaves, BINDINGS.PLAIN)
            self._refuse_held(leaves)
        if binding.framework is None or (self.watched and self._is_plain(leaves)):
            return self._plain(args, static)
        if binding.custom_rule is None or not self.rules:
            return self._without_rule(binding, args, static)
        if static:
            message = f"{self.name} is not differentiated by its keyword arguments; pass the value by position"
            leaves, treespec = tree_flatten((args, prevent_gradient(static, message)), labels=True)
        arrays = [leaf for leaf in leaves if is_array(leaf)]
        # That of positional arrays alone is made once.
        key = (binding, len(args)) if treespec is None and len(arrays) == len(args) else None
        rule = self.known.get(key) or DerivativeRule(self, binding, Arguments(leaves, treespec))
        if key is not None:
            self.known[key] = rule
        results, outline = binding.custom_rule(rule, arrays)
        returned = outline.filled(checked(binding, "custom_rule", results, outline.size))
        return returned[0] if self.has_residuals else returned

    def _plain(self, args: tuple[Any, ...], static: dict[str, Any]) -> Any:
        result = self.result_of(self.fun(*args, **static))
        if self.rules and ask((result,)) is True:
            raise hidden_error(self.name)
        return result

    def _is_plain(self, leaves: Sequence[Any]) -> bool:
        """Return whether the function or a rule closes over a value that is differentiated, and no argument is.

        Then the function runs without its rule, and `_plain` raises if it has used that value.
        """
        if not hold_tracked(self.watched):
            return False
        if ask(tuple(leaves)) is not False:
            raise hidden_error(self.name)
        return True

    def _refuse_held(self, leaves: Sequence[Any]) -> None:
        """Raise `RuleError` where an argument that is not a structure holds a value that is differentiated."""
        for leaf in leaves:
            kind = lookup(type(leaf)).kind
            if kind is FUNCTION and hold_tracked((leaf,)):
                raise hidden_error(self.name)
            hides = kind is OPAQUE or kind is OBJECT or (kind is NUMPY and holds_objects(leaf))
            # An object of unknown class that holds arrays is refused by this question.
            if hides and ask((leaf,)) is not False:
                raise RuleError(
                    f"{self.name}, which has a derivative rule, was given {kind_of(leaf)} that holds values "
                    "which are differentiated; pass these in a structure: a list, a dict, a dataclass"
                )

    def _without_rule(self, binding: Binding, args: tuple[Any, ...], static: dict[str, Any]) -> Any:
        """Run the function if nothing is differentiated, and see to it that nothing will be."""
        reason = "has no rule, so it cannot be differentiated; give it one with defvjp or defjvp"
        if self.rules:
            reason = (
                f"has a derivative rule, which the plugin {binding.framework!r} cannot apply, since it has no hook "
                "custom_rule; upgrade the plugin, or pass what is not differentiated through non_differentiable"
            )
        message = f"{self.name} {reason}"
        if ask((*args, *static.values())) is True:
            raise RuleError(message)
        return self._plain(prevent_gradient(args, message), prevent_gradient(static, message))


def sole_of_leaves(values: Sequence[Any]) -> Binding | None:
    """Return the binding of the one framework among arrays and numbers; None if there is anything else."""
    sole = BINDINGS.PLAIN
    for value in values:
        binding = TABLE.get(type(value))
        if binding is None:
            return None
        kind = binding.kind
        if kind is ARRAY or kind is CONSTANT:
            if sole.framework not in (None, binding.framework):
                return None
            sole = binding
        elif not (kind is PLAIN or (kind is NUMPY and not holds_objects(value))):
            return None
    return sole


install(BINDINGS.FUNCTION, CustomDerivative)
