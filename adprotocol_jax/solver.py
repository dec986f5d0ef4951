"""Solvers that run a function plainly and then differentiate it, or the equation that it solves, a second time.

JAX does not show the first run that a derivative follows, so an answer in it would
be that of the wrong branch. There is no mark that all of them leave on a tracer: some
have rules of ``jax.custom_jvp``, some primitives of their own, and some trace the
function before. What they have in common is who calls it.
"""

from __future__ import annotations

import sys
from typing import Any

from adprotocol.errors import UndecidableError

_PACKAGES = frozenset({"optimistix", "lineax", "diffrax", "jaxopt"})
_MODULES = frozenset({"equinox.internal._noinline", "equinox.internal._loop.checkpointed", "jax.experimental.ode"})
# JAX's own, by name: since 0.6 a trace says that it is one of theirs, before it does not.
_FUNCTIONS = {
    "custom_root": "jax.lax.custom_root",
    "custom_linear_solve": "jax.lax.custom_linear_solve",
    "linear_call": "jax.custom_derivatives.linear_call",
}
# Those that differentiate what they have run.
_DIRECT = frozenset({"DirectAdjoint", "ForwardMode"})


def refuse_solver() -> None:
    """Raise `UndecidableError` in a function that such a solver runs."""
    name = _calling()
    if name is not None:
        from adprotocol_jax.divergence import DIVERGENCES  # noqa: PLC0415  (for the message only)

        msg = (
            f"within_gradient was asked in a function that {name} runs, which differentiates it in a second run: the "
            f"first could not be told. {DIVERGENCES['solvers'].remedy}"
        )
        raise UndecidableError(msg)


def _calling() -> str | None:
    """Return the name of the solver among the callers of this function, or None."""
    found = None
    frame: Any = sys._getframe()  # noqa: SLF001  (40 ns a frame, in a trace)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        package = module.partition(".")[0]
        if package in _PACKAGES:
            given = frame.f_locals
            solver, adjoint = given.get("self"), given.get("adjoint")
            if getattr(solver, "implicit_diff", None) is False:
                return None
            if type(adjoint).__name__ in _DIRECT or type(solver).__name__ in _DIRECT:
                return None
            found = package
        elif module in _MODULES:
            found = found or module
        elif package == "jax" and frame.f_code.co_name in _FUNCTIONS:
            found = found or _FUNCTIONS[frame.f_code.co_name]
        frame = frame.f_back
    return found
