"""`host_function`: functions of NumPy arrays, called with those of the system."""

from __future__ import annotations

import contextlib
from typing import Any

import adprotocol
from adprotocol.conformance.checks import Absent, Checked
from adprotocol.conformance.scenario import SHOULD, WAYS, Decorator, defaults
from adprotocol.conformance.scenarios.arrays import assert_near, dtypes_of_numpy
from adprotocol.conformance.scenarios.grid import compare
from adprotocol.conformance.scenarios.rules import hosted, noted, product, ruled
from adprotocol.errors import GradientPreventedError

_CALLBACK = "JAX: callbacks that run on the host: https://docs.jax.dev/en/latest/external-callbacks.html"

scenario: Decorator = defaults("host_function", rule="H2", transform="", source=_CALLBACK)


_WORKSPACE = "NumPy: results in memory that is given, out=: https://numpy.org/doc/stable/reference/ufuncs.html"
_RULES = "JAX: callbacks that are differentiated: https://github.com/jax-ml/jax/issues/1142"


def _squares(x: Any) -> Any:
    """Return x ** 2, or raise if it is not NumPy that calls."""
    import numpy as np

    if type(x) is not np.ndarray or x.flags.writeable:
        msg = f"a host function got {type(x).__name__}, not an array of NumPy that is read-only"
        raise TypeError(msg)
    return x * x


def _require_arrays_of_its_own(h: Checked) -> None:
    import numpy as np

    h.absent_if(isinstance(h.array(1.0), np.ndarray), "its arrays are NumPy's: the function itself runs")


@scenario(rule="H1", needs=("dtypes", "cast"))
def dtypes(h: Checked) -> None:
    """It gets NumPy arrays, and its results have the framework, dtype and shape of the arguments.

    Expect x ** 2 = 4 and its gradient 7 by a rule, computed by NumPy in 64 bits, as arrays of the dtype of x, for each
    dtype, and x n = 6 with integers n; integers as such.
    """
    import numpy as np

    f, n = hosted(h, lambda x: np.asarray(_squares(x), np.float64)), h.array([3, 3])
    of_two = hosted(h, lambda x, y: np.asarray(x, np.float64) * y)
    _require_arrays_of_its_own(h)
    for what in dtypes_of_numpy(h):
        x = h.cast(h.array([2.0, 2.0]), what)
        found = f(x)
        h.check(type(found) is type(x), f"at {what} it gave {type(found).__name__} for {type(x).__name__}")
        assert_near(h, found, 4.0, what, like=x)
        assert_near(h, of_two(x, n), 6.0, f"{what} beside integers", like=x)
        assert_near(h, of_two(n, x), 6.0, f"integers beside {what}", like=x)
        if h.has("grad"):
            g = ruled(h, f, hosted(h, lambda ct, _, x: (np.asarray(7.0 * ct + 0.0 * _squares(x), np.float64),)))
            assert_near(h, h.grad(lambda x, g=g: g(x)[1])(x)[1], 7.0, f"the gradient at {what}", like=x[1])
        place = h.numpy(hosted(h, np.argmax)(x)).dtype
        h.check(place.kind in "iu", f"a place in an array of {what} has dtype {place.name}")


@scenario(rule="H1", transform=("jit", "compile", "vmap", "checkpoint"))
def structures(h: Checked, transforms: str) -> None:
    """Structures and static values pass in and out under {transforms}.

    Expect 2 x, and the length 3 of a keyword as an integer, of x in a dict beside a text: (2 x) ** 2 at 2.5; an error
    where it is staged and nobody tells the shapes.
    """
    import numpy as np

    def twice(d: Any, *, name: str) -> Any:
        return {"b": 2.0 * d["a"], "n": (np.array(len(name + d["text"]), np.int32),)}

    f = hosted(h, twice, lambda d, **_: {"b": d["a"], "n": (np.zeros((), np.int32),)})

    def run(x: Any) -> Any:
        found = f({"a": x, "text": "text"}, name="abc")
        return found["b"] * found["b"]

    compare(h, transforms, run, lambda x: [4 * x**2])
    h.assert_equal(f({"a": h.array([1.0, 2.0]), "text": ""}, name="abc")["n"][0], 3, "the integer")
    if transforms in WAYS:
        bare = hosted(h, twice)
        with contextlib.suppress(Absent):
            h.require_staged(transforms)
            with h.raises(Exception, words=["like="]):
                h.trace(transforms, lambda x: bare({"a": x, "text": ""}, name="abc")["b"])(h.array(2.0))


