"""What branches of `cond` may return, numbers and arrays of each dtype and rank, and what of it must agree."""

from __future__ import annotations

import contextlib
from typing import Any

import adprotocol
from adprotocol import NonDifferentiable
from adprotocol.conformance.checks import Absent, Checked, NoError
from adprotocol.conformance.scenario import SHOULD, Decorator, defaults
from adprotocol.conformance.scenarios import arrays
from adprotocol.conformance.scenarios.arrays import assert_near, each_array, first_element
from adprotocol.conformance.scenarios.cond.predicates import assert_refused
from adprotocol.conformance.scenarios.grid import compare
from adprotocol.conformance.scenarios.programs import in_both_orders
from adprotocol.conformance.scenarios.within_gradient.functions import FACTORS, asked_product, squares
from adprotocol.conformance.scenarios.within_gradient.parameters import NEEDS
from adprotocol.errors import BranchMismatchError

scenario: Decorator = defaults(
    "cond",
    rule="C5",
    transform="grad",
    source="NumPy: arrays of any number of axes: https://numpy.org/doc/stable/reference/arrays.ndarray.html",
)


_CONSTANT = "PyTorch, one branch a constant: https://github.com/pytorch/pytorch/issues/141259"
_MIXED = "JAX, a constant in one branch: https://github.com/jax-ml/jax/pull/415"
_STRUCTURE = "JAX, branches of different structure: https://github.com/jax-ml/jax/issues/2660"
_ALIAS = "PyTorch, a branch that is the identity: https://github.com/pytorch/pytorch/issues/153832"
_STATIC = "JAX: operands that are no arrays, closed over: https://docs.jax.dev/en/latest/_autosummary/jax.lax.cond.html"
_INTEGERS = (
    "PyTorch: integers from the branches of torch.cond: https://docs.pytorch.org/docs/stable/generated/torch.cond.html"
)
_DTYPES = "JAX: dtypes that carry derivatives: https://github.com/jax-ml/jax/issues/15861"


# Between x and 2 x, so that the rows of a batch take different branches.
_BREAK = 3.0


def _line(x: float) -> list[float]:
    """Return the derivatives of 3 x below 3, else of 7."""
    return [3.0 * x, 3.0, 0.0] if x < _BREAK else [7.0, 0.0, 0.0]


@scenario(
    transform=("grad", "jvp", "grad of jit", "grad of compile", "grad of vmap"),
    source=_CONSTANT,
)
def constant_branch(h: Checked, transforms: str) -> None:
    """One branch may be differentiable and the other a Python number, or an array, under {transforms}.

    Expect {transforms} of 3 x where x < 3, else of 7, at 2 and 4; in a batch 7 may be an array of NumPy too.
    """
    sevens = 7.0, h.array(7.0), h.numpy(h.array(7.0))
    for seven in sevens if "vmap" in transforms else sevens[:2]:

        def f(x: Any, seven: Any = seven) -> Any:
            return adprotocol.cond(x < _BREAK, lambda x: 3.0 * x, lambda _: seven, x) + 0.0 * x

        compare(h, transforms, f, _line, 2.0, 4.0)


@scenario(transform="", source=_MIXED)
def numbers_from_both_branches(h: Checked) -> None:
    """For a known bool Python numbers of any type come out unchanged.

    Expect 2.5 and 1, True and False, 1 + 2j and 0j for a known predicate: the very numbers.
    """
    x = h.array(2.0)
    for true, false in ((2.5, 1), (True, False), (1 + 2j, 0j), ("yes", None)):
        for pred in (True, False):
            got = adprotocol.cond(pred, lambda _: true, lambda _: false, x)
            h.assert_is(got, true if pred else false)


@scenario(level=SHOULD, transform="{way}", source=_MIXED)
def numbers_of_two_types(h: Checked, way: str) -> None:
    """A staged predicate under {way} may choose between a Python float and a Python int.

    Expect the number 2.5 where x > 0, else the integer 1, times x, under {way}: 5 at 2, -2 at -2, whichever branch is
    first.
    """
    for choose in (
        lambda x: adprotocol.cond(x > 0.0, lambda: 2.5, lambda: 1) * x,
        lambda x: adprotocol.cond(x < 0.0, lambda: 1, lambda: 2.5) * x,
    ):
        jitted = h.trace(way, choose)
        h.assert_equal(jitted(h.array(2.0)), 5.0, "the float")
        h.assert_equal(jitted(h.array(-2.0)), -2.0, "the integer")


