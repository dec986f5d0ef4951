"""`value_and_grad` of models with frozen parts: no work for them, and gradients that pass through unchanged."""

from __future__ import annotations

from typing import Any

import adprotocol
from adprotocol import NonDifferentiable
from adprotocol.conformance.checks import Absent, Checked
from adprotocol.conformance.scenario import Decorator, defaults
from adprotocol.conformance.scenarios.arrays import dtypes_of_numpy
from adprotocol.conformance.scenarios.models import Head, Layer
from adprotocol.messages import one_line

_THROUGH = "PyTorch: gradients through frozen weights: https://discuss.pytorch.org/t/grad-through-frozen-weights/84672"
_WASTE = "Flux: freezing parameters still computes all gradients: https://github.com/FluxML/Flux.jl/issues/1688"
_STILL = "optax: gradients are computed for what is set to zero: "
_STILL += "https://github.com/google-deepmind/optax/issues/477"
_FLAGS = "PyTorch: requires_grad of parameters: https://docs.pytorch.org/docs/stable/notes/autograd.html"
_TIED = "Flax: how to tie weights: https://github.com/google/flax/issues/1263"

scenario: Decorator = defaults("value_and_grad", rule="T6", needs=("grad",))


@scenario(rule="T7", source=_THROUGH)
def frozen_mid_network(h: Checked) -> None:
    """Gradients pass unchanged through a frozen layer between two that train.

    c * b * (a * x) ** 2 at a = 3, b = 2, c = 5, x = 1 is 90, with the gradient 60 for a, None for the frozen b and 18
    for c.
    """
    model = [{"w": h.array(3.0)}, {"w": h.array(2.0)}, {"w": h.array(5.0)}]

    def loss(layers: list[dict[str, Any]], x: Any) -> Any:
        first = layers[0]["w"] * x
        return layers[2]["w"] * (layers[1]["w"] * first * first)

    run = adprotocol.value_and_grad(loss, where=["0.*", "2.*"], backend=h.name)
    value, gradient = run(model, h.array(1.0))
    h.assert_equal(value, 90.0, "the value")
    h.assert_gradients(gradient[0], {"w": 60.0}, "the gradient of the first layer")
    h.assert_gradients(gradient[1], {"w": None}, "the gradient of the frozen layer")
    h.assert_gradients(gradient[2], {"w": 18.0}, "the gradient of the last layer")


@scenario(needs=("grad", "counter"), source=_WASTE)
def frozen_branch_costs_nothing(h: Checked) -> None:
    """What depends on frozen leaves alone is not differentiated: a counter in its derivative does not move.

    Expect no run of the rule in the frozen branch, and the gradient 6 of w ** 2 at 3.
    """
    counted, count = h.counter()
    model = {"w": h.array(3.0), "frozen": h.array(4.0)}

    def loss(m: dict[str, Any]) -> Any:
        return m["w"] * m["w"] + counted(m["frozen"] * m["frozen"])

    value, gradient = adprotocol.value_and_grad(loss, where="w", backend=h.name)(model)
    h.assert_equal(value, 25.0, "the value")
    h.assert_gradients(gradient, {"w": 6.0, "frozen": None})
    h.check(count() == 0, f"the derivative of the frozen branch ran {count()} times")


@scenario(needs=("grad", "counter"), source=_WASTE)
def trained_branch_is_differentiated(h: Checked) -> None:
    """The same counter moves where the branch is trained, so its rest elsewhere is significant.

    Expect at least one run of the rule in the trained branch, and the gradient 8 of f ** 2 at 4.
    """
    counted, count = h.counter()
    model = {"w": h.array(3.0), "f": h.array(4.0)}
    gradient = adprotocol.grad(lambda m: m["w"] + counted(m["f"] * m["f"]), where="f", backend=h.name)(model)
    h.assert_gradients(gradient, {"w": None, "f": 8.0})
    h.check(count() >= 1, "the derivative of the trained branch did not run")


