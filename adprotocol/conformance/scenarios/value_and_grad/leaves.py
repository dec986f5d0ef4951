"""Leaves of each dtype, and the parameters of modules."""

from __future__ import annotations

import contextlib
from typing import Any

import adprotocol
from adprotocol import errors
from adprotocol.conformance.checks import Absent, Checked
from adprotocol.conformance.scenario import SHOULD, Decorator, defaults
from adprotocol.conformance.scenarios.arrays import assert_near
from adprotocol.conformance.scenarios.within_gradient.parameters import NEEDS
from adprotocol.errors import SelectionError
from adprotocol.messages import one_line

scenario: Decorator = defaults(
    "value_and_grad",
    rule="T5",
    transform="grad",
    needs=("grad", "module"),
    source="PyTorch: modules: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html",
)


_SHARED = (
    "PyTorch: parameters and identity: https://docs.pytorch.org/docs/stable/generated/torch.nn.parameter.Parameter.html"
)
_WATCHED = "TensorFlow: tapes watch trainable variables: https://www.tensorflow.org/guide/autodiff"
_PARAMETERS = ("grad", "parameter")


@scenario(
    needs=("grad", "dtypes", "cast"),
    source="JAX: gradients and their dtypes: https://docs.jax.dev/en/latest/_autosummary/jax.grad.html",
)
def leaves_of_two_dtypes(h: Checked) -> None:
    """Gradients have the dtypes of their leaves, whatever that of the value.

    Expect w ** 2 * b with w of each floating-point dtype and b of the default one, at 2, 3, computed in either, or in
    what the system makes of both: slopes 12, 4, each of the dtype of its leaf.
    """
    default = h.dtypes()[0]
    for dtype in h.dtypes():
        model = {"w": h.cast(h.array(2.0), dtype), "b": h.cast(h.array(3.0), default)}
        ways = [default, dtype]
        with contextlib.suppress(Exception):  # as systems refuse two dtypes
            ways += ["both"] * (model["w"] * model["b"] is not None)
        for of_value in ways:

            def loss(m: dict[str, Any], of_value: str = of_value) -> Any:
                w, b = (m[n] if of_value == "both" else h.cast(m[n], of_value) for n in ("w", "b"))
                return w * w * b

            gradient = adprotocol.grad(loss)(model)
            for name, want in (("w", 12.0), ("b", 4.0)):
                what = f"the gradient of {name}, of w of {dtype} with a value of {of_value},"
                h.assert_equal(h.cast(gradient[name], default), want, what)
                found, leaf = h.numpy(gradient[name]).dtype, h.numpy(model[name]).dtype
                h.check(found == leaf, f"{what} has dtype {found.name}, and the leaf {leaf.name}")


@scenario(
    needs=("grad", "sum"),
    source="PyTorch: zero-size tensors: https://docs.pytorch.org/docs/stable/generated/torch.empty.html",
)
def empty_leaf(h: Checked) -> None:
    """A leaf without elements takes a gradient without elements.

    Expect w ** 2 plus the sum of e, which has no elements and is tracked, at 3: 9, gradients 6 and one without
    elements, used or not.
    """
    model = {"w": h.array(3.0), "e": h.array([])}
    h.assert_is(adprotocol.trainable(model)["e"], model["e"], "what trainable returns at the empty array")
    for loss in (lambda m: m["w"] * m["w"] * h.digit(m["e"]) + h.sum(m["e"]), lambda m: m["w"] * m["w"]):
        value, gradient = adprotocol.value_and_grad(loss)(model)
        h.assert_equal(value, 9.0, "the value")
        h.assert_gradients(gradient, {"w": 6.0, "e": []})


@scenario(rule="T8", needs=_PARAMETERS, source=_SHARED)
def equal_parameters(h: Checked) -> None:
    """Two parameters of the same value are two leaves.

    Expect p ** 2 * q with two parameters of the value 3, p by two names: the gradients 18, None and 9, with p's flag
    off too; with one of them frozen 9 alone.
    """
    p, q = h.parameter(3.0, trains=True), h.parameter(3.0, trains=True)

    def loss(m: dict[str, Any]) -> Any:
        return m["p"] * m.get("too", p) * m["q"]

    found = adprotocol.grad(loss, backend=h.name)({"p": p, "too": p, "q": q})
    h.assert_gradients(found, {"p": 18.0, "too": None, "q": 9.0})
    only = adprotocol.grad(loss, where="q", backend=h.name)({"p": p, "q": q})
    h.assert_gradients(only, {"p": None, "q": 9.0}, "the gradient of q alone")
    p = h.parameter(3.0, trains=False)
    selected = adprotocol.grad(loss, where="*", backend=h.name)({"p": p, "too": p, "q": q})
    h.assert_gradients(selected, {"p": 18.0, "too": None, "q": 9.0}, "the gradient of one whose flag is off, selected,")


