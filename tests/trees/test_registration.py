"""`register_structure`: the class is a node of each framework's own trees, whatever was imported when."""

import dataclasses
import enum
import io
import typing
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import optree
import pytest
import torch
from torch.utils import _pytree

import adprotocol
from adprotocol import NonDifferentiable, grad, partition, register_structure, trainable
from adprotocol.errors import ADProtocolError, DeclarationError, StructureError

NAMESPACE = "adprotocol"


@register_structure(static=("name",))
@dataclasses.dataclass
class Plain:
    w: Any
    name: str = "n"
    b: Any = 1.0


@register_structure(static="name")
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    name: str = "n"
    w: Any
    b: Any = 1.0


@register_structure(static=["name"])
@dataclasses.dataclass
class Computed:
    w: Any
    b: Any = dataclasses.field(init=False, default=1.0)
    name: str = dataclasses.field(init=False, default="n")

    def __post_init__(self):
        # As a validating constructor: the frameworks must not call it with what they put in place of leaves.
        assert type(self.w) is not object


@register_structure
@dataclasses.dataclass(frozen=True)
class ByMetadata:
    w: Any
    name: str = dataclasses.field(default="n", metadata={"static": True})
    b: Any = dataclasses.field(default=1.0, metadata={"trainable": False})


@register_structure
@attrs.frozen
class ByFlax:
    w: Any
    name: str = attrs.field(default="n", metadata={"pytree_node": False})
    b: Any = 1.0


@register_structure(static=("name",))
@attrs.define
class Attrs:
    w: Any
    name: str = "n"
    b: Any = 1.0


@register_structure
class Pair(typing.NamedTuple):
    w: Any
    b: Any = 1.0


STATIC = (Plain, Frozen, Computed, ByMetadata, ByFlax, Attrs)
ALL = (*STATIC, Pair)


def made(cls, w, b, **static):
    model = cls(w=w, **({} if cls is Computed else {"b": b, **static}))
    if cls is Computed:
        for name, value in {"b": b, **static}.items():
            setattr(model, name, value)
    return model


@pytest.mark.parametrize("cls", ALL)
def test_optree_takes_it_as_it_is(cls):
    model = made(cls, 3.0, 1.0)
    assert sorted(optree.tree_leaves(model, namespace=NAMESPACE)) == [1.0, 3.0]
    if cls is not Pair:
        assert sorted(optree.tree_paths(model, namespace=NAMESPACE)) == [("b",), ("w",)]
    assert optree.tree_map(lambda leaf: 2 * leaf, model, namespace=NAMESPACE).w == 6.0


@pytest.mark.parametrize("cls", STATIC)
def test_static_fields_are_part_of_the_structure(cls):
    one, other = made(cls, 1.0, 1.0), made(cls, 1.0, 1.0, name="other")
    for structure in (
        jax.tree.structure,
        lambda tree: _pytree.tree_flatten(tree)[1],
        lambda tree: optree.tree_structure(tree, namespace=NAMESPACE),
    ):
        assert structure(one) == structure(made(cls, 5.0, 2.0))
        assert structure(one) != structure(other)
    traced = []
    jitted = jax.jit(lambda model: traced.append(model.name) or model.w)
    for model in (one, other, made(cls, 7.0, 1.0)):
        assert jitted(model) == model.w
    assert traced == ["n", "other"]
    # This package sees the same leaves: a gradient keeps what is static.
    assert grad(lambda m: m.w * m.w)(made(cls, jnp.float32(3.0), 1)).name == "n"
    assert partition(other)[1].name == "other"


@pytest.mark.parametrize("cls", STATIC)
@pytest.mark.parametrize("listed", [["a"], np.ones(2)], ids=["list", "array"])
def test_what_cannot_be_hashed_is_carried_in_a_static_field(cls, listed):
    model = made(cls, jnp.float32(3.0), 1, name=listed)
    assert trainable(model).name is listed
    assert grad(lambda m: m.w * m.w)(model).name is listed


@register_structure(static=("powers", "name"))
@dataclasses.dataclass
class Exported:
    w: Any
    powers: tuple = (1, (2,))
    name: str = "n"


def test_torch_export_saves_it():
    class Net(torch.nn.Module):
        def forward(self, m):
            return Exported(m.w * m.powers[1][0], m.powers, m.name)

    program = torch.export.export(Net(), (Exported(torch.tensor(3.0)),))
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    with torch.serialization.safe_globals([Exported]):  # the example inputs are pickled
        loaded = torch.export.load(buffer)
    result = loaded.module()(Exported(torch.tensor(5.0)))
    assert (result.w, result.powers, result.name) == (10.0, (1, (2,)), "n")


