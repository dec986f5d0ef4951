"""The protocol: the hooks with which a plugin describes its AD framework.

Read this module first. A plugin is a module (or any object) whose functions are
marked with `hookimpl` and named as below. Its distribution names it in the
entry-point group ``adprotocol``. The entry point has the name of the framework's
root module, because a plugin is loaded when, and only when, that module is
already in ``sys.modules``:

.. code-block:: toml

    [project.entry-points.adprotocol]
    toyad = "toyad_adprotocol"

pluggy validates the signatures, and nothing else: ``importlib.metadata`` discovers the
plugins, and the registry orders them. A user's call never passes through pluggy's hook
call: the library looks the plugin up by the type of the value and calls its function
directly (pluggy's own call takes about ten times as long, and ``firstresult`` reads a
branch that returns ``None`` as "not mine" and would run it once for each plugin).

Four hooks are required, unless a plugin has `without_ad` alone: `array_types`, `within_gradient`,
`non_differentiable`, `cond`. The others are optional; without `vjp` and `jvp` this library
cannot differentiate functions of the framework's values, but everything else works. An
unknown hook, or an argument that is not listed here, makes that plugin fail, with
the reason. A hook that returns None or something else than is documented here is named
in a `PluginError`, and so is one that raises, unless the exception may be that of a
value or of the user's functions, which comes out as it is. Everything else that a
plugin may use is in `adprotocol.extend` and `adprotocol.errors`.

A gradient whose arguments are NumPy arrays and Python numbers alone belongs to no
framework. A plugin whose `vjp` takes such leaves is named in the group
``adprotocol.numpy`` too, and is then imported for such a call; of several, the first in
the order of the registry serves it:

.. code-block:: toml

    [project.entry-points."adprotocol.numpy"]
    autograd = "adprotocol_autograd"
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pluggy

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from adprotocol.divergence import Divergence

    Children = Iterable[Any]
    Metadata = Any
    Flattened = tuple[Children, Metadata] | tuple[Children, Metadata, Iterable[str]]
    Unflatten = Callable[[Metadata, Children], Any]
    Node = tuple[Callable[[Any], Flattened], Unflatten]

PROJECT = "adprotocol"

hookspec: pluggy.HookspecMarker = pluggy.HookspecMarker(PROJECT)
hookimpl: pluggy.HookimplMarker = pluggy.HookimplMarker(PROJECT)

REQUIRED = ("array_types", "within_gradient", "non_differentiable", "cond")


class View:
    """Show an object in a structure as a container of its parts.

    A ``torch.nn.Module`` holds parameters under qualified names, but cannot be rebuilt
    from other tensors. In a structure it is shown as a dict from name to tensor; the
    differentiated function gets the object itself, with other tensors in it during the
    call.

    Args:
        container: a built-in container of the parts, by name.
        flags: a container like `container` with the answer of the hook
            ``trainable`` (True, False or None) for each leaf; by default the hook
            is called for each leaf.
        fill: takes a container like `container` with other leaves; returns the
            value that the function gets in place of the object, and a function
            without arguments that undoes the change to the object. By default the
            container itself is the value.
        aliases: further names of parts, each mapped to a name in `container`.
        rebuild: takes a container like `container` with other leaves; returns a new
            value that is used as the object is and holds these. It leaves the object
            alone and shares no list, dict or flag with it, so that a change to the one
            is none to the other. By default the container itself is the value.
        others: returns what else the object holds that may be differentiated, such as
            tensors in plain attributes: no leaves, but a question about the object is
            about these as well.
        asked: returns what decides a question about the object: by default `container`
            and `others`; for speed less with the same answer, such as one tracked tensor.
    """

    __slots__ = ("aliases", "asked", "container", "fill", "flags", "others", "rebuild")

    def __init__(  # noqa: PLR0913, PLR0917  (the fields)
        self,
        container: Any,
        flags: Any = None,
        fill: Callable[[Any], tuple[Any, Callable[[], None]]] = lambda container: (container, lambda: None),
        aliases: Mapping[str, str] | None = None,
        rebuild: Callable[[Any], Any] = lambda container: container,
        others: Callable[[], Sequence[Any]] = lambda: (),
        asked: Callable[[], Sequence[Any]] | None = None,
    ) -> None:
        self.container: Any = container
        self.flags: Any = flags
        self.fill: Callable[[Any], tuple[Any, Callable[[], None]]] = fill
        self.aliases: Mapping[str, str] = aliases or {}
        self.others: Callable[[], Sequence[Any]] = others
        self.asked: Callable[[], Sequence[Any]] = asked or (lambda: (container, *others()))
        self.rebuild: Callable[[Any], Any] = rebuild


class TreeLibrary(NamedTuple):
    """Hold the functions that reach a framework's own tree library, such as ``jax.tree_util``.

    Args:
        node: takes a value; returns ``(flatten, unflatten)`` for its type, or None if
            the library does not know that. ``flatten`` takes an instance and returns
            ``(children, metadata)`` or ``(children, metadata, names)``, with hashable,
            comparable metadata and the names of the children in paths (by default
            their positions). ``unflatten`` takes ``(metadata, children)`` and must
            accept any children. Called once for each type except the built-in
            containers; for a dataclass, whose static fields only the framework may
            know, with a blank instance that has no attributes yet.
        register: takes ``(cls, flatten, unflatten)`` and registers a dataclass or an
            attrs class with the library, as `adprotocol.register_structure` asks.
            ``flatten`` takes an instance and returns its children, the metadata
            (hashable and comparable: names and static fields), and the names of the
            children, for libraries that show paths; ``unflatten`` takes any
            children, and calls no constructor. Leave a class that the library knows
            as it is. Called when the class is registered, or, for those registered
            before, when the plugin is loaded: at the end of the import of its
            framework. By default the library learns no class.
        is_buffer: takes an instance of a class that `node` knows; returns whether what it
            holds never takes a gradient, as a variable of flax that is not a parameter.
            Called once for each class. By default none is.
    """

    node: Callable[[Any], Node | None]
    register: Callable[[type, Callable[[Any], Any], Unflatten], None] | None = None
    is_buffer: Callable[[Any], bool] = lambda value: False  # noqa: ARG005


# Signatures only: pluggy reads the arguments, and nothing runs the bodies.


@hookspec
def array_types() -> Sequence[type] | Mapping[type, bool]:
    """List the types whose instances, and those of their subclasses, belong to this framework.

    Arrays, tracers, boxes: everything that can carry a derivative. Where several
    plugins claim a type, the nearest claimed base class decides; for one and the
    same class, pluggy's ``tryfirst`` and ``trylast``, then the plugin whose entry
    point has the name of the type's root module, then the alphabet. ``doctor``
    reports two plugins that claim the same class.

    A mapping says of each type whether its instances can carry a derivative. False
    is for speed: for instances of exactly that type, and not of a subclass,
    `within_gradient` is False and `non_differentiable` the identity in any context,
    without a call of the hooks. The class of concrete JAX arrays is such a type.
    """


@hookspec
def within_gradient(value: Any) -> Any:
    """Return whether a derivative would be propagated through an operation applied to `value`.

    `value` is one instance of `array_types`; containers are flattened before the
    call. Return a ``bool`` when the framework knows now, else a staged boolean scalar
    of the framework that supports ``|`` and that this plugin's `cond` takes.
    """


@hookspec
def any_within_gradient(values: Sequence[Any]) -> Any:
    """Answer for several values of this framework at once: True if any of them is tracked.

    Optional. Without it the single answers are combined: the first True wins, and
    staged answers are joined with ``|``. JAX implements it to stage one operation
    instead of many. Values of types that `array_types` maps to False are given along
    with others.
    """


@hookspec
def non_differentiable(value: Any) -> Any:
    """Return `value` unchanged, with every derivative of every order and mode zero."""


@hookspec
def prevent_gradient(value: Any, message: str) -> Any:
    """Return `value`, or raise `adprotocol.extend.gradient_prevented` with `message` if it is differentiated.

    Optional, and needed only where `within_gradient` may answer with a staged
    boolean: such a plugin puts an operation into the program that passes the value
    on, and raises as soon as a transformation differentiates the value, also if no
    derivative comes back through it because what follows makes it a constant.
    Otherwise `within_gradient` decides.
    """


@hookspec
def is_concrete(value: Any) -> bool:
    """Return whether Python may branch on the elements of `value` here, as ``bool(value.any())`` would.

    Optional: True without it. False where that raises, breaks a graph, or freezes its answer into a program that is
    compiled: for what a compiler traces, and for a value that stands for many (``vmap``). Whether a derivative is
    taken does not matter. Always a ``bool``; compute and synchronise nothing. Instances of types that `array_types`
    maps to False are asked about too.
    """


@hookspec
def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Return the chosen branch applied to `operands`.

    `pred` is a Python ``bool`` (then only the chosen branch may run, once) or a
    boolean scalar of this framework, concrete or staged. One whose ``dtype`` or
    ``shape`` says otherwise has been refused; one without a ``dtype`` comes here.
    Derivatives are those of the chosen branch; the gradient of an operand that it does
    not use is zeros. Where the branch is chosen later, `adprotocol.extend.Branches`
    runs both and compares what they return.
    """


