"""Run in an environment of its own: print the rows of ours beside Keras, POT, geomstats and DeepXDE as JSON."""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import warnings
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from interleave import call, compare, long_call
from row import Row, compared

import adprotocol

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS = 201


def keras_rows() -> Iterator[Row]:
    import keras

    x = torch.ones(3, requires_grad=True)
    chosen = True
    assert not keras.ops.stop_gradient(x).requires_grad
    found = compare(call(adprotocol.non_differentiable, x), call(keras.ops.stop_gradient, x), ROUNDS)
    yield compared("non_differentiable, torch tensor that requires grad", "keras.ops.stop_gradient", found, at_most=1.0)

    def ours(x: Any) -> Any:
        return adprotocol.cond(chosen, lambda: x + 1.0, lambda: x)

    def theirs(x: Any) -> Any:
        return keras.ops.cond(chosen, lambda: x + 1.0, lambda: x)

    assert torch.equal(ours(x), theirs(x))
    found = compare(call(ours, x), call(theirs, x), ROUNDS)
    yield compared("cond(True, …), torch tensor that requires grad", "keras.ops.cond", found, at_most=1.0)


def pot_rows() -> Iterator[Row]:
    import ot.backend

    backend, x = ot.backend.TorchBackend(), torch.ones(3, requires_grad=True)
    found = compare(call(adprotocol.non_differentiable, x), call(backend.detach, x), ROUNDS)
    what, reason = "non_differentiable, torch tensor that requires grad", "looks at what it is given"
    yield compared(what, "POT's backend.detach", found, at_most=1.25, reason=reason)


def geomstats_rows() -> Iterator[Row]:
    import geomstats.backend as gs

    x = torch.ones(3)
    ours = adprotocol.value_and_grad(lambda x: (x * x).sum())
    theirs = gs.autodiff.value_and_grad(lambda x: (x * x).sum())
    assert torch.equal(ours(x)[1], theirs(x)[1])
    found = compare(call(ours, x), call(theirs, x), ROUNDS)
    what, reason = "value_and_grad, one torch tensor", "leaves .grad as it is, where theirs adds to it"
    yield compared(what, "geomstats autodiff.value_and_grad", found, at_most=1.6, reason=reason)


def deepxde_rows() -> Iterator[Row]:
    import deepxde

    torch.manual_seed(0)
    dimensions, network = 100, torch.nn.Sequential(torch.nn.Linear(100, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    points = torch.rand(16, dimensions)
    directions = torch.eye(dimensions)[:, None].expand(-1, 16, -1)

    def ours(x: Any) -> Any:
        slopes = adprotocol.grad(lambda x: network(x).sum())

        def along(direction: Any) -> Any:
            return (adprotocol.jvp(slopes, (x,), (direction,))[1] * direction).sum(-1)

        return torch.func.vmap(along)(directions).sum(0)

    def theirs(x: Any) -> Any:
        x = x.detach().requires_grad_()
        values = network(x)
        diagonal = [deepxde.grad.hessian(values, x, i=i, j=i) for i in range(dimensions)]
        deepxde.grad.clear()
        return torch.cat(diagonal, 1).sum(1)

    torch.testing.assert_close(ours(points), theirs(points), rtol=1e-4, atol=1e-5)
    found = compare(long_call(ours, points), long_call(theirs, points), seconds=3.0)
    yield compared("Laplacian in 100 dimensions at 16 points, torch", "deepxde.grad.hessian", found, at_most=1.0)


def main() -> None:
    # Before they are imported.
    os.environ |= {"KERAS_BACKEND": "torch", "GEOMSTATS_BACKEND": "pytorch", "DDE_BACKEND": "pytorch"}
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("keras", "pot", "geomstats", "deepxde", "torch")
    )
    rows = [Row(f"in an environment of their own: {versions}", "")]
    rows += [*keras_rows(), *pot_rows(), *geomstats_rows(), *deepxde_rows()]
    json.dump([asdict(row) for row in rows], sys.stdout)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
