"""`value_and_grad` and `grad`: gradients for the leaves that take them, and no work for the rest.

.. code-block:: text

    value_and_grad(fun)(model, x)
      Structure(model)            leaves, treespec
      select(…, where)            which leaves
      plugin's value_and_grad(call, chosen leaves)
        call(tracked leaves)      fun(model with those leaves, x)
      rebuilt(gradients, None elsewhere)

The framework sees the chosen leaves and nothing else, as if the rest had been
closed over by hand: what is frozen is a constant to it from the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adprotocol._dispatch.table import BINDINGS, binding_of
from adprotocol._dynamo import wrap
from adprotocol._gradients import enclosing, output
from adprotocol._gradients import framework as backends
from adprotocol._gradients.structure import Structure
from adprotocol._gradients.where import select
from adprotocol.errors import ArgumentError, NothingTrainableError, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol._gradients.structure import Undo


def value_and_grad(
    fun: Callable[..., Any],
    *,
    where: Any = None,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    backend: str | None = None,
) -> Callable[..., Any]:
    """Return a function that computes the value of `fun` and the gradient for the leaves that take one.

    >>> import adprotocol
    >>> def loss(model, x):
    ...     return (model["w"] * x + model["b"]) ** 2
    >>> value, gradient = adprotocol.value_and_grad(loss, where="w")({"w": 2.0, "b": 1.0}, 3.0)
    >>> print(value, {name: g if g is None else float(g) for name, g in gradient.items()})
    49.0 {'w': 42.0, 'b': None}

    What takes no gradient costs none: nothing is saved and nothing computed for
    it. Gradients that pass through a frozen part are unchanged. An array at two
    places has a partial derivative at each. The framework is that of the
    arguments. It composes with itself and with native transformations, inside
    and around them.

    Args:
        fun: a function of the arguments that returns a real floating-point
            scalar, shape ``()``: an array of the framework or a Python float.
            Called once.
        where: which leaves take gradients, as for `trainable`. With several
            `argnums` a mask is a tuple, one for each, and paths begin anew in
            each argument.
        argnums: the position, or the positions, of the arguments to
            differentiate with respect to.
        has_aux: whether `fun` returns a pair, the scalar and anything else.
        backend: the framework's name, for arguments of NumPy arrays and Python
            numbers only. Without it autograd takes those.

    Returns:
        A function of the arguments of `fun` that returns ``(value, gradient)``,
        with `has_aux` ``((value, aux), gradient)``. The gradient has the
        structure of ``trainable(argument, where)``, None for what takes none,
        zeros for what `fun` does not use; a tuple of them for several `argnums`.

    Raises:
        OutputError: the result is no scalar, complex, or of integers; `has_aux`
            and no pair.
        NothingTrainableError: an argument has no leaf that takes a gradient.
        ArgumentError: `fun` cannot be called, `argnums` are not positions of
            arguments.
        BackendError: only NumPy arrays and numbers, and no backend for them.
        MixedFrameworksError: values of two frameworks.
        ADProtocolError: as `trainable` does.

    The convention for complex leaves is that of the framework. After
    ``jax.value_and_grad`` and ``equinox.filter_value_and_grad``.
    """
    _check_callable("value_and_grad", fun)
    positions = _positions(argnums)

    def differentiated(*args: Any, **kwargs: Any) -> Any:
        value, aux, gradients = _differentiate(
            fun, args, kwargs, where=where, argnums=positions, has_aux=has_aux, backend=backend
        )
        gradient = gradients[0] if isinstance(argnums, int) else tuple(gradients)
        return ((value, aux), gradient) if has_aux else (value, gradient)

    return wrap(differentiated, fun)


def grad(
    fun: Callable[..., Any],
    *,
    where: Any = None,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    backend: str | None = None,
) -> Callable[..., Any]:
    """Return a function that computes the gradient of `fun` for the leaves that take one.

    >>> import adprotocol
    >>> print(adprotocol.grad(lambda x: x**3)(2.0))
    12.0

    Args:
        fun: as for `value_and_grad`, and so are the others.
        where: which leaves take gradients.
        argnums: the arguments to differentiate with respect to.
        has_aux: whether `fun` returns a pair.
        backend: the framework for NumPy arrays and Python numbers.

    Returns:
        A function of the arguments of `fun` that returns the gradient, with
        `has_aux` ``(gradient, aux)``.

    Raises:
        ADProtocolError: as `value_and_grad` does.

    After ``jax.grad``.
    """
    _check_callable("grad", fun)
    both = value_and_grad(fun, where=where, argnums=argnums, has_aux=has_aux, backend=backend)

    def differentiated(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return wrap(differentiated, fun)


def _differentiate(  # noqa: PLR0913  (what value_and_grad was given)
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    where: Any,
    argnums: tuple[int, ...],
    has_aux: bool,
    backend: str | None,
) -> tuple[Any, Any, list[Any]]:
    """Return value, auxiliary output, and the gradient for each argument that `argnums` names."""
    given = [_position(argnum, args) for argnum in argnums]
    if len(set(given)) != len(given):
        msg = f"argnums={argnums} names an argument twice; give each position once"
        raise ArgumentError(msg)
    structures = [Structure(args[i]) for i in given]
    found = BINDINGS.plain
    for structure in structures:
        found = structure.framework(found)
    others = [arg for i, arg in enumerate(args) if i not in given]
    binding = backends.find(found, (*others, *kwargs.values()), fun, backend)
    chosen = select(structures, where, several=len(argnums) > 1)
    _check_trainable(structures, chosen, given, where)

    # A parameter that is frozen though its own flag says that it is trained, and the constant in its place, by id.
    frozen: dict[int, tuple[Any, Any]] = {}
    slots = [_Slots(structure, mine, frozen) for structure, mine in zip(structures, chosen, strict=True)]
    leaves = [leaf for slot in slots for leaf in slot.selected]

    # Filled in by the call and undone after the derivative: a checkpoint runs parts of the function again for it.
    undo: Undo = []

    def call(tracked: list[Any]) -> tuple[Any, Any]:
        undo.append(enclosing.enter(leaves, tracked, frozen, binding.parameter_types))
        replaced = {id(old): new for old, new in zip(leaves, tracked, strict=True)}
        arguments = list(args)
        start = 0
        for i, slot in zip(given, slots, strict=True):
            count = len(slot.selected)
            arguments[i] = slot.filled(tracked[start : start + count], replaced, undo)
            start += count
        return output.split(fun(*arguments, **kwargs), binding, has_aux=has_aux)

    try:
        value, aux, gradients = binding.value_and_grad(call, leaves)  # type: ignore[misc]
    finally:
        for restore in reversed(undo):
            restore()
    result = []
    start = 0
    for slot in slots:
        count = len(slot.selected)
        result.append(slot.gradient(gradients[start : start + count]))
        start += count
    return value, aux, result


class _Slots:
    """The places of the chosen leaves in one structure."""

    __slots__ = ("_chosen", "_frozen", "_shared", "_structure", "selected")

    def __init__(self, structure: Structure, chosen: list[bool], frozen: dict[int, tuple[Any, Any]]) -> None:
        self._structure = structure
        self._chosen = chosen
        self.selected = [leaf for leaf, mine in zip(structure.leaves, chosen, strict=True) if mine]
        # Parameters with an identity that are not chosen here: chosen at another
        # place, or frozen.
        self._shared: list[int] = []
        self._frozen = frozen
        if any(binding_of(cls).parameter_types for cls in set(map(type, structure.leaves))):
            self._find_parameters()

    def _find_parameters(self) -> None:
        for i, leaf in enumerate(self._structure.leaves):
            binding = binding_of(type(leaf))
            parameter = enclosing.original(leaf)
            if not self._chosen[i] and isinstance(parameter, binding.parameter_types):
                self._shared.append(i)
                if binding.trainable(parameter) and not enclosing.is_variable(leaf) and id(leaf) not in self._frozen:
                    self._frozen[id(leaf)] = (leaf, binding.non_differentiable(leaf))

    def filled(self, tracked: list[Any], replaced: dict[int, Any], undo: Undo) -> Any:
        """Return the argument with the tracked leaves in place of the chosen ones."""
        leaves = self._with(tracked, self._structure.leaves)
        for i in self._shared:
            leaf = leaves[i]
            if id(leaf) in replaced:
                leaves[i] = replaced[id(leaf)]
            elif id(leaf) in self._frozen:
                leaves[i] = self._frozen[id(leaf)][1]
        return self._structure.filled(leaves, undo)

    def gradient(self, gradients: list[Any]) -> Any:
        """Return the structure with gradients at the chosen leaves and None elsewhere."""
        return self._structure.rebuilt(self._with(gradients, [None] * len(self._chosen)))

    def _with(self, new: list[Any], others: list[Any]) -> list[Any]:
        following = iter(new)
        return [next(following) if mine else other for mine, other in zip(self._chosen, others, strict=True)]


def _check_trainable(structures: list[Structure], chosen: list[list[bool]], given: list[int], where: Any) -> None:
    empty = [i for i, mine in zip(given, chosen, strict=True) if True not in mine]
    if not empty or (where is not None and len(empty) < len(given)):
        return
    shown = structures[given.index(empty[0])].shown
    said = (
        "by default floating-point arrays and Python floats do, unless the classes, flags or labels say otherwise; "
        "select some with where="
        if where is None
        else "where selects none"
    )
    msg = f"argument {empty[0]}, {kind_of(shown)}, has no leaf that takes a gradient: {said}"
    raise NothingTrainableError(msg)


def _check_callable(name: str, fun: Any) -> None:
    if not callable(fun):
        msg = f"{name} was given {kind_of(fun)}; it takes the function to differentiate"
        raise ArgumentError(msg)


def _positions(argnums: Any) -> tuple[int, ...]:
    positions = (argnums,) if isinstance(argnums, int) else argnums
    if (
        isinstance(argnums, bool)
        or not isinstance(positions, (tuple, list, range))
        or not positions
        or not all(isinstance(i, int) and not isinstance(i, bool) for i in positions)
    ):
        msg = f"argnums={argnums!r:.60} is no position of an argument; give an int, or a tuple of ints"
        raise ArgumentError(msg)
    return tuple(positions)


def _position(argnum: int, args: tuple[Any, ...]) -> int:
    if -len(args) <= argnum < len(args):
        return argnum % len(args)
    msg = (
        f"argnums names argument {argnum}, but the function was called with {len(args)} positional argument(s); pass "
        "what is differentiated by position"
    )
    raise ArgumentError(msg)
