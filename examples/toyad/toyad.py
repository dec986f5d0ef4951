"""toyad: a small AD system over NumPy, to be read in one sitting.

It is a stack of interpreters. Every operation is a `Primitive`. Every transformation is a `Trace`, an interpreter with
a level, and puts a `Tracer` of its own in the place of each value that it follows. An operation is done by the highest
level among its operands: it does its part and passes the operation down, with its own tracers taken off. Level 0 is
NumPy. That transformations nest in any order, and derivatives have any order, follows from this alone.

- Levels are numbered by a counter that only goes up: what starts later is inside, whichever thread starts it. No list
  says which levels are active, so nothing is left behind by an exception; a level that is over refuses its tracers.
- While a function is traced to a program, operations on values of outer levels become part of the program as well, and
  those values its operands. Such a program, or one that has asked about such a value, is not used a second time.
- A variable is followed from when it is made, by a level below all others; `backward` adds to its `grad`.
- A parameter is looked up wherever it is read: a tape may watch it, and a program takes it as an operand at each call.
"""
# For the reader's sake there are no types, and no docstrings of methods that the class explains.
# ruff: noqa: ANN001, ANN002, ANN003, ANN201, ANN202, ANN204, ARG005, B905, D102

from __future__ import annotations

import functools
import itertools
import operator
import threading
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

import numpy as np

__version__ = "0.1.0"

LEVELS = itertools.count(1)
# How many of `grad` and `jvp` may be inside of each other. With one, toyad is as most systems with a tape are.
MOST = float("inf")


class State(threading.local):
    """What holds in one thread: programs traced, parameters watched, depth, and up to which level tapes are quiet."""

    stages = ()
    watched = ()
    depth = 0
    quiet = 0


STATE = State()


class BranchMismatch(TypeError):  # noqa: N818
    """The branches of a `cond` that is staged or batched return different structures, shapes or dtypes."""


# Levels --------------------------------------------------------------------------------------------------------------


class Trace:
    """An interpreter. It lasts as long as the transformation, which uses it as a context manager."""

    def __init__(self):
        self.level, self.open = next(LEVELS), True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.open = False

    def lower(self, value):
        """Take the tracer of this level off."""
        return value.below if value.trace is self else value

    def process(self, primitive, args, params):
        """Do an operation by the primitive's method for this kind of level; under `no_grad`, without the level."""
        if self.level < STATE.quiet:
            return primitive(*[self.lower(a) for a in args], **params)
        return getattr(primitive, self.method)(self, args, [self.lower(a) for a in args], **params)

    def check(self, value):
        """Refuse a value of this level, or of one that was inside, where one of a level around it is needed."""
        if value.trace is self or (value.trace.level > self.level and not value.trace.open):
            raise TypeError(f"{value} is of an inner level; a custom rule must not close over what is differentiated")
        return value


class Concrete(Trace):
    """Level 0: NumPy. Its warnings are not ours: 1/0 is inf."""

    def __init__(self):
        self.level, self.open = 0, True

    def process(self, primitive, args, params):
        with np.errstate(all="ignore"):
            return primitive.evaluate(args, **params)


class Forward(Trace):
    """Forward mode: a value is followed together with its tangent."""

    method = "forward"

    def root(self, value, tangent):
        return Dual(self, value, tangent)

    def tangent(self, value):
        return value.tangent if value.trace is self else zeros(value)


class Tape(Trace):
    """Reverse mode: a list of (keys of the results, keys of the operands, function from cotangents to cotangents)."""

    method = "reverse"

    def __init__(self):
        super().__init__()
        self.keys, self.records = itertools.count(), []

    def root(self, value):
        return Recorded(self, value)

    def record(self, results, operands, pull):
        """Follow results. `pull` gets a cotangent for each, or None for zero, and returns one for each operand."""
        recorded = [Recorded(self, result) for result in results]
        self.records.append(([r.key for r in recorded], [o.key for o in operands], pull))
        return recorded

    def backward(self, results, cotangents, roots, records=None):
        """Return the cotangents of the roots."""
        found = {}

        def give(key, cotangent):
            found[key] = self.check(found[key] + cotangent if key in found else cotangent)

        for result, cotangent in zip(results, cotangents):
            if result.trace is self:
                give(result.key, cotangent)
        for outputs, inputs, pull in reversed(self.records if records is None else records):
            if not found.keys().isdisjoint(outputs):
                for key, cotangent in zip(inputs, pull(*[found.pop(key, None) for key in outputs])):
                    give(key, cotangent)
        return [found[root.key] if root.key in found else zeros(root) for root in roots]


class Graph(Tape):
    """The level of variables, below all others and always open: what leads to a value is kept by the value."""

    def __init__(self):
        self.level, self.open, self.keys = 0.5, True, itertools.count()

    def root(self, value):
        return Variable(self, value)

    def record(self, results, operands, pull):
        recorded = [Recorded(self, result) for result in results]
        for one in recorded:
            one.source = [r.key for r in recorded], operands, pull
        return recorded

    def add_gradients(self, value, cotangent):
        """Add to the `grad` of each variable that leads to a value its cotangent."""
        roots, records, left = {}, {}, [value]
        while left:
            one = left.pop()
            if isinstance(one, Variable):
                roots[one.key] = one
            elif one.trace is self and one.source[0][0] not in records:
                outputs, operands, pull = one.source
                records[outputs[0]] = outputs, [operand.key for operand in operands], pull
                left.extend(operands)
        ordered = [records[key] for key in sorted(records)]
        for root, grad in zip(roots.values(), self.backward([value], [cotangent], roots.values(), ordered)):
            root.grad = grad if root.grad is None else root.grad + grad


