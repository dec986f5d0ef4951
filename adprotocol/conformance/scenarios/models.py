"""Models that scenarios of several hooks use; no framework knows their classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple


class Pair(NamedTuple):
    """Two things, by name."""

    first: Any
    second: Any


@dataclass
class Layer:
    """A weight, and a scale that its field declares not to be trained."""

    weight: Any
    scale: Any = field(default=None, metadata={"trainable": False})


@dataclass
class Head:
    """Two arrays, one of which the class declares to be trained."""

    __trainable__: ClassVar[tuple[str, ...]] = ("weight",)

    weight: Any
    bias: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A body that trains when it is warm, and a head that always does."""

    body: Any
    head: Any
    warm: bool = False

    @property
    def __trainable__(self) -> tuple[str, ...]:
        """Name the parts that train now."""
        return ("body", "head") if self.warm else ("head",)


@dataclass
class Affine:
    """A model that is called."""

    slope: Any
    offset: Any
    name: str = "line"

    def __call__(self, x: Any) -> Any:
        """Return the value at x."""
        return self.slope * x + self.offset
