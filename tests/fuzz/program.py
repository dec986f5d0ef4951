"""A program: a function of one scalar, made of statements that each bind a name to a scalar.

Names are unique in a program, and a function sees those of the functions around it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Function:
    """A function of `param` that returns the weighted sum of `results`."""

    name: str
    param: str
    statements: tuple["Statement", ...]
    results: tuple[str, ...]
    # Each branch has a factor of its own, so that a wrong choice shows in the value and in the derivatives.
    factor: float | None = None


@dataclass(frozen=True)
class Operation:
    """An operation of the framework on scalars."""

    name: str
    kind: str
    args: tuple[str, ...]
    number: float


@dataclass(frozen=True)
class Constant:
    """A value made constant; for the decorator, the result of a function."""

    name: str
    how: str
    operand: str
    function: Function | None = None


@dataclass(frozen=True)
class Branch:
    """`cond` on a question about values; `fuzz.structures` has what the words and numbers stand for."""

    name: str
    asked: tuple[str, ...]
    shape: int
    container: str
    true: Function
    false: Function
    operand: str
    passed: str = "scalar"
    other: str = ""
    is_joint: bool = False


@dataclass(frozen=True)
class Apply:
    """A transformation of the framework, applied to a function at a value."""

    name: str
    transform: str
    function: Function
    operand: str


@dataclass(frozen=True)
class Gradient:
    """`adprotocol.value_and_grad` of a function of a scalar, or of a structure that holds it."""

    name: str
    function: Function
    operand: str
    container: str
    other: str = ""


Statement = Operation | Constant | Branch | Apply | Gradient
