"""trainable, partition and combine: what takes a gradient by default, and the two parts of a structure."""

import dataclasses
import enum
import functools
import math
import re
from typing import Any, NamedTuple

import equinox as eqx
import flax.struct
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn

from adprotocol import NonDifferentiable, combine, partition, trainable, trainable_mask
from adprotocol.errors import OpaqueValueError, SelectionError, TreeError


class Half(float, enum.Enum):
    HALF = 0.5


class Real(float):
    pass


class Integer(enum.IntEnum):
    ONE = 1


def objects(*items):
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


def by_dtype(make, *dtypes):
    return [pytest.param(make(dtype), id=f"{make.__name__} {getattr(dtype, '__name__', dtype)}") for dtype in dtypes]


def numpy_array(dtype):
    return np.zeros(2, dtype)


def numpy_scalar(dtype):
    return np.zeros(1, dtype)[0]


def jax_array(dtype):
    return jnp.zeros(2, dtype)


def jax_shape(dtype):
    return jax.ShapeDtypeStruct((2,), dtype)


def torch_tensor(dtype):
    return torch.zeros(2, dtype=dtype)


NUMPY_FLOATS = (
    np.float16, np.float32, np.float64, np.longdouble, np.complex64, np.complex128,
    ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
)  # fmt: skip
NUMPY_OTHERS = (
    np.int8, np.uint8, np.int64, np.bool_, np.str_, "M8[s]", "m8[s]", "V4", ml_dtypes.int4, ml_dtypes.uint4,
    [("a", "f4")], [("torch.float", "i4")], jax.dtypes.float0,
)  # fmt: skip
JAX_FLOATS = (jnp.float16, jnp.bfloat16, jnp.float32, jnp.complex64, jnp.float8_e4m3fn, jnp.float8_e5m2)
JAX_OTHERS = (jnp.int8, jnp.uint8, jnp.int32, jnp.bool_, jnp.int4)
TORCH_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.float8_e4m3fn)
TORCH_OTHERS = (torch.uint8, torch.int32, torch.int64, torch.bool)

TAKES = [
    1.0, -0.0, math.inf, math.nan, Real(2.0), np.float64(1.0), np.ma.array([1.0]), np.zeros(()),
    np.zeros((0, 3)),
    jnp.zeros(()), jnp.zeros((0,)),
    torch.tensor(1.0), torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True) * 2, torch.zeros(0),
    torch.ones(1, device="meta"), torch.eye(2).to_sparse(),
    nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1, dtype=torch.complex64)),
    *by_dtype(numpy_array, *NUMPY_FLOATS), *by_dtype(numpy_scalar, *NUMPY_FLOATS),
    *by_dtype(jax_array, *JAX_FLOATS), *by_dtype(torch_tensor, *TORCH_FLOATS),
]  # fmt: skip

NEVER = [
    0, True, 1j, None, ..., "s", b"s", range(3), slice(1.0), Half.HALF, Integer.ONE, {1.0}, objects(1.0, None),
    abs, math.sin, lambda: 1.0, "s".upper, np.sin, jnp.sin, jax.nn.relu, torch.relu, jax.jit(jnp.sin), float, nn.Linear,
    functools.partial(abs, 1.0), Half, torch.float32, torch.device("cpu"), torch.Size([1]),
    NonDifferentiable(1.0), NonDifferentiable(torch.ones(1)), NonDifferentiable([1.0]),
    jax.random.key(0), jax.random.PRNGKey(0), jax.new_ref(jnp.ones(2)),
    nn.Parameter(torch.ones(1), requires_grad=False), nn.Buffer(torch.ones(1)),
    nn.Buffer(torch.ones(1), persistent=False), nn.Parameter(torch.ones(1, dtype=torch.int64), requires_grad=False),
    *by_dtype(numpy_array, *NUMPY_OTHERS), *by_dtype(numpy_scalar, *NUMPY_OTHERS),
    *by_dtype(jax_array, *JAX_OTHERS), *by_dtype(torch_tensor, *TORCH_OTHERS),
    *by_dtype(jax_shape, *JAX_FLOATS, *JAX_OTHERS),  # a description of an array is a setting
]  # fmt: skip


