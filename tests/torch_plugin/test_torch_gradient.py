"""value_and_grad of tensors in ordinary structures: inside and around PyTorch's own transformations."""

import dataclasses

import numpy as np
import pytest
import torch
import torch_release
from torch.autograd import forward_ad
from torch.func import grad, jvp, vmap
from torch_cost import Counting, compiled

import adprotocol
from adprotocol import value_and_grad
from adprotocol.errors import OutputError, UndecidableError

X = torch.tensor([1.0, 2.0, -1.0])
V = torch.tensor([1.0, 0.5, 2.0])
TWO = torch.tensor(2.0)

# The gradient of the sum of fourth powers, and the next derivative.
G1, G2 = 4 * X**3, 12 * X**2


def fourth(x):
    return (x**4).sum()


def same(found, wanted):
    torch.testing.assert_close(found, wanted)


def untracked(*tensors):
    return not any(tensor.requires_grad or tensor.is_inference() for tensor in tensors)


def read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "array",
    [
        np.array([1.0, 2.0, -1.0]),
        read_only(np.array([1.0, 2.0, -1.0])),
        np.array([-1.0, 2.0, 1.0])[::-1],
        np.array([[1.0, 2.0, -1.0]] * 2, dtype=np.float32).T[:, 0],
        np.broadcast_to(np.float64(2.0), (3,)),
    ],
    ids=["plain", "read-only", "reversed", "strided", "broadcast"],
)
def test_numpy_arrays_with_a_backend(array):
    before = array.copy()
    gradient = adprotocol.grad(fourth, backend="torch")(array)
    assert gradient.numpy().dtype == array.dtype
    np.testing.assert_allclose(gradient.numpy(), 4 * array**3)
    np.testing.assert_array_equal(array, before)
    beside = adprotocol.grad(lambda d: (d["x"] * d["a"]).sum())({"a": array, "x": X.to(gradient.dtype)})
    np.testing.assert_allclose(beside["x"].numpy(), array)
    np.testing.assert_allclose(beside["a"].numpy(), X.numpy())


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_auxiliary_output_keeps_the_leaves_of_others(mode):
    # A parameter that the call does not differentiate comes back itself, and trains as before.
    other = torch.tensor(5.0, dtype=torch.float64, requires_grad=True)
    with mode():
        (_, aux), _ = value_and_grad(lambda x: (fourth(x), {"other": other, "product": other * x.sum()}), has_aux=True)(
            X
        )
    assert aux["other"] is other
    assert other.requires_grad
    assert aux["product"].requires_grad is (mode is torch.enable_grad)


# A derivative that is lost is not zero.


def inside_grad(f):
    return grad(lambda x: f(x).sum())


def inside_another_grad(f):
    return lambda x: grad(lambda y: (y * f(x)).sum())(X)


def inside_jvp(f):
    return lambda x: jvp(f, (x,), (V,))[1]


def inside_dual_level(f):
    def g(x):
        with forward_ad.dual_level():
            return f(x)

    return g


def inside_itself(f):
    return adprotocol.grad(lambda x: f(x).sum())


def inside_no_grad(f):
    def g(x):
        with torch.no_grad():
            return f(x)

    return g


AROUND = [lambda f: f, inside_grad, inside_another_grad, inside_jvp, inside_dual_level, inside_itself, inside_no_grad]


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize(
    "number", [lambda y: y.item(), float, lambda y: y.detach().numpy()[()], lambda y: float(y.detach()) * 2]
)
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True to a scalar")
def test_a_number_taken_out_of_a_tensor_is_refused(around, number):
    # Some of the ways out are closed by PyTorch itself, inside of its transformations.
    with pytest.raises((OutputError, RuntimeError), match=r"item\(\)|numpy\(\)|storage"):
        around(adprotocol.grad(lambda x: number(fourth(x))))(X)


def rebuilt(x):
    return torch.as_tensor([one * 1.0 for one in x]).sum()


@pytest.mark.parametrize(
    ("cut", "around"),
    [
        (lambda x: torch.tensor(fourth(x).item()), None),
        (lambda x: torch.tensor((x.detach().numpy() ** 2).sum()), inside_no_grad),
        (lambda x: torch.from_numpy(np.asarray(x.detach())).sum(), None),
        (rebuilt, inside_no_grad),
        (lambda x: fourth(x).detach() * 2.0, inside_dual_level),
        (lambda x: fourth(x).detach() * 2.0, torch.vmap),
    ],
)
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True to a scalar")
def test_a_loss_made_anew_of_numbers_is_warned_of(cut, around):
    gradient = adprotocol.grad(cut)
    x = torch.stack([X, X]) if around is torch.vmap else X
    with pytest.warns(UserWarning, match=r"does not depend on .* cut off the derivative"):
        same((around(gradient) if around else gradient)(x), 0.0 * x)
    # No warning where the value depends on it, or is a number that does not change.
    adprotocol.grad(lambda d: fourth(d["x"]))({"x": X, "unused": X})
    adprotocol.grad(lambda x: 1.5)(X)


