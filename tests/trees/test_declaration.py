"""Which fields take gradients by what classes declare: `__trainable__`, register_trainable, field metadata."""

import dataclasses
from typing import Any, ClassVar

import attrs
import equinox as eqx
import flax.struct
import jax
import jax.numpy as jnp
import optree
import pytest
import torch
from flax import nnx
from torch import nn
from torch.utils import _pytree
from tree_kinds import (
    EVERYWHERE,
    Attrs,
    Data,
    Eqx,
    JaxData,
    JaxKeys,
    Named,
    Optree,
    Plain,
    Slotted,
    Struct,
    TorchTree,
    taken,
)

from adprotocol import grad, register_trainable, trainable
from adprotocol.errors import DeclarationError

# Classes of each kind are in tree_kinds, with a field `a` that is declared and a field `b` that is not.


@dataclasses.dataclass
class Undeclared:
    a: Any = 1.0
    b: Any = 2.0


class Nnx(nnx.Module):
    __trainable__ = ("a",)

    def __init__(self):
        self.a, self.b = nnx.Param(jnp.ones(1)), nnx.Param(jnp.ones(1))


class Torch(nn.Module):
    __trainable__ = ("a",)

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
        self.register_buffer("c", torch.ones(1))


KINDS = [Data, Slotted, Attrs, Named, Eqx, Struct, JaxData, JaxKeys, Optree, TorchTree, Torch]


@pytest.mark.parametrize("cls", [*KINDS, Nnx])
def test_a_class_of_any_kind_declares_its_fields(cls):
    ending = ".value" if cls is Nnx else ""
    assert taken(cls()) == [f"a{ending}"]
    assert taken({"k": [cls()], "l": torch.ones(1) if cls is Torch else 2.0}) == [f"k.0.a{ending}", "l"]


@pytest.mark.parametrize("cls", KINDS)
def test_an_unknown_name_is_refused_with_class_and_nearest_field(cls):
    wrong = type(
        "Wrong",
        (cls,),
        {"__trainable__": ("aa",), "__slots__": ()} if cls in (Slotted, Named) else {"__trainable__": ("aa",)},
    )
    if cls is JaxKeys:
        jax.tree_util.register_pytree_with_keys_class(wrong)
    elif cls is Optree:
        optree.register_pytree_node_class(wrong, namespace=EVERYWHERE)
    elif cls is TorchTree:
        _pytree.register_dataclass(wrong)
    elif cls is JaxData:
        jax.tree_util.register_dataclass(wrong)
    for tree in (wrong(), {"m": [wrong()]}):
        with pytest.raises(
            DeclarationError, match="Wrong declares 'aa' as trainable, but has no such field; the nearest are 'a'"
        ):
            trainable(tree)
    if cls is not Torch:  # where decides instead
        assert trainable({"m": wrong()}, where="m.b")["m"].b == 2.0


# What a declaration says.


def declaring(names, **fields):
    return dataclasses.make_dataclass(
        "Made",
        [(name, Any, value) for name, value in (fields or {"a": 1.0, "b": 2.0}).items()],
        namespace={"__trainable__": names},
    )


@pytest.mark.parametrize(
    ("names", "paths"),
    [
        ((), []), ([], []), (("b",), ["b"]), (["b", "a"], ["a", "b"]), ({"a"}, ["a"]), (frozenset("ab"), ["a", "b"]),
        ("a", ["a"]), ({"a": 0}.keys(), ["a"]),
    ],
)  # fmt: skip
def test_names_may_be_in_any_collection_or_a_single_string(names, paths):
    made = declaring(names)
    for _ in range(2):  # not used up
        assert taken([made()]) == [f"0.{path}" for path in paths]


@pytest.mark.parametrize(
    "names",
    [
        None,
        ("a", 1),
        b"a",
        [["a"]],
        pytest.param(object(), id="object"),
        {"a": True, "b": False},
        pytest.param(iter(["a"]), id="iterator"),
        pytest.param((n for n in "a"), id="generator"),
    ],
    ids=repr,
)
def test_what_is_no_collection_of_names_is_refused(names):
    """A dict would train what it says False of, an iterator freeze all but the first instance."""
    with pytest.raises(DeclarationError, match=r"Made declares .* as trainable; name its fields by strings"):
        trainable(declaring(names)())
    with pytest.raises(DeclarationError, match=r"Data declares .* as trainable; name its fields by strings"):
        register_trainable(Data, names)


@pytest.mark.parametrize("names", ["a, b", "ab", "A", "", "a.b", ("a", "c"), "__trainable__", "k"])
def test_a_string_is_one_name(names):
    made = declaring(names)
    made.k = 3.0  # an attribute of the class is no field
    with pytest.raises(DeclarationError, match=r"Made declares '.*' as trainable, but has no such field"):
        trainable(made())


def test_an_error_shows_each_near_field_once():
    with pytest.raises(DeclarationError, match=r"the nearest are 'variance', 'order'\. Correct __trainable__"):
        trainable(declaring(("varianse",), variance=1.0, order=2)())


