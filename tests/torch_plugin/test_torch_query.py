"""within_gradient on PyTorch, in eager mode."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import adprotocol
from adprotocol import cond, within_gradient

X = torch.tensor(2.0)


def tracked():
    return X.clone().requires_grad_()


@pytest.mark.parametrize("ask", [within_gradient, lambda x: within_gradient([x, x + 1.0])])
def test_false_in_the_first_pass_of_a_reentrant_checkpoint_is_an_error_where_gradients_are_on_again(ask):
    def run(x):
        y = 2.0 * x  # tracked in the second pass alone
        with torch.enable_grad():
            return cond(ask(y), lambda: 3.0 * y, lambda: 5.0 * y)

    with pytest.raises(adprotocol.ADProtocolError, match="use_reentrant=False"):
        checkpoint(run, tracked(), use_reentrant=True)
    x = tracked()
    checkpoint(run, x, use_reentrant=False).backward()
    assert x.grad == 6.0


FIRST_CALL = """
import torch
from torch.utils.checkpoint import checkpoint
import adprotocol
def run(x):
    with torch.enable_grad():
        return adprotocol.within_gradient(2.0 * x.detach()) * x
try:
    checkpoint(run, torch.ones(2, requires_grad=True), use_reentrant=True)
except adprotocol.ADProtocolError as error:
    print(error)
"""


def test_the_first_call_of_all_may_be_in_the_first_pass_of_a_reentrant_checkpoint(fresh):
    status, output = fresh(FIRST_CALL, "torch")
    assert (status, "use_reentrant=False" in output) == (0, True), output


def test_true_in_the_first_pass_of_a_reentrant_checkpoint_is_true_in_the_second(layer):
    x = tracked()
    checkpoint(lambda x: adprotocol.grad(layer)(x.detach()) * x, x, use_reentrant=True).backward()
    assert x.grad == 3.0


def test_fake_and_subclassed_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        assert within_gradient(torch.ones(2)) is False
        assert within_gradient(torch.ones(2, requires_grad=True)) is True

    class Mine(torch.Tensor):
        pass

    assert within_gradient(torch.ones(2).as_subclass(Mine).requires_grad_()) is True
    assert within_gradient(torch.nn.Parameter(torch.ones(2))) is True


def test_explain():
    x = tracked()
    assert "requires_grad is set" in adprotocol.explain(x)
    with torch.no_grad():
        assert "grad mode is off" in adprotocol.explain(x)
    with torch.inference_mode():
        assert "inference mode" in adprotocol.explain(x)
    with forward_ad.dual_level():
        assert "dual level 0" in adprotocol.explain(forward_ad.make_dual(X, torch.ones(())))
    assert "int64" in adprotocol.explain(torch.ones(1, dtype=torch.int64))


def test_a_wrapper_that_outlives_its_transformation_is_false():
    kept = []
    torch.func.grad(lambda x: (kept.append(x), kept.append(x * x), x * x)[2])(torch.tensor(2.0))
    assert [within_gradient(x) for x in kept] == [(x * 1.0).requires_grad for x in kept] == [False, False]


def test_a_wrapper_of_a_tensor_that_requires_grad_is_true_after_its_transformation():
    kept = []
    torch.func.grad(lambda x: (kept.append(x), x * x)[1])(torch.tensor(2.0, requires_grad=True))
    assert within_gradient(kept[0]) is (kept[0] * 1.0).requires_grad is True


class Asking(TorchDispatchMode):
    """Notes the answers below autograd."""

    def __init__(self):
        super().__init__()
        self.answers = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        x = args[0]
        self.answers.append((within_gradient(x), within_gradient(x, x)))
        return func(*args, **(kwargs or {}))


def test_below_autograd_nothing_is_recorded():
    x = tracked()
    with Asking() as mode:
        y = x * 3.0
    assert mode.answers == [(False, False)]
    assert within_gradient(y) is True
    with forward_ad.dual_level(), Asking() as mode:
        forward_ad.make_dual(X, X) * 3.0
    assert set(mode.answers) == {(False, False)}
    with Asking() as mode:
        torch.func.grad(lambda x: x * 3.0)(X)
    assert set(mode.answers) == {(False, False)}


def test_in_an_operator_nothing_is_recorded():
    answers = []

    @torch.library.custom_op("adprotocol_tests::asking", mutates_args=())
    def asking(x: torch.Tensor) -> torch.Tensor:
        answers.append((within_gradient(x), (x * 2.0).requires_grad))
        return x * 2.0

    asking.register_autograd(lambda _ctx, cotangent: 2.0 * cotangent)
    x = tracked()
    asking(x).backward()
    assert answers == [(False, False)]
    assert x.grad == 2.0
