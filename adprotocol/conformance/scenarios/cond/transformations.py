"""`cond` under every transformation, nested, in rows of a batch; and layers that ask, right whichever surround them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import SHOULD, Decorator, defaults
from adprotocol.conformance.scenarios.grid import DERIVATIVE_PAIRS, LOOPS, SINGLE, X, compare, grid

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked


scenario: Decorator = defaults(
    "cond",
    rule="C6",
    transform="grad of vmap",
    source="PyTorch, vmap of cond: https://github.com/pytorch/pytorch/issues/114136",
)

_STALE = (
    "ReverseDiff, a tape that keeps the branch it was made with: https://github.com/tpapp/LogDensityProblems.jl/pull/85"
)
_NESTED = "jax-mps, wrong gradients of a nested cond: https://github.com/tillahoffmann/jax-mps/issues/195"
_CLOSURE = "JAX, branches that take no operands: https://github.com/jax-ml/jax/pull/3569"
_TWO_BATCHES = "PyTorch, cond under two nested vmaps: https://github.com/pytorch/pytorch/pull/195323"
_FLUX = "Flux, layers that train inside a gradient only: https://github.com/FluxML/Flux.jl/issues/643"
_PENNYLANE = (
    "PennyLane, a query that is True under jit: "
    "https://docs.pennylane.ai/en/stable/code/api/pennylane.math.in_backprop.html"
)


# Between x and 2 x, so that the rows of a batch take different branches.
_BREAK = 3.0


def _chosen(x: float) -> list[float]:
    """Return the derivatives of x ** 3 above 3, else of x ** 2."""
    return [x**3, 3 * x**2, 6 * x, 6.0, 0.0] if x > _BREAK else [x**2, 2 * x, 2.0, 0.0, 0.0]


@grid("cond/", (*SINGLE, *DERIVATIVE_PAIRS, *LOOPS), rule="C6")
def branches(h: Checked, transforms: str) -> None:
    """A branch is chosen and differentiated under {transforms}.

    Expect {transforms} of x ** 3 above 3, else of x ** 2, at 2.5 and at 5.
    """

    def f(x: Any) -> Any:
        # The second branch is 0 / 0 where the first is taken in a batch.
        return adprotocol.cond(x > _BREAK, lambda x: x * x * x, lambda x: x * x + (0.0 * x) / (x - 2.0 * X), x)

    compare(h, transforms, f, _chosen, X, 2.0 * X)


def piecewise(x: Any) -> Any:
    """Return x x x where x is positive, else 5 x."""
    return adprotocol.cond(x > 0.0, lambda x: x * x * x, lambda x: 5.0 * x, x)


def quarters(x: Any, y: Any) -> Any:
    """Return x y, 2 x, 3 y or 5, by the signs of x and y."""
    return adprotocol.cond(
        x > 0.0,
        lambda x, y: adprotocol.cond(y > 0.0, lambda x, y: x * y, lambda x, _: 2.0 * x, x, y),
        lambda x, y: adprotocol.cond(y > 0.0, lambda _, y: 3.0 * y, lambda x, _: 0.0 * x + 5.0, x, y),
        x,
        y,
    )


_QUARTERS = (
    ((2.0, 3.0), 6.0, 3.0, 2.0),
    ((2.0, -3.0), 4.0, 2.0, 0.0),
    ((-2.0, 3.0), 9.0, 0.0, 3.0),
    ((-2.0, -3.0), 5.0, 0.0, 0.0),
)


@scenario(transform="grad of {way}", source=_STALE)
def traced_on_one_branch(h: Checked, way: str) -> None:
    """A program traced on one branch has the right gradient on the other.

    Expect x ** 3 where x > 0, else 5 x, traced plain at 2: the gradients 12 at 2, 5 at -2 and 27 at 3, traced outside
    of the gradient or inside.
    """
    jitted = h.trace(way, piecewise)
    h.assert_equal(jitted(h.array(2.0)), 8.0, "the plain value")
    outside = h.trace(way, h.grad(piecewise))
    for point, value, slope in ((2.0, 8.0, 12.0), (-2.0, -10.0, 5.0), (3.0, 27.0, 27.0)):
        h.assert_value_and_grad(jitted, (h.array(point),), value, slope, f"at {point}")
        h.assert_equal(outside(h.array(point)), slope, f"the jitted gradient at {point}")


@scenario(transform="grad", source=_NESTED)
def nested_in_both_branches(h: Checked) -> None:
    """Both branches may branch again.

    Expect x y, 2 x, 3 y or 5 by the signs of x and y, at (2, 3), (2, -3), (-2, 3), (-2, -3).
    """
    for (a, b), value, in_x, in_y in _QUARTERS:
        x, y = h.array(a), h.array(b)
        h.assert_value_and_grad(quarters, (x, y), value, in_x, f"at {(a, b)}, in x")
        h.assert_value_and_grad(lambda y: quarters(x, y), (y,), value, in_y, f"at {(a, b)}, in y")


@scenario(transform="grad of {way}", source=_NESTED)
def nested(h: Checked, way: str) -> None:
    """Staged branches may branch again.

    Expect x y, 2 x, 3 y or 5 by the signs of x and y under {way}, at (2, 3), (2, -3), (-2, 3), (-2, -3).
    """
    jitted = h.trace(way, lambda both: quarters(1.0 * both[0], 1.0 * both[1]))
    for at, value, *slopes in _QUARTERS:
        h.assert_value_and_grad(jitted, (h.array(at),), value, slopes, f"at {at}")


@scenario(transform="grad", source=_CLOSURE)
def closes_over(h: Checked) -> None:
    """Branches may close over what is tracked and over what is not.

    Branches close over x and k = 5 and take no operands: x ** 2 * k and x + k have the gradients 30 and 1 at 3.
    """
    k = h.array(5.0)
    for truth, value, slope in ((True, 45.0, 30.0), (False, 8.0, 1.0)):
        for pred in (truth, h.array(truth)):
            h.assert_value_and_grad(
                lambda x: adprotocol.cond(pred, lambda: x * x * k, lambda: x + k),
                (h.array(3.0),),
                value,
                slope,
                f"{truth}",
            )


@scenario("closes-over", transform="grad of {way}", source=_CLOSURE)
def closes_over_traced(h: Checked, way: str) -> None:
    """Staged branches may close over what an outer gradient tracks.

    Branches under {way} close over a tracked x and k = 5: x y k where y > 0, else x + y; the gradients in x are 5 at y
    = 1 and 1 at y = -1.
    """
    k = h.array(5.0)

    def f(x: Any, y: Any) -> Any:
        return h.trace(way, lambda y: adprotocol.cond(y > 0.0, lambda: y * x * k, lambda: y + x))(y)

    h.assert_value_and_grad(f, (h.array(3.0), h.array(1.0)), 15.0, 5.0, "at y = 1")
    h.assert_value_and_grad(f, (h.array(3.0), h.array(-1.0)), 2.0, 1.0, "at y = -1")


@scenario(transform="grad of grad", source="JAX, grad of cond: https://github.com/jax-ml/jax/issues/2256")
def gradient_inside_a_branch(h: Checked) -> None:
    """A branch may compute a gradient, which is differentiated again.

    Expect a branch returns the gradient of x ** 3 where x > 0, else of 5 x: 27 with the gradient 18 at 3, 5 with the
    gradient 0 at -2.
    """

    def f(x: Any) -> Any:
        return adprotocol.cond(x > 0.0, h.grad(lambda x: x * x * x), h.grad(lambda x: 5.0 * x), x)

    h.assert_value_and_grad(f, (h.array(3.0),), 27.0, 18.0, "at 3")
    h.assert_value_and_grad(f, (h.array(-2.0),), 5.0, 0.0, "at -2")


@scenario(
    transform="grad of scan",
    source="JAX, a wrong gradient of cond inside scan: https://github.com/jax-ml/jax/issues/5900",
)
def inside_scan(h: Checked) -> None:
    """Each step of a loop chooses for itself.

    Expect a carry that starts at 0, and is doubled where it is untracked: x is added, it is multiplied by x, and both
    again: x ** 3 + x ** 2 is 12 at 2, with the gradient 16.
    """

    def f(x: Any) -> Any:
        def step(c: Any, w: Any) -> Any:
            return adprotocol.cond(w > 0.0, lambda c: c * x, lambda c: c + x, h.scale(c, 1.0, 2.0)), w

        return h.scan(step, h.array(0.0), h.array([-1.0, 1.0, -1.0, 1.0]))[0]

    h.assert_value_and_grad(f, (h.array(2.0),), 12.0, 16.0)


@scenario(
    level=SHOULD,
    transform="grad of custom rule",
    source="JAX, cond around a custom rule: https://github.com/jax-ml/jax/issues/9374",
)
def custom_rule_in_a_branch(h: Checked) -> None:
    """A function with a custom derivative rule keeps it inside a branch.

    Expect r(x) where x > 0, else 5 x, with r = x ** 2, whose rule says 7: gradient 7 at 2, 5 at -2.
    """
    rule = h.custom_rule(lambda x: x * x, lambda x: 0.0 * x + 7.0)

    def f(x: Any) -> Any:
        return adprotocol.cond(x > 0.0, lambda x: rule(x), lambda x: 5.0 * x, x)  # noqa: PLW0108

    h.assert_value_and_grad(f, (h.array(2.0),), 4.0, 7.0, "at 2")
    h.assert_value_and_grad(f, (h.array(-2.0),), -10.0, 5.0, "at -2")


@scenario()
def nested_under_vmap(h: Checked) -> None:
    """Rows that differ in two predicates have four different branches.

    Expect rows of x y, 2 x, 3 y or 5 by signs: 24, with the gradients (3, 2, 0, 0) in x and (2, 0, 3, 0) in y.
    """

    def f(x: Any, y: Any) -> Any:
        return h.sum_of_rows(quarters, x, y, rows=4)

    x, y = h.array([2.0, 2.0, -2.0, -2.0]), h.array([3.0, -3.0, 3.0, -3.0])
    h.assert_value_and_grad(f, (x, y), 24.0, [3.0, 2.0, 0.0, 0.0], "in x")
    h.assert_value_and_grad(lambda y: f(x, y), (y,), 24.0, [2.0, 0.0, 3.0, 0.0], "in y")


@scenario()
def twice_in_a_branch(h: Checked) -> None:
    """Rows may branch twice in a branch, one branch behind the other, at second order too.

    Expect rows of 11 x where x < 0, else of x ** 2 or 3 x plus x ** 3 or 7 x, by whether x is above 1 and 2, at (-1,
    0.5, 1.5, 3): the gradients (11, 10, 10, 33), and their gradients (0, 0, 2, 20).
    """

    def row(x: Any) -> Any:
        def inner(x: Any) -> Any:
            first = adprotocol.cond(x > 1.0, lambda x: x * x, lambda x: 3.0 * x, x)
            return first + adprotocol.cond(x > 2.0, lambda x: x * x * x, lambda x: 7.0 * x, x)

        return adprotocol.cond(x < 0.0, lambda x: 11.0 * x, inner, x)

    def total(v: Any) -> Any:
        return h.sum_of_rows(row, v, rows=4)

    v = h.array([-1.0, 0.5, 1.5, 3.0])
    h.assert_value_and_grad(total, (v,), -11.0 + 5.0 + 12.75 + 36.0, [11.0, 10.0, 10.0, 33.0])

    def slopes(v: Any) -> Any:
        found = h.grad(total)(v)
        return found[0] + found[1] + found[2] + found[3]

    if h.has("grad of grad"):
        h.assert_equal(h.grad(slopes)(v), [0.0, 0.0, 2.0, 20.0], "the second derivatives")


@scenario(rule="C3", transform="vmap", varies=True)
def rows_choose(h: Checked) -> None:
    """Each row of a batch chooses for itself.

    Expect rows of x ** 3 where x > 0, else 5 x, at (2, -2, 3): (8, -10, 27).
    """
    h.assert_equal(h.vmap(piecewise)(h.array([2.0, -2.0, 3.0])), [8.0, -10.0, 27.0])


@scenario(rule="C3", source="JAX, shapes under a batched cond: https://github.com/jax-ml/jax/issues/1263")
def rows_choose_vectors(h: Checked) -> None:
    """A scalar predicate of each row chooses a vector.

    Of the rows (1, 2) and (-1, 3) the second, which begins with a negative number, is multiplied by k = (5, 7) expect
    (-5, 21); weighed with 1 and 10, it has the gradient (-1, 30) in k; a matrix times the row is chosen too.
    """
    v, k = h.array([[1.0, 2.0], [-1.0, 3.0]]), h.array([5.0, 7.0])

    def rows(k: Any) -> Any:
        return h.vmap(lambda v: adprotocol.cond(v[0] > 0.0, lambda v: v, lambda v: k * v, v))(v)

    h.assert_equal(rows(k), [[1.0, 2.0], [-5.0, 21.0]], "the rows")
    h.assert_equal(h.grad(lambda k: rows(k)[1, 0] + 10.0 * rows(k)[1, 1])(k), [-1.0, 30.0], "the gradient")
    # Broadcast against more axes than its own, a row may have the axis of the batch behind one of theirs.
    m = h.array([[1.0, 10.0], [100.0, 1000.0]])
    chosen = h.vmap(lambda v: adprotocol.cond(v[0] > 0.0, lambda w: w, lambda w: -1.0 * w, v * m))(v)
    h.assert_equal(chosen, [[[1.0, 20.0], [100.0, 2000.0]], [[1.0, -30.0], [100.0, -3000.0]]], "the matrices")


@scenario(transform="vmap of grad", source="JAX, vmap of grad of cond: https://github.com/jax-ml/jax/issues/2264")
def gradient_of_rows(h: Checked) -> None:
    """A batch of gradients has in each row that of the row's branch.

    Expect rows of the gradient of x ** 3 where x > 0, else 5 x, at (2, -2, 3): (12, 5, 27); second derivatives (12, 0,
    18); of the root, a partial function of x, where x > 0, else 5 x, at (4, -2): (0.25, 5).
    """
    v = h.array([2.0, -2.0, 3.0])
    h.assert_equal(h.vmap(h.grad(piecewise))(v), [12.0, 5.0, 27.0], "the gradients")
    if h.has("grad of grad"):
        h.assert_equal(h.vmap(h.grad(h.grad(piecewise)))(v), [12.0, 0.0, 18.0], "the second derivatives")

    def root(x: Any) -> Any:
        return adprotocol.cond(x > 0.0, functools.partial(pow, x, 0.5), lambda: 5.0 * x)

    h.assert_equal(h.vmap(h.grad(root))(h.array([4.0, -2.0])), [0.25, 5.0], "the gradients beside a root")


@scenario(transform="vmap of vmap", source=_TWO_BATCHES)
def two_batches(h: Checked) -> None:
    """Under two nested vmaps an outer and an inner predicate choose independently.

    Expect x y, 2 x, 3 y or 5 by signs, for x = (2, -2) by y = (3, -3, 4): ((6, 4, 8), (9, 5, 12)).
    """
    y = h.array([3.0, -3.0, 4.0])
    table = h.vmap(lambda x: h.vmap(lambda y: quarters(x, y))(y))(h.array([2.0, -2.0]))
    h.assert_equal(table, [[6.0, 4.0, 8.0], [9.0, 5.0, 12.0]])


@scenario(transform="grad of vmap of vmap", source=_TWO_BATCHES)
def gradient_of_two_batches(h: Checked) -> None:
    """The gradient through two vmaps reaches the rows that chose the variable.

    Expect x * y where x > 0, else 3 y, for x = (2, -2) by y = (3, -3), the columns weighed with 1 and 10: -135, with
    the gradient (-27, 0) in x.
    """
    y = h.array([3.0, -3.0])

    def f(x: Any) -> Any:
        def row(x: Any) -> Any:
            return h.vmap(lambda y: adprotocol.cond(x > 0.0, lambda x, y: x * y, lambda _, y: 3.0 * y, x, y))(y)

        table = h.vmap(row)(x)
        return table[0][0] + 10.0 * table[0][1] + table[1][0] + 10.0 * table[1][1]

    h.assert_value_and_grad(f, (h.array([2.0, -2.0]),), -135.0, [-27.0, 0.0])


@scenario()
def closes_over_under_vmap(h: Checked) -> None:
    """Branches of a batched cond may close over a row and over what an outer gradient tracks.

    Expect rows of y * x ** 2 where y > 0, else y + x, with x = 4 closed over, at y = (3, -1): their sum is 51, with the
    gradient 25 in x.
    """
    y = h.array([3.0, -1.0])

    def f(x: Any) -> Any:
        return h.sum_of_rows(lambda y: adprotocol.cond(y > 0.0, lambda: y * x * x, lambda: y + x), y)

    h.assert_value_and_grad(f, (h.array(4.0),), 51.0, 25.0)


def _multiply(v: Any) -> Any:
    """Return the product of the elements, all of them."""
    return v[0] * v[1] * v[2] * v[3]


def _stop_at_zero(v: Any) -> Any:
    """Return the product of the elements up to the first zero, as a loop with a break would."""
    product = v[0]
    for i in (1, 2, 3):
        product = adprotocol.cond(product == 0.0, lambda p, _: p, lambda p, a: p * a, product, v[i])
    return product


@scenario(
    varies=True,
    source="ForwardDiff, a product that stops at zero: https://github.com/JuliaDiff/ForwardDiff.jl/issues/480",
    rule="C7",
    transform="grad",
)
def product_with_a_break(h: Checked) -> None:
    """The shortcut of a product at zero is taken only outside gradients: 24, not 2.

    Expect the product of (2, 0, 3, 4), which stops at zero where nothing is differentiated: the gradient is (0, 24, 0,
    0), not (0, 2, 0, 0).
    """

    def product(v: Any) -> Any:
        return adprotocol.cond(h.query(v), _multiply, _stop_at_zero, v)

    v = h.array([2.0, 0.0, 3.0, 4.0])
    h.assert_equal(product(v), 0.0, "the plain product")
    h.assert_value_and_grad(product, (v,), 0.0, [0.0, 24.0, 0.0, 0.0])
    h.assert_equal(h.grad(_stop_at_zero)(v), [0.0, 2.0, 0.0, 0.0], "the gradient of the branch that stops at zero")


@scenario(
    "product-with-a-break",
    transform="grad of {way}",
    source="Enzyme, shortcuts at zero: https://github.com/EnzymeAD/Enzyme.jl/issues/114",
    rule="C7",
)
def product_with_a_break_traced(h: Checked, way: str) -> None:
    """A product traced plain, without a zero, has the right derivative at a zero.

    Expect the product under {way}, traced plain at (1, 2, 3, 4): 24; at (2, 0, 3, 4) the gradient (0, 24, 0, 0).
    """
    jitted = h.trace(way, lambda v: adprotocol.cond(h.query(v), _multiply, _stop_at_zero, v))
    h.assert_equal(jitted(h.array([1.0, 2.0, 3.0, 4.0])), 24.0, "the plain product")
    h.assert_equal(jitted(h.array([2.0, 0.0, 3.0, 4.0])), 0.0, "the plain product with a zero")
    h.assert_value_and_grad(jitted, (h.array([2.0, 0.0, 3.0, 4.0]),), 0.0, [0.0, 24.0, 0.0, 0.0])


@scenario(source=_FLUX, rule="C7", transform="grad")
def layers_in_a_row(h: Checked) -> None:
    """Each layer trains if its input is differentiated: in front of a parameter it evaluates.

    The second layer, 7 or 11 times its input, follows w times the layer of x, at x = 2, w = 7: 770 plain; both train in
    the gradient in x, 147; the second alone in that in w, 70.
    """
    x, w = h.array(2.0), h.array(7.0)

    def f(x: Any, w: Any) -> Any:
        return h.scale(w * h.probe(x), 7.0, 11.0)

    h.assert_equal(f(x, w), 770.0, "the plain value")
    h.assert_value_and_grad(f, (x, w), 294.0, 147.0, "in x")
    h.assert_value_and_grad(lambda w: f(x, w), (w,), 490.0, 70.0, "in w")


@scenario(varies=True, source=_PENNYLANE, rule="C7", transform="grad")
def layer_asks_parameters(h: Checked) -> None:
    """The predicate may be the answer for a structure and more values; any tracked leaf makes it true.

    Expect asked about a dict with w, and x: w * x where one of them is tracked, else 5 w * x; 70 plain at 7, 2, and 14
    with the gradients 2 in w and 7 in x.
    """

    def f(w: Any, x: Any) -> Any:
        model = {"w": w, "b": 1}
        return adprotocol.cond(h.query(model, x), lambda m, x: m["w"] * x, lambda m, x: 5.0 * m["w"] * x, model, x)

    w, x = h.array(7.0), h.array(2.0)
    h.assert_equal(f(w, x), 70.0, "the plain value")
    h.assert_value_and_grad(f, (w, x), 14.0, 2.0, "in w")
    h.assert_value_and_grad(lambda x: f(w, x), (x,), 14.0, 7.0, "in x")


@scenario(transform="grad of {way}", source=_STALE, rule="C7")
def layer_traced_once(h: Checked, way: str) -> None:
    """A traced layer evaluates plain and trains in a gradient, in any order.

    Expect a layer of 3 x in a gradient, else 5 x, under {way}: 10 plain, 6 and the gradient 3, 10, 6 and 3 again.
    """
    jitted, x = h.trace(way, h.probe), h.array(2.0)
    for _ in range(2):
        h.assert_equal(jitted(x), 10.0, "the plain value")
        h.assert_value_and_grad(jitted, (x,), 6.0, 3.0)


@scenario(transform="{way} of grad", native="{way} of grad of {way}", source=_STALE, rule="C7")
def layer_differentiated_first(h: Checked, way: str) -> None:
    """A layer traced in a gradient evaluates in the plain call that follows.

    Expect a layer of 3 x in a gradient, else 5 x, traced in a gradient first: 3, then plain 10, and traced again.
    """
    jitted, x = h.trace(way, h.probe), h.array(2.0)
    h.assert_equal(h.grad(jitted)(x), 3.0, "the gradient, first")
    h.assert_equal(jitted(x), 10.0, "the plain value, then")
    h.assert_equal(h.trace(way, h.grad(jitted))(x), 3.0, "the jitted gradient")
    h.assert_equal(h.trace(way, jitted)(x), 10.0, "the plain value, jitted twice")


@scenario(transform="grad of {way}", source=_PENNYLANE, rule="C7")
def layer_inside_a_branch(h: Checked, way: str) -> None:
    """A layer asks inside a staged branch of another cond, too.

    Expect a layer of x where x > 0, else 7 x, under {way}: 10 plain and the gradient 3 at 2; -14 and 7 at -2; asked
    about where it is called, and where it is called by what is called: 9 x times 21 x in a gradient.
    """
    jitted = h.trace(way, lambda x: adprotocol.cond(x > 0.0, h.probe, lambda x: 7.0 * x, x))
    h.assert_equal(jitted(h.array(2.0)), 10.0, "the plain value at 2")
    h.assert_value_and_grad(jitted, (h.array(2.0),), 6.0, 3.0, "at 2")
    h.assert_equal(jitted(h.array(-2.0)), -14.0, "the plain value at -2")
    h.assert_value_and_grad(jitted, (h.array(-2.0),), -14.0, 7.0, "at -2")
    caller = h.trace(way, lambda x: 1.0 * jitted(x))
    asking = h.trace(way, lambda x: h.probe(jitted(x)) * h.scale(caller(x), 7.0, 11.0))
    h.assert_value_and_grad(asking, (h.array(2.0),), 756.0, 756.0, "asked where it is called")


@scenario(
    source="PyTorch: requires_grad is False inside vmap: https://github.com/pytorch/pytorch/issues/134784", rule="C7"
)
def layer_of_rows(h: Checked) -> None:
    """A layer asks inside a batched branch, where rows go different ways.

    Expect rows of a layer where x > 0, which is 3 x ** 2 in a gradient, else of 5 x, at (2, -2): (10, -10) plain; in a
    gradient they add up to 2, with the gradient (12, 5).
    """

    def layer(x: Any) -> Any:
        return adprotocol.cond(h.query(x), lambda x: 3.0 * x * x, lambda x: 5.0 * x, x)

    def row(x: Any) -> Any:
        return adprotocol.cond(x > 0.0, layer, lambda x: 5.0 * x, x)

    def f(v: Any) -> Any:
        return h.sum_of_rows(row, v)

    v = h.array([2.0, -2.0])
    h.assert_equal(h.vmap(row)(v), [10.0, -10.0], "the plain rows")
    h.assert_value_and_grad(f, (v,), 2.0, [12.0, 5.0])


@scenario(
    transform="grad of grad",
    source="J. M. Siskind, B. A. Pearlmutter: Perturbation confusion and referential transparency, IFL 2005",
    rule="C7",
)
def layer_of_outer_variable(h: Checked) -> None:
    """Inside a gradient in y a layer of x trains only if a gradient in x is around.

    The inner gradient is 11 times the layer of x: 3 x in a gradient in x, so 66 at 2, with the gradient 33; 5 x without
    one, so 110.
    """
    k = h.array(1.0)

    def inner(x: Any) -> Any:
        return h.grad(lambda y: h.probe(x) * h.scale(k, 7.0, 11.0) * y)(h.array(3.0))

    h.assert_equal(inner(h.array(2.0)), 110.0, "the inner gradient without the outer")
    h.assert_value_and_grad(inner, (h.array(2.0),), 66.0, 33.0)


@scenario(transform="grad of {way}", source=_PENNYLANE, rule="C7")
def layer_asked_outside(h: Checked, way: str) -> None:
    """An answer obtained outside chooses inside a jitted function.

    The answer for x is closed over by {way} and chooses 3 y or 5 y there: 10 plain, 6 and the gradient 3.
    """

    def f(x: Any) -> Any:
        answer = h.query(x)
        return h.trace(way, lambda y: adprotocol.cond(answer, lambda y: 3.0 * y, lambda y: 5.0 * y, y))(x)

    x = h.array(2.0)
    h.assert_equal(f(x), 10.0, "the plain value")
    h.assert_value_and_grad(f, (x,), 6.0, 3.0)


@scenario(source=_FLUX, rule="C7", transform="grad")
def layer_behind_a_stop(h: Checked) -> None:
    """A layer that is given a constant evaluates, also inside a gradient.

    Expect layer(constant(x)) x, a layer 3 x in a gradient, else 5 x, at 2: 20, plain and in the gradient 10.
    """

    def f(x: Any) -> Any:
        return h.probe(adprotocol.non_differentiable(x)) * x

    x = h.array(2.0)
    h.assert_equal(f(x), 20.0, "the plain value")
    h.assert_value_and_grad(f, (x,), 20.0, 10.0)


@scenario(
    transform="jvp of jit",
    source="PyTorch: no switch tells forward mode: https://github.com/pytorch/pytorch/issues/128600",
    rule="C7",
)
def layer_in_forward_mode(h: Checked) -> None:
    """A traced layer trains in forward mode, too.

    Expect a layer of 3 x in a derivative, else 5 x, under jit at 2: 10 plain; 6 with the tangent 3.
    """
    jitted, x = h.jit(h.probe), h.array(2.0)
    h.assert_equal(jitted(x), 10.0, "the plain value")
    h.assert_value_and_tangent(jitted, x, h.array(1.0), 6.0, 3.0)
    h.assert_equal(jitted(x), 10.0, "the plain value again")
