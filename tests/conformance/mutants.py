"""Ways for toyad's plugin, or what lies behind it, to be wrong everywhere, by which the suite is tested.

Each is a function that returns what it replaces: hooks by their name, and functions elsewhere by their dotted path.
"""

import contextlib
import dataclasses
import functools
import types
from functools import partial
from unittest import mock

import numpy as np
import toyad
import toyad_adprotocol as right

import adprotocol
from adprotocol import extend, hookspecs, plugins
from adprotocol._dispatch.table import lookup
from adprotocol._gradients import where as selection
from adprotocol._rules import host_function
from adprotocol._rules.custom_derivative import CustomDerivative
from adprotocol._rules.derivative import Derivative
from adprotocol._rules.rule import DerivativeRule
from adprotocol.conformance import scenario
from adprotocol.hookspecs import hookimpl

HOOKS = tuple(name for name, value in vars(right).items() if hasattr(value, "adprotocol_impl"))
MUTANTS = {}
ALL = scenario.HOOKS


# The hooks that a mutant breaks: a scenario of another is not expected to notice.
BREAKS = {}


def mutant(*hooks):
    """Enter a function that returns replacements, and the hooks that they break: all, if none is named."""

    def enter(function):
        name = function.__name__.replace("_", "-")
        again = {"value_and_grad": "vjp", "within_gradient": "jvp"}  # by which scenarios are asked again
        MUTANTS[name], BREAKS[name] = function, (*hooks, *[again[hook] for hook in hooks if hook in again]) or ALL
        return function

    return enter


@contextlib.contextmanager
def active(name=None):
    """Put a mutant in the place of toyad's plugin."""
    replaced = {} if name is None else MUTANTS[name]()
    made = types.ModuleType("toyad_mutant")
    for hook in {*HOOKS, *(name for name in replaced if "." not in name)}:
        setattr(made, hook, hookimpl(replaced.pop(hook, None) or getattr(right, hook)))
    registered = plugins.register(made, "toyad")
    try:
        with contextlib.ExitStack() as stack:
            for target, new in replaced.items():
                stack.enter_context(mock.patch(target, new))
            yield
    finally:
        plugins.unregister(registered.name)


def is_float(value):
    return isinstance(value, toyad.Value) and toyad.is_inexact(value)


def floats(change, tree):
    """Return a structure with its arrays of floats changed."""
    return extend.tree_map(lambda leaf: change(leaf) if is_float(leaf) else leaf, tree)


constants = functools.partial(floats, toyad.stop_gradient)


# Answers


@mutant("within_gradient")
def answers_are_negated():
    """Each answer is the opposite."""

    def within_gradient(value):
        answer = right.within_gradient(value)
        return not answer if isinstance(answer, bool) else ~answer

    return {"within_gradient": within_gradient}


@mutant("within_gradient")
def questions_try_it_out():
    """A question computes a derivative, counts it, and moves the value."""

    def within_gradient(value):
        if isinstance(value, toyad.Dual):
            value.tangent = value.tangent * 2.0
        below = value
        while isinstance(below, toyad.Tracer):
            below = below.below
        if isinstance(below, toyad.Array) and below.value.flags.writeable:
            below.value += 1
        value.grad = 1.0
        return right.within_gradient(value)

    return {"within_gradient": within_gradient}


def always(answer):
    return {"is_concrete": lambda value: answer}


MUTANTS["all-is-concrete"], BREAKS["all-is-concrete"] = partial(always, True), ("is_concrete",)
MUTANTS["nothing-is-concrete"], BREAKS["nothing-is-concrete"] = partial(always, False), ("is_concrete",)


@mutant("is_concrete")
def batches_are_concrete():
    """What stands for many values under vmap is taken for one."""
    return {"is_concrete": lambda value: isinstance(value, toyad.Batched) or right.is_concrete(value)}


@mutant("is_concrete")
def what_is_differentiated_is_not_concrete():
    """A tracer is taken for a value that is not there, also under an eager grad."""
    return {"is_concrete": lambda value: not isinstance(value, toyad.Tracer) and right.is_concrete(value)}


@mutant("is_concrete")
def a_question_about_nothing_is_true():
    """`is_concrete` without values is no error."""
    real = adprotocol.is_concrete
    return {"adprotocol.is_concrete": lambda *values: not values or real(*values)}


# constants


@mutant("non_differentiable")
def nothing_is_constant():
    """`non_differentiable` returns what it was given."""
    return {"non_differentiable": lambda value: value}


@mutant("non_differentiable")
def constants_are_zero():
    """A constant is zero."""
    return {"non_differentiable": lambda value: toyad.stop_gradient(value) * 0.0}