class Batch(Trace):
    """Each operation is done for all the values along a leading axis at once."""

    method = "batch"

    def __init__(self, size):
        super().__init__()
        self.size = size

    def whole(self, value):
        """Return a result with the leading axis, also if it is the same for all."""
        return value.below if value.trace is self else broadcast(value, (self.size, *value.shape))


class Stage(Trace):
    """Operations are written down as equations."""

    def __init__(self):
        super().__init__()
        self.equations, self.captured = [], {}
        self.reusable = True  # nothing of an outer level was used

    def __enter__(self):
        STATE.stages = (*STATE.stages, self)
        return self

    def __exit__(self, *_):
        STATE.stages, self.open = STATE.stages[:-1], False

    def operand(self, value):
        """Return a value as it appears in the program: those of outer levels become inputs."""
        if value.trace is self or value.trace is CONCRETE:
            return value
        self.reusable = False
        return self.captured.setdefault(id(value), (value, Staged(self, value.shape, value.dtype)))[1]

    def read(self, parameter):
        """Return a parameter as it appears in the program: an input, which is looked up at each call."""
        return self.captured.setdefault(id(parameter), (parameter, Staged(self, parameter.shape, parameter.dtype)))[1]

    def process(self, primitive, args, params):
        quiet = self.level < STATE.quiet
        if primitive is differentiated and args[0].answer is not None and not quiet:
            return Array(args[0].answer)
        outputs = [Staged(self, shape, dtype) for shape, dtype in primitive.kinds(args, **params)]
        self.equations.append(Equation(primitive, [self.operand(a) for a in args], params, outputs, quiet))
        return outputs if primitive.several else outputs[0]


CONCRETE, GRAPH = Concrete(), Graph()


# Values --------------------------------------------------------------------------------------------------------------


def operators(name):
    """Return the methods for a binary operator and its reflection."""

    def method(self, other):
        return globals()[name](self, other) if isinstance(other, LEAVES) else NotImplemented

    def reflected(self, other):
        return globals()[name](other, self) if isinstance(other, LEAVES) else NotImplemented

    return method, reflected


def conversion(kind):
    """Return the method for the conversion to a Python number."""
    return lambda self: kind(self.numpy())


class Value:
    """What toyad computes with: an `Array`, or what stands for one."""

    __array_ufunc__ = None  # NumPy leaves operations with its arrays to us
    __add__, __radd__ = operators("add")
    __sub__, __rsub__ = operators("subtract")
    __mul__, __rmul__ = operators("multiply")
    __truediv__, __rtruediv__ = operators("divide")
    __pow__, __rpow__ = operators("power")
    __matmul__, __rmatmul__ = operators("matmul")
    __and__, __rand__ = operators("bitwise_and")
    __or__, __ror__ = operators("bitwise_or")
    __mod__, __rmod__ = operators("remainder")
    __floordiv__, __rfloordiv__ = operators("floor_divide")
    __lt__, __gt__ = operators("less")
    __le__, __ge__ = operators("less_equal")
    __eq__, _ = operators("equal")
    __ne__, _ = operators("not_equal")
    __bool__, __float__, __int__, __index__ = map(conversion, (bool, float, int, operator.index))
    __hash__ = object.__hash__
    T = property(lambda self: moveaxis(self, 0, -1))  # of a matrix

    def __neg__(self):
        return negative(self)

    def __invert__(self):
        return invert(self)

    def reshape(self, shape):
        return reshape(self, shape)

    def __getitem__(self, key):
        parts = key if isinstance(key, tuple) else (key,)
        kept = (slice, type(None), type(Ellipsis))
        return index(self, index=tuple(p if isinstance(p, kept) else operator.index(p) for p in parts))

    def __len__(self):
        if not self.shape:
            raise TypeError("a scalar has no length")
        return self.shape[0]

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def numpy(self):
        """Return the NumPy array, if there is one."""
        raise TypeError(f"{self} is not to be had as a number: {self.remedy}")

    def __array__(self, dtype=None, copy=None):
        return np.array(self.numpy(), dtype)

    def __repr__(self):
        return f"{type(self).__name__}({self.below})"


class Array(Value):
    """A NumPy array of floats, complex numbers, integers or booleans. Nobody differentiates it."""

    trace = CONCRETE

    def __init__(self, value, device="cpu"):
        value = np.asarray(value)
        if value.dtype.kind not in "fciub":
            raise TypeError(f"toyad has numbers and booleans; it was given {value.dtype}")
        self.value, self.shape, self.dtype, self.device = value, value.shape, value.dtype, device

    def __setitem__(self, key, value):
        self.value[key] = value

    def numpy(self):
        return self.value

    def __repr__(self):
        return f"{type(self).__name__}({self.value})"


class Parameter(Array):
    """An array with an identity, and with a flag whether it is to be trained: then it may be watched."""

    def __init__(self, value, trains=True, device="cpu"):  # noqa: FBT002
        super().__init__(np.array(value), device)
        self.trains = trains

    def __isub__(self, step):
        self.value[...] -= lift(step).numpy()
        return self


class Module:
    """A model: its attributes are parameters, arrays, other modules, and lists and dicts of modules."""

    def __init__(self, **parts):
        vars(self).update(parts)


class Tracer(Value):
    """What a level puts in the place of a value of the levels below."""

    remedy = "that would lose the derivative; apply stop_gradient first"

    def __init__(self, trace, below):
        self.trace, self.below = trace, trace.check(below)
        self.shape, self.dtype = below.shape, below.dtype

    @property
    def device(self):
        return self.below.device


