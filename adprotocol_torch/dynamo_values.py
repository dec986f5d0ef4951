"""The value that a variable of Dynamo stands for, where a function is to be called with it while Dynamo traces."""

from __future__ import annotations

import functools
import types
from typing import Any

from torch._dynamo import variables
from torch._dynamo.exc import Unsupported
from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.variables.functions import FunctoolsPartialVariable
from torch._dynamo.variables.tensor import SymNodeVariable

_REFUSED = (
    "adprotocol: a function with a derivative rule, or a host function, was given {} in a function that torch.compile "
    "traces; the graph cannot hold it. Pass what it is made of, or define it outside the compiled function"
)


def real(tx: Any, variable: Any) -> Any:
    """Return the value, and guard on it; it must not hold a tensor, nor a closure that was made while Dynamo traced."""
    if isinstance(variable, SymNodeVariable):
        return variable.evaluate_expr(tx.output)
    if isinstance(variable, variables.UserDefinedObjectVariable):
        return _instance(tx, variable)
    if isinstance(variable, (variables.ListVariable, variables.TupleVariable)):
        items = [real(tx, item) for item in variable.items]
        return items if isinstance(variable, variables.ListVariable) else tuple(items)
    if isinstance(variable, variables.UserMethodVariable):
        return types.MethodType(variable.fn, real(tx, variable.obj))
    if isinstance(variable, FunctoolsPartialVariable):
        keywords = {name: real(tx, value) for name, value in variable.keywords.items()}
        return functools.partial(real(tx, variable.func), *[real(tx, item) for item in variable.args], **keywords)
    try:
        return variable.as_python_constant()
    except (NotImplementedError, Unsupported):
        pass
    raise Unsupported(_REFUSED.format(variable))


def _instance(tx: Any, variable: Any) -> Any:
    changed = tx.output.side_effects.store_attr_mutations.get(variable, {})
    if not changed:
        if variable.source is not None:
            install_guard(variable.source.make_guard(GuardBuilder.ID_MATCH))
        return variable.value
    if variable.source is not None:
        raise Unsupported(_REFUSED.format(f"{variable}, which the compiled function changes"))
    made = object.__new__(type(variable.value))
    for name, value in changed.items():
        object.__setattr__(made, name, real(tx, value))
    return made
