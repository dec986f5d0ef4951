"""A derivative rule as a plugin gets it: functions of flat lists of the framework's arrays.

The core takes care of structures, static values, labels, functions in place of
gradients and checks; the plugin of its framework's arrays.
"""

from __future__ import annotations

import functools

from adprotocol._dispatch.binding import ARRAY, CONSTANT, FUNCTION, NUMPY, OBJECT, OPAQUE, PLAIN
from adprotocol._dispatch.dtype import is_inexact
from adprotocol._dispatch.table import lookup
from adprotocol._rules.check import Collector
from adprotocol._rules.closure import closed_over, hidden_error
from adprotocol._rules.host_function import HostFunction, blank_array, read_only
from adprotocol._rules.outline import ONE_ARRAY, Arguments, Outline, is_array, outlined
from adprotocol._rules.signature import keyword_defaults, reads, takes_arguments
from adprotocol._trees.held import check_held, check_opaque, search
from adprotocol._trees.traversal import tree_flatten
from adprotocol._trees.treespec import children_of, count_leaves, labelled_leaves
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import RuleError
from adprotocol.messages import full_kind_of, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol._dispatch.binding import Binding

    Arrays = Sequence[Any]


class Rule:
    """A rule for one mode as its author gave it, a function or a host function.

    Args:
        given: what the author gave to ``defvjp`` or ``defjvp``.
        fun: the function that has the rule.
        has_residuals: whether that returns residuals, so that the rule may do without the arguments.
    """

    def __init__(self, given: Callable[..., Any], fun: Callable[..., Any], *, has_residuals: bool) -> None:
        self.given = given
        self.host: HostFunction | None = given if isinstance(given, HostFunction) else None
        self.fun: Callable[..., Any] = given if self.host is None else self.host.fun
        self._takes_arguments = not has_residuals or takes_arguments(given)
        # The keyword-only arguments that a call may leave out.
        self._defaults = keyword_defaults(fun, given)

    def __call__(self, flowing: Any, returned: Any, args: tuple[Any, ...], static: dict[str, Any]) -> Any:
        """Return what the rule does for these cotangents or tangents."""
        try:
            return self.fun(flowing, returned, *(args if self._takes_arguments else ()), **(self._defaults | static))
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:  # of the rule's own lines
                raise
            msg = f"a rule is called with (cotangent, returned, *args), in forward mode (tangents, ...); {error}"
            raise RuleError(msg) from error


