"""What rules are given and return, and what calls of their functions keep: gone wrong."""

import contextlib

import numpy as np
import toyad
import toyad_adprotocol as right
import toyad_rules

from adprotocol import NonDifferentiable
from adprotocol._rules import arguments, check, custom_derivative, rule
from adprotocol._trees.treespec import build
from adprotocol.conformance.scenarios import models
from adprotocol.extend import tree_map
from mutants.derivative_rules import APPLY, GROUP, RULE, constants, run, vjp
from mutants.mutant import at, is_staged, mutant, noted

apply, checked = right.custom_rule, check.checked
accept = custom_derivative.CustomDerivative._accept
filled = arguments.Arguments.filled
returned, spread = arguments.Outline.returned, arguments.Outline.spread


@mutant(GROUP)
def sums_what_was_broadcast():
    """Sums or repeats a gradient of another shape."""

    def loose(entry, like, words, where):
        entry = entry() if callable(entry) else entry
        if not isinstance(entry, (toyad.Value, np.ndarray, float)):
            return checked(entry, like, words, where)
        value = toyad.lift(entry)
        if value.shape != like.shape:
            wide = toyad.broadcast(value, np.broadcast_shapes(value.shape, like.shape))
            value = toyad.unbroadcast(wide, like.shape)
        return checked(value, like, words, where)

    return {"adprotocol._rules.check.checked": loose}


@mutant(GROUP)
def checks_nothing():
    """Takes what a rule returns as it is."""

    def unchecked(entry, *_):
        return entry() if callable(entry) else entry

    return {"adprotocol._rules.check.checked": unchecked}


@mutant(GROUP, at("adprotocol._rules.check.is_complex"))
def takes_complex_gradients(_value):
    """Takes a complex gradient for a real argument."""
    return False


@mutant(GROUP, at(f"{RULE}.vjp"))
def first_gradients_first(self, needed, *rest):
    """Returns the gradients of the first arguments, whichever are needed."""
    every = [toyad.is_inexact(array) for array in rest[-1]]
    return vjp(self, every, *rest)[: sum(needed)]


@mutant(GROUP, at(f"{RULE}.vjp"))
def calls_every_function(self, needed, *rest):
    """Calls the functions in place of gradients, needed or not."""
    every = [toyad.is_inexact(array) for array in rest[-1]]
    found = iter(vjp(self, every, *rest))
    by_array = [next(found) if one else None for one in every]
    return [gradient for gradient, need in zip(by_array, needed, strict=True) if need]


@mutant(GROUP, at(f"{RULE}.vjp"))
def refuses_none(self, *args):
    """Raises for None in place of a gradient."""
    found = vjp(self, *args)
    if None in [one if one is None else 0 for one in found]:
        msg = "a gradient is None"
        raise TypeError(msg)
    return found


@mutant(GROUP)
def runs_the_rule_at_once():
    """Runs the rule in every call."""
    running = []

    def eager(rule, arrays):
        results, outline = apply(rule, arrays)
        if rule.has_vjp and not rule.once and not running and not any(map(is_staged, arrays)):
            needed = [toyad.is_inexact(array) for array in arrays]
            given = [toyad.zeros(result) for result in results[: outline.count]]
            with noted(running), contextlib.suppress(Exception):
                rule.vjp(needed, given, constants(results), outline, constants(arrays))
        return results, outline

    return {"custom_rule": eager}


@mutant(GROUP, at("adprotocol._rules.arguments.Outline.cotangent"))
def cotangents_in_another_order(self, cotangents):
    """Gives the cotangents of several results the other way around."""
    leaves = self.spread(cotangents)
    places = [i for i, leaf in enumerate(leaves) if leaf is not None]
    values = [leaves[i] for i in places]
    for i, value in zip(places, reversed(values), strict=True):
        leaves[i] = value
    return leaves[0] if self._result is None else build(self.spec, iter(leaves))


@mutant(GROUP, at("adprotocol._rules.arguments.Outline.returned"))
def results_by_the_place_of_the_arrays(self, results):
    """Puts the arrays back in another order than they were taken out."""
    return returned(self, list(reversed(results)))


@mutant(GROUP, at("adprotocol._rules.arguments.Outline.spread"))
def zeros_for_constants(self, values):
    """Gives constant results zeros for cotangents."""
    return [toyad.array(0.0) if leaf is None else leaf for leaf in spread(self, values)]


@mutant(GROUP, at("adprotocol._rules.rule._is_differentiated"))
def constants_among_results_are_lost(leaf):
    """Takes booleans among the results for what is differentiated."""
    return isinstance(leaf, toyad.Value)


@mutant(GROUP, at("adprotocol._rules.arguments.Arguments.filled"))
def opens_labels(self, arrays):
    """Gives the function and the rule what labels hold."""
    args, static = filled(self, arrays)
    return tuple(map(opened, args)), static


def opened(tree):
    """Return a layer or a label without labels."""
    if isinstance(tree, models.Layer):
        return models.Layer(tree.weight, opened(tree.scale))
    return tree.value if isinstance(tree, NonDifferentiable) else tree


@mutant(GROUP, at("adprotocol._rules.arguments.Arguments.filled"))
def loses_static_values(self, arrays):
    """Leaves out what is no array."""
    args, static = filled(self, arrays)
    return tuple(None if isinstance(arg, (int, str)) else arg for arg in args), static


@mutant(GROUP, at("adprotocol._rules.custom_derivative.prevent_gradient"))
def keywords_are_differentiated(value, _message):
    """Lets a keyword argument be differentiated, with zeros."""
    return tree_map(lambda leaf: toyad.stop_gradient(leaf) if isinstance(leaf, toyad.Value) else leaf, value)


