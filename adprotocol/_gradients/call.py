"""The call of a derivative: a function, its arguments, and the leaves of these to differentiate with respect to.

.. code-block:: text

    call_of(fun, (model, x), ...)
      Structure(model)                 leaves, treespec
      framework                        who differentiates
      select(where)                    the mask of the leaves that take gradients
    binding.vjp(function, leaves)      the plugin's hook, which calls
      call.run(tracked leaves)         fun(model with those leaves, x)
    call.structured(gradients)         in the structure of model, None elsewhere

The framework sees the selected leaves alone, as in hand-written code that closes
over the rest: a frozen leaf is a constant from the start.
"""

from __future__ import annotations

import types

from adprotocol._dispatch.binding import ARRAY, CONSTANT, OPAQUE
from adprotocol._dispatch.table import BINDINGS, lookup
from adprotocol._gradients import framework
from adprotocol._gradients.structure import Structure
from adprotocol._gradients.where import incapable, select, select_once
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import ArgumentError, NothingTrainableError
from adprotocol.messages import kind_of, quoted, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol._dispatch.binding import Binding
    from adprotocol._gradients.structure import Undo

    # What a plugin calls with tracked leaves: it returns the outputs, and the other arrays that came with them.
    Function = Callable[[list[Any]], tuple[list[Any], list[Any]]]
    Fun = Callable[..., Any]
    Args = tuple[Any, ...]
    Kwargs = dict[str, Any]
    Argnums = tuple[int, ...]


class ArrayCall:
    """The call of a function of one array, which needs no structure.

    A structure would be a third of what the call of one array adds to a gradient (see the benchmarks).
    """

    __slots__ = ("binding", "fun", "leaves")

    def __init__(self, fun: Fun, array: Any, binding: Binding) -> None:
        self.fun = fun
        self.leaves = [array]
        self.binding = binding

    def run(self, tracked: list[Any]) -> Any:
        """Return the result of the function with these leaves."""
        return self.fun(*tracked)

    def restore(self) -> None:
        """Undo the changes to viewed objects: there are none."""

    def structured(self, entries: Sequence[Any]) -> list[Any]:
        """Return for each differentiated argument its structure with an entry for each selected leaf."""
        return list(entries)


class Call:
    """The call of a function of any arguments, of which those at `argnums` are differentiated.

    With `declared` the classes of the arguments say which leaves take gradients.
    """

    def __init__(  # noqa: PLR0913  (what a call consists of)
        self, fun: Fun, args: Args, kwargs: Kwargs, argnums: Argnums, backend: str | None, *, declared: bool = False
    ) -> None:
        self._fun, self._count = fun, len(args)
        self._arguments: dict[int | str, Any] = dict(enumerate(args)) | kwargs
        self.structures: dict[int | str, Structure] = {
            position: Structure(args[position], declared=declared) for position in _positions(argnums, len(args))
        }
        self._others = {name: arg for name, arg in self._arguments.items() if name not in self.structures}
        sole = BINDINGS.PLAIN
        for structure in self.structures.values():
            sole = structure.framework(sole)
        if len(self._others) > 0 or sole.framework is None:
            sole = framework.of_values(sole, list(self._others.values()), fun)
        self.binding: Binding = sole if backend is None and sole.vjp is not None else framework.find(sole, backend)
        # The selected leaves of all structures.
        self.leaves: list[Any] = []
        # Filled by the run, and done after the derivative: a checkpoint runs parts of the function again for it.
        self._undo: Undo = []

    def select(self, where: Any, *, each: bool = True) -> None:
        """Select the leaves that `where`, or the declarations, say: some of each argument, or of one at least."""
        select(list(self.structures.values()), where)
        empty = [name for name, structure in self.structures.items() if True not in structure.mask]
        # With `where` it is enough that it selects a leaf anywhere.
        if empty and (len(empty) == len(self.structures) or (each and where is None)):
            raise _nothing_trainable(self.structures[empty[0]], empty[0], where)
        self.selected()

    def selected(self) -> None:
        """Take over the masks of the structures: the leaves to track, and what is constant beside them."""
        structures = list(self.structures.values())
        select_once(structures)
        for structure in structures:
            self.leaves += structure.differentiated()
        # Where no derivative can enclose the call, what it does not select is constant in every argument.
        self._constants: dict[int | str, Structure] = {}
        if len(self._others) > 0 and not self.binding.is_recording():
            self._constants = {name: Structure(arg, is_frozen=True) for name, arg in self._others.items()}
        self._places, self._frozen = _identified([*structures, *self._constants.values()])

    def run(self, tracked: list[Any]) -> Any:
        """Return the result of the function with these leaves."""
        self.restore()  # where it runs again
        rest, shared = iter(tracked), self._frozen
        if len(self._places) > 0:
            shared = {**shared, **{key: tracked[place] for key, place in self._places.items()}}
        filled = dict(self._arguments)
        for name, structure in self.structures.items():
            filled[name] = structure.fill(rest, shared, self._undo)
        for name, structure in self._constants.items():
            filled[name] = structure.fill_frozen(shared, self._undo)
        args = list(filled.values())[: self._count]
        return self._fun(*args, **{name: arg for name, arg in filled.items() if isinstance(name, str)})

    def restore(self) -> None:
        """Undo the changes to viewed objects."""
        while self._undo:
            self._undo.pop()()

    def structured(self, entries: Sequence[Any]) -> list[Any]:
        """Return for each differentiated argument its structure with an entry for each selected leaf, else None."""
        rest = iter(entries)
        return [structure.only(rest) for structure in self.structures.values()]


