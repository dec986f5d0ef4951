"""Calls at the end of an import: what has to be done before anyone else can use a module.

``jax.jit(f)(model)`` asks nothing of this library. So the class of ``model``, if it was
registered before JAX was imported, must be in JAX's trees when ``import jax``
returns, and Python has no other place for that than ``sys.meta_path``. The finder
below stands there only while a call is pending. It lets the other finders find the
module, and the loader they chose runs it, with one call more at the end. Any other
import costs a look into a dict.

No lock is held while a module is looked for, executed or announced.
"""

from __future__ import annotations

import sys
from _thread import allocate_lock  # as in `registry`

from adprotocol._typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_PENDING: dict[str, Callable[[str], None]] = {}
_LOCK = allocate_lock()


class PostImportFinder:
    """Find a module with a pending call by the other finders."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec that the other finders find for a module with a pending call; None for any other."""
        for finder in sys.meta_path if name in _PENDING else ():
            find_spec = None if finder is FINDER else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find_spec is None else find_spec(name, path, target)
            if spec is not None:
                _call_at_end(spec)
                return spec
        return None


FINDER: Any = PostImportFinder()


def call_after_import(name: str, call: Callable[[str], None]) -> None:
    """Call ``call(name)`` once, at the end of the first import of the module `name` that succeeds."""
    with _LOCK:
        _PENDING[name] = call
        if FINDER not in sys.meta_path:
            sys.meta_path.insert(0, FINDER)


def cancel(name: str) -> Callable[[str], None] | None:
    """Remove and return the pending call of a module; with the last one the finder goes."""
    with _LOCK:
        call = _PENDING.pop(name, None)
        if not _PENDING and FINDER in sys.meta_path:
            # A new list: an import in another thread, on its way through the old one, would skip a finder.
            sys.meta_path = [finder for finder in sys.meta_path if finder is not FINDER]
    return call


def _call_at_end(spec: ModuleSpec) -> None:
    loader: Any = spec.loader
    execute = getattr(loader, "exec_module", None)
    # The loaders of frozen and built-in modules are classes, and serve all of these.
    if execute is None or isinstance(loader, type) or not hasattr(loader, "__dict__"):
        return

    def exec_module(module: ModuleType) -> None:
        # The loader is again as it was before the module can see it.
        vars(loader).pop("exec_module", None)
        execute(module)
        call = cancel(spec.name)
        if call is not None:
            call(spec.name)

    loader.exec_module = exec_module