def test_a_method_in_place_of_a_property_is_refused():
    class Method(Data):
        def __trainable__(self):
            return ("a",)

    with pytest.raises(DeclarationError, match=r"Method declares .*, a method, as trainable; name its fields"):
        trainable(Method())


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.scale = nn.Linear(1, 1), Torch(), nn.Parameter(torch.ones(1))


def test_a_declaration_of_a_module_covers_its_submodules():
    class Net(Nested):
        pass

    net = Net()
    assert set(taken(net)) == {"scale", "first.weight", "first.bias", "second.a"}
    Net.__trainable__ = ("second",)  # after first use
    assert taken({"n": net}) == ["n.second.a"]
    net.second.a.requires_grad_(False)
    assert taken(net) == []
    Net.__trainable__ = ("scale", "first")
    assert set(taken(net)) == {"scale", "first.weight", "first.bias"}
    for unknown in ("second.a", "third"):
        Net.__trainable__ = (unknown,)
        with pytest.raises(DeclarationError, match=f"Net declares '{unknown}'"):
            trainable(net)


def test_an_unknown_name_in_a_submodule_is_refused():
    class Net(Torch):
        __trainable__ = ("a", "inner")

    net = Nested()
    net.second = Net()
    with pytest.raises(DeclarationError, match="Net declares 'inner'"):
        trainable({"m": net})


def test_a_module_may_name_what_is_not_there_now():
    class Net(nn.Module):
        __trainable__ = ("weight", "bias", "child")

        def __init__(self):
            super().__init__()
            self.weight, self.other = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
            self.register_parameter("bias", None)
            self.register_module("child", None)

    assert taken(Net()) == ["weight"]


@dataclasses.dataclass
class ByInstance:
    a: Any
    b: Any
    fixed: str = "b"

    @property
    def __trainable__(self):
        return {"a", "b"} - {self.fixed}


def test_a_property_that_names_an_unknown_field_or_fails_says_so():
    class Unknown(ByInstance):
        __trainable__ = property(lambda self: (self.fixed,))

    assert taken(Unknown(1.0, 2.0)) == ["b"]
    with pytest.raises(DeclarationError, match="Unknown declares 'c' as trainable"):
        trainable([Unknown(1.0, 2.0, fixed="c")])

    class Fails(ByInstance):
        __trainable__ = property(lambda self: 1 // 0)

    with pytest.raises(ZeroDivisionError):
        trainable([Fails(1.0, 2.0)])


@dataclasses.dataclass
class AsField:
    a: Any = 1.0
    b: Any = 2.0
    __trainable__: tuple[str, ...] = ("a",)


def test_a_dataclass_field_of_that_name_is_a_declaration_and_no_leaf():
    tree = [AsField(), AsField(__trainable__=("b",))]
    assert taken(tree) == ["0.a", "1.b"]
    result = trainable(tree)
    assert [part.__trainable__ for part in result] == [("a",), ("b",)]
    assert taken(result) == ["0.a", "1.b"]  # what is left may be asked about again
    gradient = grad(lambda tree: tree[0].a * tree[1].b * len(tree[1].__trainable__), backend="autograd")(tree)
    assert (gradient[0].a, gradient[1].b) == (2.0, 1.0)


@pytest.mark.parametrize("make", [Undeclared, lambda: nn.Linear(1, 1)], ids=["dataclass", "module"])
def test_an_attribute_of_the_instance_alone_is_not_overlooked(make):
    value = make()
    value.__trainable__ = ()
    with pytest.raises(DeclarationError, match=r"instance has its own attribute __trainable__.*class attribute"):
        trainable([value])


# Inheritance, and classes that one does not own.


def test_a_subclass_inherits_and_may_declare_anew():
    @dataclasses.dataclass
    class Wider(Data):
        c: Any = 3.0

    @dataclasses.dataclass
    class Widest(Wider):
        d: Any = 4.0

        @property
        def __trainable__(self):
            return (*super().__trainable__, "d")

    assert taken([Data(), Wider(), Widest()]) == ["0.a", "1.a", "2.a", "2.d"]
    del Widest.__trainable__
    assert taken(Widest()) == ["a"]


def test_a_class_may_declare_after_it_was_first_seen():
    later = dataclasses.make_dataclass("Late", [("a", Any, 1.0), ("b", Any, 2.0)])
    tree = {"m": [later()]}
    assert taken(tree) == ["m.0.a", "m.0.b"]
    later.__trainable__ = ("a",)
    assert taken(tree) == ["m.0.a"]
    later.__trainable__ = ("b",)
    assert taken(tree) == ["m.0.b"]
    register_trainable(later, ["a", "b"])
    assert taken(tree) == ["m.0.a", "m.0.b"]
    register_trainable(later, [])  # replaces
    assert taken(tree) == []


def fresh(base):
    return type("Fresh", (base,), {"__slots__": ()} if base in (Slotted, Named) else {})


@pytest.mark.parametrize("cls", [Undeclared, Data, Attrs, Named, Slotted, Eqx, Struct, Torch])
def test_registered_names_come_before_those_of_the_same_class_and_of_its_bases(cls):
    mine = fresh(cls)
    register_trainable(mine, ["b"])
    assert taken(mine()) == ["b"]
    if cls is not Slotted:
        mine.__trainable__ = ("a",)
    assert taken(mine()) == ["b"]
    below = fresh(mine)
    assert taken(below()) == ["b"]
    if cls is not Undeclared:
        assert taken(cls()) == ["a"]  # of the base nothing was said


@dataclasses.dataclass
class WithMore:
    a: Any = 1.0
    constant: ClassVar[float] = 2.0
    initial: dataclasses.InitVar[float] = 3.0


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (WithMore, "constant"),
        (WithMore, "initial"),
        (Undeclared, "c"),
        (Named, "c"),
        (Named, "count"),
        (Attrs, "c"),
        (Eqx, "c"),
    ],
)
def test_registering_an_unknown_field_is_refused_at_once(cls, name):
    with pytest.raises(DeclarationError, match=f"{cls.__name__} declares '{name}' as trainable, but has no such field"):
        register_trainable(cls, ["a", name])
    assert "a" in taken(cls())  # nothing was registered


