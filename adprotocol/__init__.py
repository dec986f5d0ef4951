"""A backend-agnostic AD-mode protocol.

Questions that every automatic differentiation (AD) system answers differently,
asked in one way: `within_gradient`, `non_differentiable`, `cond`. A library
depends on this package alone; JAX, PyTorch and autograd answer through plugins
that are found when they are in use.
"""

from adprotocol.branching import cond
from adprotocol.constant import non_differentiable
from adprotocol.errors import ADProtocolError
from adprotocol.label import NonDifferentiable
from adprotocol.query import explain, within_gradient

# Enters the bindings of the core in the table; last, for it uses all of the above.
from adprotocol import plain as _plain  # noqa: F401  # isort: skip

__version__ = "0.1.0"

__all__ = [
    "ADProtocolError",
    "NonDifferentiable",
    "cond",
    "explain",
    "non_differentiable",
    "within_gradient",
]