@mutant("non_differentiable", "prevent_gradient", "trainable", "plugins")
def labels_are_ignored():
    """The value in a label keeps its derivative, and is trained."""
    return {
        "adprotocol.NonDifferentiable.value": property(lambda label: label.held),
        "adprotocol._dispatch.table.BINDINGS.LABEL.trainable": lambda _label: True,
        "adprotocol._dispatch.table.BINDINGS.LABEL.within_gradient": lambda label: adprotocol.within_gradient(
            label.held
        ),
    }


# selection


@mutant("trainable", "value_and_grad")
def the_others_are_trained():
    """What is frozen is trained, and what is trained frozen."""
    real = selection.select

    def select(structures, where, **kw):
        return [[not mine for mine in chosen] for chosen in real(structures, where, **kw)]

    return {"adprotocol._gradients.partition.select": select, "adprotocol._gradients.call.select": select}


@mutant("trainable", "value_and_grad")
def where_is_ignored():
    """The defaults select, whatever the call says."""
    real = selection.select

    def select(structures, where, **kw):
        return real(structures, None, **kw)

    return {"adprotocol._gradients.partition.select": select, "adprotocol._gradients.call.select": select}


# cond


def branches(function):
    def cond(pred, true_fun, false_fun, operands):
        return function(pred, true_fun, false_fun, operands)

    return {"cond": cond}


@mutant("cond")
def the_other_branch():
    """The other branch runs."""
    return branches(lambda pred, t, f, operands: right.cond(pred, f, t, operands))


@mutant("cond")
def results_of_branches_are_constant():
    """What a branch returns is a constant."""
    return branches(lambda *args: constants(right.cond(*args)))


@mutant("cond")
def both_branches_are_selected():
    """Both branches run, and the predicate selects: NaN reaches the derivative."""

    def both(pred, t, f, operands):
        one, other = t(*operands), f(*operands)
        return toyad.where(pred, one, other) if is_float(one) and is_float(other) else one

    return branches(both)


@mutant("custom_derivative")
def rules_are_transposed_unseen():
    """Whether a rule is linear, or for reverse mode alone, is not asked before the other follows from it."""
    return {
        "adprotocol._rules.derivative.Derivative.check_linear": lambda *_: None,
        "adprotocol._rules.derivative._DEEPEST": 1000,
    }


# where


def functions(**replaced):
    """Return toyad's array functions with others."""
    names = ("where", "argmax", "take", "basis", "moveaxis", "stack", "reshape")
    usual = {name: getattr(toyad, name) for name in names}
    return {"array_functions": lambda: types.SimpleNamespace(**{**usual, **replaced})}


@mutant("cond")
def where_runs_a_function_twice():
    """The functions run once more."""
    real = adprotocol._hooks.branches.Branches.run_true
    return {"adprotocol._hooks.where._Choice.run_true": lambda self: (real(self), real(self))[0]}


# gradients


def after(change):
    def vjp(fun, leaves, once):
        outputs, aux, pull = right.vjp(fun, leaves, once)
        changed = [change(output, aux, []) for output in outputs]
        return [value for value, *_ in changed], changed[0][1], lambda cts: change(outputs[0], aux, pull(cts))[2]

    return {"vjp": vjp}


@mutant("value_and_grad")
def gradients_are_detached():
    """Value, auxiliary output and gradients are constants to derivatives around the call."""
    return after(
        lambda value, aux, slopes: (toyad.stop_gradient(value), constants(aux), list(map(toyad.stop_gradient, slopes)))
    )


@mutant("value_and_grad")
def zeros_for_none():
    """A leaf that is not selected has zero where None is due."""

    def only(self, leaves):
        following = iter(leaves)
        return self.with_leaves([next(following) if m else 0.0 for m in self.mask])

    return {"adprotocol._gradients.structure.Structure.only": only}


def outside(change):
    """Change the derivatives of value and auxiliary output by what is not selected, and leave the rest."""
    return after(lambda value, aux, slopes: (change(value), floats(change, aux), slopes))


# Products with a Jacobian


def pulls(change):
    """Return a hook whose pull is ``change(pull, outputs, cotangents)``, but for one that is pulled at once."""

    def vjp(fun, leaves, once):
        outputs, aux, pull = right.vjp(fun, leaves, once)
        return outputs, aux, pull if once else partial(change, pull, outputs)

    return {"vjp": vjp}


def each(change):
    return pulls(lambda pull, _, cotangents: list(map(change, pull(cotangents))))


