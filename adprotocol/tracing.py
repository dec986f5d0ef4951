"""What the plugin of a framework may use whose compiler traces Python, as ``torch.compile`` does.

- `run_while_tracing`, `trace_instead`: marks for a function that such a compiler runs on constants, or replaces.
- `answer_at_once`, `identities_of`: a question, and the hook `identity` for the leaves of a structure, which such a
  compiler may answer for all at once.
- `CustomDerivative`: the class of the functions that `adprotocol.custom_derivative` returns, which may have to be left
  to eager code.
- `attribute_names`: the names in the ``__dict__`` of an instance, which such a compiler may have to be told.
"""

from adprotocol._dynamo import answer_at_once, run_while_tracing, trace_instead
from adprotocol._gradients.structure import identities_of
from adprotocol._rules.custom_derivative import CustomDerivative
from adprotocol._trees.fields import attribute_names

__all__ = [
    "CustomDerivative", "answer_at_once", "attribute_names", "identities_of", "run_while_tracing", "trace_instead",
]  # fmt: skip
