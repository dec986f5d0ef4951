"""The optional hooks that our plugins use like a stranger's, on a plugin made by hand."""

import dataclasses
import functools
import types

import numpy as np
import pytest
from minimal_plugin import Array, Minimal

import adprotocol
from adprotocol import NonDifferentiable, hookspecs
from adprotocol.errors import OpaqueValueError, PluginError
from adprotocol.extend import Outline, tree_leaves
from adprotocol.hookspecs import TreeLibrary, View, hookimpl
from adprotocol.plugins import register, unregister


class Weight(Array):
    """An array with an identity."""

    dtype = "float64"

    def __init__(self, number, owner=None):
        self.number = number
        self.owner = self if owner is None else owner


class WithIdentity(Minimal):
    """Differentiates the sum of weights, and remembers what it was given."""

    def __init__(self):
        self.seen = []

    @hookimpl
    def identity(self, value):
        return id(value.owner) if isinstance(value, Weight) else None

    @hookimpl
    def freeze(self, value):
        self.seen.append(value.number)
        return Weight(-value.number, value.owner)

    @hookimpl
    def vjp(self, fun, leaves, once):
        return *fun(leaves), lambda cotangents: [1.0 for _ in leaves]


@pytest.fixture
def plugin():
    made = WithIdentity()
    record = register(made, "fakefw")
    yield made
    unregister(record.name)


@pytest.mark.parametrize(
    ("where", "gradients", "values", "frozen"),
    [(None, [1.0, 1.0, None], [2.0, 5.0, 2.0], []), ("1", [None, 1.0, None], [-2.0, 5.0, -2.0], [2.0])],
)
def test_a_leaf_with_an_identity_is_one_at_all_its_places(plugin, where, gradients, values, frozen):
    shared, other = Weight(2.0), Weight(5.0)
    numbers = []

    def loss(model):
        numbers.extend(leaf.number for leaf in model)
        return 1.0

    assert adprotocol.grad(loss, where=where)([shared, other, shared]) == gradients
    assert numbers == values
    assert plugin.seen == frozen


def gradient(*others, where=None):
    return adprotocol.grad(lambda model, *_: 1.0, where=where)([Weight(1.0), Weight(2.0)], *others)


rule = adprotocol.custom_derivative(lambda weight: weight)
rule.defvjp(lambda cotangent, *_: (cotangent,))
# A call of each hook, what it must not return, and whether its exceptions come out as they are. What costs time at each
# call (the class of an answer) is asked by the conformance suite instead.
FAULTS = {
    **{
        name: (lambda: None, returned, False)
        for name, returned in (
            ("array_types", (None, 1, ["Array"])),
            ("function_types", (1, [1])),
            ("tree_library", (None, "library")),
            ("views", (1, {"Weight": View})),
            ("label_protocol", (None, 1)),
        )
    },
    "within_gradient": (lambda: adprotocol.within_gradient(Weight(1.0)), (), True),
    "identity": (gradient, (), True),
    "freeze": (lambda: gradient(where="1"), (), True),
    # A branch may return anything.
    "cond": (lambda: adprotocol.cond(True, abs, abs, Weight(1.0)), (), True),
    "vjp": (
        gradient,
        [([1.0], [], lambda _, slopes=slopes: slopes) for slopes in ([1.0], [1.0] * 3, [1.0, None])],
        True,
    ),
    "custom_rule": (lambda: rule(Weight(1.0)), [([], Outline()), ([None], Outline())], True),
    "host_call": (lambda: adprotocol.host_function(abs)(Weight(1.0)), ([], [1.0, 2.0], [None]), True),
}


def call_with(hook, function):
    """Call a hook that does what `function` does, on a plugin that is otherwise right."""
    wrong = hookimpl(functools.wraps(getattr(hookspecs, hook))(lambda *_: function()))
    record = register(type("Faulty", (WithIdentity,), {hook: staticmethod(wrong)})(), "fakefw")
    try:
        return FAULTS[hook][0]()
    finally:
        unregister(record.name)


WRONG = {f"{hook}-{i}": (hook, one) for hook in FAULTS for i, one in enumerate(FAULTS[hook][1])}


@pytest.mark.parametrize(("hook", "returned"), WRONG.values(), ids=WRONG)
def test_a_hook_that_returns_something_else_is_named_with_its_plugin(hook, returned):
    with pytest.raises(PluginError, match=rf"(?s)(?=.*\b{hook}\b).*'fakefw'"):
        call_with(hook, lambda: returned)


@pytest.mark.parametrize("hook", FAULTS)
def test_a_hook_that_raises_is_named_unless_a_value_or_user_code_may_have_raised(hook):
    *_, is_of_user = FAULTS[hook]
    error, words = (ZeroDivisionError, "^division") if is_of_user else (PluginError, f"{hook}.*ZeroDivisionError")
    with pytest.raises(error, match=words):
        call_with(hook, lambda: 1 / 0)


def test_an_elementwise_choice_needs_the_hook_with_the_array_functions():
    record = register(Minimal(), "fakefw")
    try:
        with pytest.raises(PluginError, match=r"where needs the hook array_functions of the plugin for fakefw"):
            adprotocol.where(np.array([True]), lambda x: x, lambda x: x, Array())
    finally:
        unregister(record.name)


class ForNumpy(Minimal):
    @hookimpl(tryfirst=True)
    def vjp(self, fun, leaves, once):
        return *fun(leaves), lambda cotangents: ["ours" for _ in leaves]


@pytest.mark.parametrize(("answer", "gradient"), [(True, "ours"), (False, 3.0)])
def test_the_first_plugin_that_says_so_differentiates_numbers(answer, gradient):
    record = register(ForNumpy(), "fakefw", differentiates_numpy=answer)
    try:
        assert adprotocol.grad(lambda x: 3.0 * x)(2.0) == gradient
    finally:
        unregister(record.name)
    assert adprotocol.grad(lambda x: 3.0 * x)(2.0) == 3.0


