"""The demo, first part: every framework that is installed has a row, all agree, and what is broken shows."""

import ast
import dataclasses
import importlib.util
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from adprotocol import demo
from adprotocol.demo import backends, comparison, data, model, run, trainers
from adprotocol.demo.report import aligned

HERE = Path(demo.__file__).parent
ARGUMENTS = ["--part", "1", "--points", "30", "--plain"]
MAIN = "import sys; from adprotocol.demo.run import main; raise SystemExit(main(sys.argv[1:]))"


def demo_process(code=MAIN, arguments=ARGUMENTS):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], check=False, capture_output=True, text=True, timeout=300
    )


def row(text, name):
    return re.split(r" +", re.search(rf"^{name} +(?=-)(.*)$", text, re.MULTILINE)[1], maxsplit=7)


def installed(backend):
    return importlib.util.find_spec(backend.framework) is not None


@pytest.fixture
def small(monkeypatch):
    """Leave the two backends that take no time."""
    pytest.importorskip("numpy")
    pytest.importorskip("autograd")
    monkeypatch.setattr(comparison, "BACKENDS", [backends.NumPy(), backends.Autograd()])


@pytest.fixture(scope="module")
def whole():
    """Run the whole demo in a process of its own, as the command line does."""
    code = "from adprotocol.__main__ import main; raise SystemExit(main())"
    result = demo_process(code, ["demo", "--points", "30", "--plain"])
    assert result.returncode == 0, result.stdout + result.stderr
    return result


@pytest.mark.slow
def test_every_installed_backend_has_a_row_and_agrees(whole):
    text = whole.stdout.partition("demo/kernels.py")[0]
    assert "All agree to rounding." in text
    answers = {
        "NumPy": ["False", "n/a", "n/a", "n/a"],
        "autograd": ["False", "True", "n/a", "n/a"],
        "JAX": ["False", "True", "n/a", "n/a"],
        "JAX jit": ["n/a", "n/a", "False", "True"],
        "torch": ["False", "True", "n/a", "n/a"],
        "torch compile": ["n/a", "n/a", "False", "True"],
    }
    assert list(answers) == [backend.name for backend in backends.BACKENDS]
    for backend in backends.BACKENDS:
        cells = row(text, backend.name)
        if installed(backend):
            assert cells[3:7] == answers[backend.name]
            assert cells[7].startswith("yes")
        else:
            assert cells[7] == "not installed"
            assert f"{backend.name}: not installed; pip install 'adprotocol[{backend.extra}]'" in text
        assert f"{backend.name} ... " in whole.stderr


@pytest.mark.slow
def test_every_installed_framework_finds_the_same_optimum(whole):
    text = whole.stdout.partition("demo/kernels.py")[2]
    count = sum(map(installed, trainers.TRAINERS))
    assert ("All found the same optimum." if count > 1 else "nothing to compare it with") in text
    for trainer in trainers.TRAINERS:
        cells = row(text, trainer.name)
        if installed(trainer):
            start, end, slope_at_start, slope_at_end = map(float, cells[:4])
            assert end > start + 10.0
            assert slope_at_end < slope_at_start / 1000.0
            assert " ".join(cells[4:]).startswith("yes")
        else:
            assert cells[4:] == ["not installed"]
        assert whole.stderr.count(f"\n{trainer.name} ... ") == 2
    frozen = r"^terms\.1\.factors\.0\.period +1" + " +1" * count + " +None$"
    assert re.search(frozen, text, re.MULTILINE)


def test_training_value_is_not_the_value(small, capsys):
    assert run.main(ARGUMENTS) == 0
    value, training, *_ = row(capsys.readouterr().out, "autograd")
    assert abs(float(value) - float(training)) > 0.1


