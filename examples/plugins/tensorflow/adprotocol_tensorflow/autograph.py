"""AutoGraph, which rewrites the functions that `tf.function` traces, is kept out of this package and of adprotocol.

It has nothing to do there. It would slow the first trace down, raise errors of its own in the place of theirs, and
lose a decorator: of a function with a `__wrapped__` it rewrites the source of the wrapped one.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from tensorflow.python.autograph.core import config
from tensorflow.python.autograph.impl import api

import adprotocol
from adprotocol.errors import ADProtocolError

_HERE = str(Path(adprotocol.__file__).parent)


def install() -> None:
    """Have AutoGraph call the functions of these packages as they are, and pass their errors on."""
    config.CONVERSION_RULES = (
        config.DoNotConvert("adprotocol"),
        config.DoNotConvert("adprotocol_tensorflow"),
        *config.CONVERSION_RULES,
    )
    # A decorated function has the name and module of the user's, but the code of adprotocol.
    is_artifact = api.is_autograph_artifact

    @functools.wraps(is_artifact)
    def is_autograph_artifact(entity: Any) -> bool:
        code = getattr(entity, "__code__", None)
        return is_artifact(entity) or str(getattr(code, "co_filename", "")).startswith(_HERE)

    api.is_autograph_artifact = is_autograph_artifact
    ADProtocolError.ag_pass_through = True
