"""value_and_grad and grad: arguments, outputs, results and nesting, written once and run on every backend."""

import dataclasses
import functools
import itertools
import types
from typing import Any

import autograd
import jax
import numpy as np
import pytest
import torch
from ad_backends import JAX, TORCH, close, on_every_backend
from autograd.tracer import isbox

from adprotocol import NonDifferentiable, grad, value_and_grad
from adprotocol.errors import (
    ADProtocolError,
    ArgumentError,
    MixedFrameworksError,
    NothingTrainableError,
    SelectionError,
)


@dataclasses.dataclass
class Line:
    slope: Any
    offset: Any = 0.0

    def at(self, x):
        return (self.slope * x + self.offset).sum()


def is_tracked(value):
    return isinstance(value, jax.core.Tracer) or isbox(value) or getattr(value, "requires_grad", False)


def cubes(x, y, z):
    return (x**3).sum() + 10.0 * (y**2).sum() + 100.0 * (x * z).sum()


def three(ad):
    return ad.make([1.0, 2.0]), ad.make([3.0, 4.0]), ad.make([5.0, 6.0])


# argnums


@on_every_backend
@pytest.mark.parametrize(
    ("argnums", "said"),
    [
        *((3, "argument 3, but .* 3 positional"), (-4, "argument -4, but"), ((0, 3), "argument 3, but")),
        *(((0, 0), "twice"), ((0, -3), "twice"), ((2, 1, -1), "twice")),
    ],
)
def test_argnums_out_of_range_and_those_that_name_one_argument_twice_are_refused(ad, argnums, said):
    with pytest.raises(ArgumentError, match=said):
        grad(cubes, argnums=argnums)(*three(ad))


@pytest.mark.parametrize("argnums", [(), [], True, 1.0, "0", None, (0, True), (0, "x"), {0}, {0: 1}])
def test_argnums_that_are_no_positions_are_refused_at_once(argnums):
    with pytest.raises(ArgumentError, match="argnums"):
        value_and_grad(cubes, argnums=argnums)


@pytest.mark.parametrize("fun", [None, 3, "cubes", [cubes]])
@pytest.mark.parametrize("entry", [grad, value_and_grad])
def test_what_is_no_function_is_refused_by_the_name_of_who_was_called(entry, fun):
    with pytest.raises(ArgumentError, match=f"^{entry.__name__} was given"):
        entry(fun)


@on_every_backend
def test_masks_of_several_arguments_are_in_the_order_of_argnums(ad):
    def loss(m, n):
        return (m["a"] * m["b"] * n["a"]).sum()

    m, n = {"a": ad.make([2.0]), "b": ad.make([3.0])}, {"a": ad.make([5.0]), "k": 3}
    # In the order of argnums, not of the arguments.
    for argnums in ((1, 0), [1, 0], range(1, -1, -1)):
        gn, gm = grad(loss, argnums=argnums, where=({"a": True, "k": False}, False))(m, n)
        assert gm == {"a": None, "b": None}
        assert close(gn["a"], [6.0])
    for where, said in (({"a": True, "b": False}, "tuple of 2 masks"), (["a", "c"], "'c' matches no leaf")):
        with pytest.raises(SelectionError, match=said):
            grad(loss, argnums=(0, 1), where=where)(m, n)


@on_every_backend
def test_nothing_trainable_is_an_error_that_names_the_argument(ad):
    loss = lambda x, y: y.sum()
    for nothing in (3, "x", None, {}, [], {"n": 3, "label": NonDifferentiable(ad.make(1.0))}, np.arange(3), abs):
        with pytest.raises(NothingTrainableError, match=r"argument 0, an? "):
            grad(loss)(nothing, ad.make([1.0]))
        with pytest.raises(NothingTrainableError, match=r"argument 1, an? "):
            grad(lambda x, y: x.sum(), argnums=(0, 1))(ad.make([1.0]), nothing)
    for model in (type("Params", (dict,), {})(w=1.0), types.SimpleNamespace(w=1.0)):
        with pytest.raises(NothingTrainableError, match=r"its class is no structure.*dataclass"):
            grad(lambda model: 1.0)(model)
    with pytest.raises(NothingTrainableError, match="where selects none"):
        grad(lambda m: m["w"], where={"w": False})({"w": ad.make(1.0)})
    with pytest.raises(NothingTrainableError, match="where selects none"):
        grad(lambda m, n: m["w"], where=lambda path, leaf: False, argnums=(0, 1))({"w": ad.make(1.0)}, ad.make(1.0))


