"""An identity without a derivative, for `prevent_gradient` where the answer is staged."""

from __future__ import annotations

from typing import Any, NoReturn

import mlx.core as mx

from adprotocol.extend import gradient_prevented
from adprotocol_mlx.answer import ask


def prevent(value: mx.array, message: str) -> mx.array:
    """Return a value; raise now, or when vmap puts in what is tracked, or when a derivative comes by."""
    answer = ask((value,))
    if answer is False:
        return value

    def refuse(*_: Any) -> NoReturn:
        raise gradient_prevented(value, message, "mlx: the graph leads back to what is differentiated")

    if answer is True:
        refuse()
    identity: Any = mx.custom_function(lambda x: x)
    identity.vjp(refuse)
    identity.jvp(refuse)
    identity.vmap(lambda batch, axis: (prevent(batch, message), axis))
    guarded: mx.array = identity(value)
    return guarded
