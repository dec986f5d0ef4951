"""The page on the architecture names what is there, and the modules that a call enters in their order."""

import dataclasses
import re
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import adprotocol  # noqa: E402

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
WAYS = [block.split() for block in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)]


@dataclasses.dataclass
class Model:
    weight: torch.Tensor
    bias: torch.Tensor


def loss(model, x):
    return ((model.weight * x + model.bias) ** 2).sum()


BASES = (ROOT, ROOT / "adprotocol", ROOT / "adprotocol_torch", ROOT / "adprotocol" / "conformance")
MODEL = Model(torch.ones(3), torch.zeros(3))
TRACKED = torch.ones(3, requires_grad=True)
CALLS = (
    lambda: adprotocol.within_gradient(TRACKED),
    lambda: adprotocol.cond(True, torch.sin, torch.cos, TRACKED),
    lambda: adprotocol.value_and_grad(loss)(MODEL, TRACKED.detach()),
)


def entered(call):
    """Return the modules of this project that a call enters, in order, once the tables are filled."""
    call()
    found = {}

    def note(frame, event, _argument):
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("adprotocol"):
            found[name] = None

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(found)


@pytest.mark.parametrize(
    ("call", "way"), list(zip(CALLS, WAYS, strict=True)), ids=["within_gradient", "cond", "gradient"]
)
def test_a_call_goes_the_way_that_the_page_shows(call, way):
    # A test before this one may have imported JAX, whose plugin is then asked whether its trees have changed.
    others = {"adprotocol._dispatch.wrapper", "adprotocol_jax", "adprotocol_jax.node", "adprotocol_jax.internals"}
    assert [name for name in entered(call) if name not in others] == way


def test_every_module_of_the_core_is_on_the_page():
    rooms = ("_dispatch", "_trees", "_hooks", "_gradients", "_cli")
    modules = [path.stem for room in rooms for path in (ROOT / "adprotocol" / room).glob("[a-z]*.py")]
    modules += [path.stem for path in (ROOT / "adprotocol").glob("[a-z]*.py")]
    modules += [path.stem for name in ("jax", "torch") for path in (ROOT / f"adprotocol_{name}").glob("[a-z]*.py")]
    named = set(re.findall(r"`([a-z_]+)`", PAGE))
    assert sorted(set(modules) - named) == []


def test_every_file_that_the_page_names_is_there():
    paths = re.findall(r"`([\w/]+(?:\.py|/))`", PAGE)
    assert paths
    for path in paths:
        assert any((base / path).exists() for base in BASES), path
