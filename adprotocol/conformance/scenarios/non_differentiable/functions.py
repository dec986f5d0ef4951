"""Decorated functions: their results are constants; what they may not be, and their errors."""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import SHOULD, Decorator, defaults
from adprotocol.conformance.scenarios.programs import PATIENCE, in_threads

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked

_KEYWORDS = (
    "ChainRules, keyword arguments of @non_differentiable: https://github.com/JuliaDiff/ChainRulesCore.jl/issues/216"
)

scenario: Decorator = defaults("non_differentiable", rule="N3", transform="grad", source=_KEYWORDS)


@scenario()
def decorated_arguments(h: Checked) -> None:
    """Positional and keyword arguments of a decorated function are constants.

    s, decorated, returns a + b * scale: s(x, 2 x, scale=x) * x is 20 at 2, with the gradient s = 10.
    """

    @adprotocol.non_differentiable
    def s(a: Any, b: Any, *, scale: Any) -> Any:
        return a + b * scale

    h.assert_value_and_grad(lambda x: s(x, 2.0 * x, scale=x) * x, (h.array(2.0),), 20.0, 10.0)


@scenario(
    varies=True,
    source="ChainRules, rules that forget what a closure holds: https://github.com/JuliaDiff/ChainRules.jl/issues/99",
)
def decorated_closed_over(h: Checked) -> None:
    """The result is constant with respect to what the function closes over.

    Expect s() x with s = x ** 2, x closed over, at 3: 27, with the gradient 9.
    """

    def f(x: Any) -> Any:
        @adprotocol.non_differentiable
        def s() -> Any:
            return x * x

        return s() * x

    h.assert_value_and_grad(f, (h.array(3.0),), 27.0, 9.0)


@scenario(source="JAX: a stop that did not look into containers did nothing: https://github.com/jax-ml/jax/pull/892")
def decorated_containers(h: Checked) -> None:
    """Containers are walked in arguments and result; None and strings come out unchanged.

    The function returns x and x ** 2 in a tuple in a dict, beside None and a string: their product times x is 81 at 3,
    with the gradient x ** 3 = 27.
    """

    @adprotocol.non_differentiable
    def s(model: Any) -> Any:
        (x,) = model["a"]
        return {"y": (x, x * x), "n": None, "name": "s"}

    def f(x: Any) -> Any:
        result = s({"a": [x]})
        h.check(list(result) == ["y", "n", "name"] and type(result["y"]) is tuple, f"the result is {result!r:.80}")
        h.assert_is(result["n"], None, "None in the result")
        h.check(result["name"] == "s", f"the string in the result is {result['name']!r:.80}")
        return result["y"][0] * result["y"][1] * x

    h.assert_value_and_grad(f, (h.array(3.0),), 81.0, 27.0)


@scenario(source="ChainRulesCore, what the macro is for: https://github.com/JuliaDiff/ChainRulesCore.jl/issues/150")
def decorated_method(h: Checked) -> None:
    """A decorated method returns a constant, also with respect to the fields of its object.

    Expect Scale(x).times(x) x at 3, and the same with a static method for the square: 27, with the gradient 9.
    """

    class Scale:
        def __init__(self, factor: Any) -> None:
            self.factor = factor

        @adprotocol.non_differentiable
        def times(self, x: Any) -> Any:
            return self.factor * x

        @staticmethod
        @adprotocol.non_differentiable
        def square(x: Any) -> Any:
            return x * x

    h.assert_value_and_grad(lambda x: Scale(x).times(x) * x, (h.array(3.0),), 27.0, 9.0, "method")
    h.assert_value_and_grad(lambda x: Scale(x).square(x) * x, (h.array(3.0),), 27.0, 9.0, "static method")