class Dual(Tracer):
    """A value with its tangent."""

    def __init__(self, trace, below, tangent):
        super().__init__(trace, below)
        self.tangent = trace.check(tangent)
        if tangent.shape != below.shape:
            raise ValueError(f"a tangent has the shape of the value, {below.shape}; it was given with {tangent.shape}")


class Recorded(Tracer):
    """A value on a tape."""

    def __init__(self, trace, below):
        super().__init__(trace, below)
        self.key = next(trace.keys)


class Variable(Recorded):
    """A value that is followed from now on, with the gradients that `backward` has added up, or None."""

    grad = None


class Batched(Tracer):
    """Many values along a leading axis that is not shown."""

    remedy = "it is many values under vmap; use cond or where"

    def __init__(self, trace, below):
        super().__init__(trace, below)
        self.shape = below.shape[1:]


class Staged(Value):
    """A variable of a program. `answer` is that of `is_differentiated`, if it is known beforehand."""

    remedy = "it is not known while a program is traced; use cond or where"
    device = "cpu"  # until the program is run

    def __init__(self, trace, shape, dtype, answer=None):
        self.trace, self.shape, self.dtype, self.answer = trace, shape, dtype, answer

    def __repr__(self):
        return f"Staged({self.dtype}{list(self.shape)})"


LEAVES = (Value, bool, int, float, complex, np.generic, np.ndarray)


def array(value, device="cpu"):
    """Return a copy of numbers as an array: floats become float64, integers and booleans stay so."""
    return Array(np.array(value), device)


def lift(value):
    """Return a value, a number or a NumPy array as a value."""
    if isinstance(value, Value):
        return value
    if isinstance(value, LEAVES):
        return array(value)
    raise TypeError(f"toyad computes with arrays and numbers; it was given a {type(value).__qualname__}")


def beside(value, dtypes):
    """Return what is no value as one; a Python number takes its dtype from the arrays beside it."""
    weak = dtypes and type(value) in (bool, int, float, complex)
    return array(np.asarray(value, np.result_type(*dtypes, value))) if weak else lift(value)


def is_inexact(value):
    """Return whether the dtype is one that can carry a derivative."""
    return value.dtype.kind in "fc"


def zeros(value):
    """Return the zero tangent or cotangent of a value."""
    return Array(np.zeros(value.shape, value.dtype if is_inexact(value) else float), value.device)


def as_like(value, like):
    """Return a value, a number or a NumPy array, with the dtype of another value; zeros for None."""
    like = lift(like)
    if value is None:
        return zeros(like)
    return cast(value, like.dtype) if isinstance(value, Value) else Array(np.asarray(value, like.dtype), like.device)


def current(value):
    """Return what stands for a value where it is read now: it may be a parameter that is watched, or an input."""
    if not isinstance(value, Parameter):
        return value
    root = next((root for parameter, root in reversed(STATE.watched) if parameter is value), None)
    if STATE.stages and (root is None or root.trace.level < STATE.stages[-1].level):
        return STATE.stages[-1].read(value)
    return value if root is None else root


# Primitives ----------------------------------------------------------------------------------------------------------


class Primitive:
    """An operation: a method for each kind of level, and `kinds` (shapes and dtypes of the results) for `Stage`.

    Its derivative with respect to operand i is a linear map, `push`, with the transpose `pull`. Those operands that
    have one are `smooth`.
    """

    several = False  # the result is a list of values
    smooth = frozenset()
    masks = 0  # so many of the operands choose, and have no part in the dtype

    def __call__(self, *args, **params):
        """Let the highest level do it."""
        args = [current(a) if isinstance(a, Value) else a for a in args]
        dtypes = [a.dtype for a in args[self.masks :] if isinstance(a, Value)]
        args = [a if isinstance(a, Value) else beside(a, dtypes) for a in args]
        trace = max([a.trace for a in args], key=lambda t: t.level, default=CONCRETE)
        if trace is not CONCRETE:
            if not trace.open:
                raise RuntimeError(f"{args} are of a transformation that is over; a value has escaped from it")
            for inner in [stage for stage in STATE.stages if stage.level > trace.level]:
                inner.reusable = False
                if self is not differentiated:  # which is answered here and now, if it can be
                    trace = inner
        return trace.process(self, args, params)

    def kinds(self, args, **params):
        with np.errstate(all="ignore"):
            result = self.evaluate([Array(np.ones(a.shape, a.dtype)) for a in args], **params)
        return [(result.shape, result.dtype)]

    def forward(self, trace, args, below, **params):
        result = self(*below, **params)
        followed = [i for i, a in enumerate(args) if a.trace is trace and i in self.smooth]
        if not followed:
            return result
        pushed = [self.push(i, args[i].tangent, result, below, **params) for i in followed]
        return Dual(trace, result, cast(functools.reduce(add, pushed), result.dtype))

    def reverse(self, trace, args, below, **params):
        result = self(*below, **params)
        followed = [i for i, a in enumerate(args) if a.trace is trace and i in self.smooth]
        if not followed:
            return result

        def pull(cotangent):
            return [cast(self.pull(i, cotangent, result, below, **params), args[i].dtype) for i in followed]

        return trace.record([result], [args[i] for i in followed], pull)[0]


