"""Ways for toyad's plugin, or what lies behind it, to be wrong everywhere, by which the suite is tested.

A mutant is data: for each hook or dotted path what stands in its place. A function there gets the one that it replaces
before the arguments. The mutants stand under the hooks that they break: a scenario of another need not notice.
"""

import contextlib
import dataclasses
import functools
import pkgutil
import types
from functools import partial
from unittest import mock

import numpy as np
import toyad
import toyad_adprotocol as right
import toyad_rules

import adprotocol
from adprotocol import extend, hookspecs, plugins
from adprotocol._dispatch import table
from adprotocol.conformance import scenario
from adprotocol.hookspecs import hookimpl

HOOKS = tuple(name for name, value in vars(right).items() if hasattr(value, "adprotocol_impl"))
KEPT = []


def standing_in(target):
    """Return what a mutant puts in the place of a hook or of a dotted path."""

    def instead(new):
        real = pkgutil.resolve_name(target) if "." in target else getattr(right, target, None)
        if not callable(new):
            return new
        signature = real or getattr(hookspecs, target)
        # Of `array_types` a scenario reads the module.
        return functools.wraps(signature, ["__name__"])(lambda *args, **known: new(real, *args, **known))

    return instead


@contextlib.contextmanager
def active(name=None):
    """Put a mutant in the place of toyad's plugin."""
    replaced = {target: standing_in(target)(new) for target, new in MUTANTS.get(name, {}).items()}
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
        KEPT.clear()


def is_float(value):
    return isinstance(value, toyad.Value) and toyad.is_inexact(value)


def floats(change, tree):
    """Return a structure with its arrays of floats changed."""
    return extend.tree_map(lambda leaf: change(leaf) if is_float(leaf) else leaf, tree)


constants = partial(floats, toyad.stop_gradient)
constant = toyad.stop_gradient


def double(value):
    return value * 2.0 if is_float(value) else value


def of_64_bits(value):
    return toyad.cast(value, "float64") if is_float(value) and value.dtype.kind == "f" else value


def widened(value):
    """Return a scalar of 32 bits with 64."""
    return of_64_bits(value) if is_float(value) and not value.shape else value


def one(value):
    return toyad.zeros(value) + 1.0


def tracked(value):
    return value if right.within_gradient(value) is not False else toyad.GRAPH.root(value)


def numpy(value):
    return value if right.within_gradient(value) is not False else value.numpy()


def without_gradients(*given):
    """Drop the gradients of variables."""
    for value in extend.tree_leaves(given):
        if isinstance(value, toyad.Variable):
            value.grad = None


def forget(real, *given):
    without_gradients(given)
    return real(*given)


# What changes a hook of products or gradients


def after(change):
    """Change value, auxiliary output and gradients."""

    def vjp(real, fun, leaves, once):
        outputs, aux, pull = real(fun, leaves, once)
        changed = [change(output, aux, []) for output in outputs]
        return [value for value, *_ in changed], changed[0][1], lambda cts: change(outputs[0], aux, pull(cts))[2]

    return {"vjp": vjp}


def outside(change):
    """Change the derivatives of value and auxiliary output by what is not selected, and leave the rest."""
    return after(lambda value, aux, slopes: (change(value), floats(change, aux), slopes))


def as_variables(value, aux, slopes):
    return tracked(value), floats(tracked, aux), list(map(tracked, slopes))


def pulls(change):
    """Return a hook whose pull is ``change(pull, outputs, cotangents)``, but for one that is pulled at once."""

    def vjp(real, fun, leaves, once):
        outputs, aux, pull = real(fun, leaves, once)
        return outputs, aux, pull if once else partial(change, pull, outputs)

    return {"vjp": vjp}


def by_variables(given=toyad.lift, value=toyad.lift, aux=toyad.lift):
    """Return a hook that changes leaves that are variables, or without any what closes over variables."""

    def vjp(real, fun, leaves, once):
        leaves = list(map(toyad.lift, leaves))
        if all(leaf.trace is not toyad.GRAPH for leaf in leaves):
            outputs, others, pull = real(fun, leaves, once)
            return list(map(value, outputs)), list(map(aux, others)), pull
        return real(fun, [given(leaf) if leaf.trace is toyad.GRAPH else leaf for leaf in leaves], once)

    return {"vjp": vjp}


