"""Which framework differentiates: found from the arguments, named, or a plugin of one's own."""

import dataclasses
import functools
import os
import subprocess
import sys
import textwrap
from typing import Any

import autograd
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from ad_backends import AUTOGRAD, BACKENDS, JAX, TORCH, close, on_every_backend

from adprotocol import NonDifferentiable, grad, partition, trainable, value_and_grad, within_gradient
from adprotocol._dispatch.registry import REGISTRY
from adprotocol.errors import (
    ADProtocolError,
    BackendError,
    MixedFrameworksError,
    OutputError,
    PluginError,
    SelectionError,
)
from adprotocol.extend import check_output, tree_leaves
from adprotocol.hookspecs import View, hookimpl
from adprotocol.plugins import register, unregister

RESULT = {"jax": jnp.ndarray, "torch": torch.Tensor, "autograd": (np.ndarray, np.floating)}


@dataclasses.dataclass
class Line:
    slope: Any

    def at(self, x):
        return (self.slope * x).sum() if hasattr(x, "sum") else self.slope * x

    def __call__(self, x):
        return self.at(x)


# Named, for NumPy arrays and Python numbers


@on_every_backend
@pytest.mark.parametrize(
    "x", [3.0, np.float64(3.0), np.float32(3.0), np.array(3.0), np.array([3.0]), np.array([3.0], np.float32)], ids=repr
)
def test_a_named_backend_takes_numpy_arrays_and_numbers(ad, x):
    seen = []

    def square(x):
        seen.append((isinstance(x, ad.tracked_type), within_gradient(x)))
        return (x**2).sum()

    value, gradient = value_and_grad(square, backend=ad.name)(x)
    assert seen == [(True, True)]
    assert close(value, 9.0)
    assert close(gradient, np.full(np.shape(x), 6.0))
    assert isinstance(gradient, RESULT[ad.name])
    if ad is not JAX:  # which has 32 bits unless it is told
        assert str(gradient.dtype).rpartition(".")[2] == str(np.asarray(x).dtype)


# Named, and refused


@pytest.mark.parametrize("name", ["tensorflow", "", "JAX", "plain", "numpy", "adprotocol_jax"])
def test_an_unknown_backend_is_refused_with_those_that_there_are(name):
    with pytest.raises(BackendError, match=f"backend={name!r} names no plugin; known plugins: .*'jax'"):
        grad(lambda x: x, backend=name)(2.0)


@pytest.mark.parametrize("name", [3, True, np, ["jax"]])
def test_a_backend_that_is_no_name_is_refused(name):
    with pytest.raises(BackendError, match="names no plugin; known plugins"):
        grad(lambda x: x, backend=name)(2.0)


@pytest.mark.parametrize(
    ("ad", "other"),
    [(a, b) for a in (JAX, TORCH) for b in BACKENDS if a is not b],
    ids=lambda ad: ad.name,
)
def test_a_backend_that_contradicts_the_arguments_is_refused(ad, other):
    x = ad.make([1.0])
    loss = lambda *args, **kwargs: pytest.fail("called")
    for call in (
        lambda f: f(x),
        lambda f: f({"deep": [x]}),
        lambda f: f(2.0, x),
        lambda f: f(2.0, key=(x,)),
        lambda f: f(2.0, NonDifferentiable(x)),
    ):
        with pytest.raises(MixedFrameworksError, match=f"backend={other.name!r} was given.*values of {ad.name}"):
            call(grad(loss, backend=other.name))


@pytest.mark.parametrize("name", ["jax", "torch"])
def test_a_backend_that_contradicts_a_box_is_refused(name):
    with pytest.raises(MixedFrameworksError, match="values of autograd"):
        autograd.grad(grad(lambda y: y, backend=name))(2.0)


# Found


