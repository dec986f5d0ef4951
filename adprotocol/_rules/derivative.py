"""The derivative of one call in both modes: by the rule for a mode, or by the transpose of the rule for the other.

A plugin derives a class from `Derivative`, which knows its arrays.
"""

from __future__ import annotations

import threading

from adprotocol._dispatch.dtype import dtype_name
from adprotocol._dispatch.shape import shape_of
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import RuleError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol._rules.outline import Outline

    # A linear function of several arrays.
    Linear = Callable[[list[Any]], list[Any]]

_UNDER_WAY = threading.local()
# By the name of a function, how many of its transposes are nested: one for each order of the derivative. PyTorch's
# engine goes on in another thread at a depth of 60, and each takes some 60 of the frames that Python allows.
_DEEPEST = 10


class Derivative:
    """Differentiate one call of a function with a rule, by two linear functions.

    `forward` takes tangents of the inputs to tangents of the outputs, and `backward` cotangents of the outputs to
    cotangents of the inputs. Neither conjugates: a plugin whose framework does so conjugates what `backward` takes and
    returns. A subclass has to define `is_inexact`, and `transpose` if the framework has reverse mode.

    Args:
        rule: an `adprotocol.extend.DerivativeRule`, or what a plugin makes of it for a batch.
        outline: what ``rule.fun`` returned besides the results.
        needed: for each of `arrays` whether it is an input, so differentiated.
        results: all that ``rule.fun`` returned; the outputs are the first ``outline.count`` of them.
        arrays: what ``rule.fun`` was given.
    """

    def __init__(
        self, rule: Any, outline: Outline, needed: Sequence[bool], results: Sequence[Any], arrays: Sequence[Any]
    ) -> None:
        self.rule = rule
        self.outline = outline
        self.needed = needed
        self.results = results
        self.arrays = arrays

    def is_inexact(self, array: Any) -> bool:
        """Return whether an array may have a tangent."""
        raise NotImplementedError

    def like(self, value: Any, array: Any) -> Any:
        """Return what a rule returned or NumPy computed, None for zeros, in the dtype and on the device of an array."""
        return self.rule.as_like(value, array)

    def transpose(self, fun: Linear, zeros: list[Any]) -> Linear:  # noqa: ARG002  (the signature of those that do)
        """Return the transpose of `forward` or `backward` at `zeros`, by the reverse mode of the framework."""
        raise RuleError(
            f"{self.rule.name} has a rule for one mode and is differentiated in the other; the plugin cannot transpose "
            "it, as it has no hook vjp. Give it that rule too, with defvjp or defjvp"
        )

    def in_numpy(self, array: Any) -> Any:
        """Return an array as one with operators and the methods ``sum`` and ``real``, if it has none."""
        return array

    def holds(self, condition: Any) -> bool:
        """Return whether a condition on arrays holds, under vmap for all rows."""
        return bool(condition)

    def concrete(self) -> Derivative | None:
        """Return the derivative at the same values as constants, or None where a trace hides the values."""
        return self

    @property
    def inputs(self) -> list[Any]:
        """Return the arrays that are differentiated."""
        return [array for array, need in zip(self.arrays, self.needed, strict=True) if need]

    @property
    def outputs(self) -> Sequence[Any]:
        """Return the results that are differentiated."""
        return self.results[: self.outline.count]

    def backward(self, cotangents: Sequence[Any]) -> list[Any]:
        """Return the cotangents of the inputs, given those of the outputs."""
        if not self.rule.has_vjp:
            return self._transposed(self.forward, self.inputs, self.outputs, cotangents)
        gradients = self.rule.vjp(self.needed, cotangents, self.results, self.outline, self.arrays)
        return list(map(self.like, gradients, self.inputs))

    def forward(self, tangents: Sequence[Any]) -> list[Any]:
        """Return the tangents of the outputs, given those of the inputs."""
        if not self.rule.has_jvp:
            return self._transposed(self.backward, self.outputs, self.inputs, tangents)
        of_inputs = iter(tangents)
        full = [
            next(of_inputs) if need else self.like(None, array) if self.is_inexact(array) else None
            for array, need in zip(self.arrays, self.needed, strict=True)
        ]
        pushed = self.rule.jvp(full, self.results, self.outline, self.arrays)
        return list(map(self.like, pushed, self.outputs))

    def not_linear(self) -> RuleError:
        """Return the error for a rule that is to be transposed, but is not linear in what flows."""
        mode, flowing = ("vjp", "cotangent") if self.rule.has_vjp else ("jvp", "tangents")
        return RuleError(
            f"the {mode} rule of {self.rule.name} is needed in the other mode, but it is not linear in the {flowing}: "
            "it makes a constant of what flows (detach, stop_gradient, non_differentiable, no_grad), clips or "
            "normalises it. Give the function both rules, defvjp and defjvp, or declare the rule for reverse mode "
            "alone, custom_derivative(reverse_only=True)"
        )

    def check_linear(self, mode: Linear, sources: Sequence[Any], targets: Sequence[Any]) -> None:
        """Raise `RuleError` if `forward` or `backward`, from arrays like `sources` to `targets`, is not linear.

        As this runs the rule again, it does so once for each rule and choice of inputs, where values are known.
        """
        if self.rule.linear is None:
            raise RuleError(
                f"{self.rule.name} was declared with reverse_only=True, so its rule is not transposed for forward mode "
                "(jvp, jacfwd, hessian); use reverse mode, or give it a rule with defjvp in place of reverse_only=True"
            )
        key = self.rule.has_vjp, tuple(self.needed)
        if key in self.rule.linear:
            return
        constant = self.concrete()
        if constant is not None and constant.is_linear(getattr(constant, mode.__name__), sources, targets):
            self.rule.linear.add(key)

    def is_linear(self, fun: Linear, sources: Sequence[Any], targets: Sequence[Any]) -> bool:
        """Return whether the test of adjoints shows it, ``<fun(v), w> == <v, transpose(w)>`` at one `v` and one `w`.

        Raise `RuleError` if it shows the contrary.
        """
        # Large, so that what clips at usual values shows.
        moved = [self.like(1e3 * _probe(source, 0.0), source) for source in sources]
        weights = [self.like(_probe(target, 0.5), target) for target in targets]
        zeros = [self.like(None, source) for source in sources]
        terms = self._products(fun(moved), weights)
        size = sum(abs(term).sum() for term in terms)
        # A rule that gives infinity, or zero, at these arguments tells nothing.
        if not self.holds(size < float("inf")):
            return False
        shift = sum(abs(term).sum() for term in self._products(fun(zeros), weights))
        back = self._products(moved, self.transpose(fun, zeros)(weights))
        error = abs(sum(term.sum() for term in terms) - sum(term.sum() for term in back))
        names = {dtype_name(getattr(one, "dtype", None)) for one in (*sources, *targets)}
        tolerance = 1e-3 if names.isdisjoint(("float16", "bfloat16")) else 0.1
        if not (self.holds(error <= size * tolerance) and self.holds(shift <= 1e-6 * size)):
            raise self.not_linear()
        return self.holds(size > 0.0)

    def _products(self, values: Sequence[Any], others: Sequence[Any]) -> list[Any]:
        return [(self.in_numpy(one) * self.in_numpy(other)).real for one, other in zip(values, others, strict=True)]

    def _transposed(
        self, mode: Linear, sources: Sequence[Any], targets: Sequence[Any], flowing: Sequence[Any]
    ) -> list[Any]:
        """Apply the transpose of the other mode, which is the same at all points, to what flows."""
        name, depths = self.rule.name, vars(_UNDER_WAY)
        if depths.setdefault(name, 0) == _DEEPEST:
            raise RuleError(
                f"{name} has no rule for reverse mode, and its jvp rule applies {name} itself to the tangents, so that "
                "none can be derived from it; give it one with defvjp"
            )
        depths[name] += 1
        try:
            self.check_linear(mode, sources, targets)
            return self.transpose(mode, [self.like(None, source) for source in sources])(list(flowing))
        finally:
            depths[name] -= 1


def _probe(like: Any, shift: float) -> Any:
    import numpy as np  # noqa: PLC0415  (the frameworks import it)

    shape = shape_of(like) or ()
    return np.cos(np.arange(np.prod(shape, dtype=int)) + shift).reshape(shape)
