"""The rules that PyTorch does not allow this plugin to keep, by name; `divergences.md` says which."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from adprotocol.extend import read_divergences, run_while_tracing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adprotocol.extend import Divergence


@functools.cache
def _entries() -> Mapping[str, Divergence]:
    return read_divergences(Path(__file__).with_name("divergences.md"))


@run_while_tracing
def remedy(name: str) -> str:
    """Return what an error advises: the remedy of a divergence, one sentence."""
    return _entries()[name].remedy


def declared() -> list[Divergence]:
    """List them."""
    return list(_entries().values())
