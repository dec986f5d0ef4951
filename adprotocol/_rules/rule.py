"""A derivative rule as a plugin gets it: functions of flat lists of the framework's arrays.

The core takes care of structures, static values, labels, functions in place of
gradients and checks; the plugin of its framework's arrays.
"""

from __future__ import annotations

from adprotocol._dispatch.binding import ARRAY, CONSTANT, FUNCTION, NUMPY, OBJECT, OPAQUE, PLAIN
from adprotocol._dispatch.dtype import is_inexact
from adprotocol._dispatch.table import lookup
from adprotocol._hooks.result import flatten_result
from adprotocol._rules.arguments import ONE_ARRAY, Arguments, Outline, is_array, labelled_leaves
from adprotocol._rules.check import Collector
from adprotocol._rules.closure import closed_over, may_hold
from adprotocol._rules.host_function import HostFunction, Wrapper, on_host
from adprotocol._rules.signature import reads
from adprotocol._trees.held import check_held, check_opaque, search
from adprotocol._trees.treespec import count_leaves
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import RuleError
from adprotocol.messages import full_kind_of, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol._dispatch.binding import Binding


class RuleFunctions(Wrapper):
    """Hold a function and its rules, as their author gave them."""

    def __init__(self, fun: Callable[..., Any], *, has_residuals: bool, reverse_only: bool) -> None:
        super().__init__(fun)
        self.name: str = getattr(fun, "__name__", type(fun).__name__)
        self.has_residuals = has_residuals
        self.reverse_only = reverse_only
        # What `check_transpose` has found to be linear; None if it is said not to be.
        self.linear: set[tuple[Any, ...]] | None = None if reverse_only else set()
        self.vjp: Callable[..., Any] | None = None
        self.jvp: Callable[..., Any] | None = None
        # Whether the rules take the arguments; with residuals they may do without.
        self.vjp_takes_arguments = True
        self.jvp_takes_arguments = True
        # The keyword-only arguments that a call may leave out.
        self.vjp_defaults: dict[str, Any] = {}
        self.jvp_defaults: dict[str, Any] = {}
        # The rules for calls whose arguments are all arrays, by framework and number; they hold nothing of a call.
        self.known: dict[tuple[Binding, int], DerivativeRule] = {}

    def reads(self, place: int) -> bool:
        """Return whether a rule may read what it gets at a place among its arguments."""
        return reads(self.vjp, place) or reads(self.jvp, place)

    def result_of(self, returned: Any) -> Any:
        """Return the result in what the function returned, without the residuals."""
        if not self.has_residuals:
            return returned
        if type(returned) is not tuple or len(returned) != 2:  # noqa: PLR2004
            msg = (
                f"{self.name} was declared with has_residuals=True, but returned {kind_of(returned)}; return the pair "
                "(result, residuals)"
            )
            raise RuleError(msg)
        return returned[0]

    def once(self) -> str:
        """Say why the rules are differentiated once only; empty if they are not so."""
        if self.has_residuals:
            return (
                f"the rule of {self.name} uses residuals (has_residuals=True), so it is differentiated once only; for "
                "derivatives of higher order, compute in the rule from the arguments and the result"
            )
        if isinstance(self.vjp, HostFunction) or isinstance(self.jvp, HostFunction):
            return (
                f"the rule of {self.name} is a host function, so it is differentiated once only, in its own mode; for "
                "other derivatives, write the rule with functions that have rules themselves"
            )
        return ""


