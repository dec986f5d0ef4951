"""value_and_grad of torch modules: nothing of them is changed, and nothing is computed for the frozen."""

import contextlib
import copy
import functools
import pickle
import threading

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, jvp, vmap
from torch.func import grad as native_grad
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint
from torch_cost import DEPTH, TRAINED, compiled, cost

import adprotocol
from adprotocol import value_and_grad, within_gradient
from adprotocol.errors import ConcurrencyError

X = torch.linspace(-1.0, 1.0, 15).reshape(5, 3)
IDS = torch.tensor([[0, 2], [1, 2], [2, 2]])


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def small():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def square(output):
    return (output[0] if isinstance(output, tuple) else output).square().mean()


def loss(module, *args):
    return square(module(*args))


def native(module, *args, loss=loss, against_flags=False):
    """What `backward` leaves in a copy of the module: value, the gradient by name, and the copy."""
    plain = copy.deepcopy(module)
    if against_flags:
        plain.requires_grad_()
    plain.zero_grad()
    value = loss(plain, *args)
    value.backward()
    return value.detach(), {name: p.grad for name, p in plain.named_parameters()}, plain


def dense(tensor):
    return tensor.to_dense() if tensor.is_sparse else tensor


def agree(gradient, wanted, names=None):
    """The gradient has those of `names`, None for the others, and they are right."""
    names = set(wanted if names is None else names)
    assert {name for name, g in gradient.items() if g is not None} == names
    for name in names:
        torch.testing.assert_close(dense(gradient[name]), dense(wanted[name]), msg=lambda m, name=name: f"{name}: {m}")


@contextlib.contextmanager
def untouched(module, *, buffers=True):
    """Nothing of the module is another thing after the block than before it."""
    for i, parameter in enumerate(module.parameters()):
        if i % 2:
            parameter.grad = torch.full_like(parameter, 7.0)

    def seen():
        return {
            name: (id(p), type(p), p.requires_grad, p.is_leaf, p._version, id(p.grad), p.data_ptr())
            for name, p in module.named_parameters(remove_duplicate=False)
        }

    before, modes = seen(), [(id(m), m.training) for m in module.modules()]
    state = {name: value.clone() for name, value in module.state_dict().items()}
    yield
    assert seen() == before
    assert [(id(m), m.training) for m in module.modules()] == modes
    for i, parameter in enumerate(module.parameters()):
        assert torch.all(parameter.grad == 7.0) if i % 2 else parameter.grad is None
    names = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    for name, value in module.state_dict().items():
        if buffers or name in names:
            assert torch.equal(value, state[name]), name


# Modules of every kind that keeps its parameters in a way of its own.


class Lists(nn.Module):
    def __init__(self):
        super().__init__()
        self.factors = nn.ParameterList([torch.randn(3) for _ in range(2)])
        self.named = nn.ParameterDict({"shift": torch.randn(3)})
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 1)])

    def forward(self, x):
        for factor in self.factors:
            x = x * factor
        x = x + self.named["shift"]
        for layer in self.layers:
            x = layer(x)
        return x


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(3, 4)
        self.decoder = nn.Linear(4, 3, bias=False)
        self.decoder.weight = self.embedding.weight

    def forward(self, ids):
        return self.decoder(self.embedding(ids).tanh())


class Checkpointed(nn.Module):
    def __init__(self, use_checkpoint=True):
        super().__init__()
        self.inner, self.outer = nn.Linear(3, 4), nn.Linear(4, 1)
        self.use_checkpoint = use_checkpoint

    def hidden(self, x):
        return self.inner(x).tanh() ** 2

    def forward(self, x):
        return self.outer(checkpoint(self.hidden, x, use_reentrant=False) if self.use_checkpoint else self.hidden(x))