def ignoring(value):
    """Return a value whose variables get 1 for each cotangent."""
    kept = toyad.Custom(lambda v: v, lambda _, t: t * 0.0 + 1.0)
    return kept(value) if value.trace is toyad.GRAPH else value


def each(change):
    return pulls(lambda pull, _, cotangents: list(map(change, pull(cotangents))))


def pushes(before=toyad.lift, after=toyad.lift, value=toyad.lift, aux=toyad.lift):
    """Return a hook that changes the tangents that it is given, and what it returns."""

    def jvp(real, fun, leaves, tangents):
        outputs, others, moved = real(fun, leaves, list(map(before, tangents)))
        return list(map(value, outputs)), list(map(aux, others)), list(map(after, moved))

    return {"jvp": jvp}


def confused(real, fun, leaves, tangents):
    """Count the tangents of outer levels among those of the call."""
    outputs, others, moved = real(fun, leaves, tangents)
    outer = [y.tangent if isinstance(y, toyad.Dual) else 0.0 for y in outputs]
    return outputs, others, [m + t for m, t in zip(moved, outer, strict=True)]


def unwatched(real, *given):
    with mock.patch.object(toyad, "watching", contextlib.nullcontext):
        return real(*given)


def of_the_leaf(real, fun, leaves, tangents):
    outputs, others, moved = real(fun, leaves, tangents)
    return outputs, others, [toyad.cast(m, toyad.lift(leaves[0]).dtype) for m in moved]


def rows(change):
    """Return a hook that changes the stacked rows, given the size of a chunk."""
    return {"vmap": lambda real, fun, arrays, size: [change(found, size) for found in real(fun, arrays, size)]}


def backwards(array):
    return toyad.stack([array[i] for i in range(array.shape[0])[::-1]])


def in_fortran(x, count, start):
    made = toyad.basis(x, count, start).numpy()
    return toyad.array(made.reshape(count, -1).reshape(made.shape, order="F"))


def open_values(real, fun, leaves, once):
    outputs, aux, pull = real(fun, leaves, once)
    return outputs if once else list(map(toyad.Tape().root, outputs)), aux, pull


def recording(real, fun, leaves, once):
    with mock.patch.object(toyad.STATE, "quiet", 0):
        return real(fun, leaves, once)


def numbers_tracked(real, fun, leaves, once):
    numbers = []

    def called(values):
        outputs, aux = fun(values)
        numbers.extend(isinstance(output, float) for output in outputs)
        return outputs, aux

    outputs, aux, pull = real(called, leaves, once)
    return [toyad.variable(y.numpy()) if n else y for y, n in zip(outputs, numbers, strict=True)], aux, pull


# Questions, constants, branches


def tried_out(real, value):
    """Compute a derivative, count it, and move the value."""
    if isinstance(value, toyad.Dual):
        value.tangent = value.tangent * 2.0
    below = value
    while isinstance(below, toyad.Tracer):
        below = below.below
    if isinstance(below, toyad.Array) and below.value.flags.writeable:
        below.value += 1
    value.grad = 1.0
    return real(value)


def by_class(_, values):
    found = list(map(right.within_gradient, values))
    if any(isinstance(value, toyad.Recorded) for value in values):
        return True
    staged = [answer for answer in found if not isinstance(answer, bool)]
    return functools.reduce(lambda one, other: one | other, staged) if staged else any(found)


def suppressed(real, value):
    with contextlib.suppress(Exception):
        return real(value)
    return False


def inverted(_, value, message):
    if right.within_gradient(value) is not True:
        raise extend.gradient_prevented(value, message, "toyad")
    return value


def in_place(real, value):
    made = real(value)
    return value if type(value) is dict and not value.update(made) else made


def selected(_, pred, true_fun, false_fun, operands):
    made, other = true_fun(*operands), false_fun(*operands)
    return toyad.where(pred, made, other) if is_float(made) and is_float(other) else made


def of_first_call(branch):
    if branch.__closure__:
        return branch
    kept = next((old for code, old in KEPT if code is branch.__code__), None)
    if kept is None:
        read = {name: dict(value) if type(value) is dict else value for name, value in branch.__globals__.items()}
        kept = types.FunctionType(branch.__code__, read, argdefs=branch.__defaults__)
        KEPT.append((branch.__code__, kept))
    return kept


