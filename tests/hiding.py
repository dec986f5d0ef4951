"""Containers that hide what they hold, each made by a function of what it hides."""

import collections
import enum
import fractions
import itertools
import numbers
import operator
import types
from dataclasses import dataclass
from typing import Any, NamedTuple

import attrs
import numpy as np


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


class Bytes(bytes):
    """Bytes with attributes."""


class OwnSet(set):
    """A set with attributes."""


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


class SlottedArray(np.ndarray):
    """An array with a slot."""

    __slots__ = ("held",)


class Double(np.float64):
    """A NumPy number with attributes."""


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


def object_array(x):
    made = np.empty(2, object)
    made[0] = x
    return made


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
    "attribute of a NumPy number": lambda x: with_attribute(Double(1.5), x),
    "number of one's own": Dual,
    "attribute of an array": lambda x: with_attribute(np.zeros(2).view(Array), x),
    "slot of an array": lambda x: with_attribute(np.zeros(2).view(SlottedArray), x),
    "attribute of a record array": lambda x: with_attribute(np.zeros(2, [("a", float)]).view(np.recarray), x),
    "attribute of bytes": lambda x: with_attribute(Bytes(b"a"), x),
    "set of one's own": lambda x: OwnSet([x]) if getattr(type(x), "__hash__", None) else with_attribute(OwnSet(), x),
    "group of errors": lambda x: ExceptionGroup("several", [ValueError(x)]),
    "memory view": lambda x: memoryview(object_array(x)),
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
    "flat iterator in an object": lambda x: types.SimpleNamespace(held=object_array(x).flat),
    "broadcast iterator in an object": lambda x: types.SimpleNamespace(held=np.broadcast(object_array(x), 1.0)),
    "iterator of operands in an object": lambda x: types.SimpleNamespace(held=np.nditer(object_array(x), ["refs_ok"])),
    "mapping without attributes": lambda x: types.SimpleNamespace(held=types.MappingProxyType({"k": [x]})),
}
