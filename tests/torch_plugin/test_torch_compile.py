"""The hooks under torch.compile(fullgraph=True), torch.export and make_fx."""

import numpy as np
import pytest
import torch
import torch_release
from torch.autograd import forward_ad
from torch.func import grad
from torch_cost import Counting, compiled

import adprotocol
from adprotocol import cond, non_differentiable, prevent_gradient, within_gradient

X = torch.tensor(2.0)
ONE = torch.ones(())


pytestmark = pytest.mark.usefixtures("compiler")


def test_one_recompilation_when_the_mode_changes_and_none_after(layer):
    backend = Counting()
    f = compiled(layer, backend)
    x = X.clone().requires_grad_()
    assert f(x) == 6.0
    with torch.no_grad():
        assert f(x) == 10.0
    assert len(backend.graphs) == 2
    for _ in range(3):
        assert f(x) == 6.0
        with torch.no_grad():
            assert f(x) == 10.0
    assert len(backend.graphs) == 2


def test_graph_is_that_of_the_function_written_by_hand(layer):
    for x, by_hand in ((X, lambda x: x * 5.0), (X.clone().requires_grad_(), lambda x: x * 3.0)):
        ours, theirs = Counting(), Counting()
        compiled(layer, ours)(x)
        compiled(by_hand, theirs)(x)
        assert ours.graphs == theirs.graphs
    ours, theirs = Counting(), Counting()
    compiled(grad(layer), ours)(X)
    compiled(grad(lambda x: x * 3.0), theirs)(X)
    assert ours.graphs == theirs.graphs


def test_the_first_call_of_all_may_be_compiled(fresh):
    program = """
import torch
from adprotocol import cond, within_gradient
f = lambda x, cond=cond, asked=within_gradient: cond(asked({"x": [x]}), lambda x: x * 3, lambda x: x * 5, x)
compiled = torch.compile(torch.func.grad(f), fullgraph=True, backend="eager")
assert compiled(torch.tensor(2.0)) == 3.0
assert torch.compile(f, fullgraph=True, backend="eager")(torch.tensor(2.0)) == 10.0
"""
    status, errors = fresh(program, "torch")
    assert status == 0, errors


def test_dual_level_around_a_compiled_function_is_an_error_and_inside_it_is_right(layer):
    before = compiled(layer)
    assert before(X) == 10.0
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(X, ONE)
        for f in (before, compiled(layer)):
            with pytest.raises(Exception, match=torch_release.REFUSES_DUALS):
                f(dual)
        # Without fullgraph Dynamo breaks the graph there, and eager mode is right.
        partly = torch.compile(layer, backend="aot_eager")
        assert forward_ad.unpack_dual(partly(dual)).tangent == 3.0

    def inside(x):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(layer(forward_ad.make_dual(x, ONE))).tangent

    assert compiled(inside)(X) == 3.0


def staged(x):
    return cond(x > 3.0, lambda x: x * x * x, lambda x: x * x, x)


def tangent_of(f, x):
    with forward_ad.dual_level():
        value, tangent = forward_ad.unpack_dual(f(forward_ad.make_dual(x, ONE)))
        return value, tangent


def test_staged_cond_and_dual_levels():
    inside, around = compiled(lambda x: tangent_of(staged, x), "eager"), compiled(staged, "eager")
    for x, wanted in ((X, (4.0, 4.0)), (2 * X, (64.0, 48.0))):
        assert inside(x) == wanted
        torch_release.is_right_or_refused(lambda x=x: tangent_of(around, x), wanted)
        assert around(x) == wanted[0]


def test_operands_that_share_memory():
    def f(v):
        return cond(v[0] > 0.0, lambda a, b, c: a * b, lambda a, b, c: c["w"] - b, v[0], v[1], {"w": v[1:][0]})

    run = compiled(f)
    for v, value, slope in (([2.0, 3.0], 6.0, [3.0, 2.0]), ([-2.0, 3.0], 0.0, [0.0, 0.0])):
        x = torch.tensor(v, requires_grad=True)
        result = run(x)
        assert result == value
        assert torch.autograd.grad(result, x)[0].tolist() == slope


