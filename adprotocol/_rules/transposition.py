"""The transposition of a rule for forward mode, from which that for reverse mode follows."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from adprotocol.errors import RuleError

if TYPE_CHECKING:
    from collections.abc import Iterator


_UNDER_WAY = threading.local()
# One is nested in another for each order of the derivative. PyTorch's engine goes on in another thread at a depth of
# 60, and each takes some 60 of the frames that Python allows.
_DEEPEST = 10


@contextlib.contextmanager
def transposing(name: str) -> Iterator[None]:
    """Refuse a rule for forward mode whose transpose needs its own transpose, for ever; for a ``with`` block."""
    count = vars(_UNDER_WAY)
    if count.setdefault(name, 0) == _DEEPEST:
        msg = (
            f"{name} has no rule for reverse mode, and its jvp rule applies {name} itself to the tangents, so that "
            "none can be derived from it; give it one with defvjp"
        )
        raise RuleError(msg)
    count[name] += 1
    try:
        yield
    finally:
        count[name] -= 1
