"""Random programs, each drawn from a `random.Random`."""

from fuzz.program import Apply, Branch, Constant, Function, Gradient, Operation

DEPTH = 4
UNARY = ("square", "sine", "scale", "shift")
BINARY = ("product", "sum")
NUMBERS = (0.5, -0.75, 1.25, 0.375, -1.5)
CUSTOM, NO_GRAD = "custom", "no_grad"


class _Generator:
    """Draw one program; `budget` bounds its statements."""

    def __init__(self, random, framework):
        self.random = random
        self.transforms = framework.transforms
        self.refused = framework.refused
        self.budget = framework.budget
        self.count = 0

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
            return self.apply(depth, scope, barred)
        if must_nest and self.budget > 0 and self.random.random() < 0.75:
            return self.branch(depth, scope, barred)
        kind = self.random.choice(("operation", "operation", "branch", "branch", "constant", "gradient", "apply"))
        if self.budget > 0 and may_nest:
            if kind == "branch":
                return self.branch(depth, scope, barred)
            if kind == "apply" and depth:
                return self.apply(depth, scope, barred)
            if kind == "gradient" and depth and "engine" not in barred:
                function = self.function(depth - 1, scope, barred=(*barred, NO_GRAD))
                container = self.random.choice(("none", "dict"))
                return Gradient(self.fresh("x"), function, self.pick(scope), container)
        if kind == "constant":
            return self.constant(scope)
        return self.operation(scope)

    def pick(self, scope):
        """Draw a name, one of the last three in half of the cases."""
        return self.random.choice(scope[-3:] if self.random.random() < 0.5 else scope)

    def operation(self, scope):
        kind = self.random.choice((*UNARY, *BINARY, *BINARY, "constant"))
        number = self.random.choice(NUMBERS)
        count = 0 if kind == "constant" else 2 if kind in BINARY else 1
        return Operation(self.fresh("x"), kind, tuple(self.pick(scope) for _ in range(count)), number)

    def constant(self, scope):
        how = self.random.choice(("value", "dict", "label", "decorator"))
        function = self.function(0, scope, may_nest=False) if how == "decorator" else None
        return Constant(self.fresh("x"), how, self.pick(scope), function)

    def branch(self, depth, scope, barred):
        true = self.function(depth, scope, barred=barred, factor=1.25, may_nest=self.random.random() < 0.6)
        false = self.function(depth, scope, barred=barred, factor=0.625, may_nest=self.random.random() < 0.6)
        asked = tuple(self.pick(scope) for _ in range(self.random.choice((1, 1, 2))))
        container = self.random.choice(("none", "none", "dict", "tuple"))
        shape = self.random.choice((0, 0, 1, 2, 3))
        return Branch(self.fresh("x"), asked, shape, container, true, false, self.pick(scope))

    def apply(self, depth, scope, barred):
        transform = self.random.choice([name for name in sorted(self.transforms) if name not in barred])
        kind = self.transforms[transform]
        # A custom rule may not close over what is differentiated, and the modes of a gradient call are its own.
        inside = [] if kind == CUSTOM else scope
        barred = (*barred, "engine") if kind == NO_GRAD else barred
        barred = (*barred, *self.refused.get(transform, ()))
        return Apply(self.fresh("x"), transform, self.function(depth - 1, inside, barred=barred), self.pick(scope))


def draw(random, framework):
    """Return a random program for a framework."""
    return _Generator(random, framework).function(DEPTH, [])
