"""Staged and batched `cond`: the order of keys, exported programs, and which results match."""

import collections
import dataclasses
import pathlib
from typing import Any, NamedTuple

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from adprotocol import cond
from adprotocol.errors import BranchMismatchError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    a: Any
    rest: Any = None


@dataclasses.dataclass
class Computed:
    a: Any
    rest: Any = dataclasses.field(init=False, default=None)

    def __post_init__(self):
        assert hasattr(self.a, "dtype"), "the constructor is called by the user alone"
        self.more = "more"


@attrs.define
class Attrs:
    a: Any
    rest: Any = None


class Pair(NamedTuple):
    a: Any
    rest: Any = None


class Ordinary:
    def __init__(self, name):
        self.name = name


THING = Ordinary("thing")


@pytest.fixture(autouse=True)
def forgotten():
    """Let Dynamo forget the earlier tests: it compiles one function at most eight times."""
    torch.compiler.reset()


@pytest.mark.parametrize("strict", [True, False])
def test_an_exported_program_returns_it(strict):
    class Net(torch.nn.Module):
        def forward(self, x):
            made = cond(
                x.sum() > 0,
                lambda x: {"y": [Pair(Computed(3.0 * x))], "n": None, "s": "s"},
                lambda x: {"y": [Pair(Computed(x * x))], "n": None, "s": "s"},
                x,
            )
            assert (made["n"], made["s"], list(made)) == (None, "s", ["y", "n", "s"])
            return made["y"][0].a.a

    program = torch.export.export(Net(), (torch.ones(2),), strict=strict).module()
    assert program(torch.tensor([2.0, 1.0])).tolist() == [6.0, 3.0]
    assert program(torch.tensor([-2.0, -1.0])).tolist() == [4.0, 1.0]


# What is no array must be the same in both.

MISMATCHES = {
    "string": (lambda x: Pair(x, "one"), lambda x: Pair(x, "two"), ("'one'", "'two'")),
    "class": (Pair, Attrs, ("Pair", "Attrs")),
    "place": (lambda x: Pair(x, "s"), lambda x: Pair("s", x), ("Pair(a=", "rest='s'")),
    "none": (Pair, lambda x: Pair(x, x), ("rest=None", "Pair")),
    "keys": (lambda x: {"a": x}, lambda x: {"b": x}, ("'a'", "'b'")),
    "function": (lambda x: [x, len], lambda x: [x, abs], ("len", "abs")),
    "length": (lambda x: Frozen(a=[x]), lambda x: Frozen(a=[x, x]), ("Frozen", "rest=None")),
}


@pytest.mark.parametrize("name", MISMATCHES)
def test_a_mismatch_names_both(name):
    true, false, words = MISMATCHES[name]
    f = lambda x: (cond(x > 0.0, true, false, x), x)[1]
    for run in (
        lambda: jax.jit(f)(1.0),
        lambda: jax.vmap(f)(jnp.ones(2)),
        lambda: torch.vmap(f)(torch.ones(2)),
    ):
        with pytest.raises(BranchMismatchError, match=r"true_fun returned .*, false_fun ") as caught:
            run()
        assert all(word in str(caught.value) for word in words), str(caught.value)


@dataclasses.dataclass
class WithStatic:
    a: Any
    name: str = dataclasses.field(default="n", metadata={"static": True})


jax.tree_util.register_dataclass(WithStatic, ["a"], ["name"])


# Two objects are the same if they are identical, or of one class and equal.


class Named:
    """Equal to any other of its name."""

    def __init__(self, name):
        self.name = name

    def __eq__(self, other):
        return isinstance(other, Named) and self.name == other.name

    __hash__ = None


DIFFERENT = {
    "names": (lambda: Named("m"), lambda: Named("n")),
    "objects that compare by identity": (lambda: Ordinary("n"), lambda: Ordinary("n")),
    "classes of equals": (lambda: collections.UserString("a"), lambda: "a"),
    "sets": (lambda: frozenset({1}), lambda: frozenset({2})),
    "static fields": (lambda: WithStatic(None, Named("m")), lambda: WithStatic(None, Named("n"))),
}
SAME = {
    "object with an equality": lambda: Named("n"),
    "path": lambda: pathlib.Path("a", "b"),
    "set": lambda: frozenset({"a", "b", "c"}),
    "bound method": lambda: THING.__eq__,
    "dtype": lambda: np.dtype([("a", "f4")]),
    "device": lambda: torch.device("cpu"),
    "static field": lambda: WithStatic(None, Named("n")),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_objects_that_differ_are_a_mismatch(name):
    one, other = DIFFERENT[name]
    f = lambda x: (cond(x > 0.0, lambda: Pair(x, one()), lambda: Pair(x, other())), x)[1]
    with pytest.raises(BranchMismatchError):
        jax.jit(f)(1.0)
    with pytest.raises(BranchMismatchError):
        torch.vmap(f)(torch.ones(2))


@pytest.mark.parametrize("name", SAME)
def test_objects_that_are_equal_are_no_mismatch(name):
    f = lambda x: (cond(x > 0.0, lambda: Pair(x, SAME[name]()), lambda: Pair(x, SAME[name]())), x)[1]
    assert jax.jit(f)(1.0) == 1.0
    assert torch.vmap(f)(torch.ones(2)).tolist() == [1.0, 1.0]
