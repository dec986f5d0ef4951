"""Products with a Jacobian on PyTorch: modules, checkpoints, levels of torch.func, compiled functions, threads."""

import concurrent.futures
import threading
import time

import closeness
import pytest
import torch
import torch_release
from torch.utils.checkpoint import checkpoint

from adprotocol import grad, jacobian, jvp, vjp, within_gradient
from adprotocol.errors import ConcurrencyError, UndecidableError

X = torch.tensor([1.0, 2.0])
ONES = torch.ones(2)


def close(got, want):
    return closeness.close(*(torch.as_tensor(one).detach() for one in (got, want)))


def cube(x):
    return x**3


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1))


def call(module, x):
    return module(x)


def test_a_tangent_of_a_module_moves_what_it_names_and_the_rest_is_constant():
    module, seen = network(), []

    def noting(module, x):
        seen.append({name: within_gradient(p) for name, p in module.named_parameters()})
        return module(x)

    tangents = dict.fromkeys(dict(module.named_parameters())) | {"2.bias": torch.tensor([2.0])}
    value, tangent = jvp(noting, (module, X), (tangents, None))
    assert close(tangent, [2.0])
    assert [name for name, moves in seen[0].items() if moves] == ["2.bias"]
    assert not tangent.requires_grad
    assert not value.requires_grad


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_jacobian_and_hessian_of_a_module(mode):
    module = torch.nn.Linear(2, 3)
    whole = jacobian(call, mode=mode)(module, X)
    assert close(whole["bias"], torch.eye(3))
    assert whole["weight"].shape == (3, 3, 2)
    one = torch.nn.Linear(2, 1)
    hessian = jacobian(grad(lambda m: (m(X) ** 2).sum()), mode=mode)(one)
    assert close(hessian["weight"]["weight"][0, :, 0], 2 * torch.outer(X, X))
    assert close(hessian["bias"]["weight"], 2 * X.reshape(1, 1, 2))


def test_a_later_pull_through_a_checkpoint_sees_the_module_as_the_call_did():
    module, x = network(), torch.ones(3, 2)

    def checkpointed(module, x):
        return checkpoint(module, x, use_reentrant=False)

    value, pull = vjp(checkpointed, module, x, where="0.*")
    _, plain = vjp(call, module, x, where="0.*")
    assert all(isinstance(p, torch.nn.Parameter) and p.requires_grad for p in module.parameters())
    found, want = [], plain(torch.ones_like(value))[0]
    thread = threading.Thread(target=lambda: found.append(pull(torch.ones_like(value))[0]))
    thread.start()
    thread.join()
    found.append(pull(torch.ones_like(value))[0])
    for gradient in found:
        assert close(gradient["0.weight"], want["0.weight"])
        assert gradient["2.weight"] is None


def test_a_later_pull_has_the_parameters_of_the_call_and_is_a_use_of_the_module():
    running, seen = threading.Event(), threading.Event()

    class Recomputed(torch.autograd.Function):  # as in the checkpoints of libraries
        @staticmethod
        def forward(ctx, x, _weight):
            ctx.save_for_backward(x)
            return block(x)

        @staticmethod
        def backward(ctx, cotangent):
            running.set()
            assert seen.wait(60)
            with torch.enable_grad():
                inputs = [ctx.saved_tensors[0].detach().requires_grad_(), block.weight]
                return torch.autograd.grad(block(inputs[0]), inputs, cotangent)

    block = torch.nn.Linear(2, 3)
    block.weight.requires_grad_(requires_grad=False)
    value, pull = vjp(lambda block: Recomputed.apply(torch.ones(4, 2), block.weight), block, where="weight")
    found = []
    thread = threading.Thread(target=lambda: found.append(pull(torch.ones_like(value))[0]))
    thread.start()
    try:
        assert running.wait(60)
        with pytest.raises(ConcurrencyError):
            within_gradient(block)
    finally:
        seen.set()
        thread.join()
    assert close(found[0]["weight"], torch.full((3, 2), 4.0))
    assert not block.weight.requires_grad


