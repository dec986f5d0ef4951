"""The structures in which programs pass values: as Python for the package, and what is left of it by hand."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

import adprotocol


@dataclass
class Model:
    """A structure with a field that takes no gradient."""

    x: Any
    w: Any = field(metadata={"trainable": False})


class Pair(NamedTuple):
    """A named tuple."""

    first: Any
    name: str


def _object_array(x):
    made = np.empty(2, object)
    made[1] = [x]
    return made


# How auxiliary output holds a value, and how it is taken out again.
FORMS = {
    "object array": (_object_array, lambda aux: aux[1][0]),
    "named tuple": (lambda x: Pair([x], "name"), lambda aux: aux.first[0]),
}


def packed(form, x):
    """Return auxiliary output that holds a value."""
    return FORMS[form][0](x)


def unpacked(form, aux):
    """Take the value out of it."""
    return FORMS[form][1](aux)


def by_pull(f, primals, *cotangents):
    """Return the value, and the sum of all gradients for all cotangents, by `adprotocol.vjp`."""
    value, pull = adprotocol.vjp(f, *primals)
    return value, sum(sum(pull(cotangent)) for cotangent in cotangents)


def by_push(f, primal, tangent):
    """Return the value and the tangent, by `adprotocol.jvp`."""
    return adprotocol.jvp(f, (primal,), (tangent,))


def by_rows(f, x, mode, chunk_size=None):
    """Return the value and the Jacobian, by `adprotocol.jacobian`."""
    rows, value = adprotocol.jacobian(lambda x: (f(x),) * 2, mode=mode, has_aux=True, chunk_size=chunk_size)(x)
    return value, rows


# A value in a question.
ASKED = (
    "{0}",
    '{{"a": {0}}}',
    "[{0}, 2.0]",
    '({{"b": [None, {0}]}}, "name")',
    "Model(1.0, [{0}])",
    "boxed({0})",
    "NonDifferentiable({0})",
)
LABEL = ASKED[-1]
# All the values of a question in one container.
JOINT = '{{"all": ({0},), "none": [None, "name"]}}'

# How operands reach a branch: the parameters of the branch, what it takes of them, the operands.
PASSED = {
    "scalar": ("a", "a", "{0}"),
    "closure": ("", "{0}", ""),
    "several": ("a, b", "a + 0.5 * b", "{0}, {1}"),
    "ignored": ("a, b", "a", "{0}, {1}"),
    "dict": ("a", 'a["x"] + 0.5 * a["y"][0]', '{{"x": {0}, "y": [{1}, None]}}'),
    "nested": ("a", 'a[0]["p"][0] + 0.5 * a[0]["p"][1]["q"]', '({{"p": ({0}, {{"q": {1}}})}}, 3.0)'),
    "model": ("a", "a.x + 0.5 * a.w", "Model({0}, {1})"),
    "label": ("a", 'a["x"] + 0.5 * a["n"]', '{{"x": {0}, "n": NonDifferentiable({1})}}'),
}
# The same by hand, where not the first operand is all.
TAKEN = {
    "label": "{0} + 0.5 * stop({1})",
    **dict.fromkeys(("several", "dict", "nested", "model"), "{0} + 0.5 * {1}"),
}

# What a branch returns: the structure, and how a scalar is made of it again. `label` is `stop` by hand.
RETURNED = {
    "none": ("{0}", "{0}"),
    "dict": ('{{"a": {0}, "b": [{0} * 2.0]}}', '{0}["a"] - 0.25 * {0}["b"][0]'),
    "tuple": ("({0}, (3.0, {0} * {0}))", "{0}[0] + 0.5 * {0}[1][1]"),
    "nested": ('{{"p": ({0}, [{0} * {0}, None]), "q": {{"c": 0.5}}}}', '{0}["p"][0] - 0.5 * {0}["p"][1][0]'),
    "model": ("Model({0}, {0} * 2.0)", "{0}.x - 0.25 * {0}.w"),
    "label": ('{{"a": {0}, "n": {label}({0})}}', '{0}["a"] + 0.25 * {0}["n"]'),
}


@dataclass(frozen=True)
class Call:
    """A call of `value_and_grad` of a function `{f}` at `{x}`, with another value `{y}`.

    `gradient` takes what is wanted out of the result `{n}`, whose value is `value`. By
    hand the function is `by_hand` and its argument `at`; `more` is added. The function of
    one that is `is_closed` closes over nothing.
    """

    call: str
    gradient: str = "{n}[1]"
    value: str = "{n}[0]"
    by_hand: str = "{f}"
    at: str = "{x}"
    more: str = ""
    has_other: bool = False
    is_closed: bool = False
    # Transformations of the framework without which it does not work.
    by: tuple[str, ...] = ()


def _frozen(where):
    call = "value_and_grad(lambda p: {f}(p['x']) * p['w'][0], where=" + where + ")({{'x': {x}, 'w': [{y}]}})"
    return Call(call, "{n}[1]['x']", by_hand="lambda p: {f}(p) * {y}", has_other=True)


# What a function is multiplied by is another value.
_TIMES = {"by_hand": "lambda p: {f}(p) * {y}", "has_other": True}

GRADIENTS = {
    "none": Call("value_and_grad({f})({x})"),
    "label": Call(
        'value_and_grad(lambda p: {f}(p["x"]) * p["n"])({{"x": {x}, "n": NonDifferentiable(1.0)}})', '{n}[1]["x"]'
    ),
    "labelled": Call(
        'value_and_grad(lambda p: {f}(p["x"]) * p["n"])({{"x": {x}, "n": NonDifferentiable({y})}})',
        '{n}[1]["x"]',
        by_hand="lambda p: {f}(p) * stop({y})",
    ),
    "glob": _frozen('"x"'),
    "predicate": _frozen('lambda path, leaf: path == "x"'),
    "mask": _frozen('{{"x": True, "w": False}}'),
    "model": Call("value_and_grad(lambda p: {f}(p.x) * p.w)(Model({x}, {y}))", "{n}[1].x", **_TIMES),
    "both": Call(
        'value_and_grad(lambda p: {f}(p["x"]) * p["y"][0])({{"x": {x}, "y": [{y}]}})',
        '{n}[1]["x"] + {n}[1]["y"][0]',
        more="native_value_and_grad(lambda p: {f}({x}) * p)({y})[1]",
        **_TIMES,
    ),
    "argnums": Call("value_and_grad(lambda q, p: {f}(p) * q, argnums=1)({y}, {x})", **_TIMES),
    "aux": Call(
        'value_and_grad(lambda p: ({f}(p), {{"a": [p * 2.0, None]}}), has_aux=True)({x})',
        value='{n}[0][0] + {n}[0][1]["a"][0]',
        more="{x} * 1.0",
    ),
    "pull": Call("by_pull({f}, [{x}], 1.0)"),
    "pulls": Call("by_pull({f}, [{x}], {y} - 0.5, 0.5)", value="{n}[0] * {y}", **_TIMES),
    "pull of a structure": Call(
        'by_pull(lambda p: {{"a": {f}(p), "n": 3, "b": [p * {y}]}}, [{x}], {{"a": 1.0, "n": None, "b": [0.5]}})',
        value='{n}[0]["a"]',
        more="0.5 * {y}",
        has_other=True,
    ),
    "pull to several": Call(
        "by_pull(lambda p, q: {f}(p) * q, [{x}, {y}], 1.0)",
        more="native_value_and_grad(lambda p: {f}({x}) * p)({y})[1]",
        **_TIMES,
    ),
    "push along": Call("by_push({f}, {x}, {y})", value="{n}[0] * {y}", by=("jvp",), **_TIMES),
    "push of a model": Call(
        "by_push(lambda m: {f}(m.x) * m.w, Model({x}, {y}), Model(1.0, None))", by=("jvp",), **_TIMES
    ),
    "rows": Call(
        'by_rows(lambda p: stacked({f}(p), {y}), {x}, "reverse")',
        "{n}[1][0]",
        "{n}[0][0]",
        has_other=True,
        by=("vmap",),
    ),
    "columns": Call(
        'by_rows(lambda v: {f}(v[0]) * v[1], stacked({x}, {y}), "forward")', "{n}[1][0]", by=("jvp", "vmap"), **_TIMES
    ),
    "columns one by one": Call(
        'by_rows(lambda v: {f}(v[0]) * v[1], stacked({x}, {y}), "forward", 1)', "{n}[1][0]", by=("jvp",), **_TIMES
    ),
    # On PyTorch alone, with the parameters of a module.
    "module": Call(
        "value_and_grad(lambda m: {f}(m({x})))(module)",
        '{n}[1]["weight"]',
        by_hand="lambda p: {f}(p * {x} + 1.5)",
        at="const(1.25)",
    ),
    "frozen module": Call(
        'value_and_grad(lambda m: {f}(m({x})), where="frozen")(module)',
        '{n}[1]["frozen"]',
        by_hand="lambda p: {f}(1.25 * {x} + p * 3.0)",
        at="const(0.5)",
    ),
    "module run again": Call(
        'value_and_grad(lambda m: {f}(run_again(m, {x})), where="frozen")(module)',
        '{n}[1]["frozen"]',
        by_hand="lambda p: {f}(1.25 * {x} + p * 3.0)",
        at="const(0.5)",
    ),
    "stand-in of a module": Call(
        "value_and_grad(lambda p: {f}(stand_in(p)({x})))(const(1.25))",
        by_hand="lambda p: {f}(p * {x} + 1.5)",
        at="const(1.25)",
    ),
    # Its function sees nothing from outside, and the result is a constant.
    "module under no_grad": Call(
        "quietly(value_and_grad(lambda p, m: {f}(p) * evaluated(m)))(const(0.75), module)",
        value="{n}[0] + 2.0 * {x}",
        at="const(0.75)",
        more="{x} * 1.0",
        is_closed=True,
    ),
}
GRADIENTS |= {
    f"aux in {form}": Call(
        f'value_and_grad(lambda p: ({{f}}(p), packed("{form}", p * 2.0)), has_aux=True)({{x}})',
        value=f'{{n}}[0][0] + unpacked("{form}", {{n}}[0][1])',
        more="{x} * 1.0",
    )
    for form in FORMS
}
COMMON = tuple(name for name in GRADIENTS if "module" not in name)