@scenario(source=_STRUCTURE)
def containers(h: Checked) -> None:
    """Branches return containers, with None, strings and numbers among the leaves.

    Branches return a dict of a tuple, a list, None and a string; of the numbers in it, x ** 2 + x or 4 x + 7, the
    gradients at 2 are 5 and 4.
    """

    def f(x: Any, pred: Any) -> Any:
        made: dict[str, Any] = adprotocol.cond(
            pred,
            lambda x: {"y": (x * x, [x]), "n": None, "name": "s"},
            lambda x: {"y": (4.0 * x, [7.0]), "n": None, "name": "s"},
            x,
        )
        h.check(list(made) == ["y", "n", "name"] and type(made["y"]) is tuple, f"the result is {made!r:.80}")
        h.assert_is(made["n"], None, "None in the result")
        h.check(made["name"] == "s", "the string in the result is another")
        return made["y"][0] + made["y"][1][0]

    for truth, value, slope in ((True, 6.0, 5.0), (False, 15.0, 4.0)):
        for pred in (truth, h.array(truth)):
            h.assert_value_and_grad(lambda x: f(x, pred), (h.array(2.0),), value, slope, f"{truth}")


@scenario("containers", transform="grad of {way}", source=_STRUCTURE)
def containers_traced(h: Checked, way: str) -> None:
    """A staged predicate chooses between containers, with numbers and None in them.

    Branches under {way} return a dict of a tuple, a list and None; the numbers in it add up to 6 at 2 and to -1 at -2,
    with the gradients 5 and 4.
    """

    def f(x: Any) -> Any:
        made: dict[str, Any] = adprotocol.cond(
            x > 0.0, lambda x: {"y": (x * x, [x]), "n": None}, lambda x: {"y": (4.0 * x, [7.0]), "n": None}, x
        )
        return made["y"][0] + made["y"][1][0]

    traced = h.trace(way, f)
    h.assert_value_and_grad(traced, (h.array(2.0),), 6.0, 5.0, "at 2")
    h.assert_value_and_grad(traced, (h.array(-2.0),), -1.0, 4.0, "at -2")


@scenario(transform="{way}", source="JAX, a branch with an effect alone: https://github.com/jax-ml/jax/issues/514")
def none(h: Checked, way: str) -> None:
    """Both branches of a staged cond may return None.

    Where both branches return None, so does a staged cond, and 3 x beside it is 6.
    """

    def f(x: Any) -> Any:
        got = adprotocol.cond(x > 0.0, lambda _: None, lambda _: None, x)
        h.assert_is(got, None)
        return 3.0 * x

    h.assert_equal(h.trace(way, f)(h.array(2.0)), 6.0, "what is beside it")


@scenario(source=_ALIAS)
def operand_returned(h: Checked) -> None:
    """A branch may return an operand as it is, and twice.

    Expect (x, x) or (x, y), known, from x = 5, y = 3: the product 25 or 30, with the gradient 10 or 6 in x, where y is
    doubled, which is untracked.
    """
    y = h.array(3.0)
    for truth, value, slope in ((True, 25.0, 10.0), (False, 30.0, 6.0)):
        for pred in (truth, h.array(truth)):

            def f(x: Any, pred: Any = pred) -> Any:
                first, second = adprotocol.cond(pred, lambda x, _: (x, x), lambda x, y: (x, y), x, y)
                return first * h.scale(second, 1.0, 2.0)

            h.assert_value_and_grad(f, (h.array(5.0),), value, slope, f"{truth}")


