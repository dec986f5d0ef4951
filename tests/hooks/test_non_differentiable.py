"""non_differentiable on plain values, on containers, and as a decorator."""

import collections
import dataclasses
import functools
import inspect
import operator
from typing import NamedTuple

import attrs
import autograd
import autograd.numpy as anp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adprotocol import NonDifferentiable, non_differentiable, within_gradient
from adprotocol.errors import NotConstantError, TreeError


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


@dataclasses.dataclass
class Output(collections.OrderedDict):
    a: object = None


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


@pytest.mark.parametrize("make", [Doubled, Output], ids=["namedtuple", "OrderedDict"])
def test_a_container_that_resists_is_rebuilt_or_a_tree_error(make):
    assert within_gradient(make(tracked())) is True
    try:
        result = non_differentiable(make(tracked()))
    except TreeError:
        return
    assert type(result) is type(make(tracked()))
    assert within_gradient(result) is False


def test_input_is_not_changed():
    x = tracked()
    inner = [x]
    tree = {"a": inner}
    non_differentiable(tree)
    assert tree["a"] is inner
    assert inner[0] is x
    assert x.requires_grad


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


def test_every_leaf_of_a_structure_is_constant_for_torch_and_autograd():
    x = tracked()
    assert within_gradient(non_differentiable({"a": [x, (x,)], "b": Pair(x, Frozen(a=x))})) is False

    def f(y):
        constant = non_differentiable({"a": [y], "b": Pair(y, 2.0)})
        return y * constant["a"][0] * constant["b"].first * constant["b"].second

    assert autograd.grad(f)(3.0) == 18.0
    assert autograd.grad(lambda y: autograd.grad(f)(y) * y)(3.0) == 18.0
    assert jax.grad(f)(3.0) == 18.0
    assert torch.func.grad(f)(torch.tensor(3.0)) == 18.0


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


def test_a_method_of_an_object_that_holds_arrays():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor(2.0))

        @non_differentiable
        def scale(self, x):
            return x * self.weight

    net, x = Net(), tracked(3.0)
    (x * net.scale(x)).backward()
    assert x.grad == 6.0
    assert net.weight.grad is None


def test_metadata_is_kept():
    @non_differentiable
    def scale(x: int = 1) -> float:
        """Doc."""
        return x

    assert (scale.__name__, scale.__doc__, scale.__module__) == ("scale", "Doc.", __name__)
    assert scale.__qualname__.endswith("scale")
    assert list(inspect.signature(scale).parameters) == ["x"]
    assert inspect.signature(scale).return_annotation is float
    scale.__wrapped__.mark = 1
    assert scale.__wrapped__(4) == 4
    assert non_differentiable(abs).__name__ == "abs"


def test_arguments_are_constant_inside_and_defaults_apply():
    seen = []

    @non_differentiable
    def f(a, *rest, k=1.0, **more):
        seen.append(within_gradient(a, rest, k, more))
        return a, [rest], {"k": k, **more}

    x = tracked()
    result = f(x, x, [x], k={"x": x}, z=x)
    assert seen == [False]
    assert within_gradient(result) is False
    assert type(result) is tuple
    assert f("s") == ("s", [()], {"k": 1.0})


def test_exceptions_pass_through_and_leave_the_function_usable():
    @non_differentiable
    def f(x):
        if x > 2:
            raise KeyError(x)
        return x

    with pytest.raises(KeyError):
        f(3.0)
    assert f(1.0) == 1.0


def generator(x):
    yield x


async def coroutine(x):
    return x


async def async_generator(x):
    yield x


class CallsGenerator:
    def __call__(self, x):
        yield x


