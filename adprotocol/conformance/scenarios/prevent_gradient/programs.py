"""`prevent_gradient` under every transformation, and in compiled functions and branches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance.scenario import MAY, SHOULD, defaults
from adprotocol.conformance.scenarios.grid import PAIRS, SINGLE, X, compare, grid
from adprotocol.conformance.scenarios.non_differentiable.levels import with_constant
from adprotocol.conformance.scenarios.programs import in_both_orders
from adprotocol.errors import GradientPreventedError

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator

_CHECKS = "JAX: checks inside of transformed functions, and which of them failed: https://docs.jax.dev/en/latest/debugging/checkify_guide.html"

scenario: Decorator = defaults("prevent_gradient", rule="N5", transform="grad of {way}", source=_CHECKS)


MESSAGE = "nobody may differentiate this"


def guarded(value: Any) -> Any:
    """Return a value that nobody may differentiate."""
    return adprotocol.prevent_gradient(value, MESSAGE)


@grid("prevent_gradient/", (*SINGLE, *PAIRS), rule="N5")
def prevented(h: Checked, transforms: str) -> None:
    """`prevent_gradient` passes what nobody differentiates, and nothing else, under {transforms}.

    Without a derivative expect x ** 3 at 2.5. With one expect {transforms} of c x x for a guarded constant c of x, and
    an error with the message for a guarded x.
    """
    if not nesting.differentiates(transforms):
        compare(h, transforms, lambda x: guarded(x) * x * x, with_constant)
        return
    compare(h, transforms, lambda x: guarded(adprotocol.non_differentiable(x)) * x * x, with_constant)
    # A compiler that runs Python may show an error that is raised meanwhile as one of its own, with the text.
    traced = {"jit", "compile"} & {*nesting.parse(transforms)}
    expected = (Exception,) if traced else (GradientPreventedError,)
    with h.raises(*expected, words=[MESSAGE]):
        h.nest(transforms, lambda x: guarded(x) * x * x)(h.array(X))


_CALLED = "TensorFlow: a function calls another: https://www.tensorflow.org/guide/function"
_NESTED = "jax-mps, wrong gradients of a nested cond: https://github.com/tillahoffmann/jax-mps/issues/195"


@scenario()
def two_messages(h: Checked, way: str) -> None:
    """Of two guards in a compiled function the one raises whose value is differentiated, with its own message.

    Expect x c of guarded x and c compiled, at 2, 3: 6 plain; in each gradient an error with the message of that one.
    """
    x, c = h.array(2.0), h.array(3.0)

    def product(x: Any, c: Any) -> Any:
        return adprotocol.prevent_gradient(x, "not the first") * adprotocol.prevent_gradient(c, "not the second")

    traced = h.trace(way, product)
    for _ in range(2):
        h.assert_equal(traced(x, c), 6.0, "the plain call")
        # A compiler that runs Python may show the error as one of its own, with the text.
        with h.raises(Exception, words=["not the second"]):
            h.grad(lambda c: traced(x, c))(c)
        with h.raises(Exception, words=["not the first"]):
            h.grad(lambda x: traced(x, c))(x)


@scenario()
def in_the_other_branch(h: Checked, way: str) -> None:
    """A guard in the branch for what is not differentiated raises where something else is.

    Expect 7 c where c is differentiated, else 3 x c with x guarded, at 2, 3: 18 plain; an error in the gradient in x,
    and 21 with the gradient 7 in that in c.
    """
    x, c = h.array(2.0), h.array(3.0)

    def guarded(x: Any, c: Any) -> Any:
        return 3.0 * adprotocol.prevent_gradient(x, "not this one") * c

    traced = h.trace(way, lambda x, c: adprotocol.cond(h.query(c), lambda _, c: 7.0 * c, guarded, x, c))
    for _ in range(2):
        h.assert_equal(traced(x, c), 18.0, "the plain call")
        h.assert_value_and_grad(lambda c: traced(x, c), (c,), 21.0, 7.0, "in what decides")
        with h.raises(Exception, words=["not this one"]):
            h.grad(lambda x: traced(x, c))(x)


@scenario()
def after_an_error_in_a_branch(h: Checked, way: str) -> None:
    """An exception in a branch that is being traced leaves nothing behind that disarms a guard.

    Expect the error of a branch; then of x ** 2 with x guarded, at 2: 4 plain, and an error in the gradient.
    """
    x = h.array(2.0)

    def fails(_: Any) -> Any:
        msg = "the branch fails"
        raise ValueError(msg)

    for t, f in ((fails, lambda x: 1.0 * x), (lambda x: 1.0 * x, fails)):
        failing = h.trace(way, lambda x, t=t, f=f: adprotocol.cond(h.query(x), t, f, x))
        with h.raises(Exception):
            # Compiled for what is asked, only the branch taken is there to fail.
            h.grad(failing)(x)
            failing(x)
        traced = h.trace(way, lambda x: adprotocol.prevent_gradient(x, "not this one") * x)
        for _ in range(2):
            h.assert_equal(traced(x), 4.0, "the plain call")
            with h.raises(Exception, words=["not this one"]):
                h.grad(traced)(x)


@scenario(native="grad of {way} of {way}", source=_CALLED)
def in_a_called_function(h: Checked, way: str) -> None:
    """A guard in a compiled function that another one calls raises as it does by itself.

    Expect x ** 3 with x guarded in a compiled function that another one calls: 8 plain; an error with the message in a
    gradient, and again; 4 where its constant is given.
    """
    x = h.array(2.0)
    inner = h.trace(way, lambda x: adprotocol.prevent_gradient(x, "not this one") * x)
    outer = h.trace(way, lambda x: inner(x) * x)
    of_constant = h.trace(way, lambda x: inner(adprotocol.non_differentiable(x)) * x)
    for _ in range(2):
        h.assert_equal(outer(x), 8.0, "the plain call")
        # A compiler that runs Python may show the error as one of its own, with the text.
        with h.raises(Exception, words=["not this one"]):
            h.grad(outer)(x)
        h.assert_value_and_grad(of_constant, (x,), 8.0, 4.0, "of a constant")


def _calling(h: Checked, way: str) -> tuple[Any, Any]:
    """Return x ** 2 with x guarded, and what has it times c in a branch where c is differentiated, else 5 x c."""
    inner = h.trace(way, lambda x: adprotocol.prevent_gradient(x, "not this one") * x)

    def outer(x: Any, c: Any) -> Any:
        return adprotocol.cond(h.query(c), lambda x, c: inner(x) * c, lambda x, c: 5.0 * x * c, x, c)

    return inner, h.trace(way, outer)


@scenario(native="grad of {way} of {way}", source=_CALLED)
def in_a_call_in_a_branch(h: Checked, way: str) -> None:
    """A guard in a function that a branch calls raises there and by itself, whichever call traced it.

    Expect x ** 2 with x guarded, in a compiled function that a branch of another calls where c is differentiated: 30
    plain at 2, 3; the gradient 4 in c; an error in x and c, and of the function by itself.
    """
    x, c, one = h.array(2.0), h.array(3.0), h.array(1.0)

    def in_the_branch(made: tuple[Any, Any]) -> None:
        _, outer = made
        h.assert_equal(outer(x, c), 30.0, "the plain call")
        h.assert_value_and_grad(lambda c: outer(x, c), (c,), 12.0, 4.0, "in what decides")
        # A compiler that runs Python may show the error as one of its own, with the text.
        with h.raises(Exception, words=["not this one"]):
            h.grad(lambda t: outer(t * x, t * c))(one)

    def by_itself(made: tuple[Any, Any]) -> None:
        inner, _ = made
        h.assert_equal(inner(x), 4.0, "the plain call of the function by itself")
        with h.raises(Exception, words=["not this one"]):
            h.grad(inner)(x)

    in_both_orders(lambda: _calling(h, way), in_the_branch, by_itself)


@scenario(level=MAY, native="grad of {way} of {way}", source=_CALLED)
def in_a_call_in_a_branch_not_taken(h: Checked, way: str) -> None:
    """A guard in a function that a branch calls passes where the branch is not taken.

    Expect 5 x c at 2, 3, with the gradient 15 in x, where a guard of x is in a function that the other branch calls.
    """
    x, c = h.array(2.0), h.array(3.0)
    inner, outer = _calling(h, way)
    h.assert_equal(inner(x), 4.0, "the plain call of the function by itself")
    for _ in range(2):
        h.assert_value_and_grad(lambda x: outer(x, c), (x,), 30.0, 15.0)


def _nested(h: Checked, way: str) -> Any:
    """Return x c with x guarded where both are differentiated, 3 x c where c is, else 5 x c."""

    def inner(x: Any, c: Any) -> Any:
        def guarded(x: Any, c: Any) -> Any:
            return adprotocol.prevent_gradient(x, "not this one") * c

        return adprotocol.cond(h.query(x), guarded, lambda x, c: 3.0 * x * c, x, c)

    return h.trace(way, lambda x, c: adprotocol.cond(h.query(c), inner, lambda x, c: 5.0 * x * c, x, c))


@scenario(source=_NESTED)
def in_nested_branches(h: Checked, way: str) -> None:
    """A guard in a branch of a branch raises where both are taken.

    The guard stands where both x and c are differentiated: an error in a gradient in both, and 5 x c = 30 at 2, 3
    plain.
    """
    x, c, one = h.array(2.0), h.array(3.0), h.array(1.0)

    def plain(traced: Any) -> None:
        h.assert_equal(traced(x, c), 30.0, "the plain call")

    def differentiated(traced: Any) -> None:
        # A compiler that runs Python may show the error as one of its own, with the text.
        with h.raises(Exception, words=["not this one"]):
            h.grad(lambda t: traced(t * x, t * c))(one)

    in_both_orders(lambda: _nested(h, way), plain, differentiated)


@scenario(level=SHOULD, source=_NESTED)
def in_nested_branches_not_taken(h: Checked, way: str) -> None:
    """A guard in a branch of a branch passes where the outer one is not taken.

    The guard stands where neither x nor c is differentiated, so it never raises: 30 plain at 2, 3; 18 with the gradient
    9 in x; 42 with the gradient 14 in c.
    """
    x, c = h.array(2.0), h.array(3.0)

    def inner(x: Any, c: Any) -> Any:
        def guarded(x: Any, c: Any) -> Any:
            return 5.0 * adprotocol.prevent_gradient(x, "not this one") * c

        return adprotocol.cond(h.query(c), lambda x, c: 7.0 * x * c, guarded, x, c)

    traced = h.trace(way, lambda x, c: adprotocol.cond(h.query(x), lambda x, c: 3.0 * x * c, inner, x, c))
    for _ in range(2):
        h.assert_equal(traced(x, c), 30.0, "the plain call")
        h.assert_value_and_grad(lambda x: traced(x, c), (x,), 18.0, 9.0, "in the guarded one")
        h.assert_value_and_grad(lambda c: traced(x, c), (c,), 42.0, 14.0, "in the other")
