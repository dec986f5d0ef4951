"""What branches of `cond` may return (C5), and what of it must agree when both are traced (C3)."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import NonDifferentiable
from adprotocol.conformance.checks import Absent
from adprotocol.conformance.scenario import SHOULD, scenario
from adprotocol.conformance.scenarios.staged import WAYS, staged, trace
from adprotocol.errors import BranchMismatchError

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked

_CONSTANT = "PyTorch, one branch a constant: https://github.com/pytorch/pytorch/issues/141259"
_MIXED = "JAX, a constant in one branch: https://github.com/jax-ml/jax/pull/415"
_STRUCTURE = "JAX, branches of different structure: https://github.com/jax-ml/jax/issues/2660"
_ALIAS = "PyTorch, a branch that is the identity: https://github.com/pytorch/pytorch/issues/153832"
_NONE = "JAX, a branch with an effect alone: https://github.com/jax-ml/jax/issues/514"
_SHAPE = "JAX, shapes that differ under vmap: https://github.com/jax-ml/jax/issues/1263"


def _relu(x: Any) -> Any:
    """Return 3 x where x is positive, else the Python number 7."""
    return adprotocol.cond(x > 0.0, lambda x: 3.0 * x, lambda _: 7.0, x)


@scenario(
    "cond/constant-branch",
    rule="C5",
    transform="grad",
    expects="3 x where x > 0, else the number 7: 6 and the gradient 3 at 2; 7 and the gradient 0 at -2",
    source=_CONSTANT,
    varies=True,
)
def constant_branch(h: Checked) -> None:
    """One branch may be differentiable and the other a Python number."""
    h.value_and_gradient(_relu, (h.array(2.0),), 6.0, 3.0, "at 2")
    h.value_and_gradient(_relu, (h.array(-2.0),), 7.0, 0.0, "at -2")


@scenario(
    "cond/constant-branch-forward-mode",
    rule="C5",
    transform="jvp",
    expects="3 x where x > 0, else the array 7: 6 with the tangent 3 at 2; 7 with the tangent 0 at -2",
    source=_CONSTANT,
    varies=True,
)
def constant_branch_forward_mode(h: Checked) -> None:
    """In forward mode, too, one branch may be differentiable and the other a constant."""
    seven = h.array(7.0)

    def f(x: Any) -> Any:
        return adprotocol.cond(x > 0.0, lambda x: 3.0 * x, lambda _: seven, x) + 0.0 * x

    for point, want, slope in ((2.0, 6.0, 3.0), (-2.0, 7.0, 0.0)):
        value, tangent = h.jvp(f, h.array(point), h.array(1.0))
        h.equal(value, want, f"at {point}: the value")
        h.equal(tangent, slope, f"at {point}: the tangent")


@staged(
    "cond/constant-branch",
    rule="C5",
    transform="grad of {way}",
    expects="3 x where x > 0, else the number 7, under {way}: 6 and 3 at 2; 7 and 0 at -2; 6 and 3 again",
    source=_MIXED,
)
def constant_branch_under_jit(h: Checked, way: str) -> None:
    """A staged predicate may choose between a variable and a Python number."""
    jitted = trace(h, way, _relu)
    for point, value, slope in ((2.0, 6.0, 3.0), (-2.0, 7.0, 0.0), (2.0, 6.0, 3.0)):
        h.value_and_gradient(jitted, (h.array(point),), value, slope, f"at {point}")


@scenario(
    "cond/constant-branch-under-vmap",
    rule="C5",
    transform="grad of vmap",
    expects="rows of 3 x where x > 0, else the number 7, at (2, -2), summed: 13, with the gradient (3, 0)",
    source=_CONSTANT,
)
def constant_branch_under_vmap(h: Checked) -> None:
    """Rows may choose between a variable and a Python number."""

    def f(v: Any) -> Any:
        rows = h.vmap(_relu)(v)
        return rows[0] + rows[1]

    h.value_and_gradient(f, (h.array([2.0, -2.0]),), 13.0, [3.0, 0.0])


@scenario(
    "cond/numbers-from-both-branches",
    rule="C5",
    expects="2.5 and 1, True and False, 1 + 2j and 0j for a known predicate: the very numbers",
    source=_MIXED,
)
def numbers_from_both_branches(h: Checked) -> None:
    """For a known bool Python numbers of any type come out unchanged."""
    x = h.array(2.0)
    for true, false in ((2.5, 1), (True, False), (1 + 2j, 0j), ("yes", None)):
        for pred in (True, False):
            got = adprotocol.cond(pred, lambda _: true, lambda _: false, x)  # noqa: B023
            h.same(got, true if pred else false)


def numbers_of_two_types_under_jit(h: Checked, way: str) -> None:
    """A staged predicate may choose between a Python float and a Python int."""
    jitted = trace(h, way, lambda x: adprotocol.cond(x > 0.0, lambda: 2.5, lambda: 1) * x)
    h.equal(jitted(h.array(2.0)), 5.0, "the float")
    h.equal(jitted(h.array(-2.0)), -2.0, "the integer")


for _way in WAYS:
    scenario(
        f"cond/numbers-of-two-types-under-{_way}",
        rule="C5",
        level=SHOULD,
        transform=_way,
        summary=f"A staged predicate under {_way} may choose between a Python float and a Python int.",
        expects=f"the number 2.5 where x > 0, else the integer 1, times x, under {_way}: 5 at 2, -2 at -2",
        source=_MIXED,
    )(functools.partial(numbers_of_two_types_under_jit, way=_way))


@scenario(
    "cond/containers",
    rule="C5",
    transform="grad",
    expects='{"y": (x x, [x]), "n": None, "name": "s"} or the same with 4 x and 7: gradients 2 x + 1 = 5 and 4 at 2',
    source=_STRUCTURE,
)
def containers(h: Checked) -> None:
    """Branches return containers, with None, strings and numbers among the leaves."""

    def f(x: Any, pred: Any) -> Any:
        made: dict[str, Any] = adprotocol.cond(
            pred,
            lambda x: {"y": (x * x, [x]), "n": None, "name": "s"},
            lambda x: {"y": (4.0 * x, [7.0]), "n": None, "name": "s"},
            x,
        )
        h.holds(list(made) == ["y", "n", "name"] and type(made["y"]) is tuple, f"the result is {made!r:.80}")
        h.same(made["n"], None, "None in the result")
        h.holds(made["name"] == "s", "the string in the result is another")
        return made["y"][0] + made["y"][1][0]

    for truth, value, slope in ((True, 6.0, 5.0), (False, 15.0, 4.0)):
        for pred in (truth, h.array(truth)):
            h.value_and_gradient(lambda x: f(x, pred), (h.array(2.0),), value, slope, f"{truth}")  # noqa: B023


@staged(
    "cond/containers",
    rule="C5",
    transform="grad of {way}",
    expects='{"y": (x x, [x]), "n": None} where x > 0, else with 4 x and 7, under {way}: 6 and 5 at 2; -1 and 4 at -2',
    source=_STRUCTURE,
)
def containers_under_jit(h: Checked, way: str) -> None:
    """A staged predicate chooses between containers, with numbers and None in them."""

    def f(x: Any) -> Any:
        made: dict[str, Any] = adprotocol.cond(
            x > 0.0, lambda x: {"y": (x * x, [x]), "n": None}, lambda x: {"y": (4.0 * x, [7.0]), "n": None}, x
        )
        return made["y"][0] + made["y"][1][0]

    traced = trace(h, way, f)
    h.value_and_gradient(traced, (h.array(2.0),), 6.0, 5.0, "at 2")
    h.value_and_gradient(traced, (h.array(-2.0),), -1.0, 4.0, "at -2")


@staged(
    "cond/none",
    rule="C5",
    expects="where both branches return None, so does a staged cond, and 3 x beside it is 6",
    source=_NONE,
)
def none_under_jit(h: Checked, way: str) -> None:
    """Both branches of a staged cond may return None."""

    def f(x: Any) -> Any:
        got = adprotocol.cond(x > 0.0, lambda _: None, lambda _: None, x)
        h.same(got, None)
        return 3.0 * x

    h.equal(trace(h, way, f)(h.array(2.0)), 6.0, "what is beside it")


@scenario(
    "cond/operand-returned",
    rule="C5",
    transform="grad",
    expects="(x, x) or (x, y), known, from x = 5, y = 3: the product 25 or 15, with the gradient 10 or 3 in x",
    source=_ALIAS,
)
def operand_returned(h: Checked) -> None:
    """A branch may return an operand as it is, and twice."""
    y = h.array(3.0)
    for truth, value, slope in ((True, 25.0, 10.0), (False, 15.0, 3.0)):
        for pred in (truth, h.array(truth)):

            def f(x: Any, pred: Any = pred) -> Any:
                first, second = adprotocol.cond(pred, lambda x, _: (x, x), lambda x, y: (x, y), x, y)
                return first * second

            h.value_and_gradient(f, (h.array(5.0),), value, slope, f"{truth}")


@staged(
    "cond/operand-returned",
    rule="C5",
    transform="grad of {way}",
    expects="x where x > 0, else y, times x under {way}, y = 3: 25 and the gradient 10 at 5; -6 and 3 at -2",
    source=_ALIAS,
)
def operand_returned_under_jit(h: Checked, way: str) -> None:
    """A branch of a staged cond may return an operand as it is."""
    y = h.array(3.0)
    jitted = trace(h, way, lambda x: adprotocol.cond(x > 0.0, lambda x, _: x, lambda _, y: y, x, y) * x)
    h.value_and_gradient(jitted, (h.array(5.0),), 25.0, 10.0, "at 5")
    h.value_and_gradient(jitted, (h.array(-2.0),), -6.0, 3.0, "at -2")


@scenario(
    "cond/label-returned",
    rule="C5",
    transform="grad",
    expects="a label of x where x > 0, else x, times x: 4 and the gradient 2 at 2; 4 and the gradient -4 at -2",
    source="JAX, a type for what is not to be differentiated: https://github.com/jax-ml/jax/issues/2588",
)
def label_returned(h: Checked) -> None:
    """A branch that returns a label returns a constant."""

    def f(x: Any) -> Any:
        return adprotocol.cond(x > 0.0, lambda x: NonDifferentiable(x) * 1.0, lambda x: x, x) * x

    h.value_and_gradient(f, (h.array(2.0),), 4.0, 2.0, "at 2")
    h.value_and_gradient(f, (h.array(-2.0),), 4.0, -4.0, "at -2")


@staged(
    "cond/mismatch",
    rule="C3",
    expects="a BranchMismatchError with what true_fun and false_fun return, for x beside (x, x), None, (2,), integers",
    source=_STRUCTURE,
)
def mismatch_under_jit(h: Checked, way: str) -> None:
    """Branches of a staged cond that differ in structure, shape or dtype raise an error that says so."""
    vector, integer = h.array([1.0, 2.0]), h.array(1)
    for other in (lambda x: (x, x), lambda _: None, lambda x: x * vector, lambda _: integer):
        with h.raises(BranchMismatchError, words=("true_fun", "false_fun")):
            trace(h, way, lambda x: (adprotocol.cond(x > 0.0, lambda x: x, other, x), x)[1])(h.array(2.0))  # noqa: B023


@scenario(
    "cond/mismatch-under-vmap",
    rule="C3",
    level=SHOULD,
    transform="vmap",
    expects="a BranchMismatchError for rows that would be x and (x, x), if vmap does not run row by row",
    source=_SHAPE,
)
def mismatch_under_vmap(h: Checked) -> None:
    """Branches of a batched cond that differ in structure raise an error that says so."""
    ran: list[Any] = []

    def true(x: Any) -> Any:
        ran.append(x)
        return x

    def f(x: Any) -> Any:
        adprotocol.cond(x > 0.0, true, lambda x: (x, x), x)
        return x

    rows = [1.0, 2.0, 3.0]
    try:
        h.vmap(f)(h.array(rows))
    except BranchMismatchError:
        return
    if len(ran) == len(rows):
        reason = "its vmap runs row by row, where every predicate is known"
        raise Absent(reason)
    h.holds(False, "no error; a BranchMismatchError was expected")  # noqa: FBT003
