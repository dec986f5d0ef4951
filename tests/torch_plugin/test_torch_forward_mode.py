"""Forward mode on PyTorch: parts under ``torch.no_grad``, second derivatives over it, and what has none."""

import contextlib

import closeness
import pytest
import torch
import torch_release
from torch.autograd.function import once_differentiable
from torch.overrides import _get_current_function_mode_stack
from torch.utils.checkpoint import checkpoint

from adprotocol import custom_derivative, grad, jacobian, jvp, vjp, within_gradient
from adprotocol.errors import UndecidableError

X = torch.tensor(3.0, dtype=torch.float64)
ONE = torch.ones((), dtype=torch.float64)


def close(got, want):
    return closeness.close(torch.as_tensor(got).detach(), torch.as_tensor(want, dtype=torch.float64))


def slope(fun, x=X):
    return jvp(fun, (x,), (torch.ones_like(x),))[1]


def square(x):
    return x * x


def by_block(x):
    with torch.no_grad():
        constant = square(x)
    return x * constant


def by_decorator(x):
    return x * torch.no_grad()(square)(x)


def by_function(x):
    torch.set_grad_enabled(False)
    constant = square(x)
    torch.set_grad_enabled(True)
    return x * constant


def by_setting(x):
    with torch.set_grad_enabled(mode=False):
        constant = square(x)
    with torch.set_grad_enabled(mode=True):
        return x * constant


def by_inference(x):
    with torch.no_grad(), torch.inference_mode():
        constant = square(x)
    return x * constant.clone()


def by_generator(x):
    @torch.no_grad()
    def squares():
        yield square(x)

    return sum(constant * x for constant in squares())


def behind_an_error(x):
    with contextlib.suppress(ValueError), torch.no_grad():
        constant = square(x)
        raise ValueError
    return x * constant


def on_a_device(x):
    with torch.device("cpu"):
        return by_block(x)


def behind_a_checkpoint(x):
    return checkpoint(by_block, x, use_reentrant=False)


def in_a_batch(x):
    return torch.vmap(by_block)(x[None])[0]


PARTS = (by_block, by_decorator, by_function, by_setting, by_inference, by_generator, behind_an_error, on_a_device)


@pytest.mark.parametrize(
    "fun", [*PARTS, pytest.param(behind_a_checkpoint, marks=torch_release.needs_levels_around_checkpoint), in_a_batch]
)
@pytest.mark.parametrize("around", [contextlib.nullcontext, torch.no_grad, torch.inference_mode])
def test_a_part_under_no_grad_is_constant_in_both_modes(fun, around):
    with around():
        assert close(slope(fun), 9.0)
        assert close(jacobian(fun, mode="forward")(X), 9.0)
        assert close(vjp(fun, X)[1](1.0)[0], 9.0)
    assert close(torch.vmap(lambda x: slope(fun, x))(torch.stack([X, X + 1])), [9.0, 16.0])


def test_gradients_that_are_on_inside_of_a_part_without():
    def fun(x):
        with torch.no_grad():
            first = square(x)
            with torch.enable_grad():
                second = square(x)
                with torch.no_grad():
                    third = square(x)
                fourth = square(x)
            fifth = square(x)
        return x * first + x * second + x * third + x * fourth + x * fifth

    assert close(slope(fun), 3 * 9.0 + 2 * 27.0)
    assert close(grad(fun)(X), 3 * 9.0 + 2 * 27.0)
    with torch.no_grad():
        assert close(slope(fun), 3 * 9.0 + 2 * 27.0)


def cubed(x):
    return x**3


def constant_square(x):
    return square(x) * by_block(x) / x  # x^2 c with c = x^2, of which the slope is 2 x^3 = 54


INNER = {
    "grad": grad,
    "torch grad": torch.func.grad,
    "jvp": lambda fun: lambda x: slope(fun, x),
    "torch jvp": lambda fun: lambda x: torch.func.jvp(fun, (x,), (torch.ones_like(x),))[1],
    "pull": lambda fun: lambda x: vjp(fun, x)[1](1.0)[0],
    "jacobian": lambda fun: jacobian(fun, mode="forward"),
    "torch jacfwd": torch.func.jacfwd,
    "torch jacrev": torch.func.jacrev,
}


@pytest.mark.parametrize("name", INNER)
def test_a_derivative_inside_of_a_part_is_constant_and_what_follows_moves(name):
    def fun(x, inner):
        return square(x) * torch.no_grad()(INNER[name](inner))(x)

    assert close(slope(lambda x: fun(x, cubed)), 6.0 * 27.0)
    if name in {"torch jvp", "torch jacfwd"}:
        return  # in the function of these a part under no_grad moves
    assert close(slope(lambda x: fun(x, constant_square)), 6.0 * 54.0)