@scenario(level=SHOULD, rule="T8", needs=_PARAMETERS, source=_WATCHED)
def parameter_read_elsewhere(h: Checked) -> None:
    """A parameter that takes a gradient counts wherever the function reads it.

    Expect p ** 2 of the model times p read by another name, at 2: the gradient 3 p ** 2 = 12; 3 of 3 p, asked so; 1 of
    p itself; an error where that is guarded.
    """
    p = h.parameter(2.0, trains=True)
    gradient = adprotocol.grad(lambda m: m["p"] * m["p"] * p, backend=h.name)({"p": p})
    h.assert_gradients(gradient, {"p": 12.0})
    asked = adprotocol.grad(lambda m: h.probe(p) + 0.0 * m["p"], backend=h.name)({"p": p})
    h.assert_gradients(asked, {"p": 3.0}, "the gradient of what asks by the other name")
    with h.raises(errors.GradientPreventedError, words=["not this one"]):
        adprotocol.grad(lambda m: m["p"] * adprotocol.prevent_gradient(p, "not this one"), backend=h.name)({"p": p})
    value, gradient = adprotocol.value_and_grad(lambda m: m["p"], backend=h.name)({"p": p})
    h.assert_equal(value, 2.0, "the value of a function that returns its parameter")
    h.assert_gradients(gradient, {"p": 1.0}, "the gradient of that")


@scenario(
    needs=("grad", "sum", "operations"),
    source="TensorFlow: gradients of what is gathered: https://www.tensorflow.org/api_docs/python/tf/IndexedSlices",
)
def each_operation(h: Checked) -> None:
    """The gradient through each operation is an array to compute with, as the system's own.

    Expect twice the first element of the gradient of the sum of each operation that the harness names, at (2, 3), as
    the system gives it.
    """
    v = h.array([2.0, 3.0])
    for name, operation in h.operations().items():
        if h.numpy(operation(v)).dtype.kind != "f":
            continue

        def loss(v: Any, operation: Any = operation) -> Any:
            return h.sum(operation(v))

        want = h.numpy(h.grad(loss)(v))[0]
        gradient = adprotocol.grad(lambda m, loss=loss: loss(m["v"]), backend=h.name)({"v": v})["v"]
        h.assert_equal(2.0 * gradient[0], 2.0 * want, f"twice the first element after {name}")


@scenario(
    rule="T10",
    needs=("grad", "dtypes", "cast"),
    source="JAX: dtypes that carry derivatives: https://github.com/jax-ml/jax/issues/15861",
)
def number_beside_each_dtype(h: Checked) -> None:
    """A Python float is a leaf beside an array of any floating-point dtype.

    Expect x n at 3 and the number 2.0: the gradients 2 and 3, for x of each floating-point dtype.
    """
    for dtype in h.dtypes():
        x = h.cast(h.array(3.0), dtype)
        value, gradient = adprotocol.value_and_grad(lambda m: m["x"] * m["n"])({"x": x, "n": 2.0})
        assert_near(h, value, 6.0, f"the value, {dtype}")
        assert_near(h, gradient["x"], 2.0, f"the gradient of the array, {dtype}")
        assert_near(h, gradient["n"], 3.0, f"the gradient of the number, {dtype}")


@scenario(
    rule="T1",
    needs=("grad", "dtypes", "cast"),
    source="JAX: dtypes that carry derivatives: https://github.com/jax-ml/jax/issues/15861",
)
def each_dtype(h: Checked) -> None:
    """A leaf of each floating-point dtype takes a gradient of that dtype.

    Expect x ** 2 at 2 in a dict: value 4, gradient 4 of the dtype of x, for each floating-point dtype.
    """
    for dtype in h.dtypes():
        x = h.cast(h.array(2.0), dtype)
        value, gradient = adprotocol.value_and_grad(lambda m: m["x"] * m["x"])({"x": x, "n": 1})
        assert_near(h, value, 4.0, f"the value, {dtype}")
        assert_near(h, gradient["x"], 4.0, f"the gradient, {dtype}")
        h.check(
            h.numpy(gradient["x"]).dtype == h.numpy(x).dtype,
            f"the gradient of a leaf of {h.numpy(x).dtype} has dtype {h.numpy(gradient['x']).dtype}",
        )


