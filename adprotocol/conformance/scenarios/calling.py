"""What traced programs hand on: results of the functions they call, and what their loops carry."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance.scenario import scenario
from adprotocol.conformance.scenarios.closing_over import orders
from adprotocol.conformance.scenarios.query import natively
from adprotocol.conformance.scenarios.staged import staged, trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked

CALLED = "TensorFlow: a function calls another: https://www.tensorflow.org/guide/function"
_FIXED = "JAX: tangents of a loop's carry, to a fixed point: https://github.com/jax-ml/jax/blob/main/jax/_src/lax/control_flow/loops.py"


SQUARES = "3 s times 11 t with s = x x, t = c c, at 2, 3: 1188, gradient 1188 in x; 5 s 7 t in c; 55 s t plain: 1980"


def about_squares(h: Checked, way: str, make: Callable[[], Callable[[Any], Any]]) -> None:
    """Ask about the square that a compiled function of `make` gives, for two arguments in another one, and outside."""
    x, c = h.array(2.0), h.array(3.0)
    for first in (0, 1):
        square = make()
        outer = trace(
            h, way, lambda x, c, square=square: h.scaled(square(x), 3.0, 5.0) * h.scaled(square(c), 7.0, 11.0)
        )

        def plain(outer: Any = outer) -> None:
            h.equal(outer(x, c), 1980.0, "the plain call")

        def differentiated(outer: Any = outer, square: Any = square) -> None:
            h.value_and_gradient(lambda x: outer(x, c), (x,), 1188.0, 1188.0)
            h.value_and_gradient(lambda c: outer(x, c), (c,), 1260.0, 840.0, "in the other argument")
            h.value_and_gradient(lambda x: h.layer(square(x)), (x,), 12.0, 12.0, "asked outside")

        for call in orders(plain, differentiated)[first]:
            call()


@staged(
    "within_gradient/after-a-call",
    rule="W5",
    transform="grad of {way}",
    native="grad of {way} of {way}",
    expects=f"{SQUARES}; squared by a compiled function that another one calls",
    source=CALLED,
)
def after_a_call(h: Checked, way: str) -> None:
    """The result of a compiled function that another one calls is tracked as its argument is, in both first orders."""
    about_squares(h, way, lambda: trace(h, way, lambda x: x * x))


@staged(
    "within_gradient/asks-in-a-called-function",
    rule="W5",
    transform="grad of {way}",
    native="grad of {way} of {way}",
    expects="f(x) + f(c), f a compiled layer, 3 x or 5 x, in a compiled function, at 2, 4: 3 x + 5 c = 26, slope 3",
    source=CALLED,
)
def asks_in_a_called_function(h: Checked, way: str) -> None:
    """A compiled function that asks answers for each of its calls in another one alone."""
    x, c = h.array(2.0), h.array(4.0)
    for first in (0, 1):
        layer = trace(h, way, h.layer)
        outer = trace(h, way, lambda x, c, layer=layer: layer(x) + layer(c))

        def plain(outer: Any = outer) -> None:
            h.equal(outer(x, c), 30.0, "the plain call")

        def differentiated(outer: Any = outer) -> None:
            h.value_and_gradient(lambda x: outer(x, c), (x,), 26.0, 3.0)
            h.value_and_gradient(lambda c: outer(x, c), (c,), 22.0, 3.0, "in the other argument")

        for call in orders(plain, differentiated)[first]:
            call()


@staged(
    "prevent_gradient/in-a-called-function",
    rule="N5",
    transform="grad of {way}",
    native="grad of {way} of {way}",
    expects="x x x with x guarded in a compiled function that another one calls: 8 plain; an error with the message in "
    "a gradient, and again; 4 where its constant is given",
    source=CALLED,
)
def guarded_in_a_called_function(h: Checked, way: str) -> None:
    """A guard in a compiled function that another one calls raises as it does by itself."""
    x = h.array(2.0)
    inner = trace(h, way, lambda x: adprotocol.prevent_gradient(x, "not this one") * x)
    outer = trace(h, way, lambda x: inner(x) * x)
    of_constant = trace(h, way, lambda x: inner(adprotocol.non_differentiable(x)) * x)
    for _ in range(2):
        h.equal(outer(x), 8.0, "the plain call")
        # A compiler that runs Python may show the error as one of its own, with the text.
        with h.raises(Exception, words=["not this one"]):
            h.grad(outer)(x)
        h.value_and_gradient(of_constant, (x,), 8.0, 4.0, "of a constant")


def _scanned(h: Checked, x: Any, c: Any, layer: Callable[[Any], Any]) -> Any:
    def body(carry: Any, weight: Any) -> Any:
        first, second, total = carry
        return (second, x * 1.0, total + weight * layer(first)), weight

    return h.scan(body, (c, 1.0 * c, 0.0 * c), h.array([0.0, 0.0, 1.0]))[0][2]


def _looped(h: Checked, x: Any, c: Any, layer: Callable[[Any], Any]) -> Any:
    def step(state: Any) -> Any:
        i, first, second, total = state
        return i + 1.0, second, x * 1.0, total + 0.5 * i * (i - 1.0) * layer(first)

    return h.while_loop(lambda state: state[0] < 3.0, step, (h.array(0.0), c, 1.0 * c, 0.0 * c))[3]  # noqa: PLR2004


_LOOPS: dict[str, Callable[[Checked, Any, Any, Callable[[Any], Any]], Any]] = {"scan": _scanned, "while_loop": _looped}


def carried_later(h: Checked, transforms: str) -> None:
    """Ask about a carry that is a constant for two turns and x in the third, the only one that counts."""
    parts = nesting.parse(transforms)
    program, c, x = _LOOPS[parts[-1]], h.array(7.0), h.array(2.0)
    want = 3.0 if nesting.differentiates(transforms) else 10.0

    def run(layer: Callable[[Any], Any]) -> Any:
        return h.nest(" of ".join(parts[:-1]), lambda x: program(h, x, c, layer))(x)

    try:
        found = run(h.layer)
    except Exception:
        natively(h, lambda: run(lambda x: 3.0 * x), 3.0 if nesting.differentiates(transforms) else 6.0)
        raise
    h.equal(found, want)


for _transforms in (
    "scan",
    "grad of scan",
    "jvp of scan",
    "grad of jit of scan",
    "jit of grad of scan",
    "while_loop",
    "grad of while_loop",
    "jvp of while_loop",
    "grad of jit of while_loop",
    "jit of grad of while_loop",
    "grad of compile of while_loop",
):
    scenario(
        f"within_gradient/carried-later-{_transforms.replace(' ', '-').replace('_', '-')}",
        rule="W5",
        transform=_transforms,
        source=_FIXED,
        expects=f"{_transforms} of 3 x, or of 5 x where nobody differentiates, asked in the third turn, at 2",
        summary=f"What a loop carries is tracked from the turn on that brings a variable, under {_transforms}.",
    )(functools.partial(carried_later, transforms=_transforms))