@pytest.mark.parametrize(
    "value",
    [generator, coroutine, async_generator, dict, Frozen, classmethod(abs), property(abs), staticmethod(generator)],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_what_cannot_be_constant_is_refused(value):
    with pytest.raises(NotConstantError, match="non_differentiable was given") as caught:
        non_differentiable(value)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("fun", [functools.partial(generator), CallsGenerator(), lambda x: generator(x * 1)])
def test_a_generator_that_comes_out_of_a_function_is_refused(fun):
    with pytest.raises((NotConstantError, TypeError), match="generator"):
        non_differentiable(fun)(tracked())


def test_labels_are_kept():
    x = tracked()
    label = non_differentiable({"a": NonDifferentiable(x)})["a"]
    assert type(label) is NonDifferentiable
    assert not label.held.requires_grad


def arrays(make):
    return st.lists(st.floats(-10, 10), max_size=3).map(make)


MAKERS = {
    "numpy": lambda v: np.array(v, dtype=np.float32),
    "numpy object": lambda v: np.array([*v, None, "s"], dtype=object),
    "torch": lambda v: torch.tensor(v, dtype=torch.float32, requires_grad=True),
    "torch int": lambda v: torch.tensor(v).to(torch.int64),
    "jax": lambda v: jnp.asarray(np.array(v, dtype=np.float32)),
}


def structures(make):
    leaves = st.one_of(
        st.floats(allow_nan=True),
        st.integers(),
        st.text(max_size=3),
        st.none(),
        st.booleans(),
        arrays(make),
    )

    def containers(children):
        keys = st.one_of(st.text(max_size=3), st.integers(0, 5), st.none())
        return st.one_of(
            st.lists(children, max_size=3),
            st.lists(children, max_size=3).map(tuple),
            st.lists(children, max_size=3).map(collections.deque),
            st.dictionaries(keys, children, max_size=3),
            st.dictionaries(keys, children, max_size=3).map(collections.OrderedDict),
            st.dictionaries(keys, children, max_size=3).map(lambda d: collections.defaultdict(list, d)),
            st.builds(SubPair, children, children),
            st.builds(lambda a: Frozen(a=a), children),
            st.builds(Attrs, children),
        )

    return st.recursive(leaves, containers, max_leaves=12)


def assert_same(new, old):
    assert type(new) is type(old)
    if isinstance(old, torch.Tensor):
        assert torch.equal(new, old)
        assert (new.dtype, new.shape, new.requires_grad) == (old.dtype, old.shape, False)
    elif isinstance(old, (np.ndarray, jax.Array)):
        assert new is old
    elif isinstance(old, dict):
        assert list(new) == list(old)
        assert getattr(new, "default_factory", None) is getattr(old, "default_factory", None)
        for key in old:
            assert_same(new[key], old[key])
    elif isinstance(old, (list, tuple, collections.deque)):
        assert len(new) == len(old)
        for a, b in zip(new, old, strict=True):
            assert_same(a, b)
    elif isinstance(old, Frozen):
        assert_same((new.a, new.b), (old.a, old.b))
    elif isinstance(old, Attrs):
        assert_same((new.a, new._b), (old.a, old._b))
    else:
        assert new is old


@pytest.mark.parametrize("maker", MAKERS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_identity_on_values_and_idempotent(maker, data):
    tree = data.draw(structures(MAKERS[maker]))
    once = non_differentiable(tree)
    assert_same(once, tree)
    assert_same(non_differentiable(once), once)
    assert within_gradient(once) is False


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


class Awaited:
    async def __call__(self, x):
        return x


@pytest.mark.parametrize(
    "fun",
    [
        functools.partial(coroutine, 1.0),
        functools.partial(functools.partial(coroutine), 1.0),
        functools.partial(generator, 1.0),
        Awaited(),
    ],
)
def test_what_runs_later_is_refused_in_any_wrapping(fun):
    with pytest.raises(NotConstantError, match="runs after the call returned"):
        non_differentiable(fun)


def test_a_coroutine_that_comes_out_of_a_function_is_refused():
    with pytest.raises(NotConstantError, match="runs after the call returned"):
        non_differentiable(lambda x: coroutine(x * 1.0))(1.0)


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
