"""`where`: predicates, masks and patterns, what they replace, and errors that name the path."""

import dataclasses
import re
from typing import Any, NamedTuple

import equinox as eqx
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn
from tree_kinds import paths as names
from tree_kinds import taken as selected

from adprotocol import NonDifferentiable, trainable
from adprotocol.errors import SelectionError, TreeError


@dataclasses.dataclass
class Kernel:
    variance: Any
    scale: Any = 2.0


class Pair(NamedTuple):
    first: Any
    second: Any


@flax.struct.dataclass
class Rate:
    value: Any
    kind: str = flax.struct.field(pytree_node=False, default="constant")


def sum_of_products():
    return {"left": Kernel(1.0, 2.0), "right": [Kernel(3.0, 4.0), Pair(5.0, Kernel(6.0, 7.0))], "bias": 8.0}


# Patterns.


@pytest.mark.parametrize(
    ("where", "missed"),
    [
        ("variance", "variance"),
        ("left", "left"),
        ("Left.*", r"Left\.\*"),
        ("left.variance ", r"left\.variance "),
        ("left.varianse", r"left\.varianse"),
        (["bias", "lft.*"], r"lft\.\*"),
        ("", ""),
        ("right[0].scale", r"right\[0\]\.scale"),
    ],
)
def test_a_pattern_that_matches_nothing_is_named_with_the_nearest_paths(where, missed):
    with pytest.raises(SelectionError, match=rf"where='{missed}' matches no leaf; the nearest paths are '.*whole path"):
        trainable(sum_of_products(), where=where)


def test_the_nearest_path_is_the_one_that_was_meant():
    with pytest.raises(SelectionError, match=r"nearest paths are 'left\.variance'"):
        trainable(sum_of_products(), where="left.varianse")
    with pytest.raises(SelectionError, match="nearest paths are the value itself"):
        trainable(1.0, where="weight")
    with pytest.raises(SelectionError, match="nearest paths are none"):
        trainable([], where="*")


def test_a_key_that_looks_like_a_pattern_is_reached_by_a_bracket():
    tree = {"a*": 1.0, "ab": 2.0, "c[0]": 3.0}
    assert selected(tree, "a[*]") == ["a*"]
    assert selected(tree, "a*") == ["a*", "ab"]
    assert selected(tree, "c[[]0]") == ["c[0]"]
    with pytest.raises(SelectionError, match=re.escape("for that path write 'c[[]0]'")):
        trainable(tree, where="c[0]")
    with pytest.raises(SelectionError) as raised:
        trainable(tree, where="c[1]")
    assert "for that path" not in str(raised.value)


# Predicates.


@pytest.mark.parametrize("answer", [np.bool_, bool], ids=lambda answer: answer.__name__)
def test_a_predicate_may_answer_with_a_bool_of_numpy(answer):
    assert selected(sum_of_products(), lambda path, leaf: answer(leaf > 6.0)) == ["bias", "right.1.second.scale"]


@pytest.mark.parametrize(
    "answer",
    [None, 1, 0, "yes", 1.0, (), jnp.asarray([True]), torch.tensor([True]), np.array([True]), np.array(1)],
    ids=repr,
)
def test_a_predicate_that_returns_something_else_than_a_bool_is_refused(answer):
    with pytest.raises(SelectionError, match=r"where predicate returned .*for 'right\.0\.scale'.*return a bool"):
        trainable(sum_of_products(), where=lambda path, leaf: answer if path == "right.0.scale" else True)
    with pytest.raises(SelectionError, match="for the value itself"):
        trainable(1.0, where=lambda path, leaf: answer)


