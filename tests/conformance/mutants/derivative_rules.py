"""Derivative rules that are applied wrongly: another derivative, another order, another argument."""

import contextlib
import functools

import numpy as np
import toyad
import toyad_adprotocol as right
import toyad_rules

from adprotocol._rules import check, rule
from mutants.mutant import at, follows, is_staged, mutant

GROUP = "custom_derivative"
APPLY = "adprotocol._rules.custom_derivative.CustomDerivative"
RULE = "adprotocol._rules.rule.DerivativeRule"
CALL = "toyad_rules.Call"

apply = right.custom_rule
vjp, jvp, run = rule.DerivativeRule.vjp, rule.DerivativeRule.jvp, rule.DerivativeRule.fun
backward, forward = toyad_rules.Call.backward, toyad_rules.Call.forward
checked = check.checked

# conj(t z) is conj(t) conj(z): the derivative of what is no derivative at all, good enough to be wrong.
conjugate = toyad.Elementwise(np.conjugate, lambda t, z, x: conjugate(t))


def each(change, values):
    """Return values that are arrays of floats changed."""
    return [change(value) if isinstance(value, toyad.Value) and toyad.is_inexact(value) else value for value in values]


constants = functools.partial(each, toyad.stop_gradient)


def is_followed(arrays):
    """Tell whether a level of a derivative follows an array."""
    return any(follows((toyad.Recorded, toyad.Dual), array) for array in arrays)


def natural(rule, arrays):
    """Run the function as if it had no rule."""
    results, outline = rule.fun(arrays)
    return [toyad.lift(result) for result in results], outline


@mutant(GROUP, at("custom_rule"))
def natural_derivative(rule, arrays):
    """Differentiates the function itself."""
    return natural(rule, arrays)


@mutant(GROUP, at("custom_rule"))
def lost_in_programs(rule, arrays):
    """Differentiates the function itself where a program is traced."""
    return (natural if any(map(is_staged, arrays)) else apply)(rule, arrays)


@mutant(GROUP, at("custom_rule"))
def lost_inside_of_programs(rule, arrays):
    """Differentiates the function itself by a level that begins within a program."""
    staged = any(map(is_staged, arrays)) and is_followed(arrays)
    return (natural if staged else apply)(rule, arrays)


@mutant(GROUP, at("custom_rule"))
def lost_under_vmap(rule, arrays):
    """Differentiates the function itself in a batch."""
    batched = any(follows(toyad.Batched, array) for array in arrays)
    return (natural if batched else apply)(rule, arrays)


@mutant(GROUP, at("custom_rule"))
def runs_on_what_is_tracked(rule, arrays):
    """Gives the function what is differentiated, and takes the value of that run."""
    seen, _ = natural(rule, arrays)
    results, outline = apply(rule, arrays)
    moved = [
        toyad.stop_gradient(a) + r - toyad.stop_gradient(r) if i < outline.count else r
        for i, (a, r) in enumerate(zip(seen, results, strict=True))
    ]
    return moved, outline


@mutant(GROUP, at("custom_rule"))
def value_of_the_derivative(rule, arrays):
    """Doubles the value where it is differentiated."""
    results, outline = apply(rule, arrays)
    return [2.0 * r if is_followed([r]) else r for r in results], outline


@mutant(GROUP, at("custom_rule"))
def value_of_programs(rule, arrays):
    """Doubles the value where a program is traced."""
    results, outline = apply(rule, arrays)
    return [2.0 * r if is_staged(r) else r for r in results], outline


@mutant(GROUP, remembers=True)
def value_of_later_calls():
    """Doubles the value of each call of a function but the first."""
    called = set()

    def later(rule, arrays):
        results, outline = apply(rule, arrays)
        again = rule._functions in called
        called.add(rule._functions)
        return [2.0 * r if again else r for r in results], outline

    return {"custom_rule": later}


@mutant(GROUP, at(f"{APPLY}._without_rule"))
def differentiates_without_a_rule(self, _binding, args, static):
    """Differentiates a function without a rule as it is."""
    return self._plain(args, static)


@mutant(GROUP, at(f"{RULE}.vjp"))
def ignores_the_cotangent(self, needed, cotangents, *rest):
    """Takes every cotangent for 1."""
    return vjp(self, needed, [0.0 * toyad.stop_gradient(ct) + 1.0 for ct in cotangents], *rest)


