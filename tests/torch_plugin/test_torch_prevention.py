"""`prevent_gradient` under PyTorch: eager, in torch.func, in forward mode, and compiled."""

from functools import partial

import pytest
import torch

from adprotocol import prevent_gradient
from adprotocol.errors import GradientPreventedError

MESSAGE = "no derivative of the table"
prevented = partial(pytest.raises, GradientPreventedError, match=MESSAGE)


def guard(value):
    return prevent_gradient(value, MESSAGE)


def layer(x):
    return 2.0 * guard(x)


def leaf(value=3.0):
    return torch.tensor(value, requires_grad=True)


def test_where_the_graph_may_break_it_is_the_error_itself():
    @torch.compile(backend="eager")
    def broken(x):
        y = x * 2.0
        torch._dynamo.graph_break()
        return y + guard(x)

    assert broken(torch.tensor(3.0)) == 9.0
    with prevented():
        broken(leaf())
    assert broken(torch.tensor(3.0)) == 9.0
    with prevented():
        torch.compile(layer, backend="eager")(leaf())


def test_the_compiled_graph_has_no_operation_for_it():
    graphs = []

    def record(graph, _inputs):
        graphs.append([node.op for node in graph.graph.nodes])
        return graph

    x = torch.tensor(3.0)
    torch.compile(lambda x: 2.0 * guard(x), backend=record, fullgraph=True)(x)
    torch.compile(lambda x: 2.0 * x, backend=record, fullgraph=True)(x)
    assert graphs[0] == graphs[1]