@pytest.mark.parametrize("first", [grad, lambda fun: lambda x: slope(fun, x), torch.func.grad])
def test_second_derivatives_of_a_part_are_zero_in_all_modes(first):
    def fun(x):
        return square(x) * torch.no_grad()(square)(x)  # its slope is 2 x c, and that has the slope 2 c

    inner = first(fun)
    assert close(slope(inner), 18.0)
    assert close(grad(inner)(X), 18.0)
    assert close(jacobian(inner, mode="forward")(X), 18.0)
    assert close(torch.func.jvp(lambda x: slope(fun, x), (X,), (ONE,))[1], 18.0)
    tracked = X.clone().requires_grad_()
    assert close(torch.autograd.grad(slope(fun, tracked), tracked)[0], 18.0)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, _output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, cotangent):
        return 2 * ctx.saved_tensors[0] * cotangent

    jvp = backward


class OnceSquare(Square):
    @staticmethod
    @once_differentiable
    def backward(ctx, cotangent):
        return 2 * ctx.saved_tensors[0] * cotangent


@custom_derivative
def ruled(x):
    return x * x


@ruled.defjvp
def ruled_jvp(tangents, _y, x):
    return 2 * x * tangents[0]


@pytest.mark.parametrize("function", [Square.apply, ruled])
def test_a_function_with_a_rule_in_a_part(function):
    def fun(x):
        return square(x) * torch.no_grad()(function)(x)

    assert close(slope(fun), 54.0)
    assert close(slope(grad(fun)), 18.0)
    assert close(grad(lambda x: slope(fun, x))(X), 18.0)
    assert close(slope(lambda x: slope(fun, x)), 18.0)


def test_a_backward_function_marked_once_differentiable_is_no_such_part():
    assert close(slope(lambda x: grad(OnceSquare.apply)(x) * x), 12.0)


def test_a_backward_pass_inside_leaves_the_switch():
    class Switching(torch.autograd.Function):
        @staticmethod
        def forward(ctx, w):
            return w * w

        @staticmethod
        def backward(ctx, cotangent):  # gradients are off, not by a switch that shows
            with torch.no_grad(), torch.enable_grad():
                return cotangent * 1.0

    def fun(x):
        w = torch.ones((), requires_grad=True)
        torch.autograd.grad(Switching.apply(w), w)
        return x * by_block(x)

    assert close(slope(fun), 54.0)


def test_what_is_asked_in_a_part():
    def fun(x):
        with torch.no_grad():
            inside = within_gradient(x)
        return x, (within_gradient(x), inside, within_gradient({"x": x, "n": 2}))

    assert jvp(fun, (X,), (ONE,), has_aux=True)[2] == (True, False, True)
    with torch.no_grad():
        assert jvp(fun, (X,), (ONE,), has_aux=True)[2] == (True, False, True)


def test_whatever_raises_the_switches_are_as_before():
    def fun(x):
        torch.set_grad_enabled(False)
        raise ValueError(x)

    for around in (contextlib.nullcontext, torch.no_grad):
        with around():
            before = torch.is_grad_enabled()
            with pytest.raises(ValueError, match="3"):
                slope(fun)
            assert torch.is_grad_enabled() is before
            assert torch._C._is_fwd_grad_enabled()
    assert not _get_current_function_mode_stack()
    assert close(torch.func.jvp(by_block, (X,), (ONE,))[1], 27.0)


def test_results_under_no_grad_have_no_history():
    weight = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)

    def fun(x):
        return weight * by_block(x), 3 * weight

    with torch.no_grad():
        value, tangent, other = jvp(fun, (X,), (ONE,), has_aux=True)
    assert close(tangent, 18.0)
    assert [one.requires_grad for one in (value, tangent, other)] == [False] * 3
    assert close(torch.autograd.grad(jvp(fun, (X,), (ONE,), has_aux=True)[1], weight)[0], 9.0)


def test_a_compiled_graph_refuses_a_part():
    torch._dynamo.reset()
    refused = torch.compile(lambda x: slope(behind_a_checkpoint, x), fullgraph=True, backend="eager")
    with pytest.raises((UndecidableError, RuntimeError), match=r"pushes tangents forward .* Use detach\(\) there"):
        refused(X)

    def around(x):
        with torch.no_grad():
            constant = square(x)
            return constant, slope(cubed, x)

    constant, tangent = torch.compile(around, fullgraph=True, backend="eager")(X)
    assert close(constant, 9.0)
    assert close(tangent, 27.0)
    assert close(torch.compile(lambda x: slope(by_block, x), backend="eager")(X), 9.0)