@scenario(rule="H1", transform="{way}")
def staged_without_like(h: Checked, way: str) -> None:
    """A program that {way} stages needs to be told the shapes.

    Expect x ** 2 on the host, without its shape: 9 at 3 plain; an error that names like= under {way}.
    """
    h.require_staged(way)
    f = hosted(h, _squares)
    h.assert_equal(f(h.array(3.0)), 9.0, "the plain value")
    # A compiler that runs Python may show the error as one of its own, with the text.
    with h.raises(Exception, words=["like="]):
        h.trace(way, f)(h.array(3.0))


@scenario(transform=("grad", "jvp", "grad of jit"), source=_RULES)
def without_a_rule(h: Checked, transforms: str) -> None:
    """Without a rule its derivative raises under {transforms}, and that of a constant does not.

    Expect GradientPreventedError where x ** 2 of NumPy is differentiated, and where a b is in a or in b; x f(c) with c
    constant, at 3: gradient 9.
    """
    f = hosted(h, _squares, lambda x: x)
    with h.raises(GradientPreventedError, words=["host function"]):
        h.nest(transforms, f)(h.array(3.0))
    c, g = h.array(3.0), hosted(h, product, lambda _, b: b)
    for one_of_two in (lambda x: g(x, c), lambda x: g(c, x)):
        with h.raises(GradientPreventedError, words=["host function"]):
            h.nest(transforms, one_of_two)(h.array(3.0))
    found = h.nest(transforms, lambda x: x * f(adprotocol.non_differentiable(c)))(h.array(3.0))
    h.assert_equal(found, 9.0)


@scenario(transform=("grad", "jvp", "grad of jit", "vmap of grad", "grad of grad"), source=_RULES)
def with_a_rule(h: Checked, transforms: str) -> None:
    """With a rule written by itself it is differentiated under {transforms}.

    Expect 1 / x of NumPy with the rule -ct f(x) y, which calls it again, at 2.5, and its derivatives.
    """
    f = ruled(h, hosted(h, lambda x: 1.0 / x, lambda x: x))
    f.defvjp(lambda ct, y, x: (-ct * f(x) * y,))
    compare(h, transforms, f, lambda x: [1 / x, -(x**-2), 2 * x**-3])


@scenario(transform=("grad", "jvp", "grad of jit", "grad of grad", "jvp of jvp"), source=_RULES)
def of_the_cotangent(h: Checked, transforms: str) -> None:
    """A rule may apply its function to the cotangent, as that of a linear solver does, under {transforms}.

    Expect f(x, x) for f(a, b) = a b of NumPy, with the gradients f(ct, b) and f(a, ct), at 2.5, and its derivatives.
    """
    f = ruled(h, hosted(h, product, lambda _, b: b))
    f.defvjp(lambda ct, _, a, b: (f(ct, b), f(a, ct)))
    compare(h, transforms, lambda x: f(x, x), lambda x: [x**2, 2 * x, 2.0])


@scenario(transform=("grad", "grad of jit", "vmap of grad"), source=_RULES)
def as_a_rule(h: Checked, transforms: str) -> None:
    """As a rule it needs to tell no shapes, and is differentiated once, under {transforms}.

    Expect x ** 2 with the rule 7 ct x on the host, which has no like, at 2.5; the second derivative raises.
    """
    f = ruled(h, lambda x: x * x, hosted(h, lambda ct, _, x: (7.0 * ct * x + 0.0 * _squares(x),)))
    compare(h, transforms, f, lambda x: [x**2, 7 * x])
    if h.has(f"grad of {transforms}"):
        with h.raises(GradientPreventedError, words=["host function"]):
            h.nest(f"grad of {transforms}", f)(h.array(2.5))


@scenario(transform=("grad", "jvp"), source=_RULES)
def in_a_rule(h: Checked, transforms: str) -> None:
    """In a rule it is called with constants at first order, and raises at second order, under {transforms}.

    Expect x ** 2 with the rule 7 ct g(x), g = x ** 2 on the host without a rule, at 2.5; a second derivative raises.
    """
    g = hosted(h, _squares, lambda x: x)
    f = ruled(h, lambda x: x * x, lambda ct, _, x: (7.0 * ct * g(x),))
    compare(h, transforms, f, lambda x: [x**2, 7 * x**2])
    if h.has(f"{transforms} of {transforms}", "grad of grad"):
        with h.raises(GradientPreventedError, words=["host function"]):
            h.nest(f"{transforms} of {transforms}", f)(h.array(2.5))