@scenario(needs=("grad", "counter"), source=_STILL)
def frozen_first_layers_cost_nothing(h: Checked) -> None:
    """Frozen layers before the first that trains cost nothing, although their output is used.

    Expect no run of the rules of two frozen layers, one or more of the last; the gradient of c (b (a x)) is a b x.
    """
    frozen, runs_of_frozen = h.counter()
    trained, runs_of_trained = h.counter()
    model = [h.array(2.0), h.array(3.0), h.array(5.0)]

    def loss(layers: list[Any], x: Any) -> Any:
        return trained(layers[2] * frozen(layers[1] * frozen(layers[0] * x)))

    value, gradient = adprotocol.value_and_grad(loss, where="2", backend=h.name)(model, h.array(7.0))
    h.assert_equal(value, 210.0, "the value")
    h.assert_equal(gradient[2], 42.0, "the gradient of the last layer")
    h.check(gradient[0] is None and gradient[1] is None, f"the gradient is {gradient!r:.200}")
    h.check(runs_of_frozen() == 0, f"the derivatives of the frozen layers ran {runs_of_frozen()} times")
    h.check(runs_of_trained() >= 1, "the derivative of the trained layer did not run")


@scenario(rule="T7", needs=("grad", "counter"), source=_STILL)
def frozen_weight_costs_nothing(h: Checked) -> None:
    """In mid-network the derivative passes through the activation and not to the frozen weight.

    Expect no run of the rule at the frozen weight, one or more at the activation before it; the gradient is 15.
    """
    weight, runs_at_weight = h.counter()
    activation, runs_at_activation = h.counter()
    model = {"a": h.array(2.0), "b": h.array(3.0), "c": h.array(5.0)}

    def loss(m: dict[str, Any]) -> Any:
        return m["c"] * (weight(m["b"]) * activation(m["a"]))

    gradient = adprotocol.grad(loss, where=["a", "c"], backend=h.name)(model)
    h.assert_gradients(gradient, {"a": 15.0, "b": None, "c": 6.0})
    h.check(runs_at_weight() == 0, f"the derivative of the frozen weight ran {runs_at_weight()} times")
    h.check(runs_at_activation() >= 1, "the derivative of the activation did not run")


@scenario(
    rule="N4",
    source="scarlet2: stop_gradient instead of static parameters: https://github.com/pmelchior/scarlet2/issues/32",
)
def labelled_leaf(h: Checked) -> None:
    """A field labelled NonDifferentiable is used as an array, and takes no gradient.

    w ** 2 * c at (3, 2) is 18, with the gradient 12 for w and None for the label.
    """
    model = {"w": h.array(3.0), "c": adprotocol.NonDifferentiable(h.array(2.0))}
    value, gradient = adprotocol.value_and_grad(lambda m: m["w"] * m["w"] * m["c"], backend=h.name)(model)
    h.assert_equal(value, 18.0, "the value")
    h.assert_gradients(gradient, {"w": 12.0, "c": None})


@scenario(
    rule="T2",
    source="Optimisers.jl: trainable fields of custom types: https://github.com/FluxML/Optimisers.jl/issues/84",
)
def declared_fields(h: Checked) -> None:
    """Fields that their classes freeze take no gradient.

    Expect u (v s + b) at (2, 3, 5, 7): the gradients 22 for u and 10 for v, None for s and b.
    """
    model = {"u": h.array(2.0), "layer": Layer(h.array(3.0), h.array(5.0)), "head": Head(h.array(1.0), h.array(7.0))}

    def loss(m: dict[str, Any]) -> Any:
        return m["u"] * (m["layer"].weight * m["layer"].scale + m["head"].bias)

    gradient = adprotocol.grad(loss, backend=h.name)(model)
    h.assert_equal(gradient["u"], 22.0, "the gradient of the array")
    h.assert_equal(gradient["layer"].weight, 10.0, "the gradient of the field without metadata")
    h.assert_is(gradient["layer"].scale, None, "the gradient of the field that its metadata freeze")
    h.assert_is(gradient["head"].bias, None, "the gradient of the field that its class leaves out")
    h.assert_equal(gradient["head"].weight, 0.0, "the gradient of the declared field, which is not used")


@scenario(
    rule="T3", source="Flux: layers frozen after the model is made: https://github.com/FluxML/Flux.jl/issues/1931"
)
def where_replaces_declarations(h: Checked) -> None:
    """`where` trains what the class freezes, and freezes what it trains, for one call.

    Expect w s ** 2 at (2, 3): the gradient 12 for s, which its metadata freeze, and None for w.
    """
    model = Layer(h.array(2.0), h.array(3.0))
    gradient = adprotocol.grad(lambda m: m.weight * m.scale * m.scale, where="scale", backend=h.name)(model)
    h.assert_equal(gradient.scale, 12.0, "the gradient of the selected field")
    h.assert_is(gradient.weight, None, "the gradient of the field that is not selected")


