"""What the suite cannot see: MLX's own traps, and programs of MLX's own functions around the plugin."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn

import adprotocol
from adprotocol.errors import BranchMismatchError, GradientPreventedError, UndecidableError

if TYPE_CHECKING:
    from collections.abc import Callable

X, C = mx.array(2.0), mx.array(5.0)
ROWS = mx.array([1.0, 2.0, 3.0])


def layer(x: Any) -> Any:
    """Return 3 x where x is differentiated, else 5 x."""
    return adprotocol.cond(adprotocol.within_gradient(x), lambda x: 3.0 * x, lambda x: 5.0 * x, x)


def close(found: Any, want: Any) -> None:
    np.testing.assert_allclose(np.array(found), want, rtol=1e-5)


def jvp(fun: Callable[..., Any], x: mx.array) -> mx.array:
    slope: mx.array = mx.jvp(fun, [x], [mx.ones_like(x)])[1][0]
    return slope


# After an inner derivative MLX has forgotten what is differentiated outside ------------------------------------------


def test_mlx_forgets_what_an_inner_derivative_closes_over() -> None:
    """When this fails, MLX is mended, and `levels` and `keeping_graphs` may become simpler."""

    def twice(w: mx.array) -> mx.array:
        mx.grad(lambda v: v * w)(w)
        return mx.grad(lambda v: v**3)(w)

    close(mx.grad(twice)(X), 0.0)  # 6 w would be right

    def evaluated(w: mx.array) -> mx.array:
        y = w * w
        mx.grad(lambda v: v * w * y)(w)
        mx.eval(y)
        return y * y

    close(mx.grad(evaluated)(X), 0.0)  # 4 w**3 would be right


def after_inner(x: mx.array) -> mx.array:
    y = x * x
    del x
    mx.grad(lambda v: v * y)(C)
    return layer(y)


def test_the_answer_is_found_after_an_inner_derivative() -> None:
    close(mx.grad(after_inner)(X), 12.0)
    close(mx.compile(mx.grad(after_inner))(X), 12.0)
    close(mx.grad(mx.grad(lambda x: after_inner(x) * x))(X), 36.0)


@pytest.mark.parametrize("differentiate", [lambda f: mx.vjp(f, [X], [mx.ones(())]), lambda f: jvp(f, X)])
def test_it_is_not_known_in_vjp_and_jvp(differentiate: Any) -> None:
    with pytest.raises(UndecidableError, match="inner derivative"):
        differentiate(after_inner)


def test_cond_evaluates_its_predicate_and_keeps_the_graph() -> None:
    def f(x: mx.array) -> mx.array:
        y = x * x
        mx.grad(lambda v: v * x * y)(C)
        return adprotocol.cond(y > 0.0, lambda y: y * y, lambda y: y, y)

    close(mx.grad(f)(X), 32.0)


def test_value_and_grad_is_differentiated_after_an_inner_derivative() -> None:
    def f(w: mx.array) -> mx.array:
        adprotocol.grad(lambda v: v * w)(C)
        return adprotocol.grad(lambda v: v * v * v)(w)

    close(mx.grad(f)(X), 12.0)
    close(adprotocol.grad(f)(X), 12.0)


def test_compiled_code_that_is_differentiated_after_all_raises() -> None:
    compiled = mx.compile(layer)
    close(compiled(X), 10.0)

    def f(x: mx.array) -> mx.array:
        mx.grad(lambda v: v * x)(C)
        return compiled(x)

    with pytest.raises(UndecidableError, match="compiled function"):
        mx.grad(f)(X)
    with pytest.raises(UndecidableError, match="compiled function"):
        jvp(f, X)


def test_calls_of_a_compiled_function_are_told_apart() -> None:
    compiled = mx.compile(lambda a: 2.0 * a)

    def f(x: mx.array) -> mx.array:
        mx.grad(lambda v: v * x)(C)  # or MLX would not run compiled code on x
        return x * layer(mx.stop_gradient(compiled(x)) + compiled(C))

    close(mx.grad(f)(X), 70.0)


def test_vmap_in_an_inner_derivative_and_around_it() -> None:
    def row(a: mx.array) -> mx.array:
        mx.grad(lambda y: y * a)(X)
        return layer(a)

    close(mx.vmap(row)(ROWS), [5.0, 10.0, 15.0])
    close(mx.grad(lambda x: mx.vmap(row)(x).sum())(ROWS), [3.0, 3.0, 3.0])

    def f(x: mx.array) -> mx.array:
        mx.grad(lambda v: (v * x).sum())(C)
        return mx.vmap(layer)(x).sum()

    close(mx.grad(f)(ROWS), [3.0, 3.0, 3.0])


# What is over --------------------------------------------------------------------------------------------------------


def test_results_of_a_finished_derivative() -> None:
    value, gradient = mx.value_and_grad(lambda x: x * x)(X)
    assert adprotocol.within_gradient(value) is False
    assert adprotocol.within_gradient(gradient) is False
    close(mx.grad(lambda x: x * layer(value))(X), 20.0)
    # MLX leaves its mark on a gradient, until it is evaluated.
    gradient = mx.grad(lambda x: x * x)(X)
    with pytest.raises(UndecidableError, match=r"mx\.eval"):
        mx.grad(lambda x: x * layer(gradient))(X)
    mx.eval(gradient)
    close(mx.grad(lambda x: x * layer(gradient))(X), 20.0)


def test_an_argument_that_has_escaped() -> None:
    escaped = []

    def f(x: mx.array) -> mx.array:
        escaped.append(x)
        return x * x

    mx.grad(f)(X)
    close(mx.grad(lambda x: x * layer(escaped[0] * 1.0))(X), 10.0)


def test_parameters_that_nn_value_and_grad_leaves_in_the_model() -> None:
    model = nn.Linear(3, 1)
    nn.value_and_grad(model, lambda x: model(x).sum())(ROWS)
    answers = []

    def attack(x: mx.array) -> mx.array:
        answers.append(adprotocol.within_gradient(model))
        return model(x).sum()

    mx.grad(attack)(ROWS)
    nn.value_and_grad(model, lambda: attack(ROWS))()
    assert answers == [False, True]


def test_an_exception_leaves_nothing() -> None:
    def f(_: mx.array) -> mx.array:
        raise KeyError

    with pytest.raises(KeyError):
        mx.grad(f)(X)
    assert adprotocol.within_gradient(X) is False
    close(mx.grad(lambda x: x * layer(C))(X), 25.0)


# Arguments of grad ---------------------------------------------------------------------------------------------------


def test_arguments_of_grad() -> None:
    asked: dict[str, Any] = {}

    def f(w: dict[str, mx.array], data: mx.array) -> mx.array:
        asked["parameter"] = adprotocol.within_gradient(w["a"] * 1.0)
        asked["both"] = adprotocol.within_gradient(w["b"] * data)
        with pytest.raises(UndecidableError, match="first argument"):
            adprotocol.within_gradient(data)
        with pytest.raises(UndecidableError, match="first argument"):
            adprotocol.within_gradient(data * 2.0, C)
        return (w["a"] * data).sum()

    mx.grad(f)({"a": X, "b": C}, ROWS)
    assert asked == {"parameter": True, "both": True}
    close(mx.grad(lambda power, x: layer(x) ** power, argnums=1)(2, X), 36.0)  # the first that has an array


# Second runs ---------------------------------------------------------------------------------------------------------


def collecting(x: mx.array) -> mx.array:
    """Leave no other object with the argument, and let the collector forget tuples of arrays."""
    gc.collect()
    y = x * 1.0
    del x
    gc.collect()
    return layer(y)


def test_checkpoints_run_twice_and_answer_alike() -> None:
    for fun in (layer, collecting):
        checked = mx.checkpoint(fun)
        for found, want in zip(mx.value_and_grad(checked)(X), (6.0, 3.0), strict=True):
            close(found, want)
        close(checked(X), 10.0)
        close(jvp(checked, X), 3.0)
        close(mx.grad(mx.grad(lambda x, checked=checked: checked(x) * x))(X), 6.0)


def test_rules() -> None:
    square = mx.custom_function(lambda x: x * x)
    square.vjp(lambda x, cotangent, _: cotangent * layer(x))
    close(mx.grad(square)(X), 10.0)
    close(mx.grad(mx.grad(square))(X), 3.0)
    by_default = mx.custom_function(collecting)
    by_default.jvp(lambda _, tangent: 3.0 * tangent)
    with pytest.raises(UndecidableError, match="rules for both modes"):
        mx.grad(by_default)(X)


# What vmap puts in ---------------------------------------------------------------------------------------------------


def test_vmap_alone_and_in_a_gradient() -> None:
    close(mx.vmap(layer)(ROWS), [5.0, 10.0, 15.0])
    close(mx.vmap(mx.vmap(layer))(ROWS[None]), [[5.0, 10.0, 15.0]])
    close(mx.grad(lambda x: mx.vmap(mx.vmap(layer))(x[None]).sum())(ROWS), [3.0, 3.0, 3.0])
    close(mx.vmap(lambda a: layer(a).sum(), in_axes=1)(mx.ones((2, 3))), [10.0, 10.0, 10.0])
    pair = mx.vmap(lambda a, w: layer(a) * layer(w), in_axes=(0, None))
    close(mx.grad(lambda w: pair(ROWS, w).sum())(X), 90.0)
    close(mx.compile(mx.grad(lambda x: mx.vmap(layer)(x).sum()))(ROWS), [3.0, 3.0, 3.0])


def test_a_staged_answer_is_no_python_bool() -> None:
    with pytest.raises(ValueError, match="not allowed"):
        mx.vmap(lambda x: 3.0 * x if adprotocol.within_gradient(x) else 5.0 * x)(ROWS)


def test_prevention_waits_for_vmap() -> None:
    guarded = mx.vmap(lambda x: adprotocol.prevent_gradient(x, "no derivative here") * 2.0)
    close(guarded(ROWS), [2.0, 4.0, 6.0])
    with pytest.raises(GradientPreventedError, match="no derivative here"):
        mx.grad(lambda x: guarded(x).sum())(ROWS)


def test_without_compilation() -> None:
    mx.disable_compile()
    try:
        close(mx.grad(lambda x: x * layer(C * 1.0))(X), 25.0)
        close(mx.grad(lambda x: mx.vmap(layer)(x).sum())(ROWS), [3.0, 3.0, 3.0])
    finally:
        mx.enable_compile()


# Branches that both run ----------------------------------------------------------------------------------------------


def root(x: Any) -> Any:
    return adprotocol.cond(x > 1.0, lambda x: mx.sqrt(x - 1.0), lambda x: 2.0 * x, x)


def root_by_closure(x: Any) -> Any:
    held = {"x": x}

    def inner() -> Any:
        return mx.sqrt(held["x"] - 1.0)

    return adprotocol.cond(x > 1.0, lambda: inner(), lambda held=held: 2.0 * held["x"])  # noqa: PLW0108


@pytest.mark.parametrize("fun", [root, root_by_closure])
def test_a_nan_of_the_other_branch(fun: Any) -> None:
    rows = mx.array([0.5, 5.0])
    for gradient in (
        mx.vmap(mx.grad(fun)),
        mx.grad(lambda x: mx.vmap(fun)(x).sum()),
        mx.compile(mx.vmap(mx.grad(fun))),
        mx.compile(mx.grad(lambda x: mx.vmap(fun)(x).sum())),
        lambda x: jvp(mx.vmap(fun), x),
    ):
        close(gradient(rows), [2.0, 0.25])
    close(mx.vmap(mx.grad(mx.grad(fun)))(rows), [0.0, -1.0 / 32.0])
    close(mx.compile(mx.grad(fun))(mx.array(0.5)), 2.0)
    close(mx.grad(mx.compile(fun))(mx.array(0.5)), 2.0)


def test_a_nan_that_a_module_brings() -> None:
    model = nn.Linear(1, 1, bias=False)
    model.weight = mx.array([[0.0]])

    def f(weight: mx.array, x: mx.array) -> mx.array:
        model.weight = weight
        return adprotocol.cond(x > 1.0, lambda x: mx.sqrt(model(x[None])[0]), lambda x: x, x)

    gradients = mx.vmap(lambda x: mx.vjp(lambda w: f(w, x), [mx.array([[0.0]])], [mx.ones(())])[1][0])(mx.array([0.5]))
    close(gradients, [[[0.0]]])


def test_branches_must_agree() -> None:
    with pytest.raises(BranchMismatchError, match="float32"):
        mx.vmap(lambda x: adprotocol.cond(x > 1.0, lambda: mx.zeros((2,)), lambda: mx.zeros(())))(ROWS)


class Hidden(nn.Module):
    """A module with arrays that are no parameters: a name with an underscore, a tuple, another object's module."""

    def __init__(self, w: mx.array) -> None:
        super().__init__()
        self._w, self.some = w, (w,)

    def root(self, x: mx.array) -> mx.array:
        return mx.sqrt(self._w * x) + mx.sqrt(self.some[0] * x)


