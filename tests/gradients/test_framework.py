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
from ad_backends import BACKENDS, JAX, TORCH, close, on_every_backend
from minimal_plugin import Array, Minimal

from adprotocol import NonDifferentiable, grad, jacobian, trainable, value_and_grad
from adprotocol._gradients.output import check_scalar
from adprotocol.errors import (
    BackendError,
    MixedFrameworksError,
    OutputError,
    PluginError,
)
from adprotocol.extend import tree_leaves
from adprotocol.hookspecs import hookimpl
from adprotocol.plugins import register, unregister

RESULT = {"jax": jnp.ndarray, "torch": torch.Tensor, "autograd": (np.ndarray, np.floating)}


@dataclasses.dataclass
class Line:
    slope: Any

    def at(self, x):
        return (self.slope * x).sum() if hasattr(x, "sum") else self.slope * x

    def __call__(self, x):
        return self.at(x)


@pytest.mark.parametrize("name", ["tensorflow", "", "JAX", "numpy", 3, True, ["jax"]])
def test_an_unknown_backend_is_refused_with_those_that_there_are(name):
    with pytest.raises(BackendError, match=r"names no plugin; known plugins: .*'jax'") as caught:
        grad(lambda x: x, backend=name)(2.0)
    assert f"backend={name!r}" in str(caught.value)


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
    for mode in ("reverse", "forward"):
        with pytest.raises(Frozen):
            jacobian(fails, mode=mode)(2.0)


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


def test_without_autograd_numbers_need_another_backend():
    ran = run(
        NO_AUTOGRAD
        + REFUSED
        + """
    assert "adprotocol[autograd]" in message() and "backend=" in message(), message()
    assert "autograd" in message(backend="autograd")
    assert "torch" not in sys.modules
    value, gradient = adprotocol.value_and_grad(lambda x: x**2, backend="torch")(3.0)
    assert "torch" in sys.modules and "jax" not in sys.modules
    assert (float(value), float(gradient)) == (9.0, 6.0)
    import torch
    assert type(gradient) is torch.Tensor
    assert float(adprotocol.grad(lambda x: x**2)(torch.tensor(3.0))) == 6.0
    assert "adprotocol[autograd]" in message()
    """
    )
    assert ran.returncode == 0, ran.stderr


# A plugin of one's own


class Num(Array):
    """An array of a dtype."""

    shape = ()

    def __init__(self, dtype):
        self.dtype = dtype


@pytest.fixture
def registered():
    records = []
    yield lambda implementation: records.append(register(implementation, "fakefw"))
    for record in records:
        unregister(record.name)


def test_a_plugin_without_value_and_grad_is_an_error_that_says_so(registered):
    registered(Minimal())
    # Without the hook trainable the dtype decides.
    model = {"w": Num(np.dtype(float)), "n": Num(np.dtype(int))}
    assert trainable(model) == {"w": model["w"], "n": None}
    for call in (
        lambda: grad(lambda m: m["w"])(model),
        lambda: grad(lambda x, w: x)(2.0, model["w"]),
        lambda: grad(lambda x: x, backend="fakefw")(2.0),
    ):
        with pytest.raises(PluginError, match="'fakefw' has neither the hook vjp nor jvp"):
            call()


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
        (Odd(), None, False),
    ],
)
def test_a_dtype_is_known_by_its_name_or_by_the_plugin(registered, dtype, trains, right):
    class Knowing(Minimal):
        @hookimpl
        def trainable(self, value):
            return trains

    registered(Knowing())
    if right:
        check_scalar(Num(dtype), Num(dtype))
        return
    with pytest.raises(OutputError, match="compute it in floating point"):
        check_scalar(Num(dtype), Num(dtype))
