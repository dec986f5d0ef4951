"""Arrays and modules of the frameworks, as the checkers see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type

import jax
import jax.numpy as jnp
import torch
from torch import nn

from adprotocol import (
    combine,
    cond,
    grad,
    jacobian,
    jvp,
    non_differentiable,
    partition,
    value_and_grad,
    vjp,
    within_gradient,
)


def by_jax(x: jax.Array) -> jax.Array:
    return cond(within_gradient(x) & (x.sum() > 0), jnp.sin, jnp.cos, x).sum()


def by_torch(x: torch.Tensor) -> torch.Tensor:
    return cond(x.sum() > 0, torch.sin, torch.cos, x).sum()


def loss(model: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    output: torch.Tensor = model(x)
    return output.sum()


def main() -> None:
    x, y, model = jnp.ones(3), torch.ones(2), nn.Linear(2, 1)
    assert_type(value_and_grad(by_jax)(x), tuple[jax.Array, jax.Array])
    assert_type(jax.vmap(grad(lambda x: jnp.sin(x) * x))(x), Any)
    assert_type(non_differentiable(by_torch)(y), torch.Tensor)
    assert_type(value_and_grad(by_torch)(y), tuple[torch.Tensor, torch.Tensor])

    # The gradient of a module is a dict.
    value, gradient = value_and_grad(loss)(model, y)
    assert_type(value, torch.Tensor)
    assert sorted(gradient) == ["bias", "weight"]
    output, pull = vjp(loss, model, y)
    assert_type(output, torch.Tensor)
    assert sorted(pull(torch.ones(()))[0]) == ["bias", "weight"]
    assert_type(vjp(by_torch, y), tuple[torch.Tensor, Callable[[Any], tuple[torch.Tensor]]])
    assert_type(vjp(by_jax, x), tuple[jax.Array, Callable[[Any], tuple[jax.Array]]])
    assert_type(jvp(by_jax, (x,), (x,)), tuple[jax.Array, jax.Array])
    assert_type(jacobian(by_torch)(y), Any)
    params, rest = partition(model, where="weight")
    assert_type(combine(params, rest), dict[str, Any])
    assert combine(params, rest)["weight"] is model.weight


if __name__ == "__main__":
    main()
