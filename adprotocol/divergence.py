"""A divergence: one rule that a framework does not allow its plugin to keep, as data.

A plugin lists its divergences in the optional hook `divergences`. Its errors
quote them, ``python -m adprotocol info --json`` writes them, the conformance
suite expects the scenarios that they name to fail, and the documentation shows
them: all share one text. `CORE` holds the divergences of every framework.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from adprotocol.errors import PluginError

# How the scenarios of a divergence fail: with an error, or with another answer and no error.
ERROR, WRONG = "error", "wrong"

_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_SCENARIO = re.compile(r"!?[^\s/@!]+/[^\s/@]+(@[^\s/@]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Declare one rule that the framework does not allow the plugin to keep.

    >>> from adprotocol.extend import Divergence
    >>> Divergence(
    ...     name="two-runs",
    ...     title="Checkpoint by two runs",
    ...     text="The first run records nothing, so the answer is False there.",
    ...     remedy="Ask outside and close over the answer",
    ...     scenarios=("within_gradient/checkpoint*",),
    ...     outcome="wrong",
    ... ).name
    'two-runs'

    Args:
        name: a slug, the same in every version.
        title: a heading, in Markdown.
        text: Markdown for the documentation: what happens, why, and what to do; it may hold runnable examples.
        remedy: one imperative sentence without the full stop, for errors to quote; empty if there is none.
        scenarios: the ids of the conformance suite that fail because of it, ``hook/name`` or ``hook/name@variant``;
            they may be glob patterns, and one that begins with ``!`` excludes: of those that match an id the last
            decides. ``("cond/*", "!cond/vmap*")`` names all of `cond` but these.
        outcome: how they fail, for a user too: ``"error"``, or ``"wrong"`` for another answer and no error.

    Raises:
        PluginError: if a field is not as described.
    """

    name: str
    title: str
    text: str
    remedy: str = ""
    scenarios: tuple[str, ...] = ()
    outcome: str = ERROR

    def __post_init__(self) -> None:
        for field in ("name", "title", "text", "remedy", "outcome"):
            value = getattr(self, field)
            if not isinstance(value, str):
                raise _wrong(self, f"has the {field} {value!r}", "it must be a string")
        if not _SLUG.fullmatch(self.name):
            raise _wrong(self, "has a name that is not a slug", "write words of a-z and 0-9, joined by hyphens")
        for field in ("title", "text"):
            if not getattr(self, field).strip():
                raise _wrong(self, f"has an empty {field}", "say what happens, why, and what to do")
        if self.remedy != self.remedy.strip() or self.remedy.endswith(".") or "\n" in self.remedy:
            raise _wrong(self, f"has the remedy {self.remedy!r}", "write one sentence on one line, with no full stop")
        if self.outcome not in (ERROR, WRONG):
            raise _wrong(self, f"has the outcome {self.outcome!r}", f"write {ERROR!r} or {WRONG!r}")
        if not isinstance(self.scenarios, tuple):
            raise _wrong(self, f"has the scenarios {self.scenarios!r}", "it must be a tuple of ids")
        for scenario in self.scenarios:
            if not isinstance(scenario, str) or not _SCENARIO.fullmatch(scenario):
                raise _wrong(self, f"names the scenario {scenario!r}", "write 'hook/name' or 'hook/name@variant'")


def _wrong(divergence: Divergence, what: str, remedy: str) -> PluginError:
    return PluginError(f"the declared divergence {divergence.name!r:.60} {what}; {remedy}")


LABEL_BEFORE_IMPORT = Divergence(
    name="label-before-import",
    title="A label made before its framework is imported",
    remedy="Call adprotocol.explain(label) after the framework is imported",
    text="""\
`NonDifferentiable` is registered with a framework's trees at the first label or call of this package after the
framework is imported. A native transformation refuses a label that was made before, if there was no call in between
(JAX says `Triggering __jax_array__() during abstractification`). Call `adprotocol.explain(label)` first.
""",
)

FUNCTIONS = Divergence(
    name="functions",
    title="Functions",
    remedy="Ask about the values that the function closes over, and name their framework by backend=",
    outcome=WRONG,
    text="""\
`within_gradient(f)` is False for every function, `functools.partial` and bound method: the values that it closes over
are not looked at. Ask about these values. For the same reason `grad` does not know the framework of arrays that a
function closes over. If all arguments are NumPy arrays and Python numbers, autograd differentiates, and the function's
own framework refuses autograd's boxes. Name the framework by `backend=`.
""",
)

OBJECTS = Divergence(
    name="objects",
    title="Objects",
    remedy=(
        "Make it a dataclass, register it with optree or with the framework's own tree library, or pass the arrays "
        "themselves (for a torch module, dict(module.named_parameters()))"
    ),
    text="""\
An object whose class is not a structure is searched one level deep. If its attributes, or the lists, dicts and tuples
among them, hold an array of a framework, it raises `OpaqueValueError`: make its class a dataclass, register it, or pass
the arrays. An iterator raises it too, because looking would use it up. An object with the marks of an array (`shape`
and `dtype`, `__dlpack__` or `__array_namespace__`) that no plugin claims raises `UnclaimedTypeError`. The answer for
any other object is False, so an AD system whose boxes have none of these marks needs its plugin installed.
""",
)

CORE: tuple[Divergence, ...] = (LABEL_BEFORE_IMPORT, FUNCTIONS, OBJECTS)
