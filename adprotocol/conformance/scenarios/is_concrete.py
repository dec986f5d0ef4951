"""`is_concrete`: may Python branch on the elements here? The answer agrees with an ``if`` under each transformation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import NonDifferentiable
from adprotocol.conformance.scenario import Decorator, defaults
from adprotocol.conformance.scenarios.grid import PAIRS, SINGLE, X, compare, grid
from adprotocol.conformance.scenarios.models import Pair
from adprotocol.errors import NoValuesError

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked

    # From a question about values, with a number as answer, to a function of a scalar that asks it.
    Program = Callable[[Callable[..., float]], Callable[[Any], Any]]

_TRACERS = (
    "NumPyro: a tracer is not always without a value: https://github.com/pyro-ppl/numpyro/blob/master/numpyro/util.py"
)
_LAZY = "array-api-extra: which arrays are lazy: https://data-apis.org/array-api-compat/helper-functions.html"

scenario: Decorator = defaults("is_concrete", rule="K4", source=_TRACERS)


def asked(*values: Any) -> float:
    """Return 3 if the answer is True, 5 if it is False; another object is neither."""
    answer = adprotocol.is_concrete(*values)
    return 3.0 if answer is True else 5.0 if answer is False else 0.0


def branched(x: Any) -> float:
    """Return 3 where Python may branch on a positive array; an error where it may not."""
    return 3.0 if x > 0.0 else 5.0


def may_branch(h: Checked, transforms: str, program: Program) -> bool:
    """Return whether a program that branches, and returns a multiple of x ** 3, runs under {transforms}."""
    try:
        h.nest(transforms, lambda x: program(branched)(x) * x * x * x)(h.array(X))
    except Exception:  # noqa: BLE001  (each system and compiler has its own)
        return False
    return True


def agrees(h: Checked, transforms: str, program: Program, branches: Program | None = None) -> None:
    """Compare a program that asks, and returns the answer times x ** 3, with one that branches at the same place."""
    answer = 3.0 if may_branch(h, transforms, branches or program) else 5.0
    orders = (1.0, 3.0, 6.0, 6.0)
    compare(
        h,
        transforms,
        lambda x: program(asked)(x) * x * x * x,
        lambda x: [answer * factor * x ** (3 - order) for order, factor in enumerate(orders)],
    )


@grid("is_concrete/", (*SINGLE, *PAIRS), rule="K1")
def as_python_branches(h: Checked, transforms: str) -> None:
    """`is_concrete` is True exactly where Python may branch on the value, under {transforms}.

    Expect {transforms} of 3 x ** 3 at 2.5 where ``if x > 0`` runs, and of 5 x ** 3 where it raises.
    """
    agrees(h, transforms, lambda ask: ask)


_SOME = ("grad", "jit", "compile", "vmap", "grad of jit", "grad of compile", "grad of vmap", "vmap of grad")


@scenario(transform=_SOME)
def in_containers(h: Checked, transforms: str) -> None:
    """Of several values and containers one that hides its elements decides, under {transforms}.

    Expect the answer for x, in lists, dicts, named tuples and labels, beside numbers and texts, as a constant too.
    """

    def program(ask: Callable[..., float]) -> Callable[[Any], Any]:
        def mean(x: Any) -> Any:
            constant = adprotocol.non_differentiable(x)
            single = ask([x]) + ask({"a": (1.0, x), "b": "text"}) + ask(Pair(None, x)) + ask(NonDifferentiable(x))
            return (single + ask(2.0, x) + ask(x, None, len) + ask(constant) + ask(x, x * x)) / 8.0

        return mean

    agrees(h, transforms, program, lambda branch: branch)


@scenario(transform=_SOME, rule="K3")
def closed_over(h: Checked, transforms: str) -> None:
    """A constant that is closed over is concrete where an operation on it is computed at once, under {transforms}.

    Expect the answer for a constant c = 4 to be as ``if c > 0`` says.
    """
    c = h.array(4.0)
    agrees(h, transforms, lambda ask: lambda _: ask(c))


@scenario(transform=("vmap", "jit", "compile", "grad", "vmap of grad"), also_needs=("grad", "grad of grad"), rule="K3")
def in_an_inner_gradient(h: Checked, transforms: str) -> None:
    """A gradient that is taken inside of {transforms} shows no more of a value around it.

    Expect the answer for x, which an inner gradient closes over, to be as ``if x > 0`` says there.
    """
    c = h.array(1.0)
    agrees(h, transforms, lambda ask: lambda x: h.grad(lambda y: y * ask(x))(c))


@scenario(transform=("grad", "jit", "compile"), also_needs=("parameter",))
def parameter(h: Checked, transforms: str) -> None:
    """A parameter that a function reads is concrete where its value is at hand, under {transforms}.

    Expect the answer for a parameter p = 4 to be as ``if p > 0`` says.
    """
    p = h.parameter(4.0, trains=True)
    agrees(h, transforms, lambda ask: lambda _: ask(p))


@scenario(transform="{way}", rule="K2")
def called_plain_and_traced(h: Checked, way: str) -> None:
    """The answer for a function is that of each call: plain, traced, and plain again.

    Expect 3 x or 5 x as ``if x > 0`` says for a plain call and for a traced one, at 2.5.
    """

    def asks(x: Any) -> Any:
        return asked(x) * x

    x = h.array(X)
    for call, transforms in ((asks, ""), (h.trace(way, asks), way)) * 2:
        h.assert_equal(call(x), (3.0 if may_branch(h, transforms, lambda ask: lambda x: ask(x) * x) else 5.0) * X)


@scenario(source=_LAZY)
def other_values(h: Checked) -> None:
    """Outside of transformations arrays are as ``if`` says; numbers, texts and functions are concrete.

    Expect True for what is no array of the system, and for its arrays, alone and in a module, what ``if`` says.
    """
    import numpy as np

    others: list[Any] = [2.5, 3, True, None, "text", len, [], np.ones(3), np.float64(1.0), {"a": (1, "text")}]
    for value in others:
        h.assert_is(adprotocol.is_concrete(value), True, f"the answer for {value!r:.30}")
    want = may_branch(h, "", lambda branch: branch)
    arrays: list[Any] = [h.array(1.5), h.array([1, 2]), h.array(True), NonDifferentiable(h.array(1.5))]
    arrays += [h.module({"weight": 2.0})] if h.has("module") else []
    for value in (*arrays, arrays, {"a": (h.array(2.5), 1)}):
        h.assert_is(adprotocol.is_concrete(value), want, f"the answer for {value!r:.60}")


@scenario(needs=("abstract",), rule="K5")
def without_values(h: Checked) -> None:
    """Where a function runs on shapes and dtypes alone there are no elements.

    Expect True where ``if x > 0`` runs, and False where it raises.
    """
    x, answers = h.array(2.5), list[bool]()

    def asks(x: Any) -> Any:
        answers.append(adprotocol.is_concrete(x))
        return 2.0 * x

    want = True
    try:
        h.abstract(lambda x: branched(x) * x, x)
    except Exception:  # noqa: BLE001  (each system has its own)
        want = False
    h.abstract(asks, x)
    h.check(answers and all(answer is want for answer in answers), f"the answers are {answers}; {want} was expected")


@scenario(rule="K6")
def no_values(h: Checked) -> None:
    """A question about nothing is an error.

    Expect NoValuesError that says so, and True for an empty list.
    """
    with h.raises(NoValuesError, words=["is_concrete"]):
        adprotocol.is_concrete(*[])
    h.assert_is(adprotocol.is_concrete([]), True)
