"""The example on carbon dioxide: kernels compose, and every framework trains them to the same optimum."""

import dataclasses
import math
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import backends
import kernels
import series as data
from adprotocol import trainable
from kernels import Noise, Periodic, Product, SquaredExponential, Sum
from training import mapped, named

np = pytest.importorskip("numpy")

HERE = Path(kernels.__file__).parent
PERIOD = "terms.1.factors.0.period"
FACTOR = 1e-4  # of a finite difference: the step in the logarithm of a parameter
APART = np.array([0.0, 0.25, 3.0])


def changed(kernel, wanted, factor):
    paths = iter(named(kernel))
    return mapped(lambda p: p * factor if next(paths) == wanted else p, kernel)


def likelihood(kernel, series):
    return float(kernels.log_marginal_likelihood(kernel, np.array(series.t), np.array(series.y), np))


def slopes(kernel, series):
    """Return the derivative for the logarithm of each parameter: finite differences, with no AD system at all."""
    found = {}
    for name in named(kernel):
        above, below = (likelihood(changed(kernel, name, math.exp(step)), series) for step in (FACTOR, -FACTOR))
        found[name] = (above - below) / (2.0 * FACTOR)
    return found


@pytest.fixture(scope="module", params=backends.TRAIN)
def fit(request):
    module, train = backends.TRAIN[request.param]
    pytest.importorskip(module)
    return train(data.read(20))


@pytest.fixture(scope="module")
def reference():
    pytest.importorskip("autograd")
    return backends.by_autograd(data.read(20))


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(HERE / "__main__.py"))


def test_the_training_ends_at_an_optimum(fit):
    series = data.read(20)
    assert fit.values == pytest.approx([likelihood(k, series) for k in (mapped(float, kernels.START), fit.kernel)])
    assert fit.values[1] > fit.values[0] + 10.0
    assert fit.norms[1] < fit.norms[0] / 1000.0
    of_each = slopes(fit.kernel, series)
    assert abs(of_each.pop(PERIOD)) > 0.1  # which is frozen
    assert math.hypot(*of_each.values()) < fit.norms[0] / 1000.0
    for name in of_each:
        for factor in (0.9, 1.1):
            assert likelihood(changed(fit.kernel, name, factor), series) < fit.values[1]


def test_every_framework_finds_the_same_optimum_and_leaves_what_is_frozen(fit, reference):
    assert {name for name, slope in named(fit.gradient).items() if slope is None} == {PERIOD}
    assert named(fit.kernel)[PERIOD] == 1.0
    assert named(fit.kernel) == pytest.approx(named(reference.kernel), rel=1e-6)
    assert fit.values == pytest.approx(reference.values, rel=1e-6)


def test_the_command_prints_the_optima_and_tells_whether_they_agree(example, reference, monkeypatch, capsys):
    off = dataclasses.replace(reference, kernel=changed(reference.kernel, "terms.2.variance", 1.0 + 1e-5))
    nan = dataclasses.replace(reference, kernel=changed(reference.kernel, "terms.3.variance", math.nan))
    for second, status in ((reference, 0), (off, 1), (nan, 1)):
        trained = {"first": ("numpy", lambda _: reference), "second": ("numpy", lambda _, fit=second: fit)}
        monkeypatch.setattr(backends, "TRAIN", {**trained, "third": ("no_such_framework", None)})
        assert example["main"]() == status
        shown = capsys.readouterr()
        assert "third is not installed: pip install 'adprotocol[no_such_framework]'" in shown.err
        assert f"{'terms.0.variance':<30}{100:>10}{named(reference.kernel)['terms.0.variance']:12.6g}" in shown.out
        assert shown.out.endswith(f"{'NOT the' if status else 'The'} same optimum everywhere.\n")
    monkeypatch.setattr(backends, "TRAIN", {})
    assert example["main"]() == 1