def test_what_a_predicate_raises_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        trainable([1.0], where=lambda path, leaf: 1 // 0)


class OfPath:
    def __init__(self, end):
        self.end = end

    def __call__(self, path, leaf):
        return path.endswith(self.end)

    def method(self, path, leaf):
        return self(path, leaf)


def test_a_predicate_may_be_a_callable_object_or_a_bound_method():
    assert selected(sum_of_products(), OfPath("first")) == ["right.1.first"]
    assert selected(sum_of_products(), OfPath("first").method) == ["right.1.first"]


# Masks.


def test_keys_that_cannot_be_sorted_are_told_apart():
    tree = {1j: 1.0, 2j: 2.0, None: 3.0, "a": 4.0}
    assert selected(tree, {"a": False, None: False, 2j: True, 1j: False}) == ["2j"]


def test_masks_that_frameworks_make():
    tree = Kernel(jnp.ones(2), NonDifferentiable(jnp.ones(2)))
    registered = {"rate": Rate(jnp.ones(2)), "k": NonDifferentiable(1.0), "none": None}
    mask = jax.tree.map(lambda leaf: False, registered)
    assert selected(registered, mask) == []
    assert selected(registered, jax.tree.map(lambda leaf: True, {**registered, "k": 1.0}) | {"k": False}) == [
        "rate.value"
    ]
    assert selected(tree, Kernel(True, False)) == ["variance"]


class Callable(eqx.Module):
    weight: Any
    bias: Any

    def __call__(self, path, leaf):
        raise AssertionError


def test_a_mask_of_a_callable_class_is_a_mask():
    model = Callable(jnp.ones(2), jnp.ones(1))
    assert selected(model, Callable(False, True)) == ["bias"]
    assert selected(model, jax.tree.map(lambda leaf: leaf.shape == (2,), model)) == ["weight"]


def test_none_in_a_mask_stands_for_none_in_the_structure_only():
    assert trainable({"a": None, "b": 1.0}, where={"a": None, "b": True}) == {"a": None, "b": 1.0}
    assert trainable({"a": None, "b": 1.0}, where={"a": True, "b": True}) == {"a": None, "b": 1.0}
    for tree in ({"a": 1.0, "b": 1.0}, {"a": {"x": 1.0}, "b": 1.0}):
        with pytest.raises(SelectionError, match="None, a NoneType, at 'a'; a mask holds bools"):
            trainable(tree, where={"a": None, "b": True})


@pytest.mark.parametrize(
    "flag", [1, "left", jnp.asarray([True]), np.array([True]), pytest.param(object(), id="object")], ids=repr
)
def test_a_mask_of_something_else_than_bools_is_refused_by_its_path(flag):
    # In the structure of the argument, and in that of its upper part.
    whole = {"left": Kernel(True, True), "right": [Kernel(True, flag), Pair(True, Kernel(True, True))], "bias": True}
    for mask, path in ((whole, "right.0.scale"), ({"left": flag, "right": True, "bias": True}, "left")):
        with pytest.raises(SelectionError, match=f"where mask holds .*at '{path}'; a mask holds bools"):
            trainable(sum_of_products(), where=mask)


@pytest.mark.parametrize(
    "where",
    [
        *(1, 0, 1.5, b"bias", np.array([True]), range(2)),
        pytest.param(object(), id="object"),
        pytest.param(iter(["bias"]), id="iterator"),
    ],
    ids=repr,
)
def test_what_is_no_selection_is_refused(where):
    with pytest.raises(SelectionError, match=r"Give strings to select by pattern, or a function of \(path, leaf\)"):
        trainable(sum_of_products(), where=where)


@pytest.mark.parametrize(
    ("mask", "named"),
    [
        ({"left": True, "right": True}, "'bias' is in the argument and not in the mask"),
        ({"left": True, "right": True, "bias": True, "extra": True}, "'extra' is in the mask and not in the argument"),
        ({"left": True, "right": [True], "bias": True}, r"'right\.1' is in the argument and not in the mask"),
        ({"left": True, "right": [True] * 3, "bias": True}, r"'right\.2' is in the mask and not in the argument"),
        (
            {"left": True, "right": (True, True), "bias": True},
            "'right' is a tuple in the mask and a list",
        ),
        (
            {"left": {"variance": True, "scale": True}, "right": True, "bias": True},
            "'left' is a dict in the mask and a K",
        ),
        (
            {"left": Pair(True, True), "right": True, "bias": True},
            r"'left\.first' is in the mask .*'variance'",
        ),
        ({"left": True, "right": True, "bias": [True]}, "'bias' is a list in the mask and a leaf in the argument"),
        ([True, True, True], "'0' is in the mask and not in the argument"),
        ([], "'bias' is in the argument and not in the mask"),
        ({}, r"'bias' is in the argument and not in the mask \(the nearest there are none\)"),
        ({"left": True, "right": True, "bias": {}}, "'bias' is a dict in the mask and a leaf in the argument"),
        (["left.*", True], "'0' is in the mask and not in the argument"),
    ],
    ids=str,
)
def test_a_mask_of_another_structure_is_refused_by_what_differs(mask, named):
    with pytest.raises(
        SelectionError, match=f"where mask does not match the structure.*{named}.*one bool covers all leaves below"
    ):
        trainable(sum_of_products(), where=mask)


def test_a_mask_that_is_cyclic_is_a_tree_error():
    cycle = [True]
    cycle.append(cycle)
    for mask in (cycle, {"a": cycle}):
        with pytest.raises(TreeError, match="contains itself"):
            trainable({"a": 1.0}, where=mask)


# What `where` replaces, and what it cannot.


INCAPABLE = {
    "int": (3, "an int .3."),
    "bool": (True, "a bool"),
    "string": ("rbf", "a str .'rbf'."),
    "function": (abs, "a builtin_function"),
    "integers of NumPy": (np.ones(2, int), "dtype int64"),
    "objects of NumPy": (np.array([1.0, None], dtype=object), "dtype object"),
    "integers of JAX": (jnp.ones(2, int), "dtype int32"),
    "key": (jax.random.key(0), "dtype key.*; give a floating-point array"),
    "integers of PyTorch": (torch.ones(2, dtype=torch.int64), r"dtype torch\.int64"),
    "buffer": (nn.Buffer(torch.ones(1)), "make it a parameter, which a buffer is not"),
    "label": (NonDifferentiable(1.0), r"a NonDifferentiable \(?"),
    "label of a tensor": (NonDifferentiable(torch.ones(1)), "a NonDifferentiable of dtype"),
}


@pytest.mark.parametrize("kind", INCAPABLE)
def test_a_selected_leaf_that_can_take_no_gradient_is_refused_by_its_path(kind):
    leaf, named = INCAPABLE[kind]
    tree = {"k": [1.0, Kernel(leaf)]}
    masks = {"k": [True, Kernel(True, True)]}, {"k": True}, True
    for where in ("k.1.variance", ["k.0", "*.variance"], ["*", "k.1.variance"], lambda path, leaf: True, *masks):
        with pytest.raises(SelectionError, match=rf"where selects 'k\.1\.variance', .*{named}"):
            trainable(tree, where=where)
    with pytest.raises(SelectionError, match=f"where selects the value itself, .*{named}"):
        trainable(leaf, where=True)
    assert selected(tree, "k.1.scale") == ["k.1.scale"]
    for where in ("*", "k.*", "k.1.*", ["k.?.*", "k.0"]):
        assert "k.1.variance" not in selected(tree, where)
        assert "k.1.scale" in selected(tree, where)


def test_a_complex_number_takes_a_gradient_if_selected():
    assert trainable([1j, 1.0]) == [None, 1.0]
    assert trainable([1j, 1.0], where="0") == [1j, None]


def test_a_tied_parameter_is_found_under_each_of_its_names():
    net = nn.ModuleDict({"encode": nn.Linear(2, 2, bias=False), "decode": nn.Linear(2, 2, bias=False)})
    net["decode"].weight = net["encode"].weight
    assert names({"n": net}) == ["n.encode.weight"]
    for where in ("n.decode.weight", "*.decode.*", ["n.decode.weight"], ["n.encode.weight", "*decode*"]):
        assert selected({"n": net}, where) == ["n.encode.weight"]
    with pytest.raises(SelectionError, match=r"nearest paths are 'n\.encode\.weight'"):
        trainable({"n": net}, where="n.decode.wieght")
