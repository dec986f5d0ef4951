"""within_gradient on PyTorch, in eager mode."""

import itertools
from functools import partial

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad_and_value, jvp, vmap
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


def test_module_is_not_made_constant():
    with pytest.raises(adprotocol.ADProtocolError, match="Linear"):
        adprotocol.non_differentiable(torch.nn.Linear(2, 1))


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


# Every nesting of transformations to depth 3, against an oracle: each
# derivative taken anywhere is written down, once of f and once of f with its
# argument detached. They differ exactly if a derivative went through there.


def _of(journal, value):
    while torch._C._functorch.maybe_get_level(value) > 0:
        value = torch._C._functorch.get_unwrapped(value)
    journal.append(value.detach().clone())


def _noted(take):
    def transform(f, journal):
        def g(x):
            result = take(f, x)
            _of(journal, result)
            return result

        return g

    return transform


def _same_graph(f, x):
    y = f(x)
    if not y.requires_grad:
        return y
    (found,) = torch.autograd.grad(y, x, torch.ones_like(y), allow_unused=True, create_graph=True)
    return y if found is None else found + y


def _grad_and_value(f):
    # Both, so that an outer derivative of the value is not lost where a switch
    # inside makes the gradient zero.
    return lambda x: sum(grad_and_value(lambda z: f(z).sum())(x))


def _dual(f, x):
    with forward_ad.dual_level():
        y, tangent = forward_ad.unpack_dual(f(forward_ad.make_dual(x, torch.ones_like(x))))
        return y if tangent is None else tangent + y


def _within(context):
    def transform(f, _journal):
        def g(x):
            with context():
                return f(x)

        return g

    return transform


TRANSFORMS = {
    "grad": _noted(lambda f, x: _grad_and_value(f)(x)),
    "grad of another": _noted(lambda f, x: _grad_and_value(lambda y: y * f(x))(x)),
    "jvp": _noted(lambda f, x: jvp(f, (x,), (torch.ones_like(x),))[1]),
    "jvp of another": _noted(lambda f, x: jvp(lambda y: y * f(x), (x,), (torch.ones_like(x),))[1]),
    "vmap": lambda f, _: lambda x: vmap(f)(torch.stack([x, x])).sum(0),
    "vmap of another": lambda f, _: lambda x: vmap(lambda y: y * f(x))(torch.stack([x, x])).sum(0),
    "backward": _noted(lambda f, x: _same_graph(f, x.detach().requires_grad_())),
    "dual": _noted(_dual),
    "no_grad": _within(torch.no_grad),
    "enable_grad": _within(torch.enable_grad),
}


def _run(names, f):
    journal = []
    for name in reversed(names):
        f = TRANSFORMS[name](f, journal)
    f(torch.tensor([0.7]))
    return journal


@pytest.mark.filterwarnings("ignore")  # deprecations inside forward mode's decompositions
@pytest.mark.parametrize("outermost", TRANSFORMS)
def test_any_nesting_to_depth_three_agrees_with_the_oracle(outermost):
    compared = 0
    function = lambda x: torch.exp(1.3 * x)
    asked = lambda x, answers: answers.append(within_gradient(x)) or function(x)
    inner = [(), *((name,) for name in TRANSFORMS), *itertools.product(TRANSFORMS, repeat=2)]
    for names in ((outermost, *rest) for rest in inner):
        try:
            journal = _run(names, function)
        except RuntimeError:
            continue  # PyTorch itself refuses this nesting (dual levels do not nest)
        constant = _run(names, lambda x: function(x.detach()))
        answers = []
        _run(names, partial(asked, answers=answers))
        derivative = any(not torch.equal(a, b) for a, b in zip(journal, constant, strict=True))
        assert answers[0] is derivative, names
        compared += 1
    assert compared > 50


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
