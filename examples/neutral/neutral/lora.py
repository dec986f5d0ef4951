"""A low-rank adaptation of a frozen weight."""

from dataclasses import dataclass
from typing import Any

from adprotocol import register_structure


@register_structure(static=("scale",))
@dataclass(frozen=True)
class LoRA:
    """A frozen `weight`, ``(in, out)``, and the trained factors `down`, ``(in, rank)``, and `up`, ``(rank, out)``.

    E. Hu et al., https://arxiv.org/abs/2106.09685
    """

    weight: Any
    down: Any
    up: Any
    scale: float = 1.0

    __trainable__ = ("down", "up")

    def __call__(self, x: Any) -> Any:
        """Return ``x @ (weight + scale * down @ up)``."""
        return x @ self.weight + (x @ self.down) @ self.up * self.scale

    def merged(self) -> Any:
        """Return the one weight that does the same."""
        return self.weight + self.down @ self.up * self.scale