def plain(value):
    if isinstance(value, (list, tuple, dict)):
        return [plain(part) for part in (value.values() if isinstance(value, dict) else value)]
    return toyad.array(value or 0.0) if isinstance(value, (bool, int, float, type(None))) else value


def operands(change):
    """Change the operands of a branch that are NumPy's."""
    return {
        "cond": lambda real, pred, t, f, given: real(
            pred, t, f, tuple([change(x) if isinstance(x, np.ndarray) else x for x in given])
        )
    }


def functions(**replaced):
    """Return toyad's array functions with others."""
    names = ("where", "argmax", "take", "basis", "moveaxis", "stack", "reshape", "as_like")
    usual = {name: getattr(toyad, name) for name in names}
    return {"array_functions": lambda _: types.SimpleNamespace(**{**usual, **replaced})}


def axis_of(change):
    return functions(take=lambda array, indices, axis: toyad.take(array, indices, change(axis, len(array.shape))))


def where_of_64_bits(mask, *pair):
    is_number = any(isinstance(value, float) for value in pair)
    return toyad.where(mask, *[toyad.cast(v, "float64") if is_number and is_float(v) else v for v in pair])


# Rules and host functions

RULE, HOST = "adprotocol._rules.rule.DerivativeRule", "adprotocol._rules.host_function"


def followed_residuals(_, self, trace, args, below, call):
    """Differentiate residuals as the results are."""
    results = self(*below, call=call)
    places = [i for i, result in enumerate(results) if is_float(result)]
    needed = [a.trace is trace and is_float(a) for a in args]
    if True not in needed or not call.outline.count:
        return results

    def pull(*cotangents):
        given = [toyad.zeros(results[i]) if ct is None else ct for i, ct in zip(places, cotangents, strict=True)]
        return call.backward(needed, given[: call.outline.count], followed, below)

    moving = [a for a, need in zip(args, needed, strict=True) if need]
    recorded = iter(trace.record([results[i] for i in places], moving, pull))
    followed = [next(recorded) if i in places else result for i, result in enumerate(results)]
    made = list(followed)
    followed[: call.outline.count] = results[: call.outline.count]
    return made


def with_function(real, rule, arrays):
    """Compute the gradient when the function runs, wanted or not."""
    results, outline = real(rule, arrays)
    if rule.has_vjp:
        returned = constants(results)
        ones = list(map(one, returned[: outline.count]))
        rule.vjp([is_float(a) for a in arrays], ones, returned, outline, constants(arrays))
    return results, outline


def changed(change, results, outline):
    """Change the results of a function with a rule."""
    return list(map(change, results)), outline


def closed(real, rule, arrays):
    if any(right.within_gradient(a) is True for a in arrays):
        return real(rule, arrays)
    return changed(lambda result: constant(toyad.lift(result)), *rule.fun(arrays))


def untracked(arrays, results, outline):
    return [constant(r) if any(str(r) == str(a) for a in arrays) else r for r in results], outline


def transposed(value):
    square = is_float(value) and len(value.shape) == 2 and value.shape[0] == value.shape[1]
    return toyad.stack([toyad.stack([row[i] for row in value]) for i in range(len(value))]) if square else value


def blank(real, self, *values):
    *others, arrays = values
    shapes = [types.SimpleNamespace(shape=a.shape, dtype=a.dtype) for a in arrays]
    given = [a if is_read else b for a, b, is_read in zip(arrays, shapes, self.reads, strict=True)]
    return real(self, *others, given)


def left_quiet(real, *args, upto=float("inf")):
    try:
        return real(*args)
    except Exception:
        toyad.STATE.quiet = min(upto, next(toyad.LEVELS))
        raise


def stopping_variables(real, fun, leaves, once):
    outputs, aux, pull = real(fun, leaves, once)
    return outputs, aux, partial(left_quiet, pull, upto=toyad.GRAPH.level + 0.25)


