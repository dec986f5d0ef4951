"""Derivative rules and host functions in toyad: two primitives, by which a plugin's two hooks are written.

A level does the operation on the values below it. So a rule, which is called there, is
followed by the levels outside of the one that it serves, and by no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import toyad

from adprotocol.errors import RuleError
from adprotocol.extend import Derivative, gradient_prevented

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.extend import DerivativeRule


class Call:
    """One call of a function with a rule. What it returned besides its arrays is known once it has run."""

    def __init__(self, rule: DerivativeRule) -> None:
        self.rule = rule
        self.outline: Any = None
        self.program: Any = None

    def run(self, arrays: list[Any]) -> list[Any]:
        """Return the results."""
        return self.traced(*arrays) if self.program is None else toyad.run(self.program, arrays)

    def traced(self, *arrays: Any) -> list[Any]:
        """Run the function itself."""
        results, self.outline = self.rule.fun(arrays)
        results = [toyad.lift(result) for result in results]
        level = max((array.trace.level for array in arrays), default=0)
        for result in results:
            if result.trace.level > level:
                msg = f"{self.rule.name} closes over {result}; a function with a rule takes it as an argument"
                raise RuleError(msg)
        return results

    def staged(self, arrays: list[Any]) -> list[Any]:
        """Return the results of the function as a program, traced once."""
        if self.program is None:
            (self.program,), captured, _ = toyad.stage([self.traced], arrays)
            if captured:
                msg = f"{self.rule.name} closes over {captured[0]}; a function with a rule takes it as an argument"
                raise RuleError(msg)
            self.refuse_objects()
        return self.program.outputs

    def refuse_objects(self) -> None:
        """Refuse residuals that may hold tracers."""
        if self.outline.objects:
            msg = f"the residuals of {self.rule.name} hold {self.outline.objects}; where toyad traces, return arrays"
            raise RuleError(msg)

    def backward(self, needed: list[bool], cotangents: list[Any], results: list[Any], arrays: list[Any]) -> list[Any]:
        """Return the gradients of the arrays that are needed."""
        return ToyadDerivative(self, needed, results, arrays).backward(cotangents)

    def forward(self, needed: list[bool], tangents: list[Any], results: list[Any], arrays: list[Any]) -> list[Any]:
        """Return the tangents of the results, given those of the arrays that are needed."""
        return ToyadDerivative(self, needed, results, arrays).forward(tangents)


class ToyadDerivative(Derivative):
    """The derivative of one call, by its rule or by the transpose of its rule."""

    def __init__(self, call: Call, needed: list[bool], results: list[Any], arrays: list[Any]) -> None:
        once = call.rule.once
        if once:  # nobody may differentiate what the rule is given
            results, arrays = [guarded(result, once) for result in results], [guarded(array, once) for array in arrays]
        super().__init__(call.rule, call.outline, needed, results, arrays)

    def is_inexact(self, array: Any) -> bool:
        """Return whether the dtype is."""
        return toyad.is_inexact(array)

    def transpose(self, fun: Callable[[list[Any]], list[Any]], zeros: list[Any]) -> Callable[[list[Any]], list[Any]]:
        """Record the function on a tape."""

        def pull(cotangents: list[Any]) -> list[Any]:
            with toyad.Tape() as trace:
                roots = [trace.root(zero) for zero in zeros]
                results = fun(list(roots))
            return trace.backward(results, cotangents, roots)

        return pull

    def in_numpy(self, array: Any) -> Any:
        """Return the numbers."""
        return array.numpy()

    def concrete(self) -> Derivative | None:
        """Return the same where all values are known."""
        is_known = not toyad.STATE.stages and all(value.trace.level == 0 for value in (*self.results, *self.arrays))
        return self if is_known else None


class Rows(Call):
    """A call for each row of a batch; `mapped` says which of the arrays have rows."""

    def __init__(self, call: Call, size: int, mapped: list[bool]) -> None:
        super().__init__(call.rule)
        self.call, self.size, self.mapped = call, size, mapped

    def _by_rows(self, fun: Callable[..., list[Any]], values: list[Any], mapped: list[bool]) -> list[Any]:
        with toyad.Batch(self.size) as level:
            rows = [toyad.Batched(level, v) if m else v for v, m in zip(values, mapped, strict=True)]
            return [level.whole(result) for result in fun(rows)]

    def run(self, arrays: list[Any]) -> list[Any]:
        """Return the results of all rows."""
        results = self._by_rows(self.call.run, arrays, self.mapped)
        self.outline = self.call.outline
        self.refuse_objects()
        return results

    def staged(self, arrays: list[Any]) -> list[Any]:
        """Return the results of all rows as a program."""
        if self.program is None:
            (self.program,), _, _ = toyad.stage([lambda *arrays: self.run(arrays)], arrays)
        return self.program.outputs

    def backward(self, needed: list[bool], cotangents: list[Any], results: list[Any], arrays: list[Any]) -> list[Any]:
        """Return the gradients of all rows, summed for what they share."""
        n, m = len(cotangents), len(results)
        found = self._by_rows(
            lambda rows: self.call.backward(needed, rows[:n], rows[n : n + m], rows[n + m :]),
            [*cotangents, *results, *arrays],
            [True] * (n + m) + self.mapped,
        )
        mapped = [rows for rows, need in zip(self.mapped, needed, strict=True) if need]
        return [g if rows else toyad.sum(g, axis=0) for g, rows in zip(found, mapped, strict=True)]

    def forward(self, needed: list[bool], tangents: list[Any], results: list[Any], arrays: list[Any]) -> list[Any]:
        """Return the tangents of all rows."""
        n, m = len(tangents), len(results)
        return self._by_rows(
            lambda rows: self.call.forward(needed, rows[:n], rows[n : n + m], rows[n + m :]),
            [*tangents, *results, *arrays],
            [rows for rows, need in zip(self.mapped, needed, strict=True) if need] + [True] * m + self.mapped,
        )


class Ruled(toyad.Primitive):
    """A function whose derivative is that of its rule."""

    several = True

    def evaluate(self, args: list[Any], call: Call) -> list[Any]:
        """Run the function."""
        return call.run(args)

    def kinds(self, args: list[Any], call: Call) -> list[Any]:
        """Trace the function."""
        return [(output.shape, output.dtype) for output in call.staged(args)]

    def forward(self, trace: Any, args: list[Any], below: list[Any], call: Call) -> list[Any]:
        """Give the results the tangents of the rule."""
        results = self(*below, call=call)
        needed = [a.trace is trace and toyad.is_inexact(a) for a in args]
        if True not in needed:
            return results
        tangents = [a.tangent for a, need in zip(args, needed, strict=True) if need]
        tangents = call.forward(needed, tangents, results, below)
        count = len(tangents)
        return [toyad.Dual(trace, r, t) for r, t in zip(results, tangents, strict=False)] + results[count:]

    def reverse(self, trace: Any, args: list[Any], below: list[Any], call: Call) -> list[Any]:
        """Record the rule."""
        results = self(*below, call=call)
        needed = [a.trace is trace and toyad.is_inexact(a) for a in args]
        if True not in needed:
            return results
        kept = results[: call.outline.count]

        def pull(*cotangents: Any) -> list[Any]:
            given = [toyad.zeros(r) if ct is None else ct for r, ct in zip(kept, cotangents, strict=True)]
            return call.backward(needed, given, results, below)

        followed = [a for a, need in zip(args, needed, strict=True) if need]
        return trace.record(kept, followed, pull) + results[len(kept) :]

    def batch(self, trace: Any, args: list[Any], below: list[Any], call: Call) -> list[Any]:
        """Do the same with the rows."""
        rows = Rows(call, trace.size, [a.trace is trace for a in args])
        return [toyad.Batched(trace, result) for result in self(*below, call=rows)]


class Host(toyad.Primitive):
    """A function of NumPy arrays, which has no derivative: its results are followed, and refused on the way back."""

    several = True

    def evaluate(self, args: list[Any], fun: Any, **_params: Any) -> list[Any]:
        """Call the function."""
        device = args[0].device if args else "cpu"
        return [toyad.Array(result, device) for result in fun([a.value for a in args])]

    def kinds(self, _args: list[Any], like: Any, **_params: Any) -> list[Any]:
        """Read what `like` tells."""
        if like is None:
            msg = "a host function in a program needs to tell the shapes of its result: host_function(like=...)"
            raise RuleError(msg)
        return [(tuple(kind.shape), np.dtype(kind.dtype)) for kind in like]

    def forward(self, trace: Any, args: list[Any], below: list[Any], **params: Any) -> list[Any]:
        """Refuse a tangent."""
        for arg in followed_by(trace, args):
            raise gradient_prevented(arg, params["message"], "toyad: a level of jvp follows it")
        return self(*below, **params)

    def reverse(self, trace: Any, args: list[Any], below: list[Any], **params: Any) -> list[Any]:
        """Record that there is no way back."""
        results, followed = self(*below, **params), followed_by(trace, args)

        def pull(*_cotangents: Any) -> list[Any]:
            raise gradient_prevented(followed[0], params["message"], "toyad: a cotangent has come back to it")

        smooth = filter(toyad.is_inexact, results) if followed else ()
        recorded = iter(trace.record(smooth, followed, pull))
        return [next(recorded, result) if toyad.is_inexact(result) else result for result in results]

    def batch(self, trace: Any, args: list[Any], _below: list[Any], **params: Any) -> list[Any]:
        """Call the function for each row, or once for all."""
        like, batched = params.pop("like"), params.pop("batched")
        whole = [trace.whole(a) for a in args]
        if batched:
            wide = like and [np.broadcast_to(np.zeros((), k.dtype), (trace.size, *k.shape)) for k in like]
            results = self(*whole, like=wide, batched=batched, **params)
        else:
            rows = [self(*[w[i] for w in whole], like=like, batched=batched, **params) for i in range(trace.size)]
            results = [toyad.stack(list(column)) for column in zip(*rows, strict=True)]
        return [toyad.Batched(trace, result) for result in results]


ruled, host = Ruled(), Host()


def followed_by(trace: Any, args: list[Any]) -> list[Any]:
    """Return the operands that a level follows."""
    return [arg for arg in args if arg.trace is trace and toyad.is_inexact(arg)]


def guarded(value: Any, message: str) -> Any:
    """Return a value that raises with `message` where it is differentiated."""
    if not toyad.is_inexact(value):
        return value
    return toyad.guard(value, lambda x: gradient_prevented(x, message, "toyad: a level of grad or jvp follows it"))
