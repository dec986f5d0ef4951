"""Predicates taken or refused, results and errors changed on the way: `cond` gone wrong at its edges."""

import dataclasses

import toyad

import adprotocol
from adprotocol import extend
from mutants.branches import GROUP, branches, choose, is_known
from mutants.mutant import innermost, mutant


@mutant(GROUP)
def takes_integers():
    """Takes an array of integers for a predicate."""
    real = adprotocol.cond
    return {
        "adprotocol.cond": lambda pred, *rest: real(
            pred != 0 if isinstance(pred, toyad.Value) and pred.dtype != bool else pred, *rest
        )
    }


@mutant(GROUP)
def takes_python_integers():
    """Takes whatever Python takes for true."""
    real = adprotocol.cond
    return {
        "adprotocol.cond": lambda pred, *rest: real(bool(pred) if isinstance(pred, (int, float, str)) else pred, *rest)
    }


@mutant(GROUP)
def takes_none():
    """Takes None for False."""
    real = adprotocol.cond
    return {"adprotocol.cond": lambda pred, *rest: real(False if pred is None else pred, *rest)}


@mutant(GROUP)
def takes_vectors():
    """Takes a vector for a predicate, and looks at its first element."""
    real = adprotocol.cond

    def first(pred, *rest):
        if isinstance(pred, toyad.Value):
            while pred.shape:
                pred = pred[0]
        return real(pred, *rest)

    return {"adprotocol.cond": first}


@mutant(GROUP)
def refuses_numpy_bools():
    """Does not know the bools of NumPy."""
    real = adprotocol.cond

    def strict(pred, *rest):
        if type(pred).__module__ == "numpy":
            msg = "cond wants a bool"
            raise TypeError(msg)
        return real(pred, *rest)

    return {"adprotocol.cond": strict}


@mutant(GROUP)
def takes_values_for_branches():
    """Returns what is given in the place of a branch, instead of refusing it."""
    real = adprotocol.cond

    def as_function(branch):
        return branch if callable(branch) else lambda *_: branch

    return {"adprotocol.cond": lambda pred, t, f, *operands: real(pred, as_function(t), as_function(f), *operands)}


@mutant(GROUP)
def swallows_exceptions():
    """Takes the other branch where one raises."""

    def either(pred, t, f, operands):
        try:
            return choose(pred, t, f, operands)
        except (ValueError, ArithmeticError, LookupError, RuntimeError):
            return choose(pred, f, t, operands)

    return branches(either)


@mutant(GROUP)
def changes_exceptions():
    """Raises another error in the place of the one that a branch raises."""

    def other(pred, t, f, operands):
        try:
            return choose(pred, t, f, operands)
        except (ValueError, ArithmeticError, LookupError, RuntimeError) as error:
            msg = "a branch failed"
            raise adprotocol.ADProtocolError(msg) from error

    return branches(other)


def converted(change):
    """Return a mutant that changes the result of the branch."""
    return branches(lambda pred, t, f, operands: change(choose(pred, t, f, operands)))


@mutant(GROUP)
def converts_tuples():
    """Returns lists where the branch returns tuples."""

    def lists(result):
        if type(result) is dict:
            return {key: lists(item) for key, item in result.items()}
        return [lists(item) for item in result] if type(result) in (list, tuple) else result

    return converted(lists)


@mutant(GROUP)
def converts_dicts():
    """Returns a tuple of the items where the branch returns a dict."""
    return converted(lambda result: tuple(result.values()) if isinstance(result, dict) else result)


@mutant(GROUP)
def converts_numbers():
    """Returns an array where the branch returns a number of Python's."""
    return converted(lambda result: toyad.array(result) if isinstance(result, (int, float)) else result)


@mutant(GROUP)
def converts_none():
    """Returns zero where the branch returns None."""
    return converted(lambda result: 0.0 if result is None else result)


@mutant(GROUP)
def refuses_numbers():
    """Wants arrays from branches that are chosen later."""

    def arrays(fun):
        def run(*operands):
            result = fun(*operands)
            if isinstance(result, (int, float)):
                msg = "a branch returned a number"
                raise TypeError(msg)
            return result

        return run

    return branches(
        lambda pred, t, f, operands: choose(pred, *((t, f) if is_known(pred) else map(arrays, (t, f))), operands)
    )


