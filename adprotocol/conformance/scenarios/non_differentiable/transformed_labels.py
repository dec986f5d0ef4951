"""Labels under jit and vmap, labels of labels, and copies."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import NonDifferentiable
from adprotocol.conformance.checks import Absent
from adprotocol.conformance.scenario import SHOULD, defaults
from adprotocol.errors import kind_of

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


scenario: Decorator = defaults("non_differentiable", rule="N4")


@scenario(
    transform="grad of {way}",
    source="JAX, static is not the same as not differentiable: https://github.com/jax-ml/jax/issues/2912",
)
def label_closed_over(h: Checked, way: str) -> None:
    """A jitted function may close over a label of a differentiated value, and make its own.

    Expect a label of x closed over, times a label made inside, times x, under {way} at 2: 8, the gradient 4.
    """

    def f(x: Any) -> Any:
        label = NonDifferentiable(x)
        return h.trace(way, lambda y: label * NonDifferentiable(y) * y)(x)

    h.assert_value_and_grad(f, (h.array(2.0),), 8.0, 4.0)


@scenario(
    level=SHOULD,
    transform="jit",
    source="Equinox, static fields and stop_gradient: https://github.com/patrick-kidger/equinox/issues/958",
)
def label_traced_once(h: Checked) -> None:
    """Another value in a label does not cause another trace.

    Expect {"scale": NonDifferentiable(s), "w": 2} under jit gives 2 s for s = 3, 4, 5, of one trace.
    """
    traces: list[str] = []

    def f(m: Any) -> Any:
        traces.append("traced")
        return m["scale"] * m["w"]

    w = h.array(2.0)
    try:
        plain = h.jit(f)
        plain({"scale": h.array(3.0), "w": w})
        plain({"scale": h.array(4.0), "w": w})
    except Exception as error:
        reason = "its jit takes no structures"
        raise Absent(reason) from error
    if len(traces) != 1:
        reason = "its jit traces, or repeats effects, without a label as well"
        raise Absent(reason)
    traces.clear()
    jitted = h.jit(f)
    for s in (3.0, 4.0, 5.0):
        h.assert_equal(jitted({"scale": NonDifferentiable(h.array(s)), "w": w}), 2.0 * s, f"the result for {s}")
    h.check(len(traces) == 1, f"the function was traced {len(traces)} times for three values of a label")


@scenario(
    transform="grad of vmap",
    source="PyTorch, vmap hides what is tracked: https://github.com/pytorch/pytorch/issues/158610",
)
def label_under_vmap(h: Checked) -> None:
    """Labels inside vmap hold rows, and labels from outside are closed over.

    Expect rows of label(a) * a * label(x) * x for a = x and 2 x: their sum, 5 x ** 4, is 405 at 3, with the gradient 10
    x ** 3 = 270, since neither label has a derivative.
    """

    def f(x: Any) -> Any:
        outside = NonDifferentiable(x)
        return h.sum_of_rows(lambda a: NonDifferentiable(a) * a * (outside * x), h.array([1.0, 2.0]) * x)

    h.assert_value_and_grad(f, (h.array(3.0),), 405.0, 270.0)


@scenario(
    transform="grad",
    source="GPJax, a wrapper inside of another wrapper: https://github.com/thomaspinder/GPJax/issues/766",
)
def label_of_label(h: Checked) -> None:
    """A label of a label acts as one label, and the constant of a label is still a label.

    Expect NonDifferentiable(NonDifferentiable(x)) x at 3: 9, with the gradient 3; its value is a plain array.
    """

    def f(x: Any) -> Any:
        label = NonDifferentiable(NonDifferentiable(x))
        h.check(not isinstance(label.value, NonDifferentiable), "the value of a label of a label is a label")
        constant = adprotocol.non_differentiable(label)
        h.check(isinstance(constant, NonDifferentiable), f"its constant is {kind_of(constant)}")
        return constant * x

    h.assert_value_and_grad(f, (h.array(3.0),), 9.0, 3.0)


@scenario(
    level=SHOULD, source="Paddle, deepcopy for layers and tensors: https://github.com/PaddlePaddle/Paddle/pull/29387"
)
def label_copies(h: Checked) -> None:
    """A label is copied and pickled as its array is, and need not be hashable.

    Copy, deepcopy and pickle of a label of (1, 2) give a label of (1, 2), if those of the array do.
    """
    array = h.array([1.0, 2.0])
    ways: dict[str, Any] = {
        "copy": copy.copy,
        "deepcopy": copy.deepcopy,
        "pickle": lambda value: pickle.loads(pickle.dumps(value)),  # noqa: S301
    }
    label = NonDifferentiable(array)
    ran = []
    for name, way in ways.items():
        try:
            way(array)
        except Exception:  # noqa: BLE001, S112  (the array's own concern)
            continue
        made = way({"label": label})["label"]
        h.check(isinstance(made, NonDifferentiable), f"{name} of a label gives {kind_of(made)}")
        h.assert_equal(made.value, [1.0, 2.0], f"the value after {name}")
        ran.append(name)
    if not ran:
        reason = "its arrays can be neither copied nor pickled"
        raise Absent(reason)