@hookspec
def array_functions() -> Any:
    """Return the functions with which `adprotocol.where` chooses elements.

    Optional. A module or an object with three functions as the Python array API standard defines them:
    ``where(mask, one, other)``, which broadcasts arrays and Python numbers and is differentiable, and, of
    constants, ``argmax(mask)``, the position of an element that is True in the flattened mask, and
    ``take(array, indices, axis)``, with an axis that counts from behind. A number is 0.5 beside an array
    of any floating-point dtype, which the result keeps; a mask is inverted by ``~``, or compared
    with False where its class has none, and a position, which may be NumPy's, divided by ``%`` and ``//``, and
    indexed by ``[None]``.
    Where ``array.shape`` is no tuple of ints, ``shape(array)`` is one, with scalars of the program for sizes that a
    program does not know. Where every array is a matrix, it is ``()`` for a number, which is 1 x 1. This function may
    stand alone: `cond`, and gradients, need no other.
    It may have ``known_bool(pred)``, True or False where Python has the only element of `pred` at no cost, else None;
    and, for a scalar that is not known, ``constant_unless(pred, run, held)``: the list of arrays and numbers that
    ``run()`` returns, of which no derivative reaches the arrays that it closes over, `held` among them, where `pred`
    is False. Without it `cond` chooses between the result and a constant.
    For `adprotocol.steepest_ascent` it has ``conj(array)``, or ``gradient_is_ascent``, True, if the gradient of a
    complex array is the direction of steepest ascent, and not its conjugate.
    For `adprotocol.jacobian` it has ``stack(arrays)``, ``moveaxis(array, source, destination)``,
    ``reshape(array, shape)`` and ``basis(array, count, start)``: `count` arrays of the shape and dtype of `array`,
    where it lies, along a new leading axis. Number ``start + i`` of them has 1 at element ``i`` and 0 elsewhere, and
    the others have 0 alone (`start` may be negative). In NumPy it is
    ``eye(count, size, -start, dtype).reshape(count, *shape)``. A plugin without this hook gets the functions of NumPy
    where leaves and outputs are arrays of NumPy and numbers.
    For cotangents, tangents and derivative rules it has ``as_like(value, like)``, which returns a number, an array of
    NumPy or one of the framework as an array of the dtype and device of `like`, and zeros like it for None. Without it
    the hooks `vjp` and `jvp` get cotangents and tangents as callers give them, Python numbers for shape ``()`` too.
    Where Python's ``abs`` and ``float`` do not take its arrays, or computing a value forgets its derivative, it has
    ``in_numpy(array)``: the array in NumPy, with which a jvp without forward mode is checked.
    """


