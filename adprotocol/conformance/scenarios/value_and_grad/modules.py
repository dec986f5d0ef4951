"""The system's own modules as structures: flags, parts below, arrays that are no parameters, declarations, ties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.checks import Absent
from adprotocol.conformance.scenario import defaults
from adprotocol.errors import SelectionError, one_line

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


scenario: Decorator = defaults(
    "value_and_grad",
    needs=("grad", "module"),
    source="PyTorch: modules: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html",
)


def _taken(gradient: dict[str, Any]) -> dict[str, Any]:
    """Return the gradients that were taken, by name."""
    return {name: one for name, one in gradient.items() if one is not None}


@scenario(rule="T3")
def module(h: Checked) -> None:
    """The gradient of a module has the qualified names of its parameters, and the module is as before.

    Expect 2 a b s in a module, and w ** 2 in one below it: gradients by qualified name, None for b, whose flag is off,
    unless it is selected; s is an array of the module, and no parameter.
    """
    model = h.module({"a": 2.0, "b": 3.0, "s": 5.0, "inner": h.module({"w": 7.0})}, frozen=["b"], buffers=["s"])
    a, w = model.a, model.inner.w

    def loss(m: Any) -> Any:
        return 2.0 * m.a * m.b * m.s + m.inner.w * m.inner.w

    for where, due in ((None, {"a": 30.0, "inner.w": 14.0}), ("b", {"b": 20.0}), ("inner.*", {"inner.w": 14.0})):
        value, gradient = adprotocol.value_and_grad(loss, where=where)(model)
        h.assert_equal(value, 109.0, "the value")
        found = _taken(gradient)
        h.assert_gradients(found, due, f"the gradient with where={where!r}")
    h.check(model.a is a and model.inner.w is w, "the call has put other parameters into the module")
    for flag in (False, True) if h.has("set_flag") else ():
        h.set_flag(a, trains=flag)
        found = adprotocol.trainable(model)["a"]
        h.assert_is(found, a if flag else None, f"a, of which the flag is {flag} now, among what trains")


@scenario(rule="T1")
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


@scenario(rule="T3")
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


@scenario(rule="T8")
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


@scenario(rule="T2")
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


@scenario(rule="T12")
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
    if type(adprotocol.combine(chosen, rest, like=model)) is dict:  # a module of MLX is a dict, too
        msg = "its plugin makes no module of what is combined"
        raise Absent(msg)
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