# has_aux


@on_every_backend
def test_a_label_in_aux_holds_what_is_untracked(ad):
    _, aux = grad(lambda x: (x**2, NonDifferentiable(x * 3.0)), has_aux=True)(ad.make(2.0))
    assert type(aux) is NonDifferentiable
    assert not is_tracked(aux.held)
    assert close(aux.held, 6.0)


# Structures of two frameworks


@pytest.mark.parametrize("pair", list(itertools.permutations([JAX, TORCH], 2)), ids=lambda p: p[0].name)
def test_values_of_two_frameworks_are_refused_wherever_they_are(pair):
    one, two = (ad.make([1.0]) for ad in pair)
    loss = lambda *args, **kwargs: pytest.fail("called")
    for call in (
        lambda: grad(loss, argnums=(0, 1))(one, {"a": two}),
        lambda: grad(loss)(one, two),
        lambda: grad(loss)(one, {"deep": [(two,)]}),
        lambda: grad(loss)(one, key=Line(two)),
        lambda: grad(loss)(one, NonDifferentiable([two])),
        lambda: grad(loss)(2.0, one, two),
        lambda: grad(loss)(2.0, one, key=[two]),
        lambda: grad(functools.partial(loss, two, key=[one]))(2.0),
    ):
        with pytest.raises(MixedFrameworksError, match=r"jax.*torch|torch.*jax"):
            call()


@pytest.mark.parametrize("ad", [JAX, TORCH], ids=lambda ad: ad.name)
def test_boxes_of_autograd_beside_another_framework_are_refused(ad):
    with pytest.raises(MixedFrameworksError):
        autograd.grad(lambda x: grad(lambda y: y.sum())({"box": x, "y": ad.make([1.0])})["y"])(2.0)
    with pytest.raises(MixedFrameworksError):
        autograd.grad(lambda x: grad(lambda y, x: y.sum())(ad.make([1.0]), x))(2.0)


@on_every_backend
def test_complex_leaves_follow_the_convention_of_the_framework(ad):
    z, w = ad.make([1.0 + 2.0j, 3.0 - 1.0j]), ad.make([0.5, 2.0])

    def loss(z, w):
        return ad.xp.real((z**3 * w).sum()) + ad.xp.abs(z[0]) ** 2

    gradient = grad(lambda m: loss(m["z"], m["w"]))({"z": z, "w": w})
    _, native = ad.native(lambda leaves: loss(*leaves), [z, w])
    assert close(gradient["z"], native[0])
    assert close(gradient["w"], native[1])
    assert np.asarray(gradient["z"]).dtype.kind == "c"
    assert np.abs(np.asarray(gradient["z"]).imag).min() > 0.1
    # A complex leaf that is ignored has zeros of its dtype.
    ignored = grad(lambda m: m["w"].sum())({"z": z, "w": w})["z"]
    assert close(ignored, [0.0, 0.0])
    assert ignored.dtype == z.dtype


@pytest.mark.xfail(reason="a gradient by a parameter is a constant to an outer backward, as without create_graph")
def test_an_outer_backward_through_a_gradient_by_a_parameter_is_right_or_an_error():
    layer = torch.nn.Linear(2, 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[2.0, 3.0]]))

    def loss(model):
        return (model(torch.ones(2, dtype=torch.float64)) ** 2).sum()

    penalty = (grad(loss)(layer)["weight"] ** 2).sum()
    try:
        (loss(layer) + penalty).backward()
    except RuntimeError:
        return
    # loss = s^2 with s the sum of the weights, and the penalty 8 s^2: 2 s + 16 s
    assert close(layer.weight.grad, [[90.0, 90.0]])


# What the frameworks differ in


@pytest.mark.parametrize("name", ["jax", "torch", "autograd"])
def test_a_masked_array_is_an_error_for_the_mask_would_be_lost(name):
    masked = np.ma.array([3.0, 2.0], mask=[False, True])
    with pytest.raises((ADProtocolError, ValueError)):
        grad(lambda x: (x**2).sum(), backend=name)(masked)
