"""The public functions, imported when one is first used, and the bindings and marks that they need."""
# ruff: noqa: F401  (`adprotocol.__all__` has the names)

from adprotocol._gradients.jacobian import jacobian
from adprotocol._gradients.partition import combine, partition, trainable, trainable_mask
from adprotocol._gradients.products import jvp, vjp
from adprotocol._gradients.steepest_ascent import steepest_ascent
from adprotocol._gradients.tree_map import tree_map
from adprotocol._gradients.value_and_grad import grad, value_and_grad
from adprotocol._hooks.cond import cond
from adprotocol._hooks.is_concrete import is_concrete
from adprotocol._hooks.label import NonDifferentiable
from adprotocol._hooks.non_differentiable import non_differentiable
from adprotocol._hooks.prevent_gradient import prevent_gradient
from adprotocol._hooks.where import where
from adprotocol._hooks.within_gradient import explain, within_gradient
from adprotocol._rules.custom_derivative import custom_derivative
from adprotocol._rules.host_function import host_function
from adprotocol._trees.declaration import register_trainable
from adprotocol._trees.registration import register_structure
from adprotocol.errors import ADProtocolError

# Last, in this order: the bindings of the core enter the table, and Dynamo's marks are set on all of the above.
from adprotocol._hooks import builtins as _builtins  # isort: skip
from adprotocol import _dynamo  # isort: skip

# `help`, the reference and pickles name each by the package that users import it from.
for _each in [*globals().values()]:
    if getattr(_each, "__module__", "").startswith("adprotocol._"):
        _each.__module__ = "adprotocol"
