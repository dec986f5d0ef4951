"""The hooks that no value passes through: what they return is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adprotocol.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adprotocol.conformance import Harness
    from adprotocol.extend import Divergence


@hookimpl
def divergences() -> Sequence[Divergence]:
    """List what PyTorch does not allow to be done right."""
    from adprotocol_torch.divergence import DIVERGENCES  # noqa: PLC0415

    return DIVERGENCES


@hookimpl
def harness(device: str | None) -> Harness:
    """Give the conformance suite what it needs."""
    from adprotocol_torch.conformance import TorchHarness  # noqa: PLC0415

    return TorchHarness(device)