def name_of(value):
    return f"{type(value).__name__} {re.sub(r' at 0x[0-9a-f]+', '', repr(value)):.30}"


@pytest.mark.parametrize("leaf", TAKES, ids=name_of)
def test_takes_a_gradient_by_default(leaf):
    assert trainable({"n": 3, "x": [leaf]})["x"][0] is leaf
    params, rest = partition((leaf, 3))
    assert params[0] is leaf
    assert params[1] is rest[0] is None
    assert rest[1] == 3
    assert trainable(leaf) is leaf


@pytest.mark.parametrize("leaf", NEVER, ids=name_of)
def test_takes_no_gradient_by_default(leaf):
    assert trainable({"x": [leaf]}) == {"x": [None]}
    params, rest = partition([leaf, 2.0])
    assert params == [None, 2.0]
    assert rest[0] is leaf
    assert rest[1] is None
    assert trainable(leaf) is None


@pytest.mark.parametrize("array", [objects(torch.ones(1), 1.0), objects(None, jnp.ones(1)), objects([torch.ones(1)])])
def test_an_object_array_that_hides_arrays_of_a_framework_is_refused(array):
    with pytest.raises(OpaqueValueError, match=r"torch|jax"):
        trainable([array, 1.0])


class Kernel(NamedTuple):
    variance: Any
    scale: Any = 2


@dataclasses.dataclass
class Model:
    kernel: Any
    name: str = "gp"
    steps: int = 3


@flax.struct.dataclass
class State:
    loc: Any
    step: int = 0
    rate: float = flax.struct.field(pytree_node=False, default=0.5)


def test_combine_takes_each_leaf_from_the_first_tree_that_has_one():
    assert combine({"a": None, "b": 2, "c": None}, {"a": 1, "b": 3, "c": None}) == {"a": 1, "b": 2, "c": None}
    assert combine([None, None], [None, 2], [1, 3]) == [1, 2]
    # What is false is there all the same.
    assert combine([0, False, "", 0.0, None], [1, 1, 1, 1, 1]) == [0, False, "", 0.0, 1]
    zeros = np.zeros(2)
    assert combine(zeros, np.ones(2)) is zeros
    assert combine(None, 2.0) == 2.0
    assert combine(1.0) == 1.0
    label = NonDifferentiable(1.0)
    assert combine([None], [label])[0] is label
    assert type(combine(Kernel(None), Kernel(1.0, 5))) is Kernel


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        ({"a": 1.0, "b": {"c": 2.0}}, {"a": 1.0}, "'b' is in argument 0 and not in argument 1"),
        ({"a": 1.0}, {"a": 1.0, "b": [2.0]}, "'b' is in argument 1 and not in argument 0"),
        ([1.0], [1.0, 2.0], "'1' is in argument 1 and not in argument 0"),
        (1.0, {"a": 1.0}, "the value itself is a leaf in argument 0 and a dict in argument 1"),
        ({"a": {"b": 1.0}}, {"a": None}, "'a' is a dict in argument 0 and a leaf in argument 1"),
        ({"a": [1.0]}, {"a": (1.0,)}, "'a' is a list in argument 0 and a tuple in argument 1"),
        (Kernel(1.0, 2.0), Model(1.0, 2.0, 3), "'variance' is in argument 0 and not in argument 1"),
        (
            Model(1.0),
            {"kernel": 1.0, "name": "gp", "steps": 3},
            "the value itself is a Model in argument 0 and a dict in",
        ),
        (State(1.0), State(1.0, rate=0.25), r"is a State with the data .*0\.25"),
        ({}, [], "the value itself is a dict in argument 0 and a list in argument 1"),
    ],
)
def test_combine_refuses_structures_that_differ_and_names_where(first, second, named):
    with pytest.raises(
        TreeError, match=f"combine was given structures that do not match: .*{named}.*Pass parts of one"
    ):
        combine(first, second)
    with pytest.raises(TreeError, match="combine was given structures that do not match"):
        combine(first, first, second)


def test_combine_of_nothing_says_what_to_pass():
    with pytest.raises(TreeError, match=r"combine\(\) was called without structures"):
        combine()


