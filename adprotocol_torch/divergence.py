"""The rules that PyTorch does not allow this plugin to keep, by name; `divergences.md` says which."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from adprotocol.extend import read_divergences, run_while_tracing
from adprotocol_torch import internals

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
    """List them, without the scenarios that pass in this release of PyTorch."""
    from dataclasses import replace  # noqa: PLC0415  (for their readers only)

    older = {"errors-without-text": internals.loses_texts, "rules-in-checkpoints": internals.keeps_saved_tensor_hooks}
    passing = {item for name, fails in older.items() if not fails() for item in _entries()[name].scenarios}
    return [
        replace(entry, scenarios=tuple([item for item in entry.scenarios if item not in passing]))
        for entry in _entries().values()
    ]