class Holder:
    """An object that holds a module."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module


def test_what_a_module_hides_is_guarded_too() -> None:
    points = mx.array([4.0, 0.0])

    def loss(w: mx.array) -> mx.array:
        module = Hidden(w)
        holder = Holder(module)
        direct = mx.vmap(lambda x: adprotocol.cond(x > 0.0, lambda: module.root(x), lambda: w * x))(points)
        held = mx.vmap(lambda x: adprotocol.cond(x > 0.0, lambda: holder.module.root(x), lambda: w * x))(points)
        assert module._w is w
        assert module.some[0] is w
        return (direct + held).sum()

    close(mx.grad(loss)(mx.array(1.0)), 4.0)


# Modules -------------------------------------------------------------------------------------------------------------


class Net(nn.Module):
    """A module with a list, a dict, a module under two names, and a buffer that is none of MLX's."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 2)
        self.layers = [nn.Linear(2, 2), nn.BatchNorm(2)]
        self.scales = {"out": mx.array(2.0)}
        self.again = self.first
        self._count = mx.array(1.0)

    def __call__(self, x: mx.array) -> mx.array:
        y = mx.tanh(self.again(x))
        for inner in self.layers:
            y = inner(y)
        return y * self.scales["out"]


def trained(gradient: dict[str, Any]) -> set[str]:
    return {name for name, array in gradient.items() if array is not None}


