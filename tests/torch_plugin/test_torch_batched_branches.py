"""What a branch of a batched cond must not do: both run."""

import pytest
import torch
from torch.func import grad, vmap
from torch.nn import functional

from adprotocol import cond
from adprotocol.errors import BranchError

ONES = torch.ones(2)
FLAGS = torch.tensor([True, False])


def changed_by_an_operator(y):
    y += 1
    return y * 1.0


def changed_through_a_view(y):
    y.view(1)[0] = 7.0
    return y * 1.0


CHANGES = pytest.mark.parametrize("change", [changed_by_an_operator, changed_through_a_view])


def identity(y):
    return y * 1.0


@CHANGES
@pytest.mark.parametrize("swapped", [False, True])
def test_an_operand_changed_in_place_is_refused(change, swapped):
    def f(x, flag):
        y = x * 1.0
        branches = (identity, change) if swapped else (change, identity)
        return cond(flag, *branches, y) + y

    with pytest.raises(BranchError, match="in place"):
        vmap(f)(ONES, FLAGS)


def test_an_operand_changed_in_place_is_refused_in_a_graph():
    torch._dynamo.reset()

    def f(x, flag):
        y = x * 1.0
        return cond(flag, changed_by_an_operator, identity, y) + y

    with pytest.raises(Exception, match="in place"):
        torch.compile(vmap(f), backend="eager", fullgraph=True)(ONES, FLAGS)


@pytest.mark.parametrize(
    "stage", [lambda f: f, lambda f: torch.compile(f, fullgraph=True, backend="eager")], ids=["eager", "compiled"]
)
def test_a_flag_changes_a_copy_of_the_branch(stage):
    f = lambda x, flag: cond(flag, lambda y: functional.relu(y, inplace=True), identity, x * -1.0) * x
    assert stage(vmap(f))(ONES, FLAGS).tolist() == [0.0, -1.0]


def test_what_is_closed_over_and_changed_is_refused():
    def f(x, flag):
        y = x * 1.0

        def change():
            nonlocal y
            y += 1
            return y * 1.0

        return cond(flag, change, lambda: y * 1.0) + y

    with pytest.raises(BranchError, match="in place"):
        vmap(f)(ONES, FLAGS)


def test_what_the_branch_made_may_be_changed():
    def change(y):
        z = y * 2.0
        z += 1
        z.view(1)[0] = z[None][0] * 3
        z.add_(torch.zeros(()).fill_(1.0))
        return z

    f = lambda x, flag: cond(flag, change, identity, x) + x
    assert vmap(f)(ONES, FLAGS).tolist() == [11.0, 2.0]
    assert vmap(grad(f))(ONES, FLAGS).tolist() == [7.0, 2.0]
    assert torch.func.grad(lambda x: vmap(f)(x, FLAGS).sum())(ONES).tolist() == [7.0, 2.0]


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_a_sparse_matrix_made_in_a_branch_is_its_own(layout):
    def scaled(x):
        return x * (torch.eye(2).to_sparse(layout=layout) @ torch.ones(2, 2)).sum()

    found = vmap(lambda x: cond(x > 0, scaled, lambda x: 0.0 * x, x))(torch.tensor([-1.0, 2.0]))
    assert found.tolist() == [0.0, 8.0]


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
def test_no_nan_arises_in_the_branch_not_taken_for_anomaly_mode_to_report():
    root = lambda x: cond(x > 0, torch.sqrt, lambda x: 0.0 * x, x)
    points, slopes = torch.tensor([0.0, 4.0, -1.0, 16.0]), torch.tensor([0.0, 0.25, 0.0, 0.125])
    scale = torch.tensor(4.0, requires_grad=True)
    scaled = lambda x: cond(x > 0, lambda x: torch.sqrt(scale * x), lambda x: x, x)
    with torch.autograd.set_detect_anomaly(True):
        assert torch.vmap(torch.func.grad(root))(points).tolist() == slopes.tolist()
        for rows, want in (
            (points, slopes),
            (-points, torch.tensor([0.0, 0.0, 0.5, 0.0])),
            (-(points**2), 0.0 * points),
        ):
            tracked = rows.clone().requires_grad_()
            torch.vmap(root)(tracked).sum().backward()
            assert tracked.grad.tolist() == want.tolist()
        both = torch.stack([points, points.flip(0)])
        twice = torch.vmap(torch.vmap(torch.func.grad(root)))(both)
        assert twice.tolist() == torch.stack([slopes, slopes.flip(0)]).tolist()
        # A predicate of the outer rows alone, and a branch that closes over what is differentiated.
        outer = torch.vmap(
            lambda p: torch.vmap(torch.func.grad(lambda x: cond(p, torch.log, lambda x: x, x)))(points + 2.0)
        )
        assert outer(torch.tensor([True, False]))[0].tolist() == (1.0 / (points + 2.0)).tolist()
        torch.vmap(scaled)(points).sum().backward()
        assert scale.grad.item() == 0.5 * (1.0 + 2.0)