@hookspec
def trainable(value: Any) -> bool | None:
    """Return whether `value`, a leaf of a model, takes a gradient.

    Optional. True: it does, unless the model or the call excludes it. False: only
    if the call selects it (a parameter whose own flag is off). None: it never can
    (integers and booleans; complex arrays can). Without this hook arrays of
    floating-point and complex dtypes take gradients.
    """


@hookspec
def identity(value: Any) -> Hashable | None:
    """Return a key that all places of one leaf share, or None if each place is a leaf of its own.

    Optional. An array at two places of a model is two leaves, each with its partial
    derivative: return None. A ``torch.nn.Parameter`` at two places is one leaf, with
    the total derivative at the first: return the same key for both.
    """


@hookspec
def freeze(value: Any) -> Any:
    """Return the replacement for a leaf with an identity in a call that does not select it.

    Optional; called for leaves that have an `identity` and are selected at no place.
    A ``torch.nn.Parameter`` that requires grad is replaced by a constant, unless an
    enclosing call differentiates with respect to it. The constant has the class of the
    leaf and its attributes: a model reads them.
    """


@hookspec
def is_recording() -> bool:
    """Return whether the framework records derivatives here and now, so that one may enclose a call.

    Optional; for a framework with a switch, as PyTorch has ``no_grad``. In a call that
    is made where it is off, `freeze` is called for leaves with an identity in every
    argument, not only in those that are differentiated.
    """