@pytest.mark.parametrize("kind", [dict, "dataclass", "module"])
def test_a_mask_has_the_bools_of_trainable(kind):
    model = {"w": 1.5, "k": NonDifferentiable(2.0), "n": 3, "f": math.sin, "none": None, "deep": {"w": jnp.ones(2)}}
    if kind == "dataclass":
        model = dataclasses.make_dataclass("Model", model)(**model)
    elif kind == "module":
        model = nn.Linear(2, 1)
        model.bias.requires_grad_(False)
        assert trainable_mask(model) == {"weight": True, "bias": False}
        assert trainable_mask(model, where="bias") == {"weight": False, "bias": True}
        return
    for where, w in ((None, (True, True)), ("w", (True, False)), ({"deep": True}, None)):
        if w is None:
            with pytest.raises(SelectionError):
                trainable_mask(model, where)
            continue
        mask = trainable_mask(model, where)
        names = vars(mask) if kind == "dataclass" else mask
        assert names == {"w": w[0], "k": False, "n": False, "f": False, "none": None, "deep": {"w": w[1]}}
        # The mask is a `where` that selects the same.
        assert trainable_mask(model, where=mask) == mask


def test_a_partition_that_is_not_strict_takes_any_leaf():
    model = {"w": jnp.ones(2), "n": 3, "f": math.sin, "k": NonDifferentiable(2.0), "name": "tanh", "none": None}
    chosen, rest = partition(model, lambda path, _: path in ("n", "f", "k", "name"), strict=False)
    assert chosen == {"w": None, "n": 3, "f": math.sin, "k": model["k"], "name": "tanh", "none": None}
    assert list(rest.values())[1:] == [None] * 5
    assert rest["w"] is model["w"]
    assert combine(chosen, rest)["k"] is model["k"]
    with pytest.raises(SelectionError, match=r"selects 'n', which is an int"):
        partition(model, lambda path, _: path == "n")
    # As equinox.partition with is_array.
    arrays, others = partition({"i": jnp.arange(2), "s": "a"}, lambda _, leaf: eqx.is_array(leaf), strict=False)
    assert (arrays["s"], others["i"]) == (None, None)
    assert arrays["i"].tolist() == [0, 1]


@dataclasses.dataclass(frozen=True)
class Pair:
    left: Any
    right: Any


def is_pair(node):
    return isinstance(node, Pair)


def test_a_node_may_be_split_as_a_whole():
    pair = Pair(jnp.ones(2), 3)
    tree = {"a": [pair, Pair(1.0, 2.0)], "b": jnp.ones(2), "n": 1}
    seen = []
    chosen, rest = partition(tree, lambda path, leaf: seen.append(path) or path == "a.0", strict=False, is_leaf=is_pair)
    assert seen == ["a.0", "a.1", "b", "n"]
    assert chosen == {"a": [pair, None], "b": None, "n": None}
    assert chosen["a"][0] is pair
    assert rest["a"] == [None, tree["a"][1]]
    assert rest["b"] is tree["b"]


def test_a_mask_covers_a_node_that_is_split_as_a_whole():
    pair = Pair(1.0, 2.0)
    tree = {"a": {"p": pair}, "b": 3.0, "c": pair}
    for mask in ({"a": True, "b": False, "c": False}, {"a": {"p": True}, "b": False, "c": False}):
        chosen, rest = partition(tree, mask, strict=False, is_leaf=is_pair)
        assert chosen == {"a": {"p": pair}, "b": None, "c": None}
        assert rest == {"a": {"p": None}, "b": 3.0, "c": pair}
    with pytest.raises(SelectionError, match=r"'a\.p' is a Pair in the mask and a leaf in the argument"):
        partition(tree, {"a": {"p": Pair(True, False)}, "b": False, "c": False}, strict=False, is_leaf=is_pair)


def test_a_node_taken_as_a_whole_takes_no_gradient():
    with pytest.raises(SelectionError, match=r"where selects 'a', which is an? .*Pair"):
        partition({"a": Pair(1.0, 2.0)}, "a", is_leaf=is_pair)
