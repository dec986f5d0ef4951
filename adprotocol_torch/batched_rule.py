"""A derivative rule under vmap: a rule of batches, whose functions are those of the rows, batched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from adprotocol.errors import RuleError
from adprotocol_torch.rule_modes import as_gradients, as_results

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol.extend import Outline
    from adprotocol_torch.rule_modes import Rule, Tensors

    # For each array its axis of the batch, None where it has none.
    Axes = Sequence[int | None]


class BatchedRule:
    """As `adprotocol.extend.DerivativeRule`, of arrays that have a batch at the given axes; results have it first."""

    def __init__(self, rule: Rule, axes: Axes, randomness: str) -> None:
        self.rule = rule
        self.axes: list[int | None] = list(axes)
        self.randomness = randomness
        self.name: str = rule.name
        self.has_vjp: bool = rule.has_vjp
        self.has_jvp: bool = rule.has_jvp
        self.once: str = rule.once
        self.keeps_arrays: bool = rule.keeps_arrays

    def fun(self, arrays: Tensors) -> tuple[Tensors, Outline]:
        """Run the function on all rows at once."""
        outlines: list[Outline] = []

        def run(arrays: Tensors) -> Tensors:
            found, outline = self.rule.fun(arrays)
            if outline.objects:
                msg = (
                    f"{self.name} returned {outline.objects} as residuals under torch.vmap, which cannot be batched; "
                    "return structures of tensors as residuals, or call it in a loop"
                )
                raise RuleError(msg)
            outlines.append(outline)
            return as_results(found, arrays)

        return self._batched(run, 0, (arrays, self.axes)), outlines[0]

    def vjp(
        self, needed: Sequence[bool], cotangents: Tensors, results: Tensors, outline: Outline, arrays: Tensors
    ) -> Tensors:
        """Return the gradients; for an array that all rows share, the sum of theirs."""
        axes = [axis for axis, need in zip(self.axes, needed, strict=True) if need]

        def run(cotangents: Tensors, results: Tensors, arrays: Tensors) -> Tensors:
            found = self.rule.vjp(needed, cotangents, results, outline, arrays)
            return as_gradients(found, [array for array, need in zip(arrays, needed, strict=True) if need])

        given = ((cotangents, 0), (results, 0), (arrays, self.axes))
        found = self._batched(run, [axis or 0 for axis in axes], *given)
        return [one.sum(0) if axis is None else one for one, axis in zip(found, axes, strict=True)]

    def jvp(self, tangents: Sequence[Any], results: Tensors, outline: Outline, arrays: Tensors) -> Tensors:
        """Return the tangents of the results."""

        def run(tangents: Sequence[Any], results: Tensors, arrays: Tensors) -> Tensors:
            return as_gradients(self.rule.jvp(tangents, results, outline, arrays), results[: outline.count])

        axes = [None if one is None else axis for one, axis in zip(tangents, self.axes, strict=True)]
        return self._batched(run, 0, (tangents, axes), (results, 0), (arrays, self.axes))

    def _batched(self, run: Callable[..., Tensors], out_dims: Any, *given: tuple[Sequence[Any], Any]) -> Tensors:
        lists, axes = zip(*given, strict=True)
        return torch.vmap(run, axes, out_dims, self.randomness)(*map(list, lists))
