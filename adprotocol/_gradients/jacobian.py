"""`jacobian`: the whole Jacobian of a function over structures, by a basis of its outputs or of its leaves."""

from __future__ import annotations

import itertools
import math
import types

from adprotocol._dispatch.shape import is_known, shape_of
from adprotocol._dispatch.table import lookup
from adprotocol._dispatch.wrapper import leave_out, wrap
from adprotocol._gradients.call import call_of, check_argnums, check_callable
from adprotocol._gradients.products import run_forward, run_reverse
from adprotocol._hooks.is_concrete import is_concrete
from adprotocol._rules.check import is_complex
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import ArgumentError, OutputError, PluginError
from adprotocol.messages import add_note, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from adprotocol._dispatch.binding import Binding
    from adprotocol._gradients.call import ArrayCall, Call
    from adprotocol._rules.outline import Outline

    # What the function returned, as arrays and outline, and for each output the Jacobian by each leaf.
    Rows = tuple[list[Any], Outline, list[list[Any]]]


def jacobian(  # noqa: PLR0913  (what may be chosen)
    fun: Callable[..., Any],
    *,
    where: Any = None,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    mode: str | None = None,
    chunk_size: int | None = None,
    backend: str | None = None,
) -> Callable[..., Any]:
    """Return a function that computes the Jacobian of `fun` for the leaves that take a gradient.

    >>> import adprotocol
    >>> import numpy as np
    >>> print(adprotocol.jacobian(lambda x: x**2)(np.array([1.0, 2.0])))
    [[2. 0.]
     [0. 4.]]
    >>> hessian = adprotocol.jacobian(adprotocol.grad(lambda x: (x**3).sum()))
    >>> print(hessian(np.array([1.0, 2.0])))
    [[ 6.  0.]
     [ 0. 12.]]

    Args:
        fun: a function that returns arrays of inexact dtype in any structure, as for
            `vjp`.
        where: which leaves take gradients, as for `value_and_grad`.
        argnums: the arguments to differentiate with respect to.
        has_aux: whether `fun` returns a pair of the value and anything else.
        mode: ``"reverse"``, the default, runs `fun` once and pulls back a basis of the
            outputs. ``"forward"`` pushes a basis of the leaves forward, which is faster
            where the leaves have fewer elements than the outputs. The result is the same.
        chunk_size: how many rows of a basis are computed at once, all by default. Smaller
            chunks save memory.
        backend: the framework for NumPy arrays and Python numbers.

    Returns:
        A function of the arguments of `fun` that returns the Jacobian, with `has_aux`
        ``(jacobian, aux)``. It is the structure of the value, with None for a constant. For
        each output it holds the structure of the gradient of `grad`, with the shape of
        the output before the shape of each leaf.

    Raises:
        OutputError: as for `vjp`, or an output is complex in reverse mode.
        ArgumentError: `mode` or `chunk_size` is none of the above, or a leaf is complex
            in forward mode.
        ADProtocolError: as `value_and_grad` does.

    Rows are computed by the framework's own vmap where it has one. After ``jax.jacrev``,
    ``jax.jacfwd`` and ``torch.func.jacrev``.
    """
    check_callable("jacobian", fun)
    positions = check_argnums(argnums)
    if mode not in (None, "reverse", "forward"):
        raise ArgumentError(f"jacobian was given mode={shown(mode)}; give 'reverse', 'forward' or None")
    if chunk_size is not None and (not isinstance(chunk_size, int) or isinstance(chunk_size, bool) or chunk_size < 1):
        raise ArgumentError(f"jacobian was given chunk_size={shown(chunk_size)}; give a positive int, or None")

    def differentiated(*args: Any, **kwargs: Any) -> Any:
        try:
            call = call_of(fun, args, kwargs, positions, where, backend)
            in_mode = _forward if mode == "forward" else _reverse
            arrays, outline, parts = in_mode(call, chunk_size, has_aux=has_aux)
            rows = [call.structured(part) for part in parts]
        except BaseException as error:
            if mode == "forward" and not isinstance(error, PluginError):
                add_note(error, "jacobian ran in forward mode; mode='reverse', the default, does without")
            leave_out(error)
            raise
        whole = outline.cotangent([row[0] if isinstance(argnums, int) else tuple(row) for row in rows])
        return (whole, outline.filled(arrays)[1]) if has_aux else whole

    return wrap(differentiated, fun)


