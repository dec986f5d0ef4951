"""Python's own values as operands and results of a staged `cond`: integers to count with, flags to branch on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import SHOULD, scenario
from adprotocol.conformance.scenarios.staged import staged, trace

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked

_STATIC = "JAX: operands that are no arrays, closed over: https://docs.jax.dev/en/latest/_autosummary/jax.lax.cond.html"
_INTEGERS = (
    "PyTorch: integers from the branches of torch.cond: https://docs.pytorch.org/docs/stable/generated/torch.cond.html"
)


def _power(x: Any, n: int, settings: dict[str, Any]) -> Any:
    """Return x to the power n, by n multiplications, and doubled where the settings say nothing else."""
    result = 1.0 * x
    for _ in range(n - 1):
        result = result * x
    return result * 2.0 if settings["factor"] is None else result


def _chosen(x: Any) -> Any:
    return adprotocol.cond(x > 0.0, _power, lambda x, n, _: x * float(n), x, 3, {"factor": None})


@staged(
    "cond/integer-operand",
    rule="C8",
    transform="grad of {way}",
    expects="2 x x x, by a loop over an integer operand, where x > 0, else 3 x: 16 and 24 at 2, -6 and 3 at -2",
    source=_STATIC,
)
def integer_operand(h: Checked, way: str) -> None:
    """Branches of a staged cond may count with an integer and look for None among their operands."""
    traced = trace(h, way, _chosen)
    for point, value, slope in ((2.0, 16.0, 24.0), (-2.0, -6.0, 3.0)):
        h.equal(traced(h.array(point)), value, f"the plain call at {point}")
        h.value_and_gradient(traced, (h.array(point),), value, slope, f"at {point}")


@scenario(
    "cond/integer-operand-under-vmap",
    rule="C8",
    needs=("grad", "vmap"),
    transform="vmap of grad",
    expects="2 x x x, by a loop over an integer operand, where x > 0, else 3 x, at 2 and -2: gradients 24 and 3",
    source=_STATIC,
)
def integer_operand_under_vmap(h: Checked) -> None:
    """Branches of a batched cond may count with an integer and look for None among their operands."""
    h.equal(h.vmap(h.grad(_chosen))(h.array([2.0, -2.0])), [24.0, 3.0], "the gradients")


@staged(
    "cond/integers-from-both-branches",
    rule="C5",
    level=SHOULD,
    expects="2 or 1 times an integer array, by the sign of x: integers; True or False by it: then 3 x, else 5 x",
    source=_INTEGERS,
)
def integers_from_both_branches(h: Checked, way: str) -> None:
    """Integers from both branches of a staged cond are integers, and flags are predicates."""

    def count(x: Any) -> Any:
        return adprotocol.cond(x > 0.0, lambda: 2, lambda: 1) * h.array(1)

    def flagged(x: Any) -> Any:
        positive = adprotocol.cond(x > 0.0, lambda: True, lambda: False)
        return adprotocol.cond(positive, lambda x: 3.0 * x, lambda x: 5.0 * x, x)

    counted, branched = trace(h, way, count), trace(h, way, flagged)
    for point, number, value in ((2.0, 2, 6.0), (-2.0, 1, -10.0)):
        found = h.numpy(counted(h.array(point)))
        h.equal(found, number, f"the integer at {point}")
        h.holds(found.dtype.kind in "iu", f"integers from both branches became {found.dtype.name}")
        h.equal(branched(h.array(point)), value, f"what a flag chooses at {point}")
