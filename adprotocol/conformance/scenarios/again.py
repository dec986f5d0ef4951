"""Scenarios asked again: those of `value_and_grad` by a pull of `vjp`, those of forward mode by `jvp`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any
from unittest import mock

import adprotocol
from adprotocol.conformance.scenario import registered, scenario
from adprotocol.conformance.scenarios.jvp import push

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Scenario

# What `vjp` does otherwise: it has no `argnums`, pulls from vectors, and looks at the primals alone for the framework
# and, under the system's switch, for parameters.
APART = (
    "metadata", "model-by-keyword", "vector-output", "aux-without-pair", "framework-of-arguments",
    "answers-under-the-switch",
)  # fmt: skip
# The rule of a scenario that is asked again, by what it was, if it is not that of gradients.
RULES = {"T6": "J16", "T9": "J6", "T14": "J11"}


def of_vjp(
    fun: Callable[..., Any], *, argnums: int | Sequence[int] = 0, has_aux: bool = False, **chosen: Any
) -> Callable[..., Any]:
    """Return what `value_and_grad` does, by `vjp` and a pull of 1."""

    @functools.wraps(fun)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        numbers = (argnums,) if isinstance(argnums, int) else argnums
        positions = [number % len(args) for number in numbers]
        rest = {place: arg for place, arg in enumerate(args) if place not in positions}

        def of_primals(*primals: Any) -> Any:
            given = rest | dict(zip(positions, primals, strict=True))
            return fun(*(given[place] for place in sorted(given)), **kwargs)

        primals = [args[position] for position in positions]
        vjp: Any = adprotocol.vjp
        value, pull, *aux = vjp(of_primals, *primals, has_aux=has_aux, **chosen)
        gradients = pull(1.0)
        return (value, *aux) if has_aux else value, gradients[0] if isinstance(argnums, int) else gradients

    return differentiated


def grad_of_vjp(fun: Callable[..., Any], *, has_aux: bool = False, **chosen: Any) -> Callable[..., Any]:
    """Return what `grad` does, by `vjp` and a pull of 1."""

    @functools.wraps(fun)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        value, gradient = of_vjp(fun, has_aux=has_aux, **chosen)(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return differentiated


def by_vjp(h: Checked, asked: Callable[[Checked], None]) -> None:
    """Run a scenario of `value_and_grad` whose gradients are pulled back by `vjp`."""
    with mock.patch.multiple(adprotocol, grad=grad_of_vjp, value_and_grad=of_vjp):
        asked(h)


def by_jvp(h: Checked, asked: Callable[[Checked], None]) -> None:
    """Run a scenario of forward mode with `adprotocol.jvp` in place of the system's own."""

    def jvp(fun: Callable[[Any], Any], primal: Any, tangent: Any) -> tuple[Any, Any]:
        value, moved = push(h, fun, (primal,), (tangent,))
        return value, moved

    with mock.patch.dict(h.variant, jvp=jvp):
        asked(h)


@functools.cache
def enter() -> None:
    """Enter them, once all others are entered."""
    for made in registered().values():
        if made.hook == "value_and_grad" and made.name not in APART:
            _enter(made, f"vjp/{made.name}", by_vjp, RULES.get(made.rule, "J4"), "By `vjp` and a pull of 1")
        elif made.transform == "jvp" and made.varies:
            _enter(made, f"jvp/{made.hook.replace('_', '-')}-{made.name}", by_jvp, "J10", "By `adprotocol.jvp`")


def _enter(made: Scenario, identifier: str, again: Callable[..., None], rule: str, how: str) -> None:
    data = {name: getattr(made, name) for name in ("level", "needs", "transform", "source", "native")}
    description = f"{how}: {made.description[0].lower()}{made.description[1:]}"
    scenario(identifier, {"asked": made.function}, rule=rule, description=description, **data)(again)
