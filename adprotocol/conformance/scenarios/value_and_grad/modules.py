"""The system's own modules as structures: flags, parts below, arrays that are no parameters, declarations, ties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import defaults

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


scenario: Decorator = defaults(
    "value_and_grad",
    needs=("grad", "module"),
    source="PyTorch: modules: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html",
)


@scenario(
    rule="T3",
    expects="2 a b s in a module, and w ** 2 in one below it: gradients by qualified name, None for b, whose flag is "
    "off, unless it is selected; s is an array of the module, and no parameter",
)
def module(h: Checked) -> None:
    """The gradient of a module has the qualified names of its parameters, and the module is as before."""
    model = h.module({"a": 2.0, "b": 3.0, "s": 5.0, "inner": h.module({"w": 7.0})}, frozen=["b"], buffers=["s"])
    a, w = model.a, model.inner.w

    def loss(m: Any) -> Any:
        return 2.0 * m.a * m.b * m.s + m.inner.w * m.inner.w

    for where, due in ((None, {"a": 30.0, "inner.w": 14.0}), ("b", {"b": 20.0}), ("inner.*", {"inner.w": 14.0})):
        value, gradient = adprotocol.value_and_grad(loss, where=where)(model)
        h.assert_equal(value, 109.0, "the value")
        found = {name: one for name, one in gradient.items() if one is not None}
        h.assert_gradients(found, due, f"the gradient with where={where!r}")
    h.check(model.a is a and model.inner.w is w, "the call has put other parameters into the module")


@scenario(
    rule="T3",
    expects="head w ** 2 v body w, with the class of the module declaring its head alone and that of the head w alone: "
    "12 there and None elsewhere, until the body is selected",
)
def module_declares(h: Checked) -> None:
    """What the class of a module leaves out is frozen, with all that is below it."""
    model = h.module({"head": h.module({"w": 2.0, "v": 1.0}), "body": h.module({"deep": h.module({"w": 3.0})})})
    adprotocol.register_trainable(type(model), ["head"])
    adprotocol.register_trainable(type(model.head), ["w"])
    for where, due in ((None, {"head.w": 12.0}), ("body.*", {"body.deep.w": 4.0})):
        gradient = adprotocol.grad(lambda m: m.head.w * m.head.w * m.head.v * m.body.deep.w, where=where)(model)
        found = {name: one for name, one in gradient.items() if one is not None}
        h.assert_gradients(found, due, f"the gradient with where={where!r}")


@scenario(
    rule="T8",
    expects="a.w b.w ** 2 at 3 for one module under two names: 27 at the first, by whichever name it is selected",
)
def module_under_two_names(h: Checked) -> None:
    """A module that another holds under two names is one part, with the total derivative at the first."""
    tied = h.module({"w": 3.0})
    model = h.module({"a": tied, "b": tied})
    for where in (None, "a.w", "b.w"):
        gradient = adprotocol.grad(lambda m: m.a.w * m.b.w * m.b.w, where=where)(model)
        h.assert_gradients(gradient, {"a.w": 27.0}, f"the gradient with where={where!r}")