def test_modules() -> None:
    mx.random.seed(0)
    model, x = Net(), mx.random.normal((4, 3))
    mx.eval(model.parameters())

    def loss(model: Net) -> mx.array:
        return (model(x) ** 2).sum()

    gradient = adprotocol.grad(loss)(model)
    want = dict(nn.utils.tree_flatten(nn.value_and_grad(model, lambda: loss(model))()[1]))
    everything = {
        *("first.weight", "first.bias", "layers.0.weight", "layers.0.bias"),
        *("layers.1.weight", "layers.1.bias", "scales.out"),
    }
    assert trained(gradient) == everything
    for name in everything - {"first.weight", "first.bias"}:
        np.testing.assert_allclose(np.array(gradient[name]), np.array(want[name]), atol=1e-5)
    for part in ("weight", "bias"):  # MLX gives the total to the name that it fills last
        total = np.array(want[f"first.{part}"]) + np.array(want[f"again.{part}"])
        np.testing.assert_allclose(np.array(gradient[f"first.{part}"]), total, atol=1e-5)
    model.first.freeze()
    model.layers[0].freeze(keys=["bias"])
    assert trained(adprotocol.grad(loss)(model)) == everything - {"first.weight", "first.bias", "layers.0.bias"}
    assert trained(adprotocol.grad(loss, where="again.*")(model)) == {"first.weight", "first.bias"}
    assert adprotocol.within_gradient(model) is False


