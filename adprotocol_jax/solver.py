"""Solvers that run a function plainly and then differentiate it, or the equation that it solves, a second time.

JAX does not show the first run that a derivative follows, so an answer in it would
be that of the wrong branch. There is no mark that all of them leave on a tracer: some
have rules of ``jax.custom_jvp``, some primitives of their own, and some trace the
function before. Only the caller identifies them.

A function that ``jax.jit`` traced before does not run again. Then the second run raises,
unless ``jax.jit`` has cached the derivative as well.
"""

from __future__ import annotations

import sys
from typing import Any

from adprotocol.errors import UndecidableError

_PACKAGES = frozenset({"optimistix", "lineax", "diffrax", "jaxopt"})
_MODULES = frozenset({"equinox.internal._noinline", "equinox.internal._loop.checkpointed", "jax.experimental.ode"})
# JAX's own, by name.
_FUNCTIONS = {
    "custom_root": "jax.lax.custom_root",
    "custom_linear_solve": "jax.lax.custom_linear_solve",
    "linear_call": "jax.custom_derivatives.linear_call",
}
# Solvers that differentiate their own steps.
_DIRECT = frozenset({"DirectAdjoint", "ForwardMode"})

# Rules of JAX that differentiate an earlier run or a stored program, by name: they have no other mark.
_RULES = {
    "_custom_linear_solve_jvp": "jax.lax.custom_linear_solve",
    "_root_jvp": "jax.lax.custom_root",
    "CustomRoot.lin": "jax.lax.custom_root",  # since jax 0.11: this name
    "fun_vjp_jax": "jax.export",
}
_TWICE = "runs for the value and again for the derivative, and the first run cannot see that a derivative follows"
_ASK_OUTSIDE = "Ask outside, and pass the answer in as an argument of the function that is solved"
_STORED = "stores as two programs, so a branch would take the value from one and the gradient from the other"
_EXPORT_BOTH = "Export jax.value_and_grad of the function instead"
_TRANSFORMATIONS = frozenset({"jvp", "linearize", "vjp"})
# Packages whose frames lie between such a rule or solver and the rule of a question.
_TRANSPARENT = frozenset({"adprotocol_jax", "contextlib", "equinox", "functools", "jax"})


def refuse_solver() -> None:
    """Raise `UndecidableError` inside a function that such a solver runs."""
    name = _calling_solver()
    if name is not None:
        raise _refused(name)


def refuse_second_run() -> None:
    """Raise `UndecidableError` for a differentiated question that was answered for the value in an earlier run."""
    frame: Any = sys._getframe(1)  # noqa: SLF001
    name, is_around = None, False
    while name is None and frame is not None:
        module, code = frame.f_globals.get("__name__", ""), frame.f_code
        package = module.partition(".")[0]
        if package in _PACKAGES or module in _MODULES:
            name = _calling_solver()
            break
        # A function of the user's around the transformation differentiates in the program itself.
        if is_around and package not in _TRANSPARENT:
            break
        is_around = is_around or (module == "jax._src.api" and code.co_name in _TRANSFORMATIONS)
        name, frame = _RULES.get(code.co_name) or _RULES.get(code.co_qualname), frame.f_back
    if name is not None:
        raise _refused(name)


def _refused(name: str) -> UndecidableError:
    reason, remedy = (_STORED, _EXPORT_BOTH) if name == "jax.export" else (_TWICE, _ASK_OUTSIDE)
    return UndecidableError(f"within_gradient was asked in a function that {name} {reason}. {remedy}")


def _calling_solver() -> str | None:
    """Return the name of the solver among the callers of this function, or None."""
    name = None
    frame: Any = sys._getframe()  # noqa: SLF001  (40 ns a frame, in a trace)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        package = module.partition(".")[0]
        if package in _PACKAGES:
            solver, adjoint = frame.f_locals.get("self"), frame.f_locals.get("adjoint")
            if getattr(solver, "implicit_diff", None) is False:
                return None
            if type(adjoint).__name__ in _DIRECT or type(solver).__name__ in _DIRECT:
                return None
            name = package
        elif module in _MODULES:
            name = name or module
        elif package == "jax" and frame.f_code.co_name in _FUNCTIONS:
            name = name or _FUNCTIONS[frame.f_code.co_name]
        frame = frame.f_back
    return name
