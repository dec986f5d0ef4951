"""A branch that runs on guarded values: its operands, and what the function closes over.

Nothing in MLX sees every operation of a branch, so what comes in must be found
before: operands, cells of closures, defaults, arguments of a ``functools.partial``,
the object of a bound method, and among them the arrays of modules and in the
attributes of other objects.
"""

from __future__ import annotations

import contextlib
import functools
import types
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx import nn

from adprotocol.extend import tree_leaves, tree_map
from adprotocol_mlx.answer import is_inexact
from adprotocol_mlx.choice import guarded

if TYPE_CHECKING:
    from collections.abc import Callable

_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)


def call_guarded(pred: mx.array, fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Call a branch so that no derivative goes into it where `pred` is False."""
    with contextlib.ExitStack() as undo:
        guard = _Guard(pred, undo)
        return guard.function(fun)(*[guard.value(operand) for operand in operands])


class _Guard:
    """Replaces arrays by guarded ones, and puts back what it changed in cells and modules."""

    def __init__(self, pred: mx.array, undo: contextlib.ExitStack) -> None:
        self.pred = pred
        self.undo = undo
        self.known: dict[int, tuple[Any, Any]] = {}  # by id, with what has it

    def value(self, value: Any) -> Any:
        """Return a value, a structure of values or a function with what can be differentiated in it guarded."""
        return tree_map(self._leaf, value)

    def _leaf(self, leaf: Any) -> Any:
        if id(leaf) not in self.known:
            self.known[id(leaf)] = (leaf, leaf)  # a function may close over itself
            self.known[id(leaf)] = (leaf, self._new(leaf))
        return self.known[id(leaf)][1]

    def _new(self, leaf: Any) -> Any:
        if isinstance(leaf, mx.array):
            return guarded(self.pred, leaf) if is_inexact(leaf) else leaf
        if isinstance(leaf, _FUNCTIONS):
            return self.function(leaf)
        if isinstance(leaf, nn.Module):  # a dict of arrays and containers, with attributes besides
            self._attributes(leaf)
        if not isinstance(leaf, (type, types.ModuleType)):
            self._attributes(getattr(leaf, "__dict__", {}))
        return leaf

    def _attributes(self, attributes: dict[str, Any]) -> None:
        """Guard what an object holds by name: arrays, modules, and containers of these, no other objects."""
        for name, own in list(attributes.items()):
            new = tree_map(lambda leaf: self._leaf(leaf) if isinstance(leaf, (mx.array, nn.Module)) else leaf, own)
            if any(one is not other for one, other in zip(tree_leaves((own,)), tree_leaves((new,)), strict=True)):
                self._attribute(attributes, name, own, new)

    def _attribute(self, attributes: dict[str, Any], name: str, own: Any, new: Any) -> None:
        attributes[name] = new

        def restore() -> None:
            if attributes.get(name) is new:  # the branch has not assigned to it
                attributes[name] = own

        self.undo.callback(restore)

    def function(self, fun: Any) -> Any:
        """Return a function that computes with guarded values."""
        if isinstance(fun, functools.partial):
            keywords = {name: self.value(value) for name, value in fun.keywords.items()}
            return functools.partial(self.function(fun.func), *map(self.value, fun.args), **keywords)
        if isinstance(fun, types.MethodType):
            return types.MethodType(self.function(fun.__func__), self.value(fun.__self__))
        if not isinstance(fun, types.FunctionType):  # a module, or another object that can be called
            return self._leaf(fun)
        for cell in fun.__closure__ or ():
            self._cell(cell)
        if not fun.__defaults__ and not fun.__kwdefaults__:
            return fun
        new = types.FunctionType(
            fun.__code__, fun.__globals__, fun.__name__, self.value(fun.__defaults__), fun.__closure__
        )
        new.__kwdefaults__ = self.value(fun.__kwdefaults__)
        return functools.update_wrapper(new, fun)

    def _cell(self, cell: types.CellType) -> None:
        try:
            own = cell.cell_contents
        except ValueError:  # an empty one
            return
        if id(cell) in self.known:
            return
        self.known[id(cell)] = (cell, cell)
        new = self.value(own)
        if new is own:
            return
        cell.cell_contents = new

        def restore() -> None:
            if cell.cell_contents is new:  # the branch has not assigned to it
                cell.cell_contents = own

        self.undo.callback(restore)
