"""The demo: every framework that is installed has a column, all agree, and what is broken shows."""

import ast
import dataclasses
import importlib.util
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from adprotocol import _demo, trainable
from adprotocol._cli import terminal
from adprotocol._demo import frameworks, model, run
from adprotocol._demo.frameworks import Framework, named

HERE = Path(_demo.__file__).parent
ROOT = Path(__file__).parent.parent
MAIN = "from adprotocol.__main__ import main; raise SystemExit(main())"
PARAMETERS = ["trend.slope", "trend.rate", "season.amplitude"]
ANSWERS = {
    "NumPy": ["False", "n/a", "n/a", "n/a"],
    "autograd": ["False", "True", "n/a", "n/a"],
    "JAX": ["False", "True", "n/a", "n/a"],
    "JAX jit": ["n/a", "n/a", "False", "True"],
    "torch": ["False", "True", "n/a", "n/a"],
    "torch compile": ["n/a", "n/a", "False", "True"],
}


def process(code, *arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], check=False, capture_output=True, text=True, timeout=300, **options
    )


def columns(text, count):
    """Return the cells of a table by the name of the row, for each of its columns."""
    lines = [line.rsplit(maxsplit=count) for line in text.splitlines()]
    rows = {cells[0].strip(): cells[1:] for cells in lines if len(cells) == count + 1}
    return [{name: cells[i] for name, cells in rows.items()} for i in range(count)]


def answers(column):
    return [column[f"within grad: {situation}"] for situation in run.SITUATIONS]


def installed(framework):
    return importlib.util.find_spec(framework.module) is not None


def changed(name, change):
    """Return autograd by another name, whose outcome is changed."""
    return Framework(name, "autograd", "autograd", lambda: change(frameworks.autograd()))


@pytest.fixture
def small(monkeypatch):
    """Leave the two frameworks that take no time; further ones may be added."""
    pytest.importorskip("numpy")
    pytest.importorskip("autograd")
    ran = frameworks.FRAMEWORKS[:2]
    assert [framework.name for framework in ran] == ["NumPy", "autograd"]
    monkeypatch.setattr(run, "FRAMEWORKS", ran)
    return ran


@pytest.fixture(scope="module")
def whole():
    """Run the demo in a process of its own, as the command line does."""
    result = process(MAIN, "demo")
    assert result.returncode == 0, result.stdout + result.stderr
    return result


@pytest.mark.slow
def test_every_installed_framework_has_a_column_and_agrees(whole):
    text = whole.stdout
    assert "All agree to rounding." in text
    assert list(ANSWERS) == [framework.name for framework in frameworks.FRAMEWORKS]
    assert " ".join(ANSWERS) in " ".join(text.splitlines()[2].split())
    for framework, column in zip(frameworks.FRAMEWORKS, columns(text, len(ANSWERS)), strict=True):
        if installed(framework):
            assert answers(column) == ANSWERS[framework.name]
            assert column["agrees"] == "yes"
            assert float(column["differs"]) <= 1e-8
        else:
            assert column["agrees"] == "absent"
            assert f"{framework.name}: not installed; pip install 'adprotocol[{framework.extra}]'" in text
        assert f"{framework.name} ... " in whole.stderr


@pytest.mark.slow
def test_every_gradient_has_none_for_the_frozen_field(whole):
    for framework, column in zip(frameworks.FRAMEWORKS, columns(whole.stdout, len(ANSWERS)), strict=True):
        if installed(framework) and framework.name != "NumPy":
            assert column["d season.period"] == "None"
            assert all(abs(float(column[f"d {path}"])) > 0.01 for path in PARAMETERS)


def test_training_loss_is_not_the_loss(small, capsys):
    assert run.main([]) == 0
    _, column = columns(capsys.readouterr().out, 2)
    assert abs(float(column["loss"]) - float(column["training loss"])) > 0.005