CALLS = {
    "argument": lambda w: value_and_grad(lambda x, w: w * x)(2.0, w),
    "first argument": lambda w: value_and_grad(lambda w, x: w * x, argnums=1)(w, 2.0),
    "keyword": lambda w: value_and_grad(lambda x, w: w * x)(2.0, w=w),
    "deep in a keyword": lambda w: value_and_grad(lambda x, m: m["a"][0].slope * x)(2.0, m={"a": [Line(w)]}),
    "partial": lambda w: value_and_grad(functools.partial(lambda w, x: w * x, w))(2.0),
    "keyword of a partial": lambda w: value_and_grad(functools.partial(lambda x, w: w * x, w=w))(2.0),
    "partial of a partial": lambda w: value_and_grad(
        functools.partial(functools.partial(lambda w, x, k: w * x * k, w), k=1.0)
    )(2.0),
    "self of a method": lambda w: value_and_grad(Line(w).at)(2.0),
    "partial of a method": lambda w: value_and_grad(functools.partial(Line(w).at))(2.0),
    "callable object": lambda w: value_and_grad(Line(w))(2.0),
    "label": lambda w: value_and_grad(lambda x, w: w * x)(2.0, NonDifferentiable(w)),
    "label beside": lambda w: value_and_grad(lambda m: m[0] * m[1])([2.0, NonDifferentiable(w)]),
    "label of a container": lambda w: value_and_grad(lambda m: m[0] * m[1].value["w"])(
        [2.0, NonDifferentiable({"w": w})]
    ),
    "label in a partial": lambda w: value_and_grad(functools.partial(lambda w, x: w * x, NonDifferentiable(w)))(2.0),
    "frozen beside": lambda w: value_and_grad(lambda m: m["x"] * m["w"], where="x")({"x": 2.0, "w": w}),
    "object array": lambda w: value_and_grad(lambda x, a: x * a[0])(2.0, objects(w)),
}


def objects(*items):
    array = np.empty(len(items), dtype=object)
    for i, item in enumerate(items):
        array[i] = item
    return array


@on_every_backend
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_the_framework_is_found_wherever_one_of_its_arrays_is_given(ad, call):
    value, gradient = call(ad.make(3.0))
    assert close(value, 6.0)
    (slope,) = [g for g in tree_leaves((gradient,)) if g is not None]
    assert close(slope, 3.0)
    assert isinstance(value, RESULT[ad.name])
    assert isinstance(slope, RESULT[ad.name])


def test_a_torch_module_is_found_wherever_it_is_given():
    module = torch.nn.Linear(1, 1, bias=False)
    loss = lambda x, m: (m.weight * x).sum()
    for gradient in (
        grad(loss)(2.0, module),
        grad(loss)(2.0, m=module),
        grad(lambda x, modules: loss(x, *modules))(2.0, [module]),
        grad(functools.partial(loss, m=module))(2.0),
        grad(Scale())(2.0),
        grad(functools.partial(Scale()))(2.0),
        grad(Scale().forward)(2.0),
    ):
        assert isinstance(gradient, torch.Tensor)


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(3.0))

    def forward(self, x):
        return self.weight * x


def test_numbers_alone_are_differentiated_by_autograd():
    seen = []
    for x in (2.0, np.float64(2.0), np.array(2.0)):
        assert close(grad(lambda x: seen.append(x) or x**3)(x), 12.0)
    assert {type(x).__module__.partition(".")[0] for x in seen} == {"autograd"}
    # Also beside opaque values, and integers.
    assert close(grad(lambda x, o, n: x**n)(2.0, object(), 3), 12.0)


@pytest.mark.filterwarnings("ignore:__array_wrap__")
def test_an_array_of_a_framework_that_is_closed_over_is_an_error_not_a_wrong_number():
    for ad in (JAX, TORCH):
        w = ad.make(3.0)
        with pytest.raises((TypeError, RuntimeError)) as raised:
            grad(lambda x, ad=ad, w=w: ad.xp.sin(w * x))(2.0)
        assert "autograd differentiates these" in raised.value.__notes__[-1]
        assert close(grad(lambda x, ad=ad, w=w: ad.xp.sin(w * x), backend=ad.name)(2.0), 3.0 * np.cos(6.0))


