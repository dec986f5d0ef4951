"""A call of `grad` under ``torch.no_grad``: parameters that it does not select are constants in all its arguments."""

import dataclasses

import pytest
import torch
from torch.autograd import forward_ad

from adprotocol import cond, grad, value_and_grad, within_gradient


def layer(x, w):
    return cond(within_gradient(w), lambda x: 3.0 * x, lambda x: 5.0 * x, x)


def parameter(number=2.0):
    return torch.nn.Parameter(torch.tensor(number))


class Net(torch.nn.Module):
    def __init__(self, number=2.0):
        super().__init__()
        self.w = parameter(number)

    def forward(self, x):
        return layer(self.w * x, self)


@dataclasses.dataclass
class State:
    net: object
    steps: int = 0


TEACHERS = {
    "parameter": (parameter, lambda teacher: teacher),
    "dict": (lambda: {"w": [parameter()]}, lambda teacher: teacher["w"][0]),
    "module": (Net, lambda teacher: teacher.w),
    "module in a dataclass": (lambda: State(Net()), lambda teacher: teacher.net.w),
}
every_teacher = pytest.mark.parametrize(("make", "weight"), TEACHERS.values(), ids=TEACHERS)
OFF = [torch.no_grad, torch.inference_mode]


def nodes_of(value):
    found, waiting = set(), [value.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.add(node)
            waiting += [following for following, _ in node.next_functions]
    return [type(node).__name__ for node in found]


@every_teacher
@pytest.mark.parametrize("mode", OFF)
def test_a_teacher_is_a_constant(make, weight, mode):
    student, teacher = Net(1.0), make()
    seen = []

    def loss(student, teacher, x):
        seen.append((within_gradient(student), within_gradient(teacher), weight(teacher).requires_grad))
        target = layer(weight(teacher) * x, weight(teacher))
        seen.append(target.requires_grad)
        return (student(x) - target) ** 2

    held, x = weight(teacher), torch.tensor(1.0)
    with mode():
        value, gradient = value_and_grad(loss)(student, teacher, x)
    assert seen == [(True, False, False), False]
    assert value == (3.0 - 10.0) ** 2
    assert gradient["w"] == 2.0 * (3.0 - 10.0) * 3.0
    assert weight(teacher) is held
    assert held.requires_grad


@every_teacher
@pytest.mark.parametrize("transform", ["vmap", "compile", "jvp", "func.grad", "dual level"])
def test_inside_a_transformation(make, weight, transform):
    teacher = make()
    answers = []

    def slope(x):
        def loss(x, teacher):
            answers.append(within_gradient(teacher))
            return x * layer(weight(teacher), teacher)

        return grad(loss)(x, teacher)

    x = torch.tensor(1.0)
    with torch.no_grad():
        if transform == "vmap":
            found = torch.vmap(slope)(x[None])[0]
        elif transform == "compile":
            found = torch.compile(slope, backend="aot_eager")(x)
        elif transform == "jvp":
            found = torch.func.jvp(slope, (x,), (x,))[0]
        elif transform == "func.grad":
            found = torch.func.grad(lambda x: slope(x) + x, has_aux=False)(x) + 9.0
        else:
            with forward_ad.dual_level():
                found = slope(x)
    assert found == 10.0
    assert set(answers) == {False}


def test_nothing_is_recorded_for_it():
    recorded = []

    def loss(x, teacher):
        result = x * (teacher["w"].exp().sin() ** 2)
        recorded.extend(nodes_of(result))
        return result

    with torch.no_grad():
        grad(loss)(torch.tensor(1.0), {"w": parameter()})
    assert sorted(recorded) == ["AccumulateGrad", "MulBackward0"]


def test_a_parameter_that_is_selected_is_tracked_in_every_argument():
    p = parameter()
    with torch.no_grad():
        assert grad(lambda p, again, net: p * again["p"] * net.w)(p, {"p": p}, Net()) == 2.0 * 2.0 * 2.0
        net = Net()
        assert grad(lambda net, again, w: again.w * w * net.w)(net, net, net.w)["w"] == 3.0 * 4.0


def test_one_that_the_call_freezes_in_one_argument_is_a_constant_in_another():
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = parameter(2.0), parameter(3.0)

    net = Two()
    seen = []

    def loss(net, again, b):
        seen.append((within_gradient(net.a), within_gradient(again.a), within_gradient(again.b), within_gradient(b)))
        return net.a * again.b * b

    with torch.no_grad():
        assert grad(loss, where="a")(net, net, net.b)["a"] == 9.0
    assert seen == [(True, True, False, False)]
    assert dict(net.named_parameters())["b"].requires_grad


def test_a_variable_of_an_enclosing_call_is_a_constant_too():
    answers = []

    def inner(x, w):
        answers.append(within_gradient(w))
        return x * w

    def outer(w):
        with torch.no_grad():
            slope = grad(inner)(torch.tensor(1.0), w)
        return w * slope

    assert grad(outer)(parameter(3.0)) == 3.0
    assert grad(lambda net: outer(net.w))(Net(3.0))["w"] == 3.0
    assert torch.vmap(lambda c: grad(lambda net: c * outer(net.w))(Net(3.0))["w"])(torch.ones(1)) == 3.0
    assert answers == [False] * 3
