"""The transposition of a rule, from which the rule for the other mode follows: it has to be linear in what flows."""

from __future__ import annotations

import contextlib
import threading

from adprotocol._dispatch.dtype import dtype_name
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import RuleError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Protocol

    class Rule(Protocol):
        """An `adprotocol.extend.DerivativeRule`, or what a plugin makes of it."""

        name: str
        has_vjp: bool
        linear: set[tuple[Any, ...]] | None


_UNDER_WAY = threading.local()
# One is nested in another for each order of the derivative. PyTorch's engine goes on in another thread at a depth of
# 60, and each takes some 60 of the frames that Python allows.
_DEEPEST = 10


@contextlib.contextmanager
def transposing(rule: Rule) -> Iterator[None]:
    """Refuse a rule for reverse mode alone, and one whose transpose needs its own transpose; for a ``with`` block."""
    name = rule.name
    if rule.linear is None:
        msg = (
            f"{name} was declared with reverse_only=True, so its rule is not transposed for forward mode, which jvp, "
            "jacfwd and hessian use; use reverse mode, or give it a rule with defjvp and leave reverse_only=True out"
        )
        raise RuleError(msg)
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


def check_transpose(  # noqa: PLR0913, PLR0917
    rule: Rule,
    needed: Sequence[bool],
    linear: Callable[[list[Any]], list[Any]],
    transpose: Callable[[list[Any]], list[Any]],
    points: Sequence[Any],
    targets: Sequence[Any],
    probe: Callable[[Any, float], Any],
    holds: Callable[[Any], bool],
) -> None:
    """Raise `RuleError` if a rule that was transposed at zeros is not linear: made constant, clipped, normalised.

    It makes the test of adjoints, ``<linear(v), w> == <v, transpose(w)>``, at one `v` and one `w`. As it runs the rule
    again, it does so once for each rule and choice of arguments. Not for values that a trace hides.

    Args:
        rule: the rule.
        needed: which arrays of the call are differentiated.
        linear: the rule, from arrays like `points` to arrays like `targets`.
        transpose: its transpose at zeros, from arrays like `targets` to arrays like `points`.
        points: the arrays that flow in.
        targets: the arrays that come out.
        probe: returns an array like a given one, with ``cos(i + shift)`` as its element number i.
        holds: tells whether a condition holds that was computed from sums, for all rows of a batch.
    """
    key = rule.has_vjp, tuple(needed)
    if rule.linear is None or key in rule.linear:
        return
    # Large, so that what clips at usual values shows.
    moved = [1e3 * probe(point, 0.0) for point in points]
    weights = [probe(target, 0.5) for target in targets]
    terms = [(y * w).real for y, w in zip(linear(moved), weights, strict=True)]
    back = [(v * g).real for v, g in zip(moved, transpose(weights), strict=True)]
    size = sum(abs(term).sum() for term in terms)
    shift = sum(abs(y * w).sum() for y, w in zip(linear([0.0 * v for v in moved]), weights, strict=True))
    error = abs(sum(term.sum() for term in terms) - sum(term.sum() for term in back))
    # A rule that gives infinity, or zero, at these arguments tells nothing.
    if not holds(size < float("inf")):
        return
    is_half = any(dtype_name(getattr(one, "dtype", None)) in ("float16", "bfloat16") for one in (*points, *targets))
    if not (holds(error <= size * (0.1 if is_half else 1e-3)) and holds(shift <= 1e-6 * size)):
        raise not_linear(rule)
    if holds(size > 0.0):
        rule.linear.add(key)


def not_linear(rule: Rule) -> RuleError:
    """Return the error for a rule that is to be transposed, but is not linear in what flows."""
    given, flowing = ("vjp", "cotangent") if rule.has_vjp else ("jvp", "tangents")
    return RuleError(
        f"the {given} rule of {rule.name} is needed in the other mode, but it is not linear in the {flowing}: it makes "
        "a constant of what flows (detach, stop_gradient, non_differentiable, no_grad), clips or normalises it. Give "
        "the function both rules, defvjp and defjvp, or declare the rule for reverse mode alone, "
        "custom_derivative(reverse_only=True)"
    )
