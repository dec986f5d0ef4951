"""The plugin for tinygrad, broken on purpose: see `mutation`, which runs the mutants and says how to."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from mutation import Mutants

os.environ.setdefault("DEV", "PYTHON")  # needs no compiler; each mutant runs in a process of its own

MUTANTS = Mutants("tinygrad", __file__)

if __name__ == "__main__":
    sys.exit(MUTANTS.main())
