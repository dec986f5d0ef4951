"""Each part of the library against its closed form, in every setting."""

import ast
import importlib.util
from pathlib import Path

import numpy as np
import pytest

import neutral
import settings
from adprotocol import trainable, within_gradient

X = np.array([[0.5, -1.0], [1.5, 2.0], [-0.25, 0.75]])
NOISE = np.array([[0.9, 0.1], [0.2, 0.7], [0.6, 0.6]])
KEPT = 2.0 * (NOISE >= 0.5)
W = np.array([[1.0, -0.5, 0.25], [0.75, 2.0, -1.0]])


def ready(name):
    framework = name.split()[0]
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    return settings.SETTINGS[name]()


@pytest.fixture(params=settings.SETTINGS)
def setting(request):
    return ready(request.param)


@pytest.fixture(params=[name for name in settings.SETTINGS if name != "numpy"])
def trained(request):
    """A setting that differentiates."""
    return ready(request.param)


def close(setting, got, want):
    np.testing.assert_allclose(setting.numpy(got), want, rtol=2e-5, atol=1e-6)


def test_the_library_imports_no_framework():
    allowed = {
        "adprotocol",
        "collections",
        "dataclasses",
        "functools",
        "math",
        "neutral",
        "operator",
        "typing",
    }
    for path in Path(neutral.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            assert {name.partition(".")[0] for name in names} <= allowed, path


def network(setting):
    return neutral.Network(
        (
            neutral.Dense(setting.array(W), setting.array([0.1, 0.2, -0.3])),
            neutral.Dense(setting.array(W.T[:, :1]), setting.array([0.5])),
        )
    )


def forward(x, w=W, b=(0.1, 0.2, -0.3)):
    return (x @ w + np.asarray(b)) ** 2 @ W.T[:, :1] + 0.5


def test_dropout_is_off_where_nothing_is_differentiated(setting):
    got = setting.run(lambda net, x, noise: net(x, noise), network(setting), setting.array(X), setting.array(NOISE))
    close(setting, got, forward(X))


def test_dropout_of_data_is_on_where_the_parameters_are_trained(trained):
    def run(net, x, noise):
        def loss(net):
            y = net(x, noise)
            return y.sum(), y

        return trained.grad(loss, has_aux=True)(net)

    gradient, output = trained.run(run, network(trained), trained.array(X), trained.array(NOISE))
    close(trained, output, forward(X * KEPT))
    close(trained, gradient.layers[1].weight, (((X * KEPT) @ W + [0.1, 0.2, -0.3]) ** 2).sum(0)[:, None])
    close(trained, gradient.layers[1].bias, [3.0])


def test_dropout_is_on_behind_a_frozen_encoder(trained):
    def run(net, x, noise):
        gradient, output = trained.grad(lambda net: ((y := net(x, noise)).sum(), y), has_aux=True, where="layers.1.*")(
            net
        )
        assert gradient.layers[0].weight is None
        return gradient.layers[1].bias, output

    bias, output = trained.run(run, network(trained), trained.array(X), trained.array(NOISE))
    close(trained, output, forward(X * KEPT))
    close(trained, bias, [3.0])


STATISTICS = neutral.Statistics(np.array([0.25, -0.5]), np.array([2.0, 0.5]))


def batch_norm(setting):
    layer = neutral.BatchNorm(setting.array([1.5, 0.5]), setting.array([0.25, -1.0]))
    return layer, neutral.Statistics(*map(setting.array, STATISTICS))


def test_batch_norm_uses_the_running_statistics_to_evaluate(setting):
    layer, statistics = batch_norm(setting)
    y, after = setting.run(
        lambda layer, x, statistics: layer(x, statistics, within_gradient(layer)), layer, setting.array(X), statistics
    )
    want = (X - STATISTICS.mean) / np.sqrt(STATISTICS.variance + 1e-5) * [1.5, 0.5] + [0.25, -1.0]
    close(setting, y, want)
    close(setting, after.mean, STATISTICS.mean)


def test_batch_norm_uses_and_notes_those_of_the_batch_in_training(trained):
    layer, statistics = batch_norm(trained)

    def run(layer, x, statistics):
        def loss(layer):
            y, after = layer(x, statistics, within_gradient(layer))
            return (y * y).sum(), (y, after)

        return trained.grad(loss, has_aux=True)(layer)

    gradient, (y, after) = trained.run(run, layer, trained.array(X), statistics)
    normal = (X - X.mean(0)) / np.sqrt(X.var(0) + 1e-5)
    want = normal * [1.5, 0.5] + [0.25, -1.0]
    close(trained, y, want)
    close(trained, after.mean, 0.9 * STATISTICS.mean + 0.1 * X.mean(0))
    close(trained, after.variance, 0.9 * STATISTICS.variance + 0.1 * X.var(0))
    close(trained, gradient.scale, 2.0 * (want * normal).sum(0))
    close(trained, gradient.shift, 2.0 * want.sum(0))


def test_the_quantizer_rounds_and_passes_the_gradient(trained):
    value = np.array([0.3, -0.4, 1.1])

    def run(x):
        return trained.grad(lambda x: (neutral.quantize(x) ** 2).sum())(x), neutral.quantize(x)

    gradient, rounded = trained.run(run, trained.array(value))
    close(trained, rounded, [0.25, -0.5, 1.0])
    close(trained, gradient, [0.5, -1.0, 2.0])


def test_spectral_norm_differentiates_the_norm_and_not_the_iteration(trained):
    u, s, v = np.linalg.svd(W)

    def run(weight, u):
        def loss(weight):
            normal, after = neutral.spectral_norm(weight, u, steps=12)
            return normal[0, 0], (normal, after)

        return trained.grad(loss, has_aux=True)(weight)

    gradient, (normal, after) = trained.run(run, trained.array(W), trained.array([1.0, 0.3]))
    close(trained, normal, W / s[0])
    close(trained, after, u[:, 0] * np.sign(trained.numpy(after)[0] * u[0, 0]))
    first = np.zeros_like(W)
    first[0, 0] = 1.0
    close(trained, gradient, first / s[0] - W[0, 0] / s[0] ** 2 * np.outer(u[:, 0], v[0]))


def test_lora_trains_the_factors_alone(trained):
    layer = neutral.LoRA(trained.array(W), trained.array([[0.5], [-0.25]]), trained.array([[0.0, 1.0, 2.0]]))

    def run(layer, x):
        gradient = trained.grad(lambda layer: layer(x).sum())(layer)
        assert gradient.weight is None
        return gradient.down, gradient.up, layer.merged()

    down, up, merged = trained.run(run, layer, trained.array(X))
    close(trained, down, X.sum(0)[:, None] * 3.0)
    close(trained, up, np.full((1, 3), (X @ [0.5, -0.25]).sum()))
    close(trained, merged, W + np.outer([0.5, -0.25], [0.0, 1.0, 2.0]))


def kernel(array):
    smooth = neutral.Scaled(array(1.5), neutral.SquaredExponential(array(0.8)))
    return smooth * neutral.RationalQuadratic(array(2.0)) + neutral.SquaredExponential(array(0.3))


def regression(theta, x, points, values):
    squared = (x[:, None] - points[None, :]) ** 2
    variance, first, second, third = theta
    weights = variance * np.exp(-0.5 * squared / first**2) / (1.0 + 0.5 * squared / second**2)
    weights = weights + np.exp(-0.5 * squared / third**2)
    return ((weights @ values / weights.sum(1)) ** 2).sum()


def test_composed_kernels_have_the_gradient_of_the_formula(trained):
    x, points = np.linspace(-1.0, 1.0, 4), np.linspace(-1.2, 1.2, 6)
    values = np.cos(points)
    theta = np.array([1.5, 0.8, 2.0, 0.3])

    def run(model, *data):
        def loss(model):
            return (neutral.smooth(model, *data) ** 2).sum()

        gradient = trained.grad(loss)(model)
        product, single = gradient.terms
        scaled, quadratic = product.factors
        assert quadratic.alpha == 1.0
        return scaled.variance, scaled.kernel.lengthscale, quadratic.lengthscale, single.lengthscale

    got = trained.run(run, kernel(trained.array), *map(trained.array, (x, points, values)))
    for i, slope in enumerate(got):
        step = np.zeros(4)
        step[i] = 1e-6
        want = (regression(theta + step, x, points, values) - regression(theta - step, x, points, values)) / 2e-6
        np.testing.assert_allclose(trained.numpy(slope), want, rtol=2e-3, atol=1e-5)


def line(model, x, y):
    return ((model["a"] * x + model["b"] - y) ** 2).sum()


def test_descent_moves_what_where_selects(trained):
    x, y = np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 5.0])

    def run(a, b, x, y):
        model, values = neutral.descend(line, {"a": a, "b": b}, x, y, steps=4, rate=0.1, where="b")
        return model["a"], model["b"], values[-1]

    a, b, last = trained.run(run, *map(trained.array, (1.5, 0.0, x, y)))
    close(trained, a, 1.5)
    # The loss is 3 (b - 1.5)² + 0.5: each step leaves 1 - 6 rate of the distance, and the last loss is that before it.
    close(trained, b, 1.5 * (1.0 - 0.4**4))
    close(trained, last, 3.0 * (1.5 * 0.4**3) ** 2 + 0.5)