def test_what_has_no_forward_mode_is_transposed_or_refused():
    class BackwardOnly(Square):
        generate_vmap_rule = True
        jvp = torch.autograd.Function.jvp

    for fun in (
        BackwardOnly.apply,
        lambda x: torch.vmap(lambda y: BackwardOnly.apply(x) * y)(torch.ones(1).double())[0],
    ):
        assert close(slope(fun), 6.0)
    assert close(slope(grad(lambda x: checkpoint(cubed, x, use_reentrant=False))), 18.0)
    norm = torch.nn.BatchNorm1d(2).double()
    x, along = torch.tensor([[1.0, 2.0], [3.0, 5.0], [2.0, 0.0]], dtype=torch.float64), torch.eye(3, 2).double()

    def fun(x):
        return (norm(x) ** 3).sum()

    with torch.no_grad():
        assert close(jvp(fun, (x,), (along,))[1], (grad(fun)(x) * along).sum())
    with pytest.raises(UndecidableError, match="mode='reverse'"):
        jvp(fun, (x,), (along,))


def test_a_backward_that_vmap_cannot_take_goes_row_by_row():
    def clipped(x):
        y = torch.sin(x)
        y.register_hook(lambda g: g if g.norm() < 10 else g / g.norm())
        return y * 1.0

    x = torch.tensor([1.0, 2.0], dtype=torch.float64)

    def rows(x, chunk_size=None):  # a checkpoint around runs the inner gradient again, in a pull
        return jacobian(lambda y: grad(lambda z: (z**3).sum())(y) * x, chunk_size=chunk_size)(x)

    assert close(jacobian(clipped, chunk_size=1)(x), torch.diag(torch.cos(x)))
    assert close(checkpoint(rows, x, 1, use_reentrant=False), torch.diag(6 * x**2))
    for fun in (jacobian(clipped), lambda x: checkpoint(rows, x, use_reentrant=False)):
        with pytest.raises(UndecidableError, match="chunk_size=1"):
            fun(x)


# The derivative of a jvp of each is wrong in PyTorch; the matrix has a zero, for cumprod.
MATRIX = torch.tensor([[2.0, 0.5, 0.0], [0.3, 1.5, -0.4], [-0.2, 0.1, 1.8]]).double()
ALONG = torch.eye(3).double() - 0.3
WRONG = {
    "layer_norm": lambda x: (torch.nn.functional.layer_norm(x, (3,)) ** 3).sum(),
    "batch_norm": lambda x: (torch.nn.functional.batch_norm(x, None, None, training=True) ** 3).sum(),
    "instance_norm": lambda x: (torch.nn.functional.instance_norm(x[None]) ** 3).sum(),
    **{name: getattr(torch, name) for name in ("det", "logdet")},
    "slogdet": lambda x: torch.linalg.slogdet(x)[1],
    "solve": lambda x: torch.linalg.solve(x, ALONG[0]).sum(),
    "cumprod": lambda x: torch.cumprod(x, -1).sum(),
    "householder_product": lambda x: torch.linalg.householder_product(x, x[0]).sum(),
}


def test_a_batched_jacobian_of_a_function_that_changes_what_it_made():
    # In PyTorch a batched tensor changes a batched one only: the basis of tangents has to be one.
    rows = torch.vmap(jacobian(lambda x: x.clone().mul_(x), mode="forward"))(MATRIX)
    assert close(rows, torch.diag_embed(2 * MATRIX))


@pytest.mark.filterwarnings("ignore:the value of the differentiated function does not depend")  # of those that are zero
@pytest.mark.parametrize("name", WRONG)
def test_what_is_still_wrong_over_forward_mode_in_pytorch(name):
    # Where this fails a release has mended it, and what is declared changes.
    fun = WRONG[name]
    right = grad(lambda x: (grad(fun)(x) * ALONG).sum())(MATRIX)
    assert close(jvp(grad(fun), (MATRIX,), (ALONG,))[1], right)
    is_mended = name in torch_release.MENDED_OVER_FORWARD_MODE
    assert close(grad(lambda x: jvp(fun, (x,), (ALONG,))[1])(MATRIX), right) is is_mended


def test_what_is_still_wrong_in_forward_mode_itself():
    assert close(slope(lambda x: slope(Square.apply, x)), 0.0)
    assert close(grad(lambda x: slope(Square.apply, x))(X), 2.0)
    lower, eye = torch.linalg.cholesky(MATRIX @ MATRIX.T), torch.eye(3).double()
    for fun, x, is_wrong in (
        (torch.cholesky_inverse, lower, True),
        (lambda x: torch.nn.functional.embedding(torch.tensor([0, 1]), x, padding_idx=0), MATRIX, True),
        (lambda x: x.scatter_reduce(0, torch.zeros_like(eye, dtype=torch.long), x, "prod"), lower + 1, True),
        (lambda x: torch.cholesky_solve(eye, x), lower, False),
    ):
        moved = jvp(fun, (x,), (ALONG.tril(),))[1].sum()
        assert close(moved, (grad(lambda x, fun=fun: fun(x).sum())(x) * ALONG.tril()).sum()) is not is_wrong
