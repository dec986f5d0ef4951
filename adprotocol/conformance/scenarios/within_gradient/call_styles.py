"""What traced programs hand on: results of the functions they call, calls in calls too, and what their loops carry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance.scenario import Decorator, defaults
from adprotocol.conformance.scenarios.programs import in_both_orders

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked


_FIXED = "JAX: tangents of a loop's carry, to a fixed point: https://github.com/jax-ml/jax/blob/main/jax/_src/lax/control_flow/loops.py"

scenario: Decorator = defaults(
    "within_gradient",
    rule="W5",
    source="TensorFlow: a function calls another: https://www.tensorflow.org/guide/function",
    transform="grad of {way}",
)


def _about_squares(h: Checked, way: str, make: Callable[[], Callable[[Any], Any]]) -> None:
    """Ask about the square that a compiled function of `make` gives, for two arguments in another one, and outside.

    Expect that the squares s of x = 2 and t of c = 3 are tracked as x and c are: 3 s times 11 t = 1188 in the gradient
    in x, 5 s times 7 t = 1260 in that in c, 5 s times 11 t = 1980 plain.
    """
    x, c = h.array(2.0), h.array(3.0)

    def both() -> tuple[Any, Any]:
        square = make()
        return square, h.trace(way, lambda x, c: h.probe(square(x)) * h.scale(square(c), 7.0, 11.0))

    def plain(made: tuple[Any, Any]) -> None:
        _, outer = made
        h.assert_equal(outer(x, c), 1980.0, "the plain call")

    def differentiated(made: tuple[Any, Any]) -> None:
        square, outer = made
        h.assert_value_and_grad(lambda x: outer(x, c), (x,), 1188.0, 1188.0)
        h.assert_value_and_grad(lambda c: outer(x, c), (c,), 1260.0, 840.0, "in the other argument")
        h.assert_value_and_grad(lambda x: h.probe(square(x)), (x,), 12.0, 12.0, "asked outside")

    in_both_orders(both, plain, differentiated)


@scenario(
    native="grad of {way} of {way}",
)
def after_a_call(h: Checked, way: str) -> None:
    """The result of a compiled function that another one calls is tracked as its argument is, in both first orders.

    For s = x ** 2 and t = c ** 2 expect 3 s times 11 t in the gradient in x, 5 s times 7 t in that in c.
    """
    _about_squares(h, way, lambda: h.trace(way, lambda x: x * x))


@scenario(
    native="grad of {way} of {way} of {way}",
)
def after_a_call_in_a_call(h: Checked, way: str) -> None:
    """The result of a compiled function that calls another is tracked as its argument is, in both first orders.

    For s = x ** 2 and t = c ** 2 expect 3 s times 11 t in the gradient in x, 5 s times 7 t in that in c.
    """

    def make() -> Any:
        square = h.trace(way, lambda x: x * x)
        return h.trace(way, lambda x: 1.0 * square(x))

    _about_squares(h, way, make)


@scenario(
    native="grad of {way} of {way}",
)
def after_a_branch_in_a_call(h: Checked, way: str) -> None:
    """What comes out of a branch in a called function is tracked as its operand is, in both first orders.

    For s = x ** 2 and t = c ** 2 expect 3 s times 11 t in the gradient in x, 5 s times 7 t in that in c.
    """
    _about_squares(
        h, way, lambda: h.trace(way, lambda x: adprotocol.cond(x > 0.0, lambda x: x * x, lambda x: -1.0 * x, x))
    )


@scenario(native="grad of {way} of {way}")
def asks_in_a_called_function(h: Checked, way: str) -> None:
    """A compiled function that asks answers for each of its calls in another one alone.

    Expect a compiled layer, called for x and for c in a compiled function, and for both results of another: in the
    gradient in x twice 3 x + 5 c = 26 at 2, 4, with the gradient 6.
    """
    x, c = h.array(2.0), h.array(4.0)

    def make() -> Any:
        layer, swapped = h.trace(way, h.probe), h.trace(way, lambda x, c: (1.0 * c, 1.0 * x))
        return h.trace(way, lambda x, c: layer(x) + layer(c) + sum(map(h.probe, swapped(x, c))))

    def plain(outer: Any) -> None:
        h.assert_equal(outer(x, c), 60.0, "the plain call")

    def differentiated(outer: Any) -> None:
        h.assert_value_and_grad(lambda x: outer(x, c), (x,), 52.0, 6.0)
        h.assert_value_and_grad(lambda c: outer(x, c), (c,), 44.0, 6.0, "in the other argument")

    in_both_orders(make, plain, differentiated)


def _scanned(h: Checked, x: Any, c: Any, layer: Callable[[Any], Any]) -> Any:
    def body(carry: Any, weight: Any) -> Any:
        first, second, total = carry
        return (second, x * 1.0, total + weight * layer(first)), weight

    return h.scan(body, (c, 1.0 * c, 0.0 * c), h.array([0.0, 0.0, 1.0]))[0][2]


def _looped(h: Checked, x: Any, c: Any, layer: Callable[[Any], Any]) -> Any:
    def step(state: Any) -> Any:
        i, first, second, total = state
        return i + 1.0, second, x * 1.0, total + 0.5 * i * (i - 1.0) * layer(first)

    return h.while_loop(lambda state: state[0] < 3.0, step, (h.array(0.0), c, 1.0 * c, 0.0 * c))[3]


_LOOPS: dict[str, Callable[[Checked, Any, Any, Callable[[Any], Any]], Any]] = {"scan": _scanned, "while_loop": _looped}


@scenario(
    transform=(
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
        "grad of vmap of while_loop",
        "jvp of vmap of while_loop",
        "grad of jit of vmap of while_loop",
    ),
    source=_FIXED,
)
def carried_later(h: Checked, transforms: str) -> None:
    """What a loop carries is tracked from the turn on that brings a variable, under {transforms}.

    Ask about a carry that is a constant for two turns and x in the third, the only one that counts.

    Expect {transforms} of 3 x, or of 5 x where nobody differentiates, asked in the third turn, at 2, and in rows at 2
    and 4.
    """
    parts = nesting.parse(transforms)
    program, c, x = _LOOPS[parts[-1]], h.array(7.0), h.array(2.0)
    rows = 3.0 if "vmap" in parts else 1.0
    want = 3.0 * rows if nesting.differentiates(transforms) else 10.0

    def run(layer: Callable[[Any], Any]) -> Any:
        return h.nest(" of ".join(parts[:-1]), lambda x: program(h, x, c, layer))(x)

    try:
        found = run(h.probe)
    except Exception:
        h.require_native(lambda: run(lambda x: 3.0 * x), 3.0 * rows if nesting.differentiates(transforms) else 6.0)
        raise
    h.assert_equal(found, want)


@scenario(
    transform=(
        "jit of while_loop",
        "grad of while_loop",
        "jvp of while_loop",
        "grad of jit of while_loop",
        "jvp of jit of while_loop",
    ),
    source=_FIXED,
)
def asked_in_a_condition(h: Checked, transforms: str) -> None:
    """The condition of a loop may ask about a constant that is carried beside a variable, under {transforms}.

    Expect {transforms} of x, doubled in three turns, or in two if the constant carried beside it is tracked: 16 at 2,
    or 8 in a derivative.
    """
    *outer, _ = nesting.parse(transforms)
    x, c = h.array(2.0), h.array(7.0)

    def run(turns: Callable[[Any], Any]) -> Any:
        def f(x: Any) -> Any:
            def body(state: Any) -> Any:
                return state[0] + 1.0, 2.0 * state[1], 1.0 * state[2]

            return h.while_loop(lambda s: s[0] < turns(s[2]), body, (h.array(0.0), x, c))[1]

        return h.nest(" of ".join(outer), f)(x)

    want = 8.0 if nesting.differentiates(transforms) else 16.0
    h.require_native(lambda: run(lambda c: 3.0 + 0.0 * c), want)
    h.assert_equal(run(lambda c: adprotocol.cond(h.query(c), lambda: 2.0, lambda: 3.0)), want)


def _turns(h: Checked, count: float, body: Callable[[Any], Any], state: tuple[Any, ...]) -> tuple[Any, ...]:
    """Run the body of a loop on a state, behind a counter."""
    found = h.while_loop(lambda s: s[0] < count, lambda s: (s[0] + 1.0, *body(s[1:])), (h.array(0.0), *state))
    return tuple(found)[1:]


@scenario(
    transform=tuple(f"{outer} of while_loop of while_loop" for outer in ("grad", "jvp", "jvp of jit")), source=_FIXED
)
def loop_in_a_loop(h: Checked, transforms: str) -> None:
    """Each of two loops in one another has carries of its own, under {transforms}.

    Expect {transforms} of the sum over two turns of each loop of 3 x 11 c, x carried by one and c by the other, at 2
    and 4: 4 * 33 * 4 = 528.
    """
    parts, x, c = nesting.parse(transforms), h.array(2.0), h.array(4.0)
    outer = " of ".join(parts[:-2])
    for x_is_inside in (True, False):

        def f(x: Any, layer: Any, x_is_inside: bool = x_is_inside) -> Any:
            def one_turn(state: tuple[Any, Any]) -> tuple[Any, Any]:
                kept, total = state

                def inner(state: tuple[Any, Any]) -> tuple[Any, Any]:
                    own, part = state
                    a, b = (own, kept) if x_is_inside else (kept, own)
                    return own, part + layer(a, 3.0, 5.0) * layer(b, 7.0, 11.0)

                return kept, total + _turns(h, 2.0, inner, (x if x_is_inside else c, 0.0 * c * x))[1]

            return _turns(h, 2.0, one_turn, (c if x_is_inside else x, 0.0 * c * x))[1]

        h.require_native(lambda: h.nest(outer, lambda x: f(x, lambda v, *_: v))(x), 16.0)
        h.assert_equal(h.nest(outer, lambda x: f(x, h.scale))(x), 528.0, f"with x inside: {x_is_inside}")


@scenario(transform=("jit of grad of while_loop", "jit of jvp of while_loop"), needs=None, source=_FIXED)
def derivative_in_a_loop(h: Checked, transforms: str) -> None:
    """What a derivative in a loop follows, a loop in it is told, under {transforms}.

    Expect in each of two turns the derivative in y, at x = 2, of a loop of two turns that adds 3 y: 2 * 6 = 12.
    """
    _, mode, _ = nesting.parse(transforms)

    def run(layer: Callable[[Any], Any]) -> Any:
        def slope(y: Any) -> Any:
            return _turns(h, 2.0, lambda s: (s[0], s[1] + layer(s[0])), (1.0 * y, 0.0 * y))[1]

        def body(state: tuple[Any, Any]) -> tuple[Any, Any]:
            kept, total = state
            return kept, total + h.nest(mode, slope)(kept)

        return h.jit(lambda x: _turns(h, 2.0, body, (x, 0.0 * x))[1])(h.array(2.0))

    h.require_native(lambda: run(lambda y: 3.0 * y), 12.0)
    h.assert_equal(run(h.probe), 12.0)
