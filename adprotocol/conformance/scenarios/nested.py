"""Each hook under every transformation, and under pairs of them in both orders, by one function each.

The functions here are from a scalar to a scalar, so that transformations nest,
and their derivatives are known in closed form. What a row of the grid expects
follows by the chain rule (`adprotocol.conformance.nesting`).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance.checked import Absent, HarnessFault, WrongAnswer
from adprotocol.conformance.scenario import MUST, SHOULD, scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from adprotocol.conformance.checked import Checked

X = 2.0
# Between x and 2 x, so that the rows of a batch take different branches.
BREAK = 3.0

_SOURCES = {
    "jit": "PennyLane's qml.math.in_backprop is True under plain jit: "
    "https://docs.pennylane.ai/en/stable/code/api/pennylane.math.in_backprop.html",
    "compile": "PyTorch: requires_grad is read while Dynamo traces: "
    "https://docs.pytorch.org/docs/stable/torch.compiler_faq.html",
    "vmap": "PyTorch: requires_grad is False inside vmap: https://github.com/pytorch/pytorch/issues/134784",
    "checkpoint": "PyTorch: checkpoint runs the function twice: https://docs.pytorch.org/docs/stable/checkpoint.html",
    "scan": "JAX: the body of a scan is traced once: https://docs.jax.dev/en/latest/_autosummary/jax.lax.scan.html",
    "jvp": "PyTorch: no switch tells forward mode: https://github.com/pytorch/pytorch/issues/128600",
    "grad": "PyTorch: a way to ask whether a derivative is wanted: https://github.com/pytorch/pytorch/issues/84565",
    "nested": "J. M. Siskind, B. A. Pearlmutter: Perturbation confusion and referential transparency, IFL 2005",
}


def _source(transforms: str) -> str:
    parts = nesting.parse(transforms)
    if sum(part in nesting.DERIVATIVES for part in parts) > 1:
        return _SOURCES["nested"]
    return next(_SOURCES[part] for part in (*nesting.OTHERS, *nesting.DERIVATIVES) if part in parts)


def _compare(
    h: Checked,
    transforms: str,
    fun: Callable[[Any], Any],
    table: Callable[[float], list[float]],
    *,
    natively: str = "",
) -> None:
    """Compare what comes out at 2, and the value that comes along with the outermost derivative.

    If they differ, or an error is raised, the system itself is tried under the transformations `natively`, for it may
    not have them in this order.
    """
    try:
        _compare_alone(h, transforms, fun, table)
    except Exception:
        _system_itself(h, natively or transforms)
        raise


def _system_itself(h: Checked, transforms: str) -> None:
    """Raise `Absent` if the system refuses x ** 4 under these transformations, `HarnessFault` if it gets it wrong."""
    table = nesting.expected(transforms, lambda x: [x**4, 4 * x**3, 12 * x**2, 24 * x, 24.0])
    try:
        found = h.nest(transforms, lambda x: x * x * x * x)(h.array(X))
    except Exception as error:
        msg = f"the system itself refuses {transforms}: {type(error).__name__}: {' '.join(str(error).split()):.160}"
        raise Absent(msg) from error
    try:
        h.equal(found, table(X)[0], f"x ** 4 under {transforms}, without adprotocol,")
    except WrongAnswer as error:
        raise HarnessFault(str(error)) from error


def _compare_alone(
    h: Checked, transforms: str, fun: Callable[[Any], Any], table: Callable[[float], list[float]]
) -> None:
    x = h.array(X)
    inner = nesting.value_before(transforms)
    if inner is not None and h.has("value_and_grad") and transforms.startswith("grad") and "grad" not in h.variant:
        value, _ = h.harness.value_and_grad(h.nest(inner, fun))(x)
        h.equal(value, nesting.expected(inner, table)(X)[0], "the value that comes with the gradient")
    if inner is not None and transforms.startswith("jvp"):
        value, _ = h.jvp(h.nest(inner, fun), x, h.array(1.0))
        h.equal(value, nesting.expected(inner, table)(X)[0], "the value that comes with the tangent")
    h.equal(h.nest(transforms, fun)(x), nesting.expected(transforms, table)(X)[0])


def answers(h: Checked, transforms: str) -> None:
    """Compare x ** 3 where the query is True, 5 x ** 2 where it is False."""

    def f(x: Any) -> Any:
        return adprotocol.cond(h.asks(x), lambda x: x * x * x, lambda x: 5.0 * x * x, x)

    if nesting.differentiates(transforms):
        _compare(h, transforms, f, lambda x: [x**3, 3 * x**2, 6 * x, 6.0, 0.0])
    else:
        _compare(h, transforms, f, lambda x: [5 * x**2])


def constant(h: Checked, transforms: str) -> None:
    """Compare c x x with c the constant of x: c is in the value, and in no derivative."""

    def f(x: Any) -> Any:
        return adprotocol.non_differentiable(x) * x * x

    _compare(h, transforms, f, lambda x: [x**3, 2 * x**2, 2 * x, 0.0, 0.0])


def straight_through(h: Checked, transforms: str) -> None:
    """Compare x + constant(x x x - x): the value of x ** 3 with the derivative of x."""

    def f(x: Any) -> Any:
        return x + adprotocol.non_differentiable(x * x * x - x)

    _compare(h, transforms, f, lambda x: [x**3, 1.0, 0.0, 0.0, 0.0])


def branches(h: Checked, transforms: str) -> None:
    """Compare x ** 3 above 3, else x ** 2 with a term that is 0 / 0 at 4, where the other branch is taken."""

    def f(x: Any) -> Any:
        return adprotocol.cond(x > BREAK, lambda x: x * x * x, lambda x: x * x + (0.0 * x) / (x - 4.0), x)

    def table(x: float) -> list[float]:
        return [x**3, 3 * x**2, 6 * x, 6.0, 0.0] if x > BREAK else [x**2, 2 * x, 2.0, 0.0, 0.0]

    _compare(h, transforms, f, table)


def model(h: Checked, transforms: str) -> None:
    """Compare the gradient of w ** 3 b with respect to w, of a model that holds x at w and, frozen, at b: 3 x ** 3."""

    def f(x: Any) -> Any:
        gradient = adprotocol.grad(lambda m: m["w"] * m["w"] * m["w"] * m["b"], where="w", backend=h.name)
        result = gradient({"w": x, "b": x})
        h.same(result["b"], None, "the gradient of the frozen part")
        return result["w"]

    _compare(h, transforms, f, lambda x: [3 * x**3, 9 * x**2, 18 * x, 18.0, 0.0], natively=f"{transforms} of grad")


def around(h: Checked, transforms: str) -> None:
    """Compare our gradient of the transformed x ** 4 / 4, with respect to the one leaf of a model."""

    def f(x: Any) -> Any:
        return x * x * x * x * 0.25

    def primal(x: float) -> list[float]:
        return [x**4 / 4, x**3, 3 * x**2, 6 * x, 6.0]

    differentiated = adprotocol.value_and_grad(lambda m: h.nest(transforms, f)(m["x"]), backend=h.name)
    try:
        value, gradient = differentiated({"x": h.array(X), "n": 1})
        h.equal(value, nesting.expected(transforms, primal)(X)[0], "the value")
        h.gradients(gradient, {"x": nesting.expected(f"grad of {transforms}", primal)(X)[0], "n": None})
    except Exception:
        _system_itself(h, f"grad of {transforms}")
        raise


def _enter(  # noqa: PLR0913
    hook: str,
    function: Callable[..., None],
    nestings: Iterable[str],
    rule: str,
    text: str,
    *,
    prefix: str = "",
) -> None:
    for transforms in nestings:
        depth = len(nesting.parse(transforms))
        scenario(
            f"{hook}/{prefix}{transforms.replace(' ', '-').replace('_', '-')}",
            level=MUST if depth <= 2 else SHOULD,  # noqa: PLR2004
            rule=rule,
            needs=nesting.needs(transforms),
            transform=transforms,
            source=_source(transforms),
            expects=" ".join((function.__doc__ or "").split()),
            summary=text.format(transforms),
            varies=depth == 1,
        )(functools.partial(function, transforms=transforms))


_SINGLE = nesting.TRANSFORMS
_PAIRS = nesting.pairs()
_DERIVATIVE_PAIRS = [pair for pair in _PAIRS if nesting.differentiates(pair)]
_TRIPLES = (
    "grad of jit of vmap",
    "grad of vmap of jit",
    "jit of grad of vmap",
    "vmap of grad of jit",
    "jvp of grad of jit",
    "grad of jvp of vmap",
    "grad of grad of jit",
    "grad of jit of grad",
    "jvp of vmap of grad",
    "vmap of jit of vmap",
    "grad of scan of jit",
    "grad of checkpoint of jit",
    "grad of vmap of checkpoint",
    "compile of grad of vmap",
    "compile of jvp of grad",
    "grad of grad of grad",
)

_enter("within_gradient", answers, (*_SINGLE, *_PAIRS, *_TRIPLES), "W5", "The query is answered rightly under {}.")
_enter("non_differentiable", constant, (*_SINGLE, *_DERIVATIVE_PAIRS), "N1", "A constant stays one under {}.")
_enter(
    "non_differentiable",
    straight_through,
    ("grad", "jvp", "grad of jit", "jit of grad", "grad of vmap", "vmap of grad", "grad of grad", "compile of grad"),
    "N1",
    "The straight-through estimator has the derivative of its input under {}.",
    prefix="straight-through-",
)
_enter("cond", branches, (*_SINGLE, *_DERIVATIVE_PAIRS), "C6", "A branch is chosen and differentiated under {}.")
_enter(
    "value_and_grad",
    model,
    (*_SINGLE, *_DERIVATIVE_PAIRS),
    "T9",
    "The gradient of a model with a frozen part is right inside {}.",
    prefix="inside-",
)
_enter(
    "value_and_grad",
    around,
    (*_SINGLE, *_DERIVATIVE_PAIRS),
    "T9",
    "The gradient of a model is right around {}.",
    prefix="of-",
)
