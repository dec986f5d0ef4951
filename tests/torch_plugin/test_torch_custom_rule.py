"""`custom_derivative` under PyTorch: reverse and forward mode, torch.func, vmap, checkpoints, autocast."""

import contextlib
import functools
import weakref

import numpy as np
import pytest
import torch
from torch import func
from torch.autograd import forward_ad

import adprotocol
from adprotocol import custom_derivative
from adprotocol.errors import RuleError

KINDS = ("vjp", "jvp", "both")
DOUBLE = torch.float64


def with_rules(fun, vjp=None, jvp=None, kind="both", **options):
    """Return a function with the rules of a kind."""
    made = custom_derivative(fun, **options)
    if vjp is not None and kind != "jvp":
        made.defvjp(vjp)
    if jvp is not None and kind != "vjp":
        made.defjvp(jvp)
    return made


def trigonometry(kind):
    """Return sin, exp and a product with rules that are written with these functions themselves."""
    sin = with_rules(torch.sin, lambda ct, _y, x: (ct * cos(x),), lambda t, _y, x: t[0] * cos(x), kind)
    cos = with_rules(torch.cos, lambda ct, _y, x: (-ct * sin(x),), lambda t, _y, x: -t[0] * sin(x), kind)
    exp = with_rules(torch.exp, lambda ct, y, _x: (ct * y,), lambda t, y, _x: t[0] * y, kind)
    times = with_rules(
        lambda x, y: torch.sin(x) * y,
        lambda ct, _z, x, y: (ct * torch.cos(x) * y, lambda: ct * sin(x)),
        lambda t, _z, x, y: t[0] * torch.cos(x) * y + t[1] * sin(x),
        kind,
    )
    return sin, exp, times


def cube(kind="both"):
    """Return x ** 3 with rules that tell themselves apart from each other and from the derivative."""
    return with_rules(lambda x: x**3, lambda ct, y, x: (30 * ct * y / x,), lambda t, y, x: 20 * t[0] * y / x, kind)


def leaf(*values):
    return torch.tensor(values, dtype=DOUBLE, requires_grad=True)


def backward_of(fun, x, **options):
    return torch.autograd.grad(fun(x).sum(), x, **options)[0]


def dual_of(fun, x, tangent):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(fun(forward_ad.make_dual(x, tangent))).tangent


def total(fun):
    return lambda x: fun(x).sum()


TRANSFORMS = {
    "grad": lambda fun: func.grad(total(fun)),
    "jacfwd": func.jacfwd,
    "jacrev": func.jacrev,
    "jvp": lambda fun: lambda x: func.jvp(fun, (x,), (0.3 * x,))[1],
    "vmap": lambda fun: lambda x: torch.vmap(lambda scale: fun(x * scale))(torch.tensor([1.0, 2.0], dtype=DOUBLE)),
}
X = torch.tensor([0.3, 1.2, -0.7], dtype=DOUBLE)
Y = torch.tensor([2.0, 3.0, 5.0], dtype=DOUBLE)
# Pairs are scenarios of the suite, as are three gradients.
DEEPER = [("vmap", "jvp", "jvp"), ("jacrev", "vmap", "jacfwd"), ("jvp", "grad", "jvp"), ("grad", "jvp", "vmap")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("names", DEEPER, ids="-".join)
def test_every_nesting_equals_the_functions_of_torch(names, kind):
    sin, exp, times = trigonometry(kind)

    def ours(x):
        return (times(x, Y) * exp(0.5 * x)).sum() + sin(x).prod()

    def plain(x):
        return (torch.sin(x) * Y * torch.exp(0.5 * x)).sum() + torch.sin(x).prod()

    for name in names:
        ours, plain = TRANSFORMS[name](ours), TRANSFORMS[name](plain)
    try:
        expected = plain(X)
    except RuntimeError:
        pytest.skip("PyTorch itself refuses this nesting")
    torch.testing.assert_close(ours(X), expected)


@pytest.mark.filterwarnings("ignore:Please use .torch.vmap:FutureWarning")  # of gradcheck itself
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [DOUBLE, torch.complex128])
def test_gradcheck_and_gradgradcheck_in_every_mode(kind, dtype):
    f = with_rules(
        lambda x, y: {"b": x * x * y, "a": torch.exp(x)},
        lambda ct, r, x, y: (2 * ct["b"] * x * y + ct["a"] * r["a"], ct["b"] * x * x),
        lambda t, r, x, y: {"b": 2 * t[0] * x * y + t[1] * x * x, "a": t[0] * r["a"]},
        kind,
    )
    x, y = (torch.linspace(0.3, 1.4, 2).to(dtype).requires_grad_() for _ in range(2))
    if dtype.is_complex:
        y = (y.detach() * (1 - 2j)).requires_grad_()

    def listed(x, y):
        result = f(x, y)
        return result["a"], result["b"]

    assert torch.autograd.gradcheck(
        listed, (x, y), check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True
    )
    assert torch.autograd.gradgradcheck(
        listed, (x, y), check_fwd_over_rev=True, check_rev_over_rev=True, check_batched_grad=True
    )


