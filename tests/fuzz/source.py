"""A program as Python, in two ways: with adprotocol, and written by hand for the answers of the oracle."""

from fuzz import structures
from fuzz.program import Apply, Branch, Constant, Gradient, Operation

INDENT = "    "
OPERATIONS = {
    "square": "{0} * {0}",
    "sine": "sin({0})",
    "scale": "{0} * {number}",
    "shift": "{0} + {number}",
    "product": "{0} * {1}",
    "sum": "{0} + {number} * {1}",
    "constant": "const({number})",
    "backward_only": "backward_only({0})",
    # On PyTorch alone.
    "inplace": "inplace({0}, {number})",
    "part": "{0} * quietly(sin)({1})",
}
# Values made constant, and what they are by hand.
CONSTANTS = {
    "value": ("non_differentiable({0})", "stop({0})"),
    "dict": ('non_differentiable({{"a": [{0}], "b": 1}})["a"][0]', "stop({0})"),
    "model": ("non_differentiable((Model({0}, None), 1.0))[0].x", "stop({0})"),
    "label": ("NonDifferentiable({0}) * 1.5", "stop({0}) * 1.5"),
    # On JAX alone: what has no derivative.
    "callback": ("callback(non_differentiable({0}))", "callback(stop({0}))"),
}


class _Writer:
    """Write functions; a subclass for each of the two ways says what differs."""

    label: str

    def __init__(self, answers):
        self.answers = answers

    def function(self, function, pack="{0}"):
        """Return the lines of a function."""
        lines = [f"def {function.name}({function.param}):"]
        body = [line for statement in function.statements for line in self._statement(statement)]
        result = " + ".join(
            name if i == 0 else f"{round(0.5 + 0.125 * i, 3)} * {name}" for i, name in enumerate(function.results)
        )
        if function.factor is not None:
            result = f"{function.factor} * ({result})"
        if pack != "{0}":
            body.append(f"result = {result}")
            result = pack.format("result", label=self.label)
        body.append(f"return {result}")
        return lines + [INDENT + line for line in body]

    def _statement(self, statement):
        name = statement.name
        match statement:
            case Operation(kind=kind, args=args, number=number):
                return [f"{name} = {OPERATIONS[kind].format(*args, number=number)}"]
            case Apply(transform=transform, function=function, operand=operand):
                return [*self.function(function), f"{name} = {transform}({function.name})({operand})"]
            case Constant():
                return self.constant(statement)
            case Branch():
                return self.branch(statement)
            case Gradient():
                return self.gradient(statement)
        raise TypeError(statement)


class Ours(_Writer):
    """With adprotocol."""

    label = "NonDifferentiable"

    def constant(self, statement):
        name, operand = statement.name, statement.operand
        if statement.function is not None:
            return [
                "@non_differentiable",
                *self.function(statement.function),
                f"{name} = {statement.function.name}({operand})",
            ]
        return [f"{name} = {CONSTANTS[statement.how][0].format(operand)}"]

    def branch(self, statement):
        pack, unpack = structures.RETURNED[statement.container]
        parameters, taken, operands = structures.PASSED[statement.passed]
        values = (statement.operand, statement.other)
        true, false = (
            function.name if statement.passed == "scalar" else f"lambda {parameters}: {function.name}({taken})"
            for function in (statement.true, statement.false)
        )
        given = ", ".join(part for part in (true, false, operands) if part).format(*values)
        return [
            *self.function(statement.true, pack),
            *self.function(statement.false, pack),
            f"{statement.name} = cond({self._predicate(statement)}, {given})",
            *_unpacked(statement.name, unpack),
        ]

    def _predicate(self, statement):
        if self.answers.get(statement.name, False) is None:
            # The structure does not tell.
            return "True"
        asked = ", ".join(form.format(x) for form, x in zip(shapes(statement), statement.asked, strict=True))
        return f"within_gradient({structures.JOINT.format(asked) if statement.is_joint else asked})"

    def gradient(self, statement):
        call = structures.GRADIENTS[statement.container]
        name, function = statement.name, statement.function
        given = {"x": statement.operand, "y": statement.other}
        return [
            *self.function(function),
            f"{name} = {call.call.format(f=function.name, **given)}",
            f"{name} = 0.5 * ({call.value.format(n=name, **given)}) + {call.gradient.format(n=name)}",
        ]


class ByHand(_Writer):
    """With the framework alone: each branch chosen, `stop` and `native_value_and_…` those of the framework."""

    label = "stop"

    def __init__(self, answers, unknown=None):
        super().__init__(answers)
        self.unknown = unknown

    def constant(self, statement):
        name, operand = statement.name, statement.operand
        if statement.function is not None:
            return [*self.function(statement.function), f"{name} = stop({statement.function.name}(stop({operand})))"]
        return [f"{name} = {CONSTANTS[statement.how][1].format(operand)}"]

    def branch(self, statement):
        pack, unpack = structures.RETURNED[statement.container]
        runs_both = self.unknown is not None
        answer = self.answers.get(statement.name, self.unknown) if runs_both else self.answers[statement.name]
        chosen, other = statement.true, statement.false
        if answer is False:
            chosen, other = other, chosen
        taken = structures.TAKEN.get(statement.passed, "{0}").format(statement.operand, statement.other)
        first = [*self.function(other, pack), f"{other.name}({taken})"] if runs_both else []
        return [
            *first,
            *self.function(chosen, pack),
            f"{statement.name} = {chosen.name}({taken})  # {answer}",
            *_unpacked(statement.name, unpack),
        ]

    def gradient(self, statement):
        call = structures.GRADIENTS[statement.container]
        name, function = statement.name, statement.function
        parts = {"f": function.name, "x": statement.operand, "y": statement.other}
        result = f"0.5 * {name}[0] + {name}[1]" + (f" + {call.more.format(**parts)}" if call.more else "")
        derivative = "native_value_and_push" if "jvp" in call.by else "native_value_and_grad"
        return [
            *self.function(function),
            f"{name} = {derivative}({call.by_hand.format(**parts)})({call.at.format(**parts)})",
            f"{name} = {result}",
        ]


def shapes(branch):
    """Return how each value of a question is passed; of several, each in another way."""
    count = len(structures.ASKED)
    return [structures.ASKED[(branch.shape + i) % count] for i in range(len(branch.asked))]


def _unpacked(name, unpack):
    return [] if unpack == "{0}" else [f"{name} = {unpack.format(name)}"]


def ours(program, answers):
    """Return a program as Python with adprotocol."""
    return "\n".join(Ours(answers).function(program)) + "\n"


def by_hand(program, answers, unknown=None):
    """Return a program as Python without adprotocol.

    With `unknown`, the answer in branches that are not chosen, it runs these too.
    """
    return "\n".join(ByHand(answers, unknown).function(program)) + "\n"