def test_tensors_made_in_inference_mode():
    with torch.inference_mode():
        x = X.clone()
        inside = adprotocol.grad(fourth)(x)
        twice = adprotocol.grad(lambda x: adprotocol.grad(fourth)(x).sum())(x)
    for gradient in (inside, adprotocol.grad(fourth)(x)):
        same(gradient, G1)
        assert untracked(gradient)
    same(twice, G2)
    # As a constant they are refused by PyTorch where backward would need them.
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved"):
        adprotocol.grad(lambda d: (d["a"] * d["x"]).sum(), where="a")({"a": X, "x": x})
    same(
        adprotocol.grad(lambda d: (d["a"] * 2 + d["x"]).sum(), where="a")({"a": X, "x": x})["a"], torch.full((3,), 2.0)
    )


# Inside and around PyTorch's transformations, at every order.


def ours(x):
    return adprotocol.grad(fourth)(x)


def sum_of(f):
    return lambda x: f(x).sum()


# torch.compile.


def product(model):
    a, b = (model["a"], model["b"]) if isinstance(model, dict) else (model.a, model.b)
    return (a**2 * b).sum()


@dataclasses.dataclass
class Known:
    a: object
    b: object
    n: int = 3


MODEL = {"a": X, "b": V, "n": 3}
COMPILED = {
    "dict": (value_and_grad(product), (MODEL,)),
    "dataclass": (value_and_grad(product), (Known(X, V),)),
    "globs": (value_and_grad(product, where=["a*", "*x"]), (MODEL | {"x": X},)),
    "mask": (value_and_grad(product, where={"a": True, "b": False, "n": False}), (MODEL,)),
    "predicate": (value_and_grad(product, where=lambda path, leaf: path == "b"), (MODEL,)),
    "argnums": (value_and_grad(lambda a, s, b: product({"a": a["x"], "b": b}) * s, argnums=(0, 2)), ({"x": X}, TWO, V)),
    "auxiliary": (
        value_and_grad(lambda d: (product(d), {"t": d["a"] * 2, "n": d["n"], "s": "s"}), has_aux=True),
        (MODEL,),
    ),
    "float": (value_and_grad(lambda d: product(d) * d["s"]), ({**MODEL, "s": 2.0},)),
    "twice": (adprotocol.grad(lambda d: adprotocol.grad(product)(d)["a"].sum()), (MODEL,)),
    "twice, selected": (
        adprotocol.grad(lambda d: adprotocol.grad(product, where="a")(d)["a"].sum(), where="b"),
        (MODEL,),
    ),
    "vmap around": (vmap(ours), (X,)),
    "vmap inside of grad": (grad(sum_of(vmap(ours))), (X,)),
}


def close(found, wanted):
    """Structures alike, with None at the same places."""
    assert type(found) is type(wanted)
    if isinstance(wanted, torch.Tensor):
        same(found.detach(), wanted.detach())
    elif isinstance(wanted, (tuple, list)):
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            close(a, b)
    elif isinstance(wanted, dict):
        assert list(found) == list(wanted)
        for name in wanted:
            close(found[name], wanted[name])
    elif dataclasses.is_dataclass(wanted):
        close(vars(found), vars(wanted))
    else:
        assert found == wanted


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name):
    f, args = COMPILED[name]
    wanted = f(*args)
    backend = Counting()
    close(compiled(f, backend)(*args), wanted)
    assert len(backend.graphs) == 1
    if name in ("auxiliary", "twice"):
        torch._dynamo.reset()
        close(compiled(f)(*args), wanted)


# Dynamo reads the attribute of what is compiled with, a non-leaf here.
NON_LEAF = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")

# What PyTorch saves for the backward pass: the argument, and a result in between.
SAVES = {"argument": lambda x: x * x * x, "result": torch.exp}


@NON_LEAF
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("saves", SAVES)
@pytest.mark.parametrize("inner", ["ours", "native", "native of a view", "ours, twice"])
def test_a_second_derivative_of_a_compiled_function_is_refused_and_never_zero(saves, inner):
    f = compiled(SAVES[saves])

    def native(x):
        return torch.autograd.grad(f(x), x, create_graph=True)[0]

    slope = {
        "ours": adprotocol.grad(f),
        "native": native,
        "native of a view": lambda x: native(x.view_as(x)),
        "ours, twice": adprotocol.grad(adprotocol.grad(f)),
    }[inner]
    if inner.startswith("native"):
        torch_release.skip_if_lost(slope, TWO)
    with pytest.raises(adprotocol.errors.UndecidableError, match=r"Compile the gradient instead"):
        adprotocol.grad(slope)(TWO)


