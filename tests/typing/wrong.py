"""Wrong programs, with what mypy / pyright say of each line; - where one is silent."""

from __future__ import annotations

import adprotocol
from adprotocol import NonDifferentiable, cond, grad, non_differentiable, value_and_grad, within_gradient


class Model:
    w: float


def loss(model: Model, x: float) -> float:
    return model.w * x


def with_aux(model: Model, x: float) -> tuple[float, str]:
    return loss(model, x), "aux"


def nothing(x: float) -> None: ...


def double(x: float) -> float:
    return 2.0 * x


model = Model()

# The answer depends on values, and may be staged: no integer, and no bool to keep.
within_gradient()  # error: call-arg / reportCallIssue
adprotocol.is_concrete()  # error: call-arg / reportCallIssue
adprotocol.explain()  # error: call-arg / reportCallIssue
swapped = ~within_gradient(1.0)  # error: operator / reportOperatorIssue
train: bool = within_gradient(1.0)  # error: assignment / reportAssignmentType

# The predicate is a boolean, the branches take the operands.
cond(1, double, double, 2.0)  # error: arg-type / reportArgumentType
cond(2.0, double, double, 2.0)  # error: arg-type / reportArgumentType
cond(True, 2.0, double, 2.0)  # error: arg-type / reportArgumentType
cond(True, double, double, "a")  # error: arg-type / reportArgumentType
cond(True, double, double)  # error: arg-type / reportArgumentType
cond(True, double, loss, 2.0)  # error: arg-type / reportArgumentType
text: str = cond(True, double, double, 2.0)  # error: assignment / reportAssignmentType

# What is differentiated is a function that returns a scalar, or with has_aux a pair.
grad(3.0)  # error: call-overload / reportArgumentType
grad(nothing)  # error: arg-type / reportArgumentType
grad(with_aux)  # error: arg-type / reportArgumentType
value_and_grad(loss, has_aux=True)  # error: arg-type / reportArgumentType reportCallIssue
grad(loss, argnums="model")  # error: arg-type / reportArgumentType reportCallIssue
grad(loss, backend=3)  # error: call-overload / reportArgumentType
grad(loss, 1)  # error: call-overload / reportCallIssue

# The result takes the arguments of the function, the first by position, and its gradient is of their type.
grad(loss)(2.0, 3.0)  # error: arg-type / reportArgumentType
grad(loss)(model)  # error: call-arg / reportCallIssue
grad(loss)(model=model, x=2.0)  # error: call-arg / reportCallIssue
grad(loss)(model, 2.0).bias  # error: attr-defined / reportAttributeAccessIssue
value, (by_model, by_x) = value_and_grad(loss)(model, 2.0)  # error: misc / reportGeneralTypeIssues

# A constant has the type of what it was made of.
non_differentiable(model).bias  # error: attr-defined / reportAttributeAccessIssue
non_differentiable(double)("a")  # error: arg-type / reportArgumentType
NonDifferentiable(1.0).value.upper()  # error: attr-defined / reportAttributeAccessIssue
{NonDifferentiable(1.0): 1}  # error: - / reportUnhashable
adprotocol.trainable(model).bias  # error: attr-defined / reportAttributeAccessIssue
adprotocol.combine()  # error: call-overload / reportCallIssue
adprotocol.combine(model, like=model).bias  # error: attr-defined / reportAttributeAccessIssue
adprotocol.register_trainable(model, ["w"])  # error: arg-type / reportArgumentType
adprotocol.register_structure(model)  # error: call-overload / reportArgumentType reportCallIssue
adprotocol.prevent_gradient(model)  # error: call-arg / reportCallIssue
adprotocol.prevent_gradient(model, 3)  # error: arg-type / reportArgumentType
adprotocol.partition(model, strict="w")  # error: call-overload / reportArgumentType reportCallIssue

# Products take the arguments of the function; a gradient for each comes back.
adprotocol.vjp(double, "a")  # error: type-var / reportArgumentType reportCallIssue
adprotocol.vjp(loss, model, 2.0)[1](1.0)[0].bias  # error: attr-defined / reportAttributeAccessIssue
adprotocol.vjp(with_aux, model, 2.0, has_aux=True)[2].bias  # error: attr-defined / reportAttributeAccessIssue
adprotocol.jvp(double, 2.0, 1.0)  # error: call-overload / reportArgumentType
adprotocol.jvp(double, (2.0,), (1.0,))[1].bias  # error: attr-defined / reportAttributeAccessIssue
adprotocol.jacobian(double, mode="both")  # error: call-overload / reportArgumentType
adprotocol.jacobian(double)("a")  # error: arg-type / reportArgumentType
adprotocol.jacobian(double, chunk_size="all")  # error: call-overload / reportArgumentType