@scenario(level=SHOULD, transform="", source="Python: https://docs.python.org/3/library/functools.html#functools.wraps")
def decorated_metadata(h: Checked) -> None:
    """Metadata are kept, and the function runs once per call on an argument of the same value.

    __name__, __qualname__, __doc__, __module__, the signature and __wrapped__ are those of the function.
    """
    runs: list[Any] = []

    def s(x: Any, *, scale: float = 2.0) -> Any:
        """Scale it."""
        runs.append(x)
        return x * scale

    decorated = adprotocol.non_differentiable(s)
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        got = getattr(decorated, name, None)
        h.check(got == getattr(s, name), f"{name} is {got!r:.80}")
    h.assert_is(getattr(decorated, "__wrapped__", None), s, "__wrapped__")
    h.check(str(inspect.signature(decorated)) == str(inspect.signature(s)), "the signature is another")
    h.assert_equal(decorated(h.array(3.0)), 6.0)
    h.assert_equal(decorated(h.array(3.0), scale=4.0), 12.0, "the result with a keyword")
    h.check(len(runs) == 2, f"two calls ran the function {len(runs)} time(s)")


@scenario(
    transform="jvp",
    source="PyTorch: no_grad does not stop forward mode: https://github.com/pytorch/pytorch/issues/128600",
)
def decorated_forward_mode(h: Checked) -> None:
    """A decorated function has no tangent, through its argument or its closure.

    s, decorated, returns k * x ** 2 and closes over k = x: s(x) * x is 16 at 2, with the tangent s = 8.
    """

    def f(k: Any) -> Any:
        @adprotocol.non_differentiable
        def s(x: Any) -> Any:
            return k * x * x

        return s(k) * k

    h.assert_value_and_tangent(f, h.array(2.0), h.array(1.0), 16.0, 8.0)


@scenario(
    transform="grad of grad",
    source="functorch, a gradient inside torch.no_grad: https://github.com/pytorch/functorch/issues/13",
)
def decorated_around_grad(h: Checked) -> None:
    """A gradient computed inside a decorated function is right, and a constant outside.

    Expect s(x) x with s the derivative 3 x ** 2 of x ** 3, at 2: 24, gradient 12, second derivative 0.
    """

    @adprotocol.non_differentiable
    def s(x: Any) -> Any:
        return h.grad(lambda y: y * y * y)(x)

    x = h.array(2.0)
    h.assert_value_and_grad(lambda x: s(x) * x, (x,), 24.0, 12.0)
    h.assert_equal(h.grad(h.grad(lambda x: s(x) * x))(x), 0.0, "the second derivative")


@scenario(
    transform="grad of grad",
    source="JAX: nested gradients are all stopped: https://docs.jax.dev/en/latest/_autosummary/jax.lax.stop_gradient.html",
)
def decorated_inside_inner_grad(h: Checked) -> None:
    """The result is constant for the surrounding gradient, which tracks what the function closes over.

    s returns x * y as a constant, so the inner gradient of s(y) * y * x in y is s * x = 12 at x = 2, y = 3, and its
    derivative in x is s = 6.
    """

    def inner(x: Any) -> Any:
        @adprotocol.non_differentiable
        def s(y: Any) -> Any:
            return x * y

        return h.grad(lambda y: s(y) * y * x)(h.array(3.0))

    h.assert_value_and_grad(inner, (h.array(2.0),), 12.0, 6.0)


@scenario(source="Flux, layers that train inside a gradient only: https://github.com/FluxML/Flux.jl/issues/643")
def decorated_query(h: Checked) -> None:
    """The query is False for the arguments of a decorated function, and True outside.

    Inside the function its argument is in no gradient: (0 + 10) x, with the gradient 10.
    """

    @adprotocol.non_differentiable
    def s(x: Any) -> Any:
        return h.digit(x)

    def f(x: Any) -> Any:
        return (s(x) + adprotocol.cond(h.query(x), lambda: 10.0, lambda: 0.0)) * x

    h.assert_equal(h.grad(f)(h.array(2.0)), 10.0, "the gradient, whose digits are the answers outside and inside")


