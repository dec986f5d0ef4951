"""Rules under every transformation, and in rows of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adprotocol.conformance import nesting
from adprotocol.conformance.scenario import defaults
from adprotocol.conformance.scenarios.grid import DERIVATIVE_PAIRS, SINGLE, compare, grid
from adprotocol.conformance.scenarios.rules import VJP_SOURCE, noting_product, product, ruled, square, vjp_of_cube

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator

scenario: Decorator = defaults(
    "custom_derivative",
    rule="D14",
    transform="grad of vmap",
    source="PyTorch: a vmap of rules sums what rows share: https://docs.pytorch.org/docs/stable/notes/extending.func.html",
)


_NESTINGS = (*SINGLE, *DERIVATIVE_PAIRS)
_TRACED_OR_BATCHED = tuple(name for name in _NESTINGS if set(nesting.parse(name)) - set(nesting.DERIVATIVES))


def _sum(x: float) -> list[float]:
    """Return the derivatives of twice x ** 2, by the rules those of x ** 3 and of 5 / 3 of it."""
    return [2 * x**2, 8 * x**2, 16 * x, 16.0, 0.0]


def in_each_mode(h: Checked, transforms: str) -> None:
    """A vjp and a jvp, the only rules of their functions, serve both modes under {transforms}.

    Expect {transforms} of twice x ** 2 at 2.5, where the rules say 3 x ** 2 and 5 x ** 2.
    """
    by_vjp = ruled(h, square, vjp_of_cube)
    by_jvp = ruled(h, square, jvp=lambda tangents, _, x: 5.0 * tangents[0] * x * x)
    compare(h, transforms, lambda x: by_vjp(x) + by_jvp(x), _sum)


grid("custom_derivative/", _TRACED_OR_BATCHED, rule="D14")(in_each_mode)


grid("custom_derivative/", sorted(set(_NESTINGS) - set(_TRACED_OR_BATCHED)), rule="D4")(in_each_mode)


@scenario()
def shared_by_rows(h: Checked) -> None:
    """The gradient of what the rows share is the sum over the rows.

    Expect the sum over v = (1, 2) of w v with the gradients 10 v in w, 20 w in v, at w = 3: 9, gradient 30 in w, (60,
    60) in v; with the jvp alone as well.
    """

    def jvp(tangents: Any, _: Any, w: Any, v: Any) -> Any:
        return 10.0 * tangents[0] * v + 20.0 * tangents[1] * w

    w, rows = h.array(3.0), h.array([1.0, 2.0])
    for rules in ({"vjp": lambda ct, _, w, v: (10.0 * ct * v, 20.0 * ct * w)}, {"jvp": jvp}):
        f = ruled(h, product, **rules)
        h.assert_value_and_grad(lambda w: h.sum_of_rows(lambda v: f(w, v), rows), [w], 9.0, 30.0, "shared")  # noqa: B023
        in_rows = h.grad(lambda v: h.sum_of_rows(lambda v: f(w, v), v))(rows)  # noqa: B023
        h.assert_equal(in_rows, [60.0, 60.0], "the gradient in the rows")


@scenario(source="JAX: axes that vmap maps: https://docs.jax.dev/en/latest/_autosummary/jax.vmap.html")
def rows_of_more_axes(h: Checked) -> None:
    """An argument that a row has broadcast keeps its axes, in the function and in the rule.

    Expect f(x v, v) for rows x = (1, 2) and v = (1, 2, 3), with f(a, b) = a b and the gradients 10 b and 20 a: ((1, 4,
    9), (2, 8, 18)); of two elements, weighed with 1 and 10, the gradients 40 and 900.
    """

    def jvp(tangents: Any, _: Any, a: Any, b: Any) -> Any:
        return 10.0 * tangents[0] * b + 20.0 * tangents[1] * a

    rows, v = h.array([1.0, 2.0]), h.array([1.0, 2.0, 3.0])
    for rules in ({"vjp": lambda ct, _, a, b: (10.0 * ct * b, 20.0 * ct * a)}, {"jvp": jvp}):
        f = ruled(h, product, **rules)

        def run(rows: Any, f: Any = f) -> Any:
            return h.vmap(lambda x: f(x * v, v))(rows)

        h.assert_equal(run(rows), [[1.0, 4.0, 9.0], [2.0, 8.0, 18.0]])
        slope = h.grad(lambda rows, run=run: run(rows)[0][1] + 10.0 * run(rows)[1][2])(rows)
        h.assert_equal(slope, [40.0, 900.0], "the gradient")


@scenario(transform=("vmap of grad", "vmap of jvp"), source=VJP_SOURCE)
def derivatives_by_rows(h: Checked, transforms: str) -> None:
    """Under {transforms} each row has its own derivative, also of what all rows share.

    Expect w v, at w = 3 and v = (1, 2), with the vjp 10 v, 20 w and the jvp 30 v, 40 w: in w (10, 20) and (30, 60), in
    v (60, 60) and (120, 120); a gradient that is not needed is not computed.
    """

    def jvp(tangents: Any, _: Any, w: Any, v: Any) -> Any:
        return 30.0 * tangents[0] * v + 40.0 * tangents[1] * w

    (f, runs), w, rows = noting_product(h, jvp), h.array(3.0), h.array([1.0, 2.0])
    mode, factor = transforms.partition(" of ")[2], 10.0 if "grad" in transforms else 30.0
    shared = h.vmap(lambda v: h.nest(mode, lambda w: f(w, v))(w))(rows)
    h.assert_equal(shared, [factor, 2.0 * factor], "the derivatives in what is shared")
    h.check("y" not in runs, "the gradient of the rows was computed in vain")
    own = h.vmap(h.nest(mode, lambda v: f(w, v)))(rows)
    h.assert_equal(own, [60.0, 60.0] if mode == "grad" else [120.0, 120.0], "the derivatives in the rows")