@hookspec
def vjp(
    fun: Callable[[list[Any]], tuple[list[Any], list[Any]]],
    leaves: list[Any],
    once: bool,  # noqa: FBT001  (hooks are called by position)
) -> tuple[list[Any], list[Any], Callable[[list[Any] | None], list[Any]]]:
    """Return outputs, others, and a function that pulls cotangents of the outputs back to `leaves`.

    Optional. ``fun(leaves)`` returns two lists, ``(outputs, others)``. `leaves` are inexact arrays
    of this framework, NumPy arrays or Python floats, and so are the outputs. The others are the
    framework's arrays that `fun` returned besides. Call `fun` once, with a value that carries a
    derivative in place of each leaf, and track nothing else. Return the others without the
    derivative by `leaves`, and with those of enclosing levels.

    The function returned takes a list with a cotangent for each output, as ``as_like`` of
    `array_functions` made it (without that as the caller gave it: a Python number, too), or None for zeros. It returns
    a gradient of shape, dtype and device of its leaf for each; zeros where no output depends on it. A native
    transformation, or another call of this hook, that encloses the call, or the call of that function, must
    be able to differentiate the results, by the cotangents too.

    With `once` there is one output, a scalar. The function returned is then called once, at once, with None in
    place of the cotangents, for 1; so it may free what it needs, or have run already.
    """


@hookspec
def jvp(
    fun: Callable[[list[Any]], tuple[list[Any], list[Any]]], leaves: list[Any], tangents: list[Any]
) -> tuple[list[Any], list[Any], list[Any]]:
    """Return outputs, others, and the tangents of the outputs, given those of `leaves`: forward mode.

    Optional; without it, or where it returns NotImplemented (an operation of the framework has
    no forward mode), the library transposes what `vjp` returns. A plugin may have it without `vjp`: then
    `adprotocol.jvp` and ``jacobian(mode="forward")`` work, and reverse mode is an error. `fun`, `leaves` and the others
    are as for `vjp`. For each leaf there is a tangent, as ``as_like`` of `array_functions` made
    it. A native transformation that encloses the call must be able to differentiate the results.
    """


@hookspec
def vmap(fun: Callable[[list[Any]], list[Any]], arrays: list[Any], chunk_size: int | None) -> list[Any]:
    """Return what `fun` makes of each row of `arrays`, stacked, and at most `chunk_size` rows at once.

    Optional: the rows are those of a Jacobian. Without it, where it returns NotImplemented, or for chunks of one row
    whose values are at hand, the library calls `fun` for each. A result that does not depend on the row is repeated.
    """


