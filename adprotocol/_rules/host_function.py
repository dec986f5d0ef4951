"""`host_function`: a function of NumPy arrays, callable with the arrays of any framework."""

from __future__ import annotations

import functools
import itertools

from adprotocol._dispatch.binding import NUMPY, PLAIN, checked
from adprotocol._dispatch.dtype import dtype_name, is_inexact
from adprotocol._dispatch.shape import shape_of
from adprotocol._dispatch.table import BINDINGS, install, lookup
from adprotocol._dispatch.wrapper import Wrapper
from adprotocol._hooks import builtins as _builtins  # noqa: F401  (the binding of functions, which is installed here)
from adprotocol._rules.check import is_complex
from adprotocol._rules.outline import Arguments, Outline, is_array
from adprotocol._trees.held import holds_objects
from adprotocol._trees.traversal import sole_framework, tree_flatten
from adprotocol._trees.treespec import build, children_of, count_leaves, map_nodes, treespecs_equal
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import PluginError, RuleError
from adprotocol.messages import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol._dispatch.binding import Binding
    from adprotocol._trees.treespec import Treespec


def host_function(
    fun: Callable[..., Any] | None = None, *, like: Callable[..., Any] | None = None, batched: bool = False
) -> Any:
    """Make a function of NumPy arrays callable with the arrays of any framework.

    >>> import adprotocol, numpy as np
    >>> @adprotocol.host_function(like=lambda a, b: b)
    ... def solve(a, b):
    ...     return np.linalg.solve(a, b)
    >>> solve(2.0 * np.eye(2), np.ones(2))
    array([0.5, 0.5])

    It gets read-only NumPy arrays in place of the framework's. Its results become arrays of
    the same framework and device, with the dtypes of `like`, or without it in the precision
    of the arguments. Eager code calls it exactly as written. It has to be pure: a compiler
    may leave out a call whose result nobody uses, or repeat one. Its derivative raises,
    unless `custom_derivative` gives it a rule. As a rule itself it is differentiated once.

    Args:
        fun: the function, of arrays of any shapes and dtypes, structures of them, and
            other values. Without it, a decorator.
        like: returns the structure of the result, with arrays of its shapes and dtypes;
            their values do not matter. It is called with zero-stride dummies of the
            arguments, once for each set of shapes, dtypes and numbers. A program that a
            compiler stages needs it.
        batched: whether the function takes any number of leading axes, the same for
            every array. Under vmap it is then called once, otherwise for each row.

    Returns:
        The function, with its metadata.

    Raises:
        GradientPreventedError: a result is differentiated.
        RuleError: the result does not agree with `like`, or a compiler needs `like` and
            there is none.
        PluginError: the plugin of the arguments has no hook ``host_call``.

    After ``jax.pure_callback`` and ``tf.numpy_function``.
    """
    if fun is None:
        return functools.partial(host_function, like=like, batched=batched)
    for what, function in (("fun", fun), ("like", like)):
        if function is not None and not callable(function):
            msg = f"host_function was given {kind_of(function)} as {what}; give a function of the same arguments"
            raise RuleError(msg)
    return HostFunction(fun, like, batched=batched)


