"""What the plugin of a framework may use whose compiler traces Python, as ``torch.compile`` does.

- `run_while_tracing`, `trace_instead`: marks for a function that such a compiler runs on constants, or replaces.
- `answer_at_once`, `leaves_of_each`, `flags_of`, `flags_of_each`, `identities_of`: a question, the leaves of a
  structure, and the hooks `trainable` and `identity` for them, which such a compiler may answer for all at once.
- `CustomDerivative`: the class of the functions that `adprotocol.custom_derivative` returns, which may have to be left
  to eager code.
- `attribute_names`: the names in the ``__dict__`` of an instance, which such a compiler may have to be told.
"""

from adprotocol._dynamo import answer_at_once, run_while_tracing, trace_instead
from adprotocol._gradients.structure import flags_of, flags_of_each, identities_of
from adprotocol._rules.custom_derivative import CustomDerivative
from adprotocol._trees.fields import attribute_names
from adprotocol._trees.traversal import leaves_of_each

__all__ = [
    "CustomDerivative", "answer_at_once", "attribute_names", "flags_of", "flags_of_each", "identities_of",
    "leaves_of_each", "run_while_tracing", "trace_instead",
]  # fmt: skip
