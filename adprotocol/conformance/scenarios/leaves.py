"""Leaves that are easily mistaken: without elements, of two dtypes, equal to another, read by another name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import SHOULD, scenario
from adprotocol.conformance.scenarios.staged import staged, trace

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked

PARAMETERS = ("grad", "parameter")

_DTYPES = "JAX: gradients and their dtypes: https://docs.jax.dev/en/latest/_autosummary/jax.grad.html"
_EMPTY = "PyTorch: zero-size tensors: https://docs.pytorch.org/docs/stable/generated/torch.empty.html"
_SHARED = (
    "PyTorch: parameters and identity: https://docs.pytorch.org/docs/stable/generated/torch.nn.parameter.Parameter.html"
)
_WATCHED = "TensorFlow: tapes watch trainable variables: https://www.tensorflow.org/guide/autodiff"


@scenario(
    "value_and_grad/leaves-of-two-dtypes",
    rule="T5",
    transform="grad",
    needs=("grad", "dtypes", "cast"),
    expects="w w b with w of each floating-point dtype and b of the default one, at 2, 3, computed in either: slopes "
    "12, 4, each of the dtype of its leaf",
    source=_DTYPES,
)
def leaves_of_two_dtypes(h: Checked) -> None:
    """Gradients have the dtypes of their leaves, whatever that of the value."""
    default = h.dtypes()[0]
    for dtype in h.dtypes():
        for of_value in (default, dtype):

            def loss(m: dict[str, Any], of_value: str = of_value) -> Any:
                w, b = h.cast(m["w"], of_value), h.cast(m["b"], of_value)
                return w * w * b

            model = {"w": h.cast(h.array(2.0), dtype), "b": h.cast(h.array(3.0), default)}
            gradient = adprotocol.grad(loss)(model)
            for name, want in (("w", 12.0), ("b", 4.0)):
                what = f"the gradient of {name}, of w of {dtype} with a value of {of_value},"
                h.equal(h.cast(gradient[name], default), want, what)
                found, leaf = h.numpy(gradient[name]).dtype, h.numpy(model[name]).dtype
                h.holds(found == leaf, f"{what} has dtype {found.name}, and the leaf {leaf.name}")


@scenario(
    "value_and_grad/empty-leaf",
    rule="T5",
    transform="grad",
    needs=("grad", "sum"),
    expects="w w plus the sum of e, which has no elements, at 3: 9, gradients 6 and one without elements, used or not",
    source=_EMPTY,
)
def empty_leaf(h: Checked) -> None:
    """A leaf without elements takes a gradient without elements."""
    model = {"w": h.array(3.0), "e": h.array([])}
    h.same(adprotocol.trainable(model)["e"], model["e"], "what trainable returns at the empty array")
    for loss in (lambda m: m["w"] * m["w"] + h.sum(m["e"]), lambda m: m["w"] * m["w"]):
        value, gradient = adprotocol.value_and_grad(loss)(model)
        h.equal(value, 9.0, "the value")
        h.gradients(gradient, {"w": 6.0, "e": []})


@scenario(
    "within_gradient/empty",
    rule="W1",
    transform="grad",
    needs=("grad", "sum"),
    expects="k l x, k = 3 for what x makes of no elements, else 5, l = 7 for its constant, else 11, at 2: slope 33",
    source=_EMPTY,
)
def empty(h: Checked) -> None:
    """What is computed from a variable is tracked, though it has no elements."""

    def f(x: Any) -> Any:
        e = h.array([]) * x
        constant = h.array([]) * adprotocol.non_differentiable(x)
        tracked = adprotocol.cond(h.asks(e), lambda: 3.0, lambda: 5.0)
        untracked = adprotocol.cond(h.asks(constant), lambda: 7.0, lambda: 11.0)
        return tracked * untracked * x + h.sum(e) + h.sum(constant)

    h.value_and_gradient(f, (h.array(2.0),), 66.0, 33.0)


@scenario(
    "value_and_grad/equal-parameters",
    rule="T8",
    transform="grad",
    needs=PARAMETERS,
    expects="p p q with two parameters of the value 3: the gradients 18 and 9; with one of them frozen 9 alone",
    source=_SHARED,
)
def equal_parameters(h: Checked) -> None:
    """Two parameters of the same value are two leaves."""
    p, q = h.parameter(3.0, trains=True), h.parameter(3.0, trains=True)

    def loss(m: dict[str, Any]) -> Any:
        return m["p"] * m["p"] * m["q"]

    h.gradients(adprotocol.grad(loss, backend=h.name)({"p": p, "q": q}), {"p": 18.0, "q": 9.0})
    only = adprotocol.grad(loss, where="q", backend=h.name)({"p": p, "q": q})
    h.gradients(only, {"p": None, "q": 9.0}, "the gradient of q alone")


@scenario(
    "value_and_grad/parameter-read-elsewhere",
    rule="T8",
    level=SHOULD,
    transform="grad",
    needs=PARAMETERS,
    expects="p p of the model times p read by another name, at 2: the gradient 3 p p = 12; 3 of 3 p, asked so",
    source=_WATCHED,
)
def parameter_read_elsewhere(h: Checked) -> None:
    """A parameter that takes a gradient counts wherever the function reads it."""
    p = h.parameter(2.0, trains=True)
    gradient = adprotocol.grad(lambda m: m["p"] * m["p"] * p, backend=h.name)({"p": p})
    h.gradients(gradient, {"p": 12.0})
    asked = adprotocol.grad(lambda m: h.layer(p) + 0.0 * m["p"], backend=h.name)({"p": p})
    h.gradients(asked, {"p": 3.0}, "the gradient of what asks by the other name")


def _fails(p: Any) -> Any:
    msg = f"no loss of {type(p).__name__}"
    raise ArithmeticError(msg)


@scenario(
    "within_gradient/parameter-after-an-error",
    rule="W2",
    needs=("parameter", "parameter_grad"),
    expects="after an exception in a gradient the answer about a parameter is what it was before; 3 p inside the next",
    source=_WATCHED,
)
def parameter_after_an_error(h: Checked) -> None:
    """An exception in the gradient of a parameter leaves nothing behind."""
    p = h.parameter(2.0, trains=True)

    def answer() -> Any:
        return adprotocol.cond(h.asks(p), lambda: 1.0, lambda: 0.0)

    before = h.numpy(answer())
    with h.raises(ArithmeticError, words=["no loss"]):
        h.parameter_grad(lambda: _fails(p), p)
    h.equal(answer(), before, "the answer after the exception")
    h.equal(h.parameter_grad(lambda: h.layer(p), p), 3.0, "the gradient after the exception")
    h.equal(answer(), before, "the answer after that")


@staged(
    "within_gradient/parameter-after-an-error",
    rule="W2",
    native="grad of {way}",
    needs=("parameter", "parameter_grad"),
    expects="after an exception in a gradient a compiled 3 p or 5 p gives what it gave before; gradient 3 in the next",
    source=_WATCHED,
)
def parameter_after_an_error_compiled(h: Checked, way: str) -> None:
    """An exception in the gradient of a parameter changes no answer in a compiled function."""
    p, one = h.parameter(2.0, trains=True), h.array(1.0)
    traced = trace(h, way, lambda x: h.layer(p) * x)
    before = h.numpy(adprotocol.non_differentiable(traced(one)))

    def fails() -> Any:
        return _fails(traced(one))

    for _ in range(2):
        with h.raises(ArithmeticError, words=["no loss"]):
            h.parameter_grad(fails, p)
        h.equal(adprotocol.non_differentiable(traced(one)), before, "the plain call after the exception")
        h.equal(h.parameter_grad(lambda: traced(one), p), 3.0, "the gradient after the exception")
