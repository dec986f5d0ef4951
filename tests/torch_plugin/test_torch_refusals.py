"""What was silently wrong under PyTorch and is right now, or an error."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from adprotocol import cond, within_gradient

pytestmark = pytest.mark.usefixtures("compiler")


def layer(x):
    return cond(within_gradient(x), lambda x: 3.0 * x, lambda x: 5.0 * x, x)


@pytest.mark.parametrize("fullgraph", [True, False])
def test_a_graph_of_an_evaluation_serves_no_reentrant_checkpoint(fullgraph):
    compiled = torch.compile(layer, backend="eager", fullgraph=fullgraph)
    x = torch.ones(2, requires_grad=True)
    for _ in range(2):
        with torch.no_grad():
            assert compiled(x).tolist() == [5.0, 5.0]
        with pytest.raises(Exception, match="use_reentrant=True"):
            checkpoint(compiled, x, use_reentrant=True)
        assert compiled(x).tolist() == [3.0, 3.0]
        with torch.no_grad():  # nothing will run again
            assert checkpoint(compiled, x, use_reentrant=True).tolist() == [5.0, 5.0]
