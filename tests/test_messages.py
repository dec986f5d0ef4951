"""Errors say what was given, where it is, and the remedy, in the words of a careful person."""

from dataclasses import dataclass

import pytest
import torch

import adprotocol
from adprotocol import cond, errors, explain, grad, non_differentiable, trainable, within_gradient
from adprotocol.errors import OpaqueValueError
from adprotocol.messages import kind_of, with_article

TORCH = torch.ones(2)


class Item:
    """An object that hides a tensor."""

    def __init__(self):
        self.tensor = torch.ones(2)


@dataclass
class Model:
    layers: list


@dataclass
class Declaring:
    __trainable__ = ("item",)
    item: object
    other: float = 1.0


def frozen():
    return torch.nn.Linear(2, 1).requires_grad_(requires_grad=False)


NO_PREDICATE = r"(?s)(takes|missing) .* positional argument.*called with \(path, leaf\): write lambda path, leaf"
MESSAGES = [
    (lambda: grad(lambda x: TORCH.sum())(2.0), errors.MixedFrameworksError, "name it: backend='torch'"),
    (
        lambda: grad(lambda net, x: net(x).sum())(frozen(), TORCH),
        errors.NothingTrainableError,
        r"argument 0, a Linear, has no leaf .*requires_grad",
    ),
    (lambda: trainable({"a": Declaring(Item())}), OpaqueValueError, r"Item at 'a\.item', which holds"),
    (explain, errors.NoValuesError, r"^explain\(\) was called without values"),
    (within_gradient, errors.NoValuesError, r"^within_gradient\(\) was called without values"),
    (lambda: adprotocol.register_trainable(3, ["w"]), errors.DeclarationError, "given an int;"),
    (lambda: cond(3, abs, abs, 1.0), errors.PredicateError, "given an int "),
    (lambda: trainable({"w": 1.0}, where=lambda path: True), TypeError, NO_PREDICATE),
    (lambda: trainable({"w": 1.0}, where=lambda path, leaf, more: True), TypeError, NO_PREDICATE),
    (lambda: trainable({"w": 1.0}, where=lambda *, path: True), TypeError, NO_PREDICATE),
    (lambda: trainable({"w": 1.0}, where=lambda path, leaf: 1 + path), TypeError, "^unsupported operand"),
]


@pytest.mark.parametrize(("call", "error", "message"), MESSAGES)
def test_a_message_says_what_was_given_and_the_remedy(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert type(caught.value) is error


def test_the_remedies_serve():
    assert float(grad(lambda x: (x * TORCH).sum(), backend="torch")(2.0)) == 2.0
    gradient = grad(lambda net, x: net(x).sum(), where="weight")(frozen(), TORCH)
    assert gradient["weight"].tolist() == [[1.0, 1.0]]


def test_a_module_made_constant_is_refused_with_the_ways_to_freeze_it():
    for value, place in ((torch.nn.Linear(1, 1), ""), ({"net": [torch.nn.Linear(1, 1)]}, " at 'net.0'")):
        with pytest.raises(OpaqueValueError, match=rf"Linear{place}, which holds a torch Parameter") as caught:
            non_differentiable(value)
        message = str(caught.value)
        assert "requires_grad" in message
        assert "where=" in message
        assert "dataclass" not in message


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


def test_articles():
    for name in ("int", "ndarray", "array", "OrderedDict", "itertools.count"):
        assert with_article(name) == f"an {name}"
    for name in ("dict", "uint8", "UserDict", "unicode", "Linear"):
        assert with_article(name) == f"a {name}"
    assert kind_of(3) == "an int"