class DerivativeRule:
    """The rule for one call, or for many with equal structures and equal values that are not arrays.

    `arrays` are always the framework's arrays among the arguments, in one order; `results` those that the function
    returned. Nothing of a call is stored here: what `fun` returns besides its arrays is the `Outline`.

    Attributes:
        name: of the function, for messages.
        has_vjp: whether there is a rule for reverse mode.
        has_jvp: whether there is a rule for forward mode.
        once: why the rule is differentiated once only, as the text of the error that a second derivative raises; empty
            if it is not so. (Its own transpose, by which one rule is derived from the other, is no second derivative.)
        linear: what `adprotocol.extend.check_transpose` has found to be linear; None for a rule for reverse mode alone.
        reads: for each of `arrays` whether `vjp` and `jvp` read its value. If not, it need not be kept for a later
            backward pass: give something with its shape and dtype instead.
        reads_results: the same of `results`.
        keeps_arrays: whether any of `arrays` is read.
    """

    __slots__ = (
        *("_arguments", "_binding", "_functions", "has_jvp", "has_vjp", "keeps_arrays", "linear", "name", "once"),
        *("reads", "reads_results"),
    )

    def __init__(self, functions: RuleFunctions, binding: Binding, arguments: Arguments) -> None:
        self._functions = functions
        self._binding = binding
        self._arguments = arguments
        self.name: str = functions.name
        self.has_vjp: bool = functions.vjp is not None
        self.has_jvp: bool = functions.jvp is not None
        self.reads: tuple[bool, ...] = arguments.of_arrays(functions.reads)
        # Behind what is differentiated once lies what has been given to it.
        self.reads_results: bool = functions.reads(1) or functions.once() != ""
        self.keeps_arrays: bool = True in self.reads
        self.once: str = functions.once()
        self.linear: set[tuple[Any, ...]] | None = functions.linear

    def __repr__(self) -> str:
        return f"<DerivativeRule of {self.name}>"

    def closed_over(self) -> list[Any]:
        """Return the arrays that the function closes over, as far as they can be found; none is differentiated."""
        return closed_over(self._functions.fun) if may_hold(self._functions.fun) else []

    def closed_over_by_rules(self) -> list[Any]:
        """Return the arrays that the rules close over, as far as they can be found."""
        rules = [rule for rule in (self._functions.vjp, self._functions.jvp) if rule is not None and may_hold(rule)]
        return [array for rule in rules for array in closed_over(rule)]

    def fun(self, arrays: Sequence[Any]) -> tuple[list[Any], Outline]:
        """Run the function; return the arrays that it returned, NumPy's and inexact numbers included, and the rest.

        The plugin makes the framework's arrays of them, all of which `vjp` and `jvp` get as `results`.
        """
        args, static = self._arguments.filled(arrays)
        returned = self._functions.fun(*args, **static)
        has_residuals = self._functions.has_residuals
        if not has_residuals and _is_differentiated(returned):
            return [returned], ONE_ARRAY
        result = self._functions.result_of(returned)
        if result is None or hasattr(type(result), "__next__"):
            msg = (
                f"{self.name}, which has a derivative rule, returned {'None' if result is None else kind_of(result)}; "
                "return arrays, or a structure of them"
            )
            raise RuleError(msg)
        leaves, treespec = flatten_result(returned)
        own = count_leaves(treespec[3][0]) if has_residuals else len(leaves)
        labelled = labelled_leaves(treespec)
        moving = [i for i in range(own) if not labelled[i] and _is_differentiated(leaves[i])]
        places = moving + [i for i, leaf in enumerate(leaves) if is_array(leaf) and i not in moving]
        results = [leaves[place] for place in places]
        for place in places:
            leaves[place] = None
        for leaf in leaves[:own]:
            _refuse_hidden(leaf)
        objects = [full_kind_of(leaf) for leaf in leaves[own:] if lookup(type(leaf)).kind in (OPAQUE, OBJECT)]
        return results, Outline(
            treespec, leaves, places, count=len(moving), objects=", ".join(objects), has_residuals=has_residuals
        )

    def vjp(
        self,
        needed: Sequence[bool],
        cotangents: Sequence[Any],
        results: Sequence[Any],
        outline: Outline,
        arrays: Sequence[Any],
    ) -> list[Any]:
        """Return the gradient for each of `arrays` that is needed, in order, by the rule for reverse mode.

        Of `cotangents` there is one for each of the first ``outline.count`` results, zeros for one that is not used. A
        gradient is None for zeros, else an array of the right shape, of this framework or NumPy's, or a number; complex
        only if the array is. The plugin makes an array of the right dtype of it.
        """
        vjp: Any = self._functions.vjp
        rule = vjp.fun if isinstance(vjp, HostFunction) else vjp

        def run(cotangents: Sequence[Any], results: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
            args, static = self._arguments.filled(arrays)
            passed = args if self._functions.vjp_takes_arguments else ()
            gradients = rule(
                outline.cotangent(cotangents),
                outline.returned(results),
                *passed,
                **(self._functions.vjp_defaults | static),
            )
            if not isinstance(gradients, tuple) or len(gradients) != len(args):
                came = f"a tuple of {len(gradients)}" if isinstance(gradients, tuple) else kind_of(gradients)
                msg = (
                    f"the vjp rule of {self.name} returned {came}; return a tuple with one gradient for each of the "
                    f"{len(args)} positional argument(s), None for zeros"
                )
                raise RuleError(msg)
            likes = self._arguments.spread(arrays, needed)
            collector = Collector(likes, (f"the vjp rule of {self.name}", "the gradient for argument"))
            for number, (gradient, spec) in enumerate(zip(gradients, self._arguments.specs, strict=True)):
                collector.add(gradient, spec, f"{number}")
            return self._arguments.gathered(collector.found, likes, needed)

        if not isinstance(vjp, HostFunction):
            return run(cotangents, results, arrays)
        likes = [array for array, need in zip(arrays, needed, strict=True) if need]
        return on_host(self._binding, vjp, run, (cotangents, results, arrays), likes, self.once)

    def jvp(
        self, tangents: Sequence[Any], results: Sequence[Any], outline: Outline, arrays: Sequence[Any]
    ) -> list[Any]:
        """Return the tangent of each of the first ``outline.count`` results, by the rule for forward mode.

        Of `tangents` there is one for each of `arrays`, zeros where none is propagated, and None for one that is not
        inexact. What is returned is as for `vjp`.
        """
        jvp: Any = self._functions.jvp
        rule = jvp.fun if isinstance(jvp, HostFunction) else jvp

        def run(tangents: Sequence[Any], results: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
            args, static = self._arguments.filled(arrays)
            passed = args if self._functions.jvp_takes_arguments else ()
            tangent = rule(
                self._arguments.moved(tangents),
                outline.returned(results),
                *passed,
                **(self._functions.jvp_defaults | static),
            )
            collector = Collector(outline.spread(results), (f"the jvp rule of {self.name}", "the tangent of"))
            collector.add(tangent, outline.spec, "the result")
            return collector.found

        if not isinstance(jvp, HostFunction):
            return run(tangents, results, arrays)
        likes = list(results[: outline.count])
        return on_host(self._binding, jvp, run, (tangents, results, arrays), likes, self.once)


def _is_differentiated(leaf: Any) -> bool:
    """Return whether a leaf of a result is inexact; what NumPy computed counts too."""
    binding = lookup(type(leaf))
    if binding.kind is ARRAY or binding.kind is CONSTANT:
        return binding.trainable(leaf) is not None
    if binding.kind is NUMPY:
        return is_inexact(leaf.dtype)
    if binding.kind is PLAIN:
        return isinstance(leaf, (float, complex)) or is_inexact(getattr(leaf, "dtype", None))
    return False


def _refuse_hidden(leaf: Any) -> None:
    """Refuse a result that may hold arrays where nobody can reach them: their derivative would be lost."""
    kind = lookup(type(leaf)).kind
    remedy = "Return the arrays themselves from a function that has a derivative rule"
    if kind is FUNCTION:
        for item in search(leaf, lambda value: lookup(type(value)).kind is FUNCTION):
            check_held(leaf, item, remedy=remedy)
    elif kind in (OPAQUE, OBJECT):
        check_opaque(leaf, remedy=remedy)