@scenario("operand-returned", transform="grad of {way}", source=_ALIAS)
def operand_returned_traced(h: Checked, way: str) -> None:
    """A branch of a staged cond may return an operand as it is.

    Expect x * x where x > 0, else y * x, under {way}, with y = 3: 25 with the gradient 10 at 5, -6 with 3 at -2.
    """
    y = h.array(3.0)
    jitted = h.trace(way, lambda x: adprotocol.cond(x > 0.0, lambda x, _: x, lambda _, y: y, x, y) * x)
    h.assert_value_and_grad(jitted, (h.array(5.0),), 25.0, 10.0, "at 5")
    h.assert_value_and_grad(jitted, (h.array(-2.0),), -6.0, 3.0, "at -2")


@scenario(source="JAX, a type for what is not to be differentiated: https://github.com/jax-ml/jax/issues/2588")
def label_returned(h: Checked) -> None:
    """A branch that returns a label returns a constant.

    Expect a label of x where x > 0, else x, times x: 4 and the gradient 2 at 2; 4 and the gradient -4 at -2.
    """

    def f(x: Any) -> Any:
        return adprotocol.cond(x > 0.0, lambda x: NonDifferentiable(x) * 1.0, lambda x: x, x) * x

    h.assert_value_and_grad(f, (h.array(2.0),), 4.0, 2.0, "at 2")
    h.assert_value_and_grad(f, (h.array(-2.0),), 4.0, -4.0, "at -2")


@scenario(rule="C3", transform="{way}", source=_STRUCTURE)
def mismatch(h: Checked, way: str) -> None:
    """Branches of a staged cond that differ in structure, shape or dtype raise an error that says so.

    Expect a BranchMismatchError with what true_fun and false_fun return, for x beside (x, x), None, (2,), integers,
    (2,) beside (1,), and an integer beside the number 2.5, either first.
    """
    h.require_staged(way)
    vector, integer = h.array([1.0, 2.0]), h.array(1)
    pairs: list[tuple[Any, Any]] = [
        *(
            (lambda x: x, other)
            for other in (lambda x: (x, x), lambda _: None, lambda x: x * vector, lambda _: integer)
        ),
        (lambda x: x * vector, lambda x: x * vector[1:]),
        (lambda _: integer, lambda _: 2.5),
    ]
    for true, false in (*pairs, *(pair[::-1] for pair in pairs)):
        with h.raises(BranchMismatchError, words=("true_fun", "false_fun")):
            h.trace(way, lambda x: (adprotocol.cond(x > 0.0, true, false, x), x)[1])(h.array(2.0))


@scenario(
    level=SHOULD,
    rule="C3",
    transform="vmap",
    source="JAX, shapes that differ under vmap: https://github.com/jax-ml/jax/issues/1263",
)
def mismatch_under_vmap(h: Checked) -> None:
    """Branches of a batched cond that differ in structure, length or in a text raise an error that says so.

    Expect a BranchMismatchError for rows that would be ((x, 2 x), 'text') and (x, x), ((x, 2 x), 'other') or ((x,),
    'text'), if vmap is no loop.
    """
    ran: list[Any] = []
    vector, rows = h.array([1.0, 2.0]), [1.0, 2.0, 3.0]

    def true(x: Any) -> Any:
        ran.append(x)
        return x * vector, "text"

    for other in (lambda x: (x, x), lambda x: (x * vector, "other"), lambda x: (x * vector[0:1], "text")):
        ran.clear()
        with contextlib.suppress(BranchMismatchError):
            h.vmap(lambda x: (adprotocol.cond(x > 0.0, true, other, x), x)[1])(h.array(rows))
            if len(ran) == len(rows):
                reason = "its vmap runs row by row, where every predicate is known"
                raise Absent(reason)
            msg = "no error; a BranchMismatchError was expected"
            raise NoError(msg)