def test_maml_has_the_gradient_through_the_adaptation(trained):
    # One step on a (w x - y)², then the loss elsewhere: d/dw of (w' u - v)² with w' = w - 2 r x (w x - y).
    w, (x, y), (u, v), r = 0.7, (1.5, 2.0), (-0.5, 1.0), 0.1

    def run(w, x, y, u, v):
        def loss(model, x, y):
            return (model["w"] * x - y) ** 2

        return trained.grad(lambda model: neutral.meta_loss(loss, model, [((x, y), (u, v))], rate=r))({"w": w})["w"]

    adapted = w - 2.0 * r * x * (w * x - y)
    want = 2.0 * (adapted * u - v) * u * (1.0 - 2.0 * r * x * x)
    close(trained, trained.run(run, *map(trained.array, (w, x, y, u, v))), want)


def test_one_loop_adapts_a_dataclass_a_pytree_and_a_module():
    torch = pytest.importorskip("torch")
    jax = pytest.importorskip("jax")
    equinox = pytest.importorskip("equinox")

    class Module(torch.nn.Module):
        def __init__(self, w):
            super().__init__()
            self.w = torch.nn.Parameter(w)

        def forward(self, x):
            return self.w * x

    class Tree(equinox.Module):
        w: object

        def __call__(self, x):
            return self.w * x

    def loss(model, x, y):
        return (model(x) - y) ** 2

    tensor = torch.tensor(0.7, dtype=torch.float64)
    dense = neutral.Dense(np.array([[0.7]]), np.array([0.0]))
    x, y = 1.5, 2.0
    want = 0.7 - 0.2 * x * (0.7 * x - y)
    module = Module(tensor)
    assert neutral.adapt(loss, module, x, y)(1.0).item() == pytest.approx(want)
    assert module.w.item() == 0.7
    assert float(neutral.adapt(loss, Tree(jax.numpy.asarray(0.7)), x, y)(1.0)) == pytest.approx(want)
    adapted = neutral.adapt(lambda m, x, y: ((m(x) - y) ** 2).sum(), dense, np.array([[x]]), y)
    assert adapted.weight.item() == pytest.approx(want)
    assert trainable(adapted).bias is not None
