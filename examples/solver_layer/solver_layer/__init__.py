"""Solvers that every framework differentiates: `adprotocol` beside NumPy, SciPy and Clarabel, and no framework.

Arrays may be of NumPy, autograd, JAX or PyTorch. The solvers run on the host.
"""

from solver_layer.linear import solve
from solver_layer.ode import odeint
from solver_layer.quadratic_program import Solution, minimise
from solver_layer.root import root

__all__ = ["Solution", "minimise", "odeint", "root", "solve"]
