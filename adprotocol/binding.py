"""A binding: the functions that serve the values of one kind.

The table maps each type to one of these. A framework's plugin yields a binding
from its hooks; the core has a few of its own, for numbers, NumPy arrays,
containers, functions and labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def never(value: Any) -> bool:  # noqa: ARG001  (the signature of the hook)
    """Answer False: a value of this kind carries no derivative."""
    return False


def same(value: Any) -> Any:
    """Return the identical object: a value of this kind is constant already."""
    return value


def branch(pred: Any, true_fun: Any, false_fun: Any, operands: tuple[Any, ...]) -> Any:
    """Run the branch that a Python bool chooses, once."""
    return true_fun(*operands) if pred else false_fun(*operands)


class Binding:
    """Hold the hook functions for one kind of value.

    ``framework`` is None for the kinds of the core, which mix with any
    framework, else the plugin's name. Instances are attributes of
    `adprotocol.table.BINDINGS` under ``key``, so that a compiler that reads
    Python can follow the lookup.
    """

    __slots__ = (
        "any_within_gradient",
        "cond",
        "explain",
        "framework",
        "key",
        "non_differentiable",
        "within_gradient",
    )

    def __init__(  # noqa: PLR0913  (one for each hook)
        self,
        key: str,
        *,
        framework: str | None = None,
        within_gradient: Callable[[Any], Any] = never,
        non_differentiable: Callable[[Any], Any] = same,
        cond: Callable[[Any, Any, Any, tuple[Any, ...]], Any] = branch,
        any_within_gradient: Callable[[Sequence[Any]], Any] | None = None,
        explain: Callable[[Any], str] | str = "",
    ) -> None:
        self.key = key
        self.framework = framework
        self.within_gradient = within_gradient
        self.non_differentiable = non_differentiable
        self.cond = cond
        self.any_within_gradient = any_within_gradient
        self.explain = explain

    def __repr__(self) -> str:
        return f"<Binding {self.key}>"
