"""What a module has computed from its tensors and keeps, where these are replaced by a stand-in."""

import collections
import types
from functools import cached_property

import pytest
import torch
from torch.nn.utils import parametrize

from adprotocol import combine, partition
from adprotocol.errors import UndecidableError

ONE = torch.tensor(1.0)


class Base(torch.nn.Module):
    def __init__(self, number=2.0):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor(number))

    def forward(self, x):
        return self.square * x


class ByProperty(Base):
    @cached_property
    def square(self):
        return self.w**2


class Nested(torch.nn.Module):
    def __init__(self, number=2.0):
        super().__init__()
        self.inner = torch.nn.ModuleList([ByProperty(number)])

    def forward(self, x):
        return self.inner[0](x)


class Kept(Base):
    """Keeps the square in a container."""

    make = dict

    def __init__(self, number=2.0):
        super().__init__(number)
        self.cache = self.make()

    @property
    def square(self):
        if not self.cache:
            self.cache["square"] = self.w**2
        return self.cache["square"]


class UserKept(Kept):
    make = collections.UserDict


class NestedKept(Kept):
    make = staticmethod(lambda: {"inner": {}})

    @property
    def square(self):
        inner = self.cache["inner"]
        if not inner:
            inner["square"] = [self.w**2]
        return inner["square"][0]


class ListKept(Kept):
    make = list

    @property
    def square(self):
        if not self.cache:
            self.cache.append(self.w**2)
        return self.cache[0]


class WithHistory(Base):
    kept = None

    @property
    def square(self):
        if self.kept is None:
            self.kept = self.w**2
        return self.kept


def new_weight(net, number=5.0):
    _, rest = partition(net)
    name = "inner.0.w" if isinstance(net, Nested) else "w"
    w = torch.tensor(number, requires_grad=True)
    return w, combine({name: w}, rest, like=net)


@pytest.mark.parametrize("make", [ByProperty, Nested])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_a_stand_in_computes_a_cached_property_again(make, mode):
    net = make()
    with mode():
        net(ONE)
    w, made = new_weight(net)
    assert made(ONE) == 25.0
    assert torch.autograd.grad(made(ONE), w)[0] == 10.0
    assert net(ONE) == 4.0


@pytest.mark.parametrize("make", [Kept, UserKept, NestedKept, ListKept])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_a_stand_in_refuses_to_use_what_a_container_keeps(make, mode):
    net = make()
    with mode():
        net(ONE)
    w, made = new_weight(net)
    with pytest.raises(UndecidableError, match=rf"'cache' of a {make.__name__},.*cached_property.*or clear the attr"):
        made(ONE)
    made.cache = make.make()
    assert made(ONE) == 25.0
    assert torch.autograd.grad(made(ONE), w)[0] == 10.0
    assert net(ONE) == 4.0


def test_a_stand_in_refuses_to_use_an_attribute_with_a_history():
    net = WithHistory()
    net(ONE)
    made = new_weight(net)[1]
    with pytest.raises(UndecidableError, match="'kept' of a WithHistory"):
        made(ONE)
    made.kept = None
    assert made(ONE) == 25.0


class InObject(Base):
    """Keeps the square in an object of another class."""

    def __init__(self):
        super().__init__()
        self.kept = types.SimpleNamespace(square=None)

    @property
    def square(self):
        if self.kept.square is None:
            self.kept.square = self.w**2
        return self.kept.square


def test_a_stand_in_refuses_an_object_with_a_history():
    net = InObject()
    net(ONE)
    with pytest.raises(UndecidableError, match="InObject, which cannot be copied"):
        new_weight(net)


def test_a_stand_in_is_made_outside_of_cached_parametrizations():
    class Square(torch.nn.Module):
        def forward(self, w):
            return w**2

    net = Base()
    parametrize.register_parametrization(net, "w", Square())
    net.forward = types.MethodType(lambda self, x: self.w * x, net)
    _, rest = partition(net)
    new = {"parametrizations.w.original": torch.tensor(7.0)}
    assert combine(new, rest, like=net)(ONE) == 49.0
    with parametrize.cached():
        assert net(ONE) == 4.0
        with pytest.raises(UndecidableError, match=r"parametrize\.cached\(\)"):
            combine(new, rest, like=net)
