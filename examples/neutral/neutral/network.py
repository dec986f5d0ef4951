"""Dense layers and a small network of them, as plain dataclasses."""

from dataclasses import dataclass
from typing import Any

from adprotocol import register_structure, within_gradient
from neutral.dropout import dropout


@register_structure
@dataclass(frozen=True)
class Dense:
    """An affine layer: `weight` has the shape ``(in, out)``, `bias` ``(out,)``."""

    weight: Any
    bias: Any

    def __call__(self, x: Any) -> Any:
        """Return ``x @ weight + bias``."""
        return x @ self.weight + self.bias


@register_structure(static=("rate",))
@dataclass(frozen=True)
class Network:
    """Layers with squares between them, and dropout of the input."""

    layers: tuple[Dense, ...]
    rate: float = 0.5

    def __call__(self, x: Any, noise: Any) -> Any:
        """Return the output for a batch `x` of shape ``(batch, in)``; `noise` is like `x`, for dropout."""
        x = dropout(x, noise, within_gradient(self), self.rate)
        *hidden, last = self.layers
        for layer in hidden:
            x = layer(x) ** 2
        return last(x)
