"""A quadratic program, solved by Clarabel and differentiated by its Karush-Kuhn-Tucker conditions."""

from typing import Any, NamedTuple

import clarabel
import numpy as np
from scipy import sparse

from adprotocol import custom_derivative, host_function
from solver_layer.linear import solve


class Solution(NamedTuple):
    """The minimiser `x`, and the multipliers of the inequalities and of the equalities."""

    x: Any
    inequalities: Any
    equalities: Any


def minimise(P: Any, q: Any, G: Any, h: Any, A: Any = None, b: Any = None) -> Solution:
    """Minimise ``x @ P @ x / 2 + q @ x`` where ``G @ x <= h`` and ``A @ x == b``.

    Derivatives are those of the Karush-Kuhn-Tucker conditions at the solution, as in
    OptNet (B. Amos and Z. Kolter, https://arxiv.org/abs/1703.00443), of any order. Where a
    constraint is active and its multiplier is zero there is none; the constraint is then
    taken as inactive.

    Args:
        P: a positive definite matrix; what counts is its symmetric part.
        q: a vector.
        G: a matrix.
        h: a vector.
        A: a matrix of full row rank; without it and `b` there are no equalities.
        b: a vector.

    Raises:
        ArithmeticError: the program has no solution that the solver finds.
        numpy.linalg.LinAlgError: the solution is differentiated and degenerate.
    """
    return _minimise(P, q, G, h, P[:0] if A is None else A, q[:0] if b is None else b)


@custom_derivative
@host_function(like=lambda _P, q, _G, h, _A, b: Solution(q, h, b))
def _minimise(P: Any, q: Any, G: Any, h: Any, A: Any, b: Any) -> Solution:
    options = clarabel.DefaultSettings()
    options.verbose = False
    options.tol_gap_abs = options.tol_gap_rel = options.tol_feas = 1e-12
    upper = sparse.csc_matrix(np.triu((P + P.T) / 2.0), dtype=float)
    rows = sparse.csc_matrix(np.concatenate([A, G]), dtype=float)
    cones = [clarabel.ZeroConeT(len(b)), clarabel.NonnegativeConeT(len(h))]
    bounds = np.concatenate([b, h]).astype(float)
    found = clarabel.DefaultSolver(upper, np.asarray(q, float), rows, bounds, cones, options).solve()
    if found.status not in (clarabel.SolverStatus.Solved, clarabel.SolverStatus.AlmostSolved):
        msg = f"the quadratic program has no solution that Clarabel finds: {found.status}"
        raise ArithmeticError(msg)
    equalities, inequalities = np.split(np.asarray(found.z), [len(b)])
    slack = np.asarray(found.s)[len(b) :]
    return Solution(np.asarray(found.x), np.where(inequalities > slack, inequalities, 0.0), equalities)


@_minimise.defvjp
def _minimise_vjp(
    cotangent: Solution,
    solution: Solution,
    P: Any,
    _q: Any,
    G: Any,
    h: Any,
    A: Any,
    _b: Any,
) -> Any:
    x, z, y = solution
    # The derivative of the conditions by x, z and y, transposed:
    # P x + q + G' z + A' y = 0, z (G x - h) = 0, A x - b = 0.
    blocks = [[(P + P.T) / 2.0, (z[:, None] * G).T, A.T], [G, G @ x - h, None], [A, None, None]]
    dx, dz, dy = solve(blocks, list(cotangent))
    dz = z * dz
    return (
        lambda: -(dx[:, None] * x + x[:, None] * dx) / 2.0,
        -dx,
        lambda: -z[:, None] * dx - dz[:, None] * x,
        dz,
        lambda: -y[:, None] * dx - dy[:, None] * x,
        dy,
    )
