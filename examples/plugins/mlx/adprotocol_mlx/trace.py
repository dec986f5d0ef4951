"""What MLX tells about the transformation that is active in this thread.

Python has no function for it. But ``mx.eval`` goes through what it is given before
it computes anything, and the errors with which it refuses an array without data
differ. All questions here end in such an error, so none of them computes or waits.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

import mlx.core as mx

from adprotocol_mlx.graph import is_leaf

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class _Escape(Exception):  # noqa: N818  (it reports nothing wrong)
    """Leave a vmap before it is over."""


def _placeholder(*, marked: bool) -> mx.array:
    """Return what stands for an argument inside vmap. It has no data; vmap takes the mark off at its end."""
    found: list[mx.array] = []

    def body(x: mx.array) -> mx.array:
        found.append(x)
        if marked:
            raise _Escape
        return x

    with contextlib.suppress(_Escape):
        mx.vmap(body)(mx.zeros((1,)))
    return found[0]


# Inside a transformation eval raises ValueError for the first and RuntimeError for the second, outside RuntimeError
# for both.
_MARKED, _UNMARKED = _placeholder(marked=True), _placeholder(marked=False)
_ZERO = mx.zeros(())
mx.eval(_ZERO)


def _refusal(evaluate: Callable[[mx.array], None], array: mx.array) -> type[Exception]:
    try:
        evaluate(array)
    except (ValueError, RuntimeError) as error:
        return ValueError if isinstance(error, ValueError) else RuntimeError
    msg = "mx.eval computed an array without data; this version of MLX is not the one that adprotocol_mlx knows"
    raise AssertionError(msg)


def is_tracing() -> bool:
    """Return whether grad, vjp, jvp, vmap or compile is tracing a function, or applying a rule, in this thread."""
    return _refusal(mx.eval, _MARKED) is ValueError


def is_marked(array: mx.array) -> bool:
    """Return whether MLX marks an array as traced; inside a vjp rule everything is marked.

    The mark says little. MLX takes it off what an inner derivative closes over, and
    leaves it on gradients of derivatives that are over.
    """
    # async_eval looks at the mark of what it is given first, then at the first thing that goes in.
    return _refusal(mx.async_eval, _behind(_UNMARKED, array)) is ValueError


def is_applying_vjp() -> bool:
    """Return whether MLX is applying the vjp rule of an operation."""
    return is_marked(_ZERO)


def is_open(array: mx.array) -> bool:
    """Return whether an array depends on what stands for an argument of vmap or compile and has no data yet."""
    if not is_leaf(array):
        # eval cuts the graph of what it finds computed and unmarked: let it find a clone.
        cloned = _clone(array)
        if cloned is None:
            return True
        array = cloned
    return (
        _refusal(mx.eval, _behind(array, _MARKED)) is RuntimeError
        or _refusal(mx.eval, _behind(array, _UNMARKED)) is ValueError
    )


def _clone(array: mx.array) -> mx.array | None:
    """Return a copy of the graph of an array, or None if compilation, by which it is made, is off or fails."""
    argument: list[mx.array] = []

    def body(zero: mx.array) -> mx.array:
        argument.append(zero)
        return _behind(array, zero)

    try:
        clone: mx.array = mx.compile(body)(_ZERO)
    except ValueError:  # it reads scalars, and one of them has no data
        return None
    # Compiled, the function gets a placeholder. Inside a vjp rule, or where it is switched off, it gets the zero.
    compiled = not is_applying_vjp() and is_open(argument[0])
    return clone if compiled else None


def _behind(array: mx.array, other: mx.array) -> mx.array:
    """Return an array that is evaluated after both, in this order."""
    return mx.depends([array], [other])[0]


def keeping_graphs(function: Callable[[], T]) -> T:
    """Call a function that evaluates; the arrays keep the graphs by which an outer derivative goes through them.

    After an inner derivative MLX has forgotten that what this closes over is
    differentiated outside. Evaluated then, an array loses its graph, and the outer
    derivative is zero, with no error. While MLX applies a vjp rule it keeps all graphs.
    """
    results: list[T] = []
    identity: Any = mx.custom_function(lambda x: x)

    @identity.vjp  # type: ignore[untyped-decorator]
    def rule(_primal: mx.array, cotangent: mx.array, _output: mx.array) -> mx.array:
        results.append(function())
        return cotangent

    mx.vjp(identity, [_ZERO], [_ZERO])
    return results[0]


def has_values(arrays: list[mx.array]) -> bool:
    """Return whether arrays can be computed; to be asked in a vjp rule, where they keep their graphs."""
    try:
        mx.eval(*arrays)
    except (ValueError, RuntimeError):
        return False
    return True
