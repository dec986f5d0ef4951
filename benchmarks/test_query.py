"""`within_gradient` beside what is written by hand, for one value and for a dict of ten."""

import autograd
import by_hand
import jax
import numpy as np
import pytest
import torch
from autograd.tracer import isbox
from interleave import call
from jax._src import core
from jax._src.interpreters.partial_eval import DynamicJaxprTrace
from row import compared

from adprotocol import cond, is_concrete, non_differentiable, trainable, value_and_grad, within_gradient

FINDS = "takes any number of values of any class, and finds the plugin in a table"


@pytest.fixture(scope="module", autouse=True)
def ordinary_use():
    """Call the library as a program does: CPython's caches within it have then seen more than one type."""
    tensor, tracked = torch.ones(3), torch.ones(3, requires_grad=True)
    values = [1.0, 2, None, "s", np.ones(3), jax.numpy.ones(3), tensor, tracked, torch.nn.Parameter(tensor)]
    values += [{"a": tensor}, [tensor, 1.0], (tracked,), torch.nn.Linear(2, 2), len]
    for _ in range(100):
        for value in values:
            within_gradient(value)
            is_concrete(value)
        cond(True, torch.neg, torch.neg, tensor)  # noqa: FBT003  (its predicate)
        non_differentiable(tensor)
        trainable({"a": tensor})
        value_and_grad(lambda model: model["a"].sum())({"a": tensor})


def bare_torch(x):
    return x.requires_grad and torch.is_grad_enabled()


def bare_jax(x):
    return isinstance(x, jax.core.Tracer)


def bare_false(x):
    return False


@pytest.mark.parametrize(
    ("reference", "theirs", "limits", "reason"),
    [
        ("by hand, with the same answers", by_hand.is_tracked, (1.75, 1.4), FINDS),
        (
            "requires_grad and is_grad_enabled()",
            bare_torch,
            (4.0, 4.5),
            "answers rightly in torch.func, forward mode and dispatch modes",
        ),
    ],
)
@pytest.mark.parametrize("tracked", [False, True])
def test_torch(side_by_side, record, tracked, reference, theirs, limits, reason):  # noqa: PLR0913, PLR0917
    x = torch.ones(3, requires_grad=tracked)
    assert within_gradient(x) is theirs(x) is tracked
    what = f"within_gradient, {'torch tensor that requires grad' if tracked else 'plain torch tensor'}"
    found = side_by_side(call(within_gradient, x), call(theirs, x))
    record(compared(what, reference, found, at_most=limits[tracked], reason=reason))


def test_torch_two(side_by_side, record):
    x, y = torch.ones(3), torch.ones(3)
    assert within_gradient(x, y) is False

    def one_by_one(x, y):
        return within_gradient(x) or within_gradient(y)

    found = side_by_side(call(within_gradient, x, y), call(one_by_one, x, y))
    reason = "groups values by class, which pays from four on"
    record(compared("within_gradient, two plain torch tensors", "two questions", found, at_most=3.0, reason=reason))


def test_jax_array(side_by_side, record):
    x = jax.numpy.ones(3)
    assert within_gradient(x) is False
    assert bare_jax(x) is False
    found = side_by_side(call(within_gradient, x), call(bare_jax, x))
    record(compared("within_gradient, concrete jax.Array", "isinstance(x, Tracer)", found, at_most=1.2))


def concrete_jax(x):
    trace = core.trace_ctx.trace
    while trace is not None and not isinstance(trace, core.EvalTrace):
        if isinstance(trace, DynamicJaxprTrace):
            return False
        trace = getattr(trace, "parent_trace", None)
    return core.is_concrete(x)


@pytest.mark.parametrize(
    ("what", "make", "theirs"),
    [
        ("torch tensor", lambda: torch.ones(3), by_hand.has_elements),
        ("concrete jax.Array", lambda: jax.numpy.ones(3), concrete_jax),
    ],
)
def test_is_concrete(side_by_side, record, what, make, theirs):
    x = make()
    assert is_concrete(x) is theirs(x) is True
    found = side_by_side(call(is_concrete, x), call(theirs, x))
    row = compared(f"is_concrete, {what}", "by hand, with the same answers", found, at_most=1.4, reason=FINDS)
    record(row)


@pytest.mark.parametrize("mode", ["grad", "jvp"])
def test_jax_tracer(side_by_side, record, mode):
    seen = []

    def asked(x):
        assert within_gradient(x) is True
        assert bare_jax(x)
        seen.append(side_by_side(call(within_gradient, x), call(bare_jax, x)))
        return x * x

    if mode == "grad":
        assert jax.grad(asked)(3.0) == 6.0
    else:
        assert jax.jvp(asked, (3.0,), (1.0,))[1] == 6.0
    reason = "asks the trace: a Tracer under a plain jit or vmap is not differentiated"
    what = f"within_gradient, tracer of eager jax.{mode}"
    record(compared(what, "isinstance(x, Tracer)", *seen, at_most=6.0, reason=reason))


def test_numpy_array(side_by_side, record):
    x = np.ones(3)
    assert within_gradient(x) is False
    found = side_by_side(call(within_gradient, x), call(bare_false, x))
    reason = f"{FINDS}; reads the dtype: an object array may hold tracked values"
    record(compared("within_gradient, NumPy array", "an empty call", found, at_most=8.0, reason=reason))


def test_float(side_by_side, record):
    assert within_gradient(1.0) is False
    found = side_by_side(call(within_gradient, 1.0), call(bare_false, 1.0))
    record(compared("within_gradient, float", "an empty call", found, at_most=4.0, reason=FINDS))


def test_autograd_box(side_by_side, record):
    seen = []

    def asked(x):
        assert within_gradient(x) is True
        assert isbox(x)
        seen.append(side_by_side(call(within_gradient, x), call(isbox, x)))
        return x * x

    assert autograd.grad(asked)(3.0) == 6.0
    reason = "looks into the box: does its trace differentiate, is its array floating-point"
    record(compared("within_gradient, autograd box", "isbox(x)", *seen, at_most=4.0, reason=reason))


def single_questions(model):
    for leaf in model.values():
        within_gradient(leaf)


@pytest.mark.parametrize(
    ("count", "what", "leaf", "answer", "limit"),
    [
        (10, "plain torch tensors", lambda: torch.ones(3), False, 1.0),
        (10, "torch tensors that require grad", lambda: torch.ones(3, requires_grad=True), True, 1.0),
        (10, "concrete JAX arrays", lambda: jax.numpy.ones(3), False, 1.05),
        (100, "plain torch tensors", lambda: torch.ones(3), False, 0.5),
    ],
)
def test_dict(side_by_side, record, count, what, leaf, answer, limit):  # noqa: PLR0913, PLR0917
    model = {f"layer{i}": leaf() for i in range(count)}
    assert within_gradient(model) is answer
    found = side_by_side(call(within_gradient, model), call(single_questions, model))
    record(compared(f"within_gradient, dict of {count} {what}", "a question for each", found, at_most=limit))


def test_non_differentiable(side_by_side, record):
    x = torch.ones(3, requires_grad=True)
    assert not non_differentiable(x).requires_grad
    found = side_by_side(call(non_differentiable, x), call(torch.Tensor.detach, x))
    what = "non_differentiable, torch tensor that requires grad"
    record(compared(what, "x.detach()", found, at_most=2.0, reason=FINDS))
