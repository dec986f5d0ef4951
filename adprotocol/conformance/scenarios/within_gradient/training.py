"""The query as a layer without parameters uses it: asked once about the model's parameters, and handed down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance.scenario import defaults

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


scenario: Decorator = defaults(
    "within_gradient",
    source="Flux: layers should regularise in a gradient context only: https://github.com/FluxML/Flux.jl/issues/643",
)


def _dropout(training: Any, x: Any) -> Any:
    """Return 3 x in training and 5 x outside of it."""
    return adprotocol.cond(training, lambda x: 3.0 * x, lambda x: 5.0 * x, x)


@scenario(rule="W1", transform=("grad", "jvp", "grad of jit", "jit of grad", "grad of checkpoint", "grad of vmap"))
def training_first_layer(h: Checked, transforms: str) -> None:
    """Asked about the parameters, dropout works on data in a first layer, under {transforms}.

    The parameter w times the dropped-out data 4, plus 7 or 11 times 4 by a question about the data: 12 w + 44.
    """
    data = h.array(4.0)

    def model(w: Any) -> Any:
        training = h.query({"w": w})
        return w * _dropout(training, data) + h.scale(data, 7.0, 11.0)

    want = nesting.expected(transforms, lambda w: [12.0 * w + 44.0, 12.0])(2.0)[0]
    h.assert_equal(h.nest(transforms, model)(h.array(2.0)), want)
    # Outside of a derivative the same model evaluates.
    h.assert_equal(model(h.array(2.0)), 84.0, "the model alone")


@scenario(rule="W9", needs=("grad",))
def training_behind_frozen_encoder(h: Checked) -> None:
    """Behind a frozen encoder no derivative flows through the activations, but the parameters answer True.

    Expect head times 3 times encoder times data: 3 * 5 * 2 * 4 = 120, with the gradient 24 for the head alone.
    """
    asked: list[Any] = []

    def loss(model: dict[str, Any], data: Any) -> Any:
        training = h.query(model)
        hidden = model["encoder"] * data
        asked.append(h.query(hidden))
        return model["head"] * _dropout(training, hidden)

    model = {"encoder": h.array(2.0), "head": h.array(5.0)}
    value, gradient = adprotocol.value_and_grad(loss, where="head", backend=h.name)(model, h.array(4.0))
    h.assert_equal(value, 120.0, "the value")
    h.assert_gradients(gradient, {"encoder": None, "head": 24.0})
    h.assert_untracked(asked[0], "the activations behind the encoder")
    h.assert_equal(loss(model, h.array(4.0)), 200.0, "the model alone")
