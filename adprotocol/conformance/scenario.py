"""A scenario: one question to an AD system, as data, and the function that asks it.

The data are what reports, documentation and selection need: a stable id, the rule
under test, the level, the capabilities that it needs, and its source. The function
gets an `adprotocol.conformance.checks.Checked` and raises if the answer is wrong.
"""

from __future__ import annotations

import functools
import inspect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack

from adprotocol.conformance import nesting
from adprotocol.conformance.harness import KNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

# Without it a user's result is wrong: a failure fails the suite.
MUST = "MUST"
# Expected by users; a plugin with a reason to differ declares a divergence, else a failure fails the suite.
SHOULD = "SHOULD"
# Good to have: a failure is reported, and fails the suite only if it is silent.
MAY = "MAY"
LEVELS = (MUST, SHOULD, MAY)

HOOKS = (
    "within_gradient", "non_differentiable", "prevent_gradient", "is_concrete", "trainable", "value_and_grad", "vjp",
    "jvp", "jacobian", "cond", "custom_derivative", "host_function", "plugins",
)  # fmt: skip

_COUNTS = {"W": 9, "N": 5, "K": 6, "T": 14, "C": 11, "D": 17, "H": 4, "J": 16, "P": 7}
RULES = tuple(f"{kind}{i}" for kind, count in _COUNTS.items() for i in range(1, count + 1))

# The two ways to trace a function.
WAYS = ("jit", "compile")

_ID = re.compile(r"[a-z_]+/[a-z0-9]+(?:-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Hold the data of one scenario and its function.

    Without the capabilities in `needs` it does not apply. `transform` is the row of
    the support matrix: transformations, the outermost first, such as "grad of jit", or
    empty. `native` is the nesting under which the system itself is tried if the
    scenario fails, where that is another. `varies` says whether it also runs with each variant that a harness has of
    the capabilities in `needs`. `description` is the docstring: what is asked, and the result in closed form.
    """

    id: str
    level: str = MUST
    rule: str
    needs: tuple[str, ...]
    transform: str = ""
    since: str = "0.1"
    source: str
    description: str
    varies: bool = False
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

    @property
    def summary(self) -> str:
        """Return the first line of the description."""
        return self.description.partition("\n")[0]


_SCENARIOS: dict[str, Scenario] = {}


def scenario(
    identifier: str, arguments: Mapping[str, Any] | None = None, **data: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register the decorated function as a scenario, with the fields of `Scenario` as data.

    The function gets the harness and `arguments`. Unless given, `needs` and `native` follow from `transform`, and the
    description is the docstring, where a text among the arguments replaces its name in braces.
    Raises ValueError for data that reports could not show: a malformed or duplicate
    id, an unknown hook, rule, level or capability, an empty text.
    """

    def enter(function: Callable[..., None]) -> Callable[..., None]:
        known = dict(arguments or {})
        transform, needs = data.get("transform", ""), data.get("needs")
        made = Scenario(
            id=identifier,
            function=functools.partial(function, **known) if known else function,
            **{
                **data,
                "needs": nesting.needs(transform) if needs is None else tuple(needs),
                "native": data.get("native") or transform,
                "description": _filled(inspect.cleandoc(data.get("description") or function.__doc__ or ""), known),
            },
        )
        _check(made)
        _SCENARIOS[identifier] = made
        return function

    return enter


def _filled(text: str, words: Mapping[str, Any]) -> str:
    """Return a text with each word in braces replaced, and other braces as they are."""
    for word, value in words.items():
        if isinstance(value, str):
            text = text.replace(f"{{{word}}}", value)
    return text


class Metadata(TypedDict, total=False):
    """The arguments of a decorator that `defaults` returns."""

    rule: str
    source: str
    level: str
    needs: Iterable[str] | None
    also_needs: Iterable[str]
    transform: str | tuple[str, ...]
    varies: bool
    native: str
    params: Mapping[str, Mapping[str, Any]]


class Decorator(Protocol):
    """What `defaults` returns."""

    def __call__(
        self, name: str = ..., **own: Unpack[Metadata]
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Return a decorator."""


def defaults(hook: str, **common: Unpack[Metadata]) -> Decorator:
    """Return the decorator of a module: `scenario` for one hook, with defaults for its arguments.

    The id is the hook and the name of the function, unless its last part is given first. `also_needs`, and the `needs`
    of the module, add to the capabilities that follow from `transform`.

    A `transform` with "{way}" in it enters the function under `jit` and under `compile`; the function takes one of
    these words as `way`. A tuple of nestings enters it under each; the function takes the nesting as `transforms`.
    `params` enters it once for each name, which replaces "{name}" in the id and in the docstring, with data of its own
    and further arguments of the function. Texts among the arguments may stand in braces in docstring and `native`.
    """

    def decorate(name: str = "", **own: Unpack[Metadata]) -> Callable[[Callable[..., None]], Callable[..., None]]:
        shared: dict[str, Any] = {**common, **own}
        params = shared.pop("params", {"": {}})

        def enter(function: Callable[..., None]) -> Callable[..., None]:
            last = name or function.__name__.replace("_", "-")
            for word, values in params.items():
                data = shared | {key: value for key, value in values.items() if key in Metadata.__annotations__}
                arguments = {key: value for key, value in values.items() if key not in Metadata.__annotations__}
                transform, also_needs = data.pop("transform", ""), data.pop("also_needs", ())
                if "needs" not in own and "needs" not in values:
                    also_needs = (*(common.get("needs") or ()), *also_needs)
                description = _filled(function.__doc__ or "", {"name": word.replace("-", " ")})
                for suffix, nested, argument in _nestings(transform):
                    more: dict[str, Any] = {
                        "native": _filled(data.get("native", ""), argument),
                        "description": description,
                    }
                    if also_needs:
                        more["needs"] = tuple(dict.fromkeys([*nesting.needs(nested), *also_needs]))
                    identifier = f"{hook}/{last.replace('{name}', word)}{suffix}"
                    scenario(identifier, arguments | argument, **(data | more), transform=nested)(function)
            return function

        return enter

    return decorate


def _nestings(transform: str | tuple[str, ...]) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield for each nesting the end of the id, the nesting, and what the function takes."""
    if isinstance(transform, tuple):
        for nested in transform:
            yield f"-{nested.replace(' ', '-').replace('_', '-')}", nested, {"transforms": nested}
    elif "{way}" in transform:
        for way in WAYS:
            yield f"-under-{way}", transform.replace("{way}", way), {"way": way}
    else:
        yield "", transform, {}


def _check(made: Scenario) -> None:
    problems = [
        (not _ID.fullmatch(made.id), "its id is not of the form hook/words-with-hyphens"),
        (made.id in _SCENARIOS, "its id is taken"),
        (made.hook not in HOOKS, f"its hook is none of {', '.join(HOOKS)}"),
        (made.level not in LEVELS, f"its level is none of {', '.join(LEVELS)}"),
        (made.rule not in RULES, f"its rule {made.rule!r} is not known"),
        (not set(made.needs) <= set(KNOWN), f"it needs an unknown capability among {made.needs}"),
        (not made.description.strip() or not made.source.strip(), "it lacks a docstring or a source"),
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
