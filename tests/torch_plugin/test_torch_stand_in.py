"""`combine(..., like=module)`: a module of the same class with other tensors, which leaves the module alone."""

import copy
import functools
import pickle
import weakref

import pytest
import torch
from torch import nn

import adprotocol
from adprotocol import combine, grad, non_differentiable, partition, value_and_grad, within_gradient
from adprotocol.errors import UndecidableError

X = torch.tensor([[1.0, -2.0], [0.5, 3.0]])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.second = nn.Linear(2, 2)
        self.gain = 2.0

    def encode(self, x):
        return torch.tanh(self.first(x))

    @property
    def norm(self):
        return self.first.weight.norm()

    def forward(self, x):
        return self.gain * self.second(self.encode(x))


def doubled(module):
    """Return a stand-in with every parameter doubled."""
    params, rest = partition(module)
    return combine({name: None if p is None else 2.0 * p for name, p in params.items()}, rest, like=module)


def reference(module, *args):
    params = {name: 2.0 * p for name, p in module.named_parameters()}
    return torch.func.functional_call(module, params, args)


def state(module):
    return {name: (id(t), t.detach().clone(), t.requires_grad) for name, t in module.state_dict(keep_vars=True).items()}


def unchanged(module, before):
    after = state(module)
    assert after.keys() == before.keys()
    for name, (identity, value, flag) in after.items():
        assert (identity, flag) == (before[name][0], before[name][2])
        assert torch.equal(value, before[name][1])


def test_methods_properties_submodules_and_settings_are_those_of_the_stand_in():
    module = Net()
    made = doubled(module)
    weight, bias = 2.0 * module.first.weight, 2.0 * module.first.bias
    assert torch.allclose(made.encode(X), torch.tanh(X @ weight.T + bias))
    assert torch.allclose(made.first(X), X @ weight.T + bias)
    assert torch.allclose(made.norm, weight.norm())
    assert torch.equal(made.first.weight, weight)
    assert [name for name, _ in made.named_parameters()] == [name for name, _ in module.named_parameters()]
    assert made.gain == module.gain
    made.eval()
    made.gain = 5.0
    assert module.training
    assert module.first.training
    assert module.gain == 2.0


def test_tied_parameters_stay_tied():
    module = Net()
    module.second.weight = module.first.weight
    made = doubled(module)
    assert made.second.weight is made.first.weight
    assert torch.allclose(made(X), reference(module, X))
    gradient = value_and_grad(lambda m: m(X).sum())(made)[1]
    assert set(gradient) == {"first.weight", "first.bias", "second.bias"}


def test_buffers_are_the_stand_ins_own():
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    before = state(module)
    made = doubled(module)
    made(X)
    unchanged(module, before)
    assert int(made[1].num_batches_tracked) == 1
    assert not torch.equal(made[1].running_mean, module[1].running_mean)
    again = doubled(made)
    again(X)
    assert (int(again[1].num_batches_tracked), int(made[1].num_batches_tracked)) == (2, 1)
    value_and_grad(lambda m: m(X).sum())(again)
    assert int(again[1].num_batches_tracked) == 3


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_modules(cell):
    module = cell(2, 3, batch_first=True)
    before = state(module)
    made = doubled(module)
    sequence = X.expand(2, 2, 2)
    assert torch.allclose(made(sequence)[0], reference(module, sequence)[0])
    unchanged(module, before)
    assert torch.allclose(doubled(made)(sequence)[0], reference(made, sequence)[0])


class Holding(nn.Module):
    """Holds a submodule in attributes of its own, besides the table."""

    def __init__(self, hold):
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.held = hold(self)

    def forward(self, x):
        return self.inner(x)


class Helper:
    def __init__(self, module):
        self.module = module

    def run(self, x):
        return self.module(x)


HELD = {
    "list": (lambda m: [m.inner], lambda m, x: m.held[0](x)),
    "dict": (lambda m: {"a": (m.inner,)}, lambda m, x: m.held["a"][0](x)),
    "method": (lambda m: m.inner.forward, lambda m, x: m.held(x)),
    "partial": (lambda m: functools.partial(m.inner.forward), lambda m, x: m.held(x)),
    "object": (lambda m: Helper(m.inner), lambda m, x: m.held.module(x)),
    "object in a list": (lambda m: [Helper(m.inner)], lambda m, x: m.held[0].module(x)),
    "set": (lambda m: {m.inner}, lambda m, x: next(iter(m.held))(x)),
    "parameter": (lambda m: [m.inner.weight], lambda m, x: x @ m.held[0].T + m.inner.bias),
    "itself": (lambda m: [m], lambda m, x: m.held[0].inner(x)),
    "module around a part": (lambda m: [nn.Sequential(m.inner)], lambda m, x: m.held[0](x)),
    "function of no part": (lambda m: Decorated(abs), lambda m, x: m.inner(x)),
}


