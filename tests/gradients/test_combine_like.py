"""`combine(..., like=model)`: a module inside of a structure, and structures that do not match."""

import dataclasses

import pytest
import torch
from ad_backends import close

from adprotocol import combine, grad, partition, tree_map
from adprotocol.errors import TreeError


class TorchLine(torch.nn.Module):
    def __init__(self, slope, offset):
        super().__init__()
        self.slope = torch.nn.Parameter(torch.tensor(slope, dtype=torch.float64))
        self.offset = torch.nn.Parameter(torch.tensor(offset, dtype=torch.float64))
        self.register_buffer("scale", torch.tensor(2.0, dtype=torch.float64))

    def forward(self, x):
        return self.scale * self.slope * x + self.offset


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