@scenario(rule="T6", transform="", needs=("grad", *NEEDS), source=_WATCHED)
def frozen_parameter_asked(h: Checked) -> None:
    """A parameter that the call freezes is not tracked inside, whatever its flag says.

    Expect 3 p times 11 q at 2, 3, with where="p": 198, the gradient 99 in p and None for q, whose flag is on.
    """
    model = {"p": h.parameter(2.0, trains=True), "q": h.parameter(3.0, trains=True)}
    run = adprotocol.value_and_grad(lambda m: h.probe(m["p"]) * h.scale(m["q"], 7.0, 11.0), where="p", backend=h.name)
    value, gradient = run(model)
    h.assert_equal(value, 198.0, "the value")
    h.assert_gradients(gradient, {"p": 99.0, "q": None})


def _taken(gradient: dict[str, Any]) -> dict[str, Any]:
    """Return the gradients that were taken, by name."""
    return {name: one for name, one in gradient.items() if one is not None}


@scenario(rule="T3", transform="")
def module(h: Checked) -> None:
    """The gradient of a module has the qualified names of its parameters, and the module is as before.

    Expect 2 a b s in a module, and w ** 2 in one below it: gradients by qualified name, None for b, whose flag is off,
    unless it is selected; s is an array of the module that is not a parameter, which "*" passes over.
    """
    model = h.module({"a": 2.0, "b": 3.0, "s": 5.0, "inner": h.module({"w": 7.0})}, frozen=["b"], buffers=["s"])
    a, w = model.a, model.inner.w

    def loss(m: Any) -> Any:
        return 2.0 * m.a * m.b * m.s + m.inner.w * m.inner.w

    for where, due in (
        (None, {"a": 30.0, "inner.w": 14.0}),
        ("b", {"b": 20.0}),
        ("inner.*", {"inner.w": 14.0}),
        ("*", {"a": 30.0, "b": 20.0, "inner.w": 14.0}),
    ):
        value, gradient = adprotocol.value_and_grad(loss, where=where)(model)
        h.assert_equal(value, 109.0, "the value")
        found = _taken(gradient)
        h.assert_gradients(found, due, f"the gradient with where={where!r}")
    h.check(model.a is a and model.inner.w is w, "the call has put other parameters into the module")
    for flag in (False, True) if h.has("set_flag") else ():
        h.set_flag(a, trains=flag)
        found = adprotocol.trainable(model)["a"]
        h.assert_is(found, a if flag else None, f"a, of which the flag is {flag} now, among what trains")


@scenario(rule="T1", transform="")
def module_with_an_integer(h: Checked) -> None:
    """An integer in a module takes no gradient, though its flag is on.

    Expect w ** 2 of a module that has an integer n too, at 2: the gradient 4 in w and None in n, which is an error to
    select.
    """
    try:
        model = h.module({"w": 2.0, "n": 3})
    except Exception as error:
        msg = f"its modules hold no integers: {one_line(error, 160)}"
        raise Absent(msg) from error
    gradient = adprotocol.grad(lambda m: m.w * m.w)(model)
    h.assert_gradients(_taken(gradient), {"w": 4.0})
    with h.raises(SelectionError, words=["'n'"]):
        adprotocol.grad(lambda m: m.w * m.w, where="n")(model)


@scenario(rule="T3", transform="")
def module_declares(h: Checked) -> None:
    """What the class of a module leaves out is frozen, with all that is below it.

    Expect head w ** 2 v u body w, with the class of the module declaring its head alone and that of the head w and u,
    whose flag is off: 12 for w and None elsewhere, until the body is selected.
    """
    head = h.module({"w": 2.0, "v": 1.0, "u": 1.0}, frozen=["u"])
    model = h.module({"head": head, "body": h.module({"deep": h.module({"w": 3.0})})})
    adprotocol.register_trainable(type(model), ["head"])
    adprotocol.register_trainable(type(head), ["w", "u"])
    for where, due in ((None, {"head.w": 12.0}), ("body.*", {"body.deep.w": 4.0})):
        gradient = adprotocol.grad(lambda m: m.head.w**2 * m.head.v * m.head.u * m.body.deep.w, where=where)(model)
        found = _taken(gradient)
        h.assert_gradients(found, due, f"the gradient with where={where!r}")


