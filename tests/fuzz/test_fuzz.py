"""Generated programs give what the same programs written by hand for the right answers give."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import adprotocol
from adprotocol._dispatch.table import BINDINGS
from fuzz import __main__ as command
from fuzz import oracle, outcome, shrink, source, torch_side
from fuzz.program import Apply, Branch, Function, Operation

PROGRAMS = {"jax": 50, "torch": 70, "autograd": 70, "compiled": 10}
SEED = 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_right_or_refused_or_loud(name):
    counts = Counter()
    for i in range(PROGRAMS[name]):
        result = outcome.numbered(name, SEED, i)
        counts[result.outcome] += 1
        if result.outcome in outcome.FAILURES:
            pytest.fail(f"{result.outcome}: seed {SEED}, program {i}\n{shrink.shrink(result).repro}")
    # Where the framework refuses the program by hand, nothing was shown.
    assert counts[outcome.RIGHT] >= 0.8 * PROGRAMS[name]


# Not autograd with True: its plugin is asked about boxes alone, and for those True is right.
@pytest.mark.parametrize(
    ("name", "answer"), [("jax", False), ("jax", True), ("torch", False), ("torch", True), ("autograd", False)]
)
def test_the_oracle_notices_a_plugin_that_always_answers_the_same(name, answer, monkeypatch):
    # Loads the framework, then its plugin.
    adprotocol.explain(outcome.FRAMEWORKS[name].names["const"](1.0))
    bindings = [binding for binding in vars(BINDINGS).values() if getattr(binding, "framework", None) == name]
    assert bindings
    for binding in bindings:
        monkeypatch.setattr(binding, "within_gradient", lambda _: answer)
        monkeypatch.setattr(binding, "any_within_gradient", lambda _: answer)
    count = 12 if name == "jax" else 60
    results = [outcome.numbered(name, 0, i) for i in range(count)]
    wrong = [result for result in results if result.outcome == outcome.WRONG]
    assert len(wrong) >= count // 12
    # Each asks a question to which the answer is the other.
    assert all((not answer) in result.asked for result in wrong)


def branching(asked, transforms, *, operand="x1"):
    """Return a program that asks about a value inside transformations, and the name of its branch."""
    true = Function("t", "a", (Operation("b", "square", ("a",), 0.0),), ("b",), 1.25)
    false = Function("f", "c", (Operation("d", "square", ("c",), 0.0),), ("d",), 0.625)
    body = (Branch("q", (asked,), 0, "none", true, false, operand),)
    for i, transform in reversed(list(enumerate(transforms, 1))):
        function = Function(f"f{i + 1}", f"x{i + 1}", body, (body[-1].name,))
        body = (Apply(f"y{i}", transform, function, f"x{i}"),)
    return Function("f1", "x1", body, (body[-1].name,))


@pytest.mark.parametrize(
    ("asked", "transforms", "answer"),
    [
        ("x1", (), False),
        ("x2", ("vmap",), False),
        ("x1", ("grad",), False),
        ("x2", ("grad",), True),
        ("x2", ("backward", "no_grad"), False),
        ("x3", ("grad", "no_grad"), False),
        ("x2", ("no_grad", "grad"), False),
        ("x3", ("no_grad", "grad"), True),
        ("x3", ("jvp", "no_grad"), True),
        ("x2", ("grad", "no_grad", "grad"), False),
        ("x3", ("grad", "no_grad", "jvp"), False),
        ("x4", ("grad", "grad", "no_grad"), False),
    ],
)
def test_the_oracle_answers_from_the_structure(asked, transforms, answer):
    assert oracle.answers(branching(asked, transforms), torch_side.KINDS) == {"q": answer}


def test_the_oracle_takes_the_innermost_level_off_for_a_custom_rule():
    from fuzz import jax_side

    for transforms, answer in (
        (("custom_jvp",), False),
        (("jvp", "custom_jvp"), False),
        (("jvp",) * 2 + ("custom_jvp",), True),
    ):
        program = branching(f"x{len(transforms) + 1}", transforms, operand=f"x{len(transforms) + 1}")
        assert oracle.answers(program, jax_side.KINDS) == {"q": answer}


def test_a_seed_names_the_same_program_each_time():
    first, again, other = (outcome.numbered("torch", seed, 0).ours for seed in (1, 1, 2))
    assert first == again != other


def test_the_two_ways_differ_in_the_questions_alone():
    program = branching("x2", ("grad",), operand="x2")
    answers = oracle.answers(program, torch_side.KINDS)
    assert "cond(within_gradient(x2), t, f, x2)" in source.ours(program, answers)
    by_hand = source.by_hand(program, answers)
    assert "q = t(x2)  # True" in by_hand
    assert not any(word in by_hand for word in ("within_gradient", "cond("))


def test_a_wrong_program_is_made_small(monkeypatch):
    monkeypatch.setitem(outcome.OURS, "within_gradient", lambda *_: False)
    results = (outcome.numbered("autograd", SEED, i) for i in range(40))
    wrong = max((r for r in results if r.outcome == outcome.WRONG), key=lambda result: len(result.ours))
    small = shrink.shrink(wrong)
    assert small.outcome == outcome.WRONG
    assert small.ours.count("within_gradient") == 1
    assert len(small.ours.splitlines()) <= 10


def test_the_command_counts_and_shows_a_repro_that_runs(capsys, monkeypatch):
    assert command.main(["5", "--framework", "autograd"]) == 0
    printed = capsys.readouterr().out
    assert "autograd" in printed
    assert "wrong" in printed

    monkeypatch.setitem(outcome.OURS, "within_gradient", lambda *_: False)
    assert command.main(["40", "--framework", "autograd"]) == 1
    assert "# wrong: autograd, seed 0, program" in capsys.readouterr().out
    wrong = next(r for r in (outcome.numbered("autograd", 0, i) for i in range(40)) if r.outcome == outcome.WRONG)
    done = subprocess.run(
        [sys.executable, "-c", wrong.repro], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True
    )
    # Without the patch it is right.
    by_hand, ours = map(float, done.stdout.split())
    assert by_hand == pytest.approx(float(wrong.want))
    assert ours == pytest.approx(by_hand)