@scenario(rule="H1")
def of_numpy(h: Checked) -> None:
    """With NumPy arrays alone it is the function itself.

    Expect NumPy's own arrays in, read-only, and what it returns out; with a rule and residuals as well.
    """
    import numpy as np

    made = np.array([4.0, 9.0])

    def fun(x: Any) -> Any:
        _squares(x)
        return made

    h.assert_is(adprotocol.host_function(fun)(np.array([2.0, 3.0])), made)
    f = adprotocol.custom_derivative(has_residuals=True)(adprotocol.host_function(lambda x: (fun(x), "residuals")))
    f.defvjp(lambda ct, *_: (ct,))
    h.assert_is(f(np.array([2.0, 3.0])), made, "the result of a function with a rule")
    h.assert_equal(h.array(1.0), 1.0, "an array")


def _rows(h: Checked, functions: tuple[Any, Any], run: Any, want: Any, calls: tuple[list[Any], list[Any]]) -> None:
    """Check a function, and one like it, under vmaps: what `run` gives, and the shapes of its calls, many or one."""
    fun, like = functions
    _require_arrays_of_its_own(h)
    for batched, due in enumerate(calls):
        shapes: list[Any] = []
        f = hosted(h, lambda c, x: noted(shapes, (c.shape, x.shape), fun(c, x)), like, batched=bool(batched))
        h.assert_equal(run(f), want, f"with batched={bool(batched)}")
        h.check(shapes == due, f"with batched={bool(batched)} it was called with the shapes {shapes}, not {due}")


@scenario(rule="H3", transform=("vmap", "jit of vmap"))
def under_vmap(h: Checked, transforms: str) -> None:
    """Under {transforms} it is called for each row, or once with the rows as a leading axis.

    Expect c x + 1 of two rows x = 1 and the shared c = 10: (11, 11), by a call for each row, or one for both.
    """
    c, outer = h.array(10.0), transforms.partition("vmap")[0].removesuffix(" of ")

    def run(f: Any) -> Any:
        return h.nest(outer, h.vmap(lambda x: f(c, x)))(h.array([1.0, 1.0]))

    calls = [((), ()), ((), ())], [((2,), (2,))]
    _rows(h, (lambda c, x: c * x + 1.0, lambda _, x: x), run, [11.0, 11.0], calls)


@scenario(rule="H3", transform="vmap of vmap")
def under_two_vmaps(h: Checked) -> None:
    """Under two levels of vmap it is called for each row of rows, or once.

    The sum of c x over vectors of two axes of rows is that of a loop: c = (1, 2), x = 1 to 8 in pairs.
    """
    c, rows = h.array([1.0, 2.0]), h.array([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]])

    def run(f: Any) -> Any:
        return h.vmap(h.vmap(lambda x: f(c, x)["dot"]))(rows)

    calls = [((2,), (2,))] * 4, [((2, 2, 2), (2, 2, 2))]
    dots = lambda c, x: {"dot": (c * x).sum(-1)}, lambda _, x: {"dot": x[0]}
    _rows(h, dots, run, [[5.0, 11.0], [17.0, 23.0]], calls)


@scenario(rule="H4")
def called_as_written(h: Checked) -> None:
    """Eager code calls it exactly as it is written, also where nobody uses the result.

    Expect x ** 2 at 3, twice by name and once inside a function with a rule: a call for each.
    """
    import numpy as np

    calls: list[Any] = []
    f = hosted(h, lambda x: noted(calls, x, x * x), lambda x: x)
    f(h.array(3.0))
    h.assert_equal(f(h.array(3.0)) + ruled(h, f, lambda ct, *_: (ct,))(h.array(3.0)), 18.0)
    h.check(len(calls) == 3, f"it was called {len(calls)} times, not 3")
    given = h.array([3.0])
    if h.has("cast", "dtypes") and not isinstance(given, np.ndarray):
        given = h.cast(given, dtypes_of_numpy(h)[-1])
    for arrays in ((given,), (given, h.array([2])), (h.array([2]), given)):
        found = hosted(h, lambda *arrays: 1.0 * np.asarray(sum(arrays), np.float64))(*arrays)
        same = type(found) is type(given) and found.dtype == given.dtype
        h.check(same, f"it gave {found!r:.60} for {given!r:.60}, with integers or without")


