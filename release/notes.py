"""Print the entry of a release in the changelog; fail if tag, package and changelog do not name one version.

python release/notes.py v0.1.0
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSION = re.compile(r'(?m)^__version__ = "(.+)"$')


def version() -> str:
    """Return the version of the package, without importing it."""
    found = VERSION.search((ROOT / "adprotocol" / "__init__.py").read_text("utf-8"))
    if found is None:
        message = "adprotocol/__init__.py has no __version__"
        raise SystemExit(message)
    return found[1]


def notes(tag: str, changelog: str) -> str:
    """Return the entry for a tag; exit with what is missing."""
    if tag != f"v{version()}":
        message = f"the tag is {tag}, and __version__ in adprotocol/__init__.py is {version()}"
        raise SystemExit(message)
    entry = re.search(rf"(?ms)^## \[{re.escape(version())}\] - \d{{4}}-\d\d-\d\d\n(.+?)(?=^## |^\[|\Z)", changelog)
    if entry is None:
        message = f"CHANGELOG.md has no heading '## [{version()}] - YYYY-MM-DD'; write it in place of '## [Unreleased]'"
        raise SystemExit(message)
    return entry[1].strip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(notes(sys.argv[1], (ROOT / "CHANGELOG.md").read_text("utf-8")))