class Bare(Array):
    """An array that Python's abs and float do not take."""

    dtype, shape = "float32", ()

    def __init__(self, number):
        self.number = number

    def __mul__(self, other):
        return Bare(self.number * getattr(other, "number", other))


class Tripling(Minimal):
    @hookimpl
    def vjp(self, fun, leaves, once):
        return *fun(leaves), lambda cotangents: [cotangent * 3 for cotangent in cotangents]

    @hookimpl
    def array_functions(self):
        return types.SimpleNamespace(
            as_like=lambda value, like: value if isinstance(value, Bare) else Bare(value),
            in_numpy=lambda array: array.number,
        )


def test_a_pull_is_transposed_on_arrays_that_are_no_numbers_to_python():
    record = register(Tripling(), "fakefw")
    try:
        value, tangent = adprotocol.jvp(lambda x: x * 3, (Bare(2.0),), (5.0,))
        assert (value.number, tangent.number) == (6.0, 15.0)
    finally:
        unregister(record.name)


class Shown:
    """An object that is shown as a list of its one part."""

    def __init__(self, part):
        self.part = part


class ShownAsWell(Shown):
    """One that is shown as a dict."""


class BoxOfWeights(Array):
    """An array that is a container too."""

    def __init__(self, *weights):
        self.weights = weights


class WithViews(Minimal):
    @hookimpl
    def within_gradient(self, value):
        return isinstance(value, Weight)

    @hookimpl
    def views(self):
        return {
            Shown: lambda shown: View([shown.part]),
            ShownAsWell: lambda shown: View({"part": shown.part}),
            BoxOfWeights: lambda box: View(list(box.weights)),
        }


def test_each_type_has_its_view_and_a_subclass_that_of_its_nearest_base():
    record = register(WithViews(), "fakefw")
    try:
        weight = Weight(2.0)
        for cls, shown in ((Shown, [weight]), (ShownAsWell, {"part": weight})):
            for kind in (cls, type("Sub", (cls,), {})):
                assert adprotocol.partition([kind(weight)])[0] == [shown]
                assert adprotocol.within_gradient(kind(weight)) is True
                assert adprotocol.within_gradient(kind(1.0)) is False
        assert adprotocol.partition(BoxOfWeights(weight, 1))[0] == [weight, None]
    finally:
        unregister(record.name)


class WithTrees(Minimal):
    def __init__(self, library):
        self.library = library

    @hookimpl
    def tree_library(self):
        return self.library


@dataclasses.dataclass
class Pair:
    first: object
    second: object


class Filled:
    w = 1.0


class Refusing(WithIdentity):
    @hookimpl
    def views(self):
        def refuse(container):
            raise RuntimeError("it is in use")

        return {Filled: lambda value: View({"w": value.w}, fill=refuse)}


def test_an_error_of_what_fills_an_object_comes_out_as_it_is():
    record = register(Refusing(), "fakefw")
    try:
        with pytest.raises(RuntimeError) as error:
            adprotocol.grad(lambda model: 1.0, backend="fakefw")([Filled()])
        assert str(error.value) == "it is in use"
    finally:
        unregister(record.name)


def test_a_tree_library_without_further_functions_knows_its_nodes():
    functions = (lambda pair: ((pair.second,), pair.first), lambda first, rest: Pair(first, *rest))
    record = register(WithTrees(TreeLibrary(lambda value: functions if type(value) is Pair else None)), "fakefw")
    try:
        assert tree_leaves([Pair(1.0, 2.0)]) == [2.0]
        assert adprotocol.register_structure(dataclasses.make_dataclass("Made", ["x"])) is not None
    finally:
        unregister(record.name)


class Compiled:
    """What a framework makes of a function."""

    def __init__(self, function):
        self.__wrapped__, self.more = function, None


class WithFunctions(Minimal):
    @hookimpl
    def function_types(self):
        return (Compiled,)


class Hiding:
    """An object that can be called and holds an array."""

    def __init__(self, array):
        self.array = array

    def __call__(self, x):
        return x


def test_what_wraps_a_function_is_searched_only_if_it_wraps_anything_else():
    hidden = Hiding(Array())
    leaves = [Compiled(len), Compiled(Compiled(len)), Compiled(hidden), Compiled(Compiled(hidden))]
    for leaf in leaves[:2]:
        leaf.more = Array()  # as in the closure of a function
    record = register(WithFunctions(), "fakefw")
    try:
        for leaf in leaves[:2]:
            assert adprotocol.trainable([leaf]) == [None]
            assert adprotocol.within_gradient([leaf]) is False
        for leaf in leaves[2:]:
            for call in (adprotocol.trainable, adprotocol.within_gradient):
                with pytest.raises(OpaqueValueError, match="which holds"):
                    call([leaf])
    finally:
        unregister(record.name)
    record = register(Minimal(), "fakefw")
    try:
        with pytest.raises(OpaqueValueError, match="which holds"):
            adprotocol.trainable([leaves[0]])
    finally:
        unregister(record.name)


class WithProtocol(Minimal):
    @hookimpl
    def label_protocol(self):
        return {"__fake_array__": lambda label: ("fake", label.value)}


def test_a_label_has_the_methods_that_a_plugin_gives_it():
    label = NonDifferentiable(2.0)
    assert not hasattr(label, "__fake_array__")
    record = register(WithProtocol(), "fakefw")
    try:
        assert label.__fake_array__() == ("fake", 2.0)
    finally:
        unregister(record.name)
        del NonDifferentiable.__fake_array__
    assert not hasattr(label, "__fake_array__")
