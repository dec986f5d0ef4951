"""Structures as a whole: of two frameworks, cyclic, too deep, with objects that hide arrays, with modules inside."""

import collections
import dataclasses
import os
import subprocess
import sys
import types
from typing import Any

import attrs
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn
from tree_kinds import taken

from adprotocol import (
    NonDifferentiable,
    combine,
    explain,
    grad,
    non_differentiable,
    partition,
    trainable,
    within_gradient,
)
from adprotocol._gradients import structure
from adprotocol.errors import MixedFrameworksError, OpaqueValueError, SelectionError, TreeError, UnclaimedTypeError

CALLS = {
    "trainable": trainable,
    "where": lambda tree: trainable(tree, where="*"),
    "predicate": lambda tree: trainable(tree, where=lambda path, leaf: False),
    "partition": partition,
    "combine": lambda tree: combine(tree, tree),
    "grad": grad(lambda tree: 1.0),
    "another argument": lambda tree: grad(lambda x, tree: x)(1.0, tree),
}

every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
SELECTING = {name: call for name, call in CALLS.items() if name not in ("combine", "another argument")}


@dataclasses.dataclass
class Data:
    child: Any
    n: Any = 3


@dataclasses.dataclass
class Declared:
    child: Any
    __trainable__ = ("child",)


@attrs.define
class Attrs:
    child: Any


class Eqx(eqx.Module):
    child: Any


@jax.tree_util.register_pytree_node_class
class Node:
    def __init__(self, child):
        self.child = child

    def tree_flatten(self):
        return (self.child,), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


# Two frameworks.


@pytest.mark.parametrize(
    "tree",
    [
        [torch.ones(1), jnp.ones(1)],
        {"a": [jnp.ones(1)], "b": Data(torch.ones(1))},
        {"net": nn.Linear(1, 1), "x": jnp.ones(1, int)},
        Eqx([nn.Parameter(torch.ones(1)), jnp.ones(1)]),
        [jnp.ones(1), NonDifferentiable(torch.ones(1))],
        [NonDifferentiable(jnp.ones(1)), NonDifferentiable({"x": [torch.ones(1)]})],
        [NonDifferentiable(nn.Linear(1, 1)), jnp.ones(1)],
    ],
    ids=range(7),
)
def test_two_frameworks_are_refused_by_name(tree):
    for call in SELECTING.values():
        with pytest.raises(MixedFrameworksError, match=r"torch and jax|jax and torch"):
            call(tree)


# Cycles.


def self_containing(make):
    value = make([])
    value.child.append(value)
    return value


def direct(make):
    value = make(None)
    object.__setattr__(value, "child", value)
    return value


def cyclic_list():
    value = [1.0]
    value.append({"again": (value,)})
    return value


def cyclic_dict():
    value = {"x": 1.0}
    value["self"] = value
    return value


def cyclic_deque():
    value = collections.deque([1.0])
    value.append(value)
    return value


def cyclic_module():
    """Two submodules of each other, as a child that knows its parent; it does not let itself be looked at for ever."""

    class Looked(nn.Module):
        looks = 0

        def __getattribute__(self, name):
            Looked.looks += 1
            assert Looked.looks < 20_000, "endless"
            return super().__getattribute__(name)

    parent = Looked()
    parent.first, parent.second = Looked(), nn.Linear(1, 1)
    parent.first.parent = parent
    return parent


CYCLES = {
    "list": cyclic_list,
    "dict": cyclic_dict,
    "deque": cyclic_deque,
    "dataclass": lambda: self_containing(Data),
    "dataclass that declares": lambda: self_containing(Declared),
    "dataclass itself": lambda: direct(Data),
    "attrs": lambda: direct(Attrs),
    "equinox": lambda: self_containing(Eqx),
    "node of JAX": lambda: self_containing(Node),
    "module": cyclic_module,
    "submodule": lambda: {"net": nn.Sequential(cyclic_module())},
}


QUESTIONS = {question.__name__: question for question in (within_gradient, non_differentiable, explain)}


@pytest.mark.parametrize("call", [*CALLS, *QUESTIONS])
@pytest.mark.parametrize("kind", CYCLES)
def test_a_structure_that_contains_itself_is_a_tree_error(kind, call):
    if "module" in kind and (call == "another argument" or call in QUESTIONS):
        return  # nothing is asked of its tensors
    tree, call = CYCLES[kind](), {**CALLS, **QUESTIONS}[call]
    for value in (tree, [1.0, tree]):
        with pytest.raises(TreeError, match="contains itself"):
            call(value)


def test_an_object_array_that_contains_itself_is_a_tree_error():
    value = np.empty(1, object)
    value[0] = [value]
    for call in (
        trainable,
        partition,
        *QUESTIONS.values(),
        grad(lambda tree: 1.0),
        lambda tree: NonDifferentiable(tree).value,
    ):
        for tree in (value, {"x": 1.0, "o": value}):
            with pytest.raises(TreeError, match="contains itself"):
                call(tree)


# What would crash the interpreter runs in one of its own, with a stack that Python would let grow without end.

