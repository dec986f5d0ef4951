"""Generated programs give what the same programs written by hand for the right answers give."""

import dataclasses
import random
import re
from collections import Counter

import pytest

import adprotocol
from adprotocol._dispatch.table import BINDINGS
from fuzz import __main__ as command
from fuzz import generator, isolation, jax_side, oracle, outcome, shrink, source, structures, torch_side
from fuzz.program import Apply, Branch, Function, Gradient, Operation


def drawn(name, count, seed=0):
    """Return the results of the first programs of a seed."""
    return [outcome.run(outcome.numbered(name, seed, i), outcome.FRAMEWORKS[name]) for i in range(count)]


PROGRAMS = {"jax": 20, "torch": 40, "autograd": 60, "compiled": 2}
SEED = 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_right_or_refused_or_loud(name):
    counts = Counter()
    for i in range(PROGRAMS[name]):
        result = outcome.run(outcome.numbered(name, SEED, i), outcome.FRAMEWORKS[name])
        counts[result.outcome] += 1
        if result.outcome in outcome.FAILURES:
            pytest.fail(f"{result.outcome}: seed {SEED}, program {i}\n{shrink.shrink(result).repro}")
    # Where the framework refuses the program by hand, nothing was shown.
    assert counts[outcome.RIGHT] >= 0.8 * PROGRAMS[name]


# Not autograd with True: its plugin is asked about boxes alone, and for those True is right.
@pytest.mark.parametrize(("name", "answer"), [("jax", False), ("torch", False), ("torch", True), ("autograd", False)])
def test_the_oracle_notices_a_plugin_that_always_answers_the_same(name, answer, monkeypatch):
    # Loads the framework, then its plugin.
    adprotocol.explain(outcome.FRAMEWORKS[name].names["const"](1.0))
    bindings = [binding for binding in vars(BINDINGS).values() if getattr(binding, "framework", None) == name]
    assert bindings
    for binding in bindings:
        monkeypatch.setattr(binding, "within_gradient", lambda _: answer)
        monkeypatch.setattr(binding, "any_within_gradient", lambda _: answer)
    count = 12 if name == "jax" else 48
    results = drawn(name, count)
    wrong = [result for result in results if result.outcome == outcome.WRONG]
    assert len(wrong) >= count // 12
    # Each asks a question to which the answer is the other, `evaluated` of a module.
    assert all((not answer) in result.asked or (answer and "evaluated(" in result.repro) for result in wrong)


TRUE = Function("t", "a", (Operation("b", "square", ("a",), 0.0),), ("b",), 1.25)
FALSE = Function("f", "c", (Operation("d", "square", ("c",), 0.0),), ("d",), 0.625)


def branching(asked, transforms, *, operand="x1", **fields):
    """Return a program that asks about a value inside transformations, or about the result of the first."""
    question = Branch("q", (asked,), 0, "none", TRUE, FALSE, operand)
    question = dataclasses.replace(question, **fields)
    if asked.startswith("y"):
        inner = Function("g", "x2", (Operation("z", "square", ("x2",), 0.0),), ("z",))
        return Function("f1", "x1", (Apply("y1", transforms[0], inner, "x1"), question), ("q",))
    body = (question,)
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
        ("x2", ("hessian",), True),
        ("x1", ("hessian",), False),
        ("x2", ("accumulate",), True),
        ("x4", ("backward", "no_grad", "enable_grad"), True),
        ("x4", ("backward", "no_grad", "thread"), True),
        ("x3", ("backward", "inference"), False),
        ("x3", ("grad", "function"), False),
        ("x3", ("function", "grad"), True),
        ("x3", ("backward", "reentrant"), False),
        ("y1", ("accumulate",), False),
        # A rule by hand serves the innermost level.
        ("x2", ("custom_jvp",), False),
        ("x3", ("jvp", "custom_jvp"), False),
        ("x4", ("jvp", "jvp", "custom_jvp"), True),
    ],
)
def test_the_oracle_answers_from_the_structure(asked, transforms, answer):
    assert oracle.answers(branching(asked, transforms), jax_side.KINDS | torch_side.KINDS) == {"q": answer}


def test_a_branch_not_chosen_that_the_framework_refuses_is_no_failure():
    # Staged, it is traced too: a loop whose carry differs from device to device after the first step alone.
    function = Function("l", "x9", (Operation("w", "scale", ("x2",), 1.0),), ("w",))
    true = Function("t", "a", (Apply("z", "fori_loop", function, "x1"),), ("z",))
    result = outcome.run(branching("x2", ("shard_map",), true=true), outcome.FRAMEWORKS["jax"])
    assert result.outcome == outcome.REFUSED, result.got


