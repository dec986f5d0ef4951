"""torch_geometric: a graph network of two layers whose dropout is on where it is differentiated."""

import pytest

geometric = pytest.importorskip("torch_geometric", reason="needs torch_geometric: make libraries")
torch = pytest.importorskip("torch", reason="needs PyTorch")
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import adprotocol
from adprotocol import cond, within_gradient

EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
GRAPH = Data(x=torch.eye(3), edge_index=EDGES, y=torch.tensor([0, 1, 0]))


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(3, 4), GCNConv(4, 2)

    def forward(self, graph):
        hidden = torch.relu(self.first(graph.x, graph.edge_index))
        tracked = within_gradient(dict(self.named_parameters()))
        hidden = cond(tracked, lambda h: 2.0 * h, lambda h: h, hidden)
        return torch.log_softmax(self.second(hidden, graph.edge_index), dim=1)


def loss(model, graph):
    return torch.nn.functional.nll_loss(model(graph), graph.y)


def test_the_layers_differ_in_training_and_evaluation():
    torch.manual_seed(0)
    model = Network()
    value, gradient = adprotocol.value_and_grad(loss)(model, GRAPH)
    native = loss(model, GRAPH)
    native.backward()
    assert torch.equal(value, native.detach())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradient[name], parameter.grad)
    with torch.no_grad():
        assert not torch.equal(loss(model, GRAPH), value)
