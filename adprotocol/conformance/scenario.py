"""A scenario: one question to an AD system, as data, and the function that asks it.

The data are what reports, documentation and selection need: a stable id, the rule
under test, the level, the capabilities that it needs, and its source. The function
gets an `adprotocol.conformance.checks.Checked` and raises if the answer is wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adprotocol.conformance import nesting
from adprotocol.conformance.harness import KNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# Without it a user's result is wrong: a failure fails the suite.
MUST = "MUST"
# Expected by users; a plugin with a reason to differ declares a divergence, else a failure fails the suite.
SHOULD = "SHOULD"
# Good to have: a failure is reported, and fails the suite only if it is silent.
MAY = "MAY"
LEVELS = (MUST, SHOULD, MAY)

HOOKS = (
    "within_gradient", "non_differentiable", "prevent_gradient", "trainable", "value_and_grad", "cond", "plugins",
)  # fmt: skip

RULES = (
    *(f"W{i}" for i in range(1, 10)),
    *(f"N{i}" for i in range(1, 6)),
    *(f"T{i}" for i in range(1, 13)),
    *(f"C{i}" for i in range(1, 9)),
    *(f"P{i}" for i in range(1, 7)),
)

_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)+")
_ID = re.compile(r"[a-z_]+/[a-z0-9]+(?:-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Hold the data of one scenario and its function.

    Without the capabilities in `needs` it does not apply. `transform` is the row of
    the support matrix: transformations, the outermost first, such as "grad of jit", or
    empty. `native` is the nesting under which the system itself is tried if the
    scenario fails, where that is another. `varies` says whether it also runs with each variant that a harness has of
    the capabilities in `needs`.
    """

    id: str
    level: str
    rule: str
    needs: tuple[str, ...]
    transform: str
    since: str
    source: str
    expects: str
    summary: str
    varies: bool
    native: str
    function: Callable[[Any], None]

    @property
    def hook(self) -> str:
        """Return the part of the id before the slash."""
        return self.id.partition("/")[0]

    @property
    def name(self) -> str:
        """Return the part of the id after the slash."""
        return self.id.partition("/")[2]


_SCENARIOS: dict[str, Scenario] = {}


def scenario(  # noqa: PLR0913  (one for each field of a scenario)
    identifier: str,
    *,
    rule: str,
    expects: str,
    source: str,
    level: str = MUST,
    needs: Iterable[str] | None = None,
    transform: str = "",
    since: str = "0.1",
    summary: str = "",
    varies: bool = False,
    native: str = "",
) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Register the decorated function as a scenario.

    Unless given, `needs` follows from `transform`, and the summary is the docstring.
    Raises ValueError for data that reports could not show: a malformed or duplicate
    id, an unknown hook, rule, level or capability, an empty text.
    """

    def enter(function: Callable[[Any], None]) -> Callable[[Any], None]:
        # The docstring of a partial function is that of `functools.partial`.
        documented = getattr(function, "func", function)
        text = (summary or documented.__doc__ or "").strip().split("\n")[0]
        made = Scenario(
            id=identifier,
            level=level,
            rule=rule,
            needs=nesting.needs(transform) if needs is None else tuple(needs),
            transform=transform,
            since=since,
            source=source,
            expects=expects,
            summary=text,
            varies=varies,
            native=native or transform,
            function=function,
        )
        _check(made)
        _SCENARIOS[identifier] = made
        return function

    return enter


def _check(made: Scenario) -> None:
    texts = (made.summary, made.expects, made.source)
    problems = [
        (not _ID.fullmatch(made.id), "its id is not of the form hook/words-with-hyphens"),
        (made.id in _SCENARIOS, "its id is taken"),
        (made.hook not in HOOKS, f"its hook is none of {', '.join(HOOKS)}"),
        (made.level not in LEVELS, f"its level is none of {', '.join(LEVELS)}"),
        (made.rule not in RULES, f"its rule {made.rule!r} is not known"),
        (not set(made.needs) <= set(KNOWN), f"it needs an unknown capability among {made.needs}"),
        (not all(text.strip() for text in texts), "it lacks a summary, what it expects or a source"),
        (not _VERSION.fullmatch(made.since), f"since is {made.since!r}, and no version such as 0.1"),
        (made.varies and not made.needs, "it varies with capabilities, and needs none"),
    ]
    for wrong, what in problems:
        if wrong:
            msg = f"scenario {made.id!r}: {what}"
            raise ValueError(msg)


def registered() -> dict[str, Scenario]:
    """Return the scenarios of the modules imported so far by id, in the order of `HOOKS`, then of modules."""
    return dict(sorted(_SCENARIOS.items(), key=lambda item: (HOOKS.index(item[1].hook), _module(item[1]))))


def _module(made: Scenario) -> str:
    return str(getattr(made.function, "func", made.function).__module__)