QUESTIONS = [
    *({"shape": i} for i in range(len(structures.ASKED))),
    *({"passed": name, "other": "x1"} for name in structures.PASSED),
    *({"container": name} for name in structures.RETURNED),
    {"is_joint": True},
]


@pytest.mark.parametrize("fields", QUESTIONS, ids=str)
@pytest.mark.parametrize("name", ["jax", "torch", "autograd"])
def test_each_structure_is_right_in_a_question(name, fields):
    # What is tracked and what is not, at the operands too.
    for asked in ("x1", "x2"):
        program = branching(asked, ("grad",), operand="x2", **fields)
        assert outcome.run(program, outcome.FRAMEWORKS[name]).outcome == outcome.RIGHT


CONTAINERS = [
    (name, container)
    for name in ("jax", "torch", "autograd")
    for container in (*structures.COMMON, *outcome.FRAMEWORKS[name].extras("GRADIENTS"))
]


@pytest.mark.parametrize(("name", "container"), CONTAINERS)
def test_each_structure_is_right_in_a_gradient(name, container):
    other = "x3" if structures.GRADIENTS[container].is_closed else "x2"  # what it closes over
    inner = Function("g", "x3", (Operation("z", "product", ("x3", other), 0.0),), ("z",))
    body = (Gradient("y2", inner, "x2", container, "x1"),)
    program = Function("f1", "x1", (Apply("y1", "grad", Function("f2", "x2", body, ("y2",)), "x1"),), ("y1",))
    result = outcome.run(program, outcome.FRAMEWORKS[name])
    assert result.outcome == outcome.RIGHT
    assert float(result.got) != 0.0


@pytest.mark.parametrize("name", outcome.FRAMEWORKS)
def test_the_generator_reaches_each_transformation_and_structure(name):
    framework = outcome.FRAMEWORKS[name]
    drawn = " ".join(repr(generator.draw(random.Random(i), framework)) for i in range(1200))  # noqa: S311
    words = {*framework.transforms, *structures.PASSED, *structures.RETURNED, *structures.COMMON, *source.CONSTANTS}
    words |= {*framework.extras("OPERATIONS"), *framework.extras("GRADIENTS")}
    words -= {"callback"} - {*framework.extras("CONSTANTS")}
    assert {word for word in words if f"'{word}'" not in drawn} == set()


def test_a_program_that_ends_its_process_is_broken_and_the_others_run(monkeypatch):
    monkeypatch.setattr(isolation, "LOADED", [])
    framework = outcome.FRAMEWORKS["autograd"]
    ending = Function("f1", "x1", (Operation("y", "constant", (), "__import__('os')._exit(1)"),), ("y",))
    right = branching("x2", ("grad",), operand="x2")
    results = isolation.every([right, ending, right], framework)
    assert [result.outcome for result in results] == [outcome.RIGHT, outcome.BROKEN, outcome.RIGHT]


# autograd warns of a result that does not depend on the argument.
@pytest.mark.filterwarnings("ignore:Output seems independent")
def test_the_command_counts_and_shows_a_small_repro_that_runs(capsys, monkeypatch):
    here = lambda programs, framework: (outcome.run(program, framework) for program in programs)
    monkeypatch.setattr(isolation, "every", here)
    assert command.main(["5", "--framework", "autograd"]) == 0
    assert re.search(r"autograd +5 +[45] ", capsys.readouterr().out)
    with monkeypatch.context() as always_false:
        always_false.setitem(outcome.OURS, "within_gradient", lambda *_: False)
        assert command.main(["40", "--framework", "autograd"]) == 1
        assert "# wrong: autograd, seed 0, program" in capsys.readouterr().out
        wrong = max((r for r in drawn("autograd", 40) if r.outcome == outcome.WRONG), key=lambda one: len(one.ours))
        small = shrink.shrink(wrong)
        assert small.outcome == outcome.WRONG
        assert small.ours.count("within_gradient") == 1
        assert len(small.ours.splitlines()) <= 11
    exec(small.repro, {})  # noqa: S102
    # Now it is right.
    by_hand, ours = map(float, capsys.readouterr().out.split())
    assert by_hand == pytest.approx(float(small.want))
    assert ours == pytest.approx(by_hand)
