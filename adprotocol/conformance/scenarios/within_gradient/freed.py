"""What a question leaves behind: no gradient on the value, and no reference to it or to its graph."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.checks import Absent
from adprotocol.conformance.scenario import SHOULD, defaults

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


scenario: Decorator = defaults(
    "within_gradient",
    level=SHOULD,
    rule="W7",
    source="PyTorch: a graph lives as long as what refers to it: https://docs.pytorch.org/docs/stable/notes/autograd.html",
)


_ARGUMENT = "a question about the argument"


def assert_freed(
    h: Checked,
    transform: Callable[[Callable[[Any], Any]], Any],
    uses: Sequence[tuple[str, Callable[[Any], Any]]],
    native: Callable[[Callable[[Any], Any]], Any] | None = None,
) -> None:
    """Check that results are freed behind a transformation in which each has one use, if those without are freed."""
    unused = [(what, lambda _: None) for what, _ in uses]
    own: list[str] = []  # that the system itself keeps
    for run, each in ((native or transform, unused), (transform, uses)):
        kept: dict[str, Any] = {}

        def f(x: Any, each: Any = each, kept: dict[str, Any] = kept) -> Any:
            total = x
            kept[_ARGUMENT] = weakref.ref(x)
            if each is uses:
                adprotocol.within_gradient(x)
            for what, use in each:
                y = x * x
                kept[what] = weakref.ref(y)
                use(y)
                total = total + y
            return total

        try:
            run(f)
        except TypeError as error:
            msg = f"a reference to a value cannot be weak: {error}"
            raise Absent(msg) from error
        gc.collect()
        alive = [what for what, reference in kept.items() if reference() is not None and what not in own]
        if each is unused:
            own = alive
            if own not in ([], [_ARGUMENT]):
                msg = "the system itself keeps a result alive"
                raise Absent(msg)
            continue
        h.check(not alive, f"what an operation gave is still alive after {', '.join(alive)}")


_USES: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("a question", adprotocol.within_gradient),
    ("a question about a container", lambda y: adprotocol.within_gradient({"y": [y]})),
    ("an explanation", adprotocol.explain),
    ("a constant", adprotocol.non_differentiable),
    ("a branch", lambda y: adprotocol.cond(True, lambda y: y + 1.0, lambda y: y, y)),  # noqa: FBT003
)


@scenario(transform="grad", needs=("grad",))
def freed_behind_a_gradient(h: Checked) -> None:
    """Nothing that was asked about in a gradient stays alive.

    x x is freed behind the gradient in which it was asked about, stopped and branched on.
    """
    x = h.array(2.0)
    assert_freed(h, lambda f: h.grad(f)(x), _USES)


@scenario(transform="jvp", needs=("jvp",))
def freed_behind_forward_mode(h: Checked) -> None:
    """Nothing that was asked about in forward mode stays alive.

    x x is freed behind the derivative in which it was asked about, stopped and branched on.
    """
    x, one = h.array(2.0), h.array(1.0)
    assert_freed(h, lambda f: h.jvp(f, x, one), _USES)


@scenario(transform="grad", needs=("grad", "parameter", "parameter_grad"))
def asking_leaves_no_gradient(h: Checked) -> None:
    """A question about a parameter, or about a result, fills no gradient and keeps nothing alive.

    Expect a parameter has no gradient of its own behind questions about it, and p p, asked about, is freed.
    """
    p, x = h.parameter(2.0, trains=True), h.array(1.0)
    before = getattr(p, "grad", None)
    assert_freed(h, lambda f: h.parameter_grad(lambda: f(p * x), p), _USES)
    for what, use in _USES:
        use(p)
        h.assert_is(getattr(p, "grad", None), before, f"the gradient of its own that a parameter has after {what}")
    kept: list[Any] = []

    def f() -> Any:
        y = p * p
        adprotocol.within_gradient(y)
        kept.append(getattr(y, "grad", None) if not hasattr(y, "is_leaf") else None)
        return y

    h.assert_equal(h.parameter_grad(f, p), 4.0, "the gradient")
    h.assert_is(kept[0], None, "the gradient of its own that a result has after a question")


@scenario(transform="{way}")
def freed_behind_a_compiled_function(h: Checked, way: str) -> None:
    """A compiled function with a question in it keeps nothing alive that it would not keep without.

    An array closed over by a function under {way} is freed behind that, asked about or not.
    """

    def closed_over(fun: Callable[[Any], Any]) -> Any:
        c = h.array(3.0)
        h.trace(way, lambda x: fun(c * x))(h.array(2.0))
        return weakref.ref(c)

    for asks, fun in ((False, lambda y: y), (True, h.probe)):
        try:
            kept = closed_over(fun)
        except TypeError as error:
            msg = f"a reference to a value cannot be weak: {error}"
            raise Absent(msg) from error
        gc.collect()
        if not asks and kept() is not None:
            msg = "the system itself keeps what a compiled function closes over"
            raise Absent(msg)
    h.check(kept() is None, "what the function closes over is still alive")
