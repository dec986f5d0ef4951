"""within_gradient and explain on plain values, containers and objects that hide arrays."""

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import math
import sys
import threading
import types
from typing import NamedTuple

import attrs
import autograd
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

import adprotocol
from adprotocol import NonDifferentiable, explain, non_differentiable, trainable, within_gradient
from adprotocol.errors import (
    OpaqueValueError,
    UnclaimedTypeError,
)


def tracked():
    return torch.ones(2, requires_grad=True)


class Pair(NamedTuple):
    first: object
    second: object = 0.0


class SubPair(Pair):
    pass


@dataclasses.dataclass
class Plain:
    a: object
    b: object = 1.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    a: object
    b: object = dataclasses.field(init=False, default=1.0)


@dataclasses.dataclass
class Later:
    a: object
    b: object = dataclasses.field(init=False)

    def __post_init__(self):
        self.b = [self.a]
        self.extra = self.a


@attrs.frozen
class Attrs:
    a: object
    _b: object = 1.0


@attrs.define(slots=False)
class LooseAttrs:
    a: object


def object_array(*items):
    array = np.empty(len(items), dtype=object)
    for i, item in enumerate(items):
        array[i] = item
    return array


def structured(item):
    array = np.zeros(1, dtype=[("a", object), ("b", float)])
    array["a"] = object_array(item)
    return array


def nested(value, depth=50):
    kinds = (lambda v: [v], lambda v: {"k": v}, lambda v: (v, 1), Plain, Pair)
    for i in range(depth):
        value = kinds[i % len(kinds)](value)
    return value


