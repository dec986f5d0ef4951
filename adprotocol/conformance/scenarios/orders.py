"""Objects that are called plain and differentiated, in both first orders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def in_both_orders(
    make: Callable[[], Any], plain: Callable[[Any], None], differentiated: Callable[[Any], None]
) -> None:
    """Call what `make` returns plain, differentiated, plain; and what it returns next the other way around."""
    for first, second in ((plain, differentiated), (differentiated, plain)):
        made = make()
        for call in (first, second, first):
            call(made)
