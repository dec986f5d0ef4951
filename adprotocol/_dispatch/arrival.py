"""The end of an import: what has to be done when a module arrives, before anyone else can use it.

``jax.jit(f)(model)`` asks nothing of this library. So the class of ``model``, if it was
registered before JAX was imported, must be in JAX's trees when ``import jax``
returns, and Python has no other place for that than ``sys.meta_path``. The finder
below stands there only while a module is awaited. It lets the other finders find the
module, and the loader they chose runs it, with one call more at the end. Any other
import costs a look into a dict.

No lock is held while a module is looked for, executed or announced.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_AWAITED: dict[str, Callable[[str], None]] = {}
_LOCK = threading.Lock()
_finding = threading.local()


class Finder:
    """Find an awaited module by the other finders."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec that the other finders find for an awaited module; None for any other."""
        if name not in _AWAITED:
            return None
        under_way = vars(_finding).setdefault("names", set())
        if name in under_way:  # a finder like this one asks for the whole of sys.meta_path again
            return None
        under_way.add(name)
        try:
            for finder in sys.meta_path:
                find_spec = None if finder is FINDER else getattr(finder, "find_spec", None)
                spec: ModuleSpec | None = None if find_spec is None else find_spec(name, path, target)
                if spec is not None:
                    _call_at_end(spec)
                    return spec
        finally:
            under_way.discard(name)
        return None


FINDER: Any = Finder()


def when_imported(name: str, call: Callable[[str], None]) -> None:
    """Call ``call(name)`` once, at the end of the first import of the module `name` that succeeds."""
    with _LOCK:
        _AWAITED[name] = call
        if FINDER not in sys.meta_path:
            sys.meta_path.insert(0, FINDER)


def awaited() -> tuple[str, ...]:
    """Return the names of the modules that are awaited."""
    return tuple(_AWAITED)


def forget(name: str) -> Callable[[str], None] | None:
    """Await a module no longer; with the last one the finder goes."""
    with _LOCK:
        call = _AWAITED.pop(name, None)
        if not _AWAITED and FINDER in sys.meta_path:
            # A new list: an import in another thread, on its way through the old one, would skip a finder.
            sys.meta_path = [finder for finder in sys.meta_path if finder is not FINDER]
    return call


def _call_at_end(spec: ModuleSpec) -> None:
    loader: Any = spec.loader
    # The loaders of frozen and built-in modules are classes, and serve all of these.
    if loader is None or isinstance(loader, type) or not hasattr(loader, "__dict__"):
        return
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    def exec_module(module: ModuleType) -> None:
        # The loader is again as it was before the module can see it.
        vars(loader).pop("exec_module", None)
        execute(module)
        call = forget(spec.name)
        if call is not None:
            call(spec.name)

    loader.exec_module = exec_module