def pushes(before=toyad.lift, after=toyad.lift):
    """Return a hook that changes the tangents that it is given, and those that it returns."""

    def jvp(fun, leaves, tangents):
        outputs, aux, moved = right.jvp(fun, leaves, list(map(before, tangents)))
        return outputs, aux, list(map(after, moved))

    return {"jvp": jvp}


def rows(change):
    """Return a hook that changes the stacked rows, given the size of a chunk."""

    def vmap(fun, arrays, chunk_size):
        return [change(found, chunk_size) for found in right.vmap(fun, arrays, chunk_size)]

    return {"vmap": vmap}


def one(value):
    return toyad.zeros(value) + 1.0


def operands(change):
    """Change the operands of a branch that are NumPy's."""

    def changed(pred, t, f, given):
        return right.cond(pred, t, f, tuple([change(x) if isinstance(x, np.ndarray) else x for x in given]))

    return branches(changed)


def untracked(arrays, results, outline):
    return [toyad.stop_gradient(r) if any(str(r) == str(a) for a in arrays) else r for r in results], outline


def backwards(array):
    return toyad.stack([array[i] for i in range(array.shape[0])[::-1]])


def open_values(fun, leaves, once):
    outputs, aux, pull = right.vjp(fun, leaves, once)
    return outputs if once else list(map(toyad.Tape().root, outputs)), aux, pull


for _broken, _products in {
    "value_and_grad": {
        "gradients-are-doubled": lambda: after(lambda value, aux, slopes: (value, aux, [2.0 * s + 1 for s in slopes])),
        "values-of-gradients-are-zero": lambda: after(lambda value, aux, slopes: (value * 0.0, None, slopes)),
        "values-are-detached": lambda: outside(toyad.stop_gradient),
        "cotangents-of-values-are-ignored": lambda: outside(toyad.Custom(lambda v: v, lambda _, t: t * 0.0 + 1.0)),
        "gradients-are-of-the-widest-precision": lambda: after(
            lambda value, aux, slopes: (value, aux, [toyad.cast(s, "float64") for s in slopes])
        ),
        "values-have-the-double-derivative": lambda: outside(toyad.Custom(lambda v: v, lambda _, t: t * 2.0)),
    },
    "vjp": {
        "pulls-are-scaled": lambda: each(lambda found: 2.0 * found),
        "pulls-are-constant": lambda: each(toyad.stop_gradient),
        "pulls-have-none-for-zeros": lambda: each(lambda found: found if np.any(found.numpy()) else None),
        "pulls-are-zero-under-the-switch": lambda: each(lambda found: found * 0.0 if toyad.STATE.quiet else found),
        "pulls-ignore-the-cotangent": lambda: pulls(lambda pull, ys, _: pull(list(map(one, ys)))),
        "pulls-take-none-for-one": lambda: pulls(
            lambda pull, ys, cts: pull([one(y) if ct is None else ct for y, ct in zip(ys, cts, strict=True)])
        ),
        "pulls-sum-their-outputs": lambda: pulls(
            lambda pull, ys, cts: [sum(found) for found in zip(pull(cts), pull(list(map(one, ys))), strict=True)]
        ),
        "a-later-pull-is-stale": lambda: pulls(lambda pull, _, cts, kept={}: kept.setdefault(pull, pull(cts))),
        "calls-run-the-function-twice": lambda: {
            "vjp": lambda fun, leaves, once: right.vjp(lambda given: [fun(given), fun(given)][1], leaves, once)
        },
        "values-stay-open": lambda: {"vjp": open_values},
    },
    "jvp": {
        "tangents-are-silently-zero": lambda: pushes(after=lambda moved: moved * 0.0),
        "tangents-are-ignored": lambda: pushes(before=lambda given: one(toyad.lift(given))),
        "tangents-are-constant": lambda: pushes(after=toyad.stop_gradient),
    },
    "jacobian": {
        "rows-are-backwards": lambda: rows(lambda found, _: backwards(found)),
        "chunks-are-backwards": lambda: rows(lambda found, size: backwards(found) if size else found),
        "rows-are-constant": lambda: rows(lambda found, _: toyad.stop_gradient(found)),
        "columns-stay-in-front": lambda: functions(moveaxis=lambda x, *_: x),
        "a-basis-begins-later": lambda: functions(basis=lambda x, count, start: toyad.basis(x, count, start - 1)),
        "complex-numbers-are-not-refused": lambda: {"adprotocol._gradients.jacobian.is_complex": lambda _: False},
    },
    "cond": {
        "where-chooses-the-other": lambda: functions(where=lambda mask, one, other: toyad.where(mask, other, one)),
        "where-is-constant": lambda: functions(where=lambda *args: toyad.stop_gradient(toyad.where(*args))),
        "where-takes-any-mask": lambda: {"adprotocol._hooks.where.predicate": lambda m, call: (m, lookup(type(m)))},
        "where-runs-the-functions-at-all-elements": lambda: {"adprotocol._hooks.where._guarded": lambda *args: args[2]},
        "argmax-is-the-first": lambda: functions(argmax=lambda mask: toyad.argmax(mask) * 0),
        "axes-count-from-the-left": lambda: axis_of(lambda axis, _: -axis - 1),
        "the-last-axis-is-the-first": lambda: axis_of(lambda axis, _: 0 if axis == -1 else axis),
        "numpys-operands-are-variables": lambda: operands(toyad.variable),
        "numpys-operands-are-one-element": lambda: operands(lambda x: x[..., :1]),
    },
    "custom_derivative": {
        "arguments-come-back-as-constants": lambda: rules(lambda rule, arrays, run: untracked(arrays, *run())),
    },
    "within_gradient": {
        "integers-cannot-be-explained": lambda: {
            "explain": lambda value: right.explain(value) if is_float(value) else 1 / 0
        },
    },
}.items():
    MUTANTS.update(_products)
    BREAKS.update(dict.fromkeys(_products, (_broken, *["vjp"] * (_broken == "value_and_grad"))))