def strided(real, self, needed, cts, results, *rest):
    """Transpose the cotangents of results that are not in the order of C."""
    pairs = zip(cts, results, strict=False)
    order = [isinstance(y, toyad.Array) and not y.numpy().flags.c_contiguous for _, y in pairs]
    cts = [transposed(ct) if other else ct for ct, other in zip(cts, order, strict=True)]
    return real(self, needed, cts, results, *rest)


def no_narrow(real, self, needed, *rest):
    """Return zeros for gradients of fewer bits than the argument."""
    arrays = [array for array, need in zip(rest[-1], needed, strict=True) if need]
    pairs = zip(real(self, needed, *rest), arrays, strict=True)
    return [g * 0.0 if is_float(g) and g.dtype.itemsize < a.dtype.itemsize else g for g, a in pairs]


def zeros_of_integers(real, self, *args):
    with mock.patch.object(toyad_rules.ToyadDerivative, "is_inexact", return_value=True):
        return real(self, *args)


def refusing(is_refused):
    """Return a hook that refuses some arrays at the call."""

    def host_call(real, fun, arrays, *rest):
        for array in filter(is_refused, arrays):
            raise extend.gradient_prevented(array, rest[-1], "toyad")
        return real(fun, arrays, *rest)

    return {"host_call": host_call}


# Structures


def of_lists(_, treespec, leaves, *rest):
    return next(leaves) if treespec is None else [of_lists(_, child, leaves) for child in treespec[3]]


def keeping(real, *args):
    result = real(*args)
    KEPT.extend([args, result])
    return result


def library(node=lambda usual, value: usual(value), register=lambda usual, *given: usual(*given)):
    """Change how a container is taken apart, or a class entered."""

    def tree_library(real):
        usual = real()
        return hookspecs.TreeLibrary(partial(node, usual.node), partial(register, usual.register))

    return {"tree_library": tree_library}


def of_constants(usual, value):
    found = usual(value)
    return found and (lambda bag: (constants(list(found[0](bag)[0])), *found[0](bag)[1:]), found[1])


def untied(value):
    return constant(value) if right.within_gradient(value) is True else value


def detached(usual, cls, flatten, unflatten):
    usual(cls, lambda made: (floats(untied, list(flatten(made)[0])), *flatten(made)[1:]), unflatten)


def by_constructor(usual, cls, flatten, unflatten):
    def rebuild(metadata, children):
        made = unflatten(metadata, children)
        return cls(**{field.name: getattr(made, field.name) for field in dataclasses.fields(cls)})

    usual(cls, flatten, rebuild if dataclasses.is_dataclass(cls) else unflatten)


def in_all(paths, new):
    return {f"adprotocol.{path}": new for path in paths}


SELECTS = [f"_gradients.{module}.select" for module in ("partition", "call")]
REGISTRY = "adprotocol._dispatch.registry.REGISTRY"
LABEL = "adprotocol._dispatch.table.BINDINGS.LABEL"


def others_selected(real, structures, where, **known):
    real(structures, where, **known)
    for structure in structures:
        structure.mask = [not mine for mine in structure.mask]


def returns(hook, returned):
    """Return a mutant whose hook returns what is of another class than is due."""
    return {hook: lambda *_: returned}


