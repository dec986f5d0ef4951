"""The page on the architecture names what is there."""

import itertools
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
PICTURE = (ROOT / "docs" / "architecture.svg").read_text("utf-8")
BASES = (ROOT, ROOT / "adprotocol", ROOT / "adprotocol_torch", ROOT / "adprotocol" / "conformance")


def test_every_module_is_on_the_page():
    layers = ("_dispatch", "_trees", "_hooks", "_rules", "_gradients", "_cli")
    layers += ("conformance", "conformance/_run", "conformance/_reports")
    modules = [path.stem for layer in layers for path in (ROOT / "adprotocol" / layer).glob("[a-z]*.py")]
    modules += [path.stem for path in (ROOT / "adprotocol").glob("[a-z]*.py")]
    modules += [path.stem for plugin in ROOT.glob("adprotocol_*") for path in plugin.glob("[a-z]*.py")]
    named = set(re.findall(r"`([a-z_]+)`", PAGE))
    assert sorted(set(modules) - named) == []


def test_every_file_that_the_page_names_is_there():
    paths = re.findall(r"`([\w/]+(?:\.py|/))`", PAGE)
    assert paths
    for path in paths:
        assert any((base / path).exists() for base in BASES), path


def test_every_module_in_the_picture_is_there():
    texts = re.findall(r"<text class=\"(?:m b|s)\"[^>]*>([^<]+)</text>", PICTURE)
    pairs = [(title, names) for title, names in itertools.pairwise(texts) if re.fullmatch(r"(_\w+/ *)+", title)]
    assert len(pairs) == 4
    for title, names in pairs:
        modules = {path.stem for layer in title.split() for path in (ROOT / "adprotocol" / layer).glob("*.py")}
        assert set(re.findall(r"\w+", names)) <= modules, title