@pytest.mark.parametrize(("hold", "use"), HELD.values(), ids=HELD)
def test_what_containers_hold_is_replaced_too(hold, use):
    module = Holding(hold)
    made = doubled(module)
    assert torch.allclose(use(made, X), made.inner(X))
    assert torch.allclose(made.inner(X), reference(module, X))


def calling(functions):
    def call(x):
        return functions[0](x)

    return call


def with_rule(fun):
    layer = adprotocol.custom_derivative(fun)
    layer.defvjp(lambda cotangent, y, x: (cotangent,))
    return layer


class Decorated:
    """An object around a function that a copy shares, as jitted functions are."""

    def __init__(self, fun):
        functools.update_wrapper(self, fun)

    def __deepcopy__(self, memo):
        return self

    def __call__(self, x):
        return self.__wrapped__(x)


REFERRING = {
    "closure": (lambda m: lambda x: m.inner(x) + 1.0, "<lambda>"),
    "list in a closure": (lambda m: calling([m.inner]), "calling.<locals>.call"),
    "nested": (lambda m: calling([calling([m.inner])]), "calling.<locals>.call"),
    "default": (lambda m: lambda x, inner=m.inner: inner(x), "<lambda>"),
    "partial": (lambda m: [functools.partial(lambda inner, x: m.inner(x), 1)], "<lambda>"),
    "method of an object": (lambda m: Helper(m.inner).run, "Helper.run"),
    "weak reference": (lambda m: weakref.ref(m.inner), "ReferenceType"),
    "rule": (lambda m: with_rule(lambda x: m.inner(x) + x), "<lambda>"),
    "host": (lambda m: adprotocol.host_function(lambda x: m.inner(x) + x, like=lambda x: x), "<lambda>"),
    "cached": (lambda m: functools.lru_cache(lambda x: m.inner(x) + x), "<lambda>"),
    "wrapped": (lambda m: functools.wraps(calling)(calling([m.inner])), "calling"),
    "decorator": (lambda m: Decorated(m.inner.forward), "Linear.forward"),
    "function in an object": (lambda m: Helper(lambda x: m.inner(x) + x), "<lambda>"),
    "weight in an object": (lambda m: [{"a": Helper(calling([m.inner.weight]))}], "calling.<locals>.call"),
    "module around a part": (lambda m: calling([nn.Sequential(m.inner)]), "calling.<locals>.call"),
}


@pytest.mark.parametrize(("hold", "named"), REFERRING.values(), ids=REFERRING)
def test_a_function_that_refers_to_a_part_is_refused(hold, named):
    module = Holding(hold)
    before = state(module)
    with pytest.raises(UndecidableError, match=rf"Holding.*attribute 'held' of its Holding holds .*{named}"):
        doubled(module)
    unchanged(module, before)


def test_what_is_no_part_of_the_module_is_shared():
    seen = []
    other, constant = nn.Linear(2, 2), torch.tensor(2.0, requires_grad=True)

    class Recorder:
        def record(self, _module, _args, result):
            seen.append((self, result))

    recorder = Recorder()
    module = Holding(lambda m: {"other": [other], "generator": torch.Generator().manual_seed(0)})
    module.constant = constant
    module.inner.register_forward_hook(recorder.record)
    made = doubled(module)
    assert made.held is not module.held
    assert made.held["other"][0] is other
    assert made.constant is constant
    assert torch.rand(1, generator=made.held["generator"]) != torch.rand(1, generator=module.held["generator"])
    made(X)
    assert seen[0][0] is recorder


def test_a_hook_that_closes_over_the_module_is_refused_and_one_that_does_not_runs():
    calls, module = [], Net()
    module.first.register_forward_hook(lambda own, _args, _result: calls.append(own))
    made = doubled(module)
    made(X)
    assert calls == [made.first]
    module.first.register_forward_hook(lambda _own, _args, result: result + module.second.bias)
    with pytest.raises(UndecidableError, match="_forward_hooks"):
        doubled(module)


