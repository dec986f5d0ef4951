"""`combine(..., like=model)`: one loop of gradient steps, differentiated itself, and structures that do not match."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from ad_backends import JAX, TORCH, close

from adprotocol import combine, grad, partition, tree_map, value_and_grad
from adprotocol.errors import TreeError


@dataclasses.dataclass(frozen=True)
class Line:
    slope: object
    offset: object
    scale: object = dataclasses.field(default=2.0, metadata={"trainable": False})
    name: str = "line"

    def __call__(self, x):
        return self.scale * self.slope * x + self.offset


@dataclasses.dataclass(frozen=True)
class RegisteredLine(Line):
    pass


# For jax.value_and_grad; adprotocol's own needs no registration.
jax.tree_util.register_dataclass(RegisteredLine, data_fields=["slope", "offset", "scale"], meta_fields=["name"])


class TorchLine(torch.nn.Module):
    def __init__(self, slope, offset):
        super().__init__()
        self.slope = torch.nn.Parameter(torch.tensor(slope, dtype=torch.float64))
        self.offset = torch.nn.Parameter(torch.tensor(offset, dtype=torch.float64))
        self.register_buffer("scale", torch.tensor(2.0, dtype=torch.float64))

    def forward(self, x):
        return self.scale * self.slope * x + self.offset


def dataclass_line():
    return Line(*map(TORCH.make, (3.0, 1.0, 2.0)))


RATE = 0.05


def error(model, x, y):
    return (model(x) - y) ** 2


def adapt(model, x, y, steps=2):
    for _ in range(steps):
        _, gradient = value_and_grad(error)(model, x, y)
        params, rest = partition(model)
        params = tree_map(lambda p, g: p - RATE * g, params, gradient)
        model = combine(params, rest, like=model)
    return model


def after_adapting(model, x, y, steps=2):
    return error(adapt(model, x, y, steps), x, y)


def closed_form(slope, offset, x, y, steps=2):
    """Return the loss after gradient steps, and its derivatives in slope and offset.

    The residual r = 2 a x + b - y is linear in (a, b), and each step multiplies it by 1 - 2 rate (4 x x + 1).
    """
    residual = 2.0 * slope * x + offset - y
    factor = (1.0 - 2.0 * RATE * (4.0 * x * x + 1.0)) ** (2 * steps)
    return factor * residual**2, factor * 2.0 * residual * 2.0 * x, factor * 2.0 * residual


def parts(gradient):
    if isinstance(gradient, dict):
        return gradient["slope"], gradient["offset"]
    return gradient.slope, gradient.offset


def matches(found, want):
    value, gradient = found
    assert close(value, want[0])
    for got, expected in zip(parts(gradient), want[1:], strict=True):
        assert close(got, expected)


@pytest.mark.parametrize("make", [dataclass_line, lambda: TorchLine(3.0, 1.0)], ids=["dataclass", "module"])
@pytest.mark.parametrize("way", ["torch.func", "vmap", "loop", "eager", "aot_eager"])
def test_pytorch_in_every_way(make, way):
    xs = torch.tensor([1.5, 0.5, -1.0], dtype=torch.float64)
    ys = torch.tensor([-2.0, 1.0, 0.5], dtype=torch.float64)

    def tasks(model, xs, ys):
        if way == "loop":
            return sum(after_adapting(model, x, y) for x, y in zip(xs, ys, strict=True)) / 3.0
        return torch.vmap(lambda x, y: after_adapting(model, x, y))(xs, ys).mean()

    want = np.mean([closed_form(3.0, 1.0, float(x), float(y)) for x, y in zip(xs, ys, strict=True)], axis=0)
    model = make()
    if way == "torch.func":
        params, rest = partition(model)

        def of_params(slope, offset):
            tree = (
                dataclasses.replace(params, slope=slope, offset=offset)
                if dataclasses.is_dataclass(params)
                else (params | {"slope": slope, "offset": offset})
            )
            return after_adapting(combine(tree, rest, like=model), xs[0], ys[0])

        gradient = torch.func.grad(of_params, argnums=(0, 1))(*[part.detach() for part in parts(params)])
        for got, expected in zip(gradient, closed_form(3.0, 1.0, 1.5, -2.0)[1:], strict=True):
            assert close(got, expected)
        return
    run = value_and_grad(tasks)
    if way in ("eager", "aot_eager"):
        inner = value_and_grad(after_adapting)
        # Parameters of a module are differentiated outside the graph, which breaks.
        compiled = torch.compile(inner, fullgraph=not isinstance(model, torch.nn.Module), backend=way)
        matches(compiled(model, xs[0], ys[0]), closed_form(3.0, 1.0, 1.5, -2.0))
        return
    matches(run(model, xs, ys), want)


def test_jax_under_vmap_and_jit():
    xs, ys = jnp.array([1.5, 0.5]), jnp.array([-2.0, 1.0])

    def tasks(model, xs, ys):
        return jax.vmap(lambda x, y: after_adapting(model, x, y))(xs, ys).mean()

    want = np.mean([closed_form(3.0, 1.0, float(x), float(y)) for x, y in zip(xs, ys, strict=True)], axis=0)
    model = RegisteredLine(*[JAX.make(number) for number in (3.0, 1.0, 2.0)])
    matches(value_and_grad(tasks)(model, xs, ys), want)
    matches(jax.jit(jax.value_and_grad(tasks))(model, xs, ys), want)


def test_a_module_inside_of_a_structure():
    @dataclasses.dataclass
    class Both:
        net: object
        gain: object

    model = Both(TorchLine(3.0, 1.0), torch.tensor(2.0, dtype=torch.float64))
    params, rest = partition(model)
    doubled = combine(tree_map(lambda p: 2.0 * p, params), rest, like=model)
    assert isinstance(doubled.net, TorchLine)
    x = torch.tensor(1.0, dtype=torch.float64)
    assert close(doubled.gain * doubled.net(x), 4.0 * 14.0)
    assert close(model.gain * model.net(x), 2.0 * 7.0)


@pytest.mark.parametrize(
    ("trees", "like", "message"),
    [
        (({"a": None, "b": [1.0]},), {"a": 1.0, "b": [2.0]}, r"none has the leaf 'a' of like, a dict; pass the rest"),
        (
            ({"a": 1.0, "b": [None]}, {"a": None, "b": [None]}),
            {"a": 1.0, "b": [2.0]},
            r"none has the leaf 'b\.0' of like",
        ),
        (({"a": 1.0},), {"a": 1.0, "b": 2.0}, "'b' is in like and not in argument 0"),
        (({"a": 1.0}, {"a": 1.0, "b": 2.0}), {"a": 1.0}, "'b' is in argument 1 and not in like"),
        (([1.0],), (1.0,), "the value itself is a tuple in like and a list in argument 0"),
        ((None,), 1.0, "none has the leaf the value itself of like"),
    ],
)
def test_what_does_not_match_is_an_error_that_names_the_path(trees, like, message):
    with pytest.raises(TreeError, match=message):
        combine(*trees, like=like)


def test_like_none_is_a_structure():
    assert combine(None, like=None) is None
    assert grad(lambda x: x * x)(2.0) == 4.0
