"""DistributedDataParallel and DTensor in one process."""

import pytest
import torch
import torch.distributed as dist

from adprotocol import combine, custom_derivative
from adprotocol.errors import UndecidableError

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this build of PyTorch has no torch.distributed")


@pytest.fixture
def process_group(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore")  # torch.distributed's own deprecations
def test_there_is_no_stand_in_for_a_wrapper_and_there_is_for_its_module(process_group):
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    parameters = {name: parameter.detach() for name, parameter in ddp.module.named_parameters()}
    with pytest.raises(UndecidableError, match=r"DistributedDataParallel.* give combine `wrapper.module`"):
        combine({f"module.{name}": tensor for name, tensor in parameters.items()}, like=ddp)
    nested = torch.nn.Sequential(ddp)
    with pytest.raises(UndecidableError, match="DistributedDataParallel"):
        combine({f"0.module.{name}": tensor for name, tensor in parameters.items()}, like=nested)
    x = torch.ones(3, 2)
    torch.testing.assert_close(combine(parameters, like=ddp.module)(x), ddp.module(x))


@pytest.mark.filterwarnings("ignore")
def test_a_function_with_a_rule_of_a_distributed_tensor(process_group):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, distribute_tensor

    double = custom_derivative(lambda x: 2 * x)
    double.defvjp(lambda ct, _y, _x: (30 * ct,))
    x = distribute_tensor(torch.ones(2), init_device_mesh("cpu", (1,)), [Replicate()]).requires_grad_()
    double(x).sum().backward()
    assert torch.equal(x.grad.to_local(), torch.full((2,), 30.0))
