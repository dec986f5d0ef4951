"""Plugins of toyad that are wrong on purpose, each in one way, by which the suite is tested."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "toyad"))

from mutants import branches, constants, gradients, queries, selections, structures  # noqa: E402, F401  (they enter theirs)
from mutants.mutant import MUTANTS, Mutant, active  # noqa: E402

__all__ = ["MUTANTS", "Mutant", "active"]
