"""The rules that PyTorch does not allow this plugin to keep, by name; `divergences.md` says which."""

import dataclasses
from pathlib import Path

from adprotocol.extend import Divergence, read_divergences
from adprotocol_torch import internals

DIVERGENCES = read_divergences(Path(__file__).with_name("divergences.md"))


def declared() -> list[Divergence]:
    """List them, without the scenarios that pass in this release of PyTorch."""
    passing = set() if internals.loses_texts() else set(DIVERGENCES["errors-without-text"].scenarios)
    if not internals.differentiates_cond():
        passing.add("cond/containers-under-compile")
    return [
        dataclasses.replace(entry, scenarios=tuple(item for item in entry.scenarios if item not in passing))
        for entry in DIVERGENCES.values()
    ]