@mutant(GROUP)
def swaps_operands():
    """Gives the operands to the branch in another order."""
    return branches(lambda pred, t, f, operands: choose(pred, t, f, operands[::-1]))


@mutant(GROUP)
def takes_operands_apart():
    """Gives the branches the leaves of its operands, without their containers."""
    return branches(lambda pred, t, f, operands: choose(pred, t, f, tuple(extend.tree_leaves(operands))))


@mutant(GROUP)
def arrays_for_operands():
    """Gives the branches arrays where the operands are numbers, and refuses what is neither."""

    def lifted(pred, t, f, operands):
        return choose(pred, t, f, tuple(extend.tree_map(toyad.lift, operand) for operand in operands))

    return branches(lifted)


@mutant(GROUP)
def mismatch_takes_the_first():
    """Takes the first branch where the two return different things, instead of refusing them."""

    def lenient(pred, t, f, operands):
        try:
            return choose(pred, t, f, operands)
        except adprotocol.errors.BranchMismatchError:
            return t(*operands)

    return branches(lenient)


@mutant(GROUP)
def mismatch_of_its_own():
    """Raises the framework's own error where the branches return different things."""

    def own(pred, t, f, operands):
        try:
            return choose(pred, t, f, operands)
        except adprotocol.errors.BranchMismatchError as error:
            raise error.__cause__ from None

    return branches(own)


@mutant(GROUP)
def does_not_nest():
    """Takes, in a branch that is chosen later, the first branch of any other choice."""
    inside = []

    def outermost(fun):
        def run(*operands):
            inside.append(fun)
            try:
                return fun(*operands)
            finally:
                inside.pop()

        return run

    def flat(pred, t, f, operands):
        if is_known(pred):
            return choose(pred, t, f, operands)
        return t(*operands) if inside else choose(pred, outermost(t), outermost(f), operands)

    return branches(flat)


@mutant(GROUP)
def wants_a_known_predicate():
    """Asks for the truth of a predicate that is not known yet."""
    return branches(lambda pred, t, f, operands: t(*operands) if pred else f(*operands))


@mutant(GROUP)
def reads_the_predicate():
    """Follows the predicate below the level that batches it."""

    def below(pred, t, f, operands):
        known = innermost(pred) if isinstance(pred, toyad.Value) else pred
        if isinstance(known, toyad.Array) and known.shape:
            known = bool(known.value.any())
        return choose(known, t, f, operands)

    return branches(below)


@mutant(GROUP)
def mismatch_without_words():
    """Refuses branches that return different things, and does not say which."""

    def silent(pred, t, f, operands):
        try:
            return choose(pred, t, f, operands)
        except adprotocol.errors.BranchMismatchError:
            raise adprotocol.errors.BranchMismatchError("the branches differ") from None

    return branches(silent)


def leaves_alone(pred, t, f, operands):
    """Choose among results whose dataclasses and labels toyad does not take apart, as it would itself."""
    if is_known(pred):
        return choose(pred, t, f, operands)
    return toyad.cond(pred, t, f, *operands)


@mutant(GROUP)
def only_its_own_containers():
    """Takes results apart as far as the framework does, which leaves dataclasses whole."""
    return branches(leaves_alone)


@mutant(GROUP)
def labels_are_lost():
    """Returns the values of labels where branches that are chosen later return labels."""

    def plain(pred, t, f, operands):
        result = choose(pred, t, f, operands)
        return result if is_known(pred) else extend.tree_map(extend.unlabelled, result)

    return branches(plain)


@mutant(GROUP)
def dataclasses_become_dicts():
    """Returns the fields of a dataclass where branches that are chosen later return it."""

    def fields(pred, t, f, operands):
        result = choose(pred, t, f, operands)
        if is_known(pred) or not dataclasses.is_dataclass(result):
            return result
        return {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}

    return branches(fields)


@mutant(GROUP)
def other_constants_pass():
    """Takes what is no array from the first branch, whatever the other returns there."""

    def first(pred, t, f, operands):
        if is_known(pred):
            return choose(pred, t, f, operands)
        both = extend.Branches(toyad.Value, t, f, operands)
        arrays = choose(pred, both.run_true, both.run_false, ())
        both.of_false = both.of_true
        return both.result(arrays)

    return branches(first)