@NON_LEAF
@pytest.mark.usefixtures("compiler")
def test_what_comes_with_the_gradient_of_a_compiled_function_has_no_native_derivative():
    x = TWO.clone().requires_grad_()
    for result in (
        *value_and_grad(compiled(SAVES["argument"]))(x),
        adprotocol.grad(compiled(SAVES["argument"]))(3.0 * x),
    ):
        with pytest.raises(UndecidableError, match=r"torch\.compile"):
            result.backward()


def trained_critic():
    torch.manual_seed(0)
    critic = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    return critic, compiled(critic)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("loss", [torch.sum, lambda y: y.square().mean()], ids=["sum", "mean of squares"])
def test_the_saliency_of_a_compiled_module_whose_parameters_require_grad_is_right(loss):
    critic, fast = trained_critic()
    x = torch.randn(5, 4)
    tracked = x.clone().requires_grad_()
    (want,) = torch.autograd.grad(loss(critic(tracked)), tracked)
    value, gradient = value_and_grad(lambda x: loss(fast(x)))(x)
    same(value.detach(), loss(critic(x)).detach())
    torch.testing.assert_close(gradient.detach(), want)


@pytest.mark.usefixtures("compiler")
@NON_LEAF
def test_a_generator_learns_through_a_compiled_critic_that_was_trained_by_hand():
    critic, fast = trained_critic()
    fast(torch.randn(5, 4)).sum().backward()
    generator, noise = torch.nn.Linear(3, 4), torch.randn(5, 3)
    want = torch.autograd.grad(critic(generator(noise)).sum(), list(generator.parameters()))
    got = adprotocol.grad(lambda generator: fast(generator(noise)).sum())(generator)
    for one, other in zip(got.values(), want, strict=True):
        torch.testing.assert_close(one.detach(), other)


@pytest.mark.usefixtures("compiler")
def test_a_gradient_penalty_of_a_compiled_module_is_refused():
    critic, fast = trained_critic()
    x = torch.randn(5, 4)
    penalty = lambda _critic: adprotocol.grad(lambda x: fast(x).sum())(x).square().sum()
    for differentiate in (adprotocol.grad(penalty), lambda critic: penalty(critic).backward()):
        with pytest.raises(UndecidableError, match="non_differentiable"):
            differentiate(critic)


@pytest.mark.usefixtures("compiler")
def test_the_compiled_gradient_has_a_second_derivative():
    same(adprotocol.grad(lambda x: 3 * x * compiled(SAVES["argument"])(x))(TWO), 12 * TWO**3)
    same(compiled(adprotocol.grad(adprotocol.grad(SAVES["argument"])))(TWO), 6 * TWO)


@pytest.mark.usefixtures("compiler")
def test_compiled_follows_the_attributes_of_the_instance():
    @dataclasses.dataclass
    class Grown:
        a: object

    def trained(model, x):
        return adprotocol.trainable(model), 2.0 * x  # a graph needs something to compute

    model = Grown(X)
    both = compiled(trained, "eager")
    f = lambda model: both(model, X)[0]
    assert list(vars(f(model))) == ["a"]
    model.b = V
    assert list(vars(f(model))) == ["a", "b"]
    del model.b
    assert list(vars(f(model))) == ["a"]
    model.c = V
    close(f(model), adprotocol.trainable(model))

    def made(x):
        inner = Grown(x)
        inner.gone = x
        inner.kept = 2.0 * x
        del inner.gone
        return adprotocol.trainable(inner)

    assert list(vars(compiled(made, "eager")(X))) == ["a", "kept"]


@pytest.mark.usefixtures("compiler")
def test_a_compiled_gradient_stays_differentiable():
    w, x = TWO.clone().requires_grad_(), X.clone().requires_grad_()
    f = compiled(lambda x, w: (adprotocol.grad(lambda x: w * fourth(x))(x) * V).sum())
    found = torch.autograd.grad(f(x, w), (x, w))
    same(found, (TWO * V * G2, (V * G1).sum()))
    same(adprotocol.grad(f, argnums=(0, 1))(X, TWO), found)


@pytest.mark.usefixtures("compiler")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # looked at by Dynamo
def test_a_compiled_function_is_differentiated():
    backend = Counting()
    f = torch.compile(product, backend=backend)
    for model in (MODEL, {**MODEL, "a": X.clone().requires_grad_()}):
        for where in (None, "a"):
            close(adprotocol.grad(f, where=where)(model), adprotocol.grad(product, where=where)(model))
    assert backend.graphs
    fast = torch.compile(lambda x: x**4, backend=backend)
    close(adprotocol.grad(lambda x: adprotocol.grad(lambda x: fast(x).sum())(x).sum())(X), G2)
    close(vmap(adprotocol.grad(torch.compile(fourth, backend="eager", fullgraph=True)))(X[:, None])[:, 0], G1)