def test_vmap_runs_the_function_and_the_rule_once_for_all_rows():
    runs = []

    def vjp(ct, _y, x):
        runs.append("vjp")
        return (3 * ct * x,)

    def double(x):
        runs.append("fun")
        return 2 * x

    f = with_rules(double, vjp)
    func.grad(lambda x: torch.vmap(f)(x).sum())(torch.ones(5))
    assert runs == ["fun", "vjp"]


class Held:
    """Something of a solver."""


def test_arguments_that_a_rule_does_not_take_are_not_kept():
    packed = []
    f = with_rules(lambda x, y: (x * y, y * 3), lambda ct, r: (7 * ct * r[1], 9 * ct), has_residuals=True)
    x, y = leaf(2.0, 5.0), leaf(1.0, 1.0)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        z = f(x, y)
    assert not any(t.data_ptr() in (x.data_ptr(), y.data_ptr()) for t in packed)
    assert [g.tolist() for g in torch.autograd.grad(z.sum(), (x, y))] == [[21.0, 21.0], [9.0, 9.0]]
    assert func.grad(lambda x: f(x, y.detach()).sum())(x.detach()).tolist() == [21.0, 21.0]
    shared = func.grad(lambda y: torch.vmap(f, (0, None))(x.detach(), y).sum())(torch.tensor(1.0, dtype=DOUBLE))
    assert shared == 18.0