def call_of(  # noqa: PLR0913, PLR0917  (the arguments of value_and_grad)
    fun: Fun, args: Args, kwargs: Kwargs, argnums: Argnums, where: Any, backend: str | None, *, each: bool = True
) -> ArrayCall | Call:
    """Return the call of a derivative, with its leaves selected."""
    if len(args) == 1 and not kwargs and where is None and backend is None and argnums == (0,):
        binding = array_binding(fun, args[0])
        if binding is not None:
            return ArrayCall(fun, args[0], binding)
    call = Call(fun, args, kwargs, argnums, backend, declared=where is None)
    call.select(where, each=each)
    return call


def array_binding(fun: Fun, array: Any) -> Binding | None:
    """Return the binding of the framework that differentiates a function of one array; None if there is more to it."""
    binding = lookup(type(array))
    is_numpy = binding is BINDINGS.NUMPY and type(fun) is types.FunctionType and not binding.stands_for(array)  # type: ignore[misc]
    if not is_numpy and (binding.kind not in (ARRAY, CONSTANT) or binding.vjp is None):
        return None
    try:
        if binding.trainable(array) is not True:
            return None
    except Exception:  # noqa: BLE001  (raised again by the call with a structure, as the plugin's)
        return None
    return framework.find(binding, None) if is_numpy else binding


def check_callable(name: str, fun: Any) -> None:
    """Refuse to differentiate what is not a function."""
    if not callable(fun):
        raise ArgumentError(f"{name} was given {kind_of(fun)}; give it the function to differentiate")


def check_argnums(argnums: Any) -> tuple[int, ...]:
    """Return positions of arguments as a tuple."""
    positions = argnums if isinstance(argnums, (tuple, list, range)) else (argnums,)
    if not positions or not all(isinstance(i, int) and not isinstance(i, bool) for i in positions):
        raise ArgumentError(f"argnums={shown(argnums)} is not an argument position; give an int or a tuple of ints")
    return tuple(positions)


def _positions(argnums: tuple[int, ...], count: int) -> list[int]:
    """Return the positions that `argnums` names, counted from the start."""
    for argnum in argnums:
        if not -count <= argnum < count:
            raise ArgumentError(
                f"argnums names argument {argnum}, but the function was called with {count} positional "
                "argument(s); pass differentiated arguments by position"
            )
    positions = [argnum % count for argnum in argnums]
    if len(set(positions)) < len(positions):
        raise ArgumentError(f"argnums={argnums} names an argument twice; give each position once")
    return positions


def _identified(structures: list[Structure]) -> tuple[dict[Any, int], dict[Any, Any]]:
    """Return, by identity, the place of each selected leaf among all of them, and the constants for the others."""
    places: dict[Any, int] = {}
    frozen: dict[Any, Any] = {}
    start = 0
    for structure in structures:
        if len(structure.identities) > 0:
            positions = [i for i, taken in enumerate(structure.mask) if taken]
            for place, i in enumerate(positions, start):
                if i in structure.identities:
                    places[structure.identities[i]] = place
        start += structure.mask.count(True)
    for structure in structures:
        for i, key in structure.identities.items():
            if key not in places and key not in frozen:
                frozen[key] = structure.bindings[type(structure.leaves[i])].freeze(structure.leaves[i])
    return places, frozen


def _nothing_trainable(structure: Structure, name: int | str, where: Any) -> NothingTrainableError:
    if where is not None:
        why = "where selects none"
    elif structure.treespec is None and structure.bindings[type(structure.argument)].kind is OPAQUE:
        why = (
            "its class is no structure, so that numbers and NumPy arrays in it are constants; make it a dataclass, or "
            "register it with optree or with the framework's own tree library"
        )
    elif False in structure.flags():
        why = (
            "what could take one is left out by flags such as requires_grad, by its class, or as a complex number; "
            "turn the flags on, or select some leaves with where="
        )
    else:
        pairs = zip(structure.paths, structure.leaves, strict=True)
        leaves = [pair for pair in pairs if pair[1] is not None] or [("", structure.argument)]
        # An array or a number, if there is one, says the most.
        path, leaf = min(leaves, key=lambda pair: (not hasattr(pair[1], "dtype"), not isinstance(pair[1], int)))
        why = "{} is {}; {}".format(quoted(path), *incapable(leaf))
    return NothingTrainableError(
        f"argument {name}, {kind_of(structure.argument)}, has no leaf that takes a gradient: {why}"
    )