BESIDE_TENSORS = [
    np.ones(3, np.float32), np.arange(3), np.float32(2.0), torch.ones(3).shape, np.dtype("float32"), torch.Generator(),
]  # fmt: skip
SETS = [{"w"}, frozenset({"w", 1})]


@pytest.mark.parametrize("others", [BESIDE_TENSORS, SETS], ids=["values", "sets"])
def test_what_may_be_beside_a_tensor(others):
    def all_of(x, others):
        model = {"x": x, "others": others}
        constant, same = non_differentiable(model), prevent_gradient(model, "none is differentiated")
        chosen = adprotocol.partition(model, where="x")[0]
        gradient = adprotocol.grad(lambda model: (model["x"] ** 2).sum(), where="x")(model)
        return within_gradient(model, *others), constant["x"] + same["x"] + chosen["x"] + gradient["x"]

    if others is SETS:
        torch_release.skip_if_sets_end_graphs()
    answer, total = compiled(all_of, "eager")(torch.ones(3), others)
    assert answer is False
    assert total.tolist() == [5.0, 5.0, 5.0]
    x = torch.ones(3, requires_grad=True)
    assert compiled(lambda x, others: within_gradient([others, {"x": x}]), "eager")(x, others) is True


def test_shapes_of_symbols():
    def f(x):
        model = {"x": x, "shape": x.shape}
        return within_gradient(model), adprotocol.grad(lambda m: (m["x"] ** 2).sum() * m["shape"][0])(model)["x"]

    dynamic = torch.compile(f, fullgraph=True, backend="aot_eager", dynamic=True)
    for size in (2, 3, 4):
        answer, gradient = dynamic(torch.ones(size))
        assert answer is False
        assert gradient.tolist() == [2.0 * size] * size


def safe_sqrt(x):
    return cond(x > 0, torch.sqrt, lambda x: 0.0 * x, x)


class Layer(torch.nn.Module):
    def forward(self, x):
        return cond(within_gradient(x), lambda x: x * 3, lambda x: x * 5, x) + safe_sqrt(x.sum())


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.filterwarnings("ignore")  # export's own deprecations
def test_export(strict):
    with torch.no_grad():
        program = torch.export.export(Layer(), (torch.ones(4),), strict=strict)
    assert torch.allclose(program.module()(torch.ones(4)), torch.tensor(7.0))
    assert torch.allclose(program.module()(-torch.ones(4)), torch.tensor(-5.0))


def test_two_frameworks_and_unclaimed_arrays_are_errors_there_too():
    class Strange:
        __array__ = None

    with pytest.raises(Exception, match="no plugin claims"):
        compiled(lambda x: (x, within_gradient(Strange())))(X)
    with pytest.raises(adprotocol.ADProtocolError):
        within_gradient(Strange())


def test_an_array_of_a_tensor_is_a_constant_for_torch_func():
    def f(x):
        return torch.func.grad(lambda y: (y * (2.0 if within_gradient([y.detach().numpy(), 1.0]) else 3.0)).sum())(x)

    assert compiled(f, "eager")(torch.ones(2)).tolist() == [3.0, 3.0]


class Subclass(torch.Tensor):
    pass


def test_tensors_of_a_subclass_are_asked_one_by_one():
    tracked, plain = torch.ones(2).as_subclass(Subclass).requires_grad_(), torch.ones(2).as_subclass(Subclass)
    ask = compiled(lambda x, y: (within_gradient(x, y), within_gradient({"y": y, "n": 1})), "eager")
    assert ask(plain, tracked) == (True, True)
    assert ask(tracked, plain) == (True, False)
    assert ask(plain, plain) == (False, False)
