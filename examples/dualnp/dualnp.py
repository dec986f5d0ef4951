"""An AD system with forward mode alone, dual numbers over NumPy, with its plugin and its harness."""

import itertools
import operator

import numpy as np

from adprotocol.conformance import Harness
from adprotocol.hookspecs import hookimpl

LEVELS = itertools.count()


def constant(x):
    """Return a value without the tangents of all levels."""
    return constant(x.primal) if isinstance(x, Dual) else x


def apart(x, level):
    """Return a value without its tangent of one level, and that tangent."""
    at_level = isinstance(x, Dual) and x.level == level
    return (x.primal, x.tangent) if at_level else (x, np.zeros(np.shape(x)))


def rule(fun, *slopes):
    """Return an operator whose derivatives by its operands are `slopes`."""

    def operated(*operands):
        level = max(x.level for x in operands if isinstance(x, Dual))
        primals = [apart(x, level)[0] for x in operands]
        value = fun(*primals)
        pairs = [(x.tangent, f) for x, f in zip(operands, slopes, strict=True) if getattr(x, "level", None) == level]
        return Dual(value, sum((f(*primals) * t for t, f in pairs), np.zeros(np.shape(value))), level)

    return operated


def comparison(fun):
    """Return an operator without a tangent."""
    return lambda x, y: fun(constant(x), constant(y))


class Dual:
    """An array with its tangent in one call of `push`, whose number is the level; both may be duals of other calls."""

    __array_ufunc__ = None  # NumPy leaves array * dual to the operators below

    def __init__(self, primal, tangent, level):
        self.primal, self.tangent, self.level = primal, tangent, level
        self.shape, self.dtype = np.shape(primal), np.result_type(constant(primal))

    __add__ = __radd__ = rule(operator.add, lambda x, y: 1.0, lambda x, y: 1.0)
    __mul__ = __rmul__ = rule(operator.mul, lambda x, y: y, lambda x, y: x)
    __pow__ = rule(operator.pow, lambda x, y: y * x ** (y - 1.0), lambda x, y: x**y * np.log(x))
    __rpow__ = lambda self, x: Dual.__pow__(x, self)
    __neg__ = lambda self: -1.0 * self
    __sub__, __rsub__ = (lambda self, x: self + -1.0 * x), (lambda self, x: x + -self)
    __truediv__, __rtruediv__ = (lambda self, x: self * x**-1.0), (lambda self, x: x * self**-1.0)
    __getitem__ = lambda self, i: Dual(self.primal[i], self.tangent[i], self.level)
    __eq__, __ne__, __lt__ = map(comparison, (operator.eq, operator.ne, operator.lt))
    __le__, __gt__, __ge__ = map(comparison, (operator.le, operator.gt, operator.ge))
    __hash__ = object.__hash__


def push(fun, x, tangent):
    """Return the value of a function of one array, and its tangent."""
    level = next(LEVELS)
    return apart(fun(Dual(x, tangent, level)), level)


@hookimpl
def array_types():
    return (Dual,)


@hookimpl
def within_gradient(value):
    return True


@hookimpl
def non_differentiable(value):
    return constant(value)


@hookimpl
def cond(pred, true_fun, false_fun, operands):
    return true_fun(*operands) if pred else false_fun(*operands)


@hookimpl
def jvp(fun, leaves, tangents):
    level = next(LEVELS)
    outputs, others = fun([Dual(x, t, level) for x, t in zip(leaves, tangents, strict=True)])
    pairs = [apart(y, level) for y in outputs]
    return [value for value, _ in pairs], [apart(y, level)[0] for y in others], [tangent for _, tangent in pairs]


class DualHarness(Harness):
    """Use the system."""

    name = "dualnp"
    array = to_numpy = staticmethod(np.asarray)
    jvp = staticmethod(push)

    def grad(self, fun):
        """Push each element of a basis."""

        def gradient(x, *others):
            basis = np.eye(np.size(constant(x))).reshape(-1, *x.shape)
            rows = [push(lambda x: fun(x, *others), x, row)[1] for row in basis]
            return np.array(rows, float).reshape(x.shape) if x.shape else rows[0]

        return gradient