def test_importing_the_example_imports_no_framework_and_uses_one_thread():
    code = "import os, runpy, sys; runpy.run_path(sys.argv[1]); print(os.environ['OMP_NUM_THREADS'], *sys.modules)"
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(HERE)!r}); {code}", HERE / "__main__.py"]
    threads, *modules = subprocess.check_output(command, env=environment, text=True, timeout=300).split()
    assert threads == "1"
    assert "training" in modules
    assert not {"numpy", "autograd", "jax", "torch"} & {*modules}


def test_the_series_is_centred():
    whole, last = data.read(), data.read(40)
    assert 100 <= len(whole.t) <= 200
    assert whole.t == sorted(whole.t)
    assert all(300.0 < y + whole.mean < 400.0 for y in whole.y)
    assert len(last.t) == len(last.y) == 40
    assert abs(sum(last.t)) < 1e-9
    assert abs(sum(last.y)) < 1e-9
    assert last.t[-1] + last.middle == pytest.approx(whole.t[-1] + whole.middle)


def test_kernels_are_their_closed_forms():
    assert np.allclose(SquaredExponential(4.0, 2.0)(APART, np), 4.0 * np.exp(-(APART**2) / 8.0))
    assert np.allclose(Periodic(0.5, 1.0)(APART, np), np.exp(-8.0 * np.sin(math.pi * APART) ** 2))
    assert Noise(3.0)(APART, np).tolist() == [3.0, 0.0, 0.0]


def test_composition_adds_and_multiplies_and_is_flat():
    a, b, c = SquaredExponential(4.0, 2.0), Periodic(0.5, 1.0), Noise(1.0)
    assert np.allclose((a + b * c)(APART, np), a(APART, np) + b(APART, np) * c(APART, np))
    assert np.allclose(((a + b) * c)(APART, np), (a(APART, np) + b(APART, np)) * c(APART, np))
    assert a + b * c + c == Sum((a, Product((b, c)), c))
    assert str((a + b) * c * a) == "(SquaredExponential + Periodic) * Noise * SquaredExponential"


def test_all_takes_gradients_but_the_period_and_patterns_select():
    assert [name for name, leaf in named(trainable(kernels.START)).items() if leaf is None] == [PERIOD]
    chosen = named(trainable(kernels.START, where="*.variance"))
    assert all(name.endswith(".variance") is (leaf is not None) for name, leaf in chosen.items())


def test_likelihood_of_noise_alone_and_of_two_observations():
    found = kernels.log_marginal_likelihood(Noise(4.0), np.arange(3.0), np.array([1.0, -2.0, 0.5]), np)
    assert float(found) == pytest.approx(-5.25 / 8.0 - 1.5 * math.log(2.0 * math.pi * 4.0))
    variance, covariance = 3.0, 2.0 * math.exp(-0.5)
    determinant = variance**2 - covariance**2
    square = (variance * (1.0 + 4.0) + 2.0 * covariance * 2.0) / determinant  # y = (1, -2)
    kernel = SquaredExponential(2.0, 1.0) + Noise(1.0)
    found = kernels.log_marginal_likelihood(kernel, np.array([0.0, 1.0]), np.array([1.0, -2.0]), np)
    assert float(found) == pytest.approx(-square / 2.0 - math.log(determinant) / 2.0 - math.log(2.0 * math.pi))


def test_posterior_given_one_observation():
    kernel = SquaredExponential(4.0, 1.0) + Noise(1.0)
    mean, deviation = kernels.posterior(kernel, np.array([0.0]), np.array([2.0]), np.array([0.0, 50.0]), np)
    assert mean == pytest.approx([4.0 / 5.0 * 2.0, 0.0])
    assert deviation**2 == pytest.approx([5.0 - 16.0 / 5.0, 5.0])


def test_mapping_follows_tuples_and_dataclasses_and_leaves_out_what_is_none():
    kernel = Periodic(2.0, 1.0) * Noise(3.0)
    gradient = Product((Periodic(10.0, None), Noise(20.0)))
    assert mapped(lambda g, p: g + p, gradient, kernel) == Product((Periodic(12.0, None), Noise(23.0)))
    assert named(gradient) == {"factors.0.lengthscale": 10.0, "factors.0.period": None, "factors.1.variance": 20.0}
