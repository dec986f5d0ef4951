"""The recipes of docs/cookbook.md on every framework: their definitions run as they stand, against closed forms."""

import ast
import builtins
import dis
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

import autograd
import autograd.numpy as anp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import adprotocol
from adprotocol import NonDifferentiable
from adprotocol.conformance import check_rule

PAGE = Path(__file__).parents[1] / "docs" / "cookbook.md"
DEFINES = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)


def definitions():
    """Run the blocks of the page that only define, and none of those that show a result."""
    module = ModuleType("cookbook")
    sys.modules[module.__name__] = module
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        if all(isinstance(node, DEFINES) for node in ast.parse(code).body):
            exec(code, vars(module))  # noqa: S102  (the page is ours)
    return SimpleNamespace(**vars(module))


recipes = definitions()


def tensor(values):
    return torch.tensor(np.asarray(values), dtype=torch.float64)


def single(values):
    return jnp.asarray(values, dtype=jnp.float32)


def compiled(fun):
    torch.compiler.reset()
    return torch.compile(fun, fullgraph=True, backend="eager")


def tape(fun):
    def gradient(x):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(fun(x), x)[0]

    return gradient


# How arrays are made, and the framework's own gradient, which surrounds the recipe.
EAGER = {
    "autograd": (np.asarray, autograd.grad),
    "jax": (single, jax.grad),
    "torch tape": (tensor, tape),
    "torch func": (tensor, torch.func.grad),
    "adprotocol": (tensor, adprotocol.grad),
}
STAGED = {
    "jax grad of jit": (single, lambda f: jax.grad(jax.jit(f))),
    "jax jit of grad": (single, lambda f: jax.jit(jax.grad(f))),
    "jax vmap": (single, lambda f: lambda x: jax.vmap(jax.grad(f))(x[None])[0]),
    "torch compile": (tensor, lambda f: compiled(torch.func.grad(f))),
    "torch vmap": (tensor, lambda f: lambda x: torch.vmap(torch.func.grad(f))(x[None])[0]),
}
EVERY = {**EAGER, **STAGED}
ARRAYS = {"numpy": np.asarray, "jax": single, "torch": tensor}


@pytest.fixture(params=EVERY)
def way(request):
    return EVERY[request.param]


@pytest.fixture(params=EAGER)
def eager(request):
    return EAGER[request.param]


@pytest.fixture(params=ARRAYS)
def array(request):
    return ARRAYS[request.param]


def close(got, want):
    got = got.detach() if isinstance(got, torch.Tensor) else got
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5, atol=1e-6)


