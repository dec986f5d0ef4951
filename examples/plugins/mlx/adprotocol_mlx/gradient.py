"""`value_and_grad` by ``mx.vjp``.

``mx.value_and_grad`` would stop the derivatives of auxiliary output, those of an
outer level too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx

from adprotocol.extend import check_output

if TYPE_CHECKING:
    from collections.abc import Callable


def value_and_grad(fun: Callable[[list[Any]], tuple[Any, Any]], leaves: list[Any]) -> tuple[Any, Any, list[Any]]:
    """Return value, auxiliary output and gradients, from one run of the function."""
    results: list[tuple[Any, Any]] = []

    def run(*tracked: mx.array) -> mx.array:
        value, aux = fun(list(tracked))
        check_output(value, value)
        results.append((value, aux))
        return value if isinstance(value, mx.array) else mx.array(value)

    # A bare argument of an outer derivative would be replaced by what it is a copy of, and the outer derivative lost,
    # once an inner derivative has closed over it.
    primals = [renamed(leaf if isinstance(leaf, mx.array) else mx.array(leaf)) for leaf in leaves]
    (value,), gradients = mx.vjp(run, primals, [mx.ones(())])
    value_given, aux = results[0]
    return (value if isinstance(value_given, mx.array) else value_given), aux, gradients


def renamed(array: mx.array) -> mx.array:
    """Return the same values as the result of another operation, which every transformation knows."""
    return mx.squeeze(mx.expand_dims(array, 0), 0)
