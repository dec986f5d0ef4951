"""`prevent_gradient` under PyTorch: eager, in torch.func, in forward mode, and compiled."""

from functools import partial

import pytest
import torch

from adprotocol import non_differentiable, prevent_gradient
from adprotocol.errors import GradientPreventedError

MESSAGE = "no derivative of the table"
prevented = partial(pytest.raises, GradientPreventedError, match=MESSAGE)


def guard(value):
    return prevent_gradient(value, MESSAGE)


def layer(x):
    return 2.0 * guard(x)


def leaf(value=3.0):
    return torch.tensor(value, requires_grad=True)


def test_a_leaf_raises_at_once_and_passes_where_nothing_is_recorded():
    x = leaf()
    with prevented() as caught:
        layer(x)
    assert "requires_grad is set" in str(caught.value)
    for switched_off in (torch.no_grad(), torch.inference_mode()):
        with switched_off:
            assert guard(x) is x
    assert layer(x.detach()) == 6.0
    assert layer(non_differentiable(x)) == 6.0


def test_integers_pass_and_no_operation_is_recorded():
    x = leaf()
    n = torch.tensor(3)
    assert guard(n) is n
    y = (x * guard(torch.tensor(2.0))).grad_fn
    assert [node for node, _ in y.next_functions if node is not None] == [x.expand_as(x).grad_fn.next_functions[0][0]]


def test_a_compiled_gradient_passes_what_it_does_not_differentiate():
    compiled = torch.compile(torch.func.grad(lambda x, c: x * layer(c)), fullgraph=True, backend="aot_eager")
    assert compiled(torch.tensor(3.0), torch.tensor(2.0)) == 4.0
    with pytest.raises(Exception, match=MESSAGE):
        torch.compile(torch.func.grad(lambda x, c: x * layer(c), argnums=1), fullgraph=True)(leaf(), leaf())


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


def test_a_compiled_container_and_module_raise_with_the_message():
    compiled = torch.compile(lambda x: guard({"a": [torch.ones(()), x]})["a"][1] * 2.0, fullgraph=True, backend="eager")
    assert compiled(torch.tensor(3.0)) == 6.0
    with pytest.raises(Exception, match=f"{MESSAGE} .at 'a.1'"):
        compiled(leaf())


def test_the_compiled_graph_has_no_operation_for_it():
    graphs = []

    def record(graph, _inputs):
        graphs.append([node.op for node in graph.graph.nodes])
        return graph

    x = torch.tensor(3.0)
    torch.compile(lambda x: 2.0 * guard(x), backend=record, fullgraph=True)(x)
    torch.compile(lambda x: 2.0 * x, backend=record, fullgraph=True)(x)
    assert graphs[0] == graphs[1]