class Metric(nn.Module):
    """Wraps its own method in its constructor, and keeps its states and their defaults, as those of torchmetrics do."""

    def __init__(self):
        super().__init__()
        self.total, self.defaults = torch.tensor(0.0), {"total": torch.tensor(0.0)}
        self.update = self.wrapped(self.update)

    def wrapped(self, update):
        @functools.wraps(update)
        def counted(value):
            self.seen = True
            update(value)

        return counted

    def update(self, value):
        self.total = self.total + value.detach().sum()

    def __getstate__(self):
        return {name: value for name, value in self.__dict__.items() if name != "update"}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.update = self.wrapped(type(self).update.__get__(self))


@pytest.mark.parametrize("copies", [True, False])
def test_a_part_without_replaced_tensors_may_refer_to_itself(copies, monkeypatch):
    if not copies:
        monkeypatch.delattr(Metric, "__getstate__")
        monkeypatch.delattr(Metric, "__setstate__")
    module = Holding(lambda m: None)
    module.metric = Metric()
    made = doubled(module)
    made.metric.update(made(X))
    assert torch.allclose(made(X), reference(module, X))
    if copies:
        assert module.metric.total == 0.0


def test_activations_that_hooks_keep_are_no_hindrance():
    module = Net()
    module.kept, closed_over = {"steps": 3}, {}

    def keep(own, _args, result):
        closed_over["first"] = module.kept["first"] = own.pair = (result, 1)

    handle = module.first.register_forward_hook(keep)
    module(X)
    with torch.no_grad():
        module.kept["evaluated"] = [module(X)]
    handle.remove()
    module.first.register_forward_hook(lambda own, _args, result: setattr(own, "pair", (result, 2)))
    before = module.kept["first"][0]
    made = doubled(module)
    assert made.kept["steps"] == 3
    assert within_gradient(made) is True
    assert within_gradient(non_differentiable(dict(made.named_parameters()))) is False
    assert torch.allclose(made(X), reference(module, X))
    assert made.first.pair[1] == 2
    assert module.kept["first"][0] is before


class Recurrent(nn.Module):
    """Keeps its hidden states, as those who write an RNN, or a cache of keys and values, do."""

    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(2, 2)
        self.reset()

    def reset(self):
        self.states, self.cache, self.last, self.named = [torch.zeros(1, 2)], [[], []], None, {}

    def forward(self, x):
        last = torch.tanh(self.cell(x) + self.states[-1])
        self.states.append(last)
        self.cache[0].append((last, 2.0 * last))
        self.last = self.named["last"] = last
        return last


USES = {
    "call": lambda m: m(X[:1]),
    "cat": lambda m: torch.cat([keys for keys, _ in m.cache[0]]),
    "matmul": lambda m: m.cache[0][-1][1] @ X[:1].T,
    "product": lambda m: 1.0 * m.last,
    "item": lambda m: m.last[0],
    "detach": lambda m: m.last.detach(),
    "number": lambda m: float(m.last.sum()),
    "iterator": lambda m: list(m.last),
    "module": lambda m: m.cell(m.named["last"]),
    "vmap": lambda m: torch.vmap(torch.sin)(m.last),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_what_a_call_left_behind_is_refused_where_it_is_used(use):
    module = Recurrent()
    module(X[:1])
    made = doubled(module)
    assert [len(made.states), len(made.cache[0])] == [2, 1]
    again = combine({"cell.weight": made.cell.weight, "cell.bias": made.cell.bias}, like=made)
    for stand_in in (made, again):
        with pytest.raises(UndecidableError, match=r"attribute '\w+' of a Recurrent.*clear the attribute before"):
            use(stand_in)
        stand_in.reset()
        assert torch.allclose(stand_in(X[:1]), torch.tanh(2.0 * module.cell(X[:1])))
    assert len(module.states) == 2


def test_scripted_modules_are_refused():
    with pytest.raises(UndecidableError, match=r"scripted|holds"):
        doubled(torch.jit.script(nn.Linear(2, 2)))


def test_compiled_modules_are_refused_with_the_remedy():
    in_place = nn.Linear(2, 2)
    in_place.compile(backend="eager")
    for module in (torch.compile(nn.Linear(2, 2), backend="eager"), nn.Sequential(in_place)):
        with pytest.raises(UndecidableError, match="use the module as it was before"):
            doubled(module)


def test_copies_and_pickles():
    module = Net()
    params, rest = partition(module)
    made = combine({name: None if p is None else (2.0 * p).detach() for name, p in params.items()}, rest, like=module)
    for again in (copy.deepcopy(made), copy.copy(made), pickle.loads(pickle.dumps(made))):  # noqa: S301
        assert torch.equal(again(X), made(X))
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(doubled(module))


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_a_stand_in_breaks_a_graph_and_may_be_given_to_one():
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Tanh())
    before = state(module)
    make = lambda m, x: doubled(m)(x)
    with pytest.raises(Exception, match="make it before the compiled function"):
        torch.compile(make, fullgraph=True, backend="eager")(module, X)
    wanted = doubled(module)(X)
    assert torch.allclose(torch.compile(make, backend="eager")(module, X), wanted)
    unchanged(module, before)
    params, rest = partition(module)
    given = combine({name: None if p is None else (2.0 * p).detach() for name, p in params.items()}, rest, like=module)
    assert torch.allclose(torch.compile(lambda m, x: m(x), fullgraph=True, backend="eager")(given, X), wanted)