# rules


@mutant("custom_derivative", "host_function")
def rules_are_ignored():
    """A function with a rule is differentiated as it is."""

    def custom_rule(rule, arrays):
        results, outline = rule.fun(arrays)
        return [toyad.lift(result) for result in results], outline

    return {"custom_rule": custom_rule}


# All over


@mutant()
def structures_are_rebuilt_as_lists():
    """Each container comes back as a list."""

    def build(treespec, leaves, *_):
        return next(leaves) if treespec is None else [build(child, leaves) for child in treespec[3]]

    return {
        f"adprotocol.{m}.build": build
        for m in ("_trees.treespec", "_trees.traversal", "_rules.outline", "_rules.host_function")
    }


@mutant()
def everything_is_kept():
    """Whatever passes through a hook is kept for ever."""
    kept = []

    def keeping(hook):
        function = getattr(right, hook)

        @functools.wraps(function)
        def kept_function(*args):
            result = function(*args)
            kept.extend([args, result])
            return result

        return kept_function

    return {
        hook: keeping(hook)
        for hook in HOOKS
        if hook not in ("harness", "array_types", "identity", "views", "tree_library", "trainable", "explain")
    }


@mutant()
def errors_say_nothing():
    """The message of each error is lost."""
    return {"adprotocol.errors.ADProtocolError.__str__": lambda self: "error"}


@mutant()
def errors_are_of_another_kind():
    """Each error is an OSError."""
    return {"adprotocol.errors.ADProtocolError.__new__": lambda cls, *args, **kw: OSError(*args)}


@mutant()
def one_precision():
    """Floats come back in 64 bits."""
    cast = lambda x: toyad.cast(x, "float64") if is_float(x) and x.dtype.kind == "f" else x
    return {
        "non_differentiable": lambda value: cast(right.non_differentiable(value)),
        **branches(lambda pred, t, f, operands: floats(cast, right.cond(pred, t, f, operands))),
        **after(lambda value, aux, slopes: (cast(value), aux, [cast(s) for s in slopes])),
        "adprotocol._rules.host_function._with_precision": lambda result, _arrays: result,
        "toyad_rules.ToyadDerivative.like": lambda _, value, array: cast(
            toyad.zeros(array) if value is None else toyad.lift(value)
        ),
    }


@mutant("custom_derivative")
def rules_give_the_double():
    """Results and derivatives of rules are doubled."""
    vjp, jvp = DerivativeRule.vjp, DerivativeRule.jvp

    def double(values):
        return [v * 2.0 if is_float(v) else v for v in values]

    def custom_rule(rule, arrays):
        results, outline = right.custom_rule(rule, arrays)
        return double(results), outline

    return {
        "custom_rule": custom_rule,
        "adprotocol._rules.rule.DerivativeRule.vjp": lambda *a: double(vjp(*a)),
        "adprotocol._rules.rule.DerivativeRule.jvp": lambda *a: double(jvp(*a)),
    }


@mutant("prevent_gradient")
def guards_are_inverted():
    """A guard lets a derivative pass, and raises for all else."""

    def prevent_gradient(value, message):
        if right.within_gradient(value) is not True:
            raise extend.gradient_prevented(value, message, "toyad")
        return value

    return {"prevent_gradient": prevent_gradient}