class Elementwise(Primitive):
    """A NumPy function with broadcasting, and for each operand a rule ``(t, result, *operands)``, or None.

    The derivative is a diagonal matrix, which is its own transpose: one rule serves tangents and cotangents.
    """

    def __init__(self, fun, *rules):
        self.fun, self.rules = fun, rules
        self.smooth = {i for i, rule in enumerate(rules) if rule}

    def evaluate(self, args):
        device = next((a.device for a in args if a.device != "cpu"), "cpu")
        return Array(self.fun(*[a.value for a in args]), device)

    def push(self, i, tangent, result, below):
        pushed = self.rules[i](tangent, result, *below)
        return broadcast(pushed, result.shape)

    def pull(self, i, cotangent, result, below):
        return unbroadcast(self.rules[i](cotangent, result, *below), below[i].shape)

    def batch(self, trace, args, below):
        # Axes of length one behind the leading axis, so that broadcasting aligns the rest.
        ndim = max(len(a.shape) for a in args)
        ones = [(1,) * (ndim - len(a.shape)) for a in args]
        aligned = [
            reshape(b, (trace.size, *axes, *a.shape)) if a.trace is trace else b
            for a, b, axes in zip(args, below, ones)
        ]
        return Batched(trace, self(*aligned))


class Linear(Primitive):
    """A linear function of one operand, with parameters.

    `transpose` is ``(cotangent, shape of the operand, **params)``. `batched` returns the parameters that leave a
    leading axis alone, from ``(size, **params)``.
    """

    smooth = frozenset({0})

    def __init__(self, fun, transpose, batched):
        self.fun, self.transpose, self.batched = fun, transpose, batched

    def evaluate(self, args, **params):
        return Array(self.fun(args[0].value, **params), args[0].device)

    def push(self, _i, tangent, _result, _below, **params):
        return self(tangent, **params)

    def pull(self, _i, cotangent, _result, below, **params):
        return self.transpose(cotangent, below[0].shape, **params)

    def batch(self, trace, _args, below, **params):
        return Batched(trace, self(*below, **self.batched(trace.size, **params)))


class Query(Primitive):
    """Is a derivative propagated through the operand? Each level answers for itself, or asks below."""

    def evaluate(self, _args):
        return Array(np.False_)

    def forward(self, _trace, _args, _below):
        return Array(np.True_)

    def reverse(self, _trace, _args, _below):
        return Array(np.True_)  # a tape that does not record has asked below instead

    def batch(self, _trace, _args, below):
        return self(*below)  # one answer for all


class Guard(Primitive):
    """The operand itself, which no level may differentiate: those that would raise."""

    def evaluate(self, args, error):  # noqa: ARG002
        return args[0]

    def kinds(self, args, error):  # noqa: ARG002
        return [(args[0].shape, args[0].dtype)]

    def forward(self, _trace, args, _below, error):
        raise error(args[0])

    def reverse(self, _trace, args, _below, error):
        raise error(args[0])

    def batch(self, trace, _args, below, error):
        return Batched(trace, self(*below, error=error))


class Custom(Elementwise):
    """An elementwise function with a rule ``(x, t)`` of its own. The function itself runs at level 0 only."""

    def __init__(self, fun, rule):
        super().__init__(fun, lambda t, _, x: lift(rule(x, t)))
        self.rule = rule

    def evaluate(self, args):
        result = lift(self.fun(*args))
        if [(result.shape, result.dtype)] != self.kinds(args):
            raise TypeError(f"a custom rule is for elementwise functions; this one takes {args[0]} to {result}")
        return result

    def kinds(self, args):
        return [(args[0].shape, args[0].dtype)]

    def batch(self, trace, _args, below):
        return Batched(trace, Custom(vmap(self.fun), vmap(self.rule))(*below))


add = Elementwise(np.add, lambda t, z, x, y: t, lambda t, z, x, y: t)
subtract = Elementwise(np.subtract, lambda t, z, x, y: t, lambda t, z, x, y: -t)
multiply = Elementwise(np.multiply, lambda t, z, x, y: t * y, lambda t, z, x, y: t * x)
divide = Elementwise(np.divide, lambda t, z, x, y: t / y, lambda t, z, x, y: -t * z / y)
power = Elementwise(
    np.power,
    lambda t, z, x, y: t * y * x ** where(y == 0, 1, y - 1),
    lambda t, z, x, y: t * z * log(where(x == 0, 1.0, x)),
)
negative = Elementwise(np.negative, lambda t, z, x: -t)
sin = Elementwise(np.sin, lambda t, z, x: t * cos(x))
cos = Elementwise(np.cos, lambda t, z, x: -t * sin(x))
exp = Elementwise(np.exp, lambda t, z, x: t * z)
log = Elementwise(np.log, lambda t, z, x: t / x)
sqrt = Elementwise(np.sqrt, lambda t, z, x: t / (2 * z))
where = Elementwise(
    np.where, None, lambda t, z, cond, x, y: where(cond, t, 0.0), lambda t, z, cond, x, y: where(cond, 0.0, t)
)
where.masks = 1
# Without a rule there is no derivative: no level follows the results of these.
stop_gradient = Elementwise(np.array)
less, less_equal = Elementwise(np.less), Elementwise(np.less_equal)
equal, not_equal = Elementwise(np.equal), Elementwise(np.not_equal)
remainder, floor_divide = Elementwise(np.remainder), Elementwise(np.floor_divide)
bitwise_and, bitwise_or, invert = Elementwise(np.bitwise_and), Elementwise(np.bitwise_or), Elementwise(np.invert)
differentiated, guarded = Query(), Guard()

