"""A program as Python, in two ways: with adprotocol, and written by hand for the answers of the oracle."""

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
}
SHAPES = ("{0}", '{{"a": {0}}}', "[{0}, 2.0]", '({{"b": [None, {0}]}}, "name")')
RESULTS = {
    "none": ("{0}", "{0}"),
    "dict": ('{{"a": {0}, "b": [{0} * 2.0]}}', '{0}["a"] - 0.25 * {0}["b"][0]'),
    "tuple": ("({0}, (3.0, {0} * {0}))", "{0}[0] + 0.5 * {0}[1][1]"),
}
GRADIENTS = {
    "none": ("value_and_grad({f})({x})", "{name}[1]"),
    "dict": (
        'value_and_grad(lambda p: {f}(p["x"]) * p["n"])({{"x": {x}, "n": NonDifferentiable(1.0)}})',
        '{name}[1]["x"]',
    ),
}


class _Writer:
    """Write functions; a subclass for each of the two ways says what differs."""

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
            result = pack.format("result")
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

    def constant(self, statement):
        name, operand = statement.name, statement.operand
        if statement.function is not None:
            return [
                "@non_differentiable",
                *self.function(statement.function),
                f"{name} = {statement.function.name}({operand})",
            ]
        forms = {
            "value": "non_differentiable({0})",
            "dict": 'non_differentiable({{"a": [{0}], "b": 1}})["a"][0]',
            "label": "NonDifferentiable({0}) * 1.5",
        }
        return [f"{name} = {forms[statement.how].format(operand)}"]

    def branch(self, statement):
        pack, unpack = RESULTS[statement.container]
        asked = ", ".join(SHAPES[(statement.shape + i) % len(SHAPES)].format(x) for i, x in enumerate(statement.asked))
        # Where the structure does not tell, the predicate is a plain True.
        is_open = self.answers.get(statement.name, False) is None
        predicate = "True" if is_open else f"within_gradient({asked})"
        true, false = statement.true, statement.false
        return [
            *self.function(true, pack),
            *self.function(false, pack),
            f"{statement.name} = cond({predicate}, {true.name}, {false.name}, {statement.operand})",
            *_unpacked(statement.name, unpack),
        ]

    def gradient(self, statement):
        call, gradient = GRADIENTS[statement.container]
        name, function = statement.name, statement.function
        call = call.format(f=function.name, x=statement.operand)
        return [
            *self.function(function),
            f"{name} = {call}",
            f"{name} = 0.5 * {name}[0] + {gradient.format(name=name)}",
        ]


class ByHand(_Writer):
    """With the framework alone: each branch chosen, `stop` and `native_value_and_grad` those of the framework."""

    def constant(self, statement):
        name, operand = statement.name, statement.operand
        if statement.function is not None:
            return [*self.function(statement.function), f"{name} = stop({statement.function.name}(stop({operand})))"]
        times = " * 1.5" if statement.how == "label" else ""
        return [f"{name} = stop({operand}){times}"]

    def branch(self, statement):
        pack, unpack = RESULTS[statement.container]
        chosen = statement.false if self.answers[statement.name] is False else statement.true
        return [
            *self.function(chosen, pack),
            f"{statement.name} = {chosen.name}({statement.operand})  # {self.answers[statement.name]}",
            *_unpacked(statement.name, unpack),
        ]

    def gradient(self, statement):
        name, function = statement.name, statement.function
        return [
            *self.function(function),
            f"{name} = native_value_and_grad({function.name})({statement.operand})",
            f"{name} = 0.5 * {name}[0] + {name}[1]",
        ]


def _unpacked(name, unpack):
    return [] if unpack == "{0}" else [f"{name} = {unpack.format(name)}"]


def ours(program, answers):
    """Return a program as Python with adprotocol."""
    return "\n".join(Ours(answers).function(program)) + "\n"


def by_hand(program, answers):
    """Return a program as Python without adprotocol."""
    return "\n".join(ByHand(answers).function(program)) + "\n"
