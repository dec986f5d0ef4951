"""A derivative rule as a plugin gets it: functions of flat lists of the framework's arrays.

The core takes care of structures, static values, labels, functions in place of
gradients and checks; the plugin of its framework's arrays.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from adprotocol._dispatch.binding import ARRAY, CONSTANT, FUNCTION, NUMPY, OBJECT, OPAQUE, PLAIN
from adprotocol._dispatch.dtype import is_inexact
from adprotocol._dispatch.table import lookup
from adprotocol._hooks.label import NonDifferentiable
from adprotocol._hooks.result import flatten_result
from adprotocol._rules.check import Collector, count_leaves
from adprotocol._rules.host_function import HostFunction, on_host
from adprotocol._trees.held import check_held, check_opaque, search
from adprotocol._trees.treespec import build
from adprotocol.errors import RuleError, full_kind_of, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol._dispatch.binding import Binding
    from adprotocol._trees.treespec import Treespec


class Functions:
    """Hold a function and its rules, as their author gave them."""

    def __init__(self, fun: Callable[..., Any], name: str, *, has_residuals: bool) -> None:
        self.fun = fun
        self.name = name
        self.has_residuals = has_residuals
        self.vjp: Callable[..., Any] | None = None
        self.jvp: Callable[..., Any] | None = None
        # Whether the rules take the arguments; with residuals they may do without.
        self.vjp_takes_arguments = True
        self.jvp_takes_arguments = True


class Outline:
    """What a function returned besides its arrays: structure, other values, and residuals of any type.

    It belongs to one call. A plugin keeps it with the results, and gives it back to `DerivativeRule.vjp` and
    `DerivativeRule.jvp`. It holds no array of the framework.

    Attributes:
        count: how many of the results are differentiated: the inexact arrays that the function returned. Those after
            them are arrays of integers, those in labels, and those among the residuals.
        objects: the types of residuals that may hold anything, as text. Where a program is staged or batched, the
            plugin refuses them, since they may hold its tracers.
    """

    __slots__ = ("_leaves", "_places", "_treespec", "count", "objects")

    def __init__(self, treespec: Treespec, leaves: list[Any], places: list[int], count: int, objects: str) -> None:
        self._treespec = treespec
        # The leaves that are no arrays, and for each of the results its place among the leaves.
        self._leaves = leaves
        self._places = places
        self.count = count
        self.objects = objects

    def __repr__(self) -> str:
        return f"<Outline of {self.count} result(s)>"

    def returned(self, results: Sequence[Any]) -> Any:
        """Return what the function returned, with these arrays."""
        leaves = list(self._leaves)
        for place, array in zip(self._places, results, strict=True):
            leaves[place] = array
        return build(self._treespec, iter(leaves))

    def result(self, *, has_residuals: bool) -> Treespec:
        """Return the structure of the result alone."""
        return self._treespec[3][0] if has_residuals else self._treespec

    def spread(self, values: Sequence[Any], *, has_residuals: bool) -> list[Any]:
        """Return one entry for each leaf of the result, where a label is one: of `values` where it is differentiated."""
        leaves: list[Any] = [None] * len(self._leaves)
        for place, value in zip(self._places, values[: self.count], strict=False):
            leaves[place] = value
        return merge_labels(self.result(has_residuals=has_residuals), iter(leaves))


def without_labels(treespec: Treespec) -> Treespec:
    """Return a structure in which a label is a leaf."""
    if treespec is None or treespec[0] is NonDifferentiable:
        return None
    return (*treespec[:3], tuple([without_labels(child) for child in treespec[3]]))


def merge_labels(treespec: Treespec, leaves: Any) -> list[Any]:
    """Return the leaves of a structure with None, once, in place of those in each label."""
    if treespec is None:
        return [next(leaves)]
    if treespec[0] is NonDifferentiable:
        for _ in range(count_leaves(treespec)):
            next(leaves)
        return [None]
    return [leaf for child in treespec[3] for leaf in merge_labels(child, leaves)]


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
        keeps_arrays: whether `vjp` and `jvp` need the values of `arrays`. If not, keep none of them for a later
            backward pass, and give something with the shape and dtype of each instead.
    """

    __slots__ = (
        "_binding", "_functions", "_in_arguments", "_leaves", "_places", "_treespec", "has_jvp", "has_vjp",
        "keeps_arrays", "name", "once",
    )  # fmt: skip

    def __init__(self, functions: Functions, binding: Binding, treespec: Treespec, leaves: list[Any]) -> None:
        self._functions = functions
        self._binding = binding
        self._treespec = treespec
        self._places = [i for i, leaf in enumerate(leaves) if is_array(leaf)]
        self._leaves = list(leaves)
        for place in self._places:
            self._leaves[place] = None
        # How many of the leaves are in positional arguments; the others are in keyword arguments.
        self._in_arguments = count_leaves(treespec[3][0])
        self.name = functions.name
        self.has_vjp = functions.vjp is not None
        self.has_jvp = functions.jvp is not None
        self.keeps_arrays = (
            not functions.has_residuals or functions.vjp_takes_arguments or functions.jvp_takes_arguments
        )
        self.once = _once(functions)

    def __repr__(self) -> str:
        return f"<DerivativeRule of {self.name}>"

    def arrays(self, leaves: Sequence[Any]) -> list[Any]:
        """Return the framework's arrays among the leaves of the arguments."""
        return [leaves[place] for place in self._places]

    def _arguments(self, arrays: Sequence[Any]) -> Any:
        leaves = list(self._leaves)
        for place, array in zip(self._places, arrays, strict=True):
            leaves[place] = array
        return build(self._treespec, iter(leaves))

    def fun(self, arrays: Sequence[Any]) -> tuple[list[Any], Outline]:
        """Run the function; return the arrays that it returned, NumPy's and inexact numbers included, and the rest.

        The plugin makes the framework's arrays of them, all of which `vjp` and `jvp` get as `results`.
        """
        args, static = self._arguments(arrays)
        returned = self._functions.fun(*args, **static)
        has_residuals = self._functions.has_residuals
        if has_residuals and not (type(returned) is tuple and len(returned) == 2):  # noqa: PLR2004
            msg = (
                f"{self.name} was declared with has_residuals=True, but returned {kind_of(returned)}; return the pair "
                "(result, residuals)"
            )
            raise RuleError(msg)
        leaves, treespec = flatten_result(returned)
        result = returned[0] if has_residuals else returned
        if result is None or hasattr(type(result), "__next__"):
            msg = (
                f"{self.name}, which has a derivative rule, returned {'None' if result is None else kind_of(result)}; "
                "return arrays, or a structure of them"
            )
            raise RuleError(msg)
        own = count_leaves(treespec[3][0]) if has_residuals else len(leaves)
        labelled = labelled_leaves(treespec)
        moving = [i for i in range(own) if not labelled[i] and self._is_differentiated(leaves[i])]
        places = moving + [i for i, leaf in enumerate(leaves) if is_array(leaf) and i not in moving]
        results = [leaves[place] for place in places]
        for place in places:
            leaves[place] = None
        for leaf in leaves[:own]:
            _refuse_hidden(leaf)
        objects = [full_kind_of(leaf) for leaf in leaves[own:] if lookup(type(leaf)).kind in (OPAQUE, OBJECT)]
        return results, Outline(treespec, leaves, places, len(moving), ", ".join(objects))

    def _is_differentiated(self, leaf: Any) -> bool:
        """Tell whether a leaf of the result is inexact; what is computed by NumPy counts too."""
        binding = lookup(type(leaf))
        if binding.kind is ARRAY or binding.kind is CONSTANT:
            return binding.trainable(leaf) is not None
        if binding.kind is PLAIN:
            return isinstance(leaf, (float, complex)) or is_inexact(getattr(leaf, "dtype", None))
        return binding.kind is NUMPY and is_inexact(leaf.dtype)

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
        gradient is None for zeros, else an array of the right shape, of this framework or
        NumPy's, or a number; complex only if the array is. The plugin makes an array of the right dtype of it.
        """
        functions = self._functions
        if isinstance(functions.vjp, HostFunction):
            given = [array for array, need in zip(arrays, needed, strict=True) if need]
            run = self._run_vjp

            def of_numpy(cotangents: list[Any], results: list[Any], arrays: list[Any]) -> list[Any]:
                return run(functions.vjp.fun, needed, cotangents, results, outline, arrays)  # type: ignore[union-attr]

            return on_host(self._binding, functions.vjp, of_numpy, (cotangents, results, arrays), given, self.once)
        return self._run_vjp(functions.vjp, needed, cotangents, results, outline, arrays)

    def _run_vjp(
        self,
        vjp: Any,
        needed: Sequence[bool],
        cotangents: Sequence[Any],
        results: Sequence[Any],
        outline: Outline,
        arrays: Sequence[Any],
    ) -> list[Any]:
        functions = self._functions
        args, static = self._arguments(arrays)
        spread = outline.spread(cotangents, has_residuals=functions.has_residuals)
        cotangent = build(without_labels(outline.result(has_residuals=functions.has_residuals)), iter(spread))
        given = args if functions.vjp_takes_arguments else ()
        gradients = vjp(cotangent, outline.returned(results), *given, **static)
        if not isinstance(gradients, tuple) or len(gradients) != len(args):
            came = f"a tuple of {len(gradients)}" if isinstance(gradients, tuple) else kind_of(gradients)
            msg = (
                f"the vjp rule of {self.name} returned {came}; return a tuple with one gradient for each of the "
                f"{len(args)} positional argument(s), None for zeros"
            )
            raise RuleError(msg)
        likes: list[Any] = [None] * len(self._leaves)
        for place, need, array in zip(self._places, needed, arrays, strict=True):
            if need and place < self._in_arguments:
                likes[place] = array
        collector = Collector(likes, f"the vjp rule of {self.name}", "the gradient for")
        for number, (gradient, spec) in enumerate(zip(gradients, self._treespec[3][0][3], strict=True)):
            collector.add(gradient, spec, f"argument {number}")
        return collector.found

    def jvp(
        self, tangents: Sequence[Any], results: Sequence[Any], outline: Outline, arrays: Sequence[Any]
    ) -> list[Any]:
        """Return the tangent of each of the first ``outline.count`` results, by the rule for forward mode.

        Of `tangents` there is one for each of `arrays`, zeros where none is propagated, and None for one that is not
        inexact. What is returned is as for `vjp`.
        """
        functions = self._functions
        if isinstance(functions.jvp, HostFunction):
            run = self._run_jvp

            def of_numpy(tangents: list[Any], results: list[Any], arrays: list[Any]) -> list[Any]:
                return run(functions.jvp.fun, tangents, results, outline, arrays)  # type: ignore[union-attr]

            given = list(results[: outline.count])
            return on_host(self._binding, functions.jvp, of_numpy, (tangents, results, arrays), given, self.once)
        return self._run_jvp(functions.jvp, tangents, results, outline, arrays)

    def _run_jvp(
        self, jvp: Any, tangents: Sequence[Any], results: Sequence[Any], outline: Outline, arrays: Sequence[Any]
    ) -> list[Any]:
        functions = self._functions
        args, static = self._arguments(arrays)
        spec = self._treespec[3][0]
        leaves = [_zero(leaf) for leaf in self._leaves[: self._in_arguments]]
        for place, tangent in zip(self._places, tangents, strict=True):
            if place < self._in_arguments:
                leaves[place] = tangent
        moving = build(without_labels(spec), iter(merge_labels(spec, iter(leaves))))
        given = args if functions.jvp_takes_arguments else ()
        tangent = jvp(moving, outline.returned(results), *given, **static)
        likes = outline.spread(results, has_residuals=functions.has_residuals)
        collector = Collector(likes, f"the jvp rule of {self.name}", "the tangent of")
        collector.add(tangent, without_labels(outline.result(has_residuals=functions.has_residuals)), "the result")
        return collector.found


def labelled_leaves(treespec: Treespec, *, within: bool = False) -> list[bool]:
    """Tell for each leaf of a structure whether it is in a label."""
    if treespec is None:
        return [within]
    inside = within or treespec[0] is NonDifferentiable
    return [labelled for child in treespec[3] for labelled in labelled_leaves(child, within=inside)]


def is_array(leaf: Any) -> bool:
    """Tell whether a leaf is an array of a framework."""
    kind = lookup(type(leaf)).kind
    return kind is ARRAY or kind is CONSTANT


def _zero(leaf: Any) -> Any:
    """Return the tangent of an argument's leaf that is no array of the framework: None, if it never has one."""
    if type(leaf) is float or type(leaf) is complex:
        return type(leaf)()
    dtype = getattr(leaf, "dtype", None)
    if dtype is not None and lookup(type(leaf)).kind in (PLAIN, NUMPY) and is_inexact(dtype):
        return sys.modules["numpy"].zeros_like(leaf)
    return None


def _refuse_hidden(leaf: Any) -> None:
    """Refuse a result that may hold arrays where nobody can reach them: their derivative would be lost."""
    kind = lookup(type(leaf)).kind
    remedy = "Return the arrays themselves from a function that has a derivative rule"
    if kind is FUNCTION:
        for item in search(leaf, lambda value: lookup(type(value)).kind is FUNCTION):
            check_held(leaf, item, remedy=remedy)
    elif kind in (OPAQUE, OBJECT):
        check_opaque(leaf, remedy=remedy)


def _once(functions: Functions) -> str:
    if functions.has_residuals:
        return (
            f"the rule of {functions.name} uses residuals (has_residuals=True), so it is differentiated once only; for "
            "derivatives of higher order, compute in the rule from the arguments and the result"
        )
    if isinstance(functions.vjp, HostFunction) or isinstance(functions.jvp, HostFunction):
        return (
            f"the rule of {functions.name} is a host function, so it is differentiated once only, in its own mode; for "
            "other derivatives, write the rule with functions that have rules themselves"
        )
    return ""
