"""non_differentiable on plain values, on containers, and as a decorator."""

import dataclasses
import functools
import operator
from typing import NamedTuple

import autograd
import jax
import numpy as np
import pytest
import torch

from adprotocol import non_differentiable, within_gradient
from adprotocol.errors import NotConstantError, OpaqueValueError


class Two(NamedTuple):
    x: object
    y: object


class Doubled(Two):
    __slots__ = ()

    def __new__(cls, x):
        return super().__new__(cls, x, 2 * x)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    a: object
    b: object = dataclasses.field(init=False, default=3)


def tracked(value=2.0):
    return torch.tensor(value, requires_grad=True)


def test_a_named_tuple_with_a_constructor_of_its_own_is_rebuilt():
    result = non_differentiable(Doubled(tracked()))
    assert (type(result), result.x, result.y) == (Doubled, 2.0, 4.0)
    assert within_gradient(result) is False


def test_object_arrays():
    x = tracked()
    for order in "CF":
        array = np.empty((2, 2), dtype=object, order=order)
        array[0, 0], array[0, 1], array[1, 0], array[1, 1] = x, 1.5, "s", [x, 2]
        result = non_differentiable(array)
        assert (result.shape, result[0, 1], result[1, 0]) == ((2, 2), 1.5, "s")
        assert not result[0, 0].requires_grad
        assert not result[1, 1][0].requires_grad
        assert array[0, 0] is x
    plain = np.array([1.0, None, "s"], dtype=object)
    assert non_differentiable(plain) is plain
    zero = np.empty((), dtype=object)
    zero[()] = x
    assert non_differentiable(zero).shape == ()
    assert not non_differentiable(zero)[()].requires_grad
    nested = np.empty(2, dtype=object)
    nested[0], nested[1] = np.ones(2), zero
    result = non_differentiable(nested)
    assert result[0] is nested[0]
    assert not result[1][()].requires_grad


def test_structured_and_masked_arrays_of_objects():
    x = tracked()
    structured = np.array([(x, 1.0)], dtype=[("a", object), ("b", float)])
    assert within_gradient(non_differentiable(structured)) is False
    assert non_differentiable(structured)["b"][0] == 1.0
    masked = np.ma.array(np.array([None, 1.0], dtype=object), mask=[False, True])
    masked.data[0] = x
    result = non_differentiable(masked)
    assert within_gradient(result) is False
    assert (list(result.mask), result.data[1]) == ([False, True], 1.0)


@pytest.mark.parametrize("gradient", [autograd.grad, jax.grad, torch.func.grad])
def test_decorator_on_every_kind_of_function(gradient):
    one = torch.tensor(3.0) if gradient is torch.func.grad else 3.0

    class Layer:
        @non_differentiable
        def method(self, x):
            return x * 2

        @staticmethod
        @non_differentiable
        def below(x):
            return x * 2

        @non_differentiable
        @staticmethod
        def above(x):
            return x * 2

        @classmethod
        @non_differentiable
        def of_class(cls, x):
            return x * 2

        @property
        @non_differentiable
        def width(self):
            return 2

        def __call__(self, x):
            return x * 2

        def bare(self, x):
            return x * 2

    layer = Layer()
    functions = [
        layer.method, layer.below, Layer.above, layer.above, Layer.of_class,
        non_differentiable(layer), non_differentiable(layer.bare), non_differentiable(lambda x: x * 2),
        non_differentiable(functools.partial(operator.mul, 2)), non_differentiable(non_differentiable(layer.bare)),
        non_differentiable(functools.lru_cache(lambda x: x * 2)) if gradient is not torch.func.grad else layer.method,
        lambda x: non_differentiable(operator.mul)(x, x) * 2 / 3,
        lambda x: non_differentiable(lambda *, k: k * 2)(k=x),
        lambda x: non_differentiable(lambda: x * 2)(),
        lambda x: non_differentiable(lambda *a, **k: {"r": [a[0]["a"] + k["b"]]})({"a": x}, b=x)["r"][0],
    ]  # fmt: skip
    for i, function in enumerate(functions):
        assert function(one) == 6.0, i
        assert gradient(lambda x, f=function: x * f(x))(one) == 6.0, i  # and not 12
    assert layer.width == 2


def generator(x):
    yield x


class CallsGenerator:
    def __call__(self, x):
        yield x


@pytest.mark.parametrize(
    "value",
    [dict, Frozen, classmethod(abs), property(abs)],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_what_cannot_be_constant_is_refused(value):
    with pytest.raises(NotConstantError, match="non_differentiable was given") as caught:
        non_differentiable(value)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    "fun",
    [
        generator,
        staticmethod(generator),
        functools.partial(functools.partial(generator)),
        CallsGenerator(),
        lambda x: generator(x * 1),
    ],
)
def test_what_runs_later_is_refused_when_it_is_called(fun):
    with pytest.raises(OpaqueValueError, match=r"an iterator \(generator\).*pass a list of its items"):
        non_differentiable(fun)(tracked())


class Descriptors:
    def method(self, x):
        return x

    cached = functools.cached_property(method)
    partly = functools.partialmethod(method, 1.0)
    single = functools.singledispatchmethod(method)


@pytest.mark.parametrize("name", ["cached", "partly", "single"])
def test_a_descriptor_that_makes_methods_is_refused(name):
    with pytest.raises(NotConstantError, match=f"put it below @{type(vars(Descriptors)[name]).__name__}"):
        non_differentiable(vars(Descriptors)[name])


def test_below_such_a_descriptor_it_works():
    class Kernel:
        def __init__(self, x):
            self.x = x

        @functools.cached_property
        @non_differentiable
        def scale(self):
            return self.x * 2.0

        @functools.singledispatchmethod
        @non_differentiable
        def scaled(self, x):
            return self.x * x

    kernel_of = autograd.grad(lambda x: x * Kernel(x).scale + Kernel(x).scaled(x))
    assert kernel_of(3.0) == 6.0


def test_a_returned_function_that_closes_over_tracked_values_is_refused():
    def leaking(x):
        return non_differentiable(lambda: lambda y: x * y)()(3.0) + x

    def bound(x):
        return non_differentiable(lambda: {"f": functools.partial(lambda c, y: c * y, x)})()["f"](3.0) + x

    def nested(x):
        def inner(y):
            return x * y

        return non_differentiable(lambda: lambda y: 1.0 * inner(y))()(3.0) + x

    for f in (leaking, bound, nested):
        assert f(2.0) == 8.0
        with pytest.raises(NotConstantError, match="closes over values that are differentiated"):
            autograd.grad(f)(2.0)

    def constant(x):
        c = non_differentiable(x)
        return non_differentiable(lambda: lambda y: c * y)()(3.0) + x

    assert autograd.grad(constant)(2.0) == 1.0