@mutant(GROUP, at("adprotocol._rules.custom_derivative.completed"))
def names_stay_names(_parameters, args, static):
    """Takes what is given by name for a keyword-only argument."""
    return args, static


@mutant(GROUP)
def closures_are_constants():
    """Lets a function close over what is differentiated, with zeros."""

    def constant(self, arrays):
        results, outline = run(self, arrays)
        return constants(results), outline

    return {"adprotocol._rules.custom_derivative.refuse_tracked": lambda *_: None, f"{RULE}.fun": constant}


@mutant(GROUP)
def closures_are_followed():
    """Lets a function close over what is differentiated, as if it had no rule."""

    def followed(self, *arrays):
        results, self.outline = self.rule.fun(arrays)
        return [toyad.lift(result) for result in results]

    return {"adprotocol._rules.custom_derivative.refuse_tracked": lambda *_: None, "toyad_rules.Call.traced": followed}


@mutant(GROUP, at(f"{APPLY}._accept"))
def closures_of_rules_are_constants(self, given, *rest):
    """Looks into the function, and not into its rules."""
    takes = accept(self, given, *rest)
    self.watched = [function for function in self.watched if function is not given]
    return takes


@mutant(GROUP, at("custom_rule"))
def once_at_first_order(rule, arrays):
    """Raises for the first derivative of a rule that is differentiated once."""
    return apply(rule, [toyad_rules.guarded(a, rule.once) for a in arrays] if rule.once else arrays)


@mutant(GROUP, at("toyad_rules.Call._guarded"))
def twice(_self, values):
    """Differentiates again what is differentiated once."""
    return values


@mutant(GROUP, at(f"{RULE}.fun"), alone="residuals are freed behind one derivative, and weak references alone show it")
def keeps_residuals(self, arrays):
    """Keeps for ever what a function has returned."""
    found = run(self, arrays)
    KEPT.append(found)
    return found


KEPT = []


@mutant(GROUP)
def objects_are_refused():
    """Refuses residuals that are no arrays."""

    def refusing(rule, arrays):
        results, outline = apply(rule, arrays)
        if outline.objects:
            raise TypeError(outline.objects)
        return results, outline

    return {"custom_rule": refusing}


@mutant(GROUP, at("toyad_rules.Rows.backward"))
def shared_of_the_first_row(self, needed, cotangents, results, arrays):
    """Takes the gradient of what rows share from the first row."""
    n, m = len(cotangents), len(results)
    found = self._by_rows(
        lambda rows: self.call.backward(needed, rows[:n], rows[n : n + m], rows[n + m :]),
        [*cotangents, *results, *arrays],
        [True] * (n + m) + self.mapped,
    )
    mapped = [rows for rows, need in zip(self.mapped, needed, strict=True) if need]
    return [g if rows else g[0] for g, rows in zip(found, mapped, strict=True)]


@mutant(GROUP, at("toyad_rules.Rows.run"))
def every_row_is_the_first(self, arrays):
    """Runs the first row for all."""
    first = [a[0] if rows else a for a, rows in zip(arrays, self.mapped, strict=True)]
    results = self.call.run(first)
    self.outline = self.call.outline
    return [toyad.stack([result] * self.size) for result in results]


@mutant(GROUP, at(f"{RULE}.vjp"))
def swallows_exceptions(self, needed, *rest):
    """Returns zeros where a rule raises."""
    try:
        return vjp(self, needed, *rest)
    except Exception:  # noqa: BLE001
        return [None] * sum(needed)


@mutant(GROUP, at(f"{RULE}.fun"))
def exceptions_of_another_class(self, arrays):
    """Raises another error where the function does."""
    try:
        return run(self, arrays)
    except Exception as error:
        msg = "the function failed"
        raise RuntimeError(msg) from error


@mutant(GROUP, remembers=True)
def constant_after_an_exception():
    """Returns constants once a function has raised."""
    failed = []

    def noting(self, arrays):
        try:
            return run(self, arrays)
        except Exception as error:
            failed.append(error)
            raise

    def constant(rule, arrays):
        results, outline = apply(rule, arrays)
        return constants(results) if failed else results, outline

    return {f"{RULE}.fun": noting, "custom_rule": constant}


@mutant(GROUP, alone="what a rule computed before is known by calls that overlap alone, under three transformations")
def calls_share_their_arguments():
    """Keeps for each function the arguments of its last call."""
    made = {}

    def shared(functions, binding, args):
        one = made.setdefault(id(functions), rule.DerivativeRule(functions, binding, args))
        one._arguments = args
        return one

    return {"adprotocol._rules.custom_derivative.DerivativeRule": shared}


@mutant(GROUP)
def without_the_hook_all_are_differentiated():
    """Differentiates the function itself where the plugin has no hook."""
    return {"custom_rule": None, f"{APPLY}._without_rule": lambda self, _, args, static: self._plain(args, static)}


@mutant(GROUP)
def without_the_hook_all_are_refused():
    """Raises for every call where the plugin has no hook."""

    def refused(self, *_):
        raise custom_derivative.RuleError(self.functions.name)

    return {"custom_rule": None, f"{APPLY}._without_rule": refused}


@mutant(GROUP, at(f"{APPLY}._plain"), beside="host_function")
def copies_what_is_numpys(self, args, static):
    """Makes arrays of a system of NumPy's."""
    lifted = [toyad.lift(arg) if isinstance(arg, (np.ndarray, float)) else arg for arg in args]
    found = self.fun(*lifted, **static)
    return found[0] if self.has_residuals else found


@mutant(GROUP, at(f"{APPLY}._plain"), beside="host_function")
def residuals_are_returned(self, args, static):
    """Returns the residuals too, with NumPy alone."""
    return self.fun(*args, **static)