@scenario(
    transform="grad of {way}",
    native="grad of {way}",
    source="JAX: outputs known and unknown to partial evaluation: https://docs.jax.dev/en/latest/autodidax.html",
)
def constant_beside_a_result(h: Checked, way: str) -> None:
    """Of two results of a staged cond the constant is not tracked and the other is, in both first orders.

    Both branches return x ** 2 twice, once as a constant: in a gradient the product of both at 2 and -2 is 5 * 7 * 16 =
    560 or 3 * 11 * 16 = 528, by the place of the constant; 5 * 11 * 16 = 880 plain.
    """
    for constant, factor in enumerate(FACTORS):

        def function(x: Any, constant: int = constant) -> Any:
            made = adprotocol.cond(x > 0.0, lambda x: squares(x, constant), lambda x: squares(-1.0 * x, constant), x)
            return asked_product(h, *made)

        def make(function: Any = function) -> Any:
            return h.trace(way, function)

        def plain(traced: Any) -> None:
            for point in (2.0, -2.0):
                h.assert_equal(traced(h.array(point)), 880.0, "the plain call")

        def differentiated(traced: Any, want: float = 16.0 * factor) -> None:
            for point, sign in ((2.0, 1.0), (-2.0, -1.0)):
                h.assert_value_and_grad(traced, (h.array(point),), want, sign * want, f"at {point}")

        in_both_orders(make, plain, differentiated)


@scenario(
    rule="C6",
    transform="{way}",
    native="grad of {way}",
    also_needs=NEEDS,
    source="TensorFlow: tapes watch trainable variables: https://www.tensorflow.org/guide/autodiff",
)
def parameter_returned(h: Checked, way: str) -> None:
    """A branch of a compiled function may return a parameter as it is, and a parameter may be the predicate.

    Expect p x where x > 0, else 2 x x, with p = 3 returned by a branch as it is: 6 at 2, and 8 at -2; the gradients 2
    and 0 in p; so too in the branch that a parameter, which is True, chooses.
    """
    p, on = h.parameter(3.0, trains=True), h.parameter(True, trains=False)
    for what, chosen in (
        ("closed over", lambda x: adprotocol.cond(x > 0.0, lambda: p, lambda: 2.0 * x)),
        ("given", lambda x: adprotocol.cond(x > 0.0, lambda p, _: p, lambda _, x: 2.0 * x, p, x)),
        (
            "where a parameter is True",
            lambda x: adprotocol.cond(on, lambda: adprotocol.cond(x > 0.0, lambda: p, lambda: 2.0 * x), lambda: x),
        ),
    ):
        traced = h.trace(way, lambda x, chosen=chosen: chosen(x) * x)
        for value, want, slope in ((2.0, 6.0, 2.0), (-2.0, 8.0, 0.0)):
            x = h.array(value)
            h.assert_equal(adprotocol.non_differentiable(traced(x)), want, f"{what}, at {value}")
            h.assert_equal(h.parameter_grad(lambda: traced(x), p), slope, f"{what}, the gradient at {value}")


def _power(x: Any, n: int, settings: dict[str, Any]) -> Any:
    """Return x to the power n, by n multiplications, and doubled where the settings say nothing else."""
    result = 1.0 * x
    for _ in range(n - 1):
        result = result * x
    return result * 2.0 if settings["factor"] is None else result


def _chosen(x: Any) -> Any:
    return adprotocol.cond(x > 0.0, _power, lambda x, n, _: x * float(n), x, 3, {"factor": None})


@scenario(rule="C8", transform="grad of {way}", source=_STATIC)
def integer_operand(h: Checked, way: str) -> None:
    """Branches of a staged cond may count with an integer and look for None among their operands.

    Expect 2 x ** 3, by a loop over an integer operand, where x > 0, else 3 x: 16 with the gradient 24 at 2, -6 with 3
    at -2.
    """
    traced = h.trace(way, _chosen)
    for point, value, slope in ((2.0, 16.0, 24.0), (-2.0, -6.0, 3.0)):
        h.assert_equal(traced(h.array(point)), value, f"the plain call at {point}")
        h.assert_value_and_grad(traced, (h.array(point),), value, slope, f"at {point}")