class Counting(nn.Module):
    """Forward reassigns one buffer and updates another in place."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 1)
        self.register_buffer("calls", torch.tensor(0.0))
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x):
        self.calls = self.calls + 1
        y = self.linear(x)
        self.mean.mul_(0.9).add_(0.1 * y.detach().mean())
        return y * self.calls + self.mean


KINDS = {
    "linear layers": (small, (X,)),
    "batch norm": (lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)), (X,)),
    "batch norm in evaluation": (lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval(), (X,)),
    "dropout": (lambda: nn.Sequential(nn.Linear(3, 8), nn.Dropout(), nn.Linear(8, 1)), (X,)),
    "convolution": (lambda: nn.Sequential(nn.Conv1d(1, 2, 2), nn.GroupNorm(1, 2), nn.PReLU()), (X.reshape(5, 1, 3),)),
    "LSTM": (lambda: nn.LSTM(3, 4, bidirectional=True), (X.reshape(5, 1, 3),)),
    "GRU": (lambda: nn.GRU(3, 4, num_layers=2), (X.reshape(5, 1, 3),)),
    "attention": (lambda: nn.MultiheadAttention(3, 1), (X, X, X)),
    "transformer in evaluation": (lambda: nn.TransformerEncoderLayer(3, 1, 4).eval(), (X,)),
    "embedding": (lambda: nn.Sequential(nn.Embedding(3, 4), nn.Linear(4, 1)), (IDS,)),
    "sparse embedding": (lambda: nn.Sequential(nn.Embedding(3, 4, sparse=True), nn.Linear(4, 1)), (IDS,)),
    "tied": (Tied, (IDS,)),
    "lists and dicts": (Lists, (X,)),
    "buffers": (Counting, (X,)),
    "weight norm": (lambda: parametrizations.weight_norm(nn.Linear(3, 2)), (X,)),
    "spectral norm": (lambda: parametrizations.spectral_norm(nn.Linear(3, 2)), (X,)),
    "orthogonal": (lambda: parametrizations.orthogonal(nn.Linear(3, 3)), (X,)),
    "checkpoint": (Checkpointed, (X,)),
}


@pytest.fixture(params=KINDS)
def kind(request):
    build, args = KINDS[request.param]
    return build(), args


def test_gradients_are_those_of_backward(kind):
    module, args = kind
    start = torch.get_rng_state()
    value, wanted, plain = native(module, *args)
    after = torch.get_rng_state()
    torch.set_rng_state(start)
    with untouched(module, buffers=False):
        ours, gradient = value_and_grad(loss)(module, *args)
    assert torch.equal(torch.get_rng_state(), after)
    torch.testing.assert_close(ours, value)
    assert not ours.requires_grad
    agree(gradient, wanted)
    assert not any(g.requires_grad for g in gradient.values() if g is not None)
    for name, state in plain.state_dict().items():
        torch.testing.assert_close(module.state_dict()[name], state)


def test_a_parameter_is_selected_against_all_other_flags(kind):
    module, args = kind
    start = torch.get_rng_state()
    _, wanted, plain = native(module, *args)
    for name in wanted:
        for flag in (True, False):
            fresh = copy.deepcopy(module).requires_grad_(flag)
            torch.set_rng_state(start)
            with untouched(fresh, buffers=False):
                gradient = adprotocol.grad(loss, where=name)(fresh, *args)
            agree(gradient, wanted, [name])
            for other, state in plain.state_dict().items():
                torch.testing.assert_close(fresh.state_dict()[other], state)


# Identity: what forward sees.


class Looking(nn.Linear):
    """A layer that keeps what it saw while it ran."""

    def forward(self, x):
        self.seen = (self.weight, self.bias, dict(self.named_parameters()), self.training)
        return super().forward(x)


def test_forward_sees_the_parameters_themselves():
    module = Looking(3, 1)
    module.bias.requires_grad_(False)
    for where in (None, "weight"):
        adprotocol.grad(loss, where=where)(module, X)
        weight, bias, named, training = module.seen
        assert weight is module.weight
        assert bias is module.bias
        assert named == dict(module.named_parameters())
        assert training


# Hooks.


def hooked():
    module, calls = small(), []
    for i in (0, 2):
        module[i].register_forward_pre_hook(lambda *args, i=i: calls.append(f"pre {i}"))
        module[i].register_forward_hook(lambda *args, i=i: calls.append(f"forward {i}"))
        module[i].register_full_backward_pre_hook(lambda *args, i=i: calls.append(f"backward pre {i}"))
        module[i].register_full_backward_hook(lambda *args, i=i: calls.append(f"backward {i}"))
    for name, parameter in module.named_parameters():
        parameter.register_hook(lambda g, name=name: calls.append(name) or 2 * g)
        parameter.register_post_accumulate_grad_hook(lambda p, name=name: calls.append(f"accumulated {name}"))
    return module, calls


MODULE_HOOKS = [f"{when} {i}" for when in ("pre", "forward", "backward pre", "backward") for i in (0, 2)]


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("where", [None, "0.*", "*.bias", "2.weight"])
def test_hooks_run_once_and_those_of_frozen_parameters_do_not(where):
    module, calls = hooked()
    bare = small()
    bare.load_state_dict(module.state_dict())
    _, wanted, _ = native(bare, X)
    with untouched(module):
        gradient = adprotocol.grad(loss, where=where)(module, X)
    chosen = [name for name, g in gradient.items() if g is not None]
    backward = [call for call in MODULE_HOOKS if where != "2.weight" or call not in ("backward pre 0", "backward 0")]
    assert sorted(calls) == sorted(backward + chosen)
    agree(gradient, {name: 2 * g for name, g in wanted.items()}, chosen)


# Errors.


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        msg = "broken backward"
        raise ZeroDivisionError(msg)


def fails_in_forward(module, x):
    module(x)
    msg = "broken forward"
    raise ZeroDivisionError(msg)


def fails_in_backward(module, x):
    return Broken.apply(module(x)).sum()


@pytest.mark.parametrize("fails", [fails_in_forward, fails_in_backward])
@pytest.mark.parametrize("where", [None, "0.*", "2.bias"])
@pytest.mark.parametrize("transformed", [False, True])
def test_an_exception_leaves_the_module_as_it_was(fails, where, transformed):
    module = small()
    module[2].requires_grad_(False)
    ours = adprotocol.grad(fails, where=where)
    if transformed and fails is fails_in_forward:
        ours = lambda module, x, ours=ours: vmap(lambda x: ours(module, x)["0.weight"])(x)
    with untouched(module), pytest.raises(ZeroDivisionError, match="broken"):
        ours(module, X)
    module.requires_grad_()
    agree(adprotocol.grad(loss)(module, X), native(module, X)[1])
    # Another thread may use it as well: nothing says that this one still does.
    found = []
    thread = threading.Thread(target=lambda: found.append(adprotocol.grad(loss, where="0.*")(module, X)))
    thread.start()
    thread.join()
    agree(found[0], native(module, X)[1], ["0.weight", "0.bias"])


# Copies, parametrisations, sparse gradients, buffers.


@pytest.mark.parametrize("build", [small, KINDS["LSTM"][0]])
def test_a_copy_of_a_module_is_another_module(build):
    module = build()
    _, wanted, _ = native(module, X)
    first = next(iter(wanted))
    adprotocol.grad(lambda module: penalty(adprotocol.grad(loss)(module, X)), where=first)(module)
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):  # noqa: S301
        agree(adprotocol.grad(loss)(twin, X), wanted)
        agree(adprotocol.grad(loss, where=first)(twin, X), wanted, [first])
        assert not any(p is q for p in twin.parameters() for q in module.parameters())


def test_sparse_gradients_stay_sparse():
    module, args = KINDS["sparse embedding"][0](), KINDS["sparse embedding"][1]
    assert adprotocol.grad(loss)(module, *args)["0.weight"].is_sparse
    assert adprotocol.grad(loss, where="0.*")(module.requires_grad_(False), *args)["0.weight"].is_sparse


# T6: as many nodes and saved tensors as by hand.


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(DEPTH)])

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def by_hand(module, names):
    module = copy.deepcopy(module)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in names)
    parameters = [p for p in module.parameters() if p.requires_grad]
    return lambda seen: torch.autograd.grad(seen(loss(module, X)), parameters)


@pytest.mark.parametrize("how", ["flags", "where", "where against flags"])
@pytest.mark.parametrize("trained", TRAINED)
def test_nothing_is_saved_or_computed_for_the_frozen(trained, how):
    names = [f"layers.{i}.{name}" for i, name in TRAINED[trained]]
    module, where = Deep(), None if how == "flags" else names
    if how == "flags":
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(name in names)
    elif how == "where against flags":
        module.requires_grad_(False)
    gradients = []

    def ours(seen):
        gradients.append(adprotocol.grad(lambda module: seen(loss(module, X)), where=where)(module))

    assert cost(ours) == cost(by_hand(module, names))
    agree(gradients[0], native(module, X, against_flags=True)[1], names)
    assert not any(g.requires_grad for g in gradients[0].values() if g is not None)


# Nested in each other, and in the transformations of PyTorch: what an inner call freezes is constant to it alone.


def selection(where):
    return lambda name: where is None or any(name.startswith(pattern.rstrip("*")) for pattern in (where,))


def penalty(gradient):
    return sum(g.square().sum() for g in gradient.values() if g is not None)


def oracle(build, inner, outer, args=(X,)):
    """The gradient of the squared norm of the gradient, by torch.func over all parameters."""
    module = build()
    parameters = {name: p.detach() for name, p in module.named_parameters()}

    def norm(parameters):
        gradient = native_grad(lambda p: square(functional_call(module, p, args)))(parameters)
        return sum(g.square().sum() for name, g in gradient.items() if selection(inner)(name))

    return {name: g for name, g in native_grad(norm)(parameters).items() if selection(outer)(name)}


def directly(norm, module):
    return norm(module, X)


def under_vmap(norm, module):
    return vmap(lambda x: norm(module, x))(torch.stack([X, X])).mean()


def under_jvp(norm, module):
    return jvp(lambda x: norm(module, x), (X,), (X,))[0]


def under_grad(norm, module):
    return native_grad(lambda scale: scale * norm(module, X))(torch.ones(()))


def under_dual(norm, module):
    with forward_ad.dual_level():
        return norm(module, X)


def under_checkpoint(norm, module):
    return checkpoint(lambda x: norm(module, x), X, use_reentrant=False)


INSIDE = [directly, under_vmap, under_jvp, under_grad, under_dual, under_checkpoint]


@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize(("inner", "outer"), [(None, None), (None, "0.*"), ("0.*", None), ("0.*", "2.bias")])
def test_a_penalty_on_gradients(inner, outer, inside):
    module = small()
    wanted = oracle(lambda: module, inner, outer)

    def norm(module, x):
        gradient = adprotocol.grad(loss, where=inner)(module, x)
        assert {name for name, g in gradient.items() if g is not None} == {
            name for name, _ in module.named_parameters() if selection(inner)(name)
        }
        return penalty(gradient)

    with untouched(module):
        agree(adprotocol.grad(lambda module: inside(norm, module), where=outer)(module), wanted)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "tied", "weight norm", "orthogonal", "attention", "lists and dicts"])
def test_a_penalty_on_gradients_of_modules_of_all_kinds(kind):
    build, args = KINDS[kind]
    module = build()
    wanted = oracle(lambda: module, None, None, args)
    norm = lambda module: penalty(adprotocol.grad(loss)(module, *args))
    with untouched(module):
        agree(adprotocol.grad(norm)(module), wanted)
        first = next(iter(wanted))
        agree(adprotocol.grad(norm, where=first)(module), wanted, [first])


# torch.compile.


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("call", "args"),
    [
        (adprotocol.grad(loss, where="0.*"), lambda m: (m, X)),
        (adprotocol.grad(lambda parts: loss(parts["m"], parts["x"]), where="x"), lambda m: ({"m": m, "x": X},)),
        (adprotocol.grad(lambda w: (w**2).sum()), lambda m: (m[0].weight,)),
    ],
    ids=["where", "frozen", "parameter"],
)
def test_a_compiled_gradient_refuses_parameters_and_breaks_the_graph(call, args):
    module = small()
    with untouched(module):
        with pytest.raises(Exception, match=r"value_and_grad\(torch\.compile\(loss\)\)"):
            compiled(call, "eager")(*args(module))
        torch.testing.assert_close(torch.compile(call, backend="eager")(*args(module)), call(*args(module)))


@pytest.mark.usefixtures("compiler")
def test_a_compiled_gradient_with_respect_to_tensors_uses_a_module():
    module, answers = small(), []

    def energy(module, x):
        answers.append(within_gradient(module))
        return loss(module, x)

    force = adprotocol.grad(energy, argnums=1)
    wanted = force(module, X)
    torch.testing.assert_close(compiled(force, "eager")(module, X), wanted)
    assert set(answers) == {True}
    answers.clear()
    with torch.no_grad():
        torch.testing.assert_close(force(module, X), wanted)
        with pytest.raises(Exception, match=r"or under torch\.no_grad"):
            compiled(force, "eager")(module, X)
        torch.testing.assert_close(torch.compile(force, backend="eager")(module, X), wanted)
    assert set(answers) == {False}
    params = {name: p.detach() for name, p in module.named_parameters()}
    by_dict = adprotocol.grad(lambda params: torch.func.functional_call(module, params, (X,)).sum())
    torch.testing.assert_close(compiled(by_dict, "eager")(params), by_dict(params))


@pytest.mark.usefixtures("compiler")
def test_a_graph_that_breaks_leaves_the_module_as_it_was():
    module = small()
    _, wanted, _ = native(module, X)

    def broken(module, x):
        hidden = module[0](x)
        torch._dynamo.graph_break()
        return square(module[2](module[1](hidden)))

    with untouched(module):
        found = torch.compile(adprotocol.grad(broken, where="0.*"), backend="eager")(module, X)
        agree(found, wanted, ["0.weight", "0.bias"])
        with pytest.raises(Exception, match="broken forward"):
            torch.compile(adprotocol.grad(fails_in_forward, where="0.*"), backend="eager")(module, X)


# Threads.


def in_threads(*bodies):
    results = [None] * len(bodies)

    def run(i):
        try:
            results[i] = bodies[i]()
        except Exception as error:  # noqa: BLE001
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    return results


@pytest.mark.parametrize("flags_first", [True, False])
def test_two_threads_with_two_selections_are_right_or_refused(flags_first):
    module = small()
    _, wanted, _ = native(module, X)
    inside, other_done = threading.Event(), threading.Event()

    def first(module, x):
        inside.set()
        other_done.wait(600)
        return loss(module, x)

    def other():
        inside.wait(600)
        try:
            return adprotocol.grad(slow, where=where[1])(module, X)
        finally:
            other_done.set()

    def slow(module, x):
        # The first one goes on while this one has its tensors in the module.
        other_done.set()
        done.wait(2)
        return loss(module, x)

    done = threading.Event()
    where = (None, "2.bias") if flags_first else ("2.bias", None)

    def one():
        try:
            return adprotocol.grad(first, where=where[0])(module, X)
        finally:
            done.set()

    with untouched(module):
        results = in_threads(one, other)
    for result, selected in zip(results, where, strict=True):
        if isinstance(result, Exception):
            assert isinstance(result, ConcurrencyError), result
            assert "deepcopy" in str(result)
        else:
            agree(result, wanted, [name for name in wanted if selection(selected)(name)])
    assert sum(isinstance(result, Exception) for result in results) <= 1


@pytest.mark.parametrize("backend", [None, "eager"])
def test_gradients_lie_in_memory_as_their_parameters_do(backend):
    """A fused optimiser reads by that order, and clipping writes in place."""
    run = (lambda f: f) if backend is None else functools.partial(torch.compile, backend=backend)
    image = torch.rand(1, 2, 4, 4).to(memory_format=torch.channels_last)
    module = nn.Conv2d(2, 2, 3)
    before = module.weight.detach().clone()
    for name, gradient in run(adprotocol.grad(lambda m: (m(image) ** 2).sum()))(module).items():
        getattr(module, name).grad = gradient
    gradient = module.weight.grad.clone(memory_format=torch.contiguous_format)
    torch.optim.SGD(module.parameters(), lr=1.0, fused=True).step()
    torch.testing.assert_close(module.weight.detach(), before - gradient)
    module.weight.grad = run(adprotocol.grad(torch.sum))(module.weight)
    nn.utils.clip_grad_norm_([module.weight], 1.0)
    torch.testing.assert_close(module.weight.grad.norm(), torch.tensor(1.0))