@pytest.mark.parametrize("file", ["model.py", "kernels.py"])
def test_a_model_file_imports_only_adprotocol_and_the_standard_library(file):
    names = set()
    for node in ast.walk(ast.parse((HERE / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module)
    assert "adprotocol" in names
    assert {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names} == {"adprotocol"}


def test_importing_the_demo_imports_no_framework_and_no_rich():
    heavy = "{'numpy', 'autograd', 'jax', 'torch', 'rich', 'matplotlib'}"
    code = f"import sys, adprotocol.demo.run; print(*{heavy} & set(sys.modules))"
    result = demo_process(code, [])
    assert (result.returncode, result.stdout.strip()) == (0, "")


def test_data():
    assert (HERE / "co2.csv").stat().st_size < 10_000
    rows = data.read()
    years = [year for year, _ in rows]
    assert 100 <= len(rows) <= 200
    assert years == sorted(years)
    assert all(300.0 < co2 < 400.0 for _, co2 in rows)


def test_series_are_centred_and_the_mask_is_fixed():
    series = data.series(40)
    assert len(series.t) == len(series.y) == len(series.mask) == 40
    assert abs(sum(series.t)) < 1e-9
    assert abs(sum(series.y)) < 1e-9
    assert (series.t[-1] + series.middle, series.y[-1] + series.mean) == pytest.approx(data.read()[-1])
    assert series == data.series(40)
    assert set(series.mask) == {0.0, 1.0}


def test_a_wrong_gradient_is_seen(small, monkeypatch, capsys):
    class Wrong(backends.Autograd):
        name = "wrong"

        def run(self, series):
            outcome = super().run(series)
            gradient = outcome.trained.gradient | {"rate": outcome.trained.gradient["rate"] * (1.0 + 1e-6)}
            return dataclasses.replace(outcome, trained=dataclasses.replace(outcome.trained, gradient=gradient))

    monkeypatch.setattr(comparison, "BACKENDS", [*comparison.BACKENDS, Wrong()])
    assert run.main(ARGUMENTS) == 1
    text = capsys.readouterr().out
    assert row(text, "wrong")[7].startswith("NO")
    assert row(text, "autograd")[7].startswith("yes")


def test_a_gradient_of_nan_is_seen(small, monkeypatch, capsys):
    class NotANumber(backends.Autograd):
        name = "nan"

        def run(self, series):
            outcome = super().run(series)
            gradient = dict.fromkeys(outcome.trained.gradient, math.nan)
            return dataclasses.replace(outcome, trained=dataclasses.replace(outcome.trained, gradient=gradient))

    monkeypatch.setattr(comparison, "BACKENDS", [*comparison.BACKENDS, NotANumber()])
    assert run.main(ARGUMENTS) == 1
    assert row(capsys.readouterr().out, "nan")[7] == "NO (nan)"


def test_evaluation_mode_in_training_is_seen(small, monkeypatch, capsys):
    monkeypatch.setattr(model, "within_gradient", lambda _: False)
    assert run.main(ARGUMENTS) == 1
    assert row(capsys.readouterr().out, "autograd")[7].startswith("NO")


def test_a_constant_that_is_none_is_seen(small, monkeypatch):
    monkeypatch.setattr(model, "jitter", model.jitter.__wrapped__)
    assert run.main(ARGUMENTS) == 1


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_growth_with_a_select_in_place_of_cond_is_seen(small, monkeypatch, capsys):
    def growth(rate, t, xp):
        return xp.where(rate == 0.0, t, xp.expm1(rate * t) / rate)

    monkeypatch.setattr(model, "growth", growth)
    assert run.main(ARGUMENTS) == 1
    assert "rate nan" in capsys.readouterr().out


def test_growth_is_continuous():
    np = pytest.importorskip("numpy")
    t = np.linspace(-22.0, 22.0, 9)
    below, above = (model.growth(np.float64(rate), t, np) for rate in (0.99e-4, 1.01e-4))
    assert np.allclose(below, above, rtol=1e-4)
    exact = np.expm1(0.99e-4 * t[t != 0.0]) / 0.99e-4
    assert np.allclose(below[t != 0.0], exact, rtol=1e-8)


def test_a_missing_framework_is_a_row_with_the_remedy(small, monkeypatch, capsys):
    class Missing(backends.NumPy):
        name = "missing"
        framework = "no_such_framework"
        extra = "none"

        def run(self, series):
            raise ModuleNotFoundError(name="no_such_framework")

    monkeypatch.setattr(comparison, "BACKENDS", [*comparison.BACKENDS, Missing()])
    assert run.main(ARGUMENTS) == 0
    text = capsys.readouterr().out
    assert row(text, "missing")[7] == "not installed"
    assert "missing: not installed; pip install 'adprotocol[none]'" in text


def test_a_framework_that_fails_is_seen_and_hides_no_other(small, monkeypatch, capsys):
    class Failing(backends.NumPy):
        name = "failing"

        def run(self, series):
            raise RuntimeError(f"no luck\nwith {len(series.t)} points")

    monkeypatch.setattr(comparison, "BACKENDS", [Failing(), *comparison.BACKENDS])
    assert run.main(ARGUMENTS) == 1
    text = capsys.readouterr().out
    assert "failing: failed: RuntimeError: no luck with 30 points" in text
    assert row(text, "autograd")[7].startswith("yes")


def test_nothing_installed_is_not_all_well(monkeypatch):
    monkeypatch.setattr(comparison, "BACKENDS", [])
    assert run.main(ARGUMENTS) == 1


@pytest.mark.parametrize("points", ["19", "100000", "many"])
def test_wrong_usage(points, capsys):
    with pytest.raises(SystemExit) as error:
        run.main(["--points", points])
    assert error.value.code == 2
    assert "--points" in capsys.readouterr().err


def test_table_by_rich(small, capsys):
    pytest.importorskip("rich")
    assert run.main(["--part", "1", "--points", "30"]) == 0
    text = capsys.readouterr().out
    assert row(text, "autograd")[3:5] == ["False", "True"]
    assert max(map(len, text.splitlines())) <= 80


def test_table_without_rich(small, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich", None)
    assert run.main(["--part", "1", "--points", "30"]) == 0
    assert row(capsys.readouterr().out, "autograd")[3:5] == ["False", "True"]


def test_plain_table_is_aligned():
    assert aligned(["a", "long\nb"], [["x", "1"], ["yy", "222"]]) == [
        "   long",
        "a     b",
        "-- ----",
        "x     1",
        "yy  222",
    ]