def test_an_inner_gradient_in_a_later_pull_is_differentiated_again():
    # The backward function differentiates by the parameter that the call differentiates: an outer derivative of the
    # pull has to see through it, as while the call was under way.
    parameter = torch.nn.Parameter(torch.tensor(3.0))

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, w):
            ctx.save_for_backward(w)
            return w.detach() ** 2

        @staticmethod
        def backward(ctx, cotangent):
            (w,) = ctx.saved_tensors
            return cotangent * grad(lambda w: w**2)(w)

    def outer(w):
        _, pull = vjp(Square.apply, w)
        return pull(1.0)[0]

    assert close(grad(outer)(parameter), 2.0)


def test_a_compiled_function_is_pulled_once():
    torch._dynamo.reset()
    _, pull = vjp(torch.compile(lambda x: x.sin() * x, backend="aot_eager"), X)
    assert close(pull(ONES)[0], X.cos() * X + X.sin())
    with pytest.raises(UndecidableError, match=r"torch\.compile"):
        pull(ONES)


@pytest.mark.parametrize(
    ("product", "want"),
    [
        (lambda x: jvp(cube, (x,), (torch.ones_like(x),))[1], 3 * X**2),
        (jacobian(cube), torch.diag(3 * X**2)),
        (jacobian(cube, chunk_size=1), torch.diag(3 * X**2)),
        (jacobian(cube, chunk_size=2, mode="forward"), torch.diag(3 * X**2)),
    ],
    ids=["jvp", "jacobian", "rows", "chunks"],
)
def test_in_a_compiled_graph(product, want):
    torch._dynamo.reset()
    assert close(torch.compile(product, backend="eager", fullgraph=True)(X), want)


class Rounded(torch.autograd.Function):  # straight through
    @staticmethod
    def forward(_ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(_ctx, cotangent):
        return 3.0 * cotangent


@torch_release.needs_functions_in_compiled_gradients
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # of Dynamo itself
@pytest.mark.parametrize(
    "product",
    [
        grad(lambda x: Rounded.apply(x).sum()),
        lambda x: grad(lambda m: Rounded.apply(m["x"]).sum())({"x": x, "n": 1})["x"],
        lambda x: vjp(lambda x: 1.0 * Rounded.apply(x), x)[1](torch.ones(2))[0],
        lambda x: jacobian(lambda x: 1.0 * Rounded.apply(x), chunk_size=1)(x).sum(0),
    ],
)
def test_a_function_with_a_rule_keeps_it_in_a_compiled_gradient(product):
    torch._dynamo.reset()
    assert close(torch.compile(product, backend="eager", fullgraph=True)(X), [3.0, 3.0])
    assert close(product(X), [3.0, 3.0])


def test_an_operation_without_forward_mode_is_transposed():
    torch.manual_seed(0)
    image, grid = torch.rand(1, 1, 4, 4), torch.rand(1, 2, 2, 2) * 2 - 1

    def sampled(x):
        return torch.nn.functional.grid_sample(x**2, grid, align_corners=False)

    want = torch.nn.functional.grid_sample(2 * image, grid, align_corners=False)
    try:
        tangent = jvp(sampled, (image,), (torch.ones_like(image),))[1]
    except RuntimeError as error:  # a release that has neither forward mode nor a second derivative of it
        assert "grid_sampler_2d_backward is not implemented" in str(error.__cause__)  # noqa: PT017
    else:
        assert close(tangent, want)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, cotangent):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * cotangent


class CubeOfOldForm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    backward = Cube.backward


@pytest.mark.parametrize("function", [Cube.apply, CubeOfOldForm.apply])
def test_a_function_with_a_backward_alone_is_transposed(function):
    module = torch.nn.Linear(1, 1)
    with torch.no_grad():
        module.weight.fill_(2.0)
        module.bias.fill_(1.0)
    assert close(jvp(function, (X,), (ONES,))[1], [3.0, 12.0])
    assert close(jvp(grad(lambda x: function(x).sum()), (X,), (X,))[1], 6 * X**2)
    assert close(jacobian(function, mode="forward")(X[1:]), [[12.0]])
    # The function runs again, on a module that is as before.
    weight, tangents = module.weight, {"weight": torch.ones(1, 1), "bias": None}
    assert close(jvp(lambda m: function(m(X[:1])), (module,), (tangents,))[1], [27.0])
    assert module.weight is weight


