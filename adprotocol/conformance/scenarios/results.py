"""What each hook returns for a value: an array of the system, of the same dtype, also a scalar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import scenario
from adprotocol.conformance.scenarios.arrays import dtypes_of_numpy, first_element
from adprotocol.conformance.scenarios.rules import hosted, ruled, square

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from adprotocol.conformance.checks import Checked

_PRECISION = "NumPy: scalars and promotion: https://numpy.org/neps/nep-0050-scalar-promotion.html"


def _of_constants(h: Checked, x: Any) -> Iterable[Any]:
    if h.has("variable", "cast"):
        x = x * h.cast(h.variable(1.0), h.numpy(x).dtype.name)
    return adprotocol.non_differentiable(x), *adprotocol.non_differentiable([x])


def _of_a_gradient(h: Checked, x: Any) -> Iterable[Any]:
    run = adprotocol.value_and_grad(
        lambda x: (first_element(x * x), [first_element(x), x, x * x]), has_aux=True, backend=h.name
    )
    (value, aux), gradient = run(x)
    return value, gradient, *aux, *adprotocol.value_and_grad(lambda _: first_element(x), backend=h.name)(x)


def _of_a_rule(h: Checked, x: Any) -> Iterable[Any]:
    f = ruled(h, square, lambda ct, _, x: (2.0 * ct * x,))
    return (f(x), h.grad(lambda x: first_element(f(x)))(x)) if h.has("grad") else (f(x),)


# For each hook its rule, and what it makes of an array.
_CALLS: dict[str, tuple[str, Callable[[Checked, Any], Iterable[Any]]]] = {
    "non_differentiable": ("N1", _of_constants),
    "prevent_gradient": ("N5", lambda _, x: (adprotocol.prevent_gradient(x, "nobody differentiates this"),)),
    "value_and_grad": ("T5", _of_a_gradient),
    "cond": ("C5", lambda _, x: adprotocol.cond(True, lambda x: [x, x * x, x - x * x], lambda x: [x, x, x], x)),
    "custom_derivative": ("D1", _of_a_rule),
    "host_function": ("H1", lambda h, x: (hosted(h, lambda x: x * x)(x), hosted(h, lambda x: x)(x))),
}


def of_each_rank(h: Checked, call: Callable[[Checked, Any], Iterable[Any]]) -> None:
    """Scalars and vectors of each dtype come back as arrays of the system, of that dtype.

    Expect the dtype of x in each result for x of shape () and (2,), a class of the system's package, and x unchanged.
    """
    for dtype in dtypes_of_numpy(h) if h.has("dtypes", "cast") else [""]:
        for given in (2.0, [2.0, 2.0]):
            x = h.cast(h.array(given), dtype) if dtype else h.array(given)
            due = h.numpy(x).dtype
            packages = {base.__module__.partition(".")[0] for y in (x, x * x) for base in type(y).__mro__[:-1]}
            for place, result in enumerate(call(h, x)):
                what = f"result {place} for {dtype} of shape {h.numpy(x).shape}"
                h.check(
                    h.numpy(result).dtype == due, f"{what} has the dtype {h.numpy(result).dtype}; {due} was expected"
                )
                package = type(result).__module__.partition(".")[0]
                h.check(package in packages, f"{what} is of the package {package}; {packages} were expected")
            h.assert_equal(x, given, "the array that was given")


for _hook, (_rule, _call) in _CALLS.items():
    _needs = ("grad",) if _hook == "value_and_grad" else ()
    scenario(f"{_hook}/of-each-rank", {"call": _call}, rule=_rule, needs=_needs, source=_PRECISION)(of_each_rank)