@dataclasses.dataclass(frozen=True)
class Frozen(TypeError):  # noqa: N818
    """An error that takes no attributes, and so no note."""

    code: int


def test_an_error_that_takes_no_note_comes_out_as_it_is():
    def fails(x):
        raise Frozen(jnp.ndim(1.0))

    with pytest.raises(Frozen):
        grad(fails)(2.0)


def test_mixed_inner_calls_name_their_backend():
    for ad in (JAX, TORCH):
        outer = lambda x, ad=ad: x * grad(lambda y: x * y**2, backend=ad.name)(1.0)
        assert close(grad(outer)(ad.make(3.0)), 12.0)


# Blocked, and not installed


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


REFUSED = """
    import adprotocol
    from adprotocol.errors import BackendError
    def message(**options):
        try:
            adprotocol.grad(lambda x: x, **options)(2.0)
        except BackendError as error:
            return str(error)
        raise AssertionError("not refused")
"""


def test_a_blocked_plugin_is_refused_with_what_blocks_it():
    ran = run(
        REFUSED
        + """
    for said in (message(), message(backend="autograd"), message(backend="torch")):
        print(said)
    assert "ADPROTOCOL_BLOCK" in message(backend="autograd")
    assert "blocked" in message(backend="torch")
    assert "backend=" in message()
    """,
        ADPROTOCOL_BLOCK="autograd,torch",
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("\n") == 3


NO_AUTOGRAD = """
    import sys
    class Blocked:
        def find_spec(self, name, *_):
            if name.partition(".")[0] == "autograd":
                raise ModuleNotFoundError("No module named 'autograd'", name="autograd")
    sys.meta_path.insert(0, Blocked())
"""
NONE_FOR_AUTOGRAD = """
    import sys
    sys.modules["autograd"] = None
"""
SAID = """
    assert "adprotocol[autograd]" in message() and "backend=" in message(), message()
    assert "autograd" in message(backend="autograd")
"""


@pytest.mark.parametrize(
    "code",
    [
        NONE_FOR_AUTOGRAD + REFUSED + SAID,
        NO_AUTOGRAD
        + REFUSED
        + SAID
        + """
    value, gradient = adprotocol.value_and_grad(lambda x: x**2, backend="torch")(3.0)
    assert (float(value), float(gradient)) == (9.0, 6.0)
    import torch
    assert type(gradient) is torch.Tensor
    assert float(adprotocol.grad(lambda x: x**2)(torch.tensor(3.0))) == 6.0
    assert "adprotocol[autograd]" in message()
    """,
    ],
    ids=["none", "finder"],
)
def test_without_autograd_numbers_need_another_backend(code):
    ran = run(code)
    assert ran.returncode == 0, ran.stderr


def test_a_named_backend_is_imported_when_it_is_asked_for():
    ran = run("""
    import sys
    import adprotocol
    assert float(adprotocol.grad(lambda x: x**3)(2.0)) == 12.0
    assert "autograd" in sys.modules and "torch" not in sys.modules and "jax" not in sys.modules
    assert float(adprotocol.grad(lambda x: x**3, backend="torch")(2.0)) == 12.0
    assert "torch" in sys.modules and "jax" not in sys.modules
    """)
    assert ran.returncode == 0, ran.stderr


# A plugin of one's own


class Num:
    """A number that remembers how it was computed."""

    shape = ()

    def __init__(self, value, parents=()):
        self.value, self.parents = value, parents

    @property
    def dtype(self):
        return np.asarray(self.value).dtype

    def __add__(self, other):
        other = other if isinstance(other, Num) else Num(other)
        return Num(self.value + other.value, [(self, 1.0), (other, 1.0)])

    def __mul__(self, other):
        other = other if isinstance(other, Num) else Num(other)
        return Num(self.value * other.value, [(self, other.value), (other, self.value)])

    __radd__, __rmul__ = __add__, __mul__


class Tracked(Num):
    """What a derivative is taken with respect to."""


class Weights:
    """An object that no traversal knows, with parts that can be exchanged."""

    def __init__(self, **parts):
        self.parts = parts


class Toy:
    """The hooks that there have to be."""

    @hookimpl
    def array_types(self):
        return (Num,)

    @hookimpl
    def within_gradient(self, value):
        return isinstance(value, Tracked) or any(self.within_gradient(parent) for parent, _ in value.parents)

    @hookimpl
    def non_differentiable(self, value):
        return Num(value.value)

    @hookimpl
    def cond(self, pred, true_fun, false_fun, operands):
        return (true_fun if pred else false_fun)(*operands)


class Differentiating(Toy):
    """And those with which models are differentiated; `calls` has the leaves that it was given."""

    def __init__(self):
        self.calls = []

    @hookimpl
    def trainable(self, value):
        return None if value.value == 0.0 else value.value > 0.0

    @hookimpl
    def vjp(self, fun, leaves, once):
        self.calls.append(leaves)
        tracked = [Tracked(getattr(leaf, "value", leaf)) for leaf in leaves]
        (value,), aux = fun(tracked)
        check_output(value, value)
        found = dict.fromkeys(tracked, 0.0)

        def walk(node, outer):
            if node in found:
                found[node] += outer
            for parent, slope in getattr(node, "parents", ()):
                walk(parent, outer * slope)

        walk(value, 1.0)
        return [getattr(value, "value", value)], aux, lambda _: [Num(found[leaf]) for leaf in tracked]

    @hookimpl
    def views(self):
        return {Weights: self.view}

    def view(self, value):
        def fill(parts):
            before, value.parts = value.parts, parts

            def restore():
                value.parts = before

            return value, restore

        return View(value.parts, fill=fill, aliases={"tied": next(iter(value.parts))})


@pytest.fixture
def toy():
    names = []

    def add(implementation):
        plugin = register(implementation, "toyad")
        names.append(plugin.name)
        return implementation

    yield add
    for name in names:
        if name in REGISTRY.known():
            unregister(name)


def test_a_plugin_of_ones_own_differentiates(toy):
    plugin = toy(Differentiating())
    model = {"a": Num(2.0), "b": [Num(3.0), 4], "never": Num(0.0), "off": Num(-1.0), "rate": 0.5}

    def loss(m, x, *, scale):
        assert [within_gradient(leaf) for leaf in (m["a"], m["b"][0], m["off"], x)] == [True, True, False, False]
        return m["a"] * m["b"][0] * m["b"][1] * x * scale + m["off"] * m["rate"]

    (value, gradient) = value_and_grad(loss)(model, Num(10.0), scale=np.float64(0.5))
    assert value == 2.0 * 3.0 * 4 * 10.0 * 0.5 - 0.5
    assert (gradient["a"].value, gradient["b"][0].value, gradient["rate"].value) == (60.0, 40.0, -1.0)
    assert (gradient["b"][1], gradient["never"], gradient["off"]) == (None, None, None)
    assert plugin.calls == [[model["a"], model["b"][0], model["rate"]]]
    # What says False takes a gradient if it is selected, and what says None does not.
    picked = grad(lambda m: m["off"] * m["off"], where="off")(model)
    assert picked["off"].value == -2.0
    with pytest.raises(SelectionError, match="'never'"):
        grad(lambda m: m["never"], where="never")(model)


def test_a_plugin_of_ones_own_has_aux_errors_and_a_name(toy):
    toy(Differentiating())
    (value, aux), gradient = value_and_grad(lambda x: (x * x, {"text": "s"}), has_aux=True)(Num(3.0))
    assert (value, aux, gradient.value) == (9.0, {"text": "s"}, 6.0)
    assert grad(lambda x: x * x, backend="toyad")(3.0).value == 6.0
    assert value_and_grad(lambda x: 1.5)(Num(3.0))[0] == 1.5
    with pytest.raises(OutputError, match="'text'"):
        grad(lambda x: "text")(Num(3.0))
    with pytest.raises(OutputError, match="int"):
        grad(lambda x: Num(3))(Num(3.0))
    with pytest.raises(MixedFrameworksError, match=r"toyad.*torch|torch.*toyad"):
        grad(lambda x, t: x)(Num(3.0), TORCH.make(1.0))
    with pytest.raises(MixedFrameworksError, match="torch"):
        grad(lambda x: TORCH.make(1.0))(Num(3.0))


def test_an_object_that_a_plugin_shows_is_filled_for_the_call_and_restored(toy):
    toy(Differentiating())
    weights = Weights(w=Num(2.0), off=Num(-1.0), n=3)
    before = weights.parts
    seen = []

    def loss(model):
        seen.append(model["weights"])
        parts = model["weights"].parts
        assert within_gradient(parts["w"]) is True
        return parts["w"] * parts["w"] * parts["n"] + parts["off"]

    model = {"weights": weights, "k": 1}
    value, gradient = value_and_grad(loss)(model)
    assert value == 11.0
    assert (type(gradient["weights"]), gradient["weights"]["w"].value) == (dict, 12.0)
    assert (gradient["weights"]["off"], gradient["weights"]["n"], gradient["k"]) == (None, None, None)
    assert seen == [weights]
    assert weights.parts is before
    assert grad(loss, where="weights.tied")(model)["weights"]["w"].value == 12.0
    with pytest.raises(ZeroDivisionError):
        grad(lambda model: 1 / 0)(model)
    assert weights.parts is before
    params, rest = partition(model)
    assert params == {"weights": {"w": before["w"], "off": None, "n": None}, "k": None}
    assert rest == {"weights": {"w": None, "off": before["off"], "n": 3}, "k": 1}


def test_a_plugin_without_value_and_grad_is_an_error_that_says_so(toy):
    toy(Toy())
    # Without the hook trainable the dtype decides.
    model = {"w": Num(2.0), "n": Num(3)}
    assert trainable(model) == {"w": model["w"], "n": None}
    for call in (
        lambda: grad(lambda m: m["w"])(model),
        lambda: grad(lambda x, w: x * w)(2.0, model["w"]),
        lambda: grad(lambda x: x, backend="toyad")(2.0),
    ):
        with pytest.raises(PluginError, match="'toyad' has no hook vjp"):
            call()


def test_a_plugin_that_goes_away_is_not_found_any_more(toy):
    toy(Differentiating())
    assert grad(lambda x: x * x, backend="toyad")(3.0).value == 6.0
    unregister("toyad")
    with pytest.raises(BackendError, match="'toyad' names no plugin"):
        grad(lambda x: x * x, backend="toyad")(3.0)
    with pytest.raises(ADProtocolError):
        grad(lambda x: x * x)(Num(3.0))
    assert AUTOGRAD.name in REGISTRY.known()


class Odd:
    """A dtype that says nothing by kind, name or text."""

    def __init__(self, name=None, as_numpy_dtype=None):
        if name:
            self.name = name
        if as_numpy_dtype:
            self.as_numpy_dtype = as_numpy_dtype

    def __repr__(self):
        return "<?>"


@pytest.mark.parametrize(
    ("dtype", "trains", "right"),
    [
        (Odd("float32"), None, True),
        (Odd("int32"), None, False),
        (Odd(as_numpy_dtype=np.float32), None, True),
        (Odd(as_numpy_dtype=np.int32), None, False),
        (Odd(), True, True),
        (Odd(), False, True),
    ],
)
def test_a_dtype_is_known_by_its_name_or_by_the_plugin(toy, dtype, trains, right):
    class Named(Num):
        dtype = None

    class Knowing(Differentiating):
        @hookimpl
        def trainable(self, value):
            return trains

    Named.dtype = dtype
    toy(Knowing())
    if right:
        check_output(Named(1.5), Named(1.5))
        return
    with pytest.raises(OutputError, match="compute it in floating point"):
        check_output(Named(1.5), Named(1.5))
