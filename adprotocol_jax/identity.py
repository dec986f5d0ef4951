"""Primitives that pass a value on: they evaluate, batch and lower to the identity, and differ in their derivatives.

They stay in a traced program, and add nothing to the compiled one.
"""

from __future__ import annotations

from typing import Any

from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from adprotocol_jax import internals


def identity_primitive(name: str) -> Any:
    """Return a primitive of one operand that is the identity, and has no derivative rule yet."""
    made: Any = Primitive(name)
    made.def_impl(lambda value, **_params: value)
    made.def_abstract_eval(lambda aval, **_params: aval)
    batching.primitive_batchers[made] = lambda values, dims, **params: (made.bind(*values, **params), *dims)
    mlir.register_lowering(made, lambda _context, value, **_params: [value])
    internals.register_for_shard_map(made)
    return made
