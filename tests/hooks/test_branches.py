"""What the library does for the `cond` of a plugin: it checks the predicate, and makes one of two results."""

import numpy as np
import pytest
from minimal_plugin import Minimal

from adprotocol import NonDifferentiable, cond, plugins
from adprotocol.errors import BranchMismatchError, PredicateError, PredicateShapeError
from adprotocol.extend import Branches
from adprotocol.hookspecs import hookimpl


class Dtype:
    """Printed as TensorFlow prints its own."""

    def __init__(self, name):
        self.text = name

    def __str__(self):
        return f"<dtype: '{self.text}'>"


class UnknownRank:
    def __iter__(self):
        raise ValueError("Cannot iterate over a shape with unknown rank.")


class Array:
    def __init__(self, dtype="float32", shape=()):
        self.dtype, self.shape = Dtype(dtype), shape


class Plugin(Minimal):
    def __init__(self):
        self.asked = []

    @hookimpl
    def array_types(self):
        return (Array,)

    @hookimpl
    def cond(self, pred, true_fun, false_fun, operands):
        self.asked.append(pred)
        return true_fun(*operands)


@pytest.fixture
def plugin():
    plugin = Plugin()
    registered = plugins.register(plugin, "fakefw")
    yield plugin
    plugins.unregister(registered.name)


def never():
    pytest.fail("a branch ran")


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8", "complex64", "bfloat16", "string", "resource"])
def test_a_predicate_of_another_dtype_is_refused_before_the_plugin_is_called(plugin, dtype):
    with pytest.raises(PredicateError, match=f"an Array of dtype {dtype} as predicate"):
        cond(Array(dtype), never, never)
    assert plugin.asked == []


def test_a_predicate_that_is_no_scalar_is_refused_before_the_plugin_is_called(plugin):
    with pytest.raises(PredicateShapeError, match=r"a boolean Array of shape \(3, 2\)"):
        cond(Array("bool", [3, 2]), never, never)
    assert plugin.asked == []


@pytest.mark.parametrize("shape", [(), [], UnknownRank(), None, "without a dtype"])
def test_a_boolean_scalar_is_for_the_plugin_and_one_whose_shape_is_not_known_yet(plugin, shape):
    pred = Array("bool", shape)
    if shape == "without a dtype":
        del pred.dtype
    assert cond(pred, lambda: 1.0, never) == 1.0
    assert plugin.asked == [pred]


def returning(one, other, arrays=(np.ndarray, Array)):
    branches = Branches(arrays, lambda: one, lambda: other)
    branches.run_true()
    branches.run_false()
    return branches


X, Y = np.ones(2), np.zeros(2)


def test_arrays_and_numbers_come_out_flat_and_go_back_into_the_structure_around_them():
    branches = Branches(
        np.ndarray, lambda a, n: {"b": (a, n), "a": [None, len]}, lambda a, n: {"a": [None, len], "b": (n, a)}
    )
    branches.operands = (X, 2)
    assert [item is X or item == 2 for item in branches.run_true()] == [True, True]
    assert branches.run_false()[0] == 2
    assert branches.result(iter("pq")) == {"b": ("p", "q"), "a": [None, len]}


def test_a_label_stays_where_both_have_one_and_is_the_constant_that_it_holds_beside_a_plain_value():
    assert isinstance(returning(NonDifferentiable(X), NonDifferentiable(Y)).result([X]), NonDifferentiable)
    assert returning(NonDifferentiable(X), Y).result([X]) is X


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Array(), Array()),
        (Array("bool"), True),
        (Array("int32"), True),
        (Array("uint8"), 3),
        (Array("bfloat16"), 3),
        (Array("float32"), 0.5),
        (Array("complex64"), 0.5),
        (Array("complex64"), 1j),
        (2, 0.5),
        (True, 1),
        (Array(shape=(None, 2)), Array(shape=(3, 2))),
        (Array(shape=UnknownRank()), Array(shape=(3, 2))),
        (Array(shape=UnknownRank()), 1.0),
    ],
)
def test_what_matches(one, other, monkeypatch):
    monkeypatch.setattr(Dtype, "__eq__", lambda self, other: self.text == other.text)
    monkeypatch.setattr(Dtype, "__hash__", lambda self: hash(self.text))
    for pair in ((one, other), (other, one)):
        assert len(returning(*pair).compare()) == 1


@pytest.mark.parametrize(
    ("one", "other", "shown"),
    [
        (Array("bool"), 1, ("bool", "1")),
        (Array("int32"), 0.5, ("int32", "0.5")),
        (Array("float32"), 1j, ("float32", "1j")),
        (Array("string"), True, ("string", "True")),
        (Array(shape=(2,)), 1.0, ("[2]", "1.0")),
        (Array(shape=(2,)), Array(shape=(2, 1)), ("[2]", "[2,1]")),
        (Array(shape=(None, 2)), Array(shape=(3, 1)), ("[?,2]", "[3,1]")),
        (Array("int32"), Array("int64"), ("int32", "int64")),
        (Array(), None, ("float32", "None")),
        ((X, None), (None, X), ("(float64[2], None)", "(None, float64[2])")),
        ("a", "b", ("'a'", "'b'")),
        ([X], (X,), ("[float64[2]]", "(float64[2],)")),
        (NonDifferentiable(X), None, ("NonDifferentiable(float64[2])", "None")),
    ],
)
def test_what_does_not_match_is_shown(one, other, shown, monkeypatch):
    monkeypatch.setattr(Dtype, "__eq__", lambda self, other: self.text == other.text)
    monkeypatch.setattr(Dtype, "__hash__", lambda self: hash(self.text))
    for pair, words in (((one, other), shown), ((other, one), shown[::-1])):
        with pytest.raises(BranchMismatchError) as raised:
            returning(*pair).compare()
        text = str(raised.value)
        assert text.startswith(
            "the branches of a staged or batched cond must return equal structures, shapes and dtypes: "
        )
        first, _, second = text.partition("true_fun returned ")[2].partition(", false_fun ")
        assert words[0] in first
        assert words[1] in second
        assert text.endswith("Make them equal (broadcast, cast, or return zeros of the same shape)")


def test_the_result_compares_structures_and_constants_for_a_framework_that_compares_arrays_itself():
    assert returning((Array("int32"), "s"), (Array("int64"), "s")).result([1]) == (1, "s")
    with pytest.raises(BranchMismatchError, match="'s'"):
        returning((X, "s"), (X, "t")).result([1])