@scenario(rule="T8", transform="")
def module_under_two_names(h: Checked) -> None:
    """A module that another holds under two names is one part, with the total derivative at the first.

    Expect a.w b.w ** 2 a2.w at 3 and 5 for one module under the names a and b: 135 at the first, by whichever it is
    selected, and 27 at a2, a module of its own.
    """
    tied = h.module({"w": 3.0})
    model = h.module({"a": tied, "a2": h.module({"w": 5.0}), "b": tied})
    due = {"a.w": 135.0, "a2.w": 27.0}
    for where, names in ((None, list(due)), ("a.w", ["a.w"]), ("b*", ["a.w"]), ("a2.*", ["a2.w"])):
        gradient = adprotocol.grad(lambda m: m.a.w * m.b.w * m.b.w * m.a2.w, where=where)(model)
        h.assert_gradients(gradient, {name: due[name] if name in names else None for name in due}, f"{where=}")


@scenario(rule="T2", transform="")
def module_with_a_list(h: Checked) -> None:
    """What is in a list or dict of modules belongs to the module, and is frozen where its class leaves that out.

    Expect w ** 2 a b ** 2 c at (2, 3, 5, 7), with a and b in a list of modules and c in a dict: the gradients 2100,
    700, 840 and 300 by qualified name, the first alone where the class of the module declares it (beside one whose flag
    is off), and the third and the fourth where they are selected.
    """
    due = {"w": 2100.0, "layers.0.w": 700.0, "layers.1.w": 840.0, "named.last.w": 300.0}
    for declared in (False, True):
        layers, named = [h.module({"w": 3.0}), h.module({"w": 5.0})], {"last": h.module({"w": 7.0})}
        model = h.module({"w": 2.0, "still": 1.0, "layers": layers, "named": named}, frozen=["still"])
        if declared:
            adprotocol.register_trainable(type(model), ["w", "still"])
        for where, names in (
            (None, ["w"] if declared else list(due)),
            ("layers.1.*", ["layers.1.w"]),
            ("named.*", ["named.last.w"]),
        ):
            gradient = adprotocol.grad(
                lambda m: m.w * m.w * m.layers[0].w * m.layers[1].w * m.layers[1].w * m.named["last"].w, where=where
            )(model)
            found = _taken(gradient)
            h.assert_gradients(found, {name: due[name] for name in names}, f"with where={where!r}, {declared=}")


@scenario(rule="T12", transform="")
def module_combined(h: Checked) -> None:
    """What is combined like a module is used as it is, with shared modules shared, and the module is as before.

    s a.w b.w l.w of one module at a and b and one in a list, at s = 2, w = 3 and l.w = 1, is 18 with the gradient 12,
    by what is combined too; 16 after a step to w = 2, l.w = 2, by what is combined like the model, which keeps its own;
    its mode, and a text, but no container of it.
    """
    tied = h.module({"w": 3.0})
    model = h.module({"a": tied, "b": tied, "list": [h.module({"w": 1.0})], "scale": 2.0}, frozen=["scale"])
    model.note = "what is no array"
    if hasattr(model, "eval"):
        model.eval()

    def loss(m: Any) -> Any:
        return m.scale * m.a.w * m.b.w * m.list[0].w

    picked = adprotocol.trainable(model, "b*")
    h.check([name for name in picked if picked[name] is not None] == ["a.w"], f"b* selects in {picked!r:.200}")
    chosen, rest = adprotocol.partition(model)
    h.absent_if(
        type(adprotocol.combine(chosen, rest, like=model)) is dict, "its plugin makes no module of what is combined"
    )  # a module of MLX is a dict, too
    slopes = adprotocol.grad(lambda parts: loss(adprotocol.combine(parts, rest, like=model)))(chosen)
    h.assert_equal(slopes["a.w"], 12.0, "the gradient")
    steps = {"a.w": chosen["a.w"] - slopes["a.w"] / 12.0, "list.0.w": chosen["list.0.w"] + 1.0}
    moved = adprotocol.combine({**chosen, **steps}, rest, like=model)
    h.check(isinstance(moved, type(model)), f"what is combined is {type(moved).__name__}")
    for name, part in vars(model).items():
        if isinstance(part, (bool, str)):
            h.check(getattr(moved, name, None) == part, f"{name} is {getattr(moved, name, None)} in what is combined")
        if isinstance(part, (set, list, dict)):
            h.check(vars(moved).get(name) is not part, f"{name} is one object, in the module and in what is combined")
    h.assert_equal(loss(moved), 16.0, "after a step")
    h.assert_equal(loss(model), 18.0, "of the module afterwards")
    h.check(model.a.w is tied.w and model.b is model.a, "the module holds something else")