DEEP = """
import collections, dataclasses, os, sys
import attrs
import jax
from typing import Any
from adprotocol import combine, explain, grad, non_differentiable, partition, trainable, within_gradient
from adprotocol.errors import TreeError

@dataclasses.dataclass
class Data:
    child: Any

@dataclasses.dataclass
class Declared:
    child: Any
    __trainable__ = ("child",)

@attrs.define
class Attrs:
    child: Any

class Node:
    def __init__(self, child):
        self.child = child

jax.tree_util.register_pytree_node(Node, lambda node: ((node.child,), None), lambda _, children: Node(*children))
Pair = collections.namedtuple("Pair", "child")

def refused(tree):
    for call in (
        trainable, partition, grad(lambda tree: 1.0), lambda tree: combine(tree, tree),
        lambda tree: trainable(tree, where="*"), lambda tree: trainable(1.0, where=tree),
        lambda tree: grad(lambda x, tree: x)(1.0, tree), within_gradient, non_differentiable, explain,
    ):
        try:
            call(tree)
        except TreeError as error:
            assert "contains itself, or is nested deeper" in str(error), error
        else:
            raise SystemExit(f"no error for {type(tree)}")

builtin = lambda v: [v], lambda v: (v,), lambda v: {"k": v}
every = *builtin, Pair, Data, Declared, Attrs, Node, lambda v: Declared([v])
for limit, kinds in ((1000, (builtin[0], Data, Node)), (1_000_000, every)):
    sys.setrecursionlimit(limit)
    for wrap in kinds:
        tree = 1.0
        for _ in range(100_000):
            tree = wrap(tree)
        refused(tree)
    node = Node(None)
    node.child = node  # JAX itself follows this one until it crashes
    refused(node)
    refused([Declared(node)])
print("done", flush=True)
os._exit(0)  # not taken apart
"""


def test_a_hundred_thousand_levels_are_a_tree_error_and_no_crash():
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", DEEP],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "done"), ran.stderr[-800:]


# Objects that hide arrays.


class Hider:
    def __init__(self, value):
        self.value = value


class ListOfOurs(list):
    pass


HIDING = {
    "attribute": Hider,
    "list in an attribute": lambda x: Hider([1, {"k": x}]),
    "object in an object": lambda x: Hider([Hider(x)]),
    "namespace": lambda x: types.SimpleNamespace(x=x),
    "list subclass": lambda x: ListOfOurs([x]),
    "mapping": lambda x: collections.UserDict(x=x),
    "values": lambda x: {"x": x}.values(),
}


@pytest.mark.parametrize("kind", HIDING)
@pytest.mark.parametrize(
    "x", [torch.ones(1), jnp.ones(1), nn.Linear(1, 1), Eqx(jnp.ones(1))], ids=lambda x: type(x).__name__
)
def test_an_object_that_hides_arrays_of_a_framework_is_refused(kind, x):
    hider = HIDING[kind](x)
    for tree in (hider, [1.0, {"h": Data(hider)}]):
        for call in SELECTING.values():
            if call is not SELECTING["predicate"]:
                with pytest.raises(OpaqueValueError, match=r"which holds a (torch|jax) \w+ but is not a structure"):
                    call(tree)


def test_an_object_that_hides_arrays_may_be_labelled():
    label = NonDifferentiable(Hider(torch.ones(1)))
    params, rest = partition([label, 1.0])
    assert params == [None, 1.0]
    assert rest[0] is label


class Unclaimed:
    __array__ = None


@every_call
def test_an_array_that_no_plugin_claims_is_refused(call):
    with pytest.raises(UnclaimedTypeError, match=r"Unclaimed, an array whose type no plugin claims.*convert"):
        call([1.0, Unclaimed()])


# Modules inside.


def test_where_reaches_into_modules_inside_structures():
    tree = [Eqx({"net": nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))}), 1.0]
    assert taken(tree, where="*.weight") == ["0.child.net.0.weight", "0.child.net.1.weight"]
    every = {"0.weight": True, "0.bias": False, "1.weight": False, "1.bias": False}
    buffers = {"1.running_mean": False, "1.running_var": False, "1.num_batches_tracked": False}
    assert taken(tree, where=[Eqx({"net": {**buffers, **every}}), False]) == ["0.child.net.0.weight"]
    assert taken(tree, where=[False, True]) == ["1"]
    with pytest.raises(
        SelectionError, match=r"'0\.child\.net\.1\.num_batches_tracked'|'0\.child\.net\.1\.running_mean'"
    ):
        trainable(tree, where=[True, True])


def test_an_object_of_unknown_class_is_searched_once_for_all_its_places(monkeypatch):
    class Activation:
        pass

    searched = []
    monkeypatch.setattr(structure, "check_opaque", lambda value, _: searched.append(value))
    shared, other = Activation(), Activation()
    model = [{"w": 1.0, "activation": shared} for _ in range(5)] + [{"w": 1.0, "activation": other}]
    assert [layer["w"] for layer in trainable(model)] == [1.0] * 6
    assert searched == [shared, other]
    # With nothing beside them, too.
    searched.clear()
    assert trainable([shared, other, shared]) == [None] * 3
    assert searched == [shared, other]