def test_residuals_that_cannot_be_batched_are_refused():
    f = with_rules(lambda x: (x, Held()), lambda ct, _r: (ct,), has_residuals=True)
    with pytest.raises(RuleError, match=r"Held as residuals under torch\.vmap"):
        torch.vmap(f)(torch.ones(2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", [lambda x: x, lambda x: x[None], lambda x: (x * 1.0,) * 2])
def test_a_result_in_the_memory_of_an_argument_or_of_another_is_a_copy(part, kind):
    first, last = (lambda y, i=i: y[i].flatten() if isinstance(y, tuple) else y.flatten() for i in (0, -1))
    pull = lambda ct, _y, _x: (first(ct) + last(ct) if isinstance(ct, tuple) else last(ct),)
    f = with_rules(part, pull, lambda t, _y, _x: part(t[0]), kind)

    def changed(x):
        x = x * 1.0
        y = f(x)
        last(y).mul_(3.0)
        return (x + (first(y) if isinstance(y, tuple) else 0.0) + last(y)).sum()

    factor = 5.0 if isinstance(part(X), tuple) else 4.0
    assert changed(X) == torch.vmap(changed)(X[None])[0] == factor * X.sum()
    assert func.jvp(changed, (X,), (Y,))[1] == dual_of(changed, X, Y) == factor * Y.sum()
    assert torch.vmap(lambda x, t: func.jvp(changed, (x,), (t,))[1])(X[None], Y[None])[0] == factor * Y.sum()
    for derivative in (lambda: backward_of(changed, leaf(1.0, 2.0)), lambda: func.grad(changed)(X)):
        assert (derivative() == factor).all()


READ = {
    "nothing": (lambda ct, _y, _x, _w: (3.0 * ct, None), ()),
    "nothing, by a star": (lambda ct, *_: (3.0 * ct, None), ()),
    "the result": (lambda ct, y, _x, _w: (3.0 * ct + 0.0 * y, None), ("y",)),
    "one argument": (lambda ct, _y, x, _w: (3.0 * ct + 0.0 * x, None), ("x",)),
    "the other": (lambda ct, _y, _x, w: (3.0 * ct + 0.0 * w, None), ("w",)),
    "what a star takes": (lambda ct, _y, *args: (3.0 * ct + 0.0 * args[0], None), ("x", "w")),
    "in a comprehension": (lambda ct, _y, x, _w: (3.0 * ct + sum(0.0 * x for _ in range(2)), None), ("x",)),
    "by locals": (lambda ct, _y, x, w: (3.0 * ct + 0.0 * locals()["x"], None), ("y", "x", "w")),
    "any": (functools.partial(lambda ct, _y, _x, _w: (3.0 * ct, None)), ("y", "x", "w")),
}


@pytest.mark.parametrize(("vjp", "read"), READ.values(), ids=READ)
def test_what_no_rule_reads_may_be_changed_in_place_and_is_not_kept(vjp, read):
    f = with_rules(lambda x, w: 3.0 * x * w, vjp)
    for name in ("y", "x", "w"):
        leaf_x, ones = leaf(1.0, 2.0), torch.ones(2, dtype=DOUBLE)
        values = {"x": leaf_x * 1.0, "w": ones}
        values["y"] = f(values["x"], ones)
        total = values["y"].sum()
        refused = pytest.raises(RuntimeError, match="modified by an inplace operation")
        with refused if name in read else contextlib.nullcontext():
            values[name].mul_(2.0)
            total.backward()
            assert (leaf_x.grad == 3.0).all()
    kept = weakref.ref(x := leaf(1.0, 2.0) * 1.0)
    y = f(x, torch.ones(2, dtype=DOUBLE))
    del x
    assert (kept() is None) == ("x" not in read)
    torch.testing.assert_close(torch.vmap(func.grad(lambda x: f(x, x).sum()))(X[None])[0], 3.0 * torch.ones_like(X))
    del y


def test_a_rule_cannot_change_what_it_is_given():
    changing = {
        "a cotangent": with_rules(lambda x: 3.0 * x, lambda ct, _y, _x: (ct.mul_(3.0),)),
        "an argument": with_rules(lambda x: x**2, lambda ct, _y, x: (ct * x.mul_(2.0),)),
        "a result": with_rules(lambda x: x.exp(), lambda ct, y, _x: (y.mul_(ct),)),
        "a tangent": with_rules(lambda x: 3.0 * x, None, lambda t, _y, _x: t[0].mul_(3.0)),
    }
    for what, f in changing.items():

        def total(x, f=f):
            y = x * 1.0
            return ((f(y) + y) * Y).sum()

        if what == "a tangent":
            derivatives = (lambda: func.jvp(total, (X,), (X,)), lambda: dual_of(total, X, X))
        else:
            batched = lambda: torch.vmap(func.grad(total))(X[None])
            derivatives = (lambda: backward_of(total, leaf(*X)), lambda: func.grad(total)(X), batched)
        for derivative in derivatives:
            with pytest.raises(RuleError, match="changes in place what it was given; change a copy"):
                derivative()
    assert Y.tolist() == [2.0, 3.0, 5.0]


def test_autocast_is_that_of_the_function_in_the_rule():
    f = with_rules(torch.mm, lambda ct, _y, x, w: (ct @ w.T, x.T @ ct), lambda t, _y, x, w: t[0] @ w + x @ t[1])
    x, w = torch.ones(2, 2, requires_grad=True), torch.full((2, 2), 0.5, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = f(x, w)
        func.grad(lambda w: f(x.detach(), w).sum())(w.detach())
        func.jvp(f, (x.detach(), w.detach()), (x.detach(), w.detach()))
        # The cast weight that the function computed with has no history, and is not what others get.
        assert (x.detach() @ w).requires_grad
        torch.autograd.grad(y.sum(), w, retain_graph=True)
        assert (x.detach() @ w).requires_grad
    assert y.dtype == torch.bfloat16
    gradients = torch.autograd.grad(y.sum(), (x, w))
    assert [g.dtype for g in gradients] == [torch.float32] * 2
    plain = f(x, w)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.autograd.grad(plain.sum(), w)[0].dtype == torch.float32


def test_inference_mode_hooks_and_changes_in_place():
    f = cube()
    with torch.inference_mode():
        assert f(torch.ones(1)) == 1.0
    x = leaf(2.0)
    y = f(x)
    y.register_hook(lambda ct: 10 * ct)
    assert torch.autograd.grad(y, x)[0] == 1200.0
    y = f(x)
    with pytest.raises(RuntimeError, match="inplace operation"):
        torch.autograd.grad(y.mul_(2.0), x)
    y = with_rules(lambda x: (x * 2, None), lambda ct, _r: (3 * ct,), has_residuals=True)(x)
    assert y.grad_fn is not None


def test_an_argument_that_is_changed_in_place_where_it_is_differentiated():
    f = with_rules(lambda x, w: x.mul_(2) * w, lambda ct, _y, x, w: (2 * ct * w, ct * x))
    x, w = leaf(1.0), torch.ones(1, dtype=DOUBLE)
    with pytest.raises(RuleError, match="changes an argument in place"):
        f(x * 1, w)
    assert f(torch.ones(1), torch.ones(1)) == 2.0
    # A buffer is its function's to change.
    assert f(torch.ones(1), x).requires_grad
    g = cube()
    y = x * 1
    loss = g(y)
    y.mul_(2.0)
    with pytest.raises(RuntimeError, match="inplace operation"):
        torch.autograd.grad(loss, x)


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True")
def test_a_rule_that_leaves_torch_is_differentiated_once():
    f = with_rules(lambda x: (x * x).sum(), lambda ct, _y, x: (np.array([2 * float(one) for one in x]) * float(ct),))
    x = leaf(2.0, 3.0)
    refused = pytest.raises(RuleError, match="returned an array of NumPy for tensors that are differentiated")
    assert backward_of(f, x).tolist() == [4.0, 6.0]
    for grad in (func.grad, adprotocol.grad):
        assert grad(f)(x.detach()).tolist() == [4.0, 6.0]
        with refused:
            grad(lambda x, grad=grad: grad(f)(x).sum())(x.detach())
    with refused:
        backward_of(f, x, create_graph=True)
    # A constant that NumPy made has no derivative to lose.
    constant = with_rules(lambda x: x.sum(), lambda ct, _y, _x: (np.full(2, 7.0),))
    assert func.grad(constant)(x.detach()).tolist() == [7.0, 7.0]


def test_a_rule_by_parameters_is_no_derivative_of_a_compiled_function():
    compiled = torch.compile(torch.sin, backend="aot_eager")
    compiled(torch.ones(1, requires_grad=True)).sum().backward()
    net = torch.nn.Linear(1, 1, bias=False).double()
    torch.nn.init.constant_(net.weight, 2.0)

    @custom_derivative
    def cube(parameters):
        return parameters["weight"] ** 3

    @cube.defvjp
    def cube_vjp(cotangent, _y, parameters):
        return (adprotocol.grad(lambda p: (p["weight"] ** 3 * cotangent).sum())(parameters),)

    adprotocol.grad(cube_sum := lambda p: cube(p).sum())(dict(net.named_parameters()))
    nested = cube_sum({"weight": cube(dict(net.named_parameters()))})
    (gradient,) = torch.autograd.grad(nested, net.weight, create_graph=True)
    assert gradient.item() == 9 * 2.0**8


def test_a_rule_that_differentiates_inside_of_forward_mode():
    # What it has saved is of a level of torch.func that has ended.
    times = with_rules(torch.mv, lambda ct, _y, w, x: adprotocol.vjp(torch.mv, w, x)[1](ct))
    w, x = torch.tensor([[1.0, 2.0], [0.0, 1.0]]), torch.tensor([1.0, 3.0])
    pulled = lambda x: adprotocol.vjp(lambda x: times(w, x) @ x, x)[1](1.0)[0]
    for slope in (adprotocol.grad(lambda x: times(w, x) @ x), pulled):
        torch.testing.assert_close(adprotocol.jvp(slope, (x,), (x,))[1], (w + w.T) @ x)