def test_sparse_gradients_are_pulled_and_have_no_jacobian():
    embedding, places = torch.nn.Embedding(5, 2, sparse=True), torch.tensor([1, 2])
    _, pull = vjp(lambda e: e(places) * 1.0, embedding)
    assert close(pull(torch.ones(2, 2))[0]["weight"].to_dense().sum(1), [0.0, 2.0, 2.0, 0.0, 0.0])
    for fun in (lambda e: e(places), lambda e: e(places).sum().reshape(1)):
        with pytest.raises(UndecidableError, match="sparse"):
            jacobian(fun)(embedding)


def test_a_jacobian_lies_in_memory_of_its_own():
    whole = jacobian(lambda x: torch.stack([x.sum(), torch.ones(())]))(X)
    whole += 1.0
    assert close(whole, [[2.0, 2.0], [1.0, 1.0]])


class Slow(torch.autograd.Function):
    """Let two backward passes run at one time, if nothing keeps one waiting."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, cotangent):
        time.sleep(0.05)
        return cotangent


def at_once(*functions):
    """Call functions in threads of their own; return what they returned, or raised."""
    with concurrent.futures.ThreadPoolExecutor(len(functions)) as pool:
        futures = [pool.submit(function) for function in functions]
    return [future.exception() or future.result() for future in futures]


@pytest.mark.parametrize("where", ["0.*", "2.*", None])
@pytest.mark.parametrize("calls", [1, 2])
def test_pulls_of_a_module_at_one_time(where, calls):
    module, x = network(), torch.ones(3, 2)
    module[0].requires_grad_(requires_grad=False)
    held, flags = list(module.parameters()), [p.requires_grad for p in module.parameters()]

    def run(module):
        return checkpoint(lambda x: Slow.apply(module(x)), x, use_reentrant=False).sum()

    pulls = [vjp(run, module, where=where)[1] for _ in range(calls)]
    expected = grad(lambda module: module(x).sum(), where=where)(module)
    for (found,) in at_once(*[lambda pull=pull: pull(1.0) for pull in pulls * 2]):
        torch.testing.assert_close(found, expected)
    assert [p.requires_grad for p in module.parameters()] == flags
    assert all(one is other for one, other in zip(module.parameters(), held, strict=True))


def test_a_pull_that_is_refused_leaves_no_flag_behind():
    module = network()
    module[0].requires_grad_(requires_grad=False)
    running, seen = threading.Event(), threading.Event()
    _, pull = vjp(lambda module: module(X).sum(), module, where="0.*")

    def loss(module):
        running.set()
        assert seen.wait(60)
        return module(X).sum()

    thread = threading.Thread(target=lambda: grad(loss, where="2.weight")(module))
    thread.start()
    try:
        assert running.wait(60)
        with pytest.raises(ConcurrencyError):
            pull(1.0)
    finally:
        seen.set()
        thread.join()
    assert [p.requires_grad for p in module.parameters()] == [False, False, True, True]
    module.requires_grad_(requires_grad=True)
    assert None not in grad(lambda module: module(X).sum())(module).values()
    assert close(pull(1.0)[0]["0.weight"], grad(lambda m: m(X).sum(), where="0.*")(module)["0.weight"])


def test_gradient_hooks_run_once_in_each_of_two_pulls_at_one_time():
    p = torch.nn.Parameter(torch.tensor(2.0))
    p.register_hook(lambda gradient: 10.0 * gradient)
    found = []

    def outer(p):
        _, pull = vjp(lambda p: Slow.apply(p**2), p)
        found.extend(at_once(*[lambda: pull(1.0)[0]] * 2))
        return p

    grad(outer)(p)
    assert [one.item() for one in found] == [40.0, 40.0]


@pytest.mark.parametrize("make", [lambda m: m, lambda m: lambda x: checkpoint(m, x, use_reentrant=False)])
def test_a_pull_after_a_flag_is_off_is_that_of_the_call(make):
    module = network()
    expected = grad(lambda module: module(X).sum())(module)
    _, pull = vjp(lambda module: make(module)(X).sum(), module)
    module.requires_grad_(requires_grad=False)
    torch.testing.assert_close(pull(1.0)[0], expected)
    torch.testing.assert_close(pull(1.0)[0], expected)
    assert not any(p.requires_grad for p in module.parameters())
    module.requires_grad_(requires_grad=True)
    torch.testing.assert_close(grad(lambda module: module(X).sum())(module), expected)


@pytest.mark.parametrize("through", ["value", "gradient"])
def test_a_pull_whose_graph_a_backward_has_freed_says_what_would_have_kept_it(through):
    x, cotangent = X.clone().requires_grad_(), ONES.clone().requires_grad_()
    value, pull = vjp(torch.tanh, x)
    result = value if through == "value" else pull(cotangent)[0]
    result.sum().backward(retain_graph=True)
    assert close(pull(ONES)[0], 1 - torch.tanh(X) ** 2)
    result.sum().backward()
    with pytest.raises(UndecidableError, match="retain_graph=True"):
        pull(ONES)
    # Another call has a graph of its own.
    assert close(vjp(torch.tanh, x)[1](ONES)[0], 1 - torch.tanh(X) ** 2)


def test_one_pull_in_many_steps_that_each_end_with_backward():
    weight = torch.randn(3, 2, generator=torch.manual_seed(0), dtype=torch.float64)
    x, rows = torch.tensor([0.4, -0.2]).double(), (1 - torch.tanh(weight @ torch.tensor([0.4, -0.2]).double()) ** 2)
    value, pull = vjp(lambda x: torch.tanh(weight @ x), x)
    matrix, cotangent = rows[:, None] * weight, torch.ones(3, dtype=torch.float64, requires_grad=True)
    for step in range(3):
        cotangent.grad = None
        (pull(cotangent * (step + 1))[0] ** 3).sum().backward()
        assert close(cotangent.grad, (step + 1) ** 3 * 3 * matrix @ (matrix.T @ torch.ones(3).double()) ** 2)
    assert close(pull(torch.ones_like(value))[0], matrix.sum(0))
    _, pull = vjp(torch.nn.Linear(3, 2).double().requires_grad_(requires_grad=False), cotangent.detach())
    for _ in range(2):
        pull(cotangent[:2])[0].sum().backward()


def test_a_pull_by_a_tracked_cotangent_depends_on_what_its_backward_pass_alone_computes_with():
    def scaled(x):
        y = x**2
        y.register_hook(lambda gradient: gradient * scale)
        return y * 1.0

    scale, cotangent = torch.tensor(3.0, requires_grad=True), ONES.clone().requires_grad_()
    pulled = vjp(scaled, X)[1](cotangent)[0]
    by_scale, by_cotangent = torch.autograd.grad(pulled.sum(), [scale, cotangent])
    assert close(by_scale, (2 * X).sum())
    assert close(by_cotangent, 6 * X)


def test_derivatives_of_every_order_of_a_pull_by_its_cotangent():
    class Squared(torch.autograd.Function):  # whose backward pass is no linear one, as one that clips
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**2

        @staticmethod
        def backward(ctx, cotangent):
            return ctx.saved_tensors[0] * cotangent**3

    _, pull = vjp(lambda x: (Squared.apply(x), x.detach()), X)
    cotangent = torch.tensor([2.0, 3.0], requires_grad=True)
    pulled = pull((cotangent, None))[0]
    (first,) = torch.autograd.grad(pulled.sum(), cotangent, create_graph=True)
    (second,) = torch.autograd.grad((first * first).sum(), cotangent, create_graph=True)
    (third,) = torch.autograd.grad(second.sum(), cotangent, create_graph=True)
    assert close(pulled, X * cotangent**3)
    assert close(first, 3 * X * cotangent**2)
    assert close(second, 36 * X**2 * cotangent**3)
    assert close(third, 108 * X**2 * cotangent**2)
    assert close(jacobian(lambda c: pull((c, None))[0])(cotangent), torch.diag(3 * X * cotangent**2))
    total = grad(lambda c: pull((c, None))[0].sum())
    for hessian in (jacobian(total), jacobian(total, mode="forward"), torch.func.jacrev(total)):
        assert close(hessian(cotangent.detach()), torch.diag(6 * X * cotangent))