@scenario(rule="C8", transform="vmap of grad", needs=("grad", "vmap"), source=_STATIC)
def integer_operand_under_vmap(h: Checked) -> None:
    """Branches of a batched cond may count with an integer, look for None among operands, and return integers.

    Expect 2 x ** 3, by a loop over an integer operand, where x > 0, else 3 x, at 2 and -2: gradients 24 and 3; the
    integers 2 and 1; 2 and 0.5, whichever is first.
    """
    rows, one = h.array([2.0, -2.0]), h.array(1)
    h.assert_equal(h.vmap(h.grad(_chosen))(rows), [24.0, 3.0], "the gradients")
    found = h.numpy(h.vmap(lambda x: adprotocol.cond(x > 0.0, lambda: 2, lambda: 1) * one)(rows))
    h.assert_equal(found, [2, 1], "the integers")
    h.check(found.dtype.kind in "iu", f"integers from both branches became {found.dtype.name}")
    for sign in (1.0, -1.0):
        mixed = h.vmap(lambda x: adprotocol.cond(sign * x > 0.0, lambda: 2, lambda: 0.5) * (1.0 + 0.0 * x))
        h.assert_equal(mixed(sign * rows), [2.0, 0.5], "a fraction beside an integer")
        swapped = h.vmap(lambda x: adprotocol.cond(sign * x > 0.0, lambda: 0.5, lambda: 2) * (1.0 + 0.0 * x))
        h.assert_equal(swapped(sign * rows), [0.5, 2.0], "an integer beside a fraction")


@scenario(level=SHOULD, source=_INTEGERS, transform="{way}")
def integers_from_both_branches(h: Checked, way: str) -> None:
    """Of what both branches of a staged cond return integers are integers, and flags are predicates.

    Expect 2 or 1 times an integer array, by the sign of x: integers, which are no predicates; True or False by it: then
    3 x, else 5 x; 2 or 1 alone; the integer 1 beside an integer array 7, in either order; 2.5 beside one is 2.5, or an
    error.
    """

    def count(x: Any) -> Any:
        return adprotocol.cond(x > 0.0, lambda: 2, lambda: 1) * h.array(1)

    def flagged(x: Any) -> Any:
        positive = adprotocol.cond(x > 0.0, lambda: True, lambda: False)
        return adprotocol.cond(positive, lambda x: 3.0 * x, lambda x: 5.0 * x, x)

    mixed: Any = None
    with contextlib.suppress(Exception):  # of a mismatch; in a compiled function that is an error of the compiler's
        mixed = h.trace(way, lambda x: adprotocol.cond(x > 0.0, lambda: h.array(1), lambda: 2.5))(h.array(-2.0))
    if mixed is not None:
        h.assert_equal(mixed, 2.5, "a fraction beside an integer")
    first = h.trace(way, lambda x: adprotocol.cond(x < 0.0, lambda: 1, lambda: h.array(7)))
    second = h.trace(way, lambda x: adprotocol.cond(x > 0.0, lambda: h.array(7), lambda: 1))
    for point, number in ((2.0, 7), (-2.0, 1)):
        for beside in (first, second):
            found = h.numpy(beside(h.array(point)))
            h.assert_equal(found, number, f"an integer beside an array of them, at {point}")
            h.check(found.dtype.kind in "iu", f"an integer beside an array of them became {found.dtype.name}")
    counted, branched = h.trace(way, count), h.trace(way, flagged)
    alone = h.trace(way, lambda x: adprotocol.cond(x > 0.0, lambda: 2, lambda: 1))
    assert_refused(lambda: h.trace(way, lambda x: adprotocol.cond(count(x), lambda: x, lambda: x))(h.array(2.0)))
    for point, number, value in ((2.0, 2, 6.0), (-2.0, 1, -10.0)):
        found = h.numpy(counted(h.array(point)))
        h.assert_equal(found, number, f"the integer at {point}")
        h.check(found.dtype.kind in "iu", f"integers from both branches became {found.dtype.name}")
        h.assert_equal(branched(h.array(point)), value, f"what a flag chooses at {point}")
        h.assert_equal(alone(h.array(point)), number, f"the integer alone at {point}")


@scenario(needs=("grad", "dtypes", "cast"), source=_DTYPES, rule="C4")
def each_dtype_and_shape(h: Checked) -> None:
    """Branches take and return variables of each floating-point dtype and shape.

    Expect 3 x where an element is above 1, else x - x: the gradient 3, for each floating-point dtype and shape.
    """
    for what, x in each_array(h):

        def f(x: Any) -> Any:
            return adprotocol.cond(first_element(x) > 1.0, lambda x: 3.0 * x, lambda x: x - x, x)

        assert_near(h, f(x), 6.0, f"plain, {what}")
        assert_near(h, first_element(h.grad(lambda x, f=f: first_element(f(x)))(x)), 3.0, what)


