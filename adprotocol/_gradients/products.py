"""`vjp` and `jvp`: products with the Jacobian of a function, transposed and as it is.

Both see a function as one from the selected leaves of its arguments to the inexact
arrays of its value; the rest of the value is constant.
"""

from __future__ import annotations

from adprotocol._dispatch.binding import checked, identity
from adprotocol._dispatch.dtype import dtype_name
from adprotocol._dispatch.shape import shape_of
from adprotocol._dispatch.wrapper import leave_out
from adprotocol._gradients import output
from adprotocol._gradients.call import ArrayCall, Call, array_binding, call_of, check_callable
from adprotocol._hooks.non_differentiable import non_differentiable
from adprotocol._rules.check import is_complex
from adprotocol._rules.outline import ONE_ARRAY
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import ArgumentError, PluginError, UndecidableError
from adprotocol.messages import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol._dispatch.binding import Binding
    from adprotocol._gradients.call import Function
    from adprotocol._rules.outline import Outline


def vjp(
    fun: Callable[..., Any], *primals: Any, where: Any = None, has_aux: bool = False, backend: str | None = None
) -> Any:
    """Return the value of `fun`, and a function that pulls a cotangent of the value back to the primals.

    >>> import adprotocol
    >>> def fun(model, x):
    ...     return {"product": model["w"] * x, "order": model["order"]}
    >>> value, pull = adprotocol.vjp(fun, {"w": 2.0, "order": 3}, 5.0)
    >>> print(float(value["product"]), value["order"])
    10.0 3
    >>> model, x = pull({"product": 1.0, "order": None})
    >>> print(float(model["w"]), model["order"], float(x))
    5.0 None 2.0

    `fun` runs once. Call the returned function as often as you like, later or in another
    thread. Value and gradients can be differentiated again, also by the cotangent.

    Args:
        fun: a function of the primals. It returns arrays of inexact dtype in any
            structure that `trainable` takes; everything else in it is a constant.
        *primals: the arguments, structures with inexact arrays of any shapes.
        where: which leaves take gradients, as for `value_and_grad`; with several
            primals a mask is a tuple of masks.
        has_aux: whether `fun` returns a pair of the value and anything else.
        backend: the framework for NumPy arrays and Python numbers.

    Returns:
        ``(value, pull)``, with `has_aux` ``(value, pull, aux)``. ``pull(cotangent)`` takes
        the structure of the value with arrays of the same shapes, or a Python number for
        shape ``()``. Other dtypes are converted. None stands for zeros, and for the
        cotangent of a constant. It returns a tuple with a gradient for each primal, in
        the structure of ``trainable(primal, where)``: zeros for a leaf without influence.

    Raises:
        OutputError: the value has no array that can carry a derivative, or with
            `has_aux` the result is not a pair.
        NothingTrainableError: no primal has a leaf that takes a gradient.
        ArgumentError: `fun` cannot be called, there are no primals, or a cotangent has
            another structure or shape, or is complex for an output that is real.
        UndecidableError: a second pull through a function compiled by ``torch.compile``.
        ADProtocolError: as `value_and_grad` does.

    For a scalar ``pull(1.0)`` is the gradient of `grad`: complex leaves and cotangents
    follow the framework's convention. After ``jax.vjp`` and ``equinox.filter_vjp``.
    """
    check_callable("vjp", fun)
    if not primals:
        raise ArgumentError("vjp was given no primals; pass the arguments of the function after it: vjp(fun, x)")
    try:
        call = call_of(fun, primals, {}, tuple(range(len(primals))), where, backend, each=False)
        arrays, outline, pull = run_reverse(call, has_aux=has_aux)
    except BaseException as error:
        leave_out(error)
        raise
    likes = outline.of_outputs(arrays)

    def pull_back(cotangent: Any) -> tuple[Any, ...]:
        try:
            given = output.given_entries(cotangent, outline.spec, likes, ("pull", "cotangent of", "the value"))
            return tuple(call.structured(pull(_as_likes(call.binding, given, arrays))))
        except BaseException as error:
            leave_out(error)
            raise
        finally:  # a plugin may have run the function again
            call.restore()

    returned = outline.filled(arrays)
    return (returned[0], pull_back, returned[1]) if has_aux else (returned, pull_back)


