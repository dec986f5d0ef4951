"""Types for annotations: the answer of `adprotocol.within_gradient`, which is what `adprotocol.cond` branches on.

>>> from adprotocol import cond, within_gradient
>>> from adprotocol.typing import Answer
>>> def scaled(x: float, train: Answer) -> float:
...     return cond(train, lambda x: 2.0 * x, lambda x: x, x)
>>> scaled(3.0, within_gradient(3.0))
3.0

The types of the public functions are in ``adprotocol/__init__.pyi``.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

__all__ = ["Answer", "StagedBool"]


class StagedBool(Protocol):
    """A boolean scalar of a framework, shape ``()``, which may become True or False when a transformation is applied.

    ``&`` and ``|`` combine it with other booleans. ``~`` is left out, as it turns a
    Python bool into an integer: swap the branches instead. ``if`` and ``bool`` work where
    the framework knows the value now, and raise under its compiler.
    """

    @property
    def shape(self) -> Any:
        """Return the shape, ``()``."""

    @property
    def dtype(self) -> Any:
        """Return the framework's boolean dtype."""

    def __bool__(self) -> bool: ...
    def __and__(self, other: Any, /) -> Any: ...
    def __rand__(self, other: Any, /) -> Any: ...
    def __or__(self, other: Any, /) -> Any: ...
    def __ror__(self, other: Any, /) -> Any: ...


Answer: TypeAlias = bool | StagedBool
"""What `adprotocol.within_gradient` answers: a bool where the framework knows now, or a staged boolean scalar.

Branch on it with `adprotocol.cond`, which takes both. Under JAX's jit, scan and checkpoint ``if`` raises.
"""
