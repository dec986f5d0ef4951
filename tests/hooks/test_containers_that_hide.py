"""Containers that hide what they hold: each question looks inside, or is refused."""

import collections
import enum
import fractions
import functools
import itertools
import numbers
import operator
import types
from dataclasses import dataclass
from typing import Any, NamedTuple

import attrs
import autograd
import numpy as np
import pytest

import adprotocol
from adprotocol import non_differentiable, prevent_gradient, within_gradient
from adprotocol.errors import ADProtocolError, GradientPreventedError, OpaqueValueError


class History(collections.deque):
    pass


class Counted(collections.Counter):
    pass


class Mine(dict):
    pass


class Ordered(collections.OrderedDict):
    pass


@dataclass
class DataDict(dict):
    name: str = "p"


@dataclass
class DataList(list):
    name: str = "p"


@dataclass
class DataError(Exception):
    value: Any = None


@dataclass
class DataFloat(float):
    value: Any = None

    def __new__(cls, _value=None):
        return super().__new__(cls, 1.5)


@attrs.define(slots=False)
class AttrsDict(dict):
    name: str = "p"


@attrs.define(slots=False)
class AttrsDeque(collections.deque):
    name: str = "p"


class Text(str):  # noqa: SLOT000  (the attributes are what is tested)
    """A string with attributes."""


class Slotted(float):
    __slots__ = ("held",)


class Ratio(fractions.Fraction):
    pass


class Dual(numbers.Number):
    __hash__ = None

    def __init__(self, slope):
        self.slope = slope


class Array(np.ndarray):
    """An array with attributes."""


class Pair(NamedTuple):
    a: Any
    b: Any


class Noted(Pair):
    """A named tuple with attributes."""


class Level(enum.IntEnum):
    LOW = 1


def with_attribute(value, x):
    value.held = x
    return value


def with_item(value, x):
    value["held"] = x
    return value


def with_more(value, x):
    value.append(x)
    return value


def record(x):
    made = np.zeros((1,), [("n", float), ("held", object)])
    made[0]["held"] = x
    return made[0]


def nested_record(x):
    made = np.zeros((1,), [("outer", [("held", object, (2,))])])
    made["outer"]["held"][0, 1] = x
    return made[0]["outer"]


def generator(x):
    yield x


def coroutine(x):
    async def run():
        return x

    made = run()
    made.close()
    return made


HIDING = {
    "deque of one's own": lambda x: History([x]),
    "counter": lambda x: Counted(held=x),
    "dict of one's own": lambda x: with_item(Mine(), x),
    "ordered dict of one's own": lambda x: with_item(Ordered(), x),
    "attribute of an ordered dict": lambda x: with_attribute(collections.OrderedDict(a=1.0), x),
    "dataclass that is a dict": lambda x: with_item(DataDict(), x),
    "dataclass that is a list": lambda x: with_more(DataList(), x),
    "dataclass that is an error": DataError,
    "dataclass that is a float": DataFloat,
    "attrs class that is a dict": lambda x: with_item(AttrsDict(), x),
    "attrs class that is a deque": lambda x: with_more(AttrsDeque(), x),
    "arguments of an error": ValueError,
    "cause of an error": lambda x: with_attribute(ValueError("outer"), ValueError(x)),
    "slice": lambda x: slice(0, x),
    "attribute of a string": lambda x: with_attribute(Text("a"), x),
    "slot of a float": lambda x: with_attribute(Slotted(1.0), x),
    "attribute of a fraction": lambda x: with_attribute(Ratio(1, 2), x),
    "number of one's own": Dual,
    "attribute of an array": lambda x: with_attribute(np.zeros(2).view(Array), x),
    "attribute of a masked array": lambda x: with_attribute(np.ma.masked_array([1.0, 2.0]), x),
    "attribute of a named tuple": lambda x: with_attribute(Noted(1.0, 2.0), x),
    "record": record,
    "record in a record": nested_record,
    "mapping proxy": lambda x: types.MappingProxyType({"held": x}),
    "values of a dict": lambda x: {"held": x}.values(),
    "cell": types.CellType,
    "chain of dicts": lambda x: collections.ChainMap({}, {"held": x}),
    "method caller": lambda x: operator.methodcaller("held", x),
    "iterator in an object": lambda x: types.SimpleNamespace(held=iter([x])),
    "map in an object": lambda x: types.SimpleNamespace(held=map(abs, [x])),
    "generator in an object": lambda x: types.SimpleNamespace(held=generator(x)),
    "chained iterators in an object": lambda x: types.SimpleNamespace(held=itertools.chain([x], [])),
    "mapping without attributes": lambda x: types.SimpleNamespace(held=types.MappingProxyType({"k": [x]})),
}


def attempt(question):
    try:
        return question()
    except GradientPreventedError:
        return "prevented"
    except ADProtocolError:
        return "refused"


