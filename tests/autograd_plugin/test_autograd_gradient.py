"""value_and_grad on HIPS autograd, inside and around its operators."""

import warnings

import autograd
import autograd.core
import autograd.numpy as anp
import numpy as np
import pytest

import adprotocol
from adprotocol import trainable, value_and_grad
from adprotocol.errors import NothingTrainableError, OpaqueValueError, SelectionError

A = np.array([1.0, 2.0, 3.0])

# Inside and around the operators. The gradient for w is 2 w x b^n, its derivative with respect to x 2 w b^n.


def loss(m, x):
    return anp.sum(m["w"] ** 2 * x) * m["b"] ** m["n"]


@pytest.mark.parametrize(
    ("container", "first", "second"),
    [
        ([A, 2.0], lambda c: c[0], lambda c: c[1]),
        ((A, 2.0), lambda c: c[0], lambda c: c[1]),
        ({"a": A, "b": 2.0}, lambda c: c["a"], lambda c: c["b"]),
        ({"a": [A, 1.0], "b": ({"c": 2.0}, A)}, lambda c: c["a"][0], lambda c: c["b"][0]["c"]),
    ],
)
def test_containers_boxed_by_autograd(container, first, second):
    f = lambda c: anp.sum(first(c) ** 3) * second(c)
    kinds = []

    def inner(c):
        kinds.append(type(c))
        return f(c)

    native = autograd.grad(f)(container)
    through = autograd.grad(lambda c: value_and_grad(inner)(c)[0])(container)
    assert np.allclose(first(through), first(native))
    assert second(through) == second(native)
    second_order = autograd.grad(lambda c: anp.sum(first(adprotocol.grad(f)(c))))(container)
    assert np.allclose(first(second_order), 12.0 * A)
    assert second(second_order) == 42.0
    # The function gets a container of boxes, and the gradient is like it: what was given, unboxed.
    assert kinds == [type(container)]
    seen = []
    autograd.grad(lambda c: seen.append(adprotocol.grad(f)(c)) or f(c))(container)
    assert type(seen[0]) is type(container)
    # The other way round, autograd's operators in a function of ours.
    within = adprotocol.grad(lambda c: anp.sum(first(autograd.grad(f)(c))))(container)
    assert np.allclose(first(within), 12.0 * A)
    assert second(within) == 42.0


def test_selections_in_boxed_containers():
    container = {"a": [A, 1.0], "b": (2.0, {"c": 3.0})}

    def outer(c):
        gradient = adprotocol.grad(lambda c: anp.sum(c["a"][0] ** 3) * c["b"][1]["c"], where="a.0")(c)
        assert gradient["a"][1] is gradient["b"][0] is gradient["b"][1]["c"] is None
        return anp.sum(gradient["a"][0])

    gradient = autograd.grad(outer)(container)
    assert np.array_equal(gradient["a"][0], 18.0 * A)
    assert (gradient["a"][1], gradient["b"][1]["c"]) == (0.0, 42.0)


def test_unused_leaves_get_zeros_and_no_warning():
    model = {"w": A, "f": np.float32(1.0), "h": np.zeros(2, np.float32), "p": 1.0, "z": np.array([1j]), "n": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="independent of input"):
            autograd.grad(lambda m: 3.0)(A)
        for function in (lambda m: 3.0, lambda m: np.float64(3.0), lambda m: np.array(3.0)):
            gradient = adprotocol.grad(function)(model)
            assert gradient.pop("n") is None
            assert [(np.shape(g), g.dtype) for g in gradient.values()] == [
                *(((3,), "float64"), ((), "float32"), ((2,), "float32"), ((), "float64"), ((1,), "complex128"))
            ]
            assert not any(np.any(g) for g in gradient.values())


def test_object_arrays_are_passed_on():
    objects = np.array([1.0, 2.0], dtype=object)
    model = {"a": A, "o": objects}
    assert trainable(model)["o"] is None
    gradient = adprotocol.grad(lambda m: anp.sum(m["a"] ** 2) * m["o"][1])(model)
    assert np.array_equal(gradient["a"], 4.0 * A)
    assert gradient["o"] is None
    with pytest.raises(SelectionError, match="'o'"):
        adprotocol.grad(lambda m: 1.0, where="o")(model)

    def outer(x):
        inner = adprotocol.grad(lambda m: anp.sum(m["a"] ** 2) * m["o"][0])
        return anp.sum(inner({"a": A, "o": np.array([x, 2.0], dtype=object)})["a"])

    with pytest.raises(OpaqueValueError, match="which holds an autograd ArrayBox"):
        autograd.grad(outer)(2.0)


def test_leaves_that_autograd_cannot_take():
    masked = np.ma.array([1.0, 2.0])
    with pytest.raises(SelectionError, match="MaskedArray"):
        adprotocol.grad(lambda m: anp.sum(m["a"]))({"a": masked})
    assert adprotocol.grad(lambda m: m["b"] * 2.0, where="b")({"a": masked, "b": 1.0}) == {"a": None, "b": 2.0}
    with pytest.raises(NothingTrainableError):
        adprotocol.grad(loss)({"w": np.arange(3), "b": True}, 2.0)
