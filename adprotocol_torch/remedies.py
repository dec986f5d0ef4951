"""What the errors of this plugin advise: the remedy of the divergence that declares what PyTorch does not allow."""

from __future__ import annotations

from adprotocol.extend import run_while_tracing


@run_while_tracing
def remedy(name: str) -> str:
    """Return the remedy of a divergence, one sentence."""
    from adprotocol_torch.divergence import DIVERGENCES  # noqa: PLC0415  (it reads a file; for messages only)

    return DIVERGENCES[name].remedy
