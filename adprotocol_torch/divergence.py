"""The rules that PyTorch does not allow this plugin to keep, by name; `divergences.md` says which."""

import dataclasses
from pathlib import Path

from adprotocol.extend import Divergence, read_divergences
from adprotocol_torch import internals

DIVERGENCES = read_divergences(Path(__file__).with_name("divergences.md"))

# Those that errors quote.
REENTRANT_CHECKPOINT = DIVERGENCES["reentrant-checkpoint"]
CHECKPOINT_AFTER_ITS_LEVEL = DIVERGENCES["checkpoint-after-its-level"]
DUAL_LEVEL = DIVERGENCES["dual-level-around-compiled"]
COMPILED_INSIDE_FUNC = DIVERGENCES["compiled-inside-func"]
SECOND_DERIVATIVE = DIVERGENCES["second-derivative-of-compiled"]
MODULE_IN_THREADS = DIVERGENCES["module-in-threads"]
COMPUTED_BEFORE = DIVERGENCES["computed-before-the-call"]
HIDDEN_TENSORS = DIVERGENCES["tensors-of-hooks"]
DATA_PARALLEL = DIVERGENCES["distributed-data-parallel"]
FULLY_SHARDED = DIVERGENCES["fully-sharded"]
PYTHON_NUMBERS = DIVERGENCES["python-numbers"]
MASKED_ARRAYS = DIVERGENCES["masked-arrays"]


def declared() -> list[Divergence]:
    """List them, without the scenarios that pass in this release of PyTorch."""
    passing = set() if internals.loses_texts() else set(DIVERGENCES["errors-without-text"].scenarios)
    if not internals.differentiates_cond():
        passing.add("cond/containers-under-compile")
    return [
        dataclasses.replace(entry, scenarios=tuple(item for item in entry.scenarios if item not in passing))
        for entry in DIVERGENCES.values()
    ]
