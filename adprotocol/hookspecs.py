"""The protocol: what a plugin tells adprotocol about its AD framework.

Read this module first. A plugin is a module (or any object) whose functions are
marked with `hookimpl` and named as below. Its distribution names it in the
entry-point group ``adprotocol``. The entry point has the name of the framework's
root module, because a plugin is loaded when, and only when, that module is
already in ``sys.modules``:

.. code-block:: toml

    [project.entry-points.adprotocol]
    toyad = "toyad_adprotocol"

pluggy discovers, validates and orders the plugins. A user's call never passes
through pluggy's hook call: the library looks the plugin up by the type of the value
and calls its function directly (pluggy's own call takes about ten times as long, and
``firstresult`` reads a branch that returns ``None`` as "not mine" and would run
it once for each plugin).

Four hooks are required: `array_types`, `within_gradient`, `non_differentiable`,
`cond`. The others are optional; without `value_and_grad` a framework's values can be
asked about, but not differentiated by this library. An unknown hook, or an argument
that is not listed here, makes that plugin fail, with the reason. Whatever else a
plugin may use is in `adprotocol.extend` and `adprotocol.errors`.
"""

# Signatures only: pluggy reads the arguments, and nothing runs the bodies.

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from adprotocol.divergence import Divergence
    from adprotocol.view import View

PROJECT = "adprotocol"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

REQUIRED = ("array_types", "within_gradient", "non_differentiable", "cond")

Children = Iterable[Any]
Metadata = Any
Flattened = tuple[Children, Metadata] | tuple[Children, Metadata, Iterable[Any]]


@hookspec
def array_types() -> Sequence[type]:
    """Name the types whose instances, subclasses included, are this framework's own.

    Arrays, tracers, boxes: everything that can carry a derivative. Where several
    plugins claim a type, the nearest claimed base class decides; for one and the
    same class pluggy's ``tryfirst`` and ``trylast``, then the plugin whose entry
    point bears the name of the type's root module, then the alphabet. Two
    plugins that claim the same class are reported by ``doctor``.
    """
    raise NotImplementedError


@hookspec
def constant_types() -> Sequence[type]:
    """Name those of `array_types` that never carry a derivative, whatever surrounds them.

    Optional, and only for speed: for instances of exactly these types
    `within_gradient` is False and `non_differentiable` the identity, without a
    call. A concrete ``jax.Array`` is one.
    """
    raise NotImplementedError


@hookspec
def within_gradient(value: Any) -> Any:
    """Tell whether a derivative would be propagated through an operation applied to `value`.

    `value` is one instance of `array_types`; containers are taken apart before.
    Return a ``bool`` when the framework knows now, else a staged boolean scalar
    of the framework that supports ``|`` and that this plugin's `cond` takes.
    """
    raise NotImplementedError


@hookspec
def any_within_gradient(values: Sequence[Any]) -> Any:
    """Answer for several values of this framework at once: True if any of them is tracked.

    Optional. Without it the single answers are joined, first True wins, staged
    ones with ``|``. JAX implements it to stage one operation instead of many.
    Values of `constant_types` are among them, if there is any other.
    """
    raise NotImplementedError


@hookspec
def non_differentiable(value: Any) -> Any:
    """Return `value` unchanged, with every derivative of every order and mode zero."""
    raise NotImplementedError


@hookspec
def cond(
    pred: Any,
    true_fun: Callable[..., Any],
    false_fun: Callable[..., Any],
    operands: tuple[Any, ...],
) -> Any:
    """Return the chosen branch applied to `operands`.

    `pred` is a Python ``bool`` (then only the chosen branch may run, once) or a
    value of this framework, to be refused with `adprotocol.errors.PredicateError`
    unless it is a boolean scalar. Derivatives are those of the chosen branch;
    an operand that it does not use has zeros.
    """
    raise NotImplementedError


@hookspec
def trainable(value: Any) -> bool | None:
    """Tell whether `value`, a leaf of a model, takes a gradient.

    Optional. True: it does, unless the model or the call says otherwise. False:
    only if the call selects it (a parameter whose own flag says so). None: it
    never can (integers, booleans). Without this hook arrays of floating-point
    and complex dtypes do.
    """
    raise NotImplementedError