@hookspec
def custom_rule(rule: Any, arrays: list[Any]) -> tuple[list[Any], Any]:
    """Return ``rule.fun(arrays)``, with the derivative of the rule and never that of the operations in the function.

    Optional. `rule` is an `adprotocol.extend.DerivativeRule`; `arrays` are all arrays of
    this framework among the arguments of one call of a function that
    `adprotocol.custom_derivative` made, tracked or not. Return what ``rule.fun`` does:
    the results, made arrays of this framework that carry derivatives, and the outline.

    The function runs once, on arrays without the derivatives that the rule is for. Where
    a derivative is propagated, call ``rule.vjp`` or ``rule.jvp`` on values that carry the
    derivatives of the levels around, so that the rule can be differentiated again. If
    the rule lacks the one that is needed, derive it from the other by the framework's
    own vjp, as `adprotocol.extend.Derivative` does, or raise `adprotocol.errors.RuleError`.
    Where ``rule.once`` is not empty and `arrays` or results that the rule is given are differentiated, raise
    `adprotocol.errors.GradientPreventedError` with that text.
    """


@hookspec
def host_call(
    fun: Callable[[list[Any]], list[Any]],
    arrays: list[Any],
    like: list[Any] | None,
    batched: bool,  # noqa: FBT001  (hooks are called by position)
    message: str,
) -> list[Any]:
    """Return what `fun`, a function of NumPy arrays, makes of `arrays`, as arrays of this framework.

    Optional. `fun` takes a list with a NumPy array for each of `arrays`, and returns a list
    of NumPy arrays, which nobody else refers to. They have the right dtypes, but for one
    that the framework does not know. `like` holds for each result something with its
    ``shape`` and ``dtype`` (of NumPy or of this framework); it is None if these are not
    known, which a program that is staged refuses with `adprotocol.errors.RuleError`. Under
    batching `fun` runs for each row, or, if `batched`, once on arrays that all have the
    batch as leading axis. Differentiating a result raises
    `adprotocol.errors.GradientPreventedError` with `message`. A call alone does not raise for
    a variable, which the framework tracks though nobody differentiates.
    """


@hookspec
def without_ad() -> Sequence[str | type]:
    """List array libraries, by the names of their root packages, or classes whose instances carry no derivative.

    Optional, and the only hook that a library of arrays without AD needs: its arrays are
    constants in every call, as NumPy's are.
    """


@hookspec
def views() -> Mapping[type, Callable[[Any], View]]:
    """Expose objects that cannot be rebuilt (such as a module) as dicts of their parts: a function for each type.

    Optional. The function of the nearest base class is called with the object. A
    ``torch.nn.Module`` becomes a dict from qualified name to tensor. See
    `View` for the other fields.
    """


@hookspec
def function_types() -> Sequence[type]:
    """List the classes of what the framework makes of a function: one that is compiled, one with a rule of its own.

    Optional, for speed. An instance has the function as ``__wrapped__``. If that is
    one, no arrays are searched in the instance, as in any function.
    """


@hookspec
def tree_library() -> TreeLibrary:
    """Return the functions that reach the framework's own tree library.

    Optional. With them the traversal knows the containers that are registered there,
    and `adprotocol.register_structure` registers classes there. See
    `TreeLibrary` for the functions.
    """


@hookspec
def label_protocol() -> Mapping[str, Any]:
    """Return the methods by which functions of the framework accept a `NonDifferentiable` label, by name.

    Optional. They become attributes of the class: ``__jax_array__`` for JAX,
    ``__torch_function__`` for PyTorch. `adprotocol.extend.unlabelled` replaces the
    labels in a function's arguments by their values. The label's operators, and the
    protocols of NumPy, work without this hook.
    """


@hookspec
def explain(value: Any) -> str:
    """Explain in a phrase the answer of `within_gradient` for `value`.

    Optional; for humans (`adprotocol.explain`).
    """


@hookspec
def divergences() -> Sequence[Divergence]:
    """List the rules that the framework does not allow the plugin to keep.

    Optional. Each is an `adprotocol.extend.Divergence`, with a name of its own. The
    conformance suite expects the scenarios that it names to fail; `info` and the
    documentation show it. Never called while values are served, so import the texts
    inside.
    """


@hookspec
def harness(device: str | None) -> Any:
    """Return the harness with which the conformance suite uses the framework.

    Optional. An `adprotocol.conformance.Harness` whose arrays live on `device` (None:
    the framework's default).
    """
