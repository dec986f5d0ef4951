"""The page on the architecture names what is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
BASES = (ROOT, ROOT / "adprotocol", ROOT / "adprotocol_torch", ROOT / "adprotocol" / "conformance")


def test_every_module_of_the_core_is_on_the_page():
    layers = ("_dispatch", "_trees", "_hooks", "_gradients", "_cli")
    modules = [path.stem for layer in layers for path in (ROOT / "adprotocol" / layer).glob("[a-z]*.py")]
    modules += [path.stem for path in (ROOT / "adprotocol").glob("[a-z]*.py")]
    modules += [path.stem for name in ("jax", "torch") for path in (ROOT / f"adprotocol_{name}").glob("[a-z]*.py")]
    named = set(re.findall(r"`([a-z_]+)`", PAGE))
    assert sorted(set(modules) - named) == []


def test_every_file_that_the_page_names_is_there():
    paths = re.findall(r"`([\w/]+(?:\.py|/))`", PAGE)
    assert paths
    for path in paths:
        assert any((base / path).exists() for base in BASES), path
