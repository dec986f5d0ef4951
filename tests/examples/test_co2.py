"""The example on carbon dioxide: kernels compose, a training ends at the optimum, and what is broken shows."""

import ast
import dataclasses
import importlib.util
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import fitting
import kernels
import oracle
import picture
import run
import series as data
import trainers
import training
from adprotocol import trainable
from console import Report, aligned
from kernels import Noise, Periodic, Product, SquaredExponential, Sum
from training import mapped, named

np = pytest.importorskip("numpy")

HERE = Path(run.__file__).parent
ARGUMENTS = ["--points", "30", "--plain"]
PERIOD = "terms.1.factors.0.period"
MISSED = "NOT all found one optimum"


def row(text, name):
    return re.split(r" +", re.search(rf"^{re.escape(name)} +(?=-|\d)(.*)$", text, re.MULTILINE)[1], maxsplit=4)


def process(*arguments, code=None, **options):
    """Run the example, or code beside it, in a process of its own."""
    command = [HERE] if code is None else ["-c", f"import sys; sys.path.insert(0, {str(HERE)!r}); {code}"]
    return subprocess.run(
        [sys.executable, *command, *arguments], check=False, capture_output=True, text=True, timeout=300, **options
    )


def installed(trainer):
    return importlib.util.find_spec(trainer.framework) is not None


@pytest.fixture
def short(monkeypatch):
    """Train by autograd alone, as it takes no time to start."""
    pytest.importorskip("autograd")
    monkeypatch.setattr(fitting, "TRAINERS", [trainers.Autograd()])


@pytest.fixture(scope="module")
def fit():
    pytest.importorskip("autograd")
    return trainers.Autograd().train(data.last(30), lambda value: None)


@pytest.fixture
def trained(monkeypatch, fit):
    """Replace the trainers by ones that give, by name, changed copies of one fit."""

    def replace(**changed):
        def trainer(name, change):
            class Trained(trainers.Autograd):
                def train(self, series, advance):
                    return change(fit)

            Trained.name = name
            return Trained()

        given = {"first": lambda fit: fit} | changed
        monkeypatch.setattr(fitting, "TRAINERS", [trainer(name, change) for name, change in given.items()])

    return replace


def with_number(tree, wanted, number):
    """Return a kernel, or a gradient, with another number at one path."""
    paths = iter([name for name, leaf in named(tree).items() if leaf is not None])
    return mapped(lambda leaf: number if next(paths) == wanted else leaf, tree)


# The whole.


@pytest.mark.slow
def test_every_installed_framework_finds_the_same_optimum():
    whole = process("--points", "30", "--plain")
    assert whole.returncode == 0, whole.stdout + whole.stderr
    text = whole.stdout
    count = sum(map(installed, trainers.TRAINERS))
    assert ("All found the same optimum." if count > 1 else "nothing to compare it with") in text
    for trainer in trainers.TRAINERS:
        cells = row(text, trainer.name)
        if installed(trainer):
            start, end, slope_at_start, slope_at_end = map(float, cells[:4])
            assert end > start + 10.0
            assert slope_at_end < slope_at_start / 1000.0
            assert cells[4].startswith("yes")
        else:
            assert cells[4] == "not installed"
        assert f"\n{trainer.name} ... " in f"\n{whole.stderr}"
    frozen = r"^terms\.1\.factors\.0\.period +1" + " +1" * count + " +None$"
    assert re.search(frozen, text, re.MULTILINE)


