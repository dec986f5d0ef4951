"""`value_and_grad` and `grad`: gradients for the leaves that take one, and no work for the rest."""

from __future__ import annotations

from adprotocol._dispatch.wrapper import leave_out, wrap
from adprotocol._gradients.call import call_of, check_argnums, check_callable
from adprotocol._gradients.products import run_reverse
from adprotocol._typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


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
    places has a partial derivative at each. The arguments decide which framework
    differentiates. The result composes with itself and with native
    transformations, inside and around them.

    Args:
        fun: a function of the arguments that returns a real floating-point
            scalar, shape ``()``: an array of the framework or a Python float.
            Called once.
        where: which leaves take gradients, as for `trainable`. With several
            `argnums` a mask is a tuple of masks, one for each, and paths start
            over in each argument.
        argnums: the position, or the positions, of the arguments to
            differentiate with respect to.
        has_aux: whether `fun` returns a pair of the scalar and anything else.
        backend: the framework that differentiates, if all arguments are NumPy
            arrays and Python numbers. By default autograd's plugin does.

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

    Gradients of complex leaves follow the framework's convention. After
    ``jax.value_and_grad`` and ``equinox.filter_value_and_grad``.
    """
    check_callable("value_and_grad", fun)
    positions = check_argnums(argnums)

    def differentiated(*args: Any, **kwargs: Any) -> Any:
        try:
            call = call_of(fun, args, kwargs, positions, where, backend)
            arrays, outline, entries = run_reverse(call, has_aux=has_aux, once=True)
            gradients = call.structured(entries)
        except BaseException as error:
            leave_out(error)
            raise
        gradient = gradients[0] if isinstance(argnums, int) else tuple(gradients)
        return outline.filled(arrays), gradient

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
    check_callable("grad", fun)
    both = value_and_grad(fun, where=where, argnums=argnums, has_aux=has_aux, backend=backend)

    def differentiated(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return wrap(differentiated, fun)
