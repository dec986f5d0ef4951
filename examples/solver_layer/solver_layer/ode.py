"""An ordinary differential equation, solved by SciPy and differentiated by its adjoint equation."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import integrate

from adprotocol import custom_derivative, grad, host_function, tree_map


@custom_derivative
@host_function(like=lambda _fun, start, _params, **_: start)
def odeint(  # noqa: PLR0913
    fun: Callable[[float, Any, Any], Any],
    start: Any,
    params: Any,
    *,
    span: tuple[float, float],
    method: str = "DOP853",
    tolerance: float = 1e-9,
) -> Any:
    """Return the state at the end of a time span, where its slope is ``fun(t, state, params)``.

    For several times call it for each span between them. The derivative is that of the
    adjoint equation, which is solved backwards in time together with the state
    (R. Chen et al., https://arxiv.org/abs/1806.07366); it suits equations that are stable
    backwards.

    Args:
        fun: returns the slope, in the structure of the state. It runs on the host alone,
            where autograd differentiates it; it closes over nothing that is differentiated.
        start: the state at the begin, arrays in any structure.
        params: what the slope depends on, arrays in any structure.
        span: begin and end, numbers, which are constants.
        method: a method of `scipy.integrate.solve_ivp`.
        tolerance: the absolute and the relative error to allow for in a step.

    Raises:
        ArithmeticError: the solver fails.
    """

    def slope(t: float, flat: Any) -> Any:
        return _flat(fun(t, _like(start, flat), params))

    found = integrate.solve_ivp(slope, span, _flat(start), method, rtol=tolerance, atol=tolerance)
    if not found.success:
        msg = f"solve_ivp failed for {fun.__name__}: {found.message}"
        raise ArithmeticError(msg)
    return _like(start, found.y[:, -1])


def _flat(tree: Any) -> Any:
    leaves: list[Any] = []
    tree_map(leaves.append, tree)
    return np.concatenate([np.ravel(leaf) for leaf in leaves])


def _like(tree: Any, flat: Any) -> Any:
    """Return the parts of a vector in the structure of a tree."""
    begin = 0

    def part(leaf: Any) -> Any:
        nonlocal begin
        begin += np.size(leaf)
        return np.reshape(flat[begin - np.size(leaf) : begin], np.shape(leaf))

    return tree_map(part, tree)


@odeint.defvjp
def _odeint_vjp(
    cotangent: Any,
    end: Any,
    fun: Callable[[float, Any, Any], Any],
    _start: Any,
    params: Any,
    *,
    span: tuple[float, float],
    **options: Any,
) -> Any:
    def adjoint(t: float, state: Any, params: Any) -> Any:
        state, weights, _ = state

        def weighted(state: Any, params: Any) -> Any:
            total = 0.0

            def add(weight: Any, slope: Any) -> None:
                nonlocal total
                total = total - (weight * slope).sum()

            tree_map(add, weights, fun(t, state, params))
            return total

        return (fun(t, state, params), *grad(weighted, argnums=(0, 1))(state, params))

    begin = end, cotangent, tree_map(lambda leaf: 0.0 * leaf, params)
    _, of_start, of_params = odeint(adjoint, begin, params, span=span[::-1], **options)
    return None, of_start, of_params