@scenario(rule="T1", needs=("grad", "parameter"), source=_FLAGS)
def parameter_flags(h: Checked) -> None:
    """A parameter takes a gradient by its flag; the call changes neither parameter nor flag.

    Expect a b at (2, 3): the gradient 3 for the parameter whose flag is on, None for the other, twice.
    """
    on, off = h.parameter(2.0, trains=True), h.parameter(3.0, trains=False)
    model = {"on": on, "off": off}
    for _ in range(2):
        gradient = adprotocol.grad(lambda m: m["on"] * m["off"], backend=h.name)(model)
        h.assert_gradients(gradient, {"on": 3.0, "off": None})
        h.assert_is(model["on"], on, "the parameter in the model")


@scenario(rule="T3", needs=("grad", "parameter"), source=_FLAGS)
def where_replaces_flags(h: Checked) -> None:
    """`where` trains a parameter against its flag, and freezes one whose flag is on; the flags are as before.

    Expect a b ** 2 at (2, 3): the gradient 12 for the selected b, whose flag is off; afterwards 9 for a alone.
    """
    model = {"a": h.parameter(2.0, trains=True), "b": h.parameter(3.0, trains=False)}

    def loss(m: dict[str, Any]) -> Any:
        return m["a"] * m["b"] * m["b"]

    h.assert_gradients(adprotocol.grad(loss, where="b", backend=h.name)(model), {"a": None, "b": 12.0})
    h.assert_gradients(
        adprotocol.grad(loss, backend=h.name)(model), {"a": 9.0, "b": None}, "the gradient without where"
    )


@scenario(rule="T8", source=_TIED)
def array_at_two_paths(h: Checked) -> None:
    """One array at two paths has a partial derivative at each.

    Expect a b ** 2 at a = b = 3, one array: the partial derivatives 9 and 18, whose sum is that of x ** 3.
    """
    shared = h.array(3.0)
    gradient = adprotocol.grad(lambda m: m["a"] * m["b"] * m["b"], backend=h.name)({"a": shared, "b": shared})
    h.assert_gradients(gradient, {"a": 9.0, "b": 18.0})


@scenario(rule="T8", source=_TIED)
def array_frozen_at_one_path(h: Checked) -> None:
    """One array at two paths, selected at one of them, is a constant at the other.

    Expect a b ** 2 at a = b = 3, one array, with respect to a alone: 9, and not 27.
    """
    shared = h.array(3.0)
    run = adprotocol.grad(lambda m: m["a"] * m["b"] * m["b"], where="a", backend=h.name)
    h.assert_gradients(run({"a": shared, "b": shared}), {"a": 9.0, "b": None})


@scenario(
    rule="T8",
    needs=("grad", "parameter"),
    source="PyTorch: functional_call with tied weights: https://github.com/pytorch/pytorch/issues/86708",
)
def parameter_under_two_names(h: Checked) -> None:
    """One parameter under two names is one leaf, with the total derivative at the first.

    Expect a b ** 2 at a = b = 3, one parameter: 27 at the first name, None at the second.
    """
    tied = h.parameter(3.0, trains=True)
    gradient = adprotocol.grad(lambda m: m["a"] * m["b"] * m["b"], backend=h.name)({"a": tied, "b": tied})
    h.assert_gradients(gradient, {"a": 27.0, "b": None})


@scenario(
    rule="T5", source="JAX: a NaN that is not used reaches the gradient: https://github.com/jax-ml/jax/issues/347"
)
def unused_nan(h: Checked) -> None:
    """A NaN in a leaf that is not used, trained or frozen, reaches no gradient: zeros are zeros.

    Expect the gradient 6 of w ** 2 at 3, zeros for an unused leaf of NaN, None for a frozen one.
    """
    nan = h.array([float("nan"), 1.0])
    model = {"w": h.array(3.0), "unused": nan, "frozen": nan}

    def loss(m: dict[str, Any]) -> Any:
        _ = m["w"] * m["frozen"][0]
        return m["w"] * m["w"]

    gradient = adprotocol.grad(loss, where=["w", "unused"], backend=h.name)(model)
    h.assert_gradients(gradient, {"w": 6.0, "unused": [0.0, 0.0], "frozen": None})


