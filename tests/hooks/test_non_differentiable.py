"""non_differentiable on plain values, on containers, and as a decorator."""

import collections
import dataclasses
import functools
import operator
from typing import NamedTuple

import attrs
import autograd
import autograd.numpy as anp
import jax
import numpy as np
import pytest
import torch

from adprotocol import non_differentiable, within_gradient
from adprotocol.errors import NotConstantError, OpaqueValueError


class Pair(NamedTuple):
    first: object
    second: object


class SubPair(Pair):
    def total(self):
        return self.first + self.second


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


@dataclasses.dataclass
class Checked:
    a: object

    def __post_init__(self):
        assert self.a is not None
        self.runs = getattr(self, "runs", 0) + 1

    @functools.cached_property
    def double(self):
        return self.a * 2


@attrs.define
class Attrs:
    a: object
    _b: object = 1


def tracked(value=2.0):
    return torch.tensor(value, requires_grad=True)


MARKER, FUNCTION = object(), lambda: None


@pytest.mark.parametrize(
    "value",
    [
        *(1, 1.5, 1j, "s", b"s", None, ..., {"a": 1}.keys(), range(3), np.float32(1), np.ones(2)),
        pytest.param(MARKER, id="object"),
    ],
    ids=repr,
)
def test_leaves_come_back_identical(value):
    assert non_differentiable(value) is value
    assert non_differentiable([value])[0] is value
    assert non_differentiable({"k": (value, tracked())})["k"][0] is value


def test_functions_and_classes_in_a_structure_are_left_alone():
    tree = {"f": FUNCTION, "c": dict, "m": "s".upper, "p": functools.partial(FUNCTION)}
    result = non_differentiable(tree)
    assert all(result[key] is tree[key] or result[key] == tree[key] for key in tree)
    assert result["f"] is FUNCTION


def test_container_types_are_kept():
    x = tracked()
    factory = non_differentiable(collections.defaultdict(set, a=x))
    assert factory["missing"] == set()
    queue = non_differentiable(collections.deque([x, 1], maxlen=5))
    assert (type(queue), queue.maxlen, len(queue)) == (collections.deque, 5, 2)
    ordered = non_differentiable(collections.OrderedDict(z=x, a=1))
    assert (type(ordered), list(ordered)) == (collections.OrderedDict, ["z", "a"])
    assert list(non_differentiable({"z": 1, 3: x, None: 2})) == ["z", 3, None]
    sub = non_differentiable(SubPair(x, 1.0))
    assert (type(sub), sub.total()) == (SubPair, 3.0)
    assert not sub.total().requires_grad
    frozen = non_differentiable(Frozen(a=x))
    assert (type(frozen), frozen.a, frozen.b) == (Frozen, 2.0, 3)
    made = non_differentiable(Attrs(x, b=x))
    assert not made.a.requires_grad
    assert not made._b.requires_grad
    for empty in ([], (), {}, collections.deque(), collections.OrderedDict()):
        assert non_differentiable(empty) == empty
        assert type(non_differentiable(empty)) is type(empty)


def test_a_dataclass_is_rebuilt_without_its_constructor_and_without_cached_properties():
    original = Checked(tracked())
    assert original.double.requires_grad
    copy = non_differentiable(original)
    assert (copy.runs, copy.a, copy.double) == (1, 2.0, 4.0)
    assert not copy.double.requires_grad
    assert original.double.requires_grad


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


def test_builtin_and_numpy_functions():
    assert non_differentiable(abs)(-1.0) == 1.0
    assert non_differentiable(np.sin)(0.0) == 0.0
    assert autograd.grad(lambda x: x * non_differentiable(anp.sin)(x))(1.0) == np.sin(1.0)
    assert autograd.grad(lambda x: x * non_differentiable(abs)(x))(-2.0) == 2.0


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