@mutant("host_function")
def host_functions_own_their_arguments():
    """A host function runs twice, and may write into its arguments."""
    run = host_function.HostCall.__call__

    def call(self, arrays):
        run(self, arrays)
        return run(self, arrays)

    return {
        "adprotocol._rules.host_function.HostCall.__call__": call,
        "adprotocol._rules.host_function.read_only": lambda value: value,
    }


@mutant("cond")
def branches_return_arrays():
    """A branch returns arrays for numbers and None, and lists for containers."""

    def plain(value):
        if isinstance(value, (list, tuple)):
            return [plain(v) for v in value]
        if isinstance(value, dict):
            return [plain(v) for v in value.values()]
        if value is None:
            return toyad.array(0.0)
        return toyad.array(value) if isinstance(value, (bool, int, float)) else value

    def conv(fun):
        return lambda *ops: plain(fun(*ops))

    return branches(lambda pred, t, f, ops: right.cond(pred, conv(t), conv(f), ops))


@mutant("non_differentiable")
def constants_are_written_in_place():
    """The constants are written into the dict that was given."""
    real = adprotocol.non_differentiable

    def non_differentiable(value):
        made = real(value)
        if type(value) is dict:
            value.update(made)
            return value
        return made

    return {"adprotocol.non_differentiable": non_differentiable}


@mutant("plugins")
def registered_without_static_fields():
    """A registered class is rebuilt without its static fields."""
    library = right.tree_library()

    def register(cls, flatten, unflatten):
        library.register(cls, flatten, lambda _, children: cls(*children))

    return {"tree_library": lambda: hookspecs.TreeLibrary(library.node, register)}


@mutant("plugins")
def subclasses_are_not_served():
    """Subclasses that are defined elsewhere are not served."""
    from adprotocol._dispatch import registry

    claimants = registry.REGISTRY.claimants
    return {
        "adprotocol._dispatch.registry.REGISTRY.claimants": lambda cls: [
            p for p in claimants(cls) if cls.__module__ == "toyad" or cls in p.types
        ]
    }


@mutant("trainable")
def the_last_wins():
    """Each leaf of a combined structure is that of the last part."""
    real = adprotocol.combine
    return {"adprotocol.combine": lambda *trees, **kw: real(*trees[::-1], **kw)}


@mutant()
def wrappers_have_no_name():
    """A wrapped function has no name and documentation."""
    return {
        "adprotocol._gradients.value_and_grad.wrap": lambda w, f: w,
        "adprotocol._hooks.non_differentiable.wrap": lambda w, f: w,
    }


@mutant("plugins")
def array_types_in_a_private_place():
    """The hooks stand in a module that imports what is private."""
    return {"array_types": lambda: (toyad.Value,)}


# What the author of one plugin might write


@mutant("within_gradient", "plugins")
def explanations_are_none():
    """There is no explanation."""
    return {"explain": lambda value: None}


@mutant("within_gradient", "plugins")
def explanations_contradict():
    """Every value is explained as one that nobody differentiates."""
    return {"explain": lambda value: "no level of grad or jvp follows it"}


@mutant("value_and_grad")
def recording_is_always_off():
    """No derivative ever encloses a call, so that each parameter that it does not select is a constant."""
    return {"is_recording": lambda: False, "freeze": lambda value: toyad.stop_gradient(toyad.read(value))}


def rules(change):
    def custom_rule(rule, arrays):
        return change(rule, arrays, lambda: right.custom_rule(rule, arrays))

    return {"custom_rule": custom_rule}


@mutant("custom_derivative")
def functions_with_rules_run_twice():
    """A function runs once for its outline, and once for its result."""
    return rules(lambda rule, arrays, run: (rule.fun(constants(arrays)), run())[1])


@mutant("custom_derivative")
def rules_run_with_their_function():
    """The gradient is computed when the function runs, wanted or not."""

    def eager(rule, arrays, run):
        results, outline = run()
        if rule.has_vjp:
            plain = constants(results)
            ones = [r * 0.0 + 1.0 for r in plain[: outline.count]]
            rule.vjp([is_float(a) for a in arrays], ones, plain, outline, constants(arrays))
        return results, outline

    return rules(eager)


@mutant("custom_derivative")
def functions_without_rules_are_differentiated():
    """The derivative of a function without a rule is its own."""

    def call(self, *args, **static):
        return real(self, *args, **static) if self.rules else self.fun(*args, **static)

    real = CustomDerivative.__call__
    return {"adprotocol._rules.custom_derivative.CustomDerivative.__call__": call}