def test_the_kernels_import_only_adprotocol_and_the_standard_library():
    names = set()
    for node in ast.walk(ast.parse((HERE / "kernels.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module)
    assert "adprotocol" in names
    assert {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names} == {"adprotocol"}


def test_importing_the_example_imports_no_framework_and_no_rich():
    heavy = "{'numpy', 'autograd', 'jax', 'torch', 'rich', 'matplotlib'}"
    result = process(code=f"import run; print(*{heavy} & set(sys.modules))")
    assert (result.returncode, result.stdout.strip()) == (0, "")


# The data.


def test_data():
    assert (HERE / "co2.csv").stat().st_size < 10_000
    rows = data.read()
    years = [year for year, _ in rows]
    assert 100 <= len(rows) <= 200
    assert years == sorted(years)
    assert all(300.0 < co2 < 400.0 for _, co2 in rows)


def test_series_are_centred():
    series = data.last(40)
    assert len(series.t) == len(series.y) == 40
    assert abs(sum(series.t)) < 1e-9
    assert abs(sum(series.y)) < 1e-9
    assert (series.t[-1] + series.middle, series.y[-1] + series.mean) == pytest.approx(data.read()[-1])
    assert series == data.last(40)


# The kernels.


def test_kernels_are_their_closed_forms():
    apart = np.array([0.0, 0.25, 3.0])
    assert np.allclose(SquaredExponential(4.0, 2.0)(apart, np), 4.0 * np.exp(-(apart**2) / 8.0))
    assert np.allclose(Periodic(0.5, 1.0)(apart, np), np.exp(-8.0 * np.sin(math.pi * apart) ** 2))
    assert Noise(3.0)(apart, np).tolist() == [3.0, 0.0, 0.0]


def test_composition_adds_and_multiplies():
    a, b, c = SquaredExponential(4.0, 2.0), Periodic(0.5, 1.0), SquaredExponential(1.0, 9.0)
    apart = np.array([0.0, 0.25, 3.0])
    assert np.allclose((a + b * c)(apart, np), a(apart, np) + b(apart, np) * c(apart, np))
    assert np.allclose(((a + b) * c)(apart, np), (a(apart, np) + b(apart, np)) * c(apart, np))


def test_composition_is_flat_and_written_with_its_operators():
    a, b, c = SquaredExponential(4.0, 2.0), Periodic(0.5, 1.0), Noise(1.0)
    assert a + b * c + c == Sum((a, Product((b, c)), c))
    assert str(a + b * c + c) == "SquaredExponential + Periodic * Noise + Noise"
    assert str((a + b) * c * a) == "(SquaredExponential + Periodic) * Noise * SquaredExponential"


def test_all_takes_gradients_but_the_period():
    assert [name for name, leaf in named(trainable(kernels.START)).items() if leaf is None] == [PERIOD]


def test_patterns_select_by_the_names_that_the_demo_shows():
    chosen = trainable(kernels.START, where="*.variance")
    assert {name for name, leaf in named(chosen).items() if leaf is not None} == {
        name for name in named(kernels.START) if name.endswith(".variance")
    }


def test_likelihood_of_noise_alone():
    y = np.array([1.0, -2.0, 0.5])
    expected = -np.sum(y**2) / 8.0 - 1.5 * math.log(2.0 * math.pi * 4.0)
    found = kernels.log_marginal_likelihood(Noise(4.0), np.array([0.0, 1.0, 2.0]), y, np)
    assert float(found) == pytest.approx(expected)


def test_likelihood_of_two_observations():
    variance, covariance = 3.0, 2.0 * math.exp(-0.5)
    determinant = variance**2 - covariance**2
    square = (variance * (1.0 + 4.0) + 2.0 * covariance * 2.0) / determinant  # y = (1, -2)
    expected = -square / 2.0 - math.log(determinant) / 2.0 - math.log(2.0 * math.pi)
    kernel = SquaredExponential(2.0, 1.0) + Noise(1.0)
    found = kernels.log_marginal_likelihood(kernel, np.array([0.0, 1.0]), np.array([1.0, -2.0]), np)
    assert float(found) == pytest.approx(expected)


def test_posterior_given_one_observation():
    kernel = SquaredExponential(4.0, 1.0) + Noise(1.0)
    mean, deviation = kernels.posterior(kernel, np.array([0.0]), np.array([2.0]), np.array([0.0, 50.0]), np)
    assert mean == pytest.approx([4.0 / 5.0 * 2.0, 0.0])
    assert deviation**2 == pytest.approx([5.0 - 16.0 / 5.0, 5.0])


# The training.


@pytest.mark.parametrize("trainer", trainers.TRAINERS, ids=lambda trainer: trainer.framework)
def test_one_step_and_its_gradient(trainer, monkeypatch):
    pytest.importorskip(trainer.framework)
    monkeypatch.setattr(training, "STEPS", 1)
    series, seen = data.last(25), []
    fit = trainer.train(series, seen.append)
    start, end = named(mapped(float, kernels.START)), named(fit.kernel)
    before, after = oracle.slopes(mapped(float, kernels.START), series), oracle.slopes(fit.kernel, series)
    assert seen == [fit.values[0]]
    assert fit.values[1] > fit.values[0]
    gradient = named(fit.gradient)
    assert gradient.pop(PERIOD) is None
    assert end.pop(PERIOD) == 1.0
    assert abs(before[PERIOD]) > 0.1  # which would have moved it
    for name, number in end.items():
        # The first step of Adam has the size of the rate, whatever the gradient.
        assert math.log(number / start[name]) == pytest.approx(math.copysign(training.RATE, before[name]), rel=1e-4)
        assert number * gradient[name] == pytest.approx(after[name], rel=1e-6, abs=1e-6)
    del before[PERIOD], after[PERIOD]
    assert fit.norms == pytest.approx((math.hypot(*before.values()), math.hypot(*after.values())))


def test_no_change_of_one_parameter_improves_the_optimum():
    pytest.importorskip("autograd")
    series = data.last(20)
    fit = trainers.Autograd().train(series, lambda value: None)
    t, y = np.array(series.t), np.array(series.y)
    for name, number in named(fit.kernel).items():
        for factor in (0.9, 1.1):
            moved = with_number(fit.kernel, name, number * factor)
            if name != PERIOD:
                assert kernels.log_marginal_likelihood(moved, t, y, np) < fit.values[1]


def test_mapping_follows_tuples_and_dataclasses_and_leaves_out_what_is_none():
    kernel = Periodic(2.0, 1.0) * Noise(3.0)
    gradient = Product((Periodic(10.0, None), Noise(20.0)))
    assert mapped(lambda g, p: g + p, gradient, kernel) == Product((Periodic(12.0, None), Noise(23.0)))
    assert named(gradient) == {"factors.0.lengthscale": 10.0, "factors.0.period": None, "factors.1.variance": 20.0}


# What is broken shows.


def test_another_optimum_is_seen(trained, capsys):
    def moved(fit):
        variance = named(fit.kernel)["terms.2.variance"]
        return dataclasses.replace(fit, kernel=with_number(fit.kernel, "terms.2.variance", variance * (1.0 + 1e-5)))

    trained(other=moved)
    assert run.main(ARGUMENTS) == 1
    text = capsys.readouterr().out
    assert row(text, "first")[4] == "yes"
    assert row(text, "other")[4] == "NO (1e-05)"
    assert MISSED in text


def test_an_optimum_of_nan_is_seen(trained, capsys):
    trained(other=lambda fit: dataclasses.replace(fit, kernel=with_number(fit.kernel, "terms.3.variance", math.nan)))
    assert run.main(ARGUMENTS) == 1
    assert row(capsys.readouterr().out, "other")[4] == "NO (nan)"


def test_a_frozen_parameter_that_moved_is_seen(trained, capsys):
    trained(other=lambda fit: dataclasses.replace(fit, kernel=with_number(fit.kernel, PERIOD, 1.0 + 1e-12)))
    assert run.main(ARGUMENTS) == 1
    assert row(capsys.readouterr().out, "other")[4] == "NO (1e-12)"


@pytest.mark.parametrize(("path", "part"), [("terms.1.factors.0", 0.0), ("terms.3", None)])
def test_a_gradient_where_none_belongs_or_none_where_one_does_is_seen(trained, capsys, path, part):
    field = {"terms.1.factors.0": "period", "terms.3": "variance"}[path]

    def changed(tree, names):
        if not names:
            return dataclasses.replace(tree, **{field: part})
        if isinstance(tree, tuple):
            return tuple(changed(each, names[1:]) if str(i) == names[0] else each for i, each in enumerate(tree))
        return dataclasses.replace(tree, **{names[0]: changed(getattr(tree, names[0]), names[1:])})

    trained(other=lambda fit: dataclasses.replace(fit, gradient=changed(fit.gradient, path.split("."))))
    assert run.main(ARGUMENTS) == 1
    assert row(capsys.readouterr().out, "other")[4] == "NO"


def test_too_few_steps_are_seen(short, monkeypatch, capsys):
    monkeypatch.setattr(training, "STEPS", 10)
    assert run.main(ARGUMENTS) == 1
    assert row(capsys.readouterr().out, "autograd")[4] == "NO"


def test_finite_differences_see_what_all_frameworks_would_have_in_common(trained, capsys):
    def elsewhere(fit):
        return dataclasses.replace(fit, kernel=with_number(fit.kernel, "terms.3.variance", 1.0))

    trained(first=elsewhere, other=elsewhere)
    assert run.main(ARGUMENTS) == 1
    text = capsys.readouterr().out
    assert [row(text, name)[4] for name in ("first", "other")] == ["yes", "yes"]
    assert MISSED in text


def test_a_framework_that_fails_is_seen_and_hides_no_other(short, monkeypatch, capsys):
    class Failing(trainers.Autograd):
        name = "failing"

        def train(self, series, advance):
            advance(1.0)
            raise RuntimeError(f"no luck\nwith {len(series.t)} points")

    monkeypatch.setattr(fitting, "TRAINERS", [Failing(), *fitting.TRAINERS])
    assert run.main(ARGUMENTS) == 1
    text = capsys.readouterr().out
    assert "failing: failed: RuntimeError: no luck with 30 points" in text
    assert row(text, "autograd")[4] == "yes"


def test_a_missing_framework_is_a_row_with_the_remedy(short, monkeypatch, capsys):
    class Missing(trainers.Autograd):
        name = "missing"
        framework = "no_such_framework"
        extra = "none"

        def train(self, series, advance):
            raise ModuleNotFoundError(name="no_such_framework")

    monkeypatch.setattr(fitting, "TRAINERS", [*fitting.TRAINERS, Missing()])
    assert run.main(ARGUMENTS) == 0
    text = capsys.readouterr().out
    assert row(text, "missing")[4] == "not installed"
    assert "missing: not installed; pip install 'adprotocol[none]'" in text
    assert "Only autograd trained" in text


def test_nothing_installed_is_not_all_well(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(fitting, "TRAINERS", [])
    assert run.main([*ARGUMENTS, "--picture", str(tmp_path / "fit.png")]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "Nothing could be trained" in text
    assert "was not written" in text
    assert not list(tmp_path.iterdir())


# The command line.


def test_slopes_that_are_elsewhere_are_enough(trained, monkeypatch):
    trained()
    assert run.main(ARGUMENTS) == 0
    slopes = oracle.slopes
    monkeypatch.setattr(oracle, "slopes", lambda *given: {name: it + 1.0 for name, it in slopes(*given).items()})
    assert run.main(ARGUMENTS) == 1


@pytest.mark.parametrize("points", ["19", "100000", "many"])
def test_wrong_points(points, capsys):
    with pytest.raises(SystemExit) as error:
        run.main(["--points", points])
    assert error.value.code == 2
    assert "--points" in capsys.readouterr().err


@pytest.mark.parametrize("part", ["0", "3", "both"])
def test_there_are_no_parts(part, capsys):
    with pytest.raises(SystemExit) as error:
        run.main(["--part", part])
    assert error.value.code == 2
    assert "--part" in capsys.readouterr().err


def test_an_interrupt_leaves_no_traceback(monkeypatch, capsys):
    class Interrupted(trainers.Autograd):
        def train(self, series, advance):
            raise KeyboardInterrupt

    monkeypatch.setattr(fitting, "TRAINERS", [Interrupted()])
    assert run.main(ARGUMENTS) == 130
    assert capsys.readouterr().err.endswith("examples/co2: interrupted\n")


def test_tables_by_rich_fit_a_terminal(trained, capsys):
    pytest.importorskip("rich")
    trained(second=lambda fit: fit, third=lambda fit: fit)
    assert run.main(ARGUMENTS[:-1]) == 0
    text = capsys.readouterr().out
    assert row(text, "third")[4] == "yes"
    assert max(map(len, text.splitlines())) <= 80


def test_bar_on_a_terminal(monkeypatch, capsys):
    pytest.importorskip("rich")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Report(plain=False).bar("name", 3) as advance:
        for value in (1.25, 2.25, 3.25):
            advance(value)
    err = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert "3/3" in err
    assert "log marginal likelihood 3.25" in err
    assert re.search(r"name \.\.\. \d+\.\d s\n$", err)


@pytest.mark.parametrize("plain", [True, False])
def test_no_bar_where_there_is_no_terminal(monkeypatch, capsys, plain):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with Report(plain=plain).bar("name", 3) as advance:
        advance(1.25)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.fullmatch(r"name \.\.\. \d+\.\d s\n", shown.err.removeprefix("name ...\n"))


def test_tables_without_rich(trained, monkeypatch, capsys):
    trained()
    monkeypatch.setitem(sys.modules, "rich", None)
    assert run.main(ARGUMENTS[:-1]) == 0
    assert row(capsys.readouterr().out, "first")[4] == "yes"


def test_plain_table_is_aligned():
    assert aligned(["a", "long\nb"], [["x", "1"], ["yy", "222"]]) == [
        "   long",
        "a     b",
        "-- ----",
        "x     1",
        "yy  222",
    ]


@pytest.mark.parametrize(("given", "used"), [(None, "1"), ("3", "3")])
def test_one_thread_unless_it_is_said_otherwise(given, used):
    code = (
        "import os, runpy, run; run.main = lambda: print(os.environ['OMP_NUM_THREADS'], 'numpy' in sys.modules) or 0; "
        "runpy.run_path(sys.path[0], run_name='__main__')"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment |= {} if given is None else {"OMP_NUM_THREADS": given}
    assert process(code=code, env=environment).stdout == f"{used} False\n"


# The picture.


@pytest.fixture
def sample():
    """A fit that needs no training."""
    start = mapped(float, kernels.START)
    return training.Fit(
        dataclasses.replace(start, terms=(*start.terms[:-1], Noise(0.05))), start, (-2.0, -1.0), (2.0, 1.0)
    )


def test_picture_as_png(tmp_path, sample):
    pytest.importorskip("matplotlib")
    path = tmp_path / "fit.png"
    picture.draw(path, data.last(60), sample, "autograd")
    written = path.read_bytes()
    assert written[:8] == b"\x89PNG\r\n\x1a\n"
    assert (int.from_bytes(written[16:20]), int.from_bytes(written[20:24])) == (1500, 975)


def test_picture_as_svg_has_units_and_both_fits(tmp_path, sample):
    pytest.importorskip("matplotlib")
    path = tmp_path / "fit.SVG"
    picture.draw(path, data.last(60), sample, "autograd")
    text = path.read_text(encoding="utf-8")
    assert ET.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314  (written above)
    # What the outlines spell is in a comment beside them.
    labels = re.findall(r"<!-- (.*?) -->", text)
    assert labels.count("CO2 (ppm)") == 2
    assert {"year", "posterior mean", "two standard deviations"} <= set(labels)
    assert any("Before training" in label and "2.0" in label for label in labels)
    assert any("After training" in label and "1.0" in label for label in labels)


def test_picture_needs_no_display_and_leaves_pyplot_alone(tmp_path):
    pytest.importorskip("matplotlib")
    code = (
        "import series, kernels, picture, training; from pathlib import Path; "
        "start = training.mapped(float, kernels.START); fit = training.Fit(start, start, (0.0, 0.0), (0.0, 0.0)); "
        "picture.draw(Path(sys.argv[1]), series.last(20), fit, 'x'); assert 'matplotlib.pyplot' not in sys.modules"
    )
    path = tmp_path / "fit.png"
    done = process(path, code=code, env=os.environ | {"PYTHONWARNINGS": "error"})
    assert done.returncode == 0, done.stderr
    assert path.stat().st_size > 10_000


def test_picture_is_written_on_demand_only(trained, monkeypatch, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    trained()
    monkeypatch.chdir(tmp_path)
    assert run.main(ARGUMENTS) == 0
    assert "--picture fit.png" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    assert run.main([*ARGUMENTS, "--picture", "fit.svg"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["fit.svg"]
    assert "fit.svg" in capsys.readouterr().out


def test_picture_that_cannot_be_written_is_seen(trained, monkeypatch, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    trained()

    def full(path, *rest):
        raise OSError("no space left on device")

    monkeypatch.setattr(picture, "draw", full)
    assert run.main([*ARGUMENTS, "--picture", str(tmp_path / "fit.png")]) == 1
    assert "no space left on device" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("name", "said"),
    [("fit.jpg", ".png or .svg"), ("fit", ".png or .svg"), ("none/fit.png", "no directory"), (".", ".png or .svg")],
)
def test_wrong_picture_is_refused_before_anything_runs(name, said, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as error:
        run.main(["--picture", name])
    assert error.value.code == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.out == ""


def test_picture_is_no_directory(tmp_path, capsys):
    (tmp_path / "fit.png").mkdir()
    with pytest.raises(SystemExit) as error:
        run.main(["--picture", str(tmp_path / "fit.png")])
    assert error.value.code == 2
    assert "is a directory" in capsys.readouterr().err


def test_picture_without_matplotlib(tmp_path):
    code = "sys.modules['matplotlib'] = None; from run import main; main(sys.argv[1:])"
    done = process("--picture", tmp_path / "fit.png", code=code)
    assert done.returncode == 2
    assert "pip install matplotlib" in done.stderr
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())