class DerivativeRule:
    """Hold the rule for one call, or for many with equal structures and equal values that are not arrays.

    `arrays` are always the framework's arrays among the arguments, in one order; `results` those that the function
    returned. Nothing of a call is stored here: what `fun` returns besides its arrays is the `Outline`.

    Attributes:
        name: of the function, for messages.
        has_vjp: whether there is a rule for reverse mode.
        has_jvp: whether there is a rule for forward mode.
        once: why the rule is differentiated once only, as the text of the error that a second derivative raises; empty
            if it is not so. (Its own transpose, by which one rule is derived from the other, is not a second one.)
        linear: the choices of inputs for which `adprotocol.extend.Derivative` has found the rule to be linear; None for
            a rule for reverse mode alone.
        reads: for each of `arrays` whether `vjp` and `jvp` read its value. If not, it need not be kept for a later
            backward pass: give something with its shape and dtype instead.
        reads_results: the same of `results`.
        keeps_arrays: whether any of `arrays` is read.
    """

    def __init__(self, function: Any, binding: Binding, arguments: Arguments) -> None:
        self._function = function
        self._binding = binding
        self._arguments = arguments
        self.name: str = function.name
        self.has_vjp: bool = function.vjp is not None
        self.has_jvp: bool = function.jvp is not None
        self.once: str = function.once()
        self.reads: tuple[bool, ...] = arguments.read_by(self._is_read)
        # Behind what is differentiated once lies what has been given to it.
        self.reads_results: bool = self._is_read(1) or self.once != ""
        self.keeps_arrays: bool = True in self.reads
        self.linear: set[tuple[Any, ...]] | None = function.linear

    def as_like(self, value: Any, like: Any) -> Any:
        """Return what a rule returned as the framework's array, by the function of the hook `array_functions`."""
        return self._binding.functions("custom_derivative", "as_like").as_like(value, like)

    def _is_read(self, place: int) -> bool:
        """Return whether a rule may read what it gets at a place among its arguments."""
        return any(reads(rule.given, place) for rule in self._function.rules)

    def closed_over(self) -> list[Any]:
        """Return the arrays that the function closes over, as far as they can be found; none is differentiated."""
        return closed_over(self._function.fun)

    def closed_over_by_rules(self) -> list[Any]:
        """Return the arrays that the rules close over, as far as they can be found."""
        return [array for rule in self._function.rules for array in closed_over(rule.given)]

    def hidden_error(self) -> RuleError:
        """Return the error for a function that uses a differentiated value which is not an argument of it."""
        return hidden_error(self.name)

    def fun(self, arrays: Arrays) -> tuple[list[Any], Outline]:
        """Run the function; return the arrays that it returned, NumPy's and inexact numbers included, and the rest.

        The plugin makes the framework's arrays of them, all of which `vjp` and `jvp` get as `results`.
        """
        args, static = self._arguments.filled(arrays)
        returned = self._function.fun(*args, **static)
        has_residuals = self._function.has_residuals
        if not has_residuals and _is_differentiated(returned):
            return self._kept([returned]), ONE_ARRAY
        result = self._function.result_of(returned)
        if result is None or hasattr(type(result), "__next__"):
            raise RuleError(
                f"{self.name} has a derivative rule and returned {kind_of(result)}; return arrays or a structure"
            )
        leaves, treespec = tree_flatten(returned, labels=True)
        own = count_leaves(children_of(treespec)[0]) if has_residuals else len(leaves)
        pairs = zip(leaves[:own], labelled_leaves(treespec), strict=False)
        outputs = [i for i, (leaf, labelled) in enumerate(pairs) if not labelled and _is_differentiated(leaf)]
        arrays, outline = outlined(leaves, treespec, outputs, is_array, is_pair=has_residuals)
        for leaf in outline.leaves[:own]:
            _refuse_hidden(leaf)
        objects = [full_kind_of(leaf) for leaf in outline.leaves[own:] if lookup(type(leaf)).kind in (OPAQUE, OBJECT)]
        outline.objects = ", ".join(objects)
        return self._kept(arrays), outline

    def _kept(self, results: list[Any]) -> list[Any]:
        """Return results, copied if NumPy's are the framework's arrays: a host function may return its workspace."""
        if not isinstance(self._function.fun, HostFunction):
            return results
        return [result.copy() if lookup(type(result)).kind is NUMPY else result for result in results]

    def vjp(
        self, needed: Sequence[bool], cotangents: Arrays, results: Arrays, outline: Outline, arrays: Arrays
    ) -> list[Any]:
        """Return the gradient for each of `arrays` that is needed, in order, by the rule for reverse mode.

        Of `cotangents` there is one for each of the first ``outline.count`` results, zeros for one that is not used. A
        gradient is None for zeros, else an array of the right shape, of this framework or NumPy's, or a number; complex
        only if the array is. The plugin makes an array of the right dtype of it.
        """
        rule = self._function.vjp

        def run(cotangents: Arrays, arrays: Arrays, results: Arrays) -> list[Any]:
            args, static = self._arguments.filled(arrays)
            gradients = rule(outline.cotangent(cotangents), outline.filled(results), args, static)
            if len(args) == 1 and not isinstance(args[0], tuple) and not isinstance(gradients, (tuple, type(None))):
                gradients = (gradients,)
            if not isinstance(gradients, tuple) or len(gradients) != len(args):
                came = f"a tuple of {len(gradients)}" if isinstance(gradients, tuple) else kind_of(gradients)
                raise RuleError(
                    f"the vjp rule of {self.name} returned {came}; return a tuple with one gradient for each of the "
                    f"{len(args)} positional argument(s), None for zeros"
                )
            inputs = self._arguments.inputs(arrays, needed)
            collector = Collector(inputs, (f"the vjp rule of {self.name}", "the gradient for argument"))
            for number, (gradient, spec) in enumerate(zip(gradients, self._arguments.specs, strict=True)):
                collector.add(gradient, spec, f"{number}")
            entries = self._arguments.of_arrays(collector.entries)
            return [entry for entry, need in zip(entries, needed, strict=True) if need]

        if rule.host is None:
            return run(cotangents, arrays, results)
        likes = [array for array, need in zip(arrays, needed, strict=True) if need]
        if reads(rule.fun, 1):
            return self._on_host(rule.host, run, (cotangents, arrays, results), likes)
        # A compiler then leaves out the call of the function if nobody else uses the result.
        blank = list(map(blank_array, results))
        return self._on_host(rule.host, functools.partial(run, results=blank), (cotangents, arrays), likes)

    def jvp(self, tangents: Arrays, results: Arrays, outline: Outline, arrays: Arrays) -> list[Any]:
        """Return the tangent of each of the first ``outline.count`` results, by the rule for forward mode.

        Of `tangents` there is one for each of `arrays`, zeros where none is propagated, and None for one that is not
        inexact. What is returned is as for `vjp`.
        """
        rule = self._function.jvp

        def run(tangents: Arrays, arrays: Arrays, results: Arrays) -> list[Any]:
            args, static = self._arguments.filled(arrays)
            tangent = rule(self._arguments.tangents(tangents), outline.filled(results), args, static)
            collector = Collector(outline.of_outputs(results), (f"the jvp rule of {self.name}", "the tangent of"))
            collector.add(tangent, outline.spec, "the result")
            return outline.of_arrays(collector.entries)[: outline.count]

        if rule.host is None:
            return run(tangents, arrays, results)
        return self._on_host(rule.host, run, (tangents, arrays, results), list(results[: outline.count]))

    def _on_host(
        self, host: HostFunction, run: Callable[..., list[Any]], lists: tuple[Arrays, ...], likes: list[Any]
    ) -> list[Any]:
        """Run a host function as a rule, with NumPy's arrays in place of those in the lists; one result for a like."""
        import numpy as np  # noqa: PLC0415  (a host function uses it)

        arrays = [array for values in lists for array in values if array is not None]
        # A compiled program holds the call, so it must hold none of the arrays.
        present = [[array is not None for array in values] for values in lists]
        places = [next(place for place, other in enumerate(arrays) if other is array) for array in likes]

        def call(values: list[Any]) -> list[Any]:
            values = [read_only(np.asarray(value)) for value in values]
            rest = iter(values)
            returned = run(*[[next(rest) if there else None for there in group] for group in present])
            # Where the arrays are batched, the shapes that count are those given, not those of `likes`.
            return [
                np.zeros_like(like) if value is None else np.array(value, dtype=like.dtype, order="C")
                for value, like in zip(returned, [values[place] for place in places], strict=True)
            ]

        return host.run_by(self._binding, call, arrays, likes, self.once)


def _is_differentiated(leaf: Any) -> bool:
    """Return whether a leaf of a result is inexact; what NumPy computed counts too."""
    binding = lookup(type(leaf))
    if binding.kind is ARRAY or binding.kind is CONSTANT:
        return binding.trainable(leaf) is not None
    is_number = isinstance(leaf, (float, complex)) or is_inexact(getattr(leaf, "dtype", None))
    return binding.kind in (NUMPY, PLAIN) and is_number


def _refuse_hidden(leaf: Any) -> None:
    """Refuse a result that may hold arrays where nobody can reach them: their derivative would be lost."""
    kind = lookup(type(leaf)).kind
    remedy = "Return the arrays themselves from a function that has a derivative rule"
    if kind is FUNCTION:
        for item in search(leaf):
            check_held(leaf, item, remedy=remedy)
    elif kind in (OPAQUE, OBJECT):
        check_opaque(leaf, remedy=remedy)
