"""One scenario for two ways to trace a function: under `jit`, and under `compile`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from adprotocol.conformance import nesting
from adprotocol.conformance.scenario import MUST, scenario

if TYPE_CHECKING:
    from collections.abc import Callable

WAYS = ("jit", "compile")


def staged(  # noqa: PLR0913  (as `scenario`)
    identifier: str,
    *,
    rule: str,
    expects: str,
    source: str,
    level: str = MUST,
    transform: str = "{way}",
    varies: bool = False,
    needs: tuple[str, ...] = (),
    native: str = "",
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register the function once for each way, which it takes as `way`; `{way}` in texts is filled in."""

    def enter(function: Callable[..., None]) -> Callable[..., None]:
        summary = (function.__doc__ or "").strip().split("\n")[0]
        for way in WAYS:
            scenario(
                f"{identifier}-under-{way}",
                rule=rule,
                level=level,
                transform=transform.replace("{way}", way),
                needs=(*nesting.needs(transform.replace("{way}", way)), *needs),
                expects=expects.replace("{way}", way),
                source=source,
                summary=summary.replace("{way}", way),
                varies=varies,
                native=native.replace("{way}", way),
            )(functools.partial(function, way=way))
        return function

    return enter


def trace(h: Any, way: str, fun: Callable[..., Any]) -> Any:
    """Return the function under `jit` or `compile`."""
    return getattr(h, way)(fun)
