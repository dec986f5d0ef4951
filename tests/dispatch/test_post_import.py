"""Frameworks that are imported after a class was registered, and the calls at the end of their import."""

import importlib
import importlib.machinery
import importlib.util
import subprocess
import sys
import textwrap

import pytest

from adprotocol._dispatch import post_import

MODEL = """
import dataclasses, sys
import adprotocol
from adprotocol import register_structure

@register_structure(static=("name",))
@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    w: object
    b: object = dataclasses.field(init=False, default=1.0)
    name: str = "n"

before = {"numpy", "optree", "jax", "torch", "autograd"} & set(sys.modules)
assert not before, before
"""

PROGRAMS = {
    "jax-by-a-library": """
        import optax, jax
        model = Model(w=jax.numpy.ones(2))
        state = optax.adam(0.1).init(model)
        assert jax.tree.structure(state[0].mu) == jax.tree.structure(model)
    """,
    "jax-by-its-plugin": """
        import adprotocol_jax, jax
        assert jax.tree.leaves(Model(w=3.0)) == [3.0, 1.0]
    """,
    "by-several-threads": """
        import threading
        made = []
        def make():
            for i in range(50):
                made.append(register_structure(dataclasses.make_dataclass("Made", ["w"])))
        threads = [threading.Thread(target=make) for _ in range(4)]
        threads.append(threading.Thread(target=__import__, args=("jax",)))
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        import jax
        assert len(made) == 200
        assert all(jax.tree.leaves(cls(3.0)) == [3.0] for cls in made)
    """,
    "all": """
        import optree, jax, torch, autograd
        from torch.utils import _pytree
        assert not any("adprotocol" in type(finder).__module__ for finder in sys.meta_path)
        assert all("exec_module" not in vars(m.__spec__.loader) for m in (optree, jax, torch, autograd))
        assert jax.jit(lambda m, x: m.w * x + m.b)(Model(w=3.0), 2.0) == 7.0
        assert optree.tree_leaves(Model(w=3.0), namespace="adprotocol") == [3.0, 1.0]
        assert _pytree.tree_map(torch.tensor, Model(w=3.0)).w == 3.0
    """,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_framework_imported_later_knows_the_class(program):
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", MODEL + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return a function that writes a module and returns its name."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    names = []

    def write(text="", name=None):
        name = name or f"arriving{len(names)}"
        names.append(name)
        (tmp_path / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        return name

    yield write
    for name in names:
        post_import.cancel(name)
        sys.modules.pop(name, None)


def is_waiting():
    return post_import.FINDER in sys.meta_path


def test_the_call_comes_once_and_the_finder_goes(module):
    before, seen = tuple(post_import._PENDING), []
    name, other = module("x = 1"), module("")
    post_import.call_after_import(name, lambda name: seen.append((name, sys.modules[name].x)))
    assert is_waiting()
    importlib.import_module(other)
    assert seen == []
    made = importlib.import_module(name)
    assert seen == [(name, 1)]
    assert tuple(post_import._PENDING) == before
    assert is_waiting() == bool(before)
    importlib.reload(made)
    assert seen == [(name, 1)]
    assert "exec_module" not in vars(made.__spec__.loader)


def test_a_call_stays_pending_after_an_import_that_fails(module):
    seen = []
    name = module("raise ValueError")
    post_import.call_after_import(name, seen.append)
    with pytest.raises(ValueError, match=r"^$"):
        importlib.import_module(name)
    assert seen == []
    module("x = 12345", name)
    importlib.import_module(name)
    assert seen == [name]


class Other:
    """A finder of the same kind, which asks the whole of ``sys.meta_path`` again."""

    def __init__(self):
        self.found, self.inside = [], False

    def find_spec(self, name, path=None, target=None):
        if self.inside or not name.startswith("arriving"):
            return None
        self.inside = True
        try:
            self.found.append(name)
            return importlib.util.find_spec(name)
        finally:
            self.inside = False


@pytest.mark.parametrize("place", [0, 1])
def test_it_chains_with_finders_of_its_kind(module, place):
    seen, other = [], Other()
    name = module("x = 1")
    post_import.call_after_import(name, seen.append)
    sys.meta_path.insert(place, other)
    assert importlib.import_module(name).x == 1
    assert seen == [name]
    assert other.found == [name]


def test_a_loader_that_takes_no_attributes_is_left_alone(module):
    class Slotted:
        __slots__ = ()

        def create_module(self, spec):
            return None

        def exec_module(self, module):
            module.x = 1

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            return importlib.machinery.ModuleSpec(name, Slotted()) if name == "arriving_slotted" else None

    seen = []
    post_import.call_after_import("arriving_slotted", seen.append)
    sys.meta_path.insert(0, Finder())
    try:
        assert importlib.import_module("arriving_slotted").x == 1
        assert seen == []
    finally:
        post_import.cancel("arriving_slotted")
        del sys.modules["arriving_slotted"]