@scenario(also_needs=("dtypes", "cast"), source=_DTYPES, transform="{way}")
def number_beside_each_dtype(h: Checked, way: str) -> None:
    """A Python number from one branch agrees with an array of any dtype from the other, under {way}.

    Expect 2 x where x > 1, else the number 1.5: 4 at 2, 1.5 at 0.5, in the dtype of x, for each floating-point one.
    """
    first = h.trace(way, lambda x: adprotocol.cond(x < 1.0, lambda x: 1.5, lambda x: x + x, x))
    second = h.trace(way, lambda x: adprotocol.cond(x > 1.0, lambda x: x + x, lambda x: 1.5, x))
    for dtype in h.dtypes():
        for at, want in ((2.0, 4.0), (0.5, 1.5)):
            x = h.cast(h.array(at), dtype)
            assert_near(h, first(x), want, f"the number first, at {at}, {dtype}", like=x)
            assert_near(h, second(x), want, f"the number second, at {at}, {dtype}", like=x)


@scenario(rule="C4")
def ranks_of_operands(h: Checked) -> None:
    """Branches take and return variables of any rank, and an unused one has zeros of its shape.

    Expect 3 x or x y for x = 2 and y = 4 of one to four axes: value and gradients of the first element in both.
    """
    for shape in arrays.SHAPES:
        x, y = arrays.filled(h, shape, 2.0), arrays.filled(h, shape, 4.0)
        for truth, value, in_x, in_y in ((True, 6.0, 3.0, 0.0), (False, 8.0, 4.0, 2.0)):
            for pred in (truth, h.array(truth)):

                def f(x: Any, y: Any, pred: Any = pred) -> Any:
                    return adprotocol.cond(pred, lambda x, _: 3.0 * x, lambda x, y: x * y, x, y)

                what = f"{truth}, shape {shape}"
                h.assert_equal(f(x, y), arrays.nested(shape, value), f"the value, {what}")
                for slope, want in (
                    (h.grad(lambda x: arrays.first(f(x, y), shape))(x), in_x),
                    (h.grad(lambda y: arrays.first(f(x, y), shape))(y), in_y),
                ):
                    h.assert_equal(slope, arrays.corner(shape, want), f"the gradient, {what}")


@scenario(rule="C3", transform="vmap")
def ranks_of_rows(h: Checked) -> None:
    """Rows of any rank choose their branches.

    Expect rows of one to four axes, 3 x where the first element is above 0, else 5 x, at 2 and -2: 6 and -10.
    """
    for shape in arrays.SHAPES:
        rows = h.array([arrays.nested(shape, 2.0), arrays.nested(shape, -2.0)])

        def row(x: Any, shape: tuple[int, ...] = shape) -> Any:
            return adprotocol.cond(arrays.first(x, shape) > 0.0, lambda x: 3.0 * x, lambda x: 5.0 * x, x)

        want = [arrays.nested(shape, 6.0), arrays.nested(shape, -10.0)]
        h.assert_equal(h.vmap(row)(rows), want, f"rows of shape {shape}")


@scenario(transform="jvp", rule="C4")
def ranks_of_operands_in_forward_mode(h: Checked) -> None:
    """In forward mode, too, branches take and return variables of any rank.

    Expect 3 x, or x x, for x = 2 of one to four axes along ones: 6 with the tangent 3, 4 with the tangent 4.
    """
    for shape in arrays.SHAPES:
        x, along = arrays.filled(h, shape, 2.0), arrays.filled(h, shape, 1.0)
        for truth, value, slope in ((True, 6.0, 3.0), (False, 4.0, 4.0)):
            h.assert_value_and_tangent(
                lambda x: adprotocol.cond(truth, lambda x: 3.0 * x, lambda x: x * x, x),
                x,
                along,
                arrays.nested(shape, value),
                arrays.nested(shape, slope),
                f"{truth}, shape {shape}",
            )
