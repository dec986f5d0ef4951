"""`cond` with a predicate that is known: what it may be, and one branch alone, once."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import NonDifferentiable
from adprotocol.conformance.checks import Checked, NoError
from adprotocol.conformance.scenario import SHOULD, Decorator, defaults
from adprotocol.conformance.scenarios.programs import PATIENCE, in_threads
from adprotocol.errors import BranchError, PredicateError
from adprotocol.messages import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable


_INTEGER = "JAX, integers as predicates: https://github.com/jax-ml/jax/issues/1379"
_ONE = "JAX, cond that evaluates more than one branch: https://github.com/jax-ml/jax/issues/8409"

scenario: Decorator = defaults("cond", rule="C1")


def _note(ran: list[bool], branch: bool, result: Any) -> Any:
    """Return the result, and note which branch it is of."""
    ran.append(branch)
    return result


@scenario(source="JAX, what a predicate may be: https://docs.jax.dev/en/latest/_autosummary/jax.lax.cond.html")
def known_predicates(h: Checked) -> None:
    """A bool of Python or NumPy and a boolean scalar of the system choose, and so does a label of one.

    Of 3 x and 5 x at 2 expect 6 for true and 10 for false, of Python, of NumPy, as an array, in a label.
    """
    import numpy as np

    x = h.array(2.0)
    for truth, want in ((True, 6.0), (False, 10.0)):
        array = h.array(truth)
        for name, pred in (
            ("a bool", truth),
            ("a NumPy bool", np.bool_(truth)),
            ("a NumPy array", np.array(truth)),
            ("an array", array),
            ("a label", NonDifferentiable(array)),
        ):
            h.assert_equal(
                adprotocol.cond(pred, lambda x: 3.0 * x, lambda x: 5.0 * x, x), want, f"{name} of {truth}: it"
            )
    h.assert_equal(adprotocol.cond(x > 1.0, lambda x: 3.0 * x, lambda x: 5.0 * x, x), 6.0, "the result of a comparison")


@scenario(source="Qrisp, a function given for the predicate: https://github.com/eclipse-qrisp/Qrisp/issues/203")
def refuses_what_is_no_bool(h: Checked) -> None:
    """A predicate that is merely truthy is refused.

    Expect a PredicateError, which is a TypeError, for 1, 0.0, None, a string, a list and a function.
    """
    x = h.array(2.0)
    refused: tuple[Any, ...] = (1, 0, 0.0, None, "True", [], known_predicates, ~True)
    for pred in refused:
        with h.raises(PredicateError):
            adprotocol.cond(pred, lambda x: x, lambda x: x, x)


@scenario(source=_INTEGER)
def refuses_arrays_of_numbers(h: Checked) -> None:
    """A scalar array of integers or floats is not a predicate, on any system.

    Expect a PredicateError for scalars 1, 0 and 1.0 of the system, for those of NumPy, and for comparisons summed.
    """
    import numpy as np

    x = h.array(2.0)
    preds: list[Any] = [h.array(1), h.array(0), h.array(1.0), np.int64(1), np.float64(0.0)]
    for pred in preds:
        with h.raises(PredicateError):
            adprotocol.cond(pred, lambda x: x, lambda x: x, x)


@scenario(
    source="PyTorch, where a tensor with one element passes: "
    "https://docs.pytorch.org/docs/stable/generated/torch.cond.html"
)
def refuses_boolean_vectors(h: Checked) -> None:
    """A boolean array that is not a scalar is refused, even with one element.

    Expect a PredicateError, which is a TypeError, for booleans of shape (2,), (1,) and (1, 1).
    """
    import numpy as np

    x = h.array(2.0)
    for value in ([True, False], [True], [[False]]):
        for pred in (h.array(value), np.array(value)):
            with h.raises(PredicateError):
                adprotocol.cond(pred, lambda x: x, lambda x: x, x)


def assert_refused(call: Callable[[], Any]) -> None:
    """Check that a call raises a TypeError, or that its error or a cause, which a compiler may wrap, says predicate."""
    found: list[BaseException] = []
    try:
        call()
    except Exception as error:
        found.append(error)
        while found[-1].__cause__ is not None:
            found.append(found[-1].__cause__)
        if not any(isinstance(e, TypeError) or "predicate" in f"{type(e).__name__} {e}".lower() for e in found):
            raise
    if not found:
        msg = "no error; one that names the predicate was expected"
        raise NoError(msg)


@scenario(transform="{way}", source=_INTEGER)
def refuses_numbers(h: Checked, way: str) -> None:
    """A staged value that is not a boolean scalar is refused too.

    Expect a TypeError, or an error that names the predicate, for a float, an integer and two bools under {way}.
    """
    for array in (h.array(2.0), h.array(1), h.array([True, False])):
        traced = h.trace(way, lambda p: adprotocol.cond(p, lambda: p, lambda: p))
        assert_refused(lambda: traced(array))


@scenario(source="PennyLane, values in place of branches: https://github.com/PennyLaneAI/pennylane/issues/4100")
def refuses_branches_that_cannot_be_called(h: Checked) -> None:
    """Both branches must be callable, the one not chosen too.

    Expect a BranchError, which is a TypeError, for a value in place of either branch, the chosen one or not.
    """
    x = h.array(2.0)
    no_function: Any = None
    for pred in (True, False, h.array(True), h.array(False)):
        with h.raises(BranchError, words=("false_fun",)):
            adprotocol.cond(pred, lambda x: x, x, x)
        with h.raises(BranchError, words=("true_fun",)):
            adprotocol.cond(pred, no_function, lambda x: x, x)


@scenario(rule="C2", source=_ONE)
def one_branch_runs_once(h: Checked) -> None:
    """With a known predicate only the chosen branch runs, once; None is a result, not a sign that it did not.

    For every predicate that is known the chosen branch has run once, and the other has not, whether it returns an array
    or None.
    """
    import numpy as np

    x = h.array(2.0)
    for truth in (True, False):
        for name, pred in (("bool", truth), ("NumPy bool", np.bool_(truth)), ("array", h.array(truth))):
            for made in (x, None):
                ran: list[bool] = []
                got = adprotocol.cond(pred, lambda _: _note(ran, True, made), lambda _: _note(ran, False, made), x)
                h.check(got is made or made is x, f"None became {got!r:.60}")
                h.check(ran == [truth], f"{truth} as {name} ran the branches {ran}")


@scenario(level=SHOULD, rule="C2", transform="grad", source=_ONE)
def one_branch_runs_once_under_grad(h: Checked) -> None:
    """Under a gradient, too, the chosen branch runs once and the other one never.

    Under a gradient of 3 x and 5 x, and of None, the branch that a bool chooses has run once, and the other has not.
    """
    for truth, want in ((True, 3.0), (False, 5.0)):
        ran: list[bool] = []

        def f(x: Any, truth: bool = truth, ran: list[bool] = ran) -> Any:
            adprotocol.cond(truth, lambda _: _note(ran, True, None), lambda _: _note(ran, False, None), x)
            return adprotocol.cond(truth, lambda x: _note(ran, True, 3.0 * x), lambda x: _note(ran, False, 5.0 * x), x)

        gradients: tuple[Any, ...] = (h.grad, functools.partial(adprotocol.grad, backend=h.name))
        for gradient in gradients:
            ran.clear()
            h.assert_equal(gradient(f)(h.array(2.0)), want, f"the gradient for {truth}")
            h.check(ran == [truth] * 2, f"a bool of {truth} ran the branches {ran}, of None and of a number")


@scenario(
    rule="C2",
    transform="{way}",
    source="PennyLane, known predicates need no control flow: https://github.com/PennyLaneAI/pennylane/pull/8634",
)
def known_bool(h: Checked, way: str) -> None:
    """Under {way} a bool is still known: the other branch is not traced and need not match.

    Under {way} cond(True, 3 x, fails) at 2 is 6; the branches may return different structures.
    """

    def fails(_: Any) -> Any:
        raise AssertionError

    def f(x: Any) -> Any:
        first = adprotocol.cond(True, lambda x: 3.0 * x, fails, x)
        second: Any = adprotocol.cond(False, lambda x: (x, x), lambda x: x, x)
        ten = adprotocol.cond(True, lambda _: 10.0, fails, x)
        h.check(type(ten) is float, "a number of Python's became something else")
        return first + ten * second

    h.assert_equal(h.trace(way, f)(h.array(2.0)), 26.0)


@scenario(
    rule="C2",
    transform="grad",
    source="PyTorch, branches that return None and have effects: https://github.com/pytorch/pytorch/pull/181915",
)
def error_in_a_branch(h: Checked) -> None:
    """An exception in a branch propagates, and nothing is left behind.

    The error comes out as it is, and afterwards both branches of cond have their values and gradients.
    """

    def fails(x: Any) -> Any:
        raise ZeroDivisionError(type(x).__name__)

    x = h.array(2.0)
    for pred in (True, h.array(True)):
        with h.raises(ZeroDivisionError):
            adprotocol.cond(pred, fails, lambda x: x, x)
        with h.raises(ZeroDivisionError):
            h.grad(lambda x: adprotocol.cond(pred, fails, lambda x: x, x))(x)
        h.assert_equal(adprotocol.cond(pred, lambda x: 3.0 * x, fails, x), 6.0, "the value afterwards")
        slope = h.grad(lambda x: adprotocol.cond(pred, lambda x: 3.0 * x, fails, x))(x)
        h.assert_equal(slope, 3.0, "the gradient afterwards")
        h.assert_equal(h.grad(h.probe)(x), 3.0, "the gradient of a layer afterwards")
        h.assert_equal(h.probe(x), 10.0, "its value afterwards")


@scenario(
    rule="C2",
    source="PyTorch, operands that are no tensors: https://docs.pytorch.org/docs/stable/generated/torch.cond.html",
)
def operands_of_any_kind(h: Checked) -> None:
    """Operands may be anything, and reach the branch unchanged.

    No operand, an integer, None, a string, a list, a label and an array, of NumPy too, arrive unchanged.
    """
    x = h.array(2.0)
    label = NonDifferentiable(h.array(3.0))
    operands = (10**30, None, "s" * 50, [x, None], {"label": label}, x, label, h.numpy(h.array([3.0])))
    for pred in (True, h.array(True)):
        h.assert_equal(adprotocol.cond(pred, lambda: 1.0, lambda: 0.0), 1.0, "the result without operands")
        got: Any = adprotocol.cond(pred, lambda *arrived: arrived, lambda *_: None, *operands)
        h.check(type(got) is tuple and len(got) == len(operands), f"of {len(operands)} operands arrived {got!r:.200}")
        for operand, arrived in zip(operands[:3], got[:3], strict=True):
            h.assert_is(arrived, operand, f"the operand {operand!r:.10}")
        h.assert_equal(got[3][0], 2.0, "the array in a list")
        h.assert_is(got[3][1], None, "None in a list")
        h.check(isinstance(got[6], NonDifferentiable), f"the label arrived as {kind_of(got[6])}")
        h.assert_is(got[7], operands[7], "the array of NumPy")
        h.assert_equal(got[4]["label"] * got[5] * got[6], 18.0, "label, array and label multiplied")


@scenario(
    rule="C6",
    transform="threads",
    needs=("grad", "threads"),
    source="PyTorch, a switch and another thread: https://github.com/pytorch/pytorch/issues/20528",
)
def in_two_threads(h: Checked) -> None:
    """A branch that runs in one thread does not affect another.

    While a branch waits in another thread, cond in this one gives 3 x and 5 x with the gradients 3 and 5.
    """
    barrier, x = threading.Barrier(2, timeout=PATIENCE), h.array(2.0)

    def waits(x: Any) -> Any:
        barrier.wait()  # inside of the branch
        barrier.wait()  # the other thread is done
        return 7.0 * x

    def meanwhile() -> list[Any]:
        barrier.wait()
        slopes = [
            h.grad(lambda x: adprotocol.cond(pred, lambda x: 3.0 * x, lambda x: 5.0 * x, x))(x)
            for pred in (True, False)
        ]
        plain = h.probe(x)
        barrier.wait()
        return [*slopes, plain]

    slope, (of_true, of_false, plain) = in_threads(
        h, lambda: h.grad(lambda x: adprotocol.cond(True, waits, lambda x: x, x))(x), meanwhile, barrier=barrier
    )
    h.assert_equal(slope, 7.0, "the gradient of the thread that waits in a branch")
    h.assert_equal(of_true, 3.0, "the gradient for True, meanwhile")
    h.assert_equal(of_false, 5.0, "the gradient for False, meanwhile")
    h.assert_equal(plain, 10.0, "a layer without a gradient, meanwhile")