CONTAINERS = {
    "list": lambda v: [1, v],
    "tuple": lambda v: (v, "s"),
    "dict": lambda v: {"z": None, "a": v},
    "unsortable keys": lambda v: {1: 1.0, "a": v, None: 2},
    "OrderedDict": lambda v: collections.OrderedDict(b=1, a=v),
    "defaultdict": lambda v: collections.defaultdict(list, a=v),
    "deque": lambda v: collections.deque([v], maxlen=2),
    "namedtuple": Pair,
    "namedtuple subclass": SubPair,
    "dataclass": Plain,
    "frozen slots kw_only": lambda v: Frozen(a=v),
    "init=False": Later,
    "attrs": Attrs,
    "attrs without slots": LooseAttrs,
    "object array": lambda v: object_array(1.0, v),
    "object array in an object array": lambda v: object_array(None, object_array("s", v)),
    "object array, two-dimensional": lambda v: object_array(v, 1.0, 2.0, None).reshape(2, 2),
    "object array, zero-dimensional": lambda v: object_array(v).reshape(()),
    "dict in an object array": lambda v: object_array({"a": [v]}),
    "object array in a dataclass": lambda v: Plain(object_array(v)),
    "structured array": structured,
    "nested 50 deep": nested,
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_container_is_true_if_a_leaf_is(kind):
    make = CONTAINERS[kind]
    assert within_gradient(make(tracked())) is True
    assert within_gradient(1.0, make(tracked())) is True
    assert within_gradient(make(tracked()), 1.0) is True
    assert within_gradient(make(tracked().detach())) is False
    assert within_gradient(make(np.ones(2))) is False
    autograd.grad(lambda x: asked_inside(make, x))(np.float64(2.0))
    jax.grad(lambda x: asked_inside(make, x))(2.0)


def asked_inside(make, x):
    assert within_gradient(make(x)) is True
    assert within_gradient(make(non_differentiable(x))) is False
    assert within_gradient(non_differentiable(make(x))) is False
    return x * 1.0


class Colour(enum.Enum):
    RED = 1


class Number(enum.IntEnum):
    ONE = 1


class Real(float):
    pass


PLAIN = [
    1, 1.0, True, 1j, None, ..., "s", b"s", bytearray(b"s"), range(3), slice(1), NotImplemented,
    math.inf, math.nan, Real(2.0), Colour.RED, Number.ONE, Colour, Plain, int, type, abs, len, math.sin, math, sys,
    lambda: 1.0, "s".upper, np.sin, types.SimpleNamespace(a=1.0, b=[2.0]), object(), threading.Lock(),
    decimal.Decimal(1), fractions.Fraction(1, 2), dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    dt.timedelta(1), np.float64(1.0), np.bool_(1), np.int8(1), np.datetime64("2020"), np.str_("s"),
    np.dtype(float), np.float32, np.ones(2), np.ones(2, int), np.array("s"), np.array([True]),
    np.ma.array([1.0, 2.0], mask=[0, 1]), np.zeros(2, [("a", float)]), torch.float32, torch.device("cpu"),
    torch.Size([1]), jnp.float32, frozenset({1}), {1.0, 2.0}, {"a": 1}.keys(), collections.Counter("aab"),
    torch.ones(2), torch.ones(2, dtype=torch.int64), jnp.ones(2), jnp.ones(2, int), jax.random.key(0),
]  # fmt: skip


@pytest.mark.parametrize("value", PLAIN, ids=lambda value: type(value).__name__)
def test_plain_values_are_false(value):
    assert within_gradient(value) is False
    assert within_gradient([{"v": value}]) is False
    assert within_gradient(value, 1.0) is False
    assert "False" in explain(value) or isinstance(value, (collections.Counter, frozenset, set))


class Hider:
    def __init__(self, value):
        self.value = value


def test_iterators_are_refused_and_not_used_up():
    for iterator in (iter([tracked()]), (x for x in [tracked()]), map(abs, [tracked()]), zip([tracked()])):
        for question in (within_gradient, trainable):
            with pytest.raises(OpaqueValueError, match="iterator"):
                question({"params": iterator})
        assert len(list(iterator)) == 1
    with pytest.raises(OpaqueValueError, match="parameters"):
        within_gradient(torch.nn.Linear(1, 1).parameters())


def test_objects_that_hide_nothing_are_false_even_where_they_refer_to_each_other():
    first, second = Hider(None), Hider([1.0])
    first.value, second.other = second, first
    assert within_gradient(first) is False
    assert non_differentiable([first])[0] is first


class HasArithmetic:
    shape = (2,)
    dtype = "float32"

    def __add__(self, other):
        raise NotImplementedError


class HasArray:
    def __array__(self):
        raise NotImplementedError


class HasNamespace:
    def __array_namespace__(self):
        raise NotImplementedError


class HasDlpack:
    def __dlpack__(self):
        raise NotImplementedError


class HasJaxArray:
    """As a variable of Keras."""

    def __jax_array__(self):
        raise NotImplementedError


class HasInstanceShape:
    def __init__(self):
        self.shape, self.dtype = (2,), "float32"

    def __add__(self, other):
        raise NotImplementedError


@pytest.mark.parametrize("cls", [HasArithmetic, HasArray, HasNamespace, HasDlpack, HasJaxArray, HasInstanceShape])
def test_an_unclaimed_array_is_an_error_that_names_type_and_remedy(cls):
    value = cls()
    for wrapped in (value, [value], {"a": Plain(value)}, object_array(value)):
        for question in (within_gradient, non_differentiable):
            with pytest.raises(UnclaimedTypeError, match=rf"{cls.__name__}.*Install a plugin.*convert") as caught:
                question(wrapped)
            assert isinstance(caught.value, TypeError)
    with pytest.raises(UnclaimedTypeError):
        within_gradient(tracked(), value)  # not hidden by an answer that is True already


@pytest.mark.parametrize("names", [("shape",), ("dtype",), ("shape", "dtype")])
def test_what_is_described_as_an_array_and_has_no_arithmetic_is_a_setting(names):
    described = dict.fromkeys(names, "its own")
    instance, cls = Hider(None), type("Described", (), described)
    vars(instance).update(described)
    for value in (instance, cls(), jax.ShapeDtypeStruct((3,), jnp.float32)):
        assert within_gradient(value) is False
        assert non_differentiable(value) is value


def test_explain_has_a_line_for_each_leaf():
    text = explain(1.0, {"a": tracked(), "s": "s"}, object_array(None, [2])).splitlines()
    assert [line.partition(":")[0] for line in text] == ["float", "Tensor [plugin torch]", "str", "NoneType", "int"]
    assert "True (requires_grad is set)" in text[1]
    assert explain(NonDifferentiable(1.0)).startswith("NonDifferentiable: False (labelled")
    assert isinstance(adprotocol.explain([]), str)


def test_explain_points_from_the_data_to_the_parameters():
    asked = []

    def layer(params, data):
        asked.append(adprotocol.explain(data))
        return (params * data).sum()

    jax.grad(layer)(jnp.ones(2), jnp.ones(2))
    jax.grad(lambda params: jax.vmap(lambda data: layer(params, data))(jnp.ones((2, 2))).sum())(jnp.ones(2))
    torch.func.grad(layer)(torch.ones(2), torch.ones(2))
    torch.func.jvp(lambda p: layer(p, torch.ones(2)), (torch.ones(2),), (torch.ones(2),))
    with forward_ad.dual_level():
        layer(torch.ones(2), torch.ones(2))
    assert len(asked) == 5
    for text in asked:
        assert ": False (" in text
        assert "ask about the parameters" in text
    # Nothing is differentiated, or what is asked about is.
    torch.vmap(lambda data: layer(1.0, data))(torch.ones(2, 2))
    jax.vmap(lambda data: layer(1.0, data))(jnp.ones((2, 2)))
    jax.grad(lambda data: layer(1.0, data))(jnp.ones(2))
    torch.func.grad(lambda data: layer(1.0, data))(torch.ones(2))
    assert len(asked) == 9
    assert not any("parameters" in text for text in asked[5:])
