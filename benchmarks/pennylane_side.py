"""Run by PennyLane's own environment: print the rows of ours beside PennyLane's as JSON."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import sys
import warnings
from dataclasses import asdict
from typing import Any

import autograd
import numpy as np
import pennylane as qml
from interleave import call, compare
from row import Row, compared

from adprotocol import within_gradient


def side_by_side(what: str, x: Any, answer: bool, theirs: str = "in_backprop") -> Row:  # noqa: FBT001  (the expected answer)
    """Compare with one of PennyLane's questions."""
    question = getattr(qml.math, theirs)
    assert within_gradient(x) is answer
    said = bool(question(x))
    found = compare(call(within_gradient, x), call(question, x), 101)
    given = f"qml.math.{theirs}" + ("" if said is answer else f" (says {said})")
    return compared(f"within_gradient, {what}", given, found, at_most=1.0)


def during(grad: Any, what: str, x: Any) -> list[Row]:
    """Compare inside of a differentiated function."""
    rows: list[Row] = []

    def asked(x: Any) -> Any:
        rows.append(side_by_side(what, x, answer=True))
        return x * x

    grad(asked)(x)
    return rows


def _versions() -> str:
    names = ("numpy", "autograd", "jax", "torch")
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names if importlib.util.find_spec(name))


def main() -> None:
    rows = [Row(f"beside PennyLane {qml.version()}, in its environment: {_versions()}", "")]
    rows += during(autograd.grad, "autograd box", 3.0)
    rows.append(side_by_side("NumPy array", np.ones(3), answer=False))
    rows.append(side_by_side("float", 1.0, answer=False))
    if importlib.util.find_spec("jax"):
        import jax

        rows.append(side_by_side("concrete jax.Array", jax.numpy.ones(3), answer=False))
        rows += during(jax.grad, "tracer of eager jax.grad", 3.0)
        # What it imports needs JAX.
        import nestings

        rows += nestings.rows(qml.math.in_backprop)
    if importlib.util.find_spec("torch"):
        import torch

        # `in_backprop` raises for PyTorch.
        x = torch.ones(3, requires_grad=True)
        rows.append(side_by_side("torch tensor that requires grad", x, answer=True, theirs="requires_grad"))
    json.dump([asdict(row) for row in rows], sys.stdout)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # PennyLane's, about versions of frameworks
    main()
