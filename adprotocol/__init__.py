"""A backend-agnostic AD-mode protocol.

Questions that every automatic differentiation (AD) system answers differently,
asked in one way: `within_gradient`, `non_differentiable`, `trainable`, `cond`. A
library depends on this package alone; JAX, PyTorch and autograd answer through plugins
that are found when they are in use.
"""

from adprotocol._gradients.partition import combine, partition, trainable
from adprotocol._gradients.value_and_grad import grad, value_and_grad
from adprotocol._hooks.cond import cond
from adprotocol._hooks.label import NonDifferentiable
from adprotocol._hooks.non_differentiable import non_differentiable
from adprotocol._hooks.within_gradient import explain, within_gradient
from adprotocol._trees.declaration import register_trainable
from adprotocol.errors import ADProtocolError

# Enters the bindings of the core in the table; last, for it uses all of the above.
from adprotocol._hooks import builtins as _plain  # noqa: F401  # isort: skip

__version__ = "0.1.0"

__all__ = [
    "ADProtocolError",
    "NonDifferentiable",
    "combine",
    "cond",
    "explain",
    "grad",
    "non_differentiable",
    "partition",
    "register_trainable",
    "trainable",
    "value_and_grad",
    "within_gradient",
]