@hookspec
def identity(value: Any) -> Hashable | None:
    """Return what two places have in common that hold one and the same leaf, or None.

    Optional. An array at two places of a model is two leaves, each with its partial
    derivative (None). A ``torch.nn.Parameter`` is a leaf wherever it is found: at two
    places it is one, with the total derivative at the first. Return a key by which
    its places are known to be one.
    """
    raise NotImplementedError


@hookspec
def freeze(value: Any) -> Any:
    """Return what takes the place of a leaf with an identity for a call that does not select it.

    Optional; called for leaves that have an `identity` and no place that is selected.
    A ``torch.nn.Parameter`` whose own flag says that it is trained is replaced by a
    constant, unless a call around the current one differentiates with respect to it.
    """
    raise NotImplementedError


@hookspec
def value_and_grad(fun: Callable[[list[Any]], tuple[Any, Any]], leaves: list[Any]) -> tuple[Any, Any, list[Any]]:
    """Return value, auxiliary output, and the gradient for each of `leaves`.

    Optional. ``fun(leaves)`` gives ``(value, aux)``. `leaves` are inexact arrays
    of this framework, NumPy arrays or Python floats, and `fun` is to be called
    once, with values that carry a derivative in place of all of them and of
    nothing else. Before it differentiates, the plugin gives what `fun` returned
    to `adprotocol.extend.check_output`. A leaf that `value` does not depend on
    has zeros. What encloses the call, a native transformation or another call of
    this hook, must be able to differentiate the result.
    """
    raise NotImplementedError


@hookspec
def differentiates_numpy() -> bool:
    """Tell whether `value_and_grad` takes functions of NumPy arrays and Python numbers alone.

    Optional. Of the plugins that return True the first in pluggy's order serves a
    gradient whose arguments belong to no framework. Such a plugin is imported for
    it if its distribution names it in the group ``adprotocol.numpy`` as well:

    .. code-block:: toml

        [project.entry-points."adprotocol.numpy"]
        autograd = "adprotocol_autograd"
    """
    raise NotImplementedError


@hookspec
def view_types() -> Sequence[type]:
    """Name the types, subclasses included, of the objects that `view` shows.

    Optional; one is of no use without the other.
    """
    raise NotImplementedError


@hookspec
def view(value: Any) -> View:
    """Show the parts of an object that is no container, and cannot be rebuilt, as a container.

    Optional. A ``torch.nn.Module`` is shown as a dict from qualified name to
    tensor. See `adprotocol.view.View` for what comes with it.
    """
    raise NotImplementedError


@hookspec
def tree_node(
    value: Any,
) -> tuple[Callable[[Any], Flattened], Callable[[Metadata, Children], Any]] | None:
    """Teach the traversal the container type of `value`, or return None if it is unknown.

    Optional. Return ``(flatten, unflatten)`` for ``type(value)``. The first takes
    an instance to ``(children, metadata)`` or ``(children, metadata, names)``, with
    hashable, comparable metadata and the names of the children in paths (without
    them, their positions). The second takes ``(metadata, children)`` back, whatever
    the children are. Called once for each type but the built-in containers; for a
    dataclass, whose static fields only the framework may know, with a blank instance
    that has no attributes yet.
    """
    raise NotImplementedError


@hookspec
def label_protocol() -> Mapping[str, Any]:
    """Return the methods by which functions of the framework accept a `NonDifferentiable` label, by name.

    Optional. They become attributes of the class: ``__jax_array__`` for JAX,
    ``__torch_function__`` for PyTorch. `adprotocol.extend.unlabelled` takes the
    labels out of a function's arguments. The label's operators, and the protocols of
    NumPy, are there without it.
    """
    raise NotImplementedError


@hookspec
def explain(value: Any) -> str:
    """Say in a phrase why `within_gradient` answers as it does for `value`.

    Optional; read by people only (`adprotocol.explain`).
    """
    raise NotImplementedError


@hookspec
def divergences() -> Sequence[Divergence]:
    """List the rules that the framework does not allow to be kept.

    Optional. Each is an `adprotocol.extend.Divergence`, with a name of its own. The
    conformance suite expects the scenarios that it names to fail; `info` and the
    documentation show it. Never called on the way of a value: import the texts inside.
    """
    raise NotImplementedError


@hookspec
def harness(device: str | None) -> Any:
    """Return the harness by which the conformance suite uses the framework.

    Optional. An `adprotocol.conformance.Harness`, whose arrays live on `device` (None:
    the framework's default).
    """
    raise NotImplementedError