@scenario(
    rule="N4",
    transform="grad",
    needs=None,
    source="JAX, a type for what is not to be differentiated: https://github.com/jax-ml/jax/issues/2588",
)
def label_takes_none(h: Checked) -> None:
    """A labelled field takes no gradient, and a selection of it is an error.

    Expect {"scale": NonDifferentiable(5), "w": 3}: scale w ** 2 is 45, with the gradient None at scale and 30 at w.
    """
    model = {"scale": NonDifferentiable(h.array(5.0)), "w": h.array(3.0)}

    def f(m: Any) -> Any:
        return m["scale"] * m["w"] * m["w"]

    value, gradient = adprotocol.value_and_grad(f, backend=h.name)(model)
    h.assert_equal(value, 45.0, "the value")
    h.assert_gradients(gradient, {"scale": None, "w": 30.0})
    with h.raises(adprotocol.ADProtocolError, words=("scale",)):
        adprotocol.grad(f, where="scale", backend=h.name)(model)


@scenario(rule="T1", needs=("grad", "parameter", "set_flag"), source=_FLAGS)
def parameter_whose_flag_changes(h: Checked) -> None:
    """The flag of the moment decides whether a parameter takes a gradient.

    Expect p q at (2, 3), the flag of q off, on, off: the gradient 3 of p, and 2 of q while its flag is on.
    """
    p, q = h.parameter(2.0, trains=True), h.parameter(3.0, trains=False)
    for flag in (False, True, False):
        h.set_flag(q, trains=flag)
        gradient = adprotocol.grad(lambda m: m["p"] * m["q"], backend=h.name)({"p": p, "q": q})
        h.assert_gradients(gradient, {"p": 3.0, "q": 2.0 if flag else None}, f"with the flag {flag}")
        h.assert_is(adprotocol.trainable({"q": q})["q"], q if flag else None, f"what trains with the flag {flag}")


@scenario(
    needs=("grad", "parameter"),
    rule="T1",
    source="muP: a parameter carries its shape: https://github.com/microsoft/mup/blob/main/mup/shape.py",
)
def frozen_parameter_stays_one(h: Checked) -> None:
    """What stands for a parameter that a call freezes has its class, and the attributes that its model gave it.

    Of w b f with the attribute f = 5 of b, at (2, 3), b frozen, expect the value 30 and the gradient 15 for w.
    """
    model = {"w": h.parameter(2.0, trains=True), "b": h.parameter(3.0, trains=True)}
    try:
        model["b"].factor = 5.0
    except AttributeError as error:
        msg = "no attributes of parameters"
        raise Absent(msg) from error

    def loss(m: dict[str, Any]) -> Any:
        is_one = isinstance(m["b"], type(model["b"]))
        h.check(is_one, f"in the call the frozen parameter is a {type(m['b']).__name__}")
        h.check(getattr(m["b"], "factor", None) == 5.0, "in the call the frozen parameter has lost its attribute")
        return m["w"] * m["b"] * m["b"].factor

    value, gradient = adprotocol.value_and_grad(loss, where="w", backend=h.name)(model)
    h.assert_equal(value, 30.0, "the value")
    h.assert_gradients(gradient, {"w": 15.0, "b": None})


@scenario(
    rule="T1",
    needs=("grad", "parameter", "dtypes", "cast"),
    source="PyTorch: modules in other dtypes: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html",
)
def frozen_parameter_of_each_dtype(h: Checked) -> None:
    """What stands for a parameter that a call freezes has its dtype.

    Expect of w b at (2, 3), with b frozen, of each dtype that parameters have: b in its dtype, and the gradient 3.
    """
    for dtype in dtypes_of_numpy(h):
        try:
            b = h.parameter(h.numpy(h.cast(h.array(3.0), dtype)), trains=True)
        except Exception as error:
            msg = f"its parameters are made of numbers alone: {one_line(error, 160)}"
            raise Absent(msg) from error

        def loss(m: dict[str, Any], b: Any = b) -> Any:
            found, due = h.numpy(m["b"]).dtype, h.numpy(b).dtype
            h.check(found == due, f"in the call the frozen parameter has the dtype {found}; {due} was expected")
            return m["w"] * h.cast(m["b"], h.dtypes()[0])

        gradient = adprotocol.grad(loss, where="w", backend=h.name)({"w": h.parameter(2.0, trains=True), "b": b})
        h.assert_gradients(gradient, {"w": 3.0, "b": None})