class HostFunction(Wrapper):
    """A function that `host_function` made."""

    # Set by `custom_derivative`: whether it returns a pair, of which the residuals may be any objects.
    has_residuals = False

    def __init__(self, fun: Callable[..., Any], like: Callable[..., Any] | None, *, batched: bool) -> None:
        super().__init__(fun)
        self.like = like
        self.batched = batched
        # By signature, what `like` tells: the outline of the result, and the types of its arrays.
        self.known: dict[Any, tuple[Outline, list[Any]]] = {}

    def __repr__(self) -> str:
        return f"<host function {self.name}>"

    def __call__(self, *args: Any, **static: Any) -> Any:
        """Call the function."""
        if not static and {lookup(type(arg)) for arg in args} == {BINDINGS.NUMPY} and not any(map(holds_objects, args)):
            return self.fun(*map(read_only, args))  # as below, in a third of the time
        are_arrays = args and not static and all(map(is_array, args))
        leaves, treespec = (args, None) if are_arrays else tree_flatten((args, static), labels=True)
        binding = sole_framework(leaves, BINDINGS.PLAIN)
        if binding.framework is None:
            args, static = build(treespec, iter(list(map(read_only, leaves))))
            returned = self.fun(*args, **static)
            others = [leaf for leaf in leaves if lookup(type(leaf)) is BINDINGS.WITHOUT_AD]
            return _of_library(returned, others[0]) if others else returned
        arrays, call = list(filter(is_array, leaves)), HostCall(self, Arguments(list(map(read_only, leaves)), treespec))
        like = None if self.like is None else call.expected(arrays)
        expected = call.outline
        message = f"{self.name} is a host function, which has no derivative; give it a rule with custom_derivative"
        results = self.run_by(binding, call, arrays, like, message)
        checked(binding, "host_call", results, call.outline.size)
        if call.outline is expected and expected.objects:
            msg = f"{self.name} is staged, and its residuals are no arrays; return arrays, and their shapes by like="
            raise RuleError(msg)
        return call.outline.filled(results)

    def defvjp(self, *_: Any) -> None:
        """Refuse a rule, which `custom_derivative` takes."""
        msg = f"{self.name} is a host function, which takes no rule; put @custom_derivative above @host_function"
        raise RuleError(msg)

    defjvp = defvjp

    def run_by(self, binding: Binding, call: Any, arrays: Sequence[Any], like: Any, message: str) -> list[Any]:
        """Let the plugin of a framework run this function, by `call`, a function of NumPy arrays."""
        if binding.host_call is None:
            msg = f"the plugin {binding.framework!r} has no hook host_call, which {self.name} needs; upgrade the plugin"
            raise PluginError(msg)
        rank = len(shape_of(arrays[0]) or ())

        @functools.wraps(self.fun, assigned=(), updated=())
        def run(values: list[Any]) -> list[Any]:
            shapes = [value.shape for value in values]
            batch = shapes[0][: len(shapes[0]) - rank]
            if not batch or 0 in batch or not any(itertools.starmap(_may_mix, itertools.permutations(shapes, 2))):
                return call(values)  # type: ignore[no-any-return]
            import numpy as np  # noqa: PLC0415  (a host function uses it)

            rows = [call([value[place] for value in values]) for place in np.ndindex(batch)]
            return [np.stack(column).reshape(*batch, *column[0].shape) for column in zip(*rows, strict=True)]

        return binding.host_call(run, list(arrays), like, self.batched, message)