def jvp(
    fun: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    has_aux: bool = False,
    backend: str | None = None,
) -> Any:
    """Return the value of `fun` and its derivative in the direction of `tangents`.

    >>> import adprotocol
    >>> value, tangent = adprotocol.jvp(lambda x, y: x * y, (2.0, 3.0), (1.0, None))
    >>> print(float(value), float(tangent))
    6.0 3.0

    The framework's forward mode computes it. Where the framework, or one of its
    operations, has none, `jvp` differentiates what `vjp` returns (double backward), and
    checks the result against that. A Hessian-vector product is
    ``jvp(grad(loss), (x,), (v,))[1]``.

    Args:
        fun: a function of the primals, as for `vjp`.
        primals: a tuple or list of the arguments.
        tangents: one for each primal, in its structure (of a torch module a dict from
            qualified name to tensor), with arrays of the same shapes. A leaf whose tangent
            is None does not move and is a constant in the call, whatever flags and
            declarations say.
        has_aux: whether `fun` returns a pair of the value and anything else.
        backend: the framework for NumPy arrays and Python numbers.

    Returns:
        ``(value, tangent)``, with `has_aux` ``(value, tangent, aux)``. The tangent has the
        structure of the value: zeros for an output that does not move, and None for a
        constant.

    Raises:
        OutputError: as for `vjp`.
        ArgumentError: `fun` cannot be called, primals and tangents are not two sequences
            of one length, nothing moves, or a tangent has another structure or shape, is
            complex for a real leaf, or stands where there is no derivative.
        UndecidableError: an operation has no forward mode, and its backward pass cannot be
            transposed.
        ADProtocolError: as `value_and_grad` does.

    After ``jax.jvp`` and ``equinox.filter_jvp``.
    """
    check_callable("jvp", fun)
    try:
        call, moving = _moving_call(fun, primals, tangents, backend)
        arrays, outline, moved = run_forward(call, moving, has_aux=has_aux)
    except BaseException as error:
        leave_out(error)
        raise
    returned, tangent = outline.filled(arrays), outline.cotangent(moved)
    return (returned[0], tangent, returned[1]) if has_aux else (returned, tangent)


def _moving_call(
    fun: Callable[..., Any], primals: Any, tangents: Any, backend: str | None
) -> tuple[ArrayCall | Call, list[Any]]:
    """Return the call whose leaves are those that move, and their tangents."""
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        msg = f"jvp was given {kind_of(primals)} as primals and {kind_of(tangents)} as tangents; give a tuple of each"
        raise ArgumentError(msg)
    if len(primals) != len(tangents):
        msg = f"jvp was given {len(primals)} primals and {len(tangents)} tangents; give one for each, None for zeros"
        raise ArgumentError(msg)
    binding = array_binding(fun, primals[0]) if len(primals) == 1 and backend is None else None
    if binding is not None and tangents[0] is not None:
        moving = output.given_entries(tangents[0], None, primals, ("jvp", "tangent of", "argument 0"))
        return ArrayCall(fun, primals[0], binding), _as_likes(binding, moving, primals)
    moving = []
    call = Call(fun, tuple(primals), {}, tuple(range(len(primals))), backend)
    for (position, structure), tangent in zip(call.structures.items(), tangents, strict=True):
        able = structure.capable([True] * len(structure.leaves))
        likes = [None if flag is None else leaf for leaf, flag in zip(structure.leaves, able, strict=True)]
        words = ("jvp", "tangent of", f"argument {position}")
        entries = iter(output.given_entries(tangent, structure.shown, likes, words))
        given = [None if like is None else next(entries) for like in likes]
        structure.mask = [entry is not None for entry in given]
        moving += [entry for entry in given if entry is not None]
    if not moving:
        msg = "jvp was given no tangent but None, so that nothing moves; give the tangent of one leaf at least"
        raise ArgumentError(msg)
    call.selected()
    return call, _as_likes(call.binding, moving, call.leaves)


def _as_likes(binding: Binding, given: list[Any], likes: Sequence[Any]) -> list[Any]:
    """Return cotangents or tangents as arrays like these, None for zeros; as they are, if the plugin does it."""
    functions = None if binding.array_functions is None else binding.array_functions()
    as_like = getattr(functions, "as_like", None)
    pairs = zip(given, likes, strict=False)
    return given if as_like is None else [one if one is None else as_like(one, like) for one, like in pairs]


def run_reverse(call: ArrayCall | Call, *, has_aux: bool, once: bool = False) -> tuple[list[Any], Outline, Any]:
    """Return what the function returned, as arrays and outline, and a function that pulls cotangents of outputs back.

    With `once` the value is a scalar, and its gradients take the place of the function.
    """
    function, kept = _function(call, has_aux=has_aux, once=once)
    binding, count = call.binding, len(call.leaves)
    if binding.vjp is None:
        raise PluginError(
            f"{binding.framework} has no reverse mode here, as its plugin has no hook vjp; use forward mode, "
            "adprotocol.jvp or jacobian(mode='forward'), or arrays of another framework"
        )
    try:
        outputs, others, pull = binding.vjp(function, call.leaves, once)
        if once:
            gradients = checked(binding, "vjp", pull(None), count)
            return [*outputs, *others], kept[-1], gradients
    finally:
        call.restore()
    return [*outputs, *others], kept[-1], lambda cotangents: checked(binding, "vjp", pull(cotangents), count)


