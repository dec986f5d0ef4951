"""A binding: the functions that serve the values of one kind.

The table maps each type to one of these. A framework's plugin yields a binding
from its hooks; the core has a few of its own, for numbers, NumPy arrays,
containers, functions and labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from adprotocol.view import View


def never(value: Any) -> bool:  # noqa: ARG001  (the signature of the hook)
    """Answer False: a value of this kind carries no derivative."""
    return False


def same(value: Any) -> Any:
    """Return the identical object: a value of this kind is constant already."""
    return value


def branch(pred: Any, true_fun: Any, false_fun: Any, operands: tuple[Any, ...]) -> Any:
    """Run the branch that a Python bool chooses, once."""
    return true_fun(*operands) if pred else false_fun(*operands)


def cannot(value: Any) -> None:
    """Answer None: a value of this kind can take no gradient."""


def inexact(value: Any) -> bool | None:
    """Answer by the dtype: arrays of floating-point and complex dtypes take gradients."""
    return True if is_inexact(value.dtype) else None


def is_inexact(dtype: Any) -> bool:
    """Tell whether a dtype, of NumPy or named like one of NumPy's, is floating-point or complex."""
    kind = getattr(dtype, "kind", "V")
    if kind != "V":
        return kind in "fc"
    # The kind of bfloat16 and the 8-bit floats is that of all dtypes that NumPy does not know.
    return getattr(dtype, "names", None) is None and str(dtype).rpartition(".")[2].startswith(
        ("float", "bfloat", "complex")
    )


class Binding:
    """Hold the hook functions for one kind of value.

    ``framework`` is None for the kinds of the core, which mix with any
    framework, else the plugin's name. ``is_object`` marks what is no array and is
    looked into through its ``view``. Instances are attributes of
    `adprotocol._dispatch.table.BINDINGS` under ``key``, so that a compiler that reads
    Python can follow the lookup.
    """

    __slots__ = (
        "any_within_gradient",
        "cond",
        "explain",
        "framework",
        "is_object",
        "key",
        "non_differentiable",
        "parameter_types",
        "trainable",
        "value_and_grad",
        "view",
        "within_gradient",
    )

    def __init__(  # noqa: PLR0913  (one for each hook)
        self,
        key: str,
        *,
        framework: str | None = None,
        within_gradient: Callable[[Any], Any] = never,
        non_differentiable: Callable[[Any], Any] = same,
        cond: Callable[[Any, Any, Any, tuple[Any, ...]], Any] = branch,
        any_within_gradient: Callable[[Sequence[Any]], Any] | None = None,
        explain: Callable[[Any], str] | str = "",
        trainable: Callable[[Any], bool | None] = cannot,
        parameter_types: tuple[type, ...] = (),
        value_and_grad: Callable[[Any, list[Any]], tuple[Any, Any, list[Any]]] | None = None,
        view: Callable[[Any], View] | None = None,
        is_object: bool = False,
    ) -> None:
        self.key = key
        self.framework = framework
        self.within_gradient = within_gradient
        self.non_differentiable = non_differentiable
        self.cond = cond
        self.any_within_gradient = any_within_gradient
        self.explain = explain
        self.trainable = trainable
        self.parameter_types = parameter_types
        self.value_and_grad = value_and_grad
        self.view = view
        self.is_object = is_object

    def __repr__(self) -> str:
        return f"<Binding {self.key}>"


def of_framework(name: str, hooks: Mapping[str, Callable[..., Any]]) -> tuple[Binding, ...]:
    """Return the bindings that the hooks of a plugin yield: for its arrays, and for special kinds of them."""
    given: dict[str, Any] = {hook: hooks[hook] for hook in _OPTIONAL if hook in hooks}
    given["parameter_types"] = tuple(hooks["parameter_types"]()) if "parameter_types" in hooks else ()
    given.setdefault("trainable", inexact)
    asked = {"within_gradient": hooks["within_gradient"], "non_differentiable": hooks["non_differentiable"]}
    view = hooks.get("view")

    def bind(key: str, **special: Any) -> Binding:
        return Binding(f"{key} {name}", framework=name, cond=hooks["cond"], **given, **special)

    return (
        bind(ARRAY, **asked),
        bind(CONSTANT),
        # Arrays that are containers as well, such as the box of a dict.
        bind(VIEWED, **asked, view=view),
        bind(OBJECT, view=view, is_object=True),
    )


_OPTIONAL = ("any_within_gradient", "explain", "trainable", "value_and_grad")

# The keys of a framework's bindings begin so: its arrays, those that never
# carry a derivative, those that `view` shows as containers, and objects that
# are no arrays and are shown so.
ARRAY, CONSTANT, VIEWED, OBJECT = "plugin", "constant", "viewed", "object"