in_shape = Linear(
    lambda x, shape: x.reshape(shape),
    lambda t, old, shape: in_shape(t, shape=old),
    lambda size, shape: {"shape": (size, *shape)},
)
expand = Linear(
    np.broadcast_to,
    lambda t, old, shape: unbroadcast(t, old),
    lambda size, shape: {"shape": (size, *shape)},
)
reduce_sum = Linear(
    lambda x, axes: x.sum(axis=axes),
    lambda t, old, axes: expand(in_shape(t, shape=[1 if i in axes else n for i, n in enumerate(old)]), shape=old),
    lambda size, axes: {"axes": tuple(axis + 1 for axis in axes)},
)
index = Linear(
    lambda x, index: x[index],
    lambda t, old, index: place(t, index=index, shape=old),
    lambda size, index: {"index": (slice(None), *index)},
)


# Of complex numbers the real part: no cotangent is conjugated, so that this is its own transpose.
convert = Linear(
    lambda x, dtype, source: (x.real if dtype.kind == "f" else x).astype(dtype),
    lambda t, old, dtype, source: convert(t, dtype=source, source=dtype),
    lambda size, **params: params,
)


moved = Linear(
    np.moveaxis,
    lambda t, old, source, destination: moved(t, source=destination, destination=source),
    lambda size, **axes: {name: axis + (axis >= 0) for name, axis in axes.items()},
)


def _place(x, index, shape):
    result = np.zeros(shape, x.dtype)
    result[index] = x
    return result


place = Linear(
    _place,
    lambda t, old, index, shape: t[index],
    lambda size, index, shape: {"index": (slice(None), *index), "shape": (size, *shape)},
)


def reshape(value, shape):
    """Reshape, if there is need to."""
    return value if value.shape == shape else in_shape(value, shape=shape)


def broadcast(value, shape):
    """Repeat a value along new axes and axes of length one."""
    if value.shape == shape:
        return value
    return expand(reshape(value, (1,) * (len(shape) - len(value.shape)) + value.shape), shape=shape)


def unbroadcast(value, shape):
    """Sum over what broadcasting from a shape has repeated."""
    if value.shape == shape:
        return value
    lead = len(value.shape) - len(shape)
    repeated = [i for i, n in enumerate(shape, lead) if n == 1]
    return reshape(reduce_sum(value, axes=(*range(lead), *repeated)), shape)


def cast(x, dtype):
    """Return floats or complex numbers as others, real ones by the real part."""
    x, dtype = lift(x), np.dtype(dtype)
    if not is_inexact(x) or dtype.kind not in "fc":
        raise TypeError(f"cast takes floats to floats; it was given {x.dtype}, to be made {dtype}")
    return x if x.dtype == dtype else convert(x, dtype=dtype, source=x.dtype)


def sum(x, axis=None):  # noqa: A001
    """Sum over an axis, or over all."""
    ndim = len(lift(x).shape)
    return reduce_sum(x, axes=tuple(range(ndim)) if axis is None else (axis % ndim,))


def matmul(x, y):
    """Return the product of two vectors or matrices."""
    x, y = lift(x), lift(y)
    return sum(x[..., None] * y, axis=-2) if len(y.shape) > 1 else sum(x * y, axis=-1)


def argmax(mask):
    """Return the position of the first element that is True in the flattened mask, else zero."""
    mask = lift(mask)
    size = int(np.prod(mask.shape))
    seen = reshape(mask, (1, size)) & np.tri(size, dtype=bool)
    return sum(where(sum(where(seen, 1, 0), axis=1) == 0, 1, 0)) % size


def take(array, indices, axis):
    """Return the elements at some indices along an axis, which are integers in one dimension."""
    array, indices = lift(array), lift(indices)
    axis %= len(array.shape)
    behind = (1,) * (len(array.shape) - axis - 1)
    places = np.arange(array.shape[axis]).reshape(-1, *behind)
    chosen = reshape(indices, (*indices.shape, 1, *behind)) == places
    taken = where(chosen, reshape(array, (*array.shape[:axis], 1, *array.shape[axis:])), 0)
    total = sum(taken, axis=axis + 1)
    return total > 0 if array.dtype == bool else total


def moveaxis(x, source, destination):
    """Move an axis to another place."""
    return moved(x, source=source, destination=destination)


def basis(x, count, start):
    """Return arrays like a value along a new leading axis: number ``start + i`` has 1 at element i, and 0 elsewhere."""
    x = lift(x)
    rows = np.eye(count, int(np.prod(x.shape)), -start, x.dtype)
    return Array(rows.reshape(count, *x.shape), x.device)


def stack(values):
    """Put values of one shape side by side, along a new leading axis."""
    values = [lift(value) for value in values]
    shape = (len(values), *values[0].shape)
    return functools.reduce(add, [place(value, index=(i,), shape=shape) for i, value in enumerate(values)])


# Programs ------------------------------------------------------------------------------------------------------------


class Equation(NamedTuple):
    """One operation of a program. Inputs are variables, `Staged`, or constants. `quiet` if it was under `no_grad`."""

    primitive: Primitive
    inputs: list
    params: dict
    outputs: list
    quiet: bool


class Program:
    """What a function does."""

    def __init__(self, inputs, equations, outputs):
        self.inputs, self.equations, self.outputs, self.optimised = inputs, equations, outputs, {}


def stage(funs, leaves, answers=None):
    """Trace functions, from values to lists of values, to programs with the same inputs.

    Also return what these take besides the leaves, values of outer levels, and whether they may be used again.
    """
    with Stage() as trace:
        inputs = [Staged(trace, v.shape, v.dtype, a) for v, a in zip(leaves, answers or [None] * len(leaves))]
        bodies = []
        for fun in funs:
            trace.equations = []
            outputs = [trace.operand(lift(output)) for output in fun(*inputs)]
            bodies.append((trace.equations, outputs))
    inputs += [variable for _, variable in trace.captured.values()]
    return [Program(inputs, *body) for body in bodies], [v for v, _ in trace.captured.values()], trace.reusable