@scenario(needs=("parameter",))
def of_a_parameter(h: Checked) -> None:
    """A parameter that could be differentiated, and is not, is an argument as any.

    Expect x ** 2 of NumPy of a parameter, 9 at 3, whether its flag is on or off.
    """
    for trains in (True, False):
        h.assert_equal(hosted(h, _squares)(h.parameter(3.0, trains=trains)), 9.0, f"with trains={trains}")


@scenario(rule="H4")
def shares_no_memory(h: Checked) -> None:
    """What NumPy has, the host function's arguments and results, is no memory of the framework's arrays.

    Expect x of a function that returns one array of its own each time, as it was when the function is called again with
    2 x; and p of one that returns its argument, when the parameter p is changed. Its argument is read-only.
    """
    import numpy as np

    _require_arrays_of_its_own(h)
    own: list[Any] = []

    def fill(x: Any) -> Any:
        h.check(not x.flags.writeable, "the argument of a host function can be written to")
        own[:] = own or [np.empty_like(x)]
        own[0][...] = x
        return own[0]

    f, values = hosted(h, fill), np.linspace(1.0, 2.0, 4096)
    first, second = (f(h.array((factor * values).tolist())) for factor in (1.0, 2.0))
    h.assert_equal(second, 2.0 * values, "the second result")
    h.assert_equal(first, values, "the first result, after the second call")
    if h.has("parameter", "assign"):
        p = h.parameter([1.0, 2.0], trains=False)
        found = hosted(h, lambda x: x)(p)
        h.assign(p, [3.0, 4.0])
        h.assert_equal(found, [1.0, 2.0], "the result, after the parameter was changed")


@scenario(rule="H4", transform=("grad", "vmap", "jit of vmap"), also_needs=("grad",), source=_WORKSPACE)
def workspace(h: Checked, transforms: str) -> None:
    """It may return its own workspace each time, as a simulator does, under {transforms}.

    Expect f(x, y) = 3 x 3 y of two calls that return 3 x and 3 y in the same memory, at x, y = 1, 2 and 3, 4: 18 and
    108, or the gradient 18, 9 of the first.
    """
    import numpy as np

    own: list[Any] = []

    def fill(x: Any) -> Any:
        own[:] = own or [np.zeros_like(x)]
        own[0][...] = 3.0 * x
        return own[0]

    f = ruled(h, hosted(h, fill, lambda x: x), lambda ct, *_: (3.0 * ct,))

    def run(x: Any) -> Any:
        return f(x[0]) * f(x[1])

    if transforms == "grad":
        h.assert_value_and_grad(run, [h.array([1.0, 2.0])], 18.0, [18.0, 9.0])
    else:
        rows = h.array([[1.0, 2.0], [3.0, 4.0]])
        h.assert_equal(h.nest(transforms.removesuffix("vmap").removesuffix(" of "), h.vmap(run))(rows), [18.0, 108.0])


@scenario(level=SHOULD, rule="H4", transform=("jit", "compile", "vmap"))
def inputs_are_read_only(h: Checked, transforms: str) -> None:
    """It cannot change its inputs, under {transforms} and plain.

    Expect an error where x[..., 0] is set to 7, or x to 2 x in place; x is as before.
    """

    def first(x: Any) -> Any:
        x[..., 0] = 7.0
        return x

    def all_of_it(x: Any) -> Any:
        x *= 2.0
        return x

    for change in (first, all_of_it):
        x, f = h.array([[1.0, 2.0], [3.0, 4.0]]), hosted(h, change, lambda x: x)
        for run in (f, lambda x: getattr(h, transforms)(f)(x if transforms != "vmap" else x + 0.0)):
            # A compiler may show the error as one of its own.
            with h.raises(Exception):
                h.numpy(run(x))
            h.assert_equal(x, [[1.0, 2.0], [3.0, 4.0]], "the input")


@scenario(rule="H4", needs=("grad",))
def argument_is_no_result(h: Checked) -> None:
    """A host function that returns its argument gives a new array, which nobody differentiates.

    Expect of the identity at (2, 3) an array of its own with these values, and an error where its gradient is taken.
    """
    f, x = hosted(h, lambda x: x), h.array([2.0, 3.0])
    _require_arrays_of_its_own(h)
    found = f(x)
    h.assert_equal(found, [2.0, 3.0])
    h.check(found is not x, "the result is the argument itself")
    with h.raises(GradientPreventedError, words=["host function"]):
        h.grad(lambda x: f(x)[0] * x[1])(x)
