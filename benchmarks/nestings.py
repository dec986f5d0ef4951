"""Who answers rightly: `within_gradient` and PennyLane's `in_backprop` in nestings of JAX's transformations.

A program is a sequence of transformations around ``exp(2 x) exp(3 c)``, where `x` is differentiated and `c` passes
through beside it, as data does. Each derivative through `x` doubles the result, each through `c` would triple it: so
the result itself tells through which of the two a derivative came out, with nobody asked. Then the program asks about
each of them and branches on the answers, and a factor in each branch tells which ran.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from row import Row

from adprotocol import cond, within_gradient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Program = Callable[[Any, Any], Any]

DEPTH = 3
POINT = (0.4, 0.3)
ASKED = ("the differentiated value", "one that passes beside it")
DERIVATIVE = (2, 3)  # the factor that a derivative through each brings
# The factors of the branches; no derivative brings them.
TRUE, FALSE = (5, 11), (7, 13)


def _jvp(f: Program) -> Program:
    return lambda x, c: jax.jvp(lambda x: f(x, c), (x,), (jnp.ones_like(x),))[1]


def _vmap(f: Program) -> Program:
    return lambda x, c: jax.vmap(f)(jnp.stack([x, x]), jnp.stack([c, c]))[0]


def _scan(f: Program) -> Program:
    def scanned(x: Any, c: Any) -> Any:
        return jax.lax.scan(lambda carry, row: (carry, f(*row)), None, (x[None], c[None]))[1][0]

    return scanned


TRANSFORMS: dict[str, Callable[[Program], Program]] = {
    "grad": jax.grad,
    "jvp": _jvp,
    "jit": jax.jit,
    "vmap": _vmap,
    "checkpoint": jax.checkpoint,
    "scan": _scan,
}


def nestings() -> Iterator[tuple[str, ...]]:
    """Return every sequence of at most `DEPTH` transformations, the outermost first."""
    for depth in range(DEPTH + 1):
        yield from itertools.product(TRANSFORMS, repeat=depth)


def _operation(x: Any, c: Any) -> Any:
    return jnp.exp(DERIVATIVE[0] * x) * jnp.exp(DERIVATIVE[1] * c)


def _ours(*values: Any) -> Any:
    result = _operation(*values)
    for value, true, false in zip(values, TRUE, FALSE, strict=True):
        result = cond(within_gradient(value), lambda y, true=true: true * y, lambda y, false=false: false * y, result)
    return result


def _theirs(in_backprop: Callable[[Any], bool]) -> Program:
    def program(*values: Any) -> Any:
        result = _operation(*values)
        for value, true, false in zip(values, TRUE, FALSE, strict=True):
            result = result * (true if in_backprop(value) else false)
        return result

    return program


def _run(nesting: tuple[str, ...], program: Program) -> int:
    """Return the whole number by which the result differs from the operation's."""
    for name in reversed(nesting):
        program = TRANSFORMS[name](program)
    values = [jnp.asarray(number) for number in POINT]
    scale = float(program(*values) / _operation(*values))
    assert abs(scale - round(scale)) < 1e-6, (nesting, scale)
    return round(scale)


def rows(in_backprop: Callable[[Any], bool]) -> list[Row]:
    """Count the right answers about each value over all nestings."""
    right: Counter[tuple[str, str]] = Counter()
    tried = list(nestings())
    with jax.enable_x64(True):  # noqa: FBT003  (JAX's)
        for nesting in tried:
            bare = _run(nesting, _operation)
            for who, program in (("ours", _ours), ("theirs", _theirs(in_backprop))):
                result = _run(nesting, program)
                for asked, derivative, true, false in zip(ASKED, DERIVATIVE, TRUE, FALSE, strict=True):
                    said = result % true == 0
                    assert said is not (result % false == 0), (nesting, result)
                    right[who, asked] += said is (bare % derivative == 0)
    return [
        Row(
            f"right answers in {len(tried)} nestings of JAX's transformations, about {asked}",
            str(right["ours", asked]),
            f"qml.math.in_backprop: {right['theirs', asked]}",
            target="all",
            met=right["ours", asked] == len(tried),
        )
        for asked in ASKED
    ]