def run(program, operands):
    """Do the operations of a program, at whichever levels the operands are."""
    known = {id(variable): operand for variable, operand in zip(program.inputs, operands, strict=True)}
    for equation in program.equations:
        with no_grad() if equation.quiet else nullcontext():
            results = equation.primitive(*[known.get(id(v), v) for v in equation.inputs], **equation.params)
        for variable, result in zip(equation.outputs, results if equation.primitive.several else [results]):
            known[id(variable)] = result
    return [known.get(id(v), v) for v in program.outputs]


def optimise(program, operands, answers):
    """Return a program without the queries that are answered, branches not taken, and what nobody uses."""
    (program,), _, _ = stage([lambda *inputs: run(program, inputs)], operands, answers)
    needed, equations = {id(output) for output in program.outputs}, []
    for equation in reversed(program.equations):
        if not needed.isdisjoint(map(id, equation.outputs)):
            equations.insert(0, equation)
            needed.update(map(id, equation.inputs))
    return Program(program.inputs, equations, program.outputs)


class Call(Primitive):
    """Runs a program on its operands: the body of a checkpoint. Each level transforms the program, and passes it on."""

    several = True
    heads = 0  # so many of the operands say which program is meant, and are not given to it

    def evaluate(self, args, programs):
        return run(programs[0], args)

    def kinds(self, _args, programs):
        return [(output.shape, output.dtype) for output in programs[0].outputs]

    def transformed(self, body, programs, operands):
        """Trace ``body(program, *operands)`` for each program."""
        return stage([functools.partial(body, program) for program in programs], operands[self.heads :])[0]

    def forward(self, trace, args, below, programs):
        followed, masks = [a.trace is trace for a in args[self.heads :]], []

        def results_and_tangents(program, *values):
            tangents = iter(values[len(followed) :])
            with Forward() as level:
                results = run(program, [level.root(v, next(tangents)) if f else v for v, f in zip(values, followed)])
            masks.append([result.trace is level for result in results])
            return [level.lower(result) for result in results] + [level.tangent(result) for result in results]

        operands = below + [a.tangent for a in args if a.trace is trace]
        results = self(*operands, programs=self.transformed(results_and_tangents, programs, operands))
        n = len(results) // 2
        return [Dual(trace, r, t) if any(m) else r for r, t, m in zip(results[:n], results[n:], zip(*masks))]

    def reverse(self, trace, args, below, programs):
        """Keep the operands only, and run the program again on the way back."""
        followed, masks = [a.trace is trace for a in args[self.heads :]], []

        def rerun(program, values):
            with Tape() as level:
                roots = [level.root(v) if f else v for v, f in zip(values, followed)]
                return level, roots, run(program, roots)

        def forth(program, *values):
            # Run on a tape of its own, so that queries are answered as they will be on the way back.
            level, _, results = rerun(program, values)
            masks.append([result.trace is level for result in results])
            return [level.lower(result) for result in results]

        programs = self.transformed(forth, programs, below)
        mask = [any(m) for m in zip(*masks)]
        results = self(*below, programs=programs)
        kept = [r for r, m in zip(results, mask) if m]

        def back(program, *values):
            level, roots, again = rerun(program, values)
            cotangents = values[len(followed) :]
            roots = [root for root, f in zip(roots, followed) if f]
            return level.backward([r for r, m in zip(again, mask) if m], cotangents, roots)

        def pull(*cotangents):
            operands = below + [zeros(r) if c is None else c for r, c in zip(kept, cotangents)]
            return self(*operands, programs=self.transformed(back, programs, operands))

        recorded = iter(trace.record(kept, [a for a in args if a.trace is trace], pull))
        return [next(recorded) if m else r for r, m in zip(results, mask)]

    def batch(self, trace, args, below, programs):
        batched = [a.trace is trace for a in args[self.heads :]]

        def of_all(program, *values):
            with Batch(trace.size) as level:
                results = run(program, [Batched(level, v) if b else v for v, b in zip(values, batched)])
                return [level.whole(result) for result in results]

        return [Batched(trace, r) for r in self(*below, programs=self.transformed(of_all, programs, below))]


class Cond(Call):
    """Runs the first program if the first operand is true, else the second."""

    heads = 1

    def __call__(self, pred, *operands, programs):
        if isinstance(pred, Array):
            return run(programs[0 if pred else 1], operands)
        return super().__call__(pred, *operands, programs=programs)

    def batch(self, trace, args, below, programs):
        pred, *operands = args
        if pred.trace is not trace:
            return super().batch(trace, args, below, programs)
        # Both run. Operands are constants where a branch is not taken: its zeros times infinity reach no gradient.
        first = run(programs[0], [where(pred, x, stop_gradient(x)) for x in operands])
        second = run(programs[1], [where(pred, stop_gradient(x), x) for x in operands])
        return [where(pred, x, y) for x, y in zip(first, second)]


call, branch = Call(), Cond()


# Trees ---------------------------------------------------------------------------------------------------------------


class Pair:
    """A container of two things, which other libraries do not know."""

    def __init__(self, first, second):
        self.first, self.second = first, second

    def __iter__(self):
        return iter((self.first, self.second))

    def __repr__(self):
        return f"Pair({self.first}, {self.second})"


# From a type to (flatten, unflatten): a container to (children, meta), and (meta, children) to a container.
CONTAINERS = {
    tuple: (lambda node: (node, None), lambda _, children: tuple(children)),
    list: (lambda node: (node, None), lambda _, children: list(children)),
    dict: (lambda node: (node.values(), tuple(node)), lambda keys, children: dict(zip(keys, children))),
    Pair: (lambda node: (tuple(node), None), lambda _, children: Pair(*children)),
}
LEAF = "leaf"


