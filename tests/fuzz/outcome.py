"""Run a program in both ways and compare."""

import importlib
import math
import random
import sys
import types
import warnings
from dataclasses import dataclass

import adprotocol
from fuzz import generator, oracle, source
from fuzz.program import Function
from fuzz.structures import Model

RIGHT, REFUSED, LOUD, BROKEN, WRONG = "right", "refused", "loud", "broken", "wrong"
# What each outcome means; the last two are failures.
OUTCOMES = {
    RIGHT: "the result of the program written by hand",
    REFUSED: "the framework refuses the program written by hand",
    LOUD: "an error of adprotocol",
    BROKEN: "an error that is none of adprotocol's",
    WRONG: "another result, and no error",
}
FAILURES = (BROKEN, WRONG)
POINT = 0.7
RELATIVE = 1e-5
OURS = {
    name: getattr(adprotocol, name)
    for name in ("NonDifferentiable", "cond", "non_differentiable", "value_and_grad", "within_gradient")
}


@dataclass(frozen=True)
class Framework:
    """A framework to generate programs for: `side` is the module whose names they use."""

    name: str
    side: str
    budget: int
    prefix: str = ""
    is_compiled: bool = False

    @property
    def names(self):
        return vars(importlib.import_module(f"fuzz.{self.side}"))

    @property
    def transforms(self):
        return self.names[f"{self.prefix}KINDS"]

    @property
    def refused(self):
        return self.names[f"{self.prefix}REFUSED"]

    def extras(self, what):
        """Return what the framework has besides what all have."""
        return self.names.get(f"{self.prefix}{what}", ())

    def around(self, random):
        """Draw the transformations around a program."""
        choices = self.extras("AROUND")
        return random.choice(choices) if choices else ()


FRAMEWORKS = {
    framework.name: framework
    for framework in (
        Framework("jax", "jax_side", 10),
        Framework("torch", "torch_side", 14),
        Framework("autograd", "autograd_side", 14),
        Framework("compiled", "torch_side", 8, "COMPILED_", is_compiled=True),
    )
}


@dataclass(frozen=True)
class Result:
    """The outcome of a program, with both results or errors as text, and how many questions it asks."""

    program: Function
    framework: Framework
    outcome: str
    ours: str
    by_hand: str
    got: str
    want: str
    asked: tuple[bool, ...]

    @property
    def repro(self):
        """Return Python to run in tests/."""
        name = self.program.name
        lines = [
            f"from fuzz.{self.framework.side} import *",
            "from fuzz.structures import Model",
            f"from adprotocol import {', '.join(OURS)}",
            "",
            self.ours,
            f"ours = {name}",
            "",
            self.by_hand,
            f"by_hand = {name}",
            "",
            "with precision():",
            f"    print(by_hand(const({POINT})))  # {self.want}",
            f"    print(ours(const({POINT})))  # {self.got}",
        ]
        return "\n".join(lines)


def _evaluate(framework, text, name):
    if framework.is_compiled:
        framework.names["clear"]()
    # A module, for Dynamo looks its names up there.
    module = types.ModuleType("generated")
    sys.modules[module.__name__] = module
    names = vars(module)
    names.update({key: value for key, value in framework.names.items() if not key.startswith("__")})
    names.update(OURS, Model=Model)
    exec(compile(text, "<generated>", "exec"), names)  # noqa: S102  (what the repro shows is what ran)
    with names["precision"](), warnings.catch_warnings():
        # autograd warns of a result that does not depend on the argument.
        warnings.simplefilter("ignore")
        return float(names[name](names["const"](POINT)))


def _shown(error):
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"


def run(program, framework):
    """Return the result of a program."""
    answers = oracle.answers(program, framework.transforms)
    ours, by_hand = source.ours(program, answers), source.by_hand(program, answers)
    asked = tuple(answer for answer in answers.values() if answer is not None)

    def result(outcome, got, want):
        return Result(program, framework, outcome, ours, by_hand, got, want, asked)

    try:
        want = _evaluate(framework, by_hand, program.name)
    except Exception as error:  # noqa: BLE001  (whatever the framework raises)
        return result(REFUSED, "", _shown(error))
    try:
        got = _evaluate(framework, ours, program.name)
    except adprotocol.ADProtocolError as error:
        return result(LOUD, _shown(error), repr(want))
    except Exception as error:  # noqa: BLE001  (counted and shown)
        refused = _shown(error) in framework.extras("ERRORS")
        refused = refused or _refuses_other_branches(program, framework, answers, _shown(error))
        return result(REFUSED, "", _shown(error)) if refused else result(BROKEN, _shown(error), repr(want))
    # Both may have run over.
    same = math.isclose(got, want, rel_tol=RELATIVE, abs_tol=1e-9) or repr(got) == repr(want)
    return result(RIGHT if same else WRONG, repr(got), repr(want))


def _refuses_other_branches(program, framework, answers, error):
    """Return whether the program by hand raises an error, too, if it runs the other branches: a staged `cond` does."""
    for unknown in (True, False):
        try:
            _evaluate(framework, source.by_hand(program, answers, unknown), program.name)
        except Exception as other:  # noqa: BLE001  (whatever the framework raises)
            if _shown(other) == error:
                return True
    return False


def died(program, framework, error):
    """Return the result of a program that ended its process."""
    answers = oracle.answers(program, framework.transforms)
    texts = source.ours(program, answers), source.by_hand(program, answers)
    return Result(program, framework, BROKEN, *texts, _shown(error), "", ())


def numbered(name, seed, i):
    """Return program `i` of a seed."""
    return generator.draw(random.Random(f"{name} {seed} {i}"), FRAMEWORKS[name])  # noqa: S311  (no secret)
