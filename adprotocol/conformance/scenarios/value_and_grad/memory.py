"""Gradients in their own memory, of the shape and dtype of their leaves; and what a call leaves alone."""

from __future__ import annotations

import contextlib
import gc
import weakref
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.checks import Absent, Checked
from adprotocol.conformance.scenario import SHOULD, Decorator, defaults
from adprotocol.conformance.scenarios import arrays
from adprotocol.conformance.scenarios.within_gradient.errors import assert_freed

if TYPE_CHECKING:
    from collections.abc import Iterator


_IN_PLACE = (
    "PyTorch: an update in place of a result corrupts the input: https://github.com/pytorch/pytorch/issues/197893"
)

scenario: Decorator = defaults("value_and_grad", rule="T5", needs=("grad",), source=_IN_PLACE)


def _change(array: Any) -> None:
    """Write 9 to the first element; arrays that do not change have no such trap."""
    try:
        array[0] = 9.0
    except (TypeError, ValueError) as error:
        msg = f"its arrays do not change: {error}"
        raise Absent(msg) from error


@contextlib.contextmanager
def _numpy_beside(h: Checked) -> Iterator[None]:
    """Leave out a system that does not combine an array of NumPy, which is on the host, with one on a device."""
    try:
        yield
    except Exception as error:
        if h.device is None or "device" not in str(error):
            raise
        msg = f"its arrays on {h.device} take none of NumPy: {error}"
        raise Absent(msg) from error


@scenario(level=SHOULD)
def zeros_of_their_own(h: Checked) -> None:
    """An update in place of the zeros of an unused leaf changes no other zeros, in this call and the next.

    After 9 is written to the zeros of one unused leaf, those of another, of the next call and of leaves that a constant
    function has are still zeros, and so is the leaf itself.
    """
    zero = h.array([0.0, 0.0])
    model = {"w": h.array([1.0, 2.0]), "a": h.array([3.0, 4.0]), "b": h.array([5.0, 6.0]), "zero": zero}
    losses = (lambda m: m["w"][0] * m["w"][1], lambda _: 3.0, lambda m: (m["a"] * m["b"] * m["zero"])[0] + m["w"][0])
    for loss in losses:
        for _ in range(2):
            gradient = adprotocol.grad(loss, backend=h.name)(model)
            before = {name: h.numpy(slope).copy() for name, slope in gradient.items()}
            h.check(not before["b"].any(), f"the gradient of b is {before['b']}")
            for name in ("b", "a"):
                _change(gradient[name])
                for other in set(model) - {"a", "b"} | ({"a"} if name == "b" else set()):
                    h.assert_equal(
                        gradient[other], before[other], f"the gradient of {other} after that of {name} changed"
                    )
            h.assert_equal(zero, [0.0, 0.0], "a leaf of zeros")


@scenario(level=SHOULD, needs=("grad", "parameter"))
def zeros_of_parameters(h: Checked) -> None:
    """The zeros of unused parameters are neither each other's nor the parameters.

    Expect w w at w = (2, 3) with the unused parameters a and b: after 9 is written to the zeros of a, those of b are
    zeros, and a and b are as before.
    """
    model = {name: h.parameter([2.0, 3.0], trains=True) for name in ("w", "a", "b")}
    for _ in range(2):
        gradient = adprotocol.grad(lambda m: (m["w"] * m["w"])[0], backend=h.name)(model)
        h.assert_gradients(gradient, {"w": [4.0, 0.0], "a": [0.0, 0.0], "b": [0.0, 0.0]})
        _change(gradient["a"])
        h.assert_equal(gradient["b"], [0.0, 0.0], "the zeros of b after those of a changed")
        for name, parameter in model.items():
            h.assert_equal(1.0 * parameter, [2.0, 3.0], f"the parameter {name}")


@scenario(
    level=SHOULD,
    needs=("grad", "dtypes", "cast"),
    source="optax: dtypes of updates: https://github.com/google-deepmind/optax/issues/377",
)
def zeros_of_each_dtype(h: Checked) -> None:
    """The zeros of an unused leaf have its dtype, shape and device, and those of a constant function too.

    Expect zeros of the dtype and shape of an unused leaf, on its device, for each floating-point dtype.
    """
    for dtype in h.dtypes():
        for shape in ((), (2,), (2, 1, 3)):
            leaf = h.cast(h.array(arrays.nested(shape, 2.0)), dtype)
            for loss in (lambda m: m["w"] * m["w"], lambda _: 3.0):
                gradient = adprotocol.grad(loss, backend=h.name)({"w": h.array(2.0), "u": leaf})
                h.assert_equal(
                    h.cast(gradient["u"], h.dtypes()[0]), arrays.nested(shape, 0.0), f"zeros of {dtype}, {shape}"
                )
                found, want = h.numpy(gradient["u"]).dtype, h.numpy(leaf).dtype
                h.check(found == want, f"the zeros of a leaf of {want.name} have dtype {found.name}")
                place, due = (getattr(array, "device", None) for array in (gradient["u"], leaf))
                h.check(place == due, f"the zeros of a leaf on {due} are on {place}")