def _reverse(call: ArrayCall | Call, chunk_size: int | None, *, has_aux: bool) -> Rows:
    """Return for each output the Jacobian by each leaf: a row is the pull of an element of a basis."""
    arrays, outline, pull = run_reverse(call, has_aux=has_aux)
    leaves, outputs = call.leaves, arrays[: outline.count]
    functions = _functions(call.binding, [*leaves, *outputs], "basis", "reshape")
    if any(map(is_complex, outputs)):
        raise OutputError(
            "the value of the function is complex, and a Jacobian in reverse mode consists of gradients of real "
            "numbers: take real and imaginary part, or use mode='forward' if no leaf is complex"
        )
    parts = []
    for i, y in enumerate(outputs):

        def row(cotangents: list[Any], i: int = i) -> list[Any]:
            return pull([cotangents[0] if j == i else None for j in range(len(outputs))])  # type: ignore[no-any-return]

        shape, size = shape_of(y) or (), _size(y)
        if is_known(size, 0):
            rows = [functions.basis(leaf, 0, 0) for leaf in leaves]
        else:
            rows = _each_row(call.binding, row, [functions.basis(y, size, 0)], size, chunk_size)
        pairs = zip(rows, leaves, strict=True)
        parts.append([functions.reshape(part, (*shape, *(shape_of(x) or ()))) for part, x in pairs])
    return arrays, outline, parts


def _forward(call: ArrayCall | Call, chunk_size: int | None, *, has_aux: bool) -> Rows:
    """Return for each output the Jacobian by each leaf: a column is the push of an element of a basis of all leaves."""
    leaves, functions = call.leaves, _functions(call.binding, call.leaves, "basis", "reshape", "moveaxis")
    if any(map(is_complex, leaves)):
        raise ArgumentError(
            "a leaf that takes a gradient is complex, and a Jacobian in forward mode consists of derivatives by real "
            "numbers: take real and imaginary part, or use mode='reverse' if the value is real"
        )
    known: list[Outline] = []

    def column(tangents: list[Any]) -> list[Any]:
        arrays, outline, moved = run_forward(call, tangents, has_aux=has_aux)
        known[:] = [outline]
        return [*moved, *arrays[outline.count :]]

    sizes = list(map(_size, leaves))
    total = sum(sizes)
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    if is_known(total, 0):
        arrays = column([functions.as_like(None, leaf) for leaf in leaves])
        rows = [functions.reshape(array, (1, *(shape_of(array) or ()))) for array in arrays]
    else:
        basis = [functions.basis(leaf, total, start) for leaf, start in zip(leaves, starts, strict=True)]
        rows = _each_row(call.binding, column, basis, total, chunk_size)
    (outline,) = known
    count = outline.count
    # What is no output does not depend on the direction.
    arrays = [*rows[:count], *[array[0] for array in rows[count:]]]
    spans = [(a, a + size, shape_of(x) or ()) for a, size, x in zip(starts, sizes, leaves, strict=True)]
    return arrays, outline, [[_last(functions, moved[a:b], shape) for a, b, shape in spans] for moved in rows[:count]]


def _each_row(
    binding: Binding, fun: Callable[[list[Any]], list[Any]], arrays: list[Any], count: int, chunk_size: int | None
) -> list[Any]:
    """Return what a function makes of each row of some arrays, stacked."""
    # One by one they need no vmap, which a function may refuse, where values are at hand.
    if binding.vmap is not None and not is_known(count, 1) and not (chunk_size == 1 and is_concrete(*arrays)):
        rows = binding.vmap(fun, arrays, chunk_size)
        if rows is not NotImplemented:
            return rows
    rows = [fun([array[i] for array in arrays]) for i in range(count)]
    stack = _functions(binding, itertools.chain(*rows), "stack").stack
    return [stack(column) for column in zip(*rows, strict=True)]


def _functions(binding: Binding, arrays: Iterable[Any], *names: str) -> Any:
    """Return functions of the plugin; those of NumPy where it has none, and these are arrays of NumPy and numbers."""
    given = None if binding.array_functions is None else binding.array_functions()
    is_own = any(lookup(type(array)).framework is not None for array in arrays)
    if is_own or all(hasattr(given, name) for name in names):
        return binding.functions("jacobian", *names)
    import numpy as np  # noqa: PLC0415  (a plugin whose arrays these are has imported it)

    def basis(array: Any, count: int, start: int) -> Any:
        return np.eye(count, np.size(array), -start, np.result_type(array)).reshape(count, *np.shape(array))

    zeros = lambda _, like: np.zeros_like(like)  # noqa: E731
    return types.SimpleNamespace(basis=basis, as_like=zeros, stack=np.stack, moveaxis=np.moveaxis, reshape=np.reshape)


def _last(functions: Any, moved: Any, shape: tuple[int, ...]) -> Any:
    """Return an array with its leading axis, of the elements of a leaf, as the last axes, in the shape of the leaf."""
    _, *rest = shape_of(moved)  # type: ignore[misc]
    return functions.reshape(functions.moveaxis(moved, 0, -1), (*rest, *shape))


def _size(array: Any) -> int:
    return math.prod(shape_of(array) or ())
