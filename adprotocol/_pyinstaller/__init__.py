"""The hook by which PyInstaller bundles the plugins, which no import statement names; found by its entry point."""

from __future__ import annotations

from pathlib import Path


def hook_dirs() -> list[str]:
    """Return the folder of the hook, which PyInstaller asks for."""
    return [str(Path(__file__).parent)]