def flatten(tree):
    """Return the arrays and numbers in a tree, and its structure, of which all the rest (strings, None) is part."""
    leaves = []

    def walk(node):
        if isinstance(node, LEAVES):
            leaves.append(node)
            return LEAF
        if type(node) not in CONTAINERS:
            return None, node, ()
        children, meta = CONTAINERS[type(node)][0](node)
        return type(node), meta, tuple(walk(child) for child in children)

    return leaves, walk(tree)


def unflatten(structure, leaves):
    """Return the tree of a structure with other leaves."""
    leaves = iter(leaves)

    def build(node):
        if node == LEAF:
            return next(leaves)
        kind, meta, children = node
        return meta if kind is None else CONTAINERS[kind][1](meta, [build(child) for child in children])

    return build(structure)


def tree_map(fun, tree):
    """Apply a function to the arrays and numbers in a tree."""
    leaves, structure = flatten(tree)
    return unflatten(structure, [fun(leaf) for leaf in leaves])


# Transformations -----------------------------------------------------------------------------------------------------


def _root(leaf):
    leaf = lift(leaf)
    if not is_inexact(leaf):
        raise TypeError(f"toyad differentiates with respect to floats; {leaf} is of dtype {leaf.dtype}")
    return leaf


@contextmanager
def deeper():
    """Count a transformation that is inside of others, and refuse one too many."""
    if STATE.depth >= MOST:
        raise TypeError(f"toyad has {MOST} level of derivatives here; no grad or jvp may be inside of another")
    STATE.depth += 1
    try:
        yield
    finally:
        STATE.depth -= 1


def variable(value):
    """Return a copy of an array that is followed from now on."""
    return GRAPH.root(_root(array(value)))


def backward(value, cotangent):
    """Add to the `grad` of the variables that lead to a value: the cotangent times their derivatives."""
    GRAPH.add_gradients(value, lift(cotangent))


def jvp(fun, primal, tangent):
    """Return the value of a function, and its derivative in the direction of a tangent: forward mode."""
    leaves, structure = flatten(primal)
    tangents, other = flatten(tangent)
    if structure != other:
        raise TypeError(f"a tangent has the structure of the primal, {structure}; it was given with {other}")
    with deeper(), Forward() as trace:
        roots = [trace.root(_root(leaf), lift(t) * 1.0) for leaf, t in zip(leaves, tangents)]
        result = tree_map(lift, fun(unflatten(structure, roots)))
    return tree_map(trace.lower, result), tree_map(trace.tangent, result)


def gradients(fun, leaves):
    """Return value, auxiliary output and the gradient for each leaf of ``fun(leaves)``: reverse mode."""
    with deeper(), Tape() as trace:
        roots = [trace.root(_root(leaf)) for leaf in leaves]
        value, aux = fun(list(roots))
        value = lift(value)
    if value.shape or not is_inexact(value):
        raise TypeError(f"toyad differentiates real scalars; the function returned {value.dtype}{list(value.shape)}")
    aux = tree_map(lambda leaf: trace.lower(leaf) if isinstance(leaf, Value) else leaf, aux)
    return trace.lower(value), aux, trace.backward([value], [Array(np.ones((), value.dtype), value.device)], roots)


def value_and_grad(fun):
    """Return a function to the value of another and its gradient with respect to the first argument."""

    @functools.wraps(fun)
    def with_gradient(x, *args, **kwargs):
        leaves, structure = flatten(x)
        value, _, found = gradients(lambda roots: (fun(unflatten(structure, roots), *args, **kwargs), None), leaves)
        return value, unflatten(structure, found)

    return with_gradient


def grad(fun):
    """Return a function to the gradient of another with respect to the first argument."""
    with_gradient = value_and_grad(fun)
    return functools.wraps(fun)(lambda *args, **kwargs: with_gradient(*args, **kwargs)[1])


def read(parameter):
    """Return the value of a parameter where it is read now, which is no parameter."""
    found = current(parameter)
    return Array(found.value, found.device) if found is parameter else found


@contextmanager
def watching(pairs):
    """Let values stand for parameters, given in pairs, wherever these are read."""
    before, STATE.watched = STATE.watched, (*STATE.watched, *pairs)
    try:
        yield
    finally:
        STATE.watched = before


def parameter_grad(fun, parameter):
    """Return the gradient of ``fun()`` with respect to a parameter: a tape watches it wherever it is read."""
    if not parameter.trains:
        raise TypeError(f"{parameter} is not to be trained")

    def watched(root):
        with watching([(parameter, root)]):
            return fun()

    return grad(watched)(read(parameter))


def vmap(fun):
    """Return a function that applies another along the leading axis of all arguments, and stacks the results."""

    @functools.wraps(fun)
    def batched(*args):
        leaves, structure = flatten(args)
        values = [lift(leaf) for leaf in leaves]
        sizes = {value.shape[:1] for value in values}
        if len(sizes) != 1 or () in sizes:
            raise ValueError(f"vmap needs arguments of one length along the leading axis; {[v.shape for v in values]}")
        with Batch(*sizes.pop()) as trace:
            result = fun(*unflatten(structure, [Batched(trace, value) for value in values]))
            return tree_map(lambda leaf: trace.whole(lift(leaf)), result)

    return batched