def test_the_model_file_imports_only_adprotocol_and_the_standard_library():
    names = set()
    for node in ast.walk(ast.parse((HERE / "model.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module)
    assert "adprotocol" in names
    assert {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names} == {"adprotocol"}


def test_importing_the_demo_imports_no_framework_and_no_rich():
    heavy = "{'numpy', 'autograd', 'jax', 'torch', 'rich', 'matplotlib'}"
    result = process(f"import sys, adprotocol._demo.run; print(*{heavy} & set(sys.modules))")
    assert (result.returncode, result.stdout.strip()) == (0, "")


def test_the_data_are_fixed_and_so_is_what_dropout_leaves_out():
    assert len(model.T) == len(model.Y) == len(model.KEPT) == 96
    assert sorted(model.T) == model.T
    assert set(model.KEPT) == {0.0, 1.0}


def test_all_takes_gradients_but_the_period():
    assert [path for path, leaf in named(trainable(model.start(float))).items() if leaf is None] == ["season.period"]
    assert list(named(model.start(float))) == [*PARAMETERS, "season.period"]


def test_a_wrong_gradient_is_seen(small, capsys):
    def wrong(outcome):
        rate = outcome.gradient["trend.rate"] * (1.0 + 1e-6)
        return dataclasses.replace(outcome, gradient=outcome.gradient | {"trend.rate": rate})

    small.append(changed("wrong", wrong))
    assert run.main([]) == 1
    _, right, wrong = columns(capsys.readouterr().out, 3)
    assert (right["agrees"], wrong["agrees"]) == ("yes", "NO")


def test_a_gradient_of_nan_is_seen(small, capsys):
    def not_a_number(outcome):
        return dataclasses.replace(outcome, gradient=outcome.gradient | dict.fromkeys(PARAMETERS, math.nan))

    small.append(changed("nan", not_a_number))
    assert run.main([]) == 1
    *_, column = columns(capsys.readouterr().out, 3)
    assert (column["differs"], column["agrees"]) == ("nan", "NO")


@pytest.mark.parametrize(("path", "part"), [("season.period", 0.0), ("trend.rate", None)])
def test_a_gradient_where_none_belongs_or_none_where_one_does_is_seen(small, capsys, path, part):
    small.append(changed("other", lambda it: dataclasses.replace(it, gradient=it.gradient | {path: part})))
    assert run.main([]) == 1
    _, right, other = columns(capsys.readouterr().out, 3)
    assert (right["agrees"], other["agrees"]) == ("yes", "NO")


def test_evaluation_mode_in_training_is_seen(small, monkeypatch, capsys):
    monkeypatch.setattr(model, "within_gradient", lambda _: False)
    assert run.main([]) == 1
    _, column = columns(capsys.readouterr().out, 2)
    assert column["agrees"] == "NO"


def finite_differences():
    """The training loss and its gradient by central differences of fourth order, of the NumPy code.

    Input dropout is done by hand, by taking the observations out, and the spread is held by computing it once.
    """
    np = pytest.importorskip("numpy")
    t, y, kept = np.array(model.T), np.array(model.Y), np.array(model.KEPT) == 1.0
    scale = model.spread(y - model.start(np.float64)(t, np), np)

    def at(wanted, step):
        parts = {name: np.float64(value) + step * (name == wanted) for name, value in named(model.start(float)).items()}
        trend = model.Trend(parts["trend.slope"], parts["trend.rate"])
        moved = model.Model(trend, model.Season(parts["season.amplitude"], parts["season.period"]))
        return float(model.robust((y - moved(t, np))[kept], scale, np.ones(kept.sum()), np))

    h = 1e-4  # around rate 0 it stays close to the series there
    differences = [(at(name, h) - at(name, -h), at(name, 2.0 * h) - at(name, -2.0 * h)) for name in PARAMETERS]
    return at("", 0.0), [(8.0 * near - far) / (12.0 * h) for near, far in differences]


def test_the_gradient_is_that_of_finite_differences_which_know_nothing_of_modes(small):
    outcome = frameworks.autograd()
    loss, gradient = finite_differences()
    assert outcome.training == pytest.approx(loss, rel=1e-12)
    assert [outcome.gradient[path] for path in PARAMETERS] == pytest.approx(gradient, rel=1e-6)


def test_a_constant_that_is_none_would_not_have_that_gradient(small, monkeypatch):
    monkeypatch.setattr(model, "spread", model.spread.__wrapped__)
    outcome = frameworks.autograd()
    loss, gradient = finite_differences()
    assert outcome.training == pytest.approx(loss, rel=1e-12)
    assert [outcome.gradient[path] for path in PARAMETERS] != pytest.approx(gradient, rel=1e-2)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_growth_with_a_select_in_place_of_cond_is_seen(small, monkeypatch, capsys):
    def growth(rate, t, xp):
        return xp.where(rate == 0.0, t, xp.expm1(rate * t) / rate)

    monkeypatch.setattr(model, "growth", growth)
    assert run.main([]) == 1
    _, column = columns(capsys.readouterr().out, 2)
    assert column["d trend.rate"] == "nan"
    assert column["agrees"] == "NO"


def test_growth_is_continuous():
    np = pytest.importorskip("numpy")
    t = np.linspace(-22.0, 22.0, 9)
    below, above = (model.growth(np.float64(rate), t, np) for rate in (0.99e-4, 1.01e-4))
    assert np.allclose(below, above, rtol=1e-4)
    exact = np.expm1(0.99e-4 * t[t != 0.0]) / 0.99e-4
    assert np.allclose(below[t != 0.0], exact, rtol=1e-8)


def test_a_missing_framework_is_a_column_with_the_remedy(small, capsys):
    def missing():
        raise ModuleNotFoundError(name="no_such_framework")

    small.append(Framework("missing", "no_such_framework", "none", missing))
    assert run.main([]) == 0
    text = capsys.readouterr().out
    assert columns(text, 3)[2]["agrees"] == "absent"
    assert "missing: not installed; pip install 'adprotocol[none]'" in text


def test_a_framework_that_fails_is_seen_and_hides_no_other(small, capsys):
    def failing():
        raise RuntimeError("no luck\nwith 30 points")

    small.insert(0, Framework("failing", "numpy", "demo", failing))
    assert run.main([]) == 1
    text = capsys.readouterr().out
    assert "failing: failed: RuntimeError: no luck with 30 points" in text
    assert [column["agrees"] for column in columns(text, 3)] == ["failed", "yes", "yes"]


def test_nothing_installed_is_not_all_well(monkeypatch, capsys):
    monkeypatch.setattr(run, "FRAMEWORKS", [])
    assert run.main([]) == 1
    assert "Nothing could run" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", ["--points", "--picture", "--plain", "fast"])
def test_wrong_usage(wrong, capsys):
    with pytest.raises(SystemExit) as error:
        run.main([wrong])
    assert error.value.code == 2
    assert wrong in capsys.readouterr().err


@pytest.mark.parametrize(("width", "counts"), [(100, [6]), (80, [5, 1]), (60, [4, 2])])
def test_a_table_fits_on_a_terminal(monkeypatch, capsys, width, counts):
    outcome = frameworks.autograd()
    six = [Framework(name, "autograd", "autograd", lambda: outcome) for name in ANSWERS]
    monkeypatch.setattr(run, "FRAMEWORKS", six)
    monkeypatch.setattr(terminal, "width_of", lambda _: width)
    assert run.main([]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= width
    tables = text.split("\n\n")[1 : 1 + len(counts)]
    for count, table in zip(counts, tables, strict=True):
        for column in columns(table, count):
            assert (column["within grad: plain"], column["within grad: grad"]) == ("False", "True")


def test_plain_table_is_aligned():
    assert terminal.aligned([["a", "long"], ["x", "1"], ["yyy", "222"]]) == ["a   long", "x      1", "yyy  222"]


def test_an_interrupt_leaves_no_traceback(small, capsys):
    def interrupted():
        raise KeyboardInterrupt

    small.append(Framework("interrupted", "numpy", "demo", interrupted))
    assert run.main([]) == 130
    assert capsys.readouterr().err.endswith("adprotocol demo: interrupted\n")


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_from_the_terminal_leaves_no_traceback():
    code = (
        "import time; from adprotocol._demo import run, frameworks as f; "
        "run.FRAMEWORKS = [f.Framework('slow', 'numpy', 'demo', lambda: time.sleep(60))]; "
        "raise SystemExit(run.main([]))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr.read(len("slow ... ")) == "slow ... "
        running.send_signal(signal.SIGINT)
        assert "Traceback" not in running.stderr.read()
        assert running.wait(timeout=30) == 130


@pytest.mark.parametrize(("given", "used"), [(None, "1"), ("3", "3")])
def test_one_thread_unless_it_is_said_otherwise(given, used):
    code = (
        "import os, sys; from adprotocol.__main__ import main; from adprotocol._demo import run; "
        "run.main = lambda argv: print(os.environ['OMP_NUM_THREADS'], 'numpy' in sys.modules) or 0; main(['demo'])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment |= {} if given is None else {"OMP_NUM_THREADS": given}
    assert process(code, env=environment).stdout == f"{used} False\n"


def test_make_demo_shows_the_demo_alone():
    command = ["make", "--dry-run", "--always-make", "demo"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    assert "-m adprotocol demo" in shown
    assert "examples/" not in shown


def test_the_losses_are_those_of_the_formula_written_out():
    pytest.importorskip("autograd")
    times = [i / 12 - 4 for i in range(96)]
    seen = [
        1.3 * t + 0.02 * t * t + 2.5 * math.sin(2 * math.pi * t) + (3 if i % 12 == 0 else 0)
        for i, t in enumerate(times)
    ]
    # Of slope 1, rate 0, amplitude 2 and period 1.
    residuals = [y - t - 2 * math.sin(2 * math.pi * t) for t, y in zip(times, seen, strict=True)]
    variance = sum(residual**2 for residual in residuals) / 96
    losses = [math.log1p(residual**2 / variance) for residual in residuals]
    kept = [loss for i, loss in enumerate(losses) if i % 5]
    found = frameworks.autograd()
    assert found.value == pytest.approx(sum(losses) / 96, rel=1e-12)
    assert found.training == pytest.approx(sum(kept) / len(kept), rel=1e-12)


@pytest.mark.parametrize(
    ("width", "groups"), [(200, [[1, 2, 3]]), (20, [[1], [2], [3]]), (28, [[1, 2], [3]]), (3, [[1], [2], [3]])]
)
def test_columns_that_do_not_fit_make_a_further_table(width, groups):
    rows = [["", "NumPy", "JAX jit", "torch"], ["a long label", "1.25000", "1.2", "n/a"]]
    assert run._fitting(rows, width) == groups