@mutant("custom_derivative")
def forward_mode_transposes_the_vjp():
    """A jvp is not used where there is a vjp."""
    forward = Derivative.forward

    def transposed(self, tangents):
        if not self.rule.has_vjp:
            return forward(self, tangents)
        return self._transposed(self.backward, self.outputs, self.inputs, tangents)

    return {"adprotocol._rules.derivative.Derivative.forward": transposed}


@mutant("custom_derivative")
def results_behind_the_counted_are_followed():
    """Residuals are differentiated as the results are."""

    def reverse(self, trace, args, below, call):
        results = self(*below, call=call)
        places = [i for i, result in enumerate(results) if is_float(result)]
        needed = [a.trace is trace and is_float(a) for a in args]
        if True not in needed or not call.outline.count:
            return results

        def pull(*cotangents):
            given = [toyad.zeros(results[i]) if ct is None else ct for i, ct in zip(places, cotangents, strict=True)]
            return call.backward(needed, given[: call.outline.count], followed, below)

        tracked = [a for a, need in zip(args, needed, strict=True) if need]
        recorded = iter(trace.record([results[i] for i in places], tracked, pull))
        followed = [next(recorded) if i in places else result for i, result in enumerate(results)]
        made = list(followed)
        followed[: call.outline.count] = results[: call.outline.count]
        return made

    return {"toyad_rules.Ruled.reverse": reverse}


@mutant("custom_derivative")
def closures_are_constants():
    """What a function closes over is a constant where no argument is differentiated."""

    def closed(rule, arrays, run):
        if any(right.within_gradient(a) is True for a in arrays):
            return run()
        results, outline = rule.fun(arrays)
        return [toyad.stop_gradient(toyad.lift(result)) for result in results], outline

    return {**rules(closed), "adprotocol._rules.custom_derivative.hold_tracked": lambda _functions: False}


@mutant("host_function")
def host_functions_write_into_their_arguments():
    """The arrays of a host function are those of the framework, and can be written to."""
    return {"adprotocol._rules.host_function.read_only": lambda value: value}


@mutant("host_function")
def host_functions_keep_their_results():
    """The result of a host function is the memory that this returned."""
    return {"adprotocol._rules.host_function.HostCall._array": lambda _self, leaf: leaf}


@mutant("host_function")
def host_functions_refuse_parameters():
    """A host function raises for a parameter that could be differentiated, and is not."""

    def host_call(fun, arrays, like, batched, message):
        for array in arrays:
            if isinstance(array, toyad.Parameter) and array.trains:
                raise extend.gradient_prevented(array, message, "toyad")
        return right.host_call(fun, arrays, like, batched, message)

    return {"host_call": host_call}


@mutant("plugins", "within_gradient")
def nodes_are_flattened_to_constants():
    """What the framework's tree library takes out of a container is a constant."""
    library = right.tree_library()

    def node(value):
        found = library.node(value)
        return found and (lambda bag: (constants(list(found[0](bag)[0])), *found[0](bag)[1:]), found[1])

    return {"tree_library": lambda: hookspecs.TreeLibrary(node, library.register)}


@mutant("plugins")
def registered_by_constructor():
    """A registered class is rebuilt by its constructor."""
    library = right.tree_library()

    def register(cls, flatten, unflatten):
        def rebuild(metadata, children):
            made = unflatten(metadata, children)
            fields = {f.name: getattr(made, f.name) for f in dataclasses.fields(cls)}
            return cls(**fields)

        library.register(cls, flatten, rebuild if dataclasses.is_dataclass(cls) else unflatten)

    return {"tree_library": lambda: hookspecs.TreeLibrary(library.node, register)}


# Variables, and what a backward pass leaves


@mutant("within_gradient")
def answers_end_with_the_first_gradient():
    """A variable that has a gradient is taken for one that nobody differentiates."""
    return {"within_gradient": lambda value: right.within_gradient(value) if value_grad(value) is None else False}


def value_grad(value):
    return getattr(value, "grad", None)


def forgetting(hook):
    """Return a hook that drops the gradient of what it is given."""

    @functools.wraps(getattr(right, hook))
    def forget(*given):
        for value in extend.tree_leaves(given):
            if isinstance(value, toyad.Variable):
                value.grad = None
        return getattr(right, hook)(*given)

    return {hook: forget}


for _hook in ("non_differentiable", "trainable", "cond", "vjp"):
    # What is given to the hook loses its gradient.
    _broken = (_hook,) if _hook != "vjp" else ("vjp", "value_and_grad")
    MUTANTS[f"{_hook}-drops-gradients"], BREAKS[f"{_hook}-drops-gradients"] = partial(forgetting, _hook), _broken