def test_parts_of_trees_of_constants_in_a_graph():
    tree = {"a": {"w": torch.ones(2), "n": 3}, "b": {"n": 1, "s": None}, "z": [4, (5,)]}

    @torch.compile(fullgraph=True, backend="eager")
    def parts(tree):
        params, rest = partition(tree)
        return params["a"]["w"] * 1.0, params["b"], rest, list(combine(params, rest)), list(params)

    weight, empty, rest, joined, keys = parts(tree)
    assert torch.equal(weight, tree["a"]["w"])
    assert empty == {"n": None, "s": None}
    assert rest == {"a": {"w": None, "n": 3}, "b": {"n": 1, "s": None}, "z": [4, (5,)]}
    assert joined == keys == ["a", "b", "z"]


def dropout_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.fx.symbolic_trace(dropout_net()),
        lambda: torch.export.export(dropout_net(), (torch.ones(5, 3).double(),)).module(),
        lambda: nn.Sequential(torch.fx.symbolic_trace(dropout_net()[:2]), dropout_net()[2:]),
    ],
    ids=["fx", "export", "part"],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_graph_modules_keep_hooks_settings_and_what_is_a_parameter(make):
    """`copy.deepcopy` makes a class of its own for each, and loses the rest."""
    module, expected, x = make(), make(), torch.linspace(-1, 1, 15).double().reshape(5, 3)
    for net in (module, expected):
        for part in [part for part in net.modules() if isinstance(part, torch.fx.GraphModule)]:
            part.register_forward_hook(lambda _module, _args, _kwargs, output: output * 3, with_kwargs=True)
    params, rest = partition(module)
    halved = combine({name: None if p is None else p / 2 for name, p in params.items()}, rest, like=module)
    with torch.no_grad():
        for parameter in expected.parameters():
            parameter.mul_(0.5)
    results = []
    for net in (halved, expected):
        torch.manual_seed(1)
        results.append(net(x))
    torch.testing.assert_close(*results)
    selected = [name for name, taken in adprotocol.trainable_mask(halved).items() if taken]
    assert selected == [name for name, p in params.items() if p is not None]


def test_attributes_of_a_parameter_are_on_what_takes_its_place():
    class Readout(nn.Linear):  # as in mup
        def forward(self, x):
            return super().forward(x / self.weight.width)

    module, x = Readout(2, 1, bias=False), torch.ones(2)
    module.weight.width = 4.0
    doubled = 2.0 * module.weight.detach()
    gradient = grad(lambda w: combine({"weight": w}, like=module)(x).sum())(doubled)
    torch.testing.assert_close(gradient, torch.full((1, 2), 0.25))
    stand_in = combine({"weight": doubled}, like=module)
    torch.testing.assert_close(stand_in(x), 2.0 * module(x))
    torch.testing.assert_close(grad(lambda net: net(x).sum())(stand_in)["weight"], gradient)
    assert not hasattr(doubled, "width")
    again = grad(lambda m: combine({"weight": 2.0 * m.weight}, like=m)(x).sum(), where="weight")(module)
    torch.testing.assert_close(again["weight"], 2.0 * gradient)
