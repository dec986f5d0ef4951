"""What a derivative costs on PyTorch: graphs, nodes and saved tensors; and which of ten layers are trained."""

import itertools

import torch


def compiled(f, backend="aot_eager"):
    return torch.compile(f, fullgraph=True, backend=backend)


class Counting:
    """A backend that keeps the graphs it is given."""

    def __init__(self):
        self.graphs = []

    def __call__(self, module, inputs):
        self.graphs.append([(node.op, str(node.target)) for node in module.graph.nodes])
        return module


def nodes(value):
    """Return the names of the nodes in the graph of a tensor, sorted."""
    waiting, seen = [value.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting.extend(parent for parent, _ in node.next_functions)
    return sorted(type(node).__name__ for node in seen)


def cost(call):
    """What `call` made: nodes of the graph, shapes of saved tensors, and of those that backward read."""
    graph, packed, used = [], [], []

    def seen(value):
        graph.append(nodes(value))
        return value

    def pack(tensor):
        packed.append(tuple(tensor.shape))
        return tensor

    def unpack(tensor):
        used.append(tuple(tensor.shape))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        call(seen)
    return graph, packed, used


DEPTH = 10


def _trained_layers(share, place):
    count = DEPTH - DEPTH * share // 100
    start = {"front": DEPTH - count, "middle": (DEPTH - count) // 2, "end": 0}[place]
    return range(start, start + count)


TRAINED = {
    f"{share} % frozen, at the {place}": [
        (i, name) for i in _trained_layers(share, place) for name in ("weight", "bias")
    ]
    for share, place in ((0, "front"), *itertools.product((50, 90), ("front", "middle", "end")))
} | {f"all but {i}.{name}": [(i, name)] for i, name in ((0, "bias"), (5, "weight"), (9, "weight"))}
