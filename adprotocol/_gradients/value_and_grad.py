"""`value_and_grad` and `grad`: gradients for the leaves that take one, and no work for the rest.

.. code-block:: text

    value_and_grad(fun)(model, x)
      Structure(model)                        leaves, treespec
      select(where)                           the mask of the leaves that take gradients
      plugin's value_and_grad(call, leaves)
        call(tracked leaves)                  fun(model with those leaves, x)
      with_leaves(gradients, None elsewhere)

The framework sees the selected leaves alone, as in hand-written code that closes
over the rest: a frozen leaf is a constant from the start.
"""

from __future__ import annotations

from adprotocol._dispatch.binding import ARRAY, OPAQUE, wrong_result
from adprotocol._dispatch.table import BINDINGS, lookup
from adprotocol._dispatch.wrapper import leave_out, wrap
from adprotocol._gradients import framework, output
from adprotocol._gradients.structure import Structure, flags_of
from adprotocol._gradients.where import select, select_once
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import ArgumentError, NothingTrainableError
from adprotocol.messages import kind_of, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol._dispatch.binding import Binding
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

    A leaf that takes no gradient costs nothing: nothing is saved or computed for
    it. Gradients that pass through a frozen part are unchanged. An array at two
    places has a partial derivative at each. The framework is found from the
    arguments. The result composes with itself and with native transformations,
    inside and around them.

    Args:
        fun: a function of the arguments that returns a real floating-point
            scalar, shape ``()``: an array of the framework or a Python float.
            Called once.
        where: which leaves take gradients, as for `trainable`. With several
            `argnums` a mask is a tuple of masks, one for each, and paths start
            again in each argument.
        argnums: the position, or the positions, of the arguments to
            differentiate with respect to.
        has_aux: whether `fun` returns a pair of the scalar and anything else.
        backend: the name of a framework, for arguments that are NumPy arrays and
            Python numbers only. By default the plugin that differentiates NumPy
            (autograd's) takes them.

    Returns:
        A function of the arguments of `fun` that returns ``(value, gradient)``,
        with `has_aux` ``((value, aux), gradient)``. The gradient has the
        structure of ``trainable(argument, where)``, with None for a leaf that
        takes no gradient and zeros for one that `fun` does not use; for several
        `argnums` it is a tuple of gradients.

    Raises:
        OutputError: the result is not a real floating-point scalar, or with
            `has_aux` not a pair.
        NothingTrainableError: an argument has no leaf that takes a gradient.
        ArgumentError: `fun` cannot be called, or `argnums` are not positions of
            arguments.
        BackendError: the arguments are NumPy arrays and Python numbers only, and
            no plugin differentiates these; or `backend` names no active plugin.
        MixedFrameworksError: values of two frameworks.
        ADProtocolError: as `trainable` does.

    Complex leaves follow the framework's convention. After
    ``jax.value_and_grad`` and ``equinox.filter_value_and_grad``.
    """
    _check_callable("value_and_grad", fun)
    positions = _positions(argnums)

    def differentiated(*args: Any, **kwargs: Any) -> Any:
        try:
            value, aux, gradients = _differentiate(
                fun, args, kwargs, where=where, argnums=positions, has_aux=has_aux, backend=backend
            )
        except BaseException as error:
            leave_out(error)
            raise
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
        fun: as for `value_and_grad`, like all other arguments.
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


def _differentiate(  # noqa: PLR0913, PLR0915  (the arguments of value_and_grad, and its steps in order)
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
    # One array needs no structure: a third of what the call of one adds to a gradient (see the benchmarks).
    if len(args) == 1 and not kwargs and where is None and backend is None and argnums == (0,):
        binding = lookup(type(args[0]))
        is_array = binding.kind is ARRAY and binding.value_and_grad is not None
        if is_array and flags_of(args, (True,), {type(args[0]): binding}) == [True]:

            def call_with(tracked: list[Any]) -> tuple[Any, Any]:
                return output.split(fun(*tracked), binding, has_aux=has_aux)

            return _checked(binding.value_and_grad(call_with, [*args]), binding, 1)  # type: ignore[misc]
    arguments: dict[int | str, Any] = dict(enumerate(args))
    arguments.update(kwargs)
    structures: dict[int | str, Structure] = {}
    sole = BINDINGS.PLAIN
    for argnum in argnums:
        if not -len(args) <= argnum < len(args):
            msg = (
                f"argnums names argument {argnum}, but the function was called with {len(args)} positional "
                "argument(s); pass differentiated arguments by position"
            )
            raise ArgumentError(msg)
        position = argnum % len(args)
        structures[position] = structure = Structure(args[position], declared=where is None)
        sole = structure.framework(sole)
    if len(structures) < len(argnums):
        msg = f"argnums={argnums} names an argument twice; give each position once"
        raise ArgumentError(msg)
    has_others = len(arguments) > len(structures)
    others = {name: arg for name, arg in arguments.items() if name not in structures} if has_others else {}
    if has_others or sole.framework is None:
        sole = framework.of_values(sole, list(others.values()), fun)
    binding = sole if backend is None and sole.value_and_grad is not None else framework.find(sole, backend)
    differentiated = list(structures.values())
    select(differentiated, where, several=len(argnums) > 1)
    leaves: list[Any] = []
    has_identities = False
    for structure in differentiated:
        if True not in structure.mask:
            _check_trainable(structures, where)
        has_identities |= len(structure.identities) > 0
    if has_identities:
        select_once(differentiated)
    for structure in differentiated:
        leaves += structure.selected()
    # Where no derivative can enclose the call, what it does not select is constant in every argument.
    constants: dict[int | str, Structure] = {}
    if has_others and not binding.is_recording():
        constants = {name: Structure(arg, is_frozen=True) for name, arg in others.items()}
    has_identities |= len(constants) > 0
    places, frozen = _identified([*differentiated, *constants.values()] if has_identities else [])

    # Filled by the call, and run after the derivative: a checkpoint runs parts of the function again for it.
    undo: Undo = []

    def call(tracked: list[Any]) -> tuple[Any, Any]:
        rest = iter(tracked)
        shared = {**frozen, **{key: tracked[place] for key, place in places.items()}} if len(places) > 0 else frozen
        filled = dict(arguments)
        for name, structure in structures.items():
            filled[name] = structure.fill(rest, shared, undo)
        for name, structure in constants.items():
            filled[name] = structure.fill_frozen(shared, undo)
        result = fun(*list(filled.values())[: len(args)], **{name: filled[name] for name in kwargs})
        return output.split(result, binding, has_aux=has_aux)

    try:
        value, aux, gradients = _checked(binding.value_and_grad(call, leaves), binding, len(leaves))  # type: ignore[misc]
    finally:
        for restore in reversed(undo):
            restore()
    rest = iter(gradients)
    return value, aux, [structure.only(rest) for structure in structures.values()]


def _checked(returned: Any, binding: Binding, count: int) -> tuple[Any, Any, list[Any]]:
    """Return what the hook `value_and_grad` has returned for a number of leaves."""
    value, aux, gradients = returned if isinstance(returned, tuple) and len(returned) == 3 else (None, None, [])  # noqa: PLR2004
    is_whole = isinstance(gradients, (list, tuple)) and len(gradients) == count
    if value is None or not is_whole or any(gradient is None for gradient in gradients):
        due = f"value, auxiliary output and a list with a gradient for each of {count} leaves"
        raise wrong_result(binding.framework, "value_and_grad", returned, due)
    return value, aux, list(gradients)


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


def _check_trainable(structures: dict[int | str, Structure], where: Any) -> None:
    empty = [name for name, structure in structures.items() if True not in structure.mask]
    if not empty or (where is not None and len(empty) < len(structures)):
        return
    structure = structures[empty[0]]
    if where is not None:
        why = "where selects none"
    elif structure.treespec is None and structure.bindings[type(structure.argument)].kind is OPAQUE:
        why = (
            "its class is no structure, so that numbers and NumPy arrays in it are constants; make it a dataclass, or "
            "register it with optree or with the framework's own tree library"
        )
    else:
        why = (
            "by default floating-point arrays and Python floats do, unless flags of parameters such as requires_grad, "
            "labels or the classes say otherwise; turn flags on, or select some leaves with where="
        )
    msg = f"argument {empty[0]}, {kind_of(structure.argument)}, has no leaf that takes a gradient: {why}"
    raise NothingTrainableError(msg)


def _check_callable(name: str, fun: Any) -> None:
    if not callable(fun):
        msg = f"{name} was given {kind_of(fun)}; give it the function to differentiate"
        raise ArgumentError(msg)


def _positions(argnums: Any) -> tuple[int, ...]:
    positions = (argnums,) if isinstance(argnums, int) else argnums
    if (
        isinstance(argnums, bool)
        or not isinstance(positions, (tuple, list, range))
        or not positions
        or not all(isinstance(i, int) and not isinstance(i, bool) for i in positions)
    ):
        msg = f"argnums={shown(argnums)} is not an argument position; give an int or a tuple of ints"
        raise ArgumentError(msg)
    return tuple(positions)
