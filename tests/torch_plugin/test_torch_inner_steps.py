"""Gradients of gradients by parameters: inner steps, with our own derivative or `backward()` outside."""

import pytest
import torch

import adprotocol
from adprotocol import grad, non_differentiable
from adprotocol.errors import UndecidableError

# Inner steps of MAML on 3/2 p²: each multiplies p by 1 - 3/10, which is also the factor of the whole derivative.
RATE, FACTOR = 0.1, 0.7


def inner(parameters):
    return 1.5 * parameters["w"] ** 2


def adapted(parameters, steps, at=lambda parameters: parameters):
    for _ in range(steps):
        gradient = grad(inner)(at(parameters))
        parameters = {"w": parameters["w"] - RATE * gradient["w"]}
    return 0.5 * parameters["w"] ** 2


@pytest.fixture
def scale():
    module = torch.nn.Module()
    module.w = torch.nn.Parameter(torch.tensor(2.0))
    return module


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_inner_steps_within_our_own_gradient_are_differentiated_as_a_whole(scale, steps):
    found = grad(lambda m: adapted(dict(m.named_parameters()), steps))(scale)["w"]
    torch.testing.assert_close(found, torch.tensor(2.0 * FACTOR ** (2 * steps)))
    plain = torch.tensor(2.0, requires_grad=True)
    adapted({"w": plain}, steps).backward()
    torch.testing.assert_close(plain.grad, torch.tensor(2.0 * FACTOR ** (2 * steps)))


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("made", [False, True], ids=["dict", "stand-in"])
def test_inner_steps_at_constants_are_of_first_order(scale, steps, made):
    def at(parameters):
        return (
            adprotocol.combine(non_differentiable(parameters), like=scale) if made else non_differentiable(parameters)
        )

    def by_module(module):
        return 1.5 * (module.w if made else module["w"]) ** 2

    parameters = dict(scale.named_parameters())
    for _ in range(steps):
        gradient = grad(by_module)(at(parameters))
        parameters = {"w": parameters["w"] - RATE * gradient["w"]}
    (0.5 * parameters["w"] ** 2).backward()
    torch.testing.assert_close(scale.w.grad, torch.tensor(2.0 * FACTOR**steps))


def test_one_inner_step_is_of_first_order_and_a_derivative_of_a_second_is_refused(scale):
    adapted(dict(scale.named_parameters()), 1).backward()
    torch.testing.assert_close(scale.w.grad, torch.tensor(2.0 * FACTOR))
    for steps in (2, 3):
        loss = adapted(dict(scale.named_parameters()), steps)  # right where nothing is differentiated outside
        torch.testing.assert_close(loss.detach(), torch.tensor(0.5 * (2.0 * FACTOR**steps) ** 2))
        with pytest.raises(UndecidableError, match=r"second inner step.*at non_differentiable\(parameters\)"):
            loss.backward()
    _, pull = adprotocol.vjp(inner, {"w": scale.w - RATE * grad(inner)({"w": scale.w})["w"]})
    with pytest.raises(UndecidableError, match="second inner step"):
        pull(1.0)[0]["w"].backward()
