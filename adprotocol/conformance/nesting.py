"""Nestings: transformations as text, such as "grad of jit of vmap", applied to a function, and the closed form.

The outermost transformation comes first. Each maps a function from scalar to scalar
to another one, so that they nest in any order: `vmap` runs over x and 2 x and adds
the results, `scan` and `while_loop` add the function once and twice. The expected
result follows from the derivatives of the innermost function by the chain rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adprotocol.conformance.harness import HIGHER_ORDER, KNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol.conformance.harness import Harness

    # From a point to the derivatives of a function there, of order 0, 1, 2, ...
    Table = Callable[[float], Sequence[float]]

DERIVATIVES = ("grad", "jvp")
OTHERS = ("jit", "compile", "vmap", "checkpoint", "scan")
PAIRED = (*DERIVATIVES, *OTHERS)
TRANSFORMS = (*PAIRED, "while_loop")

# vmap runs over these multiples of x, and scan adds with these weights.
BATCH = (1.0, 2.0)
WEIGHTS = (1.0, 2.0)


def parse(nesting: str) -> tuple[str, ...]:
    """Return the transformations of "grad of jit", the outermost first."""
    return tuple(nesting.split(" of ")) if nesting else ()


def needs(nesting: str) -> tuple[str, ...]:
    """Return the capabilities that a nesting needs, each once; parts that are no capability, such as "import", none.

    >>> from adprotocol.conformance import nesting
    >>> nesting.needs("grad of grad of custom rule")
    ('grad', 'custom_rule', 'grad of grad')
    """
    parts = [part.replace(" ", "_") for part in parse(nesting)]
    higher = [HIGHER_ORDER] if parts.count("grad") > 1 else []
    return tuple(dict.fromkeys([*(part for part in parts if part in KNOWN), *higher]))


def contains(nesting: str, inner: str) -> bool:
    """Return whether the transformations of `inner` are among those of `nesting`, next to each other and in order.

    >>> from adprotocol.conformance import nesting
    >>> nesting.contains("jit of grad of vmap", "grad of vmap"), nesting.contains("grad of jit of vmap", "grad of vmap")
    (True, False)
    """
    return f" of {inner} of " in f" of {nesting} of "


def native(nesting: str) -> str:
    """Return the nesting if the system itself can be tried under it, alone on x ** 4; else an empty text."""
    parts = parse(nesting)
    return nesting if parts and set(parts) <= {*TRANSFORMS} else ""


def differentiates(nesting: str) -> bool:
    """Return whether a derivative is among the transformations."""
    return any(transform in DERIVATIVES for transform in parse(nesting))


def pairs() -> list[str]:
    """Return every transformation of every transformation, both orders included; without `while_loop`, a scan's kin."""
    return [f"{outer} of {inner}" for outer in PAIRED for inner in PAIRED]


def apply(h: Harness, nesting: str, fun: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `fun` under the transformations of `nesting`, a function from a scalar to a scalar."""
    for transform in reversed(parse(nesting)):
        fun = _SCALAR[transform](h, fun) if transform in _SCALAR else getattr(h, transform)(fun)
    return fun


def _jvp(h: Harness, fun: Callable[[Any], Any]) -> Callable[[Any], Any]:
    one = h.array(1.0)
    return lambda x: h.jvp(fun, x, one)[1]


def _vmap(h: Harness, fun: Callable[[Any], Any]) -> Callable[[Any], Any]:
    batch = h.array(list(BATCH))

    def summed(x: Any) -> Any:
        results = h.vmap(fun)(batch * x)
        return results[0] + results[1]

    return summed


def _scan(h: Harness, fun: Callable[[Any], Any]) -> Callable[[Any], Any]:
    weights = h.array(list(WEIGHTS))

    def summed(x: Any) -> Any:
        (_, total), _ = h.scan(lambda carry, a: ((carry[0], carry[1] + a * fun(carry[0])), a), (x, 0.0 * x), weights)
        return total

    return summed


def _while_loop(h: Harness, fun: Callable[[Any], Any]) -> Callable[[Any], Any]:
    count = h.array(0.0)

    def step(state: Any) -> Any:
        i, x, total = state
        return i + 1.0, x, total + (i + 1.0) * fun(x)

    def summed(x: Any) -> Any:
        return h.while_loop(lambda state: state[0] < float(len(WEIGHTS)), step, (count, x, 0.0 * x))[2]

    return summed


# The transformations that do not map a function of a scalar to another by themselves.
_SCALAR = {"jvp": _jvp, "vmap": _vmap, "scan": _scan, "while_loop": _while_loop}


def expected(nesting: str, table: Table) -> Table:
    """Return the derivatives of the transformed function from those of the innermost one.

    >>> from adprotocol.conformance import nesting
    >>> cube = lambda x: [x**3, 3 * x**2, 6 * x, 6]
    >>> nesting.expected("grad of vmap", cube)(2.0)[0]  # 3 * 2**2 + 2 * 3 * 4**2
    108.0
    """
    for transform in reversed(parse(nesting)):
        table = _expected(transform, table)
    return table


def _expected(transform: str, table: Table) -> Table:
    if transform in DERIVATIVES:
        return lambda x: table(x)[1:]
    if transform == "vmap":
        # The k-th derivative of f(s x) is s^k times that of f at s x.
        return lambda x: [
            sum(scale**order * row[order] for scale, row in zip(BATCH, rows, strict=True))
            for rows in [[table(scale * x) for scale in BATCH]]
            for order in range(len(rows[0]))
        ]
    if transform in ("scan", "while_loop"):
        return lambda x: [sum(WEIGHTS) * derivative for derivative in table(x)]
    return table


def value_before(nesting: str) -> str | None:
    """Return the nesting whose value an outermost derivative computes too; None if the outermost is none."""
    outer, _, inner = nesting.partition(" of ")
    return inner if outer in DERIVATIVES else None
