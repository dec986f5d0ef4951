"""Classes of `register_structure` as arguments and results of the system's own transformations."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import NonDifferentiable
from adprotocol.conformance.scenario import defaults

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


scenario: Decorator = defaults("plugins", rule="T11")


def power_class() -> type[Any]:
    """Return a new class, registered: of a coefficient and a shift, with the static field `power`."""

    class Power:
        def __post_init__(self: Any) -> None:
            if type(self.power) is not int:
                msg = "the constructor was called with something in the place of a static field"
                raise TypeError(msg)

        def __call__(self: Any, x: Any) -> Any:
            for _ in range(self.power):
                x = x * x
            return self.scale * x - self.shift

    fields: list[Any] = [("scale", Any), ("shift", Any), ("power", int, dataclasses.field(default=1))]
    made = dataclasses.make_dataclass("Power", fields, bases=(Power,), frozen=True)
    return adprotocol.register_structure(made, static=("power",))


@scenario(
    transform="{way}",
    also_needs=("node",),
    source="JAX: what is static is not what is not differentiable: https://github.com/jax-ml/jax/issues/2912",
)
def registered_structure(h: Checked, way: str) -> None:
    """A structure is an argument under {way}: its arrays are traced, and another static field is traced anew.

    Expect 2 x ** 2 - y for the power 1, 2 x ** 4 - y for the power 2: 17 and 161 at (3, 1), 15 at (3, 3).
    """
    power, x = power_class(), h.array(3.0)
    traced = h.trace(way, lambda model, x: model(x))
    h.assert_equal(traced(power(h.array(2.0), h.array(1.0)), x), 17.0, "with the power 1")
    h.assert_equal(traced(power(h.array(2.0), h.array(1.0), 2), x), 161.0, "with the power 2")
    h.assert_equal(traced(power(h.array(2.0), h.array(3.0)), x), 15.0, "with another shift")


@scenario(
    transform="{way}",
    also_needs=("node",),
    source="PyTorch: models return dataclasses: https://github.com/pytorch/pytorch/pull/93214",
)
def registered_subclass(h: Checked, way: str) -> None:
    """A subclass of a registered class is argument and result under {way} as what it is, never as its base.

    Expect a subclass with a field more, registered as its base is: itself, with 3 times that field, 12, and 2 of its
    base; one that is not registered is an error, or itself.
    """
    fields, base = [("offset", Any, dataclasses.field(default=None))], power_class()
    unregistered, made = (dataclasses.make_dataclass("Offset", fields, bases=(base,), frozen=True) for _ in range(2))
    adprotocol.register_structure(made, static=("power",))
    run = h.trace(way, lambda model: dataclasses.replace(model, offset=3.0 * model.offset))
    returned: type = unregistered
    with contextlib.suppress(Exception):  # an error of the system's will do
        returned = type(h.trace(way, lambda model: model)(unregistered(h.array(2.0), h.array(1.0), 1, h.array(4.0))))
    h.check(returned is unregistered, f"{way} returned a {returned.__name__} for what is not registered")
    for _ in range(2):
        found = run(made(h.array(2.0), h.array(1.0), 1, h.array(4.0)))
        h.check(type(found) is made, f"{way} returned a {type(found).__name__}")
        h.assert_equal(found.offset, 12.0, "the field of the subclass")
        h.assert_equal(found.scale, 2.0, "the field of its base")


@scenario(
    transform="vmap",
    needs=("node",),
    source="PyTorch: models return dataclasses: https://github.com/pytorch/pytorch/pull/93214",
)
def registered_structure_under_vmap(h: Checked) -> None:
    """A structure is the argument and the result of a batched function.

    Expect rows of a structure, (1, 2) and (3, 5): 2 x and a label of y + 1 in a structure of rows, with its static
    field, 2 and 3.
    """
    power = power_class()
    run = h.vmap(lambda row: power(2.0 * row.scale, NonDifferentiable(row.shift + 1.0), row.power))
    for static in (2, 3):
        result = run(power(h.array([1.0, 3.0]), h.array([2.0, 5.0]), static))
        h.check(type(result) is power, f"vmap returned a {type(result).__name__}")
        h.assert_equal(result.scale, [2.0, 6.0], "the first field")
        h.check(isinstance(result.shift, NonDifferentiable), f"a {type(result.shift).__name__} came for a label")
        h.assert_equal(result.shift, [3.0, 6.0], "the second field")
        h.assert_equal(result.power, static, "the static field")


@scenario(
    transform="grad of {way}",
    also_needs=("node",),
    source="JAX, a type for what is not to be differentiated: https://github.com/jax-ml/jax/issues/2588",
)
def registered_structure_with_a_label(h: Checked, way: str) -> None:
    """A label in a structure that crosses {way} is a constant there, and still a label.

    Expect x ** 3 - x, where the last x is in a label: 6 and the gradient 12 at 2.
    """
    power = power_class()

    def fun(model: Any, x: Any) -> Any:
        h.check(isinstance(model.shift, NonDifferentiable), f"a {type(model.shift).__name__} came for a label")
        return model(x)

    def f(x: Any) -> Any:
        return h.trace(way, fun)(power(x, NonDifferentiable(x)), x)

    h.assert_value_and_grad(f, (h.array(2.0),), 6.0, 12.0)
