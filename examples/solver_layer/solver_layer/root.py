"""A root of a system of equations, found by SciPy and differentiated by the implicit function theorem."""

from collections.abc import Callable
from typing import Any

from scipy import optimize

from adprotocol import custom_derivative, grad, host_function
from solver_layer.linear import solve


@custom_derivative
@host_function(like=lambda _fun, guess, _params: guess)
def root(fun: Callable[[Any, Any], Any], guess: Any, params: Any) -> Any:
    """Return the vector x near a guess at which ``fun(x, params)`` is zero.

    Args:
        fun: a function of vectors, as many values as unknowns. It closes over nothing that
            is differentiated, and uses operators and methods that every array has, since
            it gets NumPy arrays in the search and the framework's in a derivative.
        guess: where the search begins; the derivative by it is zero.
        params: what the equations depend on, arrays in any structure.

    Raises:
        ArithmeticError: the search does not converge.
    """
    found = optimize.root(lambda x: fun(x, params), guess, tol=1e-13)
    if not found.success:
        msg = f"no root of {fun.__name__} was found: {found.message}"
        raise ArithmeticError(msg)
    return found.x


@root.defvjp
def _root_vjp(cotangent: Any, x: Any, fun: Callable[[Any, Any], Any], _guess: Any, params: Any) -> Any:
    size = len(x)
    # The transposed Jacobian of the equations by x, column by column.
    columns = [grad(lambda x, i=i: fun(x, params)[i])(x)[:, None] for i in range(size)]
    adjoint = solve([columns], [cotangent])

    def weighted(params: Any) -> Any:
        values = fun(x, params)
        return -sum(adjoint[i][0] * values[i] for i in range(size))

    return None, None, lambda: grad(weighted)(params)
