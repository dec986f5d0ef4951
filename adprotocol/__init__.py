"""A backend-agnostic AD-mode protocol.

Every automatic differentiation (AD) system answers the same few questions in its own
way. `within_gradient`, `non_differentiable`, `trainable` and `cond` ask them in one
way. A library depends on this package alone; JAX, PyTorch and autograd answer
through plugins, which are loaded when their framework is in use.
"""

import sys as _sys

__version__ = "0.1.0"

__all__ = [
    "ADProtocolError",
    "NonDifferentiable",
    "combine",
    "cond",
    "custom_derivative",
    "explain",
    "grad",
    "host_function",
    "is_concrete",
    "jacobian",
    "jvp",
    "non_differentiable",
    "partition",
    "prevent_gradient",
    "register_structure",
    "register_trainable",
    "steepest_ascent",
    "trainable",
    "trainable_mask",
    "tree_map",
    "value_and_grad",
    "vjp",
    "where",
    "within_gradient",
]


def __getattr__(name: str) -> object:
    """Import what is used: all of it takes 13 ms, which a program that only imports a library need not spend."""
    if name in __all__:
        import adprotocol._public as public  # noqa: PLC0415

        globals().update({each: getattr(public, each) for each in __all__})
        return globals()[name]
    if not name.startswith("_"):
        from importlib import import_module  # noqa: PLC0415

        try:
            return import_module(f"adprotocol.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"adprotocol.{name}":
                raise
    # With these Python suggests the nearest name.
    raise AttributeError(f"module 'adprotocol' has no attribute {name!r}", name=name, obj=_sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