class HostCall:
    """One call of a host function, as a function of the NumPy arrays in place of the framework's.

    A compiled program holds it, so it holds none of the framework's arrays, which may be those of a trace.
    """

    def __init__(self, host: HostFunction, arguments: Outline) -> None:
        self.host = host
        self.arguments = arguments
        # That of the result: as `like` tells it, then as it was in the last run.
        self.outline: Outline = arguments
        # The shapes and dtypes of its arrays if `like` tells them.
        self.types: list[Any] | None = None

    def _call(self, fun: Callable[..., Any], arrays: Sequence[Any]) -> tuple[list[Any], Outline]:
        """Call a function; return the arrays that it returned, and the outline of its result."""
        args, static = self.arguments.filled(arrays)
        leaves, treespec = tree_flatten(fun(*args, **static), labels=True)
        own = count_leaves(children_of(treespec)[0]) if self.host.has_residuals and treespec else len(leaves)
        # Residuals may be anything.
        places = [i for i, leaf in enumerate(leaves) if i < own or _is_array(leaf)]
        objects = ", ".join([kind_of(leaf) for i, leaf in enumerate(leaves) if i not in places])
        return [leaves[i] for i in places], Outline(treespec, leaves, places, objects=objects)

    def expected(self, arrays: Sequence[Any]) -> list[Any]:
        """Return arrays, without memory, of the shapes and dtypes that `like` tells; it is called once a signature."""
        import numpy as np  # noqa: PLC0415  (a host function uses it)

        known, signature = self.host.known, self.arguments.signature(arrays)
        try:
            told = known.get(signature)
        except TypeError:  # a static field without a hash, a size that a compiler does not know
            told = signature = None
        if told is None:
            results, outline = self._call(self.host.like, list(map(blank_array, arrays)))  # type: ignore[arg-type]
            told = outline, [blank_array(one if hasattr(one, "dtype") else np.asarray(one)) for one in results]
            # A number that differs in each call, such as a step of time, makes a signature for each.
            if signature is not None and len(known) < 32:  # noqa: PLR2004
                known[signature] = told
        self.outline, self.types = told
        return self.types

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        """Run the function on NumPy arrays; return copies of those in its result, of the dtypes that they must have."""
        import numpy as np  # noqa: PLC0415

        arrays = [read_only(np.asarray(array)) for array in arrays]
        results, outline = self._call(self.host.fun, arrays)
        results = list(map(self._array, results))
        if self.types is None:
            self.outline = outline
            return [_with_precision(result, arrays) for result in results]
        if not treespecs_equal(*[_with_plain_tuples(one.treespec) for one in (outline, self.outline)]):
            raise RuleError(
                f"the host function {self.host.name} returned another structure than its like: {len(results)} "
                f"array(s), not {len(self.types)}, or in other containers; return the same from both"
            )
        self.outline = outline if outline.objects else self.outline
        return [self._agreeing(result, like) for result, like in zip(results, self.types, strict=True)]

    def _array(self, leaf: Any) -> Any:
        """Return a copy of an array that the function returned, which may be its workspace."""
        import numpy as np  # noqa: PLC0415

        is_known = lookup(type(leaf)).kind in (NUMPY, PLAIN) and not isinstance(leaf, np.ma.MaskedArray)
        if is_known and _is_array(leaf) and (_is_numpys(leaf) or not hasattr(leaf, "dtype")):
            return np.array(leaf, order="C")
        raise RuleError(
            f"{self.host.name} returned {kind_of(leaf)}; return NumPy arrays (no masked ones), numbers, or a structure"
        )

    def _agreeing(self, result: Any, like: Any) -> Any:
        import numpy as np  # noqa: PLC0415

        shape, dtype = tuple(like.shape), np.dtype(like.dtype)
        # Under batching the arrays have leading axes of which `like` does not know.
        batch = result.shape[: len(result.shape) - len(shape)] if self.host.batched else ()
        if result.shape != batch + shape or not np.can_cast(result.dtype, dtype, "same_kind"):
            raise RuleError(
                f"the host function {self.host.name} returned an array of shape {result.shape} and dtype "
                f"{result.dtype}, but its like one of shape {shape} and dtype {dtype}; correct one of them"
            )
        converted = result.astype(dtype, copy=False)
        # NumPy and the frameworks would cut integers off.
        if dtype.kind in "iu" and converted is not result and (converted != result).any():
            raise RuleError(f"{self.host.name} returned integers of dtype {result.dtype} that {dtype} cannot hold")
        return converted


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") or isinstance(leaf, (int, float, complex))


def _with_plain_tuples(treespec: Treespec) -> Treespec:
    """Return a structure with a plain tuple for each named one, which functions of NumPy return."""

    def plain(cls: type, *parts: Any) -> Any:
        return (tuple, None, (), parts[-1]) if issubclass(cls, tuple) else (cls, *parts)

    return map_nodes(plain, treespec)


