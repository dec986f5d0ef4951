"""A gradient that ends inside of a function, before the function goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked


def behind_a_gradient(h: Checked, layer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that calls `layer` for x ** 2, which a gradient before it has closed over."""
    c = h.array(1.0)

    def f(x: Any) -> Any:
        y = x * x
        h.grad(lambda z: z * y)(c)
        return layer(y)

    return f
