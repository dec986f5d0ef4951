"""No hook waits for the device of a tensor, and none moves a tensor between devices.

Without a GPU: a tensor on the device ``meta`` has no data, so whatever would read it
raises; and a mode below autograd and torch.func sees each operation that PyTorch runs,
those that read a value or copy to another device among them. What makes a tensor of a
number or an array of NumPy is no such operation on ``meta``; a mode above refuses it.
"""

import every_hook
import pytest
import torch
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from adprotocol import cond, explain, partition, value_and_grad, within_gradient

VALUES = [0.5, 2.0]


class HostError(Exception):
    pass


# What makes the host wait: it returns a Python value, or its result has a size that depends on the data.
_READS = {
    "aten::_local_scalar_dense", "aten::item", "aten::equal", "aten::is_nonzero", "aten::allclose", "aten::nonzero",
    "aten::masked_select", "aten::unique", "aten::_unique2",
}  # fmt: skip
# PyTorch's own formulas of forward mode compute shapes on the device meta. A copy is `aten::_to_copy` or `aten::copy_`.
_SHAPES = {"aten::to"}


class NeverOnTheHost(TorchDispatchMode):
    """Refuse operations that read a value, or whose tensors are on two devices."""

    def __init__(self):
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operations += 1
        if func._schema.name in _READS:
            raise HostError(func)
        result = func(*args, **(kwargs or {}))
        leaves = torch.utils._pytree.tree_leaves((args, kwargs, result))
        devices = {leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)}
        if len(devices) > 1 and func._schema.name not in _SHAPES and not _is_free(func, leaves):
            raise HostError(func, devices)
        return result


class NeverFromTheHost(TorchFunctionMode):
    """Refuse to copy a number or an array of NumPy to a device, for which the host waits; a fill is free."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        makes = func in (torch.tensor, torch.as_tensor, torch.Tensor.new_tensor)
        if makes and not isinstance(args[-1], torch.Tensor) and result.device.type != "cpu":
            raise HostError(func)
        return result


def _is_free(func, leaves):
    """Return whether nothing waits, though there are two devices: no element is copied, or scalars are arguments."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if func._schema.name in ("aten::_to_copy", "aten::copy_"):
        return all(tensor.numel() == 0 for tensor in tensors)
    return all(tensor.dim() == 0 for tensor in tensors if tensor.device.type == "cpu")


def summed(f):
    return lambda x: f(x).sum()


def taped(f):
    def derivative(x):
        leaf = x.detach().clone().requires_grad_()
        return torch.autograd.grad(f(leaf).sum(), leaf)[0]

    return derivative


def dual(f):
    def derivative(x):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(f(forward_ad.make_dual(x, torch.ones_like(x)))).tangent

    return derivative


def without_gradients(f):
    return lambda x: torch.no_grad()(f)(x.detach().clone().requires_grad_())


AROUND = {
    "plain": lambda f: f,
    "backward": taped,
    "no_grad": without_gradients,
    "dual level": dual,
    "func.grad": lambda f: torch.func.grad(summed(f)),
    "func.jvp": lambda f: lambda x: torch.func.jvp(f, (x,), (torch.ones_like(x),))[1],
    "vmap": torch.func.vmap,
    "vmap of grad": lambda f: torch.func.vmap(torch.func.grad(summed(f))),
    "grad of vmap": lambda f: torch.func.grad(summed(torch.func.vmap(f))),
}
around = pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
hook = pytest.mark.parametrize("hook", every_hook.HOOKS, ids=lambda hook: hook.__name__)


@around
@hook
def test_nothing_is_read_or_moved_and_tensors_without_data_are_enough(hook, around):
    if around is dual and hook in (every_hook.pushed, every_hook.columns):
        pytest.skip("PyTorch has one dual level, inside of which a push is the transpose of a pull, checked on values")
    for x in (torch.tensor(VALUES), torch.empty(2, device="meta")):
        with NeverFromTheHost(), NeverOnTheHost() as mode:
            result = around(hook)(x)
        assert (result.shape, result.device) == ((2,), x.device)
        assert mode.operations > 0


@pytest.mark.parametrize(
    "read",
    [
        bool,
        float,
        lambda x: x.item(),
        lambda x: torch.equal(x, x),
        lambda x: x.nonzero(),
        lambda x: x.to("meta"),
        lambda x: cond(x > 0, abs, abs, 1.0),  # its value decides which branch runs
        torch.func.grad(lambda x: x * x.item()),
    ],
)
def test_the_mode_notices_what_the_host_waits_for(read):
    x = torch.tensor(2.0)
    read(x)
    with NeverOnTheHost(), pytest.raises(HostError):
        read(x)


def test_the_mode_notices_what_is_copied_from_the_host():
    for make in (torch.tensor, torch.as_tensor, lambda value, device: torch.empty(0, device=device).new_tensor(value)):
        with NeverFromTheHost(), pytest.raises(HostError):
            make(1.0, device="meta")


def network(device):
    return torch.nn.Sequential(
        torch.nn.Linear(2, 3, device=device), torch.nn.Tanh(), torch.nn.Linear(3, 1, device=device)
    )


@pytest.mark.parametrize("where", [None, "2.*", "0.weight"])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_modules(device, where):
    module, x = network(device), torch.ones(2, device=device)
    module[0].bias.requires_grad_(requires_grad=False)
    with NeverOnTheHost():
        partition(module, where)
        explain(module)
        assert within_gradient(module) is True
        _, gradients = value_and_grad(lambda m: m(x).sum(), where=where)(module)
    assert {g.device.type for g in gradients.values() if g is not None} == {device}


@pytest.mark.parametrize("shape", [(), (3,)])
def test_an_operand_of_the_other_branch_stays_on_its_device(shape):
    here, there = torch.ones(shape, requires_grad=True), torch.empty(2, device="meta")
    with NeverOnTheHost():
        result = cond(True, lambda x, y: x * 2, lambda x, y: y, there, here)
    assert result.requires_grad
    assert result.device.type == "meta"


def test_numbers_of_a_staged_branch_are_on_the_device_of_the_operands():
    without_values = lambda graph, inputs: lambda *inputs: (torch.empty((), device="meta"),)
    f = lambda x: cond(x[0] > 0, lambda x: x.sum(), lambda x: 0.0, x)
    compiled = torch.compile(f, fullgraph=True, backend=without_values)
    assert compiled(torch.empty(2, device="meta")).device.type == "meta"


def test_numbers_of_a_batched_branch_are_on_the_device_of_the_predicate():
    with torch.device("meta"):
        result = torch.vmap(lambda x: cond(x > 0, lambda: 1.0, lambda: 0.0))(torch.tensor([1.0, -1.0], device="cpu"))
    assert result.tolist() == [1.0, 0.0]
