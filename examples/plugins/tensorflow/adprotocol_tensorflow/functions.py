"""What `tf.function` does to Python functions, and how adprotocol's stay as they are.

AutoGraph rewrites what is called in a traced function. In adprotocol and this package it has nothing to do: it would
slow the first trace down, warn of what it cannot rewrite, and raise errors of its own in the place of theirs.

Worse, TensorFlow takes an argument of a traced function that has a `__wrapped__` for what is in there. A decorated
function arrives undecorated, and `@non_differentiable` would be lost without a word.
"""

from __future__ import annotations

import functools
import weakref
from pathlib import Path
from typing import Any

from tensorflow.core.function import trace_type
from tensorflow.core.function.trace_type import default_types, trace_type_builder
from tensorflow.python.autograph.core import config
from tensorflow.python.autograph.impl import api

import adprotocol
from adprotocol.errors import ADProtocolError

_HERE = str(Path(adprotocol.__file__).parent)


def _is_decorated(entity: Any) -> bool:
    """Return whether a function has the code of adprotocol; name and module are those of the user's."""
    code = getattr(entity, "__code__", None)
    return code is not None and str(getattr(code, "co_filename", "")).startswith(_HERE)


def install() -> None:
    """Have TensorFlow leave the functions of these packages as they are, and pass their errors on."""
    config.CONVERSION_RULES = (
        config.DoNotConvert("adprotocol"),
        config.DoNotConvert("adprotocol_tensorflow"),
        *config.CONVERSION_RULES,
    )
    ADProtocolError.ag_pass_through = True
    is_artifact, from_value = api.is_autograph_artifact, trace_type_builder.from_value

    @functools.wraps(is_artifact)
    def is_autograph_artifact(entity: Any) -> bool:
        return _is_decorated(entity) or is_artifact(entity)

    @functools.wraps(from_value)
    def with_decorators(value: Any, context: Any = None) -> Any:
        if _is_decorated(value):
            return default_types.Weakref(weakref.ref(value))
        return from_value(value, context)

    api.is_autograph_artifact = is_autograph_artifact
    trace_type_builder.from_value = trace_type.from_value = with_decorators
