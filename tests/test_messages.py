"""Errors say what was given, where it is, and the remedy, in the words of a careful person."""

from dataclasses import dataclass

import pytest

import adprotocol
from adprotocol import cond, explain, grad, non_differentiable, trainable, within_gradient
from adprotocol.errors import (
    DeclarationError,
    MixedFrameworksError,
    NothingTrainableError,
    NoValuesError,
    OpaqueValueError,
    PredicateError,
    SelectionError,
    kind_of,
    with_article,
)

torch = pytest.importorskip("torch")
jnp = pytest.importorskip("jax.numpy")
pytest.importorskip("autograd")

TORCH, JAX = torch.ones(2), jnp.ones(2)


class Item:
    """An object that hides a tensor."""

    def __init__(self):
        self.tensor = torch.ones(2)


@dataclass
class Model:
    layers: list


def test_a_result_of_another_framework_is_told_of_backend():
    with pytest.raises(MixedFrameworksError, match="name it: backend='torch'"):
        grad(lambda x: TORCH.sum())(2.0)
    assert float(grad(lambda x: (x * TORCH).sum(), backend="torch")(2.0)) == 2.0


def test_a_module_made_constant_is_refused_with_the_ways_to_freeze_it():
    for value, place in ((torch.nn.Linear(1, 1), ""), ({"net": [torch.nn.Linear(1, 1)]}, " at 'net.0'")):
        with pytest.raises(OpaqueValueError) as caught:
            non_differentiable(value)
        message = str(caught.value)
        assert f"torch.nn.modules.linear.Linear{place}, which holds a torch Parameter" in message
        assert "requires_grad" in message
        assert "where=" in message
        assert "dataclass" not in message


def test_a_frozen_module_is_named_with_requires_grad():
    frozen = torch.nn.Linear(2, 1).requires_grad_(requires_grad=False)
    with pytest.raises(NothingTrainableError, match=r"argument 0, a Linear, has no leaf .*requires_grad"):
        grad(lambda net, x: net(x).sum())(frozen, TORCH)
    gradient = grad(lambda net, x: net(x).sum(), where="weight")(frozen, TORCH)
    assert gradient["weight"].tolist() == [[1.0, 1.0]]


QUESTIONS = {
    "within_gradient": within_gradient,
    "within_gradient of several": lambda tree: within_gradient(1.0, tree),
    "non_differentiable": non_differentiable,
    "trainable": trainable,
    "grad": lambda tree: grad(lambda tree, x: x)(tree, TORCH),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_nested_object_that_hides_arrays_is_named_with_its_path(question):
    for tree, place in (
        ({"a": [1.0, Item()]}, " at 'a.1'"),
        (Model([{"b": Item()}]), " at 'layers.0.b'"),
        (Item(), ""),
    ):
        with pytest.raises(OpaqueValueError, match=rf"Item{place}, which holds a torch Tensor"):
            QUESTIONS[question](tree)
    with pytest.raises(OpaqueValueError, match=r"iterator \(list_iterator\) at 'a\.0', which"):
        QUESTIONS[question]({"a": [iter([TORCH])]})


def test_a_nested_object_in_a_declaring_class_is_named_with_its_path():
    @dataclass
    class Declaring:
        __trainable__ = ("item",)
        item: object
        other: float = 1.0

    with pytest.raises(OpaqueValueError, match=r"Item at 'a\.item', which holds"):
        trainable({"a": Declaring(Item())})


def test_an_explanation_of_nothing_names_explain():
    with pytest.raises(NoValuesError, match=r"^explain\(\) was called without values"):
        explain()
    with pytest.raises(NoValuesError, match=r"^within_gradient\(\) was called without values"):
        within_gradient()


@pytest.mark.parametrize("where", [lambda path: True, lambda path, leaf, more: True, lambda *, path: True])
def test_a_predicate_of_other_arguments_is_told_of_its_arguments(where):
    with pytest.raises(SelectionError, match=r"predicate does not take \(path, leaf\): .*lambda path, leaf"):
        trainable({"w": 1.0}, where=where)


def test_a_type_error_inside_a_predicate_stays_as_it_is():
    with pytest.raises(TypeError, match="unsupported operand") as caught:
        trainable({"w": 1.0}, where=lambda path, leaf: path + 1 if False else 1 + path)
    assert not isinstance(caught.value, SelectionError)


def test_articles():
    for name in ("int", "ndarray", "array", "OrderedDict", "itertools.count"):
        assert with_article(name) == f"an {name}"
    for name in ("dict", "uint8", "UserDict", "unicode", "Linear"):
        assert with_article(name) == f"a {name}"
    assert kind_of(3) == "an int"


def test_messages_have_the_right_article():
    with pytest.raises(DeclarationError, match="given an int;"):
        adprotocol.register_trainable(3, ["w"])
    with pytest.raises(PredicateError, match="given an int "):
        cond(3, abs, abs, 1.0)
