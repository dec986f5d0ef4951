"""Arguments: which are differentiated, which are refused, and which framework they belong to."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import errors
from adprotocol.conformance.scenario import SHOULD, Decorator, defaults
from adprotocol.messages import kind_of

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked

_KEYWORDS = "JAX: differentiated arguments given by keyword: https://github.com/jax-ml/jax/issues/1696"

scenario: Decorator = defaults("value_and_grad", rule="T5", needs=("grad",), source=_KEYWORDS)


_INTEGERS = "JAX: grad of integers should be an error: https://github.com/jax-ml/jax/issues/424"


def product(a: dict[str, Any], b: dict[str, Any], power: int = 1) -> Any:
    """Return (a["x"] b["x"] b["y"]) ** power."""
    return (a["x"] * b["x"] * b["y"]) ** power


@scenario(source="Flax: nnx.grad of several models: https://github.com/google/flax/pull/3798")
def two_models(h: Checked) -> None:
    """Several `argnums` give a tuple of gradients, in their order.

    Expect a b c at (2, 3, 4): ({x: 12}, {x: 8, y: 6}) for argnums=(0, 1), in the other order for (1, 0); a a c for one
    model (2, 5) twice: ({x: 10, y: 0}, {x: 10, y: 4}).
    """
    a, b = {"x": h.array(2.0), "n": 1, "steps": h.array([1, 2])}, {"x": h.array(3.0), "y": h.array(4.0)}
    value, gradient = adprotocol.value_and_grad(product, argnums=(0, 1), backend=h.name)(a, b)
    h.assert_equal(value, 24.0, "the value")
    first, second = gradient
    h.assert_gradients(first, {"x": 12.0, "n": None, "steps": None}, "the gradient of the first model")
    h.assert_gradients(second, {"x": 8.0, "y": 6.0}, "the gradient of the second model")
    second, first = adprotocol.grad(product, argnums=(1, 0), backend=h.name)(a, b)
    h.assert_gradients(first, {"x": 12.0, "n": None, "steps": None}, "the gradient of the first model, asked for last")
    h.assert_gradients(second, {"x": 8.0, "y": 6.0}, "the gradient of the second model, asked for first")
    same = {"x": h.array(2.0), "y": h.array(5.0)}
    first, second = adprotocol.grad(product, argnums=(0, 1), backend=h.name)(same, same)
    h.assert_gradients(first, {"x": 10.0, "y": 0.0}, "the gradient of a model in the first place")
    h.assert_gradients(second, {"x": 10.0, "y": 4.0}, "the gradient of that model in the second")


@scenario(source="JAX: negative argnums: https://github.com/jax-ml/jax/issues/10630")
def argnums(h: Checked) -> None:
    """One of `argnums`, counted from either end, gives one gradient; a tuple of one gives a tuple.

    Expect a b c at (2, 3, 4): {x: 8, y: 6} for argnums=1 and -1, a tuple of it for argnums=(1,).
    """
    a, b = {"x": h.array(2.0)}, {"x": h.array(3.0), "y": h.array(4.0)}
    for argnum in (1, -1):
        h.assert_gradients(adprotocol.grad(product, argnums=argnum, backend=h.name)(a, b), {"x": 8.0, "y": 6.0})
    found = adprotocol.grad(product, argnums=(1,), backend=h.name)(a, b)
    h.check(isinstance(found, tuple) and len(found) == 1, f"the gradient for argnums=(1,) is {found!r:.120}")
    h.assert_gradients(found[0], {"x": 8.0, "y": 6.0})


@scenario(rule="T3", source="JAX: the form of the result follows argnums: https://github.com/jax-ml/jax/issues/4730")
def where_of_two_models(h: Checked) -> None:
    """With several `argnums` paths begin anew in each argument, and a mask is a tuple of masks.

    Expect a b c at (2, 3, 4): 'y' selects 6 in the second model; the masks (True, {x: True, y: False}) 12 and 8.
    """
    a, b = {"x": h.array(2.0)}, {"x": h.array(3.0), "y": h.array(4.0)}
    first, second = adprotocol.grad(product, argnums=(0, 1), where="y", backend=h.name)(a, b)
    h.assert_gradients(first, {"x": None}, "the gradient of the first model")
    h.assert_gradients(second, {"x": None, "y": 6.0}, "the gradient of the second model")
    masks = (True, {"x": True, "y": False})
    first, second = adprotocol.grad(product, argnums=(0, 1), where=masks, backend=h.name)(a, b)
    h.assert_gradients(first, {"x": 12.0}, "the gradient of the first model, by a mask")
    h.assert_gradients(second, {"x": 8.0, "y": None}, "the gradient of the second model, by a mask")


@scenario()
def keyword_arguments(h: Checked) -> None:
    """Arguments given by keyword reach the function, and are constants.

    (a b c) ** 2 at (3, 2, 4) is 576, with the gradient 2 24 8 = 384 for a; b is given by keyword.
    """
    run = adprotocol.value_and_grad(product, backend=h.name)
    value, gradient = run({"x": h.array(3.0)}, b={"x": h.array(2.0), "y": h.array(4.0)}, power=2)
    h.assert_equal(value, 576.0, "the value")
    h.assert_gradients(gradient, {"x": 384.0})


@dataclass
class Line:
    """A line, and its square at a point."""

    w: Any
    b: float

    def loss(self, x: Any) -> Any:
        """Return (w x + b) ** 2."""
        return (self.w * x + self.b) * (self.w * x + self.b)


@scenario(
    rule="T4",
    source="Equinox: methods of models are functions of them: https://docs.kidger.site/equinox/all-of-equinox/",
)
def methods(h: Checked) -> None:
    """Functions of a class, bound methods and partial functions are differentiated like any other.

    Expect (2 x + 1) ** 2 at 3: 42 for w and 14 for b by the function of the class, 28 for x if bound.
    """
    line, x = Line(h.array(2.0), 1.0), h.array(3.0)
    for function in (Line.loss, functools.partial(Line.loss, x=x)):
        gradient = adprotocol.grad(function, backend=h.name)(line, *([x] if function is Line.loss else []))
        h.assert_equal(gradient.w, 42.0, "the gradient of the array")
        h.assert_equal(gradient.b, 14.0, "the gradient of the float")
    h.assert_equal(adprotocol.grad(line.loss, backend=h.name)(x), 28.0, "the gradient of the point")


@scenario(
    level=SHOULD, source="Python: functools.wraps: https://docs.python.org/3/library/functools.html#functools.wraps"
)
def metadata(h: Checked) -> None:
    """The gradient of a function has its name and documentation.

    Expect the name 'product', and its documentation.
    """
    for made in (adprotocol.grad(product, backend=h.name), adprotocol.value_and_grad(product, where="x")):
        h.check(made.__name__ == "product", f"the name of the gradient is {made.__name__!r}")
        h.check(made.__doc__ == product.__doc__, f"the documentation of the gradient is {made.__doc__!r:.80}")


@scenario(level=SHOULD)
def model_by_keyword(h: Checked) -> None:
    """What is differentiated and given by keyword is an error that says so, as is a position that is not there.

    Expect ArgumentError.
    """
    a, b = {"x": h.array(2.0)}, {"x": h.array(3.0), "y": h.array(4.0)}
    with h.raises(errors.ArgumentError, words=["position"]):
        adprotocol.grad(product, backend=h.name)(a=a, b=b)  # type: ignore[call-arg]
    with h.raises(errors.ArgumentError, words=["argument 2"]):
        adprotocol.grad(product, argnums=2, backend=h.name)(a, b)


@scenario(source="JAX: gradients are of scalars: https://github.com/jax-ml/jax/issues/6213")
def vector_output(h: Checked) -> None:
    """A function that returns a vector is refused, with its shape.

    Expect OutputError that names the shape (2,), also for shape (1,).
    """
    for values, shape in (([1.0], "(1,)"), ([1.0, 2.0], "(2,)")):
        with h.raises(errors.OutputError, words=[shape]):
            adprotocol.grad(lambda m: m["w"] * 2.0, backend=h.name)({"w": h.array(values)})


@scenario(source=_INTEGERS)
def integer_output(h: Checked) -> None:
    """A function that returns no floating-point scalar is refused.

    Expect OutputError for an integer array, a Python integer, None and a string.
    """
    for result in (h.array(3), 3, None, "text"):
        with h.raises(errors.OutputError):
            adprotocol.grad(lambda _, result=result: result, backend=h.name)({"w": h.array(1.0)})


@scenario(level=SHOULD, source="JAX: has_aux and no pair: https://github.com/jax-ml/jax/issues/5776")
def aux_without_pair(h: Checked) -> None:
    """With `has_aux` a function that returns no pair, or no floating-point scalar in it, is refused.

    Expect OutputError that names has_aux, and one for a pair of an integer, None or a vector.
    """
    with h.raises(errors.OutputError, words=["has_aux"]):
        adprotocol.grad(lambda m: m["w"] * 2.0, has_aux=True, backend=h.name)({"w": h.array(1.0)})
    for result in (3, None, h.array([1.0, 2.0])):
        with h.raises(errors.OutputError):
            adprotocol.grad(lambda m, result=result: (result, m), has_aux=True, backend=h.name)({"w": h.array(1.0)})


@scenario(source=_INTEGERS)
def nothing_trainable(h: Checked) -> None:
    """A model without a leaf that takes a gradient is an error, and not an empty result.

    Expect NothingTrainableError for integers alone, for labels alone, and for a predicate that selects nothing.
    """
    one = h.array(1.0)
    for model in ({"n": 3, "steps": h.array([1, 2])}, {"c": adprotocol.NonDifferentiable(one)}):
        with h.raises(errors.NothingTrainableError):
            adprotocol.grad(lambda _: 1.0, backend=h.name)(model)
    with h.raises(errors.NothingTrainableError):
        adprotocol.grad(lambda m: m["w"], where=lambda path, leaf: False, backend=h.name)({"w": one})


@scenario(rule="T3", source="GPflow: setting trainable without effect: https://github.com/GPflow/GPflow/issues/1184")
def selection_refused(h: Checked) -> None:
    """A selection that cannot be met is an error before the function runs.

    Expect SelectionError naming the pattern, the undecided leaf, the selected integer, the leaf for which a predicate
    returns no bool; the function is not run.
    """
    model, calls = {"w": h.array(1.0), "n": 3}, []

    def loss(m: dict[str, Any]) -> Any:
        calls.append(1)
        return m["w"]

    selections: tuple[tuple[Any, str], ...] = (
        ("weight", "weight"), (["w", "weight"], "weight"), ({"w": True}, "'n'"), (["w", "n"], "'n'"),
        (lambda path, _: path == "w" or None, "'n'"),
    )  # fmt: skip
    for where, name in selections:
        with h.raises(errors.SelectionError, words=[name]):
            adprotocol.grad(loss, where=where, backend=h.name)(model)
    h.check(not calls, "the function ran although the selection is refused")


_BACKEND = "TruLens: an environment variable names the wrong backend: https://github.com/truera/trulens/issues/17"


@scenario(level=SHOULD, rule="T10", source=_BACKEND)
def unknown_backend(h: Checked) -> None:
    """A backend that is not there is an error that names it.

    Expect BackendError that names 'nosuchsystem'.
    """
    with h.raises(errors.BackendError, words=["nosuchsystem", h.name]):
        adprotocol.grad(lambda m: m["w"], backend="nosuchsystem")({"w": h.array(1.0)})


@scenario(rule="T10", source=_BACKEND)
def framework_of_arguments(h: Checked) -> None:
    """The framework is that of any of the arguments; nothing needs to be named.

    Of w ** 2 * x at (2.0, 3), with a float in the model and the array x beside it expect 12, of the class of x.
    """
    import numpy as np

    x = h.array(3.0)
    h.absent_if(isinstance(x, np.ndarray), "its arrays are NumPy's, which say nothing of the framework")
    for arguments, named in (((x,), {}), ((), {"x": x})):
        value, gradient = adprotocol.value_and_grad(lambda m, x: m["w"] * m["w"] * x)({"w": 2.0}, *arguments, **named)
        h.assert_equal(value, 12.0, "the value")
        h.assert_gradients(gradient, {"w": 12.0})
        h.check(isinstance(gradient["w"], type(x)), f"the gradient is {kind_of(gradient['w'])}")


@scenario(rule="T10", source="JAX: grad of Python numbers: https://docs.jax.dev/en/latest/101/transformations.html")
def python_numbers(h: Checked) -> None:
    """Python numbers alone are differentiated by the backend that is named.

    w ** 2 * n at (3.0, 2) is 18, with the gradient 12 for the float and None for the integer.
    """
    value, gradient = adprotocol.value_and_grad(lambda m: m["w"] * m["w"] * m["n"], backend=h.name)({"w": 3.0, "n": 2})
    h.assert_equal(value, 18.0, "the value")
    h.assert_gradients(gradient, {"w": 12.0, "n": None})


@scenario(
    rule="T10", source="SciPy: NumPy arrays beside those of a framework: https://github.com/scipy/scipy/pull/18668"
)
def numpy_leaves(h: Checked) -> None:
    """NumPy arrays and Python floats among the leaves are differentiated with the arrays of the system.

    Expect v0 v1 f x at ([2, 3], 5.0, 7): the gradients (105, 70), 42 and 30.
    """
    import numpy as np

    model = {"numpy": np.array([2.0, 3.0]), "float": 5.0, "array": h.array(7.0)}

    def loss(m: dict[str, Any]) -> Any:
        return m["numpy"][0] * m["numpy"][1] * m["float"] * m["array"]

    value, gradient = adprotocol.value_and_grad(loss, backend=h.name)(model)
    h.assert_equal(value, 210.0, "the value")
    h.assert_gradients(gradient, {"numpy": [105.0, 70.0], "float": 42.0, "array": 30.0})