def globals_of(code):
    """The names that the functions in some code read from their module."""
    own = [step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"]
    return own + [name for const in code.co_consts if isinstance(const, CodeType) for name in globals_of(const)]


SECTIONS = dict(re.findall(r"(?ms)^## (.*?)\n(.*?)(?=^## |\Z)", PAGE.read_text("utf-8")))


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`:UserWarning")
@pytest.mark.parametrize("title", SECTIONS)
def test_a_recipe_runs_when_it_is_copied_without_the_others(title, monkeypatch):
    module = ModuleType("copied")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    code = "\n".join(re.findall(r"```python\n(.*?)```", SECTIONS[title], re.DOTALL))
    assert code
    compiled = compile(code, title, "exec")
    exec(compiled, vars(module))  # noqa: S102  (the page is ours)
    # A function that is never called here finds its names too.
    assert [name for name in globals_of(compiled) if name not in vars(module) and not hasattr(builtins, name)] == []


def test_every_recipe_is_tested():
    names = {name for name, value in vars(recipes).items() if getattr(value, "__module__", "") == "cookbook"}
    source = Path(__file__).read_text("utf-8")
    assert names
    inner = {"dropout", "through", "namespace", "adjoint", "inverse", "solve"} | {
        name for name in names if "_vjp" in name
    }
    assert {name for name in names if f"recipes.{name}" not in source} <= inner


def test_dropout_is_on_in_training_alone(way):
    make, grad = way
    x, noise = make([1.0, 3.0]), make([0.2, 0.7])
    close(grad(lambda w: recipes.model({"w": w}, x, noise))(make([1.0, 1.0])), [0.0, 6.0])
    close(recipes.model({"w": make([1.0, 1.0])}, make([1.0, 3.0]), make([0.2, 0.7])), 4.0)


def batch_norm(make):
    """Return the batch norm of a scale and a batch, with the other arrays made by `make`."""
    shift, mean, var = make([0.5]), make([0.0]), make([1.0])

    def normalised(scale, x):
        params = {"scale": scale, "shift": shift}
        return recipes.batch_norm(params, {"mean": mean, "var": var}, x, adprotocol.within_gradient(params))

    return normalised


def test_batch_norm_takes_the_statistics_of_the_batch_in_training_alone_and_notes_constants(way):
    make, grad = way
    x, scale = [[1.0], [3.0]], [2.0]
    normalised, batch = batch_norm(make), make(x)

    def total(scale):
        y, after = normalised(scale, batch * scale)
        # The statistics would have a derivative with respect to scale.
        return (after["mean"] + after["var"]).sum() + 0.0 * y.sum()

    close(grad(lambda scale: normalised(scale, batch)[0][1].sum())(make(scale)), [1.0 / np.sqrt(1.0 + 1e-5)])
    close(grad(total)(make(scale)), [0.0])
    y, after = batch_norm(make)(make(scale), make(x))
    close(y, 2.0 * np.array(x) / np.sqrt(1.0 + 1e-5) + 0.5)
    close(after["mean"], [0.0])


def test_flags_come_first(way):
    make, grad = way

    def layer(flag):
        return lambda x: recipes.in_training(flag, x, lambda x: 3.0 * x, lambda x: 5.0 * x, x).sum()

    close(grad(layer(True))(make([1.0])), [3.0])
    close(grad(layer(False))(make([1.0])), [5.0])
    assert recipes.in_training(True, 1.0, lambda x: 3.0 * x, lambda x: 5.0 * x, 1.0) == 5.0


def test_a_conservative_answer_is_a_bool(way):
    make, grad = way
    answers = []

    def f(x):
        answers.append(recipes.may_be_differentiated(x))
        return x.sum()

    grad(f)(make([1.0]))
    assert set(answers) == {True}
    assert recipes.may_be_differentiated(make([1.0])) is False


def test_to_numpy_inside_and_outside_of_a_gradient(eager):
    make, grad = eager
    found = []

    def f(x):
        found.append(recipes.to_numpy(x * 2.0))
        return x.sum()

    grad(f)(make([1.0, 2.0]))
    found.append(recipes.to_numpy(make([2.0, 4.0])))
    for value in found:
        assert type(value) is np.ndarray or issubclass(type(value), np.ndarray)
        close(value, [2.0, 4.0])


def test_straight_through_rounds_and_passes_the_gradient(way):
    make, grad = way

    def floor(x):
        return x - x % 1.0

    close(grad(lambda x: (recipes.straight_through(floor, x) ** 2).sum())(make([1.75, 2.25])), [2.0, 4.0])


def test_a_surrogate_has_the_derivative(way):
    make, grad = way
    sign = lambda x: recipes.straight_through(lambda x: x * 0.0 + 1.0, x, lambda x: x**3)
    close(grad(lambda x: sign(x).sum())(make([2.0, -1.0])), [12.0, 3.0])
    close(sign(make([2.0, -1.0])), [1.0, 1.0])


def test_each_layer_passes_the_gradient_through_a_function_of_its_own(way):
    make, grad = way
    layers = {"0.*": lambda x: x - x % 1.0, "1.slope": lambda x: 2.0 * x}

    def f(x):
        first, second = recipes.quantised([Line(x, 0.0), Line(x, x)], layers)
        return (first(3.0) + second(1.0)).sum()

    close(f(make([1.5])), 3.0 + 3.0 + 1.5)
    close(grad(f)(make([1.5])), [3.0 + 1.0 + 1.0])


def test_a_module_whose_layers_are_quantised_is_unchanged():
    module = torch.nn.Sequential(line(1.6, 0.25), line(0.3, 0.0))
    loss = lambda net: recipes.quantised(net, {"0.weight": torch.round, "1.weight": torch.sign})(tensor([1.0])).sum()
    value, gradient = adprotocol.value_and_grad(loss)(module)
    close(value, 2.25)
    close(gradient["0.weight"], [[1.0]])
    close(gradient["1.weight"], [[2.25]])
    close(module[0].weight, [[1.6]])


def test_accumulated_gradients_are_the_mean(array):
    model = {"w": array([1.0, 2.0]), "n": 3}
    batches = [(array([1.0, 0.0]),), (array([0.0, 3.0]),)]
    value, gradient = recipes.accumulated(lambda m, x: (m["w"] ** 2 * x).sum(), model, batches)
    close(value, (1.0 + 12.0) / 2)
    close(gradient["w"], [1.0, 6.0])
    assert gradient["n"] is None


@dataclass(frozen=True)
class Line:
    slope: Any
    offset: Any
    name: str = "line"

    def __call__(self, x):
        return self.slope * x + self.offset


def line(slope, offset):
    """A module that computes as `Line` does."""
    module = torch.nn.Linear(1, 1, dtype=torch.float64)
    with torch.no_grad():
        module.weight.fill_(slope)
        module.bias.fill_(offset)
    return module


def test_a_teacher_is_constant(way):
    make, grad = way
    student, x = Line(make([3.0]), make([0.0])), make([2.0])
    assert recipes.constant_model(student).name == "line"
    close(grad(lambda w: recipes.distillation(student, Line(w, w), x) + w.sum())(make([1.0])), [1.0])
    close(grad(lambda w: recipes.distillation(Line(w, 0.0), student, x))(make([1.0])), [2 * (2.0 - 6.0) * 2.0])


def test_a_teacher_that_is_a_module_is_constant_and_unchanged():
    student, teacher, x = line(3.0, 0.0), line(1.0, 0.0), tensor([2.0])
    value, gradient = adprotocol.value_and_grad(recipes.distillation)(student, teacher, x)
    close(value, 16.0)
    close(gradient["weight"], [[16.0]])
    recipes.distillation(student, teacher, x).backward()
    close(student.weight.grad, [[16.0]])
    assert teacher.weight.grad is None
    assert teacher.weight.requires_grad


def test_the_moving_average_of_a_structure_and_of_a_module(array):
    model = Line(array([4.0]), array([2.0]))
    average = recipes.moving_average(Line(array([0.0]), array([0.0])), model, decay=0.75)
    close(average.slope, [1.0])
    close(average.offset, [0.5])
    assert average.name == "line"
    average = line(0.0, 0.0).requires_grad_(False)
    for _ in range(2):
        average = recipes.moving_average(average, line(4.0, 2.0), decay=0.5)
    close(average(tensor([1.0])), [3.0 + 1.5])
    assert not average.weight.requires_grad


def test_lora_trains_its_factors(array):
    layer = recipes.LoRA(array([[1.0, 0.0], [0.0, 1.0]]), array([[1.0], [2.0]]), array([[0.0, 1.0]]))
    gradient = adprotocol.grad(lambda layer: layer(array([1.0, 1.0])).sum())(layer)
    assert gradient.weight is None
    close(gradient.down, [[1.0], [1.0]])
    close(gradient.up, [[3.0, 3.0]])


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`:UserWarning")
def test_the_array_functions_are_those_of_the_framework(way):
    make, grad = way
    rows, positive = make([[1.0, 0.0], [0.0, 2.0]]), make([1.0, 0.0]) > 0.5
    for x in (rows, NonDifferentiable(rows)):
        slope = grad(lambda w, x=x: recipes.log_likelihood(w, x, positive))(make([0.0, 0.0]))
        close(slope, [0.5, -1.0])
    close(recipes.log_likelihood(make([0.0, 0.0]), rows, positive), -2.0 * np.log(2.0))


def test_the_array_functions_of_numpy_beside_another_framework():
    numpy, plain = recipes.array_functions(np.ones(2), 1.0), np.ones(2)
    assert recipes.array_functions() is numpy
    assert numpy.concat is not None
    assert recipes.array_functions(plain, jnp.ones(2)) is jnp
    assert recipes.array_functions(NonDifferentiable(torch.ones(2)), plain) is recipes.array_functions(torch.ones(2))
    autograd.grad(lambda x: x * (recipes.array_functions(plain, x, 2.0) is anp))(1.0)
    with pytest.raises(TypeError, match="Multiple namespaces"):
        recipes.array_functions(jnp.ones(2), torch.ones(2))


def test_the_spectral_norm_is_differentiated_and_the_iteration_not(way):
    make, grad = way
    weight = np.array([[2.0, 1.0], [0.0, 1.0]])
    u, s, v = np.linalg.svd(weight)
    start = make(u[:, 0])

    def f(w):
        return recipes.spectral_norm(w, start)[0][0, 0]

    first = np.array([[1.0, 0.0], [0.0, 0.0]])
    close(grad(f)(make(weight)), first / s[0] - 2.0 / s[0] ** 2 * np.outer(u[:, 0], v[0]))


def of_svd(svd, xp, weights):
    """A function of a matrix that no phase or sign of the vectors changes."""

    def f(a):
        u, s, vh = svd(a)
        return (weights * ((u[..., :, :2] * s[..., None, :2] ** 0.5) @ vh[..., :2, :])).sum() + (s**3).sum()

    return lambda a: xp.real(f(a) * (1.0 + 0.0j))


def of_eigh(eigh, xp, weights):
    def f(a):
        e, v = eigh(a)
        first = v[..., :, :1]
        return (weights * (first @ xp.conj(xp.swapaxes(first, -1, -2)))).sum() + (e**3).sum()

    return lambda a: xp.real(f(a) * (1.0 + 0.0j))


def of_qr(qr, xp, weights):
    def f(a):
        q, r = qr(a)
        return (weights * (q**2 + q @ r**2)).sum()

    return lambda a: xp.real(f(a) * (1.0 + 0.0j))


CASES = [
    (recipes.svd, of_svd, (3, 3)),
    (recipes.svd, of_svd, (2, 4, 3)),
    (recipes.svd, of_svd, (3, 4)),
    (recipes.eigh, of_eigh, (2, 3, 3)),
    (recipes.qr, of_qr, (3, 3)),
    (recipes.qr, of_qr, (2, 4, 3)),
]


@pytest.mark.parametrize("number", [1.0, 1.0j], ids=["real", "complex"])
@pytest.mark.parametrize(("recipe", "of", "shape"), CASES)
def test_a_decomposition_has_the_gradient_of_the_framework(recipe, of, shape, number):
    """That of PyTorch, whose gradient by complex numbers is the conjugate of autograd's."""
    rows = np.random.default_rng(0)
    values, weights = (rows.normal(size=shape) + number * rows.normal(size=shape) for _ in range(2))
    if recipe is recipes.eigh:
        values = values + np.conj(np.swapaxes(values, -1, -2))
    native = native_svd if recipe is recipes.svd else getattr(torch.linalg, recipe.__name__)
    want = tape(of(native, Torch, torch.tensor(weights)))(torch.tensor(values))
    want = (want + want.mH) / 2.0 if recipe is recipes.eigh else want
    close(tape(of(recipe, Torch, torch.tensor(weights)))(torch.tensor(values)).resolve_conj(), want.resolve_conj())
    close(np.conj(autograd.grad(of(recipe, anp, weights))(values)), want.resolve_conj())


def native_svd(a):
    return torch.linalg.svd(a, full_matrices=False)


class Torch:
    """Functions of NumPy's names."""

    real, conj, swapaxes = torch.real, torch.conj, torch.swapaxes


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`:UserWarning")
def test_gradients_at_equal_eigenvalues_are_those_of_the_group(way):
    make, grad = way
    a = np.diag([2.0, 2.0, 1.0])
    mixed = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]])

    def projector(a):
        v = recipes.eigh(a)[1][:, 1:]
        return (v @ v.T).sum()

    def truncated(a):
        u, s, vh = recipes.svd(a)
        return ((u[:, :2] * s[:2]) @ vh[:2]).sum()

    close(grad(projector)(make(a)), mixed)
    close(grad(truncated)(make(a)), np.diag([1.0, 1.0, 0.0]) + 2.0 * mixed)
    close(grad(lambda a: (recipes.eigh(a)[0] ** 3).sum())(make(a)), 3.0 * a**2)
    # Singular values of zero, twice.
    close(grad(lambda a: (recipes.svd(a)[1] ** 2).sum())(make(np.ones((3, 3)))), np.full((3, 3), 2.0))


@pytest.mark.parametrize(
    ("recipe", "backend"),
    [(recipes.svd, "autograd"), (recipes.qr, "autograd"), (recipes.eigh, "autograd"), (recipes.eigh, "torch")],
)
def test_a_decomposition_agrees_in_every_mode(recipe, backend):
    a = np.array([[2.0, 1.0], [1.0, -1.0]])
    check_rule(recipe, a if recipe is recipes.eigh else np.concatenate([a, [[0.5, 0.0]]]), backend=backend)
