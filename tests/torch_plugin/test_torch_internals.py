"""Private names of PyTorch stand in the modules that are made for them."""

import ast
from pathlib import Path

import pytest

import adprotocol_torch

MODULES = sorted(Path(adprotocol_torch.__file__).parent.glob("*.py"))
# The second stands for Dynamo's values while it traces, the third is that of tests alone.
MADE_FOR_THEM = ("internals", "dynamo_handlers", "conformance")
# The lines that every question, every branch and every node of a walk runs, and the frames of Python.
ALLOWED = {
    ("tracking", "_current_level"),
    ("autograd_graph", "_sequence_nr"),
    ("checkpoints", "_current_frames"),
    ("checkpoints", "_getframe"),
}


def private_names(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("torch"):
            names = [*node.module.split("."), *[alias.name for alias in node.names]]
        elif isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            names = [node.attr]
        else:
            continue
        yield from (name for name in names if name.startswith("_") and not name.startswith(("__", "_adprotocol_")))


@pytest.mark.parametrize("path", [path for path in MODULES if path.stem not in MADE_FOR_THEM], ids=lambda p: p.stem)
def test_no_private_name_stands_elsewhere(path):
    found = {(path.stem, name) for name in private_names(ast.parse(path.read_text("utf-8")))}
    assert found <= ALLOWED


def test_the_modules_made_for_them_have_some():
    for path in MODULES:
        assert path.stem not in MADE_FOR_THEM or set(private_names(ast.parse(path.read_text("utf-8"))))
