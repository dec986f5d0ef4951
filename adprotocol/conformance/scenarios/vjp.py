"""`vjp`: values in structures, and cotangents pulled back, any number of times, later and inside other derivatives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import NonDifferentiable, errors
from adprotocol.conformance.checks import Absent
from adprotocol.conformance.harness import HIGHER_ORDER
from adprotocol.conformance.scenario import SHOULD, Decorator, defaults
from adprotocol.conformance.scenarios.programs import in_threads
from adprotocol.conformance.scenarios.rules import noted, ruled, square
from adprotocol.messages import one_line

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked

_FILTERED = "Equinox: vjp of what is no array: https://docs.kidger.site/equinox/api/transformations/"
_JAX = "JAX: the function that vjp returns: https://docs.jax.dev/en/latest/_autosummary/jax.vjp.html"
_TAPE = "TensorFlow: a tape that is not persistent is pulled once: https://www.tensorflow.org/guide/autodiff"
_CONFUSED = "J. M. Siskind, B. A. Pearlmutter: Perturbation confusion and referential transparency, IFL 2005"

scenario: Decorator = defaults("vjp", rule="J5", needs=("grad",), source=_TAPE)


def affine(m: dict[str, Any], x: Any) -> Any:
    """Return w x + b."""
    return m["w"] * x + m["b"]


@scenario(rule="J2", source=_FILTERED)
def value_of_any_structure(h: Checked) -> None:
    """Arrays of floats in the value are outputs; all else is constant, and has None as cotangent.

    Expect of x ** 3 beside a label, a number, text, None and integers at (1, 2), pulled with (1, 10), the gradient (3,
    120), and the rest as it was; ArgumentError for a cotangent of the integers, OutputError for integers alone.
    """
    x, steps = h.array([1.0, 2.0]), h.array([1, 2])
    (cube, rest), pull = adprotocol.vjp(
        lambda x: [x * x * x, {"c": NonDifferentiable(x * x), "n": 3, "s": "n", "no": None, "steps": steps}],
        x,
        backend=h.name,
    )
    h.assert_equal(cube, [1.0, 8.0], "the array in the value")
    h.assert_equal(rest["c"].value, [1.0, 4.0], "the value in the label")
    h.assert_equal(rest["steps"], [1, 2], "the integers")
    h.check((rest["n"], rest["s"], rest["no"]) == (3, "n", None), f"the rest of the value is {rest!r:.120}")
    h.assert_equal(pull([h.array([1.0, 10.0]), dict.fromkeys(rest)])[0], [3.0, 120.0], "the gradient")
    with h.raises(errors.ArgumentError, words=["value at 1"]):
        pull([None, dict.fromkeys(rest) | {"steps": x}])
    with h.raises(errors.OutputError):
        adprotocol.vjp(lambda _: steps, x, backend=h.name)


@scenario(rule="J3", source=_FILTERED)
def structures_of_the_primals(h: Checked) -> None:
    """There is a gradient for each primal, in its structure, and None for what takes none or is not selected.

    Expect of w x + b at w = (1, 2), b = 5, pulled with (1, 10): at x = (3, 4) w (3, 40), b 11, x (1, 20); with
    where="w" w alone; at the integer 3 w (3, 30), b 11; and NothingTrainableError for integers alone.
    """
    m, x, ct = {"w": h.array([1.0, 2.0]), "b": h.array(5.0), "n": 3}, h.array([3.0, 4.0]), h.array([1.0, 10.0])
    calls: tuple[tuple[Any, str | None, dict[str, Any], Any], ...] = (
        (x, None, {"w": [3.0, 40.0], "b": 11.0, "n": None}, [1.0, 20.0]),
        (x, "w", {"w": [3.0, 40.0], "b": None, "n": None}, None),
        (3, None, {"w": [3.0, 30.0], "b": 11.0, "n": None}, None),
    )
    for second, where, of_model, of_second in calls:
        gradients = adprotocol.vjp(affine, m, second, where=where, backend=h.name)[1](ct)
        h.assert_gradients(gradients[0], of_model)
        h.assert_gradients({"x": gradients[1]}, {"x": of_second}, "the gradient of the second primal")
    with h.raises(errors.NothingTrainableError):
        adprotocol.vjp(lambda n: x * n, 3, backend=h.name)


@scenario(rule="J3", source=_FILTERED)
def none_is_zero(h: Checked) -> None:
    """A cotangent None, of an output or of all, is zero, and a leaf without influence has zeros.

    Expect of (2 x, x x, x / x) at (1, 2) beside y, pulled with (None, (1, 1), None), (2, 4) and 0; with None zeros.
    """
    x, y = h.array([1.0, 2.0]), h.array(3.0)
    _, pull = adprotocol.vjp(lambda x, _: (2.0 * x, x * x, x / x), x, y, backend=h.name)
    for ct, want in (((None, h.array([1.0, 1.0]), None), [2.0, 4.0]), (None, [0.0, 0.0])):
        of_x, of_y = pull(ct)
        h.assert_equal(of_x, want, "the gradient")
        h.assert_equal(of_y, 0.0, "the gradient of a leaf without influence")


@scenario(rule="J8", source=_JAX)
def wrong_cotangents(h: Checked) -> None:
    """A cotangent of another shape or structure, or a complex one, is an error that names the place.

    Expect ArgumentError for each, and behind them (2, 4) for (1, 1).
    """
    x = h.array([1.0, 2.0])
    _, pull = adprotocol.vjp(lambda x: {"square": x * x, "sum": x[0] + x[1]}, x, backend=h.name)
    wrong = ({"square": h.array([1.0] * 3)}, {"square": h.array(1.0)}, {"square": x, "sum": x}, {"sum": 1.0j})
    for ct in (*({"square": None, "sum": None, **part} for part in wrong), [x, None], {"square": x}):
        with h.raises(errors.ArgumentError, words=["value"]):
            pull(ct)
    h.assert_equal(pull({"square": h.array([1.0, 1.0]), "sum": None})[0], [2.0, 4.0], "the gradient behind the errors")


@scenario(rule="J8", needs=("grad", "dtypes", "cast"), source=_JAX)
def cotangent_of_another_dtype(h: Checked) -> None:
    """A cotangent of another floating-point dtype is converted, and a Python number serves for a scalar.

    Expect of x ** 2 at 3 the gradient 12, of the dtype of x, for the cotangent 2 of each dtype, and for the number 2.0.
    """
    for dtype in h.dtypes():
        x = h.cast(h.array(3.0), dtype)
        for ct in (*(h.cast(h.array(2.0), name) for name in h.dtypes()), 2.0):
            gradient = adprotocol.vjp(lambda x: x * x, x, backend=h.name)[1](ct)[0]
            h.assert_equal(gradient, 12.0, f"the gradient of {dtype}")
            due, found = h.numpy(x).dtype, h.numpy(gradient).dtype
            h.check(found == due, f"the gradient has dtype {found}; {due} was expected")


@scenario()
def pulled_often(h: Checked) -> None:
    """A pull is called any number of times, out of order with that of another call; the function ran once.

    Expect of (x ** 3, x0 x1) at (1, 2): for ((1, 0), None) (3, 0), for (None, 10) (20, 10), for ((1, 1), 10) (23, 22),
    then the first again; and twice that of the double.
    """
    x, runs = h.array([1.0, 2.0]), list[Any]()

    def outputs(x: Any, factor: float) -> tuple[Any, Any]:
        return factor * x * noted(runs, factor, x) * x, factor * x[0] * x[1]

    _, first = adprotocol.vjp(lambda x: outputs(x, 1.0), x, backend=h.name)
    _, second = adprotocol.vjp(lambda x: outputs(x, 2.0), x, backend=h.name)
    cotangents: tuple[tuple[Any, list[float]], ...] = (
        ((h.array([1.0, 0.0]), None), [3.0, 0.0]),
        ((None, h.array(10.0)), [20.0, 10.0]),
        ((h.array([1.0, 1.0]), h.array(10.0)), [23.0, 22.0]),
    )
    for ct, want in (*cotangents, cotangents[0]):
        h.assert_equal(0.5 * second(ct)[0], want, "half the gradient of the call that was made last")
        h.assert_equal(first(ct)[0], want, "the gradient of the call that was made first")
    h.check(runs == [1.0, 2.0], f"the functions ran {len(runs)} times in two calls")


@scenario(needs=("grad", "operations", "sum"))
def value_read_before_the_pull(h: Checked) -> None:
    """The gradient behind each operation is the same after the value has been read, or the pull says why it has none.

    Expect for each operation at (2, 3) what the system's gradient of the sum is.
    """
    x = h.array([2.0, 3.0])
    for name, operation in h.operations().items():
        if h.numpy(operation(x)).dtype.kind == "f":
            slope = h.numpy(h.grad(lambda x, operation=operation: h.sum(operation(x)))(x))
            value, pull = adprotocol.vjp(operation, x, backend=h.name)
            cotangent = 0.0 * h.numpy(value) + 1.0
            try:
                pulled = pull(cotangent)[0]
            except errors.ADProtocolError:
                continue
            h.assert_equal(pulled, slope, f"the gradient behind {name}")


@scenario(needs=("grad", "variable"))
def pulled_behind_a_backward_pass(h: Checked) -> None:
    """A backward pass of the system through a gradient leaves the pull alive, or the pull says what would have.

    Expect of x ** 3 at (1, 2) for the variable (1, 10) the gradient (3, 120), by that (3, 12), twice, and then (3, 12).
    """
    _, pull = adprotocol.vjp(lambda x: x * x * x, h.array([1.0, 2.0]), backend=h.name)
    try:
        for _ in range(2):
            ct = h.variable([1.0, 10.0])
            pulled = pull(ct)[0]
            h.assert_equal(pulled, [3.0, 120.0], "the gradient")
            h.backward(pulled, h.array([1.0, 1.0]))
            h.assert_equal(ct.grad, [3.0, 12.0], "the gradient by the cotangent")
        h.assert_equal(pull(h.array([1.0, 1.0]))[0], [3.0, 12.0], "the gradient behind the backward passes")
    except errors.ADProtocolError as error:
        msg = f"the plugin refuses it: {one_line(error, 160)}"
        raise Absent(msg) from error


@scenario(transform="threads", needs=("grad", "threads"))
def pulled_in_a_thread(h: Checked) -> None:
    """A pull in another thread is the same.

    Expect of x ** 3 at (1, 2) with the cotangent (1, 10) the gradient (3, 120) in two threads, and here.
    """
    ct = h.array([1.0, 10.0])
    _, pull = adprotocol.vjp(lambda x: x * x * x, h.array([1.0, 2.0]), backend=h.name)
    for found in (*in_threads(h, lambda: pull(ct), lambda: pull(ct)), pull(ct)):
        h.assert_equal(found[0], [3.0, 120.0], "the gradient")


@scenario(rule="J6", transform="grad", needs=("grad", HIGHER_ORDER), varies=True, source=_JAX)
def differentiated_again(h: Checked) -> None:
    """A pull is differentiated by the cotangent, by the primal and by what the function closes over.

    Expect of c x ** 3 at x = 2, c = 5, cotangent 7, pulled: 60 by the cotangent, also where the call is over, 420 by x,
    84 by c.
    """
    x, c, ct = h.array(2.0), h.array(5.0), h.array(7.0)

    def call(x: Any, c: Any) -> Any:
        return adprotocol.vjp(lambda x: c * x * x * x, x, backend=h.name)[1]

    h.assert_equal(h.grad(lambda ct: call(x, c)(ct)[0])(ct), 60.0, "the derivative by the cotangent")
    h.assert_equal(h.grad(lambda x: call(x, c)(ct)[0])(x), 420.0, "the derivative by the primal")
    h.assert_equal(h.grad(lambda c: call(x, c)(ct)[0])(c), 84.0, "the derivative by what is closed over")
    pull = call(x, c)
    h.assert_equal(h.grad(lambda ct: pull(ct)[0])(ct), 60.0, "the derivative of a pull whose call is over")
    h.assert_equal(pull(ct)[0], 420.0, "the gradient behind it")


@scenario(rule="J6", transform="grad", needs=("grad", HIGHER_ORDER), varies=True, source=_CONFUSED)
def levels_stay_apart(h: Checked) -> None:
    """A pull in another derivative is that of its own call, and what it closes over that of another.

    Expect of x D(y -> x y y)(3) at x = 5 the derivative 12 x = 60, of x times a pull that gives 6 the derivative 6.
    """
    three = h.array(3.0)
    _, pull = adprotocol.vjp(square, three, backend=h.name)

    def inner(x: Any) -> Any:
        return x * adprotocol.vjp(lambda y: x * y * y, three, backend=h.name)[1](1.0)[0]

    h.assert_equal(h.grad(inner)(h.array(5.0)), 60.0, "the derivative around the call")
    h.assert_equal(h.grad(lambda x: x * pull(1.0)[0])(h.array(5.0)), 6.0, "the derivative around a pull")


@scenario(rule="J7", source=_JAX)
def rule_in_a_pull(h: Checked) -> None:
    """A derivative rule has the cotangent of each pull; an error in it leaves nothing behind.

    Expect of x ** 2 with the rule 7 ct x at 3: 10.5 for 1/2, 42 for 2; ZeroDivisionError as raised, then 21 for 1.
    """
    _, pull = adprotocol.vjp(ruled(h, square, lambda ct, _, x: (7.0 * ct * x,)), h.array(3.0), backend=h.name)
    h.assert_equal(pull(0.5)[0], 10.5, "the gradient for 1/2")
    h.assert_equal(pull(2.0)[0], 42.0, "the gradient for 2")

    def broken(*_: Any) -> Any:
        msg = "raised in the rule"
        raise ZeroDivisionError(msg)

    with h.raises(ZeroDivisionError, words=["raised in the rule"]):
        adprotocol.vjp(ruled(h, square, broken), h.array(3.0), backend=h.name)[1](1.0)
    h.assert_equal(pull(1.0)[0], 21.0, "the gradient behind the error")


@scenario(rule="J7", needs=("grad", "parameter"), source=_JAX)
def parameters_behind_the_call(h: Checked) -> None:
    """Parameters and their flags are behind the call, and behind a pull, as they were, also where `where` overrides.

    Expect of a b b at (2, 3), with the flag of b off: {a: 9, b: None}; with where="b" {a: None, b: 12}.
    """
    m = {"a": h.parameter(2.0, trains=True), "b": h.parameter(3.0, trains=False)}
    for where, want in ((None, {"a": 9.0, "b": None}), ("b", {"a": None, "b": 12.0}), (None, {"a": 9.0, "b": None})):
        _, pull = adprotocol.vjp(lambda m: m["a"] * m["b"] * m["b"], m, where=where, backend=h.name)
        found = adprotocol.trainable(m)
        h.check(found["a"] is m["a"] and found["b"] is None, f"behind the call what takes a gradient is {found!r:.120}")
        h.assert_gradients(pull(1.0)[0], want, f"the gradient with where={where!r}")


@scenario(rule="J11", needs=("grad", "no_grad"), source=_TAPE)
def pulled_under_the_switch(h: Checked) -> None:
    """The system's own switch changes neither call nor pull.

    Expect of x ** 3 at (1, 2) with (1, 10) the gradient (3, 120), with the call, the pull or both under the switch.
    """
    x, ct = h.array([1.0, 2.0]), h.array([1.0, 10.0])

    def call() -> Any:
        return adprotocol.vjp(lambda x: x * x * x, x, backend=h.name)[1]

    for pull in (call(), h.no_grad(call)()):
        h.assert_equal(h.no_grad(lambda pull=pull: pull(ct)[0])(), [3.0, 120.0], "the gradient under the switch")
        h.assert_equal(pull(ct)[0], [3.0, 120.0], "the gradient behind the switch")


@scenario(rule="J15", level=SHOULD, source="JAX: arrays that are donated: https://docs.jax.dev/en/latest/faq.html")
def memory_of_results(h: Checked) -> None:
    """A gradient lies in memory of its own, and primals and cotangents stay as they are.

    Expect of (x, x) at (1, 2), pulled with ((1, 10), None): (1, 10), apart from the cotangent, and with both (2, 20);
    of y = x + x and y + y, with both (6, 60).
    """
    import numpy as np

    x, ct = h.array([1.0, 2.0]), h.array([1.0, 10.0])
    _, pull = adprotocol.vjp(lambda x: (x, x), x, backend=h.name)
    only = pull((ct, None))[0]
    of_sums = adprotocol.vjp(lambda x: (y := x + x, y + y), x, backend=h.name)[1]
    sums = of_sums((ct, ct))[0]
    for array, want in (
        (only, [1.0, 10.0]),
        (pull((ct, ct))[0], [2.0, 20.0]),
        (sums, [6.0, 60.0]),
        (ct, [1.0, 10.0]),
        (x, [1.0, 2.0]),
    ):
        h.assert_equal(array, want, "a gradient, cotangent or primal")
    found, given = h.numpy(only), h.numpy(ct)
    h.check(not (found.flags.writeable and np.shares_memory(found, given)), "the gradient has the cotangent's memory")


@scenario(rule="J15", level=SHOULD, source="JAX: arrays that are donated: https://docs.jax.dev/en/latest/faq.html")
def function_writes_to_its_argument(h: Checked) -> None:
    """An assignment like ``x *= 2`` in the function counts in the derivative, and leaves the primal as it is.

    Expect of x x behind it at (1, 2), pulled with (1, 10): the value (4, 16) and the gradient (8, 160).
    """

    def f(x: Any) -> Any:
        x *= 2.0
        return x * x

    x = h.array([1.0, 2.0])
    try:
        value, pull = adprotocol.vjp(f, x, backend=h.name)
    except Exception as error:  # PyTorch, for a leaf
        msg = f"the system itself refuses it: {one_line(error, 160)}"
        raise Absent(msg) from error
    for found, want in ((value, [4.0, 16.0]), (pull(h.array([1.0, 10.0]))[0], [8.0, 160.0]), (x, [1.0, 2.0])):
        h.assert_equal(found, want, "the value, the gradient or the primal")