@mutant("custom_derivative")
def rules_drop_gradients():
    """An argument of a function with a rule has no gradient any more."""
    return rules(lambda rule, arrays, run: (forgetting("explain")["explain"](arrays[0]), run())[1])


@mutant("value_and_grad")
def gradients_fill_variables():
    """A variable that the function closes over gets the gradient of the call."""
    return after(lambda value, aux, slopes: (toyad.backward(value, 1.0), (value, aux, slopes))[1])


@mutant("value_and_grad")
def results_are_variables():
    """What a call returns is tracked, whether or not what it is made of is."""

    def tracked(value):
        return value if right.within_gradient(value) is not False else toyad.GRAPH.root(value)

    return after(lambda value, aux, slopes: (tracked(value), floats(tracked, aux), list(map(tracked, slopes))))


@mutant("value_and_grad")
def the_switch_is_turned_on():
    """A call records under the switch, also what it does not differentiate."""

    def vjp(fun, leaves, once):
        with mock.patch.object(toyad.STATE, "quiet", 0):
            return right.vjp(fun, leaves, once)

    return {"vjp": vjp}


@mutant("custom_derivative")
def rules_run_twice():
    """A rule runs twice for one pass."""
    vjp = DerivativeRule.vjp
    return {"adprotocol._rules.rule.DerivativeRule.vjp": lambda *args: (vjp(*args), vjp(*args))[1]}


@mutant("custom_derivative")
def errors_in_rules_leave_recording_off():
    """Behind an error in a rule nothing is recorded."""
    vjp = DerivativeRule.vjp

    def fails(*args):
        try:
            return vjp(*args)
        except Exception:
            toyad.STATE.quiet = next(toyad.LEVELS)
            raise

    return {"adprotocol._rules.rule.DerivativeRule.vjp": fails}


# Functions of the framework


def axis_of(change):
    return functions(take=lambda array, indices, axis: toyad.take(array, indices, change(axis, len(array.shape))))


@mutant("cond")
def numbers_widen_elements():
    """A Python number beside an array of 32 bits makes 64."""

    def where(mask, one, other):
        widened = any(isinstance(value, float) for value in (one, other))
        return toyad.where(mask, *[toyad.cast(v, "float64") if widened and is_float(v) else v for v in (one, other)])

    return functions(where=where)


# Rules and host functions


@mutant("custom_derivative")
def cotangents_are_transposed():
    """The cotangent of a square matrix is its transpose."""
    vjp = DerivativeRule.vjp

    def transposed(value):
        square = is_float(value) and len(value.shape) == 2 and value.shape[0] == value.shape[1]
        return toyad.stack([toyad.stack([row[i] for row in value]) for i in range(len(value))]) if square else value

    def call(self, needed, cotangents, *rest):
        return vjp(self, needed, [transposed(c) for c in cotangents], *rest)

    return {"adprotocol._rules.rule.DerivativeRule.vjp": call}


@mutant("custom_derivative")
def what_no_rule_reads_is_a_shape():
    """A rule is given a shape and a dtype in place of an array that it does not read."""
    vjp = DerivativeRule.vjp

    def call(self, *values):
        *others, arrays = values
        blank = [types.SimpleNamespace(shape=a.shape, dtype=a.dtype) for a in arrays]
        given = [a if is_read else b for a, b, is_read in zip(arrays, blank, self.reads, strict=True)]
        return vjp(self, *others, given)

    return {"adprotocol._rules.rule.DerivativeRule.vjp": call}


@mutant("custom_derivative", "host_function")
def second_results_have_no_gradient():
    """Only the first result of a function is differentiated."""
    vjp = DerivativeRule.vjp

    def call(self, needed, cotangents, *rest):
        return vjp(self, needed, [c if i == 0 else c * 0.0 for i, c in enumerate(cotangents)], *rest)

    return {"adprotocol._rules.rule.DerivativeRule.vjp": call}


@mutant("custom_derivative")
def integers_have_zero_tangents():
    """The tangent of an integer is zeros, where None is due."""
    jvp = DerivativeRule.jvp

    def call(self, tangents, results, outline, arrays):
        moving = [toyad.zeros(a) if t is None else t for t, a in zip(tangents, arrays, strict=True)]
        return jvp(self, moving, results, outline, arrays)

    return {"adprotocol._rules.rule.DerivativeRule.jvp": call}


# Precision, and classes


def widened(value):
    """Return a scalar of 32 bits with 64."""
    return toyad.cast(value, "float64") if is_float(value) and not value.shape and value.dtype.kind == "f" else value


