"""What a plugin may use besides its hooks: the whole surface for those who extend the library.

The three plugins that ship with it use this module, `adprotocol.hookspecs` and
`adprotocol.errors`, and nothing else that is not public.

- `flatten`, `tree_map`, `structure`: the one traversal of containers.
- `constant_tree`: `adprotocol.non_differentiable` for what a function takes or
  returns, which leaves functions among the leaves alone.
- `check_output`, `map_aux`, `take_out`, `put_back`, `View`: what `value_and_grad` and `view` need.
- `is_variable`: whether a call around the current one differentiates with respect to
  a parameter.
- `declaring`, `trainable_names`: what classes declare of their fields.
- `Divergence`: one thing that the framework does not allow to be done right.
- `predicate_error`, `predicate_shape_error`: the errors with which `cond`
  refuses a predicate, alike on every framework.
- `run_while_tracing`, `trace_instead`: marks for a compiler that reads Python.
"""

from adprotocol._dynamo import run_while_tracing, trace_instead
from adprotocol._gradients.enclosing import is_variable, original
from adprotocol._gradients.output import check_output, map_aux, put_back, take_out
from adprotocol._hooks.cond import predicate_error, predicate_shape_error
from adprotocol._hooks.non_differentiable import constant_tree
from adprotocol._trees.declaration import declaring, trainable_names
from adprotocol._trees.traversal import flatten, structure, tree_map
from adprotocol.divergence import Divergence
from adprotocol.view import View

__all__ = [
    "Divergence",
    "View",
    "check_output",
    "constant_tree",
    "declaring",
    "flatten",
    "is_variable",
    "map_aux",
    "original",
    "predicate_error",
    "predicate_shape_error",
    "put_back",
    "run_while_tracing",
    "structure",
    "take_out",
    "trace_instead",
    "trainable_names",
    "tree_map",
]
