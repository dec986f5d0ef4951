"""Everything that a plugin may use besides its hooks.

The three plugins that ship with the library use this module, `adprotocol.hookspecs`,
`adprotocol.errors` and `adprotocol.conformance`, and nothing else that is not public.

- `tree_leaves`, `tree_map`, `tree_structure`: the one traversal of containers.
- `constant_tree`: `adprotocol.non_differentiable` for the arguments or the result of
  a function; functions among the leaves stay unchanged.
- `check_output`, `map_aux`, `partition_aux`, `combine_aux`: for the hook `value_and_grad`.
- `View`, `declares`, `trainable_names`: for the hook `views`, and for the declarations
  of classes inside a viewed object.
- `TreeLibrary`: for the hook `tree_library`.
- `unlabelled`: for the hook `label_protocol`.
- `ASK_PARAMETERS`: what the hook `explain` adds to False where another value is being differentiated.
- `Divergence`, `read_divergences`: one rule that the framework does not allow the plugin to keep, and those in a
  Markdown file.
- `Branches`: for a `cond` whose predicate is not known yet, what its branches return, compared and put together.
- `DerivativeRule`, `Outline`: what the hook `custom_rule` is given, and what the function returned besides its arrays.
- `hidden_error`: the error for a function with a rule that uses a differentiated value which is no argument of it.
- `transposing`, `check_transpose`, `not_linear`: for the transposition of a rule for the other mode, which has to be
  linear in what flows.
- `numpy_dtype`: NumPy's dtype for one of a framework, for the hook `host_call`.
- `gradient_prevented`: the error that the hook `prevent_gradient` raises.
- `run_while_tracing`, `trace_instead`: marks for a compiler that traces Python.
- `held`, `search`: what an object holds in its attributes and closures, and everything that it reaches.
- `attribute_names`: the names in the ``__dict__`` of an instance, which such a compiler may have to be told.
- `leaves_of_each`, `flags_of`, `flags_of_each`, `identities_of`, `answer_at_once`: `tree_leaves`, the hooks `trainable`
  and `identity` for the leaves of a structure, and a question, which such a compiler may answer for all values at once.
"""

import adprotocol._public  # noqa: F401  (the bindings and marks)
from adprotocol._dynamo import answer_at_once, run_while_tracing, trace_instead
from adprotocol._gradients.output import check_output, combine_aux, map_aux, partition_aux
from adprotocol._gradients.structure import flags_of, flags_of_each, identities_of
from adprotocol._hooks.branches import Branches
from adprotocol._hooks.label import unlabelled
from adprotocol._hooks.non_differentiable import constant_tree
from adprotocol._hooks.prevent_gradient import gradient_prevented
from adprotocol._hooks.within_gradient import ASK_PARAMETERS
from adprotocol._rules.arguments import Outline
from adprotocol._rules.closure import hidden_error
from adprotocol._rules.host_function import numpy_dtype
from adprotocol._rules.rule import DerivativeRule
from adprotocol._rules.transposition import check_transpose, not_linear, transposing
from adprotocol._trees.declaration import declares, trainable_names
from adprotocol._trees.fields import attribute_names
from adprotocol._trees.held import held, search
from adprotocol._trees.traversal import leaves_of_each, tree_leaves, tree_map, tree_structure
from adprotocol.divergence import Divergence, read_divergences
from adprotocol.tree_library import TreeLibrary
from adprotocol.view import View

__all__ = [
    "ASK_PARAMETERS",
    "Branches",
    "DerivativeRule",
    "Divergence",
    "Outline",
    "TreeLibrary",
    "View",
    "answer_at_once",
    "attribute_names",
    "check_output",
    "check_transpose",
    "combine_aux",
    "constant_tree",
    "declares",
    "flags_of",
    "flags_of_each",
    "gradient_prevented",
    "held",
    "hidden_error",
    "identities_of",
    "leaves_of_each",
    "map_aux",
    "not_linear",
    "numpy_dtype",
    "partition_aux",
    "read_divergences",
    "run_while_tracing",
    "search",
    "trace_instead",
    "trainable_names",
    "transposing",
    "tree_leaves",
    "tree_map",
    "tree_structure",
    "unlabelled",
]
