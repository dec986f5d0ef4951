"""What two processes of PyTorch check together: ``python torch_checks.py FOLDER``, which forks the second.

Both run the checks in the same order; the failures are written to the folder, with the names of all that ran.
"""

import json
import os
import sys
import traceback
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import adprotocol
from adprotocol import NonDifferentiable, cond, non_differentiable, within_gradient
from adprotocol.errors import UndecidableError

RANKS = (0, 1)
PLACEMENTS = (Shard(0), Shard(1), Replicate())


class Layer(nn.Module):
    """Trains while a derivative is wanted, evaluates otherwise; one factor is a constant."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(1.0, 17.0).reshape(4, 4) / 16)
        self.answers = []

    def forward(self, x):
        x = x @ self.weight
        self.answers += [within_gradient(self.weight), within_gradient(x)]
        x = cond(within_gradient(x), lambda x: 3 * x, lambda x: 5 * x, x)
        return x * non_differentiable(x.sum())


def network():
    return nn.Sequential(Layer(), nn.Tanh(), Layer())


def answers(model):
    return [answer for module in model.modules() if isinstance(module, Layer) for answer in module.answers]


def data(rank):
    return torch.arange(1.0, 9.0).reshape(2, 4) / (8 * (rank + 1))


def loss(model, x):
    return (model(x) ** 2).mean()


def expected(model=None, frozen=()):
    """Return the gradients of one process that has the data of all."""
    model = model or network()
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    total = sum(loss(model, data(rank)) for rank in RANKS) / len(RANKS)
    return dict(zip(names, torch.autograd.grad(total, [model.get_parameter(name) for name in names]), strict=True))


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def equal(found, wanted):
    found = {name.removeprefix("module."): whole(g) for name, g in found.items() if g is not None}
    assert found.keys() == wanted.keys(), (found.keys(), wanted.keys())
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient)


def accumulated(model):
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def refused(function, *names):
    try:
        result = function()
    except UndecidableError as error:
        for name in (*names, "loss.backward()"):
            assert name in str(error), error  # noqa: PT017  (pytest is not here)
    else:
        msg = f"not refused: {result}"
        raise AssertionError(msg)


def communicated(function):
    """Return the result, and how often each collective ran for it."""
    with CommDebugMode() as mode:
        result = function()
    return result, {name.__name__: count for name, count in mode.get_comm_counts().items()}


# Data parallel: DistributedDataParallel


def data_parallel_has_the_gradient_of_all_data(_rank):
    for options in (
        {},
        {"static_graph": True},
        {"find_unused_parameters": True},
        {"gradient_as_bucket_view": True, "broadcast_buffers": False},
    ):
        model = DistributedDataParallel(network(), **options)
        for _ in range(2):  # a static graph is learnt by the first
            model.zero_grad()
            loss(model, data(_rank)).backward()
            equal(accumulated(model), expected())
        assert set(answers(model)) == {True}
        model.module[0].answers.clear()
        with torch.no_grad():
            model(data(_rank))
        assert model.module[0].answers == [False, False]


def data_parallel_leaves_out_what_the_branch_does_not_use(rank):
    class Either(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.other = Layer(), Layer()

        def forward(self, x):
            return cond(within_gradient(self.used.weight), self.used, self.other, x)

    model = DistributedDataParallel(Either(), find_unused_parameters=True)
    for _ in range(2):
        model.zero_grad()
        loss(model, data(rank)).backward()
    assert model.module.other.weight.grad is None
    torch.testing.assert_close(model.module.used.weight.grad, expected(Layer())["weight"])


def data_parallel_recomputes_in_a_checkpoint(rank):
    model = network()
    model[0].forward = lambda x, run=model[0].forward: checkpoint(run, x, use_reentrant=False)
    model = DistributedDataParallel(model, static_graph=True)
    loss(model, data(rank)).backward()
    equal(accumulated(model), expected())
    assert set(answers(model)) == {True}


def data_parallel_is_refused_where_gradients_are_returned(rank):
    model, x = DistributedDataParallel(network()), data(rank)
    grad = adprotocol.grad
    parameters = list(model.parameters())
    named = ("DistributedDataParallel", "ddp.module", "all_reduce")
    refused(lambda: grad(loss)(model, x), *named)
    refused(lambda: grad(loss, where="*.0.weight")(model, x), *named)
    refused(lambda: grad(lambda m: loss(m["inner"], x))({"inner": model}), *named)
    refused(lambda: grad(lambda _: loss(model, x))(parameters), *named)
    refused(lambda: grad(lambda _: loss(model, x))(model.module), *named)
    refused(lambda: grad(lambda w: w.sum() * grad(loss)(model, x)["module.0.weight"].sum())(x), *named)
    refused(lambda: torch.vmap(lambda x: grad(loss)(model, x))(x[None]), *named)
    refused(lambda: torch.compile(grad(loss), backend="eager")(model, x), *named)
    # Nothing is left behind.
    loss(model, x).backward()
    equal(accumulated(model), expected())


def data_parallel_differentiates_what_needs_no_reduction(rank):
    model, x = DistributedDataParallel(network()), data(rank)
    own = adprotocol.grad(loss)(network(), x)
    # By hand: the module inside, or the wrapper told not to synchronise.
    value, gradient = adprotocol.value_and_grad(loss)(model.module, x)
    torch.testing.assert_close(value, loss(network(), x))
    for leaf in gradient.values():
        dist.all_reduce(leaf, dist.ReduceOp.SUM)
        leaf.div_(len(RANKS))
    equal(gradient, expected())
    with model.no_sync():
        equal(adprotocol.grad(loss)(model, x), own)
    # With respect to the data, and to a part outside of the wrapper.
    torch.testing.assert_close(
        adprotocol.grad(lambda x: loss(model, x))(x), adprotocol.grad(lambda x: loss(network(), x))(x)
    )
    both = {"body": model, "head": nn.Linear(4, 1)}
    for _ in range(2):
        gradient = adprotocol.grad(lambda m: m["head"](m["body"](x)).sum(), where="head.*")(both)
        assert gradient["body"] == dict.fromkeys(gradient["body"])
        torch.testing.assert_close(gradient["head"]["bias"], torch.tensor([2.0]))
    assert all(leaf is not None for leaf in adprotocol.trainable(model).values())
    assert "requires_grad is set" in adprotocol.explain(model.module[0].weight)


# Data parallel: FSDP


def sharded(frozen=(), **options):
    model = network()
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)
    for layer in (model[0], model[2]):
        fully_shard(layer, **options)
    return fully_shard(model, **options)


def fsdp_has_the_gradient_of_all_data(rank):
    model = sharded()
    for _ in range(2):
        model.zero_grad()
        loss(model, data(rank)).backward()
        equal(accumulated(model), expected())
    assert {leaf.placements for leaf in accumulated(model).values()} == {(Shard(0),)}
    assert set(answers(model)) == {True}
    model[0].answers.clear()
    with torch.no_grad():
        model(data(rank))
    assert model[0].answers == [False, False]
    partly = sharded(frozen=["0.weight"])
    loss(partly, data(rank)).backward()
    equal(accumulated(partly), expected(frozen=["0.weight"]))
    assert partly[0].answers == [False, False]  # nothing before it is trained
    assert partly[2].answers == [True, True]


def fsdp_in_mixed_precision_has_the_gradient_of_all_data(rank):
    model = sharded(mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, output_dtype=torch.float32))
    loss(model, data(rank)).backward()
    for name, gradient in expected().items():
        torch.testing.assert_close(whole(accumulated(model)[name]), gradient, rtol=0.1, atol=0.1)
    assert set(answers(model)) == {True}


def fsdp_is_refused_where_gradients_are_returned(rank):
    model, x = sharded(), data(rank)
    grad = adprotocol.grad
    parameters = list(model.parameters())
    named = ("FSDP", "requires_grad_(False)")
    refused(lambda: grad(loss)(model, x), *named)
    refused(lambda: grad(loss, where="0.*")(model, x), *named)
    refused(
        lambda: grad(lambda p: torch.func.functional_call(model, p, x).sum())(dict(model.named_parameters())), *named
    )
    refused(lambda: torch.vmap(lambda x: grad(loss)(model, x))(x[None]), *named)
    refused(lambda: torch.compile(grad(loss), backend="eager")(model, x), *named)
    loss(model, x).backward()  # nothing is left behind
    equal(accumulated(model), expected())
    # After a call that left the whole parameters in the module, the shards are known too.
    alone = fully_shard(network(), reshard_after_forward=False)
    parameters = list(alone.parameters())
    alone(x)
    assert not {id(item) for item in parameters} & {id(item) for item in alone.parameters()}
    refused(lambda: grad(lambda _: loss(alone, x))(parameters), *named)
    refused(lambda: grad(loss)(alone, x), *named)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        old = FullyShardedDataParallel(network(), use_orig_params=True, device_id=torch.device("cpu"))
    refused(lambda: grad(loss)(old, x), "FullyShardedDataParallel", "requires_grad_(False)")


def fsdp_differentiates_what_needs_no_reduction(rank):
    model, x = sharded(), data(rank)
    for _ in range(2):
        torch.testing.assert_close(
            adprotocol.grad(lambda x: loss(model, x))(x), adprotocol.grad(lambda x: loss(network(), x))(x)
        )
    # The shards as the DTensors that they are, without a call of the module.
    penalty = adprotocol.grad(lambda m: sum((p**2).sum() for p in m.parameters()))(model)
    equal(penalty, {name: 2 * parameter for name, parameter in network().named_parameters()})
    kept, rest = adprotocol.partition(model, where="0.*")
    assert [leaf is None for leaf in kept.values()] == [False, True] == [leaf is not None for leaf in rest.values()]
    assert within_gradient(model) is True
    assert "DTensor" in adprotocol.explain(model[0].weight)


# DTensor


def spread(placement, shape=(4, 4), *, requires_grad=False):
    return distribute_tensor(dense(shape), MESH, [placement]).requires_grad_(requires_grad)


def dense(shape=(4, 4)):
    return torch.arange(1.0, 1.0 + torch.Size(shape).numel()).reshape(shape) / 10


def layer(x):
    return cond(within_gradient(x), lambda x: 3 * x * x, lambda x: 5 * x, x)


def dtensor_answers_and_branches_without_communication(_rank):
    for placement in PLACEMENTS:
        x, plain = spread(placement, requires_grad=True), spread(placement)

        def ask(x=x, plain=plain):
            assert within_gradient(x) is within_gradient({"a": plain, "b": x}) is True
            assert within_gradient(plain) is within_gradient(non_differentiable(x)) is False
            assert within_gradient(NonDifferentiable(x) * 2) is False
            assert within_gradient(x * plain) is True
            assert "requires_grad is set" in adprotocol.explain(x)
            assert adprotocol.trainable({"a": x}) == {"a": x}
            return layer(x), layer(plain)

        (trained, evaluated), counts = communicated(ask)
        assert counts == {}
        assert trained.placements == evaluated.placements == (placement,)
        torch.testing.assert_close(whole(trained), 3 * dense() ** 2)
        torch.testing.assert_close(whole(evaluated), 5 * dense())
        trained.sum().backward()
        torch.testing.assert_close(whole(x.grad), 6 * dense())
        chosen, counts = communicated(lambda x=x: cond(x.to_local().sum() > 0, lambda x: 2 * x, lambda x: x, x))
        assert counts == {}
        torch.testing.assert_close(whole(chosen), 2 * dense())


def dtensor_branches_do_not_communicate(_rank):
    for placement in PLACEMENTS:
        x, y = spread(placement, requires_grad=True), spread(placement, requires_grad=True)
        run = lambda x=x, y=y: cond(True, lambda x, _: x**2, lambda x, y: x * y, x, y).sum().backward()
        assert communicated(run)[1] == {}
        torch.testing.assert_close(whole(x.grad), 2 * dense())
        assert y.grad is None
    # A sum that is still to be reduced; at second order.
    x, y = spread(Shard(0), requires_grad=True), spread(Shard(0), requires_grad=True)
    result, counts = communicated(lambda: cond(True, lambda x, _: x.sum(), lambda _, y: y.sum(), x, y))
    assert counts == {}
    assert result.placements == (Partial(),)
    cubed = lambda x: cond(True, lambda x, _: (x**3).sum(), lambda _, y: y.sum(), x, 2 * x)
    for placement in (Shard(0), Replicate()):
        second = adprotocol.grad(lambda x: adprotocol.grad(cubed)(x).sum())(spread(placement))
        torch.testing.assert_close(whole(second), 6 * dense())


def dtensor_gradients_and_what_they_communicate_are_those_of_hand_written_code(_rank):
    def model_loss(p, x):
        return ((x @ p["w"]) ** 2).sum() + (p["b"] * x).sum()

    def by_hand(p, x, names):
        tracked = {name: leaf.detach().requires_grad_(name in names) for name, leaf in p.items()}
        return torch.autograd.grad(model_loss(tracked, x), [tracked[name] for name in names])

    one = {"w": dense(), "b": dense()}
    wanted = adprotocol.grad(model_loss)(one, dense())
    spent = {}
    for placement in PLACEMENTS:
        p, x = {"w": spread(placement), "b": spread(placement)}, spread(Replicate())
        for where, names in ((None, ["w", "b"]), ("w", ["w"]), ("b", ["b"])):
            gradient, counts = communicated(
                lambda p=p, x=x, where=where: adprotocol.grad(model_loss, where=where)(p, x)
            )
            native, native_counts = communicated(lambda p=p, x=x, names=names: by_hand(p, x, names))
            assert counts == native_counts, (placement, where)
            assert [name for name, leaf in gradient.items() if leaf is not None] == names
            assert [gradient[name].placements for name in names] == [leaf.placements for leaf in native]
            for name in names:
                torch.testing.assert_close(whole(gradient[name]), wanted[name])
            spent[placement, where] = sum(counts.values())
    assert spent[Shard(0), "b"] < spent[Shard(0), None]  # what is frozen is not communicated for


def dtensor_gradients_share_no_memory(_rank):
    p = {"a": spread(Shard(0)), "b": spread(Shard(0))}
    gradient = adprotocol.grad(lambda p: ((p["a"] + p["b"]) ** 2).sum())(p)
    gradient["a"].mul_(0)
    torch.testing.assert_close(whole(gradient["b"]), 4 * dense())


def dtensor_parameters_of_a_module(_rank):
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)), data(0)
    value, wanted = adprotocol.value_and_grad(loss)(model, x)
    parallelize_module(model, MESH, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    (found, gradient), counts = communicated(lambda: adprotocol.value_and_grad(loss)(model, x))
    torch.testing.assert_close(found, value)
    equal(gradient, wanted)
    assert {name: leaf.placements for name, leaf in gradient.items()} == {
        name: parameter.placements for name, parameter in model.named_parameters()
    }
    _, native = communicated(lambda: torch.autograd.grad(loss(model, x), list(model.parameters())))
    assert counts == native
    for flag in (True, False):
        model[0].requires_grad_(flag)
        equal(adprotocol.grad(loss, where="2.*")(model, x), {name: wanted[name] for name in ("2.weight", "2.bias")})
        equal(adprotocol.grad(loss, where="0.*")(model, x), {name: wanted[name] for name in ("0.weight", "0.bias")})
        assert model[0].weight.requires_grad is flag


def dtensor_in_torch_func(_rank):
    x = spread(Shard(0))
    torch.testing.assert_close(whole(torch.func.grad(lambda x: layer(x).sum())(x)), 6 * dense())
    again = torch.func.grad(lambda x: adprotocol.grad(lambda y: (y**3).sum())(x).sum())
    torch.testing.assert_close(whole(again(x)), 6 * dense())
    torch.testing.assert_close(whole(torch.vmap(layer)(spread(Replicate()))), 5 * dense())
    try:
        torch.func.jvp(layer, (x,), (x,))
    except NotImplementedError:  # PyTorch's own: DTensor has no forward mode
        pass
    else:
        msg = "DTensor has forward mode now: test it here, and change docs/distributed.md"
        raise AssertionError(msg)


# Last, for it leaves the connections of its own group broken.


def an_error_in_one_process_leaves_no_other_waiting(rank):
    group = dist.new_group(timeout=timedelta(seconds=20))
    model = DistributedDataParallel(network(), process_group=group)
    if rank == 0:
        refused(lambda: adprotocol.grad(loss)(model, data(rank)))
        return
    try:
        loss(model, data(rank)).backward()
    except RuntimeError as raised:
        error = str(raised)
        words = ("imed out", "closed", "reset")  # its own time limit, or that of the other came first
        assert any(word in error for word in words), error
    else:
        msg = "the other process did not take part, but no error was raised"
        raise AssertionError(msg)


def example_of_the_page(_rank):
    page = (Path(__file__).parents[2] / "docs" / "distributed.md").read_text("utf-8")
    blocks = [part.split("```")[0] for part in page.split("```python\n")[1:]]
    (code,) = [block for block in blocks if "DistributedDataParallel(" in block]
    # The group is there already, and stays.
    lines = [line for line in code.splitlines() if "process_group(" not in line]
    namespace = {}
    exec("\n".join(lines), namespace)  # noqa: S102  (the page is ours)
    torch.testing.assert_close(namespace["gradient"]["weight"], namespace["ddp"].module.weight.grad)


# In the order in which they are written.
CHECKS = [
    item
    for name, item in list(globals().items())
    if name.startswith(("data_parallel_", "fsdp_", "dtensor_", "example_", "an_error_")) and callable(item)
]


def main(rank, folder):
    torch.set_num_threads(1)
    # Found by a file, so that tests can run side by side; a hang is an error after the time limit.
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=len(RANKS), timeout=timedelta(seconds=400)
    )
    global MESH  # noqa: PLW0603  (made once, in this process)
    MESH = init_device_mesh("cpu", (len(RANKS),))
    ran, failures = [], {}
    for check in sorted(CHECKS, key=lambda check: check.__name__.startswith("an_error")):
        torch.manual_seed(0)
        ran.append(check.__name__)
        try:
            check(rank)
        except Exception:  # noqa: BLE001  (reported by the test)
            failures[check.__name__] = traceback.format_exc()
    Path(folder, f"{rank}.json").write_text(json.dumps([ran, failures]), "utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    # Here, so that PyTorch is imported once.
    child = os.fork()
    main(int(child == 0), sys.argv[1])
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
