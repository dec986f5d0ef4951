"""Plugins of toyad that are wrong on purpose, each in one way, by which the suite is tested."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "toyad"))

# Each module enters its mutants.
from mutants import (  # noqa: F401
    branch_results,
    branches,
    carriers,
    constant_functions,
    constants,
    declarations,
    depth,
    extent,
    flags,
    gradient_calls,
    gradients,
    guarding,
    leaves,
    outputs,
    preventions,
    provenance,
    queries,
    scalars,
    selections,
    structures,
)
from mutants.mutant import MUTANTS, Mutant, active

__all__ = ["MUTANTS", "Mutant", "active"]
