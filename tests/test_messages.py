"""Errors say what was given, where it is, and the remedy, in the words of a careful person."""

from dataclasses import dataclass

import pytest
import torch

import adprotocol
from adprotocol import cond, errors, explain, grad, non_differentiable, trainable, where, within_gradient
from adprotocol.errors import OpaqueValueError
from adprotocol.messages import kind_of, with_article

TORCH = torch.ones(2)
NET = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Linear(1, 1))
LABEL = adprotocol.NonDifferentiable(2.0)


class Item:
    """An object that hides a tensor."""

    def __init__(self):
        self.tensor = torch.ones(2)


def minus(leaf, slope):
    return leaf - slope


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
    (lambda: cond(True, lambda x: x, abs), TypeError, r"(?s)missing 1 .*cond\(pred, true_fun, false_fun, x\)"),
    (lambda: cond(True, 1.0, abs, 2.0), errors.BranchError, r"wrap a value as `lambda \*_: value`"),
    (
        lambda: where(TORCH > 0.0, TORCH, TORCH),
        errors.BranchError,
        r"choose between arrays write `where\(mask, lambda a, b: a, lambda a, b: b, a, b\)`",
    ),
    (
        lambda: grad(sum)(torch.arange(3)),
        errors.NothingTrainableError,
        "Tensor of dtype torch.int64; convert it to flo",
    ),
    (lambda: grad(sum)(["s", 2]), errors.NothingTrainableError, r"'1' is an int \(2\); convert it to floating point"),
    (lambda: grad(sum)({"a": LABEL}), errors.NothingTrainableError, "'a' is a NonDiff.*; give its value without the"),
    (lambda: grad(sum)({}), errors.NothingTrainableError, r"a dict \(\{\}\); give a floating-point array or number"),
    (
        lambda: trainable(2, where=True),
        errors.SelectionError,
        r"an int \(2\) .*; convert it to floating point, or leave",
    ),
    (
        lambda: trainable(torch.nn.BatchNorm1d(1), where="running_mean"),
        errors.SelectionError,
        "dtype torch.float32 .*; make it a parameter",
    ),
    (
        lambda: grad(lambda x: (x, {"aux": x}))(TORCH[0]),
        errors.OutputError,
        r"returned a tuple; .*with has_aux=True a pair",
    ),
    (lambda: adprotocol.tree_map(minus, [1.0, 3], [0.5, None]), TypeError, "(?s)int at '1' .*map over trainable"),
    (lambda: trainable({"a": 1.0, "b": {"c": 2.0}}, where={"a": True}), errors.SelectionError, r"where=\['a'\]"),
    (lambda: trainable({"a": 1.0, "b": {"c": 2.0}}, where={"b": True}), errors.SelectionError, r"where=\['b\.\*'\]"),
    (lambda: trainable({"a": 1.0, "b": {"c": 2.0}}, where="b"), errors.SelectionError, r"Here write 'b\.\*'"),
    (lambda: trainable(NET, where=NET[1].parameters()), errors.SelectionError, r"where=\['1.weight', '1.bias'\]"),
    (lambda: trainable(NET, where=list(NET[1].parameters())), errors.SelectionError, r"where=\['1.weight', '1.bias'\]"),
    (lambda: trainable(NET, where=NET[1]), TypeError, r"(?s)leaf: \.\.\. .*where=\['1.bias', '1.weight'\]"),
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
    mask = TORCH > 0.0
    assert where(mask, lambda a, b: a, lambda a, b: b, TORCH, 2.0 * TORCH).tolist() == [1.0, 1.0]
    assert cond(True, lambda *_: 1.0, abs, 2.0) == 1.0
    assert grad(lambda x: x[1] ** 2)(["s", 2.0])[1] == 4.0
    assert grad(lambda x: x["a"] ** 2)({"a": LABEL.value}) == {"a": 4.0}
    assert grad(lambda x: (x, {"aux": x}), has_aux=True)(2.0)[0] == 1.0
    tree = [1.0, 3]
    assert adprotocol.combine(adprotocol.tree_map(minus, trainable(tree), [0.5, None]), tree) == [0.5, 3]
    assert trainable({"a": 1.0, "b": {"c": 2.0}}, where=["b.*"]) == {"a": None, "b": {"c": 2.0}}
    assert trainable(NET, where=["1.weight", "1.bias"])["1.bias"] is NET[1].bias
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
