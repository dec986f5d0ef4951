"""`value_and_grad`: which framework differentiates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import errors
from adprotocol.conformance.checks import Absent
from adprotocol.conformance.scenario import SHOULD, defaults
from adprotocol.errors import kind_of

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


_BACKEND = "TruLens: an environment variable names the wrong backend: https://github.com/truera/trulens/issues/17"

scenario: Decorator = defaults("value_and_grad", rule="T10", needs=("grad",))


@scenario(level=SHOULD, source=_BACKEND)
def unknown_backend(h: Checked) -> None:
    """A backend that is not there is an error that names it.

    Expect BackendError that names 'nosuchsystem'.
    """
    with h.raises(errors.BackendError, words=["nosuchsystem", h.name]):
        adprotocol.grad(lambda m: m["w"], backend="nosuchsystem")({"w": h.array(1.0)})


@scenario(source=_BACKEND)
def framework_of_arguments(h: Checked) -> None:
    """The framework is that of any of the arguments; nothing needs to be named.

    Of w ** 2 * x at (2.0, 3), with a float in the model and the array x beside it expect 12, of the class of x.
    """
    import numpy as np  # noqa: PLC0415  (--list does without)

    x = h.array(3.0)
    if isinstance(x, np.ndarray):
        msg = "its arrays are NumPy's, which say nothing of the framework"
        raise Absent(msg)
    for arguments, named in (((x,), {}), ((), {"x": x})):
        value, gradient = adprotocol.value_and_grad(lambda m, x: m["w"] * m["w"] * x)({"w": 2.0}, *arguments, **named)
        h.assert_equal(value, 12.0, "the value")
        h.assert_gradients(gradient, {"w": 12.0})
        h.check(isinstance(gradient["w"], type(x)), f"the gradient is {kind_of(gradient['w'])}")


@scenario(source="JAX: grad of Python numbers: https://docs.jax.dev/en/latest/101/transformations.html")
def python_numbers(h: Checked) -> None:
    """Python numbers alone are differentiated by the backend that is named.

    w ** 2 * n at (3.0, 2) is 18, with the gradient 12 for the float and None for the integer.
    """
    value, gradient = adprotocol.value_and_grad(lambda m: m["w"] * m["w"] * m["n"], backend=h.name)({"w": 3.0, "n": 2})
    h.assert_equal(value, 18.0, "the value")
    h.assert_gradients(gradient, {"w": 12.0, "n": None})


@scenario(source="SciPy: NumPy arrays beside those of a framework: https://github.com/scipy/scipy/pull/18668")
def numpy_leaves(h: Checked) -> None:
    """NumPy arrays and Python floats among the leaves are differentiated with the arrays of the system.

    Expect v0 v1 f x at ([2, 3], 5.0, 7): the gradients (105, 70), 42 and 30.
    """
    import numpy as np  # noqa: PLC0415  (--list does without)

    model = {"numpy": np.array([2.0, 3.0]), "float": 5.0, "array": h.array(7.0)}

    def loss(m: dict[str, Any]) -> Any:
        return m["numpy"][0] * m["numpy"][1] * m["float"] * m["array"]

    value, gradient = adprotocol.value_and_grad(loss, backend=h.name)(model)
    h.assert_equal(value, 210.0, "the value")
    h.assert_gradients(gradient, {"numpy": [105.0, 70.0], "float": 42.0, "array": 30.0})
