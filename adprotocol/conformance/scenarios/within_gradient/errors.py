"""What a question leaves behind an error or a gradient, which is nothing."""

from __future__ import annotations

import contextlib
import gc
import weakref
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.checks import Absent, Checked
from adprotocol.conformance.scenario import MAY, MUST, SHOULD, Decorator, defaults
from adprotocol.conformance.scenarios.rules import noted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


scenario: Decorator = defaults(
    "within_gradient",
    rule="W2",
    transform="grad",
    level=SHOULD,
    source="PyTorch: a graph lives as long as what refers to it: https://docs.pytorch.org/docs/stable/notes/autograd.html",
)


_TRACE_COUNTER = "autograd: a counter of traces, shared and mutable: https://github.com/HIPS/autograd/pull/659"


def _beside_plain(h: Checked, x: Any) -> Any:
    return h.probe(x) * h.scale(h.array(1.0), 7.0, 11.0)


@scenario(
    level=MUST,
    transform=("grad", "jvp", "jit", "vmap", "grad of jit", "grad of checkpoint", "grad of grad"),
    source=_TRACE_COUNTER,
)
def error_inside(h: Checked, transforms: str) -> None:
    """An error inside {transforms} leaves nothing behind.

    After an error inside: 5 x for a plain value; in a gradient 3 x times 11: 66, gradient 33.
    """
    x = h.array(2.0)

    with h.raises(Exception):
        h.nest(transforms, h.fail)(x)
    h.assert_equal(h.probe(x), 10.0, "the layer of a plain value after the error")
    if h.has("grad"):
        h.assert_value_and_grad(lambda x: _beside_plain(h, x), [x], 66.0, 33.0, "after the error")


@scenario(level=MUST, transform="grad of grad", needs=("grad",), source=_TRACE_COUNTER)
def error_inside_caught(h: Checked) -> None:
    """An error in an inner gradient, caught inside the outer one, ends only the inner one.

    Expect 3 x times 11 c at 2, 4: 264, gradient 132.
    """
    c = h.array(4.0)

    def f(x: Any) -> Any:
        with contextlib.suppress(ZeroDivisionError):
            h.grad(h.fail)(c)
        return h.probe(x) * h.scale(c, 7.0, 11.0)

    h.assert_value_and_grad(f, [h.array(2.0)], 264.0, 132.0)


@scenario(
    level=MUST, source="Flux: one global istraining() for all models: https://github.com/FluxML/Flux.jl/issues/909"
)
def freed_values(h: Checked) -> None:
    """Arrays made after a gradient are plain, although they may reuse the memory of freed ones.

    Expect 5 for each of 200 new arrays.
    """
    x = h.array(2.0)
    for _ in range(20):
        h.grad(lambda x: h.probe(x + 1.0) * h.probe(x))(x)
    gc.collect()
    made = [h.array(1.0) for _ in range(200)]
    for one in made:
        h.assert_untracked(adprotocol.within_gradient(one), "an array made after the gradients")
    h.assert_equal(h.probe(made[-1]), 5.0)


@scenario(level=MAY, source="JAX: values that escape from a nested trace: https://github.com/jax-ml/jax/issues/2048")
def escaped_value(h: Checked) -> None:
    """A value that escaped from a gradient does not disturb the answers for others.

    Expect an answer or an error for the value that escaped, whether it was asked about before or not; then 5 x, and 3 x
    times 11 in a gradient.
    """
    x, kept = h.array(2.0), []
    answers: list[Any] = []

    def f(x: Any, layer: Any) -> Any:
        kept.append(x)
        return layer(x)

    def g(x: Any) -> Any:
        for one in kept:
            answers.append(None)
            with contextlib.suppress(Exception):
                answers[-1] = adprotocol.within_gradient(one)
        return 3.0 * x

    for layer in (h.probe, lambda x: 3.0 * x):
        h.grad(lambda x, layer=layer: f(x, layer))(x)
    for call in (g, h.grad(g)):
        call(x)
        asked, unasked = answers[-2:]
        if isinstance(unasked, bool):
            h.assert_is(asked, unasked, "the answer where the value was asked about before it escaped")
    h.assert_equal(h.probe(x), 10.0, "the layer of a plain value")
    h.assert_value_and_grad(lambda x: _beside_plain(h, x), [x], 66.0, 33.0)


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
            h.absent_if(own not in ([], [_ARGUMENT]), "the system itself keeps a result alive")
            continue
        h.check(not alive, f"what an operation gave is still alive after {', '.join(alive)}")


_USES: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("a question", adprotocol.within_gradient),
    ("a question about a container", lambda y: adprotocol.within_gradient({"y": [y]})),
    ("an explanation", adprotocol.explain),
    ("a constant", adprotocol.non_differentiable),
    ("a branch", lambda y: adprotocol.cond(True, lambda y: y + 1.0, lambda y: y, y)),
)


@scenario(rule="W7", needs=("grad",))
def freed_behind_a_gradient(h: Checked) -> None:
    """Nothing that was asked about in a gradient stays alive.

    x x is freed behind the gradient in which it was asked about, stopped and branched on.
    """
    x = h.array(2.0)
    assert_freed(h, lambda f: h.grad(f)(x), _USES)


@scenario(rule="W7", transform="jvp", needs=("jvp",))
def freed_behind_forward_mode(h: Checked) -> None:
    """Nothing that was asked about in forward mode stays alive.

    x x is freed behind the derivative in which it was asked about, stopped and branched on.
    """
    x, one = h.array(2.0), h.array(1.0)
    assert_freed(h, lambda f: h.jvp(f, x, one), _USES)


@scenario(rule="W7", needs=("grad", "parameter", "parameter_grad"))
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


@scenario(rule="W7", transform="{way}")
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
        h.absent_if(not asks and kept() is not None, "the system itself keeps what a compiled function closes over")
    h.check(kept() is None, "what the function closes over is still alive")


@scenario(level=SHOULD, transform="grad", source="JAX: leaked tracers: https://docs.jax.dev/en/latest/errors.html")
def escaped_value_is_no_constant(h: Checked) -> None:
    """A value of a gradient that is over, with which the system computes no more, is not taken for a constant.

    Expect an error, or the answer True, for a value with which the system's own product raises.
    """
    kept: list[Any] = []
    h.grad(lambda x: noted(kept, x, x * x))(h.array(2.0))
    try:
        _ = 2.0 * kept[0]
    except Exception:  # noqa: BLE001  (a system may raise anything)
        answer: Any = None
        with contextlib.suppress(Exception):
            answer = adprotocol.within_gradient(kept[0])
        h.check(answer is not False, "the answer is False for a value with which the system does not compute")
    else:
        msg = "the system computes with a value that has escaped from its gradient"
        raise Absent(msg)
