"""What classes declare of their fields: `__trainable__`, field metadata and `register_trainable`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import errors
from adprotocol.conformance.scenario import SHOULD, defaults
from adprotocol.conformance.scenarios.models import Head, Layer, Network

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


scenario: Decorator = defaults("trainable", rule="T2")


@scenario(source="Optimisers.jl: trainable fields of custom types: https://github.com/FluxML/Optimisers.jl/issues/84")
def declared(h: Checked) -> None:
    """A class names the fields that take gradients in `__trainable__`.

    The declared weight is left, the bias is None.
    """
    head = Head(h.array(1.0), h.array(2.0))
    found = adprotocol.trainable(head)
    h.assert_is(type(found), Head, "the class of the result")
    h.assert_is(found.weight, head.weight, "the declared field")
    h.assert_is(found.bias, None, "the other field")


@scenario(source="Flux: layers frozen after the model is made: https://github.com/FluxML/Flux.jl/issues/1931")
def declared_by_instance(h: Checked) -> None:
    """A property `__trainable__` decides for each instance, and for all that is below a field.

    The body is None while it is cold, and left when it is warm.
    """
    body, head = [h.array(1.0), {"w": h.array(2.0)}], h.array(3.0)
    cold = adprotocol.trainable(Network(body=body, head=head))
    h.check(cold.body == [None, {"w": None}], f"the cold body is {cold.body!r:.200}")
    h.assert_is(cold.head, head, "the head")
    warm = adprotocol.trainable(Network(body=body, head=head, warm=True))
    h.assert_is(warm.body[0], body[0], "the warm body")
    h.assert_is(warm.body[1]["w"], body[1]["w"], "the warm body, further down")


@scenario(source="GPflow: a parameter made with trainable=False: https://github.com/GPflow/GPflow/issues/1646")
def field_metadata(h: Checked) -> None:
    """The metadata {"trainable": False} of a dataclass field freeze it.

    The field without metadata is left, the other is None.
    """
    layer = Layer(h.array(1.0), h.array(2.0))
    found = adprotocol.trainable({"layer": layer})["layer"]
    h.assert_is(found.weight, layer.weight, "the field without metadata")
    h.assert_is(found.scale, None, "the field that its metadata freeze")


@scenario(source="docs/structures.md, Who decides")
def declarations_agree(h: Checked) -> None:
    """What one declaration on the way down freezes stays frozen, whatever the others say.

    Expect None at a field frozen by one of two declarations, in an inner and in an outer class.
    """
    head = Head(Layer(h.array(1.0), h.array(2.0)), Layer(h.array(3.0), h.array(4.0)))
    found = adprotocol.trainable(head)
    h.assert_is(found.weight.weight, head.weight.weight, "the field that all declarations train")
    h.assert_is(found.weight.scale, None, "the field that the inner class freezes")
    h.assert_is(found.bias.weight, None, "the field below one that the outer class freezes")


@scenario(
    level=SHOULD,
    source="GPflow: two ways to set trainable, one without effect: https://github.com/GPflow/GPflow/issues/1184",
)
def unknown_declaration(h: Checked) -> None:
    """A declared name that is no field is an error that names it.

    Expect DeclarationError that names 'wieght', declared in the class or registered for it.
    """
    names = ("wieght",)
    in_class: Callable[[Any], None] = lambda cls: setattr(cls, "__trainable__", names)  # noqa: E731
    for declare in (in_class, lambda cls: adprotocol.register_trainable(cls, names)):
        layer = dataclasses.make_dataclass("Misspelt", ["weight"])
        with h.raises(errors.DeclarationError, words=["wieght"]):
            declare(layer)
            adprotocol.trainable(layer(h.array(1.0)))


@scenario(
    level=SHOULD,
    source="Optimisers.jl: trainable fields of custom types: https://github.com/FluxML/Optimisers.jl/issues/84",
)
def registered(h: Checked) -> None:
    """`register_trainable` declares the fields of a class that one does not own.

    Expect before the registration both fields, then the registered one alone, at last an error for 'scale'.
    """
    cls: Any = dataclasses.make_dataclass("Foreign", ["weight", "bias"])
    made = cls(h.array(1.0), h.array(2.0))
    h.assert_is(adprotocol.trainable(made).bias, made.bias, "a field before the registration")
    adprotocol.register_trainable(cls, ["weight"])
    found = adprotocol.trainable(made)
    h.assert_is(found.weight, made.weight, "the registered field")
    h.assert_is(found.bias, None, "the other field")
    with h.raises(errors.DeclarationError, words=["scale"]):
        adprotocol.register_trainable(cls, ["weight", "scale"])
        adprotocol.trainable(made)
