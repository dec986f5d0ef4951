"""The demo: every framework that is installed has a row, all agree, and what is broken shows."""

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
from adprotocol._demo import frameworks, model, run
from adprotocol._demo.frameworks import Framework, named

MAIN = "from adprotocol.__main__ import main; raise SystemExit(main())"
PARAMETERS = ["trend.slope", "trend.rate", "season.amplitude"]


def process(code, *arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], check=False, capture_output=True, text=True, timeout=600, **options
    )


def table(text):
    """Return the cells of each row by the name of the row; the two answers are one cell."""
    names = {framework.name for framework in run.FRAMEWORKS}
    rows = {}
    for line in text.splitlines():
        name = next((name for name in sorted(names, key=len, reverse=True) if line.startswith(f"{name} ")), None)
        if name is not None and ":" not in line:
            cells = line.removeprefix(name).split()
            rows[name] = dict(zip(run.HEADINGS[1:], [*cells[:6], cells[6:-1], cells[-1]], strict=True))
    return rows


def changed(change):
    """Return autograd by another name, whose outcome is changed."""
    return Framework("other", "autograd", lambda: change(frameworks.autograd()))


@pytest.fixture
def small(monkeypatch):
    """Leave the two frameworks that take no time; further ones may be added."""
    pytest.importorskip("numpy")
    pytest.importorskip("autograd")
    ran = frameworks.FRAMEWORKS[:2]
    assert [framework.name for framework in ran] == ["NumPy", "autograd"]
    monkeypatch.setattr(run, "FRAMEWORKS", ran)
    return ran


@pytest.mark.slow
def test_every_installed_framework_has_a_row_and_agrees():
    result = process(MAIN, "demo")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "All agree to rounding." in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    rows = table(result.stdout)
    for framework in frameworks.FRAMEWORKS:
        row = rows[framework.name]
        assert f"{framework.name} ... " in result.stderr
        if importlib.util.find_spec(framework.module) is None:
            assert row["agrees"] == "absent"
            assert f"{framework.name}: not installed; pip install 'adprotocol[" in result.stdout
            continue
        assert row["agrees"] == "yes"
        assert row["within"] == (["False"] if framework.name == "NumPy" else ["False", "True"])
        if framework.name != "NumPy":
            assert row["period"] == "None"
            assert all(abs(float(row[path.rpartition(".")[2]])) > 0.01 for path in PARAMETERS)
            assert abs(float(row["loss"]) - float(row["training"])) > 0.005


def test_the_model_file_imports_only_adprotocol_and_the_standard_library():
    names = set()
    path = Path(_demo.__file__).parent / "model.py"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module)
    assert {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names} == {"adprotocol"}


def test_all_takes_gradients_but_the_period():
    assert [path for path, leaf in named(trainable(model.start(float))).items() if leaf is None] == ["season.period"]
    assert list(named(model.start(float))) == [*PARAMETERS, "season.period"]


@pytest.mark.parametrize(
    ("path", "part"),
    [("trend.rate", "scaled"), ("trend.slope", math.nan), ("season.period", 0.0), ("trend.rate", None)],
)
def test_a_wrong_gradient_is_seen(small, capsys, path, part):
    def wrong(outcome):
        value = outcome.gradient[path] * (1.0 + 1e-6) if part == "scaled" else part
        return dataclasses.replace(outcome, gradient=outcome.gradient | {path: value})

    small.append(changed(wrong))
    assert run.main() == 1
    text = capsys.readouterr().out
    assert [row["agrees"] for row in table(text).values()] == ["yes", "yes", "NO"]
    assert "NOT all agree" in text


def test_evaluation_mode_in_training_is_seen(small, monkeypatch, capsys):
    monkeypatch.setattr(model, "within_gradient", lambda _: False)
    assert run.main() == 1
    assert table(capsys.readouterr().out)["autograd"]["agrees"] == "NO"


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


@pytest.mark.parametrize("spread", ["constant", "differentiated"])
def test_the_gradient_is_that_of_finite_differences_which_know_nothing_of_modes(small, monkeypatch, spread):
    if spread == "differentiated":
        monkeypatch.setattr(model, "spread", model.spread.__wrapped__)
    outcome = frameworks.autograd()
    loss, gradient = finite_differences()
    assert outcome.training == pytest.approx(loss, rel=1e-12)
    close = [outcome.gradient[path] for path in PARAMETERS] == pytest.approx(gradient, rel=1e-6)
    assert close == (spread == "constant")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_growth_with_a_select_in_place_of_cond_is_seen(small, monkeypatch, capsys):
    def growth(rate, t, xp):
        return xp.where(rate == 0.0, t, xp.expm1(rate * t) / rate)

    monkeypatch.setattr(model, "growth", growth)
    assert run.main() == 1
    row = table(capsys.readouterr().out)["autograd"]
    assert (row["rate"], row["agrees"]) == ("nan", "NO")


def test_a_missing_framework_is_a_row_with_the_remedy(small, capsys):
    def missing():
        raise ModuleNotFoundError(name="no_such_framework")

    small.append(Framework("missing", "no_such_framework", missing))
    assert run.main() == 0
    text = capsys.readouterr().out
    assert table(text)["missing"]["agrees"] == "absent"
    assert "missing: not installed; pip install 'adprotocol[no_such_framework]'" in text


def test_a_framework_that_fails_is_seen_and_hides_no_other(small, capsys):
    def failing():
        raise RuntimeError("no luck\nwith 30 points")

    small.insert(0, Framework("failing", "numpy", failing))
    assert run.main() == 1
    text = capsys.readouterr().out
    assert "failing: failed: RuntimeError: no luck with 30 points" in text
    assert [row["agrees"] for row in table(text).values()] == ["failed", "yes", "yes"]


def test_nothing_installed_is_not_all_well(monkeypatch, capsys):
    monkeypatch.setattr(run, "FRAMEWORKS", [])
    assert run.main() == 1
    assert "Nothing could run" in capsys.readouterr().out


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_from_the_terminal_leaves_no_traceback():
    code = (
        "import time; from adprotocol._demo import run, frameworks as f; "
        "run.FRAMEWORKS = [f.Framework('slow', 'numpy', lambda: time.sleep(3600))]; "
        "from adprotocol.__main__ import main; raise SystemExit(main(['demo']))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr.read(len("slow ... ")) == "slow ... "
        running.send_signal(signal.SIGINT)
        assert running.stderr.read() == "\nadprotocol: interrupted\n"
        assert running.wait(timeout=600) == 130


@pytest.mark.parametrize(("given", "used"), [(None, "1"), ("3", "3")])
def test_one_thread_unless_it_is_said_otherwise_and_no_framework_before_its_row(given, used):
    code = (
        "import os, sys; from adprotocol.__main__ import main; from adprotocol._demo import run; "
        "heavy = {'numpy', 'autograd', 'jax', 'torch', 'rich'} & set(sys.modules); "
        "run.main = lambda: print(os.environ['OMP_NUM_THREADS'], heavy or 'none') or 1; "
        "raise SystemExit(main(['demo']))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment |= {} if given is None else {"OMP_NUM_THREADS": given}
    ran = process(code, env=environment)
    assert (ran.stdout, ran.returncode) == (f"{used} none\n", 1)
