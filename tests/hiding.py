"""Containers that hide what they hold, each made by a function of what it hides."""

import collections
import types
from dataclasses import dataclass

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


@attrs.define(slots=False)
class AttrsDict(dict):
    name: str = "p"


@attrs.define(slots=False)
class AttrsDeque(collections.deque):
    name: str = "p"


class OwnSet(set):
    """A set with attributes."""


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


HIDING = {
    "deque of one's own": lambda x: History([x]),
    "counter": lambda x: Counted(held=x),
    "dict of one's own": lambda x: with_item(Mine(), x),
    "ordered dict of one's own": lambda x: with_item(Ordered(), x),
    "dataclass that is a dict": lambda x: with_item(DataDict(), x),
    "dataclass that is a list": lambda x: with_more(DataList(), x),
    "attrs class that is a dict": lambda x: with_item(AttrsDict(), x),
    "attrs class that is a deque": lambda x: with_more(AttrsDeque(), x),
    "set of one's own": lambda x: OwnSet([x]) if getattr(type(x), "__hash__", None) else with_attribute(OwnSet(), x),
    "record": record,
    "record in a record": nested_record,
    "mapping proxy": lambda x: types.MappingProxyType({"held": x}),
    "values of a dict": lambda x: {"held": x}.values(),
    "chain of dicts": lambda x: collections.ChainMap({}, {"held": x}),
    "mapping without attributes": lambda x: types.SimpleNamespace(held=types.MappingProxyType({"k": [x]})),
}
