"""What an object holds: in attributes, slots, items and closures; and the search of everything that it reaches."""

import functools
import types

import pytest

import adprotocol
from adprotocol.extend import search

torch = pytest.importorskip("torch", reason="needs PyTorch")
X = torch.ones(1)


class Private:
    __slots__ = ("__x", "unset")

    def __init__(self, x):
        self.__x = x


class Inherited(Private):
    pass


class Holder:
    def __init__(self, x):
        self.x = x

    def method(self):
        return self.x


def function(x):
    def inner(first, second=x, *, third=x):
        return first, second, third, x

    inner.attribute = x
    return inner


def unbound():
    def inner():
        return later

    if False:
        later = 1
    return inner


HOLDS = {
    "attribute": Holder,
    "private slot": Private,
    "inherited slot": Inherited,
    "namespace": lambda x: types.SimpleNamespace(x=x),
    "list": lambda x: [x],
    "set": lambda x: {x},
    "values of a dict": lambda x: {"k": x}.values(),
    "closure": lambda x: lambda: x,
    "default": lambda x: lambda y=x: y,
    "keyword default": function,
    "partial": lambda x: functools.partial(print, x),
    "keyword of a partial": lambda x: functools.partial(print, end=x),
}


@pytest.mark.parametrize("hold", HOLDS)
def test_whatever_is_held_is_found(hold):
    assert any(item is X for item in search(HOLDS[hold](X), lambda _: True))


def test_a_bound_method_holds_its_object_and_its_function():
    holder = Holder(X)
    held = list(search(holder.method, lambda _: False))
    assert any(item is holder for item in held)
    assert any(item is Holder.method for item in held)


def test_names_that_are_not_bound_yet_and_slots_that_are_not_set_hold_nothing():
    assert list(search(unbound(), lambda _: False)) == []
    assert list(search(object.__new__(Private), lambda _: False)) == []


def test_the_search_ends_where_objects_hold_each_other():
    one, other = Holder(None), Holder(None)
    one.x, other.x = [other], {"one": one}
    other.x["self"] = other.x
    found = list(search(one, lambda item: isinstance(item, Holder)))
    assert sum(item is other for item in found) == 1


def test_only_what_is_entered_is_looked_into():
    assert not any(item is X for item in search([Holder(X)], lambda _: False))


def test_without_more_a_search_looks_into_functions_and_what_is_around_them():
    def function():
        return held

    class Decorated:
        def __init__(self, fun):
            functools.update_wrapper(self, fun)

    class Object:
        def __init__(self, fun):
            self.fun = fun

    held = object()
    rule = adprotocol.custom_derivative(function)
    for value in (function, functools.partial(function), functools.lru_cache(function), rule, Decorated(function)):
        assert held in list(search(value))
        assert held in list(search([(value,)]))
    assert held not in list(search([Object(function)]))