# Registered again, by others, late.


def test_once_more_is_no_change_and_otherwise_is_refused():
    before = jax.tree.structure(Plain(1.0))
    assert register_structure(Plain, ("name",)) is Plain
    assert register_structure(Pair) is Pair
    assert register_structure(ByMetadata, static=("name",)) is ByMetadata
    assert jax.tree.structure(Plain(1.0)) == before
    with pytest.raises(StructureError, match=r"'b', 'name'.*is registered with the static fields 'name'"):
        register_structure(Plain, static=("name", "b"))
    with pytest.raises(StructureError, match="with the static fields none"):
        register_structure(Plain)


def test_a_framework_that_knows_the_class_keeps_what_it_knows():
    @jax.tree_util.register_dataclass
    @dataclasses.dataclass
    class OfJax:
        w: Any
        b: Any = dataclasses.field(default=1.0, metadata={"static": True})
        name: str = dataclasses.field(default="n", metadata={"static": True})

    register_structure(OfJax, static=("name",))
    assert jax.tree.leaves(OfJax(1.0)) == [1.0]
    assert _pytree.tree_leaves(OfJax(1.0, 2.0)) == [1.0]

    @dataclasses.dataclass
    class OfTorch:
        w: Any
        b: Any = 1.0

    _pytree.register_pytree_node(OfTorch, lambda v: ([v.w], v.b), lambda c, b: OfTorch(*c, b))
    register_structure(OfTorch)
    assert _pytree.tree_leaves(OfTorch(1.0, 2.0)) == [1.0]
    assert jax.tree.leaves(OfTorch(1.0, 2.0)) == [1.0, 2.0]

    @optree.dataclasses.dataclass(namespace=NAMESPACE)
    class OfOptree:
        w: Any
        b: Any = optree.dataclasses.field(default=1.0, pytree_node=False)

    register_structure(OfOptree, static=("b",))
    assert optree.tree_leaves(OfOptree(1.0, 2.0), namespace=NAMESPACE) == [1.0]
    assert jax.tree.leaves(OfOptree(1.0, 2.0)) == [1.0]


def test_a_class_that_was_met_before():
    @dataclasses.dataclass
    class Met:
        w: Any
        name: str = "n"

    assert trainable(Met(1.0)) == Met(1.0, None)
    register_structure(Met, static=("name",))
    assert trainable(Met(1.0)) == Met(1.0, "n")
    assert jax.tree.leaves(Met(1.0)) == [1.0]
    assert grad(lambda m: m.w * m.w)(Met(jnp.float32(3.0))) == Met(6.0, "n")


def test_a_class_met_in_a_graph_before_it_was_registered():
    @dataclasses.dataclass
    class Model:
        w: Any
        name: str = "n"

    f = grad(lambda m: (m.w * m.w).sum())
    model = Model(torch.ones(2))
    assert torch.compile(f, fullgraph=True, backend="eager")(model).name is None
    register_structure(Model, static=("name",))
    torch.compiler.reset()
    assert torch.compile(f, fullgraph=True, backend="eager")(model).name == "n"


# What is refused.


class Kind(enum.Enum):
    A = 1


@dataclasses.dataclass
class Mixin:
    w: Any


class Flavour(Mixin, enum.Enum):
    A = 1


class Ordinary:
    def __init__(self, w):
        self.w = w


@pytest.mark.parametrize("wrong", [Ordinary, Ordinary(1.0), int, dict, Kind, Flavour, Plain(1.0), "Plain", tuple])
def test_anything_else_is_refused_by_name_with_the_remedy(wrong):
    name = wrong.__name__ if isinstance(wrong, type) else type(wrong).__name__
    for use in (lambda: register_structure(wrong), lambda: register_structure(static=())(wrong)):
        with pytest.raises(StructureError, match=rf"{name}.*is not a dataclass.*@dataclass") as caught:
            use()
    assert isinstance(caught.value, ADProtocolError)
    assert isinstance(caught.value, TypeError)


def test_unknown_static_fields_are_refused_by_name():
    @dataclasses.dataclass
    class Model:
        weight: Any

    for static in ("weigth", ("weigth",), (3,)):
        with pytest.raises(DeclarationError, match=r"as a static field of .*Model.*'weight'"):
            register_structure(Model, static)
    # It was not registered by that.
    assert register_structure(Model, "weight") is Model
    assert jax.tree.leaves(Model(1.0)) == []


def test_static_fields_of_a_named_tuple_are_refused():
    class Point(typing.NamedTuple):
        x: Any
        y: Any

    with pytest.raises(StructureError, match="make it a dataclass"):
        register_structure(Point, static=("y",))


