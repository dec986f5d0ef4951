"""Functions with rules that differ from the derivative of what they compute, so that no other derivative passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked

VJP_SOURCE = "JAX: derivative rules of one's own: https://docs.jax.dev/en/latest/notebooks/Custom_derivative_rules_for_Python_code.html"
FUNCTION_SOURCE = "PyTorch: extending autograd: https://docs.pytorch.org/docs/stable/notes/extending.html"


def ruled(
    h: Checked,
    fun: Callable[..., Any],
    vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    **options: bool,
) -> Any:
    """Return a function with rules; the plugin may be without the hook."""
    h.require_hook("custom_rule")
    declare: Any = adprotocol.custom_derivative
    made = declare(fun, **options)
    if vjp is not None:
        made.defvjp(vjp)
    if jvp is not None:
        made.defjvp(jvp)
    return made


def hosted(
    h: Checked, fun: Callable[..., Any], like: Callable[..., Any] | None = None, *, batched: bool = False
) -> Any:
    """Return a host function; the plugin may be without the hook."""
    h.require_hook("host_call")
    return adprotocol.host_function(fun, like=like, batched=batched)


def noted(notes: list[Any], note: Any, value: Any) -> Any:
    """Return a value, and note something."""
    notes.append(note)
    return value


def square(x: Any) -> Any:
    """Return x ** 2."""
    return x * x


def noting_product(h: Checked, jvp: Callable[..., Any] | None = None) -> tuple[Any, list[Any]]:
    """Return x y with the gradients 10 y and 20 x as functions, and a list in which these note that they ran."""
    runs: list[Any] = []

    def vjp(ct: Any, _: Any, x: Any, y: Any) -> Any:
        return lambda: noted(runs, "x", 10.0 * ct * y), lambda: noted(runs, "y", 20.0 * ct * x)

    return ruled(h, product, vjp, jvp), runs


def vjp_of_cube(cotangent: Any, _returned: Any, x: Any) -> tuple[Any]:
    """Return the gradient of x ** 3."""
    return (3.0 * cotangent * x * x,)


def product(x: Any, y: Any) -> Any:
    """Return x y."""
    return x * y