def run_forward(call: ArrayCall | Call, tangents: list[Any], *, has_aux: bool) -> tuple[list[Any], Outline, list[Any]]:
    """Return what the function returned, as arrays and outline, and the tangents of the outputs."""
    function, kept = _function(call, has_aux=has_aux)
    binding = call.binding
    try:
        returned = NotImplemented if binding.jvp is None else binding.jvp(function, call.leaves, tangents)
        if returned is NotImplemented:
            returned = _jvp_by_vjp(binding, function, call.leaves, tangents)
    finally:
        call.restore()
    outputs, others, moved = returned
    return [*outputs, *others], kept[-1], checked(binding, "jvp", moved, len(outputs))


def _function(call: ArrayCall | Call, *, has_aux: bool, once: bool = False) -> tuple[Function, list[Outline]]:
    """Return the function of leaves that a plugin gets, and the list in which it leaves the outline of each run."""
    kept: list[Outline] = []

    def function(tracked: list[Any]) -> tuple[list[Any], list[Any]]:
        returned = output.run(call, tracked, has_aux=has_aux, once=once)
        if once and not has_aux:
            kept.append(ONE_ARRAY)
            return [returned], []
        arrays, outline = output.taken_apart(returned, call.binding, has_aux=has_aux)
        kept.append(outline)
        return arrays[: outline.count], arrays[outline.count :]

    return function, kept


def _jvp_by_vjp(binding: Binding, function: Function, leaves: list[Any], tangents: list[Any]) -> Any:
    """Do what the hook `jvp` does by the hook `vjp`: pulling cotangents back is linear, and its transpose pushes.

    The transpose is taken at cotangents drawn anew: a backward pass may ask whether anything arrives. One that detaches
    them, or leaves the framework, is not transposed as it pulls: ``<u, push(t)> == <pull(u), t>`` is asked.
    """
    vjp: Any = binding.vjp
    functions = binding.functions("jvp", "as_like")
    as_like, in_numpy = functions.as_like, getattr(functions, "in_numpy", identity)
    outputs, others, pull = vjp(function, leaves, False)  # noqa: FBT003  (hooks are called by position)
    names = {dtype_name(getattr(array, "dtype", None)) for array in (*outputs, *leaves)}
    tolerance = 0.1 if names & {"float16", "bfloat16"} else 1e-6 if names <= {"float64", "complex128", "None"} else 1e-3
    try:
        # The larger where a value is small beside others, as in another unit: there the product shows what is lost too.
        norm = _product(binding, outputs, outputs)[1] ** 0.5 or 1.0
        values = [(y, norm / (abs(in_numpy(y)) + 10.0 * tolerance * norm)) for y in non_differentiable(outputs)]
        # Two, for the terms of one product may cancel.
        us, vs = ([as_like(as_like(_drawn(y), y) * as_like(weight, y), y) for y, weight in values] for _ in range(2))
        pulled, _, push = vjp(lambda cotangents: (pull(cotangents), []), us, False)  # noqa: FBT003
        moved, pairs = push(tangents), ((us, pulled), (vs, pull(vs)))
        products = [(*_product(binding, moved, u), *_product(binding, ct, tangents)) for u, ct in pairs]
    # A system of one level, a backward pass that leaves the framework; and what is staged or batched has no float.
    except Exception as error:
        raise _not_transposable(binding) from error
    # Where a product is no number, so is the tangent.
    if any(abs(one - other) > tolerance * (size + others_size) for one, size, other, others_size in products):
        raise _not_transposable(binding)
    return outputs, others, moved


def _drawn(like: Any) -> Any:
    import numpy as np  # noqa: PLC0415  (the frameworks import it)

    drawn = np.random.default_rng().uniform(0.5, 1.5, (2, *(shape_of(like) or ())))
    return drawn[0] + 1j * drawn[1] if is_complex(like) else drawn[0]


def _not_transposable(binding: Binding) -> UndecidableError:
    read = "" if hasattr(binding.functions("jvp"), "in_numpy") else ", or by float(): its plugin may lack in_numpy"
    return UndecidableError(
        f"{binding.framework} has no forward mode for this function, and the backward pass cannot be transposed in its "
        "place: it detaches the cotangent, leaves the framework or cannot be differentiated, or values are not known "
        f"(under a compiler or vmap{read}). Use reverse mode, vjp or jacobian(mode='reverse'); give an operation a "
        "jvp, or a rule by adprotocol.custom_derivative; in a Jacobian chunk_size=1 may serve"
    )


def _product(binding: Binding, values: list[Any], others: list[Any]) -> tuple[float, float]:
    """Return the real inner product of lists of arrays, as the transpose of the framework has it, and its size."""
    functions = binding.functions("jvp")
    sign = 1 if getattr(functions, "gradient_is_ascent", False) else -1
    in_numpy = getattr(functions, "in_numpy", identity)
    total = size = 0.0
    for one, other in zip(*(map(in_numpy, non_differentiable(arrays)) for arrays in (values, others)), strict=True):
        terms = one.real * other.real + sign * one.imag * other.imag if is_complex(one) else one * other
        total, size = total + _sum(terms), size + _sum(abs(terms))
    return total, size


def _sum(terms: Any) -> float:
    return float(terms.sum() if hasattr(terms, "sum") else terms)