def test_a_model_is_as_before_after_an_error() -> None:
    model = nn.Linear(2, 1)
    before = model.weight

    def fails(_: nn.Module) -> mx.array:
        raise KeyError

    with pytest.raises(KeyError):
        adprotocol.grad(fails)(model)
    assert model.weight is before


def test_what_the_function_assigns_to_a_model_stays() -> None:
    model = nn.BatchNorm(1)
    adprotocol.grad(lambda model: model(mx.array([[1.0], [3.0]])).sum())(model)
    close(model.running_mean, [0.2])


def test_combine_makes_a_model_of_its_own() -> None:
    model = Net()
    trainable, rest = adprotocol.partition(model)
    other = adprotocol.combine({**trainable, "scales.out": mx.array(0.0)}, rest, like=model)
    close(other(mx.stack([ROWS, ROWS])), np.zeros((2, 2)))
    assert other is not model
    assert other.again is other.first
    close(model.scales["out"], 2.0)


# Dtypes and threads --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16, mx.float32, mx.float64])
def test_dtypes(dtype: mx.Dtype) -> None:
    with mx.stream(mx.cpu):
        gradient = mx.grad(layer)(X.astype(dtype))
        assert gradient.dtype == dtype
        assert gradient.item() == 3.0
        assert mx.grad(lambda x: layer(x.astype(dtype)).astype(mx.float32))(X).item() == 3.0


def test_threads() -> None:
    barrier = threading.Barrier(2, timeout=20.0)
    found: dict[str, float] = {}

    def differentiates() -> None:
        def f(x: mx.array) -> mx.array:
            barrier.wait()
            y = layer(x)
            barrier.wait()
            return y

        found["gradient"] = mx.grad(f)(mx.array(2.0)).item()

    def asks() -> None:
        barrier.wait()
        found["plain"] = layer(mx.array(2.0)).item()
        barrier.wait()

    threads = [threading.Thread(target=target) for target in (differentiates, asks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"gradient": 3.0, "plain": 10.0}


def test_searches_in_threads() -> None:
    found: list[float] = []

    def work() -> None:
        x = mx.array(2.0)
        found.extend(mx.grad(lambda x: layer(x * 1.0) + layer(x + 1.0))(x).item() for _ in range(40))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [6.0] * 160


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_rows_of_a_jacobian_in_chunks(mode):
    x = mx.array([1.0, 2.0, 3.0])
    for size in (None, 1, 2):
        found = adprotocol.jacobian(lambda x: x * x[0], mode=mode, chunk_size=size)(x)
        assert found.tolist() == [[2.0, 0.0, 0.0], [2.0, 1.0, 0.0], [3.0, 0.0, 1.0]]


def test_the_element_not_chosen_has_no_derivative():
    x = mx.array([1.0, 4.0])
    slopes = mx.grad(lambda x: adprotocol.where(x > 0.0, lambda x: 7.0 * x, lambda x: (-x) ** -0.5, x).sum())(x)
    assert slopes.tolist() == [7.0, 7.0]