def _may_mix(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Return whether NumPy broadcasts an array of lower rank, so that its rows may meet another axis than rows."""
    return len(one) > len(other) and all(a == b or 1 in (a, b) for a, b in zip(one[::-1], other[::-1], strict=False))


def read_only(value: Any) -> Any:
    """Return an array of NumPy, or of a library without AD, as one of NumPy that cannot be written to.

    NumPy would make an array of one object of a sparse matrix of SciPy, which comes as it is.
    """
    binding = lookup(type(value))
    if binding.kind is not NUMPY or not _is_numpys(value):
        return value
    view = _of_numpy(value) if binding is BINDINGS.WITHOUT_AD else value.view()
    view.flags.writeable = False
    return view


def _is_numpys(array: Any) -> bool:
    """Return whether NumPy can make an array of the elements of an array."""
    return hasattr(array, "__array__") or hasattr(array, "__dlpack__")


def _of_numpy(array: Any) -> Any:
    """Return an array of a library without AD as one of NumPy."""
    import numpy as np  # noqa: PLC0415

    if hasattr(array, "__dask_graph__"):
        msg = "a host function was given an array of Dask, which is lazy; run it on blocks, array.map_blocks(function)"
        raise RuleError(msg)
    # NumPy 2.0 takes what is on the CPU, and no keyword.
    to_cpu: Any = {} if np.__version__.startswith("2.0.") else {"device": "cpu"}
    return np.from_dlpack(array, **to_cpu) if hasattr(array, "__dlpack__") else np.asarray(array).view()


def _of_library(value: Any, like: Any) -> Any:
    """Return a value with the arrays of the library of another array, on its device, in place of NumPy's."""
    if not hasattr(like, "__array_namespace__"):
        return value
    asarray = functools.partial(like.__array_namespace__().asarray, device=like.device)
    leaves, treespec = tree_flatten(value, labels=True)
    return build(treespec, iter([asarray(leaf) if lookup(type(leaf)).kind is NUMPY else leaf for leaf in leaves]))


def numpy_dtype(dtype: Any) -> Any:
    """Return NumPy's dtype for one of a framework; bfloat16 is that of the package `ml_dtypes`, as with JAX.

    >>> import torch
    >>> from adprotocol.extend import numpy_dtype
    >>> numpy_dtype(torch.float32)
    dtype('float32')

    Raises `RuleError` for bfloat16 without that package, and TypeError for a dtype that NumPy does not have.
    """
    import numpy as np  # noqa: PLC0415

    name = dtype_name(dtype)
    if name != "bfloat16":
        return np.dtype(name)
    try:
        from importlib import import_module  # noqa: PLC0415  (0.5 ms; not at import)

        return np.dtype(import_module("ml_dtypes").bfloat16)
    except ImportError as error:
        msg = "NumPy has bfloat16 from the package ml_dtypes alone; install it, or convert the array to float32"
        raise RuleError(msg) from error


def blank_array(array: Any) -> Any:
    """Return a NumPy array with the shape and dtype of an array of any framework; it takes no memory."""
    import numpy as np  # noqa: PLC0415

    shape = tuple(array.shape)
    try:
        dtype = array.dtype if isinstance(array.dtype, np.dtype) else numpy_dtype(array.dtype)
        blank: Any = np.ndarray(shape, dtype, np.zeros((), dtype), strides=(0,) * len(shape))
    except TypeError as error:
        raise RuleError(
            f"a host function was given {kind_of(array)} of shape {shape} and dtype {dtype_name(array.dtype)}, for "
            f"which NumPy has no array ({error}); give it numbers, of a shape that is known (of a random key its data)"
        ) from error
    blank.flags.writeable = False
    return blank


def _with_precision(result: Any, arrays: Sequence[Any]) -> Any:
    """Return an inexact result in the precision of the arguments, since NumPy computes much in double precision."""
    import numpy as np  # noqa: PLC0415

    dtypes = [array.dtype for array in arrays if is_inexact(array.dtype)]
    if not dtypes or not is_inexact(result.dtype):
        return result
    precision = np.result_type(*dtypes, *([np.complex64] if is_complex(result) else []))
    return result.astype(precision if is_complex(result) else np.empty((), precision).real.dtype, copy=False)


install(BINDINGS.FUNCTION, HostFunction)