def _traced(fun, args, kwargs, cache):
    """Return the program of a call, its operands and the structure of its result."""
    leaves, structure = flatten((args, kwargs))
    operands = [lift(leaf) for leaf in leaves]
    key = structure, tuple((v.shape, v.dtype) for v in operands)
    if key in cache:
        program, result, parameters = cache[key]
        return program, operands + parameters, result
    results = []

    def flat(*inputs):
        args, kwargs = unflatten(structure, inputs)
        outputs, result = flatten(fun(*args, **kwargs))
        results.append(result)
        return outputs

    (program,), captured, reusable = stage([flat], operands)
    if reusable:
        cache[key] = program, results[0], captured
    return program, operands + captured, results[0]


def _staged(fun, execute):
    cache = {}

    @functools.wraps(fun)
    def staged(*args, **kwargs):
        program, operands, result = _traced(fun, args, kwargs, cache)
        return unflatten(result, execute(program, operands))

    return staged


def jit(fun):
    """Return a function that traces another once for each kind of arguments, and then runs the program."""
    return _staged(fun, run)


def compile(fun):  # noqa: A001
    """Return a function that traces another, and runs the program optimised for who differentiates its operands."""

    def execute(program, operands):
        asked = [is_differentiated(operand) for operand in operands]
        answers = tuple(answer if isinstance(answer, bool) else None for answer in asked)
        if answers not in program.optimised:
            program.optimised[answers] = optimise(program, operands, answers)
        return run(program.optimised[answers], operands)

    return _staged(fun, execute)


def checkpoint(fun):
    """Return a function of which a tape keeps the arguments only: its program runs again on the way back."""
    return _staged(fun, lambda program, operands: call(*operands, programs=[program]))


def abstract(fun, *args):
    """Return the shape of a result, without its value."""
    program, _, result = _traced(fun, args, {}, {})
    return unflatten(result, [output.shape for output in program.outputs])


def scan(fun, carry, xs):
    """Return the last carry, and the ys stacked, of ``carry, y = fun(carry, x)`` along the leading axis of `xs`."""
    leaves, structure = flatten(xs)
    steps = []
    for items in zip(*map(lift, leaves), strict=True):
        carry, y = fun(carry, unflatten(structure, items))
        steps.append(flatten(y))
    if not steps:
        raise ValueError("scan needs at least one step")
    return carry, unflatten(steps[0][1], [stack(ys) for ys in zip(*[outputs for outputs, _ in steps])])


def while_loop(continues, step, state):
    """Return the last state of ``state = step(state)`` while ``continues(state)``, which must be known."""
    while continues(state):
        state = step(state)
    return state


@contextmanager
def no_grad():
    """Stop the levels that are there, of both modes. Those that begin inside are not concerned."""
    before, STATE.quiet = STATE.quiet, next(LEVELS)
    try:
        yield
    finally:
        STATE.quiet = before


def is_differentiated(x):
    """Return whether a derivative is propagated through a value: a bool, or staged while a program is traced."""
    if not isinstance(x, Value) or not is_inexact(x):
        return False
    answer = differentiated(x)
    return bool(answer) if isinstance(answer, Array) else answer


def guard(x, error):
    """Return a value; whoever differentiates it, now or when what jit traces is run, gets the error ``error(x)``."""
    return guarded(x, error=error) if isinstance(x, Value) and is_inexact(x) else x


def custom_rule(fun, derivative):
    """Return an elementwise function with another for its derivative, whatever happens inside of it."""
    return Custom(fun, lambda x, t: derivative(x) * t)


def counter():
    """Return the identity, and a function that says how often a derivative has gone through it."""
    count = 0

    def counted(t):
        nonlocal count
        count += 1
        return t

    tick = Custom(counted, lambda _, t: tick(t))
    return Custom(lambda x: x, lambda _, t: tick(t)), lambda: count


def cond(pred, true_fun, false_fun, *operands):
    """Return the result of a branch. If the predicate is staged or batched, both are traced."""
    if isinstance(pred, (bool, np.bool_)):
        return true_fun(*operands) if pred else false_fun(*operands)
    if not isinstance(pred, Value) or pred.dtype != bool or pred.shape:
        raise TypeError(f"cond needs a boolean scalar as predicate; it was given {pred!r}")
    if isinstance(pred, Array):
        return true_fun(*operands) if pred else false_fun(*operands)
    leaves, structure = flatten(operands)
    values, returned = [lift(leaf) for leaf in leaves], []

    def flat(fun, *inputs):
        returned.append(flatten(fun(*unflatten(structure, inputs))))
        return returned[-1][0]

    programs, captured, _ = stage([functools.partial(flat, fun) for fun in (true_fun, false_fun)], values)
    if returned[0][1] == returned[1][1]:
        _convert_numbers(programs, [outputs for outputs, _ in returned])
    shown = [
        unflatten(result, [f"{output.dtype}{list(output.shape)}" for output in program.outputs])
        for program, (_, result) in zip(programs, returned)
    ]
    if returned[0][1] != returned[1][1] or shown[0] != shown[1]:
        raise BranchMismatch(f"the branches of cond differ: true_fun returns {shown[0]}, false_fun {shown[1]}")
    return unflatten(returned[0][1], branch(pred, *values, *captured, programs=programs))


def _convert_numbers(programs, outputs):
    """Give the numbers that one branch returns the dtypes of the other, if these can hold them."""
    for i, pair in enumerate(zip(*outputs)):
        # NumPy gives a number of Python's the dtype of what it is joined with.
        dtype = np.result_type(*[o if isinstance(o, (bool, int, float)) else lift(o).dtype for o in pair])
        for program, output in zip(programs, pair):
            if isinstance(output, (bool, int, float, np.generic)):
                program.outputs[i] = Array(np.asarray(output, dtype))
