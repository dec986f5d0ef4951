"""The answers to the questions of a program, from its structure alone.

A level is one transformation that differentiates. The activity of a value is the set
of levels through which an operation on it would carry a derivative. Where the set is
not certain (what a derivative returns may or may not depend on an outer variable; a
framework may carry zeros), it lies between `must` and `may`, and a question on which
the two differ has no answer here: it is not asked.
"""

from dataclasses import dataclass

from fuzz import source, structures
from fuzz.program import Apply, Branch, Constant, Gradient, Operation

NOTHING = frozenset()
# How a level treats grad mode: that of PyTorch's engine, one of torch.func, or none of both.
TAPE, FUNC, WITHOUT = "tape", "func", "without"


@dataclass(frozen=True)
class Activity:
    """The levels that a value is certainly differentiated at, and those that it may be."""

    must: frozenset = NOTHING
    may: frozenset = NOTHING

    def __or__(self, other):
        return Activity(self.must | other.must, self.may | other.may)

    def without(self, levels):
        return Activity(self.must - levels, self.may - levels)


class Oracle:
    """Follow the activity of every value of a program, and note the answer to each question by the branch's name."""

    def __init__(self, transforms):
        self.answers = {}
        self._transforms = transforms
        self._count = 0
        # The open levels of torch.func, each with the grad mode that it was entered in.
        self._entered = []
        self._mode = True
        self._heeds = {}
        self._is_dead = 0

    def run(self, function, env, activity):
        """Return the activity of the result of a function."""
        env = {**env, function.param: activity}
        for statement in function.statements:
            env[statement.name] = _STATEMENTS[type(statement)](self, statement, env)
        if len(function.results) == 1 and function.factor is None:
            return env[function.results[0]]
        return self._operation(*(env[name] for name in function.results))

    def _operation(self, *activities):
        united = Activity()
        for activity in activities:
            united |= activity
        return united.without(self._off(united.may))

    def _off(self, levels):
        """Return the levels that record nothing now: a mode switched off is off for every level below it too."""
        off, found = not self._mode, set()
        for level, entered in reversed(self._entered):
            if off and self._heeds[level] == FUNC:
                found.add(level)
            off = off or not entered
        return levels & (found | {level for level in levels if off and self._heeds[level] == TAPE})

    def _run_operation(self, statement, env):
        activities = [env[name] for name in statement.args]
        found = self._operation(*activities)
        # Forward mode of the framework passes through a part under no_grad.
        return Activity(self._operation(activities[0]).must, found.may) if statement.kind == "part" else found

    def _constant(self, statement, env):
        if statement.function is not None:
            self.run(statement.function, env, Activity())
        return Activity()

    def _branch(self, statement, env):
        # Not what is asked about as a label: that is a constant.
        shapes = zip(statement.asked, source.shapes(statement), strict=True)
        asked = self._operation(*(env[name] for name, shape in shapes if shape != structures.LABEL))
        answer = True if asked.must else False if not asked.may else None
        if not self._is_dead:
            self.answers[statement.name] = answer
        operand, second = env[statement.operand], env.get(statement.other, Activity())
        given = operand
        if statement.passed in structures.TAKEN:
            given = self._operation(operand, Activity() if statement.passed == "label" else second)
        chosen, other = (statement.false, statement.true) if answer is False else (statement.true, statement.false)
        found = self._operation(self.run(chosen, env, given))
        self._is_dead += 1
        # A staged cond differentiates both branches, and cond connects every operand.
        unused = self._operation(self.run(other, env, given))
        self._is_dead -= 1
        return Activity(found.must, found.may | unused.may | operand.may | second.may)

    def _apply(self, statement, env):
        kind = self._transforms[statement.transform]
        return _APPLY[kind.split()[0]](self, kind, statement.function, env, env[statement.operand])

    def _gradient(self, statement, env):
        found = self._differentiate("engine", statement.function, env, env[statement.operand])
        if structures.GRADIENTS[statement.container].has_other:
            found = self._hedged(found | env[statement.other])
        return found

    def _hedged(self, activity):
        """Return the activity of a value on which a transformation may have operated."""
        return Activity(self._operation(activity).must, activity.may)

    def _plain(self, _kind, function, env, operand):
        return self._hedged(self.run(function, env, self._hedged(operand)))

    def _switched(self, kind, function, env, operand):
        before, self._mode = self._mode, kind == "enable_grad"
        try:
            return self.run(function, env, operand)
        finally:
            self._mode = before

    def _reentrant(self, _kind, function, env, operand):
        """Run the function without gradients; the derivative is that with respect to the argument alone."""
        found = self._switched("no_grad", function, env, operand)
        return self._hedged(Activity(operand.must, found.may | operand.may))

    def _either(self, _kind, function, env, operand):
        return self.run(function, env, operand) | operand

    def _loop(self, _kind, function, env, operand):
        carry, before = operand, None
        while carry != before:
            before, carry = carry, carry | self.run(function, env, carry)
        return carry

    def _custom(self, _kind, function, env, operand):
        """Take off the innermost level, which the rule by hand serves; the rule runs the function below it."""
        must = operand.must - {max(operand.must, default=None)}
        may = operand.may - {max(operand.may, default=None)}
        found = self.run(function, env, Activity(must, may))
        return Activity(found.must | operand.must, found.may | operand.may)

    def _hidden(self, _kind, function, env, operand):
        """Run the function as the forward of a rule that no level sees into."""
        # The argument keeps its mark of the engine, which counts where grad mode is switched on again.
        marked = frozenset(level for level in operand.may if self._heeds[level] != FUNC)
        self._switched("no_grad", function, env, Activity(NOTHING, marked))
        return self._hedged(operand)

    def _differentiate(self, kinds, function, env, operand):
        """Enter a level; of two kinds, the first is that of the outer level."""
        kind, _, inner = kinds.partition(" ")
        self._count += 1
        level = self._count
        new = frozenset({level})
        self._heeds[level] = {"tape": TAPE, "cut": TAPE, "func": FUNC}.get(kind, WITHOUT)
        before = self._mode
        if kind not in ("tape", "cut"):
            operand = self._hedged(operand)
        if kind == "func":
            self._entered.append((level, before))
        if kind in ("tape", "cut", "func"):
            self._mode = True
        if kind == "cut":
            operand = Activity()
        inside = operand | Activity(new, new)
        found = self._differentiate(inner, function, env, inside) if inner else self.run(function, env, inside)
        self._mode = before
        if kind == "func":
            self._entered.pop()
        if kind == "cut":
            return Activity()
        # A graph that was made with create_graph stays connected to the variable of its level.
        may = (found.may | operand.may) - (NOTHING if kind == "tape" else new)
        # What returns the value along with the derivative keeps what is certain about the value.
        must = found.must - new if kind in ("forward", "engine") else NOTHING
        return self._hedged(Activity(must, may))


_STATEMENTS = {
    Operation: Oracle._run_operation,
    Constant: Oracle._constant,
    Branch: Oracle._branch,
    Apply: Oracle._apply,
    Gradient: Oracle._gradient,
}
_APPLY = {
    "plain": Oracle._plain,
    "no_grad": Oracle._switched,
    "enable_grad": Oracle._switched,
    "either": Oracle._either,
    "primitive": Oracle._either,
    "loop": Oracle._loop,
    "custom": Oracle._custom,
    "hidden": Oracle._hidden,
    "reentrant": Oracle._reentrant,
    "func": Oracle._differentiate,
    "tape": Oracle._differentiate,
    "cut": Oracle._differentiate,
    "reverse": Oracle._differentiate,
    "forward": Oracle._differentiate,
    "tangent": Oracle._differentiate,
}


def answers(program, transforms):
    """Return the answer at each branch of a program: True, False, or None where the structure does not tell."""
    oracle = Oracle(transforms)
    oracle.run(program, {}, Activity())
    return oracle.answers