@mutant(GROUP, at(f"{RULE}.vjp"))
def halves_gradients(self, *args):
    """Returns half of each gradient."""
    return [None if one is None else one * 0.5 for one in vjp(self, *args)]


@mutant(GROUP, at(f"{CALL}.forward"))
def jvp_of_the_vjp(self, needed, moving, results, arrays):
    """Derives the tangent from the vjp, although there is a jvp."""
    if not self.rule.has_vjp:
        return forward(self, needed, moving, results, arrays)
    likes = results[: self.outline.count]
    return toyad_rules._transposed(lambda cts: self.backward(needed, cts, results, arrays), likes, moving)


@mutant(GROUP, at(f"{CALL}.backward"))
def vjp_of_the_jvp(self, needed, cotangents, results, arrays):
    """Derives the gradient from the jvp, although there is a vjp."""
    if not self.rule.has_jvp:
        return backward(self, needed, cotangents, results, arrays)
    likes = [array for array, need in zip(arrays, needed, strict=True) if need]
    return toyad_rules._transposed(lambda moving: self.forward(needed, moving, results, arrays), likes, cotangents)


@mutant(GROUP, at(f"{RULE}.vjp"))
def results_are_constants(self, needed, cotangents, results, *rest):
    """Keeps the results for the rule as constants."""
    return vjp(self, needed, cotangents, constants(results), *rest)


@mutant(GROUP, at(f"{RULE}.vjp"))
def arguments_are_constants(self, *given):
    """Keeps the arguments for the rule as constants."""
    return vjp(self, *given[:-1], constants(given[-1]))


@mutant(GROUP, at(f"{RULE}.jvp"))
def arguments_of_a_jvp_are_constants(self, tangents, results, outline, arrays):
    """Keeps the arguments for the jvp as constants."""
    return jvp(self, tangents, results, outline, constants(arrays))


@mutant(GROUP, at(f"{CALL}.forward"))
def forward_over_forward_is_zero(self, needed, moving, results, arrays):
    """Has no tangents within a tangent."""
    found = forward(self, needed, moving, results, arrays)
    return constants(found) if any(follows(toyad.Dual, a) for a in (*arrays, *results)) else found


@mutant(GROUP)
def rules_on_their_own_level():
    """Runs the rule at once, on what it is the rule for."""
    reverse = toyad_rules.Ruled.reverse

    def eager(self, trace, args, below, call):
        recorded = reverse(self, trace, args, below, call)
        needed = [a.trace is trace and toyad.is_inexact(a) for a in args]
        with contextlib.suppress(TypeError):
            call.backward(needed, list(map(toyad.zeros, recorded[: call.outline.count])), recorded, args)
        return recorded

    return {"toyad_rules.Ruled.reverse": eager}


@mutant(GROUP, at(f"{RULE}.jvp"))
def jvp_on_its_own_level(self, tangents, results, outline, arrays):
    """Gives the jvp what is differentiated."""
    with toyad.Forward() as trace:
        moved = [
            trace.root(a, toyad.zeros(a)) if isinstance(a, toyad.Value) and toyad.is_inexact(a) else a for a in arrays
        ]
        return each(trace.lower, jvp(self, tangents, results, outline, moved))


@mutant(GROUP, at(f"{RULE}.vjp"))
def conjugates_cotangents(self, needed, cotangents, *rest):
    """Conjugates the cotangents of a rule."""
    return vjp(self, needed, each(conjugate, cotangents), *rest)


@mutant(GROUP, at(f"{RULE}.vjp"))
def conjugates_gradients(self, *args):
    """Conjugates the gradients of a rule."""
    return each(conjugate, vjp(self, *args))


@mutant(GROUP, at(f"{RULE}.jvp"))
def conjugates_tangents(self, *args):
    """Conjugates the tangents of a jvp."""
    return each(conjugate, jvp(self, *args))


@mutant(GROUP)
def gradients_of_64_bits():
    """Returns gradients in double precision."""
    return {"toyad_rules._as_like": lambda value, like: toyad.zeros(like) if value is None else toyad.lift(value) * 1.0}


@mutant(GROUP, at(f"{RULE}.fun"))
def values_of_64_bits(self, arrays):
    """Returns values in double precision."""
    results, outline = run(self, arrays)
    wide = lambda x: x if x.dtype.kind == "c" else toyad.cast(x, float)
    return each(wide, results), outline
