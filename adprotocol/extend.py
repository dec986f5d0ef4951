"""What a plugin may use besides its hooks.

The three plugins that ship with the library use this module, `adprotocol.hookspecs`,
`adprotocol.errors`, `adprotocol.messages`, `adprotocol.tracing` and `adprotocol.conformance`, and nothing else that is
not public.

- `tree_leaves`, `tree_map`: the one traversal of containers.
- `declares`, `trainable_names`: for the hook `views`, the declarations of classes inside a viewed object.
- `unlabelled`: for the hook `label_protocol`.
- `ASK_PARAMETERS`: what the hook `explain` adds to False where another value is being differentiated.
- `Divergence`, `read_divergences`: one rule that the framework does not allow the plugin to keep, and those in a
  Markdown file.
- `Branches`: for a `cond` whose predicate is not known yet, what its branches return, compared and put together.
- `DerivativeRule`, `Outline`: what the hook `custom_rule` is given, and what the function returned besides its arrays.
- `Derivative`: for the hook `custom_rule`, the derivative of one call in both modes, by the rule that there is.
- `numpy_dtype`: NumPy's dtype for one of a framework, for the hook `host_call`.
- `gradient_prevented`: the error that the hook `prevent_gradient` raises.
- `search`: every object that a value holds in its attributes, closures and containers, and what those hold.
"""

import adprotocol._public  # noqa: F401  (the bindings and marks)
from adprotocol._hooks.branches import Branches
from adprotocol._hooks.label import unlabelled
from adprotocol._hooks.prevent_gradient import gradient_prevented
from adprotocol._hooks.within_gradient import ASK_PARAMETERS
from adprotocol._rules.derivative import Derivative
from adprotocol._rules.host_function import numpy_dtype
from adprotocol._rules.outline import Outline
from adprotocol._rules.rule import DerivativeRule
from adprotocol._trees.declaration import declares, trainable_names
from adprotocol._trees.held import search
from adprotocol._trees.traversal import tree_leaves, tree_map
from adprotocol.divergence import Divergence, read_divergences

__all__ = [
    "ASK_PARAMETERS", "Branches", "Derivative", "DerivativeRule", "Divergence", "Outline", "declares",
    "gradient_prevented", "numpy_dtype", "read_divergences", "search", "trainable_names", "tree_leaves", "tree_map",
    "unlabelled",
]  # fmt: skip