@scenario(
    level=SHOULD,
    rule="T10",
    source="SciPy: NumPy arrays beside those of a framework: https://github.com/scipy/scipy/pull/18668",
)
def precision_beside_other_leaves(h: Checked) -> None:
    """NumPy arrays and Python numbers among the leaves lower the precision of nothing.

    Expect 1000.1 * 2000.2 * 0.1 * 3 to the precision of the system, in the dtype of its arrays, and its gradients.
    """
    import numpy as np

    model = {"numpy": np.array([1000.1, 2000.2]), "float": 0.1, "array": h.array([3.0])}

    def loss(m: dict[str, Any]) -> Any:
        return (m["array"] * m["numpy"][0] * m["numpy"][1] * m["float"])[0]

    value, gradient = adprotocol.value_and_grad(loss, backend=h.name)(model)
    want = 1000.1 * 2000.2 * 0.1 * 3.0
    h.assert_equal(value, want, "the value")
    h.assert_gradients(gradient, {"numpy": [want / 1000.1, want / 2000.2], "float": want / 0.1, "array": [want / 3.0]})
    for name, found in (("value", value), ("gradient of the array", gradient["array"])):
        dtypes = h.numpy(found).dtype, h.numpy(model["array"]).dtype
        h.check(dtypes[0] == dtypes[1], f"the {name} has dtype {dtypes[0].name}, and the array {dtypes[1].name}")


@scenario(source="NumPy: arrays of any number of axes: https://numpy.org/doc/stable/reference/arrays.ndarray.html")
def ranks_of_leaves(h: Checked) -> None:
    """Leaves of any rank have gradients of their shapes, used or not.

    Expect x y in the first element for leaves of one to four axes: gradients 3 and 2 there, zeros of an unused leaf.
    """
    for shape in arrays.SHAPES:
        model = {name: arrays.filled(h, shape, value) for name, value in (("x", 2.0), ("y", 3.0), ("u", 4.0))}
        run = adprotocol.value_and_grad(lambda m: arrays.first(m["x"] * m["y"], shape), backend=h.name)
        value, gradient = run(model)
        h.assert_equal(value, 6.0, f"the value, shape {shape}")
        want = {"x": arrays.corner(shape, 3.0), "y": arrays.corner(shape, 2.0), "u": arrays.nested(shape, 0.0)}
        h.assert_gradients(gradient, want, f"the gradient, shape {shape},")


@scenario(
    level=SHOULD,
    needs=("grad", "parameter"),
    source="PyTorch: gradients accumulate in .grad: https://docs.pytorch.org/docs/stable/notes/autograd.html",
)
def leaves_nothing_on_parameters(h: Checked) -> None:
    """A call leaves nothing on a parameter, such as an accumulated gradient, and keeps nothing that it computed.

    The attributes of a parameter and of an array are what they were, behind a question, a constant, a branch and a
    gradient; what the function computed is freed.
    """
    model = {"p": h.parameter([2.0, 3.0], trains=True), "x": h.array([4.0, 5.0])}
    for leaf in model.values():
        _ = 2.0 * leaf  # a system may note on a parameter that it has been read
    before = {name: _attributes(leaf) for name, leaf in model.items()}
    kept: list[Any] = []

    def loss(m: dict[str, Any]) -> Any:
        product = m["p"] * m["x"]
        kept.append(_reference(product))
        return product[0]

    for _ in range(2):
        adprotocol.within_gradient(model)
        adprotocol.non_differentiable(model)
        adprotocol.cond(True, lambda m: m["p"] * 2.0, lambda m: m["p"], model)
        h.assert_gradients(adprotocol.grad(loss, backend=h.name)(model), {"p": [4.0, 0.0], "x": [2.0, 0.0]})
    for name, leaf in model.items():
        h.check(_attributes(leaf) == before[name], f"a call left {_attributes(leaf)!r:.200} on {name}")
    gc.collect()
    h.check(not any(reference() for reference in kept), "what the function computed is still alive")


def _attributes(leaf: Any) -> dict[str, int]:
    """Return the attributes that Python and frameworks keep beside the value of an array, by identity."""
    found = dict(getattr(leaf, "__dict__", {}))
    found |= {name: getattr(leaf, name) for name in ("grad", "requires_grad") if hasattr(leaf, name)}
    return {name: id(value) for name, value in found.items()}


def _reference(value: Any) -> Any:
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: False


@scenario(
    level=SHOULD,
    source="PyTorch: a graph lives as long as what refers to it: https://docs.pytorch.org/docs/stable/notes/autograd.html",
)
def freed_behind_a_call(h: Checked) -> None:
    """What the function of a call computed is freed behind the call.

    x x is freed behind our gradient of x ** 3, asked about inside or not.
    """
    x = h.array(2.0)

    def ours(f: Any) -> Any:
        return adprotocol.grad(lambda m: f(m["x"]), backend=h.name)({"x": x})

    assert_freed(h, ours, [("a call of grad", adprotocol.within_gradient)], native=lambda f: h.grad(f)(x))