def widening(hook):
    """Return a hook whose results of rank 0 have 64 bits."""

    @functools.wraps(getattr(right, hook))
    def widen(*given):
        made = getattr(right, hook)(*given)
        return ([widened(result) for result in made[0]], made[1]) if hook == "custom_rule" else floats(widened, made)

    return {hook: widen}


for _hook, _broken in {
    **{name: name for name in ("non_differentiable", "prevent_gradient", "cond")},
    "custom_rule": "custom_derivative",
    "host_call": "host_function",
}.items():
    MUTANTS[f"{_hook}-widens-scalars"], BREAKS[f"{_hook}-widens-scalars"] = partial(widening, _hook), (_broken,)


@mutant("value_and_grad")
def values_widen():
    """The value beside a gradient has 64 bits, and so has what is returned beside it."""
    return after(lambda value, aux, slopes: (widened(value), floats(widened, aux), slopes))


@mutant("value_and_grad")
def auxiliary_output_is_numpys():
    """The auxiliary output has arrays of NumPy in place of the framework's."""

    def numpy(value):
        return value if right.within_gradient(value) is not False else value.numpy()

    return after(lambda value, aux, slopes: (value, floats(numpy, aux), slopes))


# Hooks that are optional


@mutant("within_gradient")
def several_are_asked_but_the_last():
    """Of several values the last is not asked about."""
    return {"any_within_gradient": lambda values: right.within_gradient(values[0])}


@mutant("within_gradient")
def several_are_asked_by_their_class():
    """Of several values one that is recorded is taken for one that is differentiated, also under the switch."""

    def any_within_gradient(values):
        found = [right.within_gradient(value) for value in values]
        if any(isinstance(value, toyad.Recorded) for value in values):
            return True
        staged = [answer for answer in found if not isinstance(answer, bool)]
        return functools.reduce(lambda one, other: one | other, staged) if staged else any(found)

    return {"any_within_gradient": any_within_gradient}


@mutant("within_gradient")
def exceptions_are_false():
    """A question that fails has the answer False."""

    def within_gradient(value):
        with contextlib.suppress(Exception):
            return right.within_gradient(value)
        return False

    return {"within_gradient": within_gradient}


@mutant("host_function")
def results_of_the_host_are_shared():
    """A host function that returns its argument gives the argument itself."""

    @functools.wraps(right.host_call)
    def host_call(fun, arrays, *rest):
        made = right.host_call(fun, arrays, *rest)
        return [next((a for a in arrays if str(a) == str(m)), m) for m in made]

    return {"host_call": host_call}


@mutant("non_differentiable", "value_and_grad")
def values_under_the_switch_are_no_constants():
    """What is untracked under the switch comes back from there as it is."""

    def non_differentiable(value):
        return value if right.within_gradient(value) is False else right.non_differentiable(value)

    return {"non_differentiable": non_differentiable}


@mutant("non_differentiable")
def tracked_constants_widen():
    """The constant of a tracked value has the default dtype."""

    def non_differentiable(value):
        made = right.non_differentiable(value)
        return made if made is value or not is_float(value) else toyad.cast(made, "float64")

    return {"non_differentiable": non_differentiable}


@mutant("jacobian")
def rows_run_down_the_columns():
    """The rows of the identity are reshaped in the order of Fortran."""

    def basis(x, count, start):
        rows = toyad.basis(x, count, start).numpy()
        return toyad.array(rows.reshape(count, -1).reshape(rows.shape, order="F"))

    return functions(basis=basis)


@mutant("value_and_grad")
def values_forget_what_was_given():
    """The value is a constant to a variable that the call differentiates."""
    return {"vjp": lambda fun, leaves, once: right.vjp(fun, list(map(toyad.stop_gradient, leaves)), once)}


@mutant("value_and_grad")
def numbers_are_variables():
    """A number that the function returns comes as a variable."""

    def vjp(fun, leaves, once):
        def called(values):
            outputs, aux = fun(values)
            numbers.extend(isinstance(one, float) for one in outputs)
            return outputs, aux

        numbers = []
        outputs, aux, pull = right.vjp(called, leaves, once)
        return [toyad.variable(y.numpy()) if n else y for y, n in zip(outputs, numbers, strict=True)], aux, pull

    return {"vjp": vjp}


@mutant("custom_derivative")
def rules_turn_gradients_round():
    """The gradients of a rule come in the other order."""
    vjp = DerivativeRule.vjp
    return {"adprotocol._rules.rule.DerivativeRule.vjp": lambda *args: vjp(*args)[::-1]}