@scenario(
    transform="grad of {way}",
    source="TensorFlow: functions as arguments of tf.function: https://www.tensorflow.org/guide/function",
)
def decorated_as_an_argument(h: Checked, way: str) -> None:
    """A decorated function returns constants in a jitted function that it is given to.

    Expect s(x) x with s = x ** 2 decorated, an argument of a function under {way}, by itself and in a list, at 3: 27,
    with the gradient 9, before and after a plain call.
    """
    x = h.array(3.0)

    def square(x: Any) -> Any:
        return x * x

    square.__module__ = "model"  # a user's, as the decorated function's is then
    for what, shown, f in (
        ("by itself", lambda s: s, lambda s, x: s(x) * x),
        ("in a list", lambda s: [s], lambda s, x: s[0](x) * x),
    ):
        jitted = h.trace(way, f)
        h.require_native(lambda: h.trace(way, f)(shown(square), x), 27.0)
        s = shown(adprotocol.non_differentiable(square))
        for _ in range(2):
            h.assert_value_and_grad(lambda x, jitted=jitted, s=s: jitted(s, x), (x,), 27.0, 9.0, what)
            h.assert_equal(jitted(s, x), 27.0, f"the plain value, {what}")


@scenario(transform="grad of {way}")
def decorated(h: Checked, way: str) -> None:
    """A decorated function returns constants inside a jitted function, whichever call comes first.

    Expect s(x, scale=x) x with s = x scale under {way} at 3: 27, with the gradient 9, before and after a plain call.
    """

    @adprotocol.non_differentiable
    def s(x: Any, *, scale: Any) -> Any:
        return x * scale

    jitted = h.trace(way, lambda x: s(x, scale=x) * x)
    x = h.array(3.0)
    h.assert_value_and_grad(jitted, (x,), 27.0, 9.0, "first")
    h.assert_equal(jitted(x), 27.0, "the plain value")
    h.assert_value_and_grad(jitted, (x,), 27.0, 9.0, "again")


@scenario(source="PyTorch, exceptions during training: https://github.com/pytorch/pytorch/issues/10348")
def decorated_raises(h: Checked) -> None:
    """An error in a decorated function leaves nothing behind.

    The error comes out as it is; x ** 2 afterwards has the gradient 2 x = 6, in the same gradient and after it.
    """

    @adprotocol.non_differentiable
    def fails(x: Any) -> Any:
        raise ZeroDivisionError(type(x).__name__)

    def f(x: Any) -> Any:
        with h.raises(ZeroDivisionError):
            fails(x)
        return x * x

    h.assert_equal(h.grad(f)(h.array(3.0)), 6.0, "the gradient in the same call")
    with h.raises(ZeroDivisionError):
        h.grad(fails)(h.array(3.0))
    h.assert_equal(h.grad(lambda x: x * x)(h.array(3.0)), 6.0, "the gradient after it")


@scenario(
    transform="threads",
    needs=("grad", "threads"),
    source="PyTorch, a switch and another thread: https://github.com/pytorch/pytorch/issues/20528",
)
def decorated_in_another_thread(h: Checked) -> None:
    """A decorated function does not stop what another thread differentiates meanwhile.

    While a decorated s(x) = x runs in another thread, x ** 2 at 3 has the gradient 6; there s(x) x has 1.
    """
    barrier = threading.Barrier(2, timeout=PATIENCE)

    @adprotocol.non_differentiable
    def waits(x: Any) -> Any:
        barrier.wait()  # inside of the decorated function
        barrier.wait()  # the other thread has differentiated
        return x

    def differentiates() -> Any:
        barrier.wait()
        slope = h.grad(lambda x: x * x)(h.array(3.0))
        barrier.wait()
        return slope

    beside, slope = in_threads(h, lambda: h.grad(lambda x: waits(x) * x)(h.array(1.0)), differentiates, barrier=barrier)
    h.assert_equal(slope, 6.0, "the gradient meanwhile")
    h.assert_equal(beside, 1.0, "the gradient beside the decorated function")


@scenario(level=SHOULD, transform="", source="docs/non_differentiable.md: what is refused")
def decorated_generator(h: Checked) -> None:
    """A function whose result cannot be made constant is refused.

    Expect a TypeError for the call of a generator function, whose body runs after it, and for a class.
    """

    def values(x: Any) -> Any:
        yield x

    with h.raises(TypeError, words=("generator",)):
        adprotocol.non_differentiable(values)(h.array(1.0))
    with h.raises(TypeError, words=("Harness",)):
        adprotocol.non_differentiable(type("Harness", (), {}))
