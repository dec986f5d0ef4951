"""The machine that the numbers are from."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

DISTRIBUTIONS = ("numpy", "jax", "torch", "autograd", "optree")


def describe() -> str:
    """Return processor, cores, Python and the versions of the frameworks on one line."""
    system = f"{platform.system()}, Python {platform.python_version()}"
    return f"{_processor()}, {os.cpu_count()} cores; {system}; {_versions()}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _versions() -> str:
    found = []
    for name in DISTRIBUTIONS:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)
