"""The hooks that no value passes through; each imports its result when it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adprotocol.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adprotocol.conformance import Harness
    from adprotocol.extend import Divergence


@hookimpl
def divergences() -> Sequence[Divergence]:
    """List the declared divergences of PyTorch."""
    from adprotocol_torch.divergence import DIVERGENCES  # noqa: PLC0415

    return DIVERGENCES


@hookimpl
def harness(device: str | None) -> Harness:
    """Return the conformance harness for PyTorch."""
    from adprotocol_torch.conformance import TorchHarness  # noqa: PLC0415

    return TorchHarness(device)
