"""`steepest_ascent`: the direction of an optimiser step, whatever the framework's convention for complex leaves."""

from __future__ import annotations

from adprotocol._dispatch.dtype import kind_of_dtype
from adprotocol._dispatch.table import BINDINGS, lookup
from adprotocol._gradients.tree_map import tree_map
from adprotocol._typing import Any


def steepest_ascent(gradient: Any) -> Any:
    """Return a gradient as the direction in which the function grows fastest, on every framework.

    >>> import numpy, adprotocol
    >>> adprotocol.steepest_ascent({"w": numpy.array(1.0 + 2.0j), "scale": 3.0, "name": None})
    {'w': np.complex128(1-2j), 'scale': 3.0, 'name': None}

    Real gradients are that direction. For complex leaves PyTorch returns the direction itself. JAX and autograd return
    its conjugate, with which ``parameter - rate * slope`` climbs along the imaginary part.

    Args:
        gradient: a structure as `grad` returns it, of arrays of any shapes and dtypes.

    Returns:
        The same structure, with complex arrays conjugated where the framework has that convention.

    Raises:
        PluginError: the plugin of a complex array does not declare its convention in its hook `array_functions`.

    Source: ``jax.grad`` and https://pytorch.org/docs/stable/notes/autograd.html#autograd-for-complex-numbers
    """
    return tree_map(_ascent, gradient)


def _ascent(leaf: Any) -> Any:
    if not (isinstance(leaf, complex) or kind_of_dtype(getattr(leaf, "dtype", None)) == "complex"):
        return leaf
    binding = lookup(type(leaf))
    if binding.framework is None:
        binding = BINDINGS.NUMPY
    is_ascent = getattr(binding.functions("steepest_ascent"), "gradient_is_ascent", False)
    return leaf if is_ascent else binding.functions("steepest_ascent", "conj").conj(leaf)
