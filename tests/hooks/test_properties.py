"""Properties of partition, combine and gradients on random structures and random selections."""

import collections
import dataclasses
import glob
from typing import Any, NamedTuple

import attrs
import numpy as np
import pytest
from ad_backends import close, on_every_backend
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from adprotocol import NonDifferentiable, combine, partition, trainable, value_and_grad
from adprotocol.errors import SelectionError


@dataclasses.dataclass
class Plain:
    first: Any
    second: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    left: Any
    right: Any


@attrs.define
class Attrs:
    up: Any
    down: Any


class Named(NamedTuple):
    x: Any
    y: Any


FIELDS = {Plain: ("first", "second"), Frozen: ("left", "right"), Attrs: ("up", "down"), Named: ("x", "y")}
# Keys that mean something in patterns, or are no strings, or sort unlike they were put in.
KEYS = ["b", "a", "a*", "[k]", "w?", 0, 7, "é"]

# What a structure is built from: ("leaf", kind, numbers), or (class, [children], keys).
LEAVES = st.one_of(
    st.tuples(st.just("array"), st.sampled_from([(), (2,), (2, 2)]), st.integers(1, 9)),
    st.tuples(st.just("float"), st.none(), st.integers(1, 9)),
    st.tuples(st.sampled_from(["int", "bool", "text", "none", "function", "label", "ints"]), st.none(), st.just(1)),
)


def _nodes(children):
    two = st.tuples(children, children)
    return st.one_of(
        st.tuples(st.sampled_from([list, tuple]), st.lists(children, max_size=3), st.none()),
        st.tuples(st.sampled_from([dict, collections.OrderedDict]), st.just(None), st.none()).flatmap(
            lambda node: st.lists(st.sampled_from(KEYS), max_size=3, unique=True).flatmap(
                lambda keys: st.tuples(st.just(node[0]), st.tuples(*[children] * len(keys)), st.just(keys))
            )
        ),
        st.tuples(st.sampled_from(list(FIELDS)), two, st.none()),
    )


STRUCTURES = st.recursive(LEAVES, _nodes, max_leaves=8)


def leaf(ad, kind, shape, number):
    if kind == "array":
        return ad.make(np.full(shape, number / 4.0))
    return {
        "float": number / 4.0,
        "int": number,
        "bool": True,
        "text": "text",
        "none": None,
        "function": len,
        "label": NonDifferentiable(2.0),
        "ints": np.arange(3),
    }[kind]


def build(spec, make, path=()):
    """Return the structure that `spec` describes, with ``make(path, leaf of spec)`` for each leaf."""
    cls, children, keys = spec
    if isinstance(cls, str):
        return make(".".join(map(str, path)), spec)
    names = keys or FIELDS.get(cls) or range(len(children))
    built = [build(child, make, (*path, name)) for name, child in zip(names, children, strict=True)]
    if cls in FIELDS:
        return cls(*built)
    return cls(zip(names, built, strict=True)) if keys is not None else cls(built)


def walk(tree, path=()):
    """Yield path and leaf of a structure, independently of the library."""
    if type(tree) in FIELDS:
        items = [(name, getattr(tree, name)) for name in FIELDS[type(tree)]]
    elif isinstance(tree, dict):
        items = tree.items()
    elif type(tree) in (list, tuple):
        items = enumerate(tree)
    else:
        yield ".".join(map(str, path)), tree
        return
    for name, child in items:
        yield from walk(child, (*path, name))