BROKEN = {
    ("within_gradient",): {
        "answers-are-text": returns("within_gradient", "yes"),
        "several-answers-are-text": returns("any_within_gradient", "yes"),
        "answers-are-negated": {
            "within_gradient": lambda real, value: not found if isinstance(found := real(value), bool) else ~found
        },
        "questions-try-it-out": {"within_gradient": tried_out},
        "answers-end-with-the-first-gradient": {
            "within_gradient": lambda real, value: getattr(value, "grad", None) is None and real(value)
        },
        "several-are-asked-but-the-last": {"any_within_gradient": lambda _, values: right.within_gradient(values[0])},
        "several-are-asked-by-their-class": {"any_within_gradient": by_class},
        "exceptions-are-false": {"within_gradient": suppressed},
        "integers-cannot-be-explained": {"explain": lambda real, value: real(value) if is_float(value) else 1 / 0},
    },
    ("within_gradient", "plugins"): {
        "explanations-are-none": returns("explain", None),
        "explanations-contradict": {"explain": lambda *_: "no level of grad or jvp follows it"},
    },
    ("is_concrete",): {
        "all-is-concrete": returns("is_concrete", True),
        "nothing-is-concrete": returns("is_concrete", False),
        "batches-are-concrete": {"is_concrete": lambda real, value: isinstance(value, toyad.Batched) or real(value)},
        "tracers-are-not-concrete": {
            "is_concrete": lambda real, value: not isinstance(value, toyad.Tracer) and real(value)
        },
        "a-question-about-nothing-is-true": {"adprotocol.is_concrete": lambda real, *given: not given or real(*given)},
    },
    ("non_differentiable",): {
        "constants-are-none": returns("non_differentiable", None),
        "nothing-is-constant": {"non_differentiable": lambda _, value: value},
        "constants-are-zero": {"non_differentiable": lambda _, value: constant(value) * 0.0},
        "constants-are-written-in-place": {"adprotocol.non_differentiable": in_place},
        "tracked-constants-widen": {
            "non_differentiable": lambda real, value: (
                made if (made := real(value)) is value or not is_float(value) else toyad.cast(made, "float64")
            )
        },
        "non_differentiable-widens-scalars": {"non_differentiable": lambda real, value: widened(real(value))},
        "non_differentiable-drops-gradients": {"non_differentiable": forget},
    },
    ("non_differentiable", "prevent_gradient", "trainable", "plugins"): {
        "labels-are-ignored": {
            "adprotocol.NonDifferentiable.value": property(lambda label: label.held),
            f"{LABEL}.trainable": lambda *_: True,
            f"{LABEL}.within_gradient": lambda _, label: adprotocol.within_gradient(label.held),
        },
    },
    ("non_differentiable", "value_and_grad"): {
        "values-under-the-switch-are-no-constants": {
            "non_differentiable": lambda real, value: value if right.within_gradient(value) is False else real(value)
        },
    },
    ("prevent_gradient",): {
        "guards-are-none": returns("prevent_gradient", None),
        "guards-are-inverted": {"prevent_gradient": inverted},
        "prevent_gradient-widens-scalars": {"prevent_gradient": lambda real, *given: floats(widened, real(*given))},
    },
    ("trainable", "value_and_grad"): {
        "the-others-are-trained": in_all(SELECTS, others_selected),
        "where-is-ignored": in_all(SELECTS, lambda real, structures, where, **known: real(structures, None, **known)),
    },
    ("trainable",): {
        "flags-are-text": returns("trainable", "yes"),
        "identities-have-no-hash": returns("identity", []),
        "the-last-wins": {"adprotocol.combine": lambda real, *trees, **known: real(*trees[::-1], **known)},
        "trainable-drops-gradients": {"trainable": forget},
        "constants-of-parameters-are-frozen": {
            "non_differentiable": lambda real, value: (
                toyad.Parameter(value.numpy(), trains=False) if isinstance(value, toyad.Parameter) else real(value)
            )
        },
    },
    ("cond",): {
        "the-other-branch": {"cond": lambda real, pred, t, f, operands: real(pred, f, t, operands)},
        "results-of-branches-are-constant": {"cond": lambda real, *given: constants(real(*given))},
        "both-branches-are-selected": {"cond": selected},
        "branches-return-arrays": {
            "cond": lambda real, pred, *both: real(
                pred, *[lambda *given, f=f: plain(f(*given)) for f in both[:2]], both[2]
            )
        },
        "cond-widens-scalars": {"cond": lambda real, *given: floats(widened, real(*given))},
        "cond-drops-gradients": {"cond": forget},
        "branches-read-the-globals-of-the-first-call": {
            "cond": lambda real, pred, t, f, given: real(pred, of_first_call(t), of_first_call(f), given)
        },
        "numpys-operands-are-variables": operands(toyad.variable),
        "numpys-operands-are-one-element": operands(lambda x: x[..., :1]),
        "functions-are-none": returns("array_functions", None),
        "where-runs-a-function-twice": {
            "adprotocol._hooks.where._Choice.run_true": lambda real, self: (real(self), real(self))[0]
        },
        "where-chooses-the-other": functions(where=lambda mask, made, other: toyad.where(mask, other, made)),
        "where-is-constant": functions(where=lambda *args: constant(toyad.where(*args))),
        "where-takes-any-mask": {"adprotocol._hooks.where.predicate": lambda _, m, call: (m, table.lookup(type(m)))},
        "where-runs-the-functions-at-all-elements": {"adprotocol._hooks.where._guarded": lambda *args: args[3]},
        "where-forgets-what-is-closed-over": {"adprotocol._hooks.where.arrays_held": lambda *_: []},
        "numbers-widen-elements": functions(where=where_of_64_bits),
        "argmax-is-the-first": functions(argmax=lambda mask: toyad.argmax(mask) * 0),
        "axes-count-from-the-left": axis_of(lambda axis, _: -axis - 1),
        "the-last-axis-is-the-first": axis_of(lambda axis, _: 0 if axis == -1 else axis),
    },
    ("value_and_grad",): {
        "frozen-leaves-are-none": returns("freeze", None),
        "gradients-are-doubled": after(lambda value, aux, slopes: (value, aux, [2.0 * s + 1 for s in slopes])),
        "gradients-fill-variables": after(
            lambda value, aux, slopes: (toyad.backward(value, 1.0), (value, aux, slopes))[1]
        ),
        "zeros-for-none": {
            "adprotocol._gradients.structure.Structure.only": lambda _, self, leaves: self.with_leaves(
                [next(following) if mine else 0.0 for following in [iter(leaves)] for mine in self.mask]
            )
        },
        "values-of-gradients-are-zero": after(lambda value, aux, slopes: (value * 0.0, aux, slopes)),
        "values-are-detached": outside(constant),
        "cotangents-of-values-are-ignored": outside(toyad.Custom(lambda v: v, lambda _, t: t * 0.0 + 1.0)),
        "values-widen": outside(widened),
        "values-forget-what-was-given": {
            "vjp": lambda real, fun, leaves, once: real(fun, list(map(constant, leaves)), once)
        },
        "auxiliary-output-is-numpys": after(lambda value, aux, slopes: (value, floats(numpy, aux), slopes)),
        "results-are-variables": after(as_variables),
        "numbers-are-variables": {"vjp": numbers_tracked},
        "the-switch-is-turned-on": {"vjp": recording},
        "recording-is-always-off": {
            "is_recording": lambda _: False,
            "freeze": lambda _, value: constant(toyad.read(value)),
        },
        "vjp-drops-gradients": {"vjp": forget},
        "variables-given-are-constants": by_variables(given=toyad.GRAPH.lower),
        "variables-given-ignore-the-cotangent": by_variables(given=ignoring),
        "variables-in-closures-are-constants": by_variables(value=toyad.GRAPH.lower),
        "variables-in-auxiliary-output-are-constants": by_variables(aux=toyad.GRAPH.lower),
        "results-under-the-switch-are-variables": {
            "toyad_harness.ToyHarness.no_grad": lambda real, h, fun: lambda *args: constants(real(h, fun)(*args)),
            **after(lambda *given: as_variables(*given) if toyad.STATE.quiet else given),
        },
        "computed-values-are-one-leaf": {
            "identity": lambda real, value: id(value) if value.trace is toyad.GRAPH else real(value)
        },
        "frozen-leaves-widen": {
            "freeze": lambda _, value: value if value.dtype == "float64" else of_64_bits(toyad.read(value))
        },
    },
    ("vjp",): {
        "pulls-are-one-gradient": {"vjp": lambda real, *given: (*real(*given)[:2], lambda _: 1.0)},
        "pulls-are-scaled": each(lambda found: 2.0 * found),
        "pulls-are-constant": each(constant),
        "pulls-have-none-for-zeros": each(lambda found: found if np.any(found.numpy()) else None),
        "pulls-are-zero-under-the-switch": each(lambda found: found * 0.0 if toyad.STATE.quiet else found),
        "pulls-ignore-the-cotangent": pulls(lambda pull, ys, _: pull(list(map(one, ys)))),
        "pulls-take-none-for-one": pulls(
            lambda pull, ys, cts: pull([one(y) if ct is None else ct for y, ct in zip(ys, cts, strict=True)])
        ),
        "a-later-pull-is-stale": pulls(lambda pull, _, cts, kept={}: kept.setdefault(pull, pull(cts))),
        "calls-run-the-function-twice": {
            "vjp": lambda real, fun, leaves, once: real(lambda given: [fun(given), fun(given)][1], leaves, once)
        },
        "values-stay-open": {"vjp": open_values},
    },
    ("jvp",): {
        "tangents-are-silently-zero": pushes(after=lambda moved: moved * 0.0),
        "tangents-are-ignored": pushes(before=lambda given: one(toyad.lift(given))),
        "tangents-are-constant": pushes(after=constant),
        "tangents-of-levels-are-summed": {"jvp": confused},
        "values-beside-tangents-are-constant": pushes(value=constant),
        "auxiliary-output-beside-tangents-is-tracked": pushes(aux=tracked),
        "parameters-move-as-arguments-alone": {"jvp": unwatched},
        "tangents-widen": pushes(after=of_64_bits),
        "tangents-are-of-the-leaf": {"jvp": of_the_leaf},
    },
    ("jacobian",): {
        "rows-are-backwards": rows(lambda found, _: backwards(found)),
        "chunks-are-backwards": rows(lambda found, size: backwards(found) if size else found),
        "rows-are-constant": rows(lambda found, _: constant(found)),
        "rows-run-down-the-columns": functions(basis=in_fortran),
        "rows-are-always-batched": {"adprotocol._gradients.jacobian.is_concrete": lambda *_: False},
        "columns-stay-in-front": functions(moveaxis=lambda x, *_: x),
        "a-basis-begins-backwards": functions(basis=lambda x, count, start: toyad.basis(x, count, -start)),
        "a-basis-begins-later": functions(basis=lambda x, count, start: toyad.basis(x, count, start - 1)),
        "complex-numbers-are-not-refused": {"adprotocol._gradients.jacobian.is_complex": lambda *_: False},
    },
    ("custom_derivative",): {
        "results-of-rules-are-none": {"custom_rule": lambda real, *given: changed(lambda _: None, *real(*given))},
        "rules-give-the-double": {
            "custom_rule": lambda real, *given: changed(double, *real(*given)),
            **dict.fromkeys((f"{RULE}.vjp", f"{RULE}.jvp"), lambda real, *given: list(map(double, real(*given)))),
        },
        "rules-are-transposed-unseen": {
            "adprotocol._rules.derivative.Derivative.check_linear": lambda *_: None,
            "adprotocol._rules.derivative._DEEPEST": 1000,
        },
        "functions-with-rules-run-twice": {
            "custom_rule": lambda real, rule, arrays: (rule.fun(constants(arrays)), real(rule, arrays))[1]
        },
        "rules-run-with-their-function": {"custom_rule": with_function},
        "functions-without-rules-are-differentiated": {
            "adprotocol._rules.custom_derivative.CustomDerivative.__call__": lambda real, self, *args, **static: (
                real(self, *args, **static) if self.rules else self.fun(*args, **static)
            )
        },
        "forward-mode-transposes-the-vjp": {
            "adprotocol._rules.derivative.Derivative.forward": lambda real, self, tangents: (
                self._transposed(self.backward, self.outputs, self.inputs, tangents)
                if self.rule.has_vjp
                else real(self, tangents)
            )
        },
        "results-behind-the-counted-are-followed": {"toyad_rules.Ruled.reverse": followed_residuals},
        "closures-are-constants": {
            "custom_rule": closed,
            "adprotocol._rules.custom_derivative.hold_tracked": lambda *_: False,
        },
        "arguments-come-back-as-constants": {
            "custom_rule": lambda real, rule, arrays: untracked(arrays, *real(rule, arrays))
        },
        "rules-drop-gradients": {
            "custom_rule": lambda real, rule, arrays: (without_gradients(arrays[0]), real(rule, arrays))[1]
        },
        "custom_rule-widens-scalars": {"custom_rule": lambda real, *given: changed(widened, *real(*given))},
        "rules-run-twice": {f"{RULE}.vjp": lambda real, *given: (real(*given), real(*given))[1]},
        "errors-in-rules-leave-recording-off": {f"{RULE}.vjp": left_quiet},
        "errors-in-rules-stop-variables": {"vjp": stopping_variables},
        "cotangents-of-views-are-transposed": {f"{RULE}.vjp": strided},
        "narrow-gradients-are-zero": {f"{RULE}.vjp": no_narrow},
        "integers-have-zero-tangents-in-reverse": {
            "adprotocol._rules.derivative.Derivative._transposed": zeros_of_integers
        },
        "what-no-rule-reads-is-a-shape": {f"{RULE}.vjp": blank},
        "rules-turn-gradients-round": {f"{RULE}.vjp": lambda real, *given: real(*given)[::-1]},
    },
    ("custom_derivative", "host_function"): {
        "rules-are-ignored": {"custom_rule": lambda _, rule, arrays: changed(toyad.lift, *rule.fun(arrays))},
        "second-results-have-no-gradient": {
            f"{RULE}.vjp": lambda real, self, needed, cts, *rest: real(
                self, needed, [c if i == 0 else c * 0.0 for i, c in enumerate(cts)], *rest
            )
        },
    },
    ("host_function",): {
        "results-of-the-host-are-none": returns("host_call", None),
        "host-functions-write-into-their-arguments": {f"{HOST}.read_only": lambda _, value: value},
        "host-functions-keep-their-results": {f"{HOST}.HostCall._array": lambda _, _self, leaf: leaf},
        "host-functions-refuse-parameters": refusing(lambda array: getattr(array, "trains", False)),
        "host-functions-refuse-variables": refusing(
            lambda array: array.trace is toyad.GRAPH and right.within_gradient(array)
        ),
        "results-of-the-host-are-shared": {
            "host_call": lambda real, fun, arrays, *rest: [
                next((a for a in arrays if str(a) == str(made)), made) for made in real(fun, arrays, *rest)
            ]
        },
        "host_call-widens-scalars": {"host_call": lambda real, *given: floats(widened, real(*given))},
    },
    ("plugins",): {
        "registered-without-static-fields": library(
            register=lambda usual, cls, flatten, _: usual(cls, flatten, lambda _, children: cls(*children))
        ),
        "registered-by-constructor": library(register=by_constructor),
        "registered-children-are-detached": library(register=detached),
        "subclasses-are-not-served": {
            f"{REGISTRY}.claimants": lambda real, cls: [
                plugin for plugin in real(cls) if cls.__module__ == "toyad" or cls in plugin.types
            ]
        },
        # They stand in this module, which imports what is private.
        "array-types-in-a-private-place": {"array_types": lambda _: (toyad.Value,)},
    },
    ("plugins", "within_gradient"): {"nodes-are-flattened-to-constants": library(node=of_constants)},
    scenario.HOOKS: {
        "structures-are-rebuilt-as-lists": in_all(
            [f"{m}.build" for m in ("_trees.treespec", "_trees.traversal", "_rules.outline", "_rules.host_function")],
            of_lists,
        ),
        "everything-is-kept": dict.fromkeys(
            {*HOOKS} - {"harness", "array_types", "identity", "views", "tree_library", "trainable", "explain"}, keeping
        ),
        "errors-say-nothing": {"adprotocol.errors.ADProtocolError.__str__": lambda *_: "error"},
        "errors-are-of-another-kind": {
            "adprotocol.errors.ADProtocolError.__new__": lambda _, _cls, *args, **known: OSError(*args)
        },
        "one-precision": {
            "non_differentiable": lambda real, value: of_64_bits(real(value)),
            "cond": lambda real, *given: floats(of_64_bits, real(*given)),
            **after(lambda value, aux, slopes: (of_64_bits(value), aux, list(map(of_64_bits, slopes)))),
            f"{HOST}._with_precision": lambda _, result, _arrays: result,
            "toyad.as_like": lambda real, value, like: of_64_bits(real(value, like)),
        },
        "wrappers-have-no-name": in_all(
            ["_gradients.value_and_grad.wrap", "_hooks.non_differentiable.wrap"], lambda _, wrapper, _fun: wrapper
        ),
    },
}
MUTANTS = {name: replaced for mutants in BROKEN.values() for name, replaced in mutants.items()}
# The other hooks by which scenarios of one ask again.
AGAIN = {"value_and_grad": "vjp", "within_gradient": "jvp"}
BREAKS = {
    name: {*hooks, *(AGAIN[hook] for hook in hooks if hook in AGAIN)}
    for hooks, mutants in BROKEN.items()
    for name in mutants
}
