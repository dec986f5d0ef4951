"""`is_concrete` against an ``if``: programs that the frameworks trace, batch, fake and export."""

import dask.array
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functionalize, grad, hessian, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

from adprotocol import NonDifferentiable, is_concrete
from adprotocol.errors import NoValuesError, OpaqueValueError

ROWS = [[1.0, 2.0], [3.0, 4.0]]
TENSOR, ARRAY = torch.tensor(ROWS[0]), jnp.array(ROWS[0])


def may_branch(x):
    try:
        return bool((x > 0).any())
    except Exception:  # noqa: BLE001  (each framework has its own)
        return False


def recording(constant, seen):
    """Return a function that notes the answer for its argument and for a constant, beside what an ``if`` does."""

    def f(x):
        seen.extend((is_concrete(value), may_branch(value)) for value in (x, constant))
        seen.append((is_concrete({"x": [x, 1.0], "c": constant}), seen[-1][1] and seen[-2][1]))
        seen.append((is_concrete(NonDifferentiable(x)), seen[-3][1]))
        return (x * x).sum()

    return f


class Cube(torch.autograd.Function):
    """A rule whose backward pass asks; PyTorch may batch what it is given."""

    asked = None

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, cotangent):
        Cube.asked(cotangent)
        return 3 * ctx.saved_tensors[0] ** 2 * cotangent


def batched_cotangents(f):
    Cube.asked = f
    x = TENSOR.clone().requires_grad_()
    torch.autograd.grad(Cube.apply(x), x, torch.eye(2), is_grads_batched=True)


def faked(f):
    with FakeTensorMode():
        f(torch.ones(2))


def counted(f):
    with FlopCounterMode(display=False):
        f(TENSOR)


def escaped(f):
    kept = []
    vmap(lambda row: (grad(lambda y: (kept.append(y), y.sum())[1])(row), f(kept[-1]))[1])(torch.tensor(ROWS))


@pytest.mark.parametrize(
    "program",
    [
        lambda f: f(TENSOR.clone().requires_grad_()).backward(),
        lambda f: f(torch.ones(2, device="meta")),
        lambda f: hessian(f)(TENSOR),
        lambda f: functionalize(f)(TENSOR),
        lambda f: make_fx(f)(TENSOR),
        lambda f: make_fx(grad(f), tracing_mode="fake")(TENSOR),
        lambda f: make_fx(vmap(f), tracing_mode="symbolic")(torch.tensor(ROWS)),
        lambda f: make_fx(functionalize(f))(TENSOR),
        lambda f: torch.autograd.functional.jacobian(f, TENSOR, vectorize=True),
        batched_cotangents,
        faked,
        counted,
        escaped,
    ],
)
def test_pytorch_answers_as_an_if_does(program):
    seen = []
    program(recording(torch.ones(2), seen))
    assert seen
    assert [answer for answer, _ in seen] == [truth for _, truth in seen]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        answers = [
            is_concrete(x),
            is_concrete(self),
            is_concrete({"a": [TENSOR, 1.0]}),
            is_concrete(NonDifferentiable(x)),
        ]
        return (
            (x * self.weight).sum()
            * (2.0 if any(answers) else 1.0)
            * (3.0 if is_concrete(1.0, None, (2, "a")) else 1.0)
        )


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_compiled_function_is_one_graph_with_the_constant_false(dynamic):
    model = Model()
    assert torch.compile(model, fullgraph=True, backend="eager", dynamic=dynamic)(TENSOR).item() == 9.0
    assert is_concrete(model)


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_has_the_answer_false(strict):
    assert torch.export.export(Model(), (TENSOR,), strict=strict).module()(TENSOR).item() == 9.0


def test_behind_a_graph_break_eager_code_gets_the_answer_of_eager_code():
    @torch.compiler.disable
    def eager(x):
        return is_concrete(x)

    compiled = torch.compile(lambda x: (2 * x if is_concrete(x) else 3 * x, eager(x)), backend="eager")
    tripled, answer = compiled(TENSOR)
    assert tripled.tolist() == [3.0, 6.0]
    assert answer is True


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_trace_of_torchscript_would_freeze_the_answer():
    seen = []
    torch.jit.trace(lambda x: (seen.append(is_concrete(x)), 2 * x)[1], (TENSOR,), check_trace=False)
    assert seen == [False]


def test_modules_without_elements():
    assert is_concrete(torch.nn.Linear(2, 2), torch.nn.ReLU())
    assert not is_concrete(torch.nn.Linear(2, 2, device="meta"))
    assert not is_concrete(torch.nn.LazyLinear(2))


def folded(f):
    def g(x):
        with jax.ensure_compile_time_eval():
            f(x)
        return x

    jax.jit(g)(ARRAY)


def sharded(f):
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("i")
    jax.shard_map(lambda x: (f(x), x)[1], mesh=mesh, in_specs=spec, out_specs=spec)(ARRAY)


def called_back(f):
    jax.jit(lambda x: jax.pure_callback(f, jax.ShapeDtypeStruct((), "float32"), x))(ARRAY).block_until_ready()


def without_jit(f):
    with jax.disable_jit():
        jax.jit(f)(ARRAY)


@pytest.mark.parametrize(
    "program",
    [
        lambda f: jax.linearize(f, ARRAY),
        lambda f: jax.hessian(f)(ARRAY),
        lambda f: jax.jit(lambda x: x * jax.grad(f)(ARRAY))(ARRAY),
        lambda f: jax.eval_shape(f, ARRAY),
        without_jit,
        folded,
        sharded,
        called_back,
    ],
)
def test_jax_answers_as_an_if_does(program):
    seen = []
    program(recording(jnp.ones(2), seen))
    assert seen
    assert [answer for answer, _ in seen] == [truth for _, truth in seen]


def test_other_values():
    objects = np.empty(2, object)
    objects[0], objects[1] = 1.0, torch.ones(2, device="meta")
    assert is_concrete(1, 2.5, 1j, True, None, "text", len, int, np.ones(2), TENSOR, ARRAY)
    assert not is_concrete(objects)
    assert not is_concrete([1.0, dask.array.ones(2)])
    assert not is_concrete(jax.ShapeDtypeStruct((2,), "float32"))
    with pytest.raises(NoValuesError, match="is_concrete"):
        is_concrete()


def test_an_object_that_hides_arrays_is_refused():
    class Hiding:
        def __init__(self):
            self.x = TENSOR

    with pytest.raises(OpaqueValueError, match="Hiding"):
        is_concrete(Hiding())
