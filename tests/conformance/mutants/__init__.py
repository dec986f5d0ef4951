"""Plugins of toyad that are wrong on purpose, each in one way, by which the suite is tested."""

import importlib
import pkgutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "toyad"))

# Each module enters its mutants.
for _module in pkgutil.iter_modules(__path__):
    if _module.name not in ("__main__", "eager"):
        importlib.import_module(f"mutants.{_module.name}")

from mutants.mutant import MUTANTS, Mutant, active  # noqa: E402  (after those that enter them)

__all__ = ["MUTANTS", "Mutant", "active"]