@pytest.mark.parametrize("cls", [Torch, JaxKeys])
def test_registering_an_unknown_field_is_refused_when_the_first_instance_is_met(cls):
    mine = fresh(cls)
    if cls is JaxKeys:
        jax.tree_util.register_pytree_with_keys_class(mine)
    register_trainable(mine, ["weight"])
    with pytest.raises(DeclarationError, match=r"Fresh declares 'weight'.*or the call of register_trainable"):
        trainable([mine()])


@pytest.mark.parametrize("cls", [Data(), "Data", None, list[int], Data.__init__])
def test_only_classes_are_registered(cls):
    with pytest.raises(DeclarationError, match=r"register_trainable was given a .*; give it a class"):
        register_trainable(cls, ["a"])


# Field metadata.


@dataclasses.dataclass
class Metadata:
    a: Any = 1.0
    b: Any = dataclasses.field(default=2.0, metadata={"trainable": False, "unit": "m"})
    c: Any = dataclasses.field(default=3.0, metadata={"trainable": True})


@attrs.frozen
class MetadataAttrs:
    a: Any = 1.0
    b: Any = attrs.field(default=2.0, metadata={"trainable": False, "unit": "m"})
    c: Any = attrs.field(default=3.0, metadata={"trainable": True})


class MetadataEqx(eqx.Module):
    a: Any = 1.0
    b: Any = eqx.field(default=2.0, metadata={"trainable": False})
    c: Any = eqx.field(default=3.0, metadata={"trainable": True})


@flax.struct.dataclass
class MetadataStruct:
    a: Any = 1.0
    b: Any = flax.struct.field(default=2.0, metadata={"trainable": False})
    c: Any = 3.0


@pytest.mark.parametrize("cls", [Metadata, MetadataAttrs, MetadataEqx, MetadataStruct])
def test_metadata_freeze_one_field(cls):
    assert taken(cls(b=[2.0, {"x": 3.0}])) == ["a", "c"]
    assert taken([cls(), 1.0]) == ["0.a", "0.c", "1"]
    assert taken(fresh(cls)()) == ["a", "c"]


@pytest.mark.parametrize("flag", [0, 1, None, "no", ()])
def test_metadata_that_are_no_bool_are_refused(flag):
    made = dataclasses.make_dataclass(
        "Made", [("a", Any, dataclasses.field(default=1.0, metadata={"trainable": flag}))]
    )
    with pytest.raises(DeclarationError, match=r"metadata 'trainable' of the field 'a' of Made is .*must be a bool"):
        trainable([made()])


# Declarations that cannot be followed are refused: they would freeze or train something else.


def without_keys(cls, *fields):
    jax.tree_util.register_pytree_node(
        cls, lambda value: (tuple(getattr(value, name) for name in fields), None), lambda _, children: cls(*children)
    )
    return cls


def test_names_of_a_node_whose_children_have_positions_are_refused():
    declared = without_keys(declaring(("a",)), "a", "b")
    metadata = without_keys(
        dataclasses.make_dataclass(
            "Made", [("a", Any, 1.0), ("b", Any, dataclasses.field(default=2.0, metadata={"trainable": False}))]
        ),
        "a",
        "b",
    )
    registered = without_keys(fresh(Undeclared), "a", "b")
    register_trainable(registered, ["b"])
    for cls in (declared, metadata, registered):
        with pytest.raises(DeclarationError, match=r"'[ab]'.*with keys"):
            trainable({"m": cls()})


def test_an_object_that_is_no_structure_cannot_declare_fields():
    with pytest.raises(
        DeclarationError,
        match=r"Plain declares .* is not a structure, so all of it would be frozen; make it a dataclass",
    ):
        trainable([Plain(), 1.0])
    unknown = type("Unknown", (), {})
    register_trainable(unknown, ["a"])
    with pytest.raises(DeclarationError, match="Unknown declares"):
        trainable([unknown(), 1.0])
