"""The conformance harness for autograd, built from autograd's own functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import autograd
import autograd.numpy as anp
import numpy as np
from autograd.extend import defjvp, defvjp, notrace_primitive, primitive, vspace

from adprotocol.conformance import Harness

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_NO_TRACE = "autograd runs Python, and traces no program"


class AutogradHarness(Harness):
    """Differentiate arrays of NumPy with autograd."""

    name = "autograd"
    tolerance: float = 1e-10
    absent: ClassVar[Mapping[str, str]] = {
        "jit": _NO_TRACE,
        "compile": _NO_TRACE,
        "abstract": _NO_TRACE,
        "scan": "autograd has no scan; loops are Python's",
        "while_loop": "autograd has no loop; loops are Python's",
        "vmap": "autograd does not batch",
        "no_grad": "autograd has no switch for the recording of derivatives",
        **dict.fromkeys(("parameter", "parameter_grad", "assign", "set_flag"), "autograd has no parameters"),
        **dict.fromkeys(("variable", "backward"), "autograd differentiates functions alone"),
        "module": "autograd has no modules",
        "evaluate": "autograd computes at once",
        "node": "autograd has no registry of containers",
        "threads": "autograd counts its traces in one counter for all threads",
    }

    @property
    def variants(self) -> Mapping[str, Mapping[str, Callable[..., Any]]]:
        """Return the further gradient functions."""
        return {
            "grad": {
                "vjp": _grad_by_vjp,
                "jacobian": autograd.jacobian,
                "elementwise_grad": autograd.elementwise_grad,
            },
        }

    def array(self, value: Any) -> Any:
        """Return a NumPy array."""
        return np.asarray(value)

    def to_numpy(self, array: Any) -> Any:
        """Return the array itself."""
        return np.asarray(array)

    def grad(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Call ``autograd.grad``."""
        return autograd.grad(fun)  # type: ignore[no-any-return]

    def value_and_grad(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Call ``autograd.value_and_grad``."""
        return autograd.value_and_grad(fun)  # type: ignore[no-any-return]

    def jvp(self, fun: Callable[..., Any], primal: Any, tangent: Any) -> tuple[Any, Any]:
        """Call ``autograd.make_jvp``."""
        value, slope = autograd.make_jvp(fun)(primal)(tangent)
        return value, slope

    def checkpoint(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Call ``autograd.checkpoint``."""
        return autograd.checkpoint(fun)  # type: ignore[no-any-return]

    def stop_gradient(self, array: Any) -> Any:
        """Call the identity as a function that autograd does not trace."""
        return _identity(array)

    def custom_rule(self, fun: Callable[..., Any], derivative: Callable[..., Any]) -> Callable[..., Any]:
        """Make `fun` a primitive, with the derivative for reverse and forward mode."""
        function = primitive(fun)
        defvjp(function, lambda _ans, x: lambda g: g * derivative(x))
        defjvp(function, lambda g, _ans, x: g * derivative(x))
        return function  # type: ignore[no-any-return]

    def counter(self) -> tuple[Callable[..., Any], Callable[[], int]]:
        """Make the identity a primitive that counts cotangents and tangents."""
        runs: list[None] = []

        def count(g: Any) -> Any:
            runs.append(None)
            return g

        identity = primitive(lambda x: 1.0 * x)
        defvjp(identity, lambda _ans, _x: count)
        defjvp(identity, lambda g, _ans, _x: count(g))
        return identity, lambda: len(runs)

    def sum(self, array: Any) -> Any:
        """Call ``anp.sum``."""
        return anp.sum(array)

    def where(self, mask: Any, x: Any, y: Any) -> Any:
        """Call ``anp.where``."""
        return anp.where(mask, x, y)

    def dtypes(self) -> Sequence[str]:
        """Name those of NumPy that autograd knows."""
        return ("float64", "float32", "float16")

    def cast(self, array: Any, dtype: str) -> Any:
        """Call ``astype``."""
        return array.astype(dtype)

    def operations(self) -> Mapping[str, Callable[[Any], Any]]:
        """Name functions of ``autograd.numpy``."""
        return {
            "exp": anp.exp,
            "matmul": lambda v: v @ anp.ones((2, 3)),
            "reshape": lambda v: anp.reshape(v, (2, 1)),
            "transpose": lambda v: anp.transpose(anp.reshape(v, (1, 2))),
            "concatenate": lambda v: anp.concatenate([v, v]),
            "max": anp.max,
            "argmax": lambda v: anp.asarray(anp.argmax(v), float),
            "sort": anp.sort,
            "cumsum": anp.cumsum,
            "complex": lambda v: v + 0j,
            "fft": anp.fft.fft,
        }

    def devices(self) -> Sequence[str]:
        """Name the CPU."""
        return ("cpu",)


@notrace_primitive  # type: ignore[untyped-decorator]
def _identity(array: Any) -> Any:
    return array


def _grad_by_vjp(fun: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(*arguments: Any) -> Any:
        vjp, value = autograd.make_vjp(fun)(*arguments)
        return vjp(vspace(value).ones())

    return gradient