@scenario(
    level=SHOULD,
    needs=("grad", "parameter", "parameter_grad"),
    source="PyTorch: gradients accumulate in .grad: https://docs.pytorch.org/docs/stable/notes/autograd.html",
)
def native_gradient_behind_calls(h: Checked) -> None:
    """Our calls add nothing to the gradients that the system itself keeps or computes.

    Expect the native gradient 4 of p p at 2 before and behind two of our calls, and no gradient of its own on p.
    """
    p = h.parameter(2.0, trains=True)
    h.assert_equal(h.parameter_grad(lambda: p * p, p), 4.0, "the native gradient before")
    before = getattr(p, "grad", None)
    for _ in range(2):
        h.assert_gradients(adprotocol.grad(lambda m: m["p"] * m["p"] * m["p"], backend=h.name)({"p": p}), {"p": 12.0})
        h.assert_is(getattr(p, "grad", None), before, "the gradient of its own that p has")
    h.assert_equal(h.parameter_grad(lambda: p * p, p), 4.0, "the native gradient behind")


@scenario(
    level=SHOULD,
    needs=("grad", "dtypes", "cast"),
    source="optax: dtypes of updates: https://github.com/google-deepmind/optax/issues/377",
)
def update_keeps_the_dtype(h: Checked) -> None:
    """A step by the gradient keeps the dtype of every leaf, used or not.

    Expect a step w - g of each leaf, used or not, in the dtype of the leaf, for each floating-point dtype.
    """
    for dtype in h.dtypes():
        model = {name: h.cast(h.array([2.0, 3.0]), dtype) for name in ("used", "unused")}
        gradient = adprotocol.grad(lambda m: (m["used"] * m["used"])[0], backend=h.name)(model)
        for name, leaf in model.items():
            want = h.numpy(leaf).dtype
            for what, made in (("a step", leaf - gradient[name]), ("the gradient", gradient[name])):
                found = h.numpy(made).dtype
                h.check(found == want, f"{what} of the {name} leaf of {want.name} has dtype {found.name}")


@scenario(
    level=SHOULD,
    rule="T10",
    source="SciPy: NumPy arrays beside those of a framework: https://github.com/scipy/scipy/pull/18668",
)
def thirds(h: Checked) -> None:
    """One third that comes as a number or as an array of NumPy is as precise as in the system's own array.

    Expect one third, as a number and as an array of NumPy, times 3: 1 to the precision of the system, and its dtype.
    """
    import numpy as np

    three = h.array([3.0])
    for leaf in (1.0 / 3.0, np.array([1.0 / 3.0]), np.float64(1.0 / 3.0)):
        run = adprotocol.value_and_grad(lambda m, x: (m["third"] * x)[0] * 1.0e6, backend=h.name)
        with _numpy_beside(h):
            value, gradient = run({"third": leaf}, three)
        h.assert_equal(value, 1.0e6, "the value")
        h.assert_equal(h.numpy(gradient["third"]).reshape(()), 3.0e6, "the gradient")
        found, want = h.numpy(value).dtype, h.numpy(three).dtype
        h.check(found == want, f"the value has dtype {found.name}, and the arrays {want.name}")
    for dtype in h.dtypes() if h.has("dtypes", "cast") else ():
        x = h.cast(three, dtype)
        leaf = np.array([1.0 / 3.0], h.numpy(x).dtype)
        value, _ = adprotocol.value_and_grad(lambda m, x: (m["third"] * x)[0], backend=h.name)({"third": leaf}, x)
        found, want = h.numpy(value).dtype, leaf.dtype
        h.check(found == want, f"the value has dtype {found.name}, and both arrays {want.name}")


@scenario(
    level=SHOULD,
    rule="T10",
    needs=("grad", "dtypes", "cast"),
    source="optax: dtypes of updates: https://github.com/google-deepmind/optax/issues/377",
)
def numpy_leaf_of_each_dtype(h: Checked) -> None:
    """The gradient of an array of NumPy has the dtype that the gradient of the system's own array has.

    Expect the gradient c of c x for an array of NumPy, in the dtype that the system's own array has it in, for each
    floating-point dtype.
    """
    import numpy as np

    default = h.numpy(h.array([2.0])).dtype
    for dtype in h.dtypes():
        own = h.cast(h.array([2.0, 3.0]), dtype)
        leaf = np.array([2.0, 3.0], h.numpy(own).dtype)
        c = h.cast(h.array([3.0, 5.0]), dtype)

        def loss(m: dict[str, Any], c: Any) -> Any:
            return (m["x"] * c)[1]

        want = adprotocol.grad(loss, backend=h.name)({"x": own}, c)["x"]
        with _numpy_beside(h):
            found = adprotocol.grad(loss, backend=h.name)({"x": leaf}, c)["x"]
        h.assert_equal(found, [0.0, 5.0], f"the gradient of an array of {dtype}")
        got, due = h.numpy(found).dtype, h.numpy(want).dtype
        # A system may take all wider arrays of NumPy in its own default.
        narrowed = got == default and leaf.dtype.itemsize > default.itemsize
        h.check(got == due or narrowed, f"for {dtype} the dtype is {got.name}, and of its own array {due.name}")