@pytest.fixture(params=["autograd", "jax"])
def gradient(request):
    if request.param == "autograd":
        return autograd.grad
    return pytest.importorskip("jax", reason="needs JAX").grad


@pytest.mark.parametrize(
    "within", [lambda v: v, lambda v: [v], lambda v: types.SimpleNamespace(v=v)], ids=["", "in a list", "in an object"]
)
@pytest.mark.parametrize("hide", HIDING)
def test_what_is_hidden_is_seen_or_refused(hide, within, gradient):
    seen = []

    def f(x):
        hidden = within(HIDING[hide](x))
        seen.append(attempt(lambda: within_gradient(hidden)))
        seen.append(attempt(lambda: prevent_gradient(hidden, "no") and "passed"))
        return x * 1.0

    gradient(f)(2.0)
    answer, prevented = seen
    assert answer is True or answer == "refused"
    assert prevented in ("prevented", "refused")


@pytest.mark.parametrize("hide", HIDING)
def test_what_is_hidden_is_made_constant_or_refused(hide, gradient):
    asked = []

    def f(x):
        constant = attempt(lambda: non_differentiable(HIDING[hide](x)))
        asked.append("refused" if type(constant) is str and constant == "refused" else within_gradient(constant))
        return x * 1.0

    gradient(f)(2.0)
    assert asked[0] in (False, "refused")


@pytest.mark.parametrize("hide", HIDING)
def test_what_takes_a_gradient_is_not_frozen_for_being_hidden(hide):
    jnp = pytest.importorskip("jax.numpy", reason="needs JAX")
    model = {"w": jnp.float32(2.0), "hidden": HIDING[hide](jnp.float32(3.0))}
    try:
        found = adprotocol.grad(lambda model: model["w"] ** 2)(model)
    except ADProtocolError:
        return
    assert [leaf for leaf in adprotocol.extend.tree_leaves((found["hidden"],)) if leaf is not None]


@pytest.mark.parametrize("hide", HIDING)
def test_what_hides_no_array_is_a_constant(hide):
    hidden = HIDING[hide](3)
    assert within_gradient(hidden) is False
    guarded = prevent_gradient([hidden], "no")[0]
    assert guarded is hidden or isinstance(guarded, np.void)  # a record is copied
    assert within_gradient(non_differentiable(hidden)) is False


def test_a_record_is_made_constant_with_all_its_fields():
    def f(x):
        constant = non_differentiable(record(x))
        assert isinstance(constant, np.void)
        assert within_gradient(record(x)) is True
        return constant["held"] * x

    assert autograd.grad(f)(3.0) == 3.0


def test_a_float_with_attributes_takes_a_gradient_as_others_do():
    assert adprotocol.trainable({"w": with_attribute(Slotted(1.5), "name"), "level": Level.LOW}) == {
        "w": 1.5,
        "level": None,
    }


def test_a_cached_function_is_a_function():
    cached = functools.lru_cache(lambda x: x)
    cached(np.float64(2.0))
    assert within_gradient({"f": cached}) is False


def test_an_error_is_not_searched_for_what_its_traceback_reaches():
    def f(x):
        with pytest.raises(ValueError, match="invalid literal") as caught:
            int("no array")
        assert within_gradient(caught.value) is False
        return x * 1.0

    autograd.grad(f)(2.0)


def test_the_error_names_what_is_hidden_and_where():
    with pytest.raises(OpaqueValueError, match=r"History at 'layers\.0', which holds an autograd ArrayBox"):
        autograd.grad(lambda x: x * within_gradient({"layers": [History([x])]}))(1.0)


@dataclass
class Output(collections.OrderedDict):
    """The outputs of transformers: each field that is set is an item too."""

    loss: Any = None
    state: Any = None

    def __post_init__(self):
        for name in ("loss", "state"):
            if getattr(self, name) is not None:
                self[name] = getattr(self, name)

    def __setattr__(self, name, value):
        if name in self.keys() and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)


def test_a_dataclass_that_is_a_dict_is_rebuilt_with_its_fields_and_items(gradient):
    def f(x):
        output = non_differentiable(with_item(Output(loss=2.0 * x), [x]))
        assert list(output) == ["loss", "held"]
        assert output.loss is output["loss"]
        assert within_gradient(output) is False
        assert type(output) is Output
        return output["loss"] * output["held"][0] * x

    assert gradient(f)(3.0) == 18.0


def test_a_dataclass_that_is_a_dict_is_auxiliary_output_and_a_model():
    jnp = pytest.importorskip("jax.numpy", reason="needs JAX")
    model = Output(loss=jnp.float32(2.0), state=jnp.int32(3))
    (_, aux), found = adprotocol.value_and_grad(lambda m: (m.loss ** m["state"], Output(state=m.loss)), has_aux=True)(
        model
    )
    assert found.loss == found["loss"] == 12.0
    assert found.state is None
    assert aux.state == 2.0
    assert adprotocol.combine(*adprotocol.partition(model))["loss"] == 2.0