def alike(one, other):
    """Return whether two structures have the same nodes and the identical leaves."""
    if type(one) is not type(other):
        return False
    if type(one) in FIELDS:
        return all(alike(getattr(one, name), getattr(other, name)) for name in FIELDS[type(one)])
    if isinstance(one, dict):
        same_order = not isinstance(one, collections.OrderedDict) or list(one) == list(other)
        return same_order and one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if type(one) in (list, tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    return one is other


def capable(spec):
    """Return the paths of the leaves that can take a gradient."""
    return [path for path, (kind, *_) in walk(build(spec, lambda _, leaf: _Leaf(leaf))) if kind in ("array", "float")]


class _Leaf(tuple):
    """A leaf of a spec, which `walk` takes for no container."""

    __slots__ = ()


def squared(value):
    """Return the sum of the squares of a leaf, or None for one without floating-point numbers."""
    if isinstance(value, (float, NonDifferentiable)):
        return value * value
    return (value * value).sum() if "float" in str(getattr(value, "dtype", "")) else None


def loss(tree):
    """Return a scalar in which every number of `tree` has a part of its own, and all meet in a product."""
    total, product = 0.0, 1.0
    for i, (_, value) in enumerate(sorted(walk(tree), key=lambda item: item[0])):
        part = squared(value)
        if part is not None:
            total = total + part * (i + 1.0)
            product = product * (1.0 + part)
    return total + 0.001 * product


modest = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
few = settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])


@on_every_backend
@modest
@given(spec=STRUCTURES, data=st.data())
def test_combine_undoes_partition_with_the_identical_leaves(ad, spec, data):
    tree = build(spec, lambda _, spec: leaf(ad, *spec))
    able = capable(spec)
    chosen = data.draw(st.sets(st.sampled_from(able)) if able else st.just(set()))
    parts = partition(tree, where=lambda path, _: path in chosen)
    assert alike(combine(*parts), tree)
    assert alike(combine(*reversed(parts)), tree)
    leaves = dict(walk(tree))
    for path, mine in walk(parts[0]):
        assert mine is (leaves[path] if path in chosen else None)
    for path, mine in walk(parts[1]):
        assert mine is (None if path in chosen else leaves[path])
    # By default all that can.
    assert alike(trainable(tree), build(spec, lambda path, _: leaves[path] if path in able else None))


@on_every_backend
@modest
@given(spec=STRUCTURES, data=st.data())
def test_what_cannot_take_a_gradient_is_refused_by_its_path_however_it_is_selected(ad, spec, data):
    tree = build(spec, lambda _, spec: leaf(ad, *spec))
    able = set(capable(spec))
    never = [path for path, value in walk(tree) if path not in able and value is not None]
    assume(never)
    path = data.draw(st.sampled_from(never))
    shown = repr(path) if path else "the value itself"
    for where in (lambda name, _: name == path, build(spec, lambda name, _: name == path), glob.escape(path)):
        with pytest.raises(SelectionError) as caught:
            partition(tree, where=where)
        assert shown in str(caught.value)


@on_every_backend
@few
@given(spec=STRUCTURES, data=st.data())
def test_gradients_are_the_native_ones_where_selected_and_none_elsewhere(ad, spec, data):
    tree = build(spec, lambda _, spec: leaf(ad, *spec))
    able = capable(spec)
    assume(able)
    chosen = sorted(data.draw(st.sets(st.sampled_from(able), min_size=1)))
    leaves = dict(walk(tree))

    def replaced(new):
        found = {**leaves, **dict(zip(chosen, new, strict=True))}
        return loss(build(spec, lambda path, _: found[path]))

    want, native = ad.native(replaced, [leaves[path] for path in chosen])
    by = data.draw(st.sampled_from(["predicate", "mask", "patterns"]))
    where = {
        "predicate": lambda path, _: path in chosen,
        "mask": build(spec, lambda path, _: path in chosen),
        "patterns": [glob.escape(path) for path in chosen],
    }[by]
    value, gradient = value_and_grad(loss, where=where, backend=ad.name)(tree)
    assert close(value, want)
    expected = dict(zip(chosen, native, strict=True))
    found = dict(walk(gradient))
    assert found.keys() == leaves.keys()
    for path, mine in found.items():
        if path in expected:
            assert close(mine, expected[path])
        else:
            assert mine is None
    # The nodes are those of the model.
    assert alike(build(spec, lambda path, _: found[path]), gradient)
    assert alike(tree, build(spec, lambda path, _: leaves[path]))
