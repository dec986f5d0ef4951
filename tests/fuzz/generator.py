"""Random programs, each drawn from a `random.Random`."""

from fuzz import structures
from fuzz.program import Apply, Branch, Constant, Function, Gradient, Operation

DEPTH = 4
UNARY = ("square", "sine", "scale", "shift")
BINARY = ("product", "sum")
# Operations without forward mode, which products with a tangent do without.
BACKWARD_ONLY = "backward_only"
NUMBERS = (0.5, -0.75, 1.25, 0.375, -1.5)
OUTSIDE, SWITCHED = ("custom", "hidden", "primitive"), ("no_grad", "hidden")
# What a transformation may bar inside of it, beside other transformations: a call of `value_and_grad`, and a question.
ENGINE, QUESTION = "engine", "question"


class _Generator:
    """Draw one program; `budget` bounds its statements."""

    def __init__(self, random, framework):
        self.random = random
        self.transforms = framework.transforms
        self.refused = framework.refused
        self.extras = framework.extras
        self.budget = framework.budget
        self.count = 0
        # How much the operations of the framework weigh: more in what is pushed forward.
        self.weight = 1

    def fresh(self, letter):
        self.count += 1
        return f"{letter}{self.count}"

    def function(self, depth, scope, *, barred=(), factor=None, may_nest=True):
        """Draw a function that sees the names in `scope`; `barred` are transformations not for it."""
        name, param = self.fresh("f"), self.fresh("x")
        scope = [*scope, param]
        statements = []
        for i in range(self.random.randint(1, 3)):
            if i and self.budget <= 0:
                break
            self.budget -= 1
            statement = self.statement(depth, scope, barred, must_nest=may_nest and i == 0, may_nest=may_nest)
            statements.append(statement)
            scope.append(statement.name)
        mine = [statement.name for statement in statements]
        results = [mine[-1]]
        results += [name for name in mine[:-1] if self.random.random() < 0.7]
        if self.random.random() < 0.3:
            results.append(param)
        return Function(name, param, tuple(statements), tuple(results), factor)

    def statement(self, depth, scope, barred, *, must_nest, may_nest):
        if must_nest and depth and self.random.random() < 0.75:
            is_ours = ENGINE not in barred and self.random.random() < 0.2
            return (self.gradient if is_ours else self.apply)(depth, scope, barred)
        if must_nest and self.budget > 0 and QUESTION not in barred and self.random.random() < 0.75:
            return self.branch(depth, scope, barred)
        kind = self.random.choice(("operation", "operation", "branch", "branch", "constant", "gradient", "apply"))
        if self.budget > 0 and may_nest:
            if kind == "branch" and QUESTION not in barred:
                return self.branch(depth, scope, barred)
            if kind == "apply" and depth:
                return self.apply(depth, scope, barred)
            if kind == "gradient" and depth and ENGINE not in barred:
                return self.gradient(depth, scope, barred)
        if kind == "constant":
            return self.constant(scope)
        return self.operation(scope, barred)

    def pick(self, scope):
        """Draw a name, one of the last three in half of the cases."""
        return self.random.choice(scope[-3:] if self.random.random() < 0.5 else scope)

    def operation(self, scope, barred):
        kind = self.random.choice((*UNARY, *self.extras("OPERATIONS") * self.weight, *BINARY, *BINARY, "constant"))
        kind = "sine" if kind in barred else kind
        number = self.random.choice(NUMBERS)
        count = 0 if kind == "constant" else 2 if kind in (*BINARY, "part") else 1
        return Operation(self.fresh("x"), kind, tuple(self.pick(scope) for _ in range(count)), number)

    def constant(self, scope):
        how = self.random.choice(("value", "dict", "model", "label", "decorator", *self.extras("CONSTANTS")))
        function = self.function(0, scope, may_nest=False) if how == "decorator" else None
        return Constant(self.fresh("x"), how, self.pick(scope), function)

    def branch(self, depth, scope, barred):
        true = self.function(depth, scope, barred=barred, factor=1.25, may_nest=self.random.random() < 0.6)
        false = self.function(depth, scope, barred=barred, factor=0.625, may_nest=self.random.random() < 0.6)
        asked = tuple(self.pick(scope) for _ in range(self.random.choice((1, 1, 2, 3))))
        container = self.random.choice(("none", *structures.RETURNED))
        passed = self.random.choice(("scalar", "scalar", *structures.PASSED))
        other = "" if passed in ("scalar", "closure") else self.pick(scope)
        # Half of the values as they are, the others as and in containers.
        shape = self.random.choice((0, self.random.randrange(len(structures.ASKED))))
        is_joint = self.random.random() < 0.2
        return Branch(self.fresh("x"), asked, shape, container, true, false, self.pick(scope), passed, other, is_joint)

    def gradient(self, depth, scope, barred):
        inside = (*barred, *self.refused[ENGINE])
        function = self.function(depth - 1, scope, barred=inside)
        # A call around another with the same module differentiates both, for its parameters are in place there.
        extras = () if "module" in repr(function) else self.extras("GRADIENTS") * 3
        by = {name: structures.GRADIENTS[name].by for name in structures.COMMON}
        able = [name for name in by if {*by[name]}.isdisjoint(barred) for _ in range(3 if "jvp" in by[name] else 1)]
        container = self.random.choice((*able, *extras))
        call = structures.GRADIENTS[container]
        if call.is_closed or call.by:
            refused = {name for one in call.by for name in self.refused.get(one, ())} - {BACKWARD_ONLY}
            inside = (*inside, *sorted(refused))
            self.weight = 5 if "jvp" in call.by else 1
            function = self.function(depth - 1, [] if call.is_closed else scope, barred=inside)
            self.weight = 1
        return Gradient(self.fresh("x"), function, self.pick(scope), container, self.pick(scope))

    def apply(self, depth, scope, barred):
        names = [name for name in sorted(self.transforms) if name not in barred]
        if not names:
            return self.operation(scope, barred)
        transform = self.random.choice(names)
        kind = self.transforms[transform]
        # A rule or primitive may not close over what is differentiated, and the modes of a gradient call are its own.
        inside = [] if kind in OUTSIDE else scope
        barred = (*barred, ENGINE) if kind in SWITCHED else barred
        barred = (*barred, *self.refused.get(transform, ()))
        return Apply(self.fresh("x"), transform, self.function(depth - 1, inside, barred=barred), self.pick(scope))


def draw(random, framework):
    """Return a random program for a framework."""
    generator = _Generator(random, framework)
    around = framework.around(random)
    barred = [name for one in around for name in framework.refused[one]]
    program = generator.function(DEPTH, [], barred=barred)
    for transform in reversed(around):
        name, param, result = generator.fresh("f"), generator.fresh("x"), generator.fresh("x")
        program = Function(name, param, (Apply(result, transform, program, param),), (result,))
    return program