def test_a_label_stays_a_label_in_a_map_of_optree():
    @register_structure
    @dataclasses.dataclass(frozen=True)
    class Kernel:
        period: Any
        scale: Any

    kernel = Kernel(NonDifferentiable(1.5), 2.0)
    for tree in (kernel, {"k": [kernel]}):
        mapped = optree.tree_map(lambda leaf: 10.0 * leaf, tree, namespace="adprotocol")
        found = mapped if isinstance(mapped, Kernel) else mapped["k"][0]
        assert isinstance(found.period, NonDifferentiable)
        assert (found.period.value, found.scale) == (15.0, 20.0)
        assert adprotocol.grad(lambda k: k.period * k.scale)(found) == Kernel(None, 15.0)


# A class of another kind, given with two functions.


class Quantity:
    """A number with a unit, as pint has it: it looks like an array and is no dataclass."""

    def __init__(self, magnitude, unit):
        self.magnitude, self.unit = magnitude, unit

    shape = property(lambda self: self.magnitude.shape)
    dtype = property(lambda self: self.magnitude.dtype)

    def __add__(self, other):
        assert self.unit == other.unit
        return Quantity(self.magnitude + other.magnitude, self.unit)

    def __mul__(self, other):
        return Quantity(self.magnitude * other.magnitude, f"{self.unit}*{other.unit}")


class Labelled:
    """An array with names of its axes, as xarray has it."""

    def __init__(self, data, dims):
        self.data, self.dims = data, dims

    def __array__(self):
        return np.asarray(self.data)

    def sum(self, dim):
        return self.data.sum(self.dims.index(dim))


def quantity_of(cls=Quantity):
    return register_structure(cls, flatten=lambda q: ((q.magnitude,), q.unit), unflatten=lambda u, c: cls(*c, u))


@pytest.fixture(scope="module", autouse=True)
def wrappers():
    quantity_of()
    register_structure(
        Labelled, flatten=lambda a: ([a.data], a.dims), unflatten=lambda dims, children: Labelled(children[0], dims)
    )


def test_a_quantity_and_a_labelled_array_cross_every_function():
    energy = lambda q: (q * q).magnitude.sum()
    for make in (jnp.asarray, torch.as_tensor):
        q, a = Quantity(make([1.0, 3.0]), "m"), Labelled(make([[1.0, 2.0], [3.0, 4.0]]), ("row", "column"))
        gradient = adprotocol.grad(energy)(q)
        assert (type(gradient), gradient.unit, gradient.magnitude.tolist()) == (Quantity, "m", [2.0, 6.0])
        total = adprotocol.grad(lambda a: (a.sum("column") ** 2).sum())(a)
        assert (total.dims, total.data.tolist()) == (("row", "column"), [[6.0, 6.0], [14.0, 14.0]])
        assert adprotocol.within_gradient(q, a) is False
        assert (
            adprotocol.grad(lambda q: energy(q) * (2.0 if adprotocol.within_gradient(q) else 0.0))(q).magnitude[0]
            == 4.0
        )
        assert adprotocol.trainable(q).magnitude is q.magnitude
    assert jax.jit(lambda q: q + q)(Quantity(jnp.ones(2), "m")).unit == "m"
    assert jax.vmap(energy)(Quantity(jnp.ones((3, 2)), "m")).tolist() == [2.0] * 3
    rows = torch.func.grad(energy)(Quantity(torch.ones(2), "m"))
    assert (rows.unit, rows.magnitude.tolist()) == ("m", [2.0, 2.0])
    assert torch.vmap(energy)(Quantity(torch.ones((3, 2)), "m")).tolist() == [2.0] * 3
    compiled = torch.compile(lambda q: energy(adprotocol.non_differentiable(q)), fullgraph=True, backend="eager")
    assert compiled(Quantity(torch.ones(2), "m")) == 2.0


def test_two_functions_are_given_once_for_a_class_and_without_static_fields():
    class Other:
        pass

    for given in ({"flatten": len}, {"unflatten": len}, {"flatten": len, "unflatten": 3}):
        with pytest.raises(StructureError, match="a class and both functions"):
            register_structure(Other, **given)
    with pytest.raises(StructureError, match="a class and both functions"):
        register_structure(Other, ("unit",), flatten=len, unflatten=len)
    with pytest.raises(StructureError, match="both functions"):
        register_structure(Other(), flatten=len, unflatten=len)
    decorated = register_structure(flatten=lambda o: ((), None), unflatten=lambda _, __: Other())(Other)
    assert decorated is Other
    with pytest.raises(StructureError, match=r"with the functions .* but it is registered with the functions"):
        register_structure(Other, flatten=len, unflatten=len)
