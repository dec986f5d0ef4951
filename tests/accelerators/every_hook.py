"""Each public function in a program that no test needs to know the framework of: an array in, an array out."""

from adprotocol import (
    NonDifferentiable,
    combine,
    cond,
    custom_derivative,
    explain,
    grad,
    non_differentiable,
    partition,
    prevent_gradient,
    trainable,
    value_and_grad,
    where,
    within_gradient,
)


def asked(x):
    within_gradient(x)
    within_gradient({"x": [x, 1.0]}, NonDifferentiable(x))
    return x * x


def explained(x):
    explain(x)
    explain({"x": [x]}, NonDifferentiable(x))
    return x * x


def branch_on_the_answer(x):
    return cond(within_gradient(x), lambda x: x * x, lambda x: x * x * x, x)


def branch_on_a_python_bool(x):
    # The operand that the branch does not use is given zeros.
    return cond(True, lambda x, y: x * x, lambda x, y: x * y, x, x * x)


def constant(x):
    return x * non_differentiable(x) * non_differentiable({"x": [x, 1]})["x"][0]


def constant_function(x):
    return x * non_differentiable(lambda y: y * x)(x)


def labelled(x):
    label = NonDifferentiable(x)
    return x * label * non_differentiable([label])[0].value


def parted(x):
    model = {"w": x, "label": NonDifferentiable(x * x), "n": 3}
    trainable(model)
    trainable(model, where="w")
    whole = combine(*partition(model))
    return whole["w"] * whole["label"]


def chosen(x):
    return where(x > x * x, lambda x: x * x, lambda x: x * x * x, x)


def prevented(x):
    return prevent_gradient(non_differentiable(x), "a constant") * x


@custom_derivative
def ruled(x):
    return x * x


# Of both kinds: one that is derived from the other is compared with it once, by its values.
ruled.defvjp(lambda ct, _y, x: (2 * ct * x,))
ruled.defjvp(lambda tangents, _y, x: 2 * tangents[0] * x)


def loss(model):
    return (model["w"] * model["w"] * model["frozen"] * model["label"]).sum()


def gradient(x):
    model = {"w": x, "frozen": x * x, "label": NonDifferentiable(x), "n": 3}
    value, gradients = value_and_grad(loss, where="w")(model)
    return gradients["w"] * value


def gradient_of_all(x):
    return grad(lambda y: (y * y * x).sum())(x)


def second_derivative(x):
    return grad(lambda y: grad(lambda z: (z * z * z * y).sum())(y).sum())(x)


WITHOUT_GRADIENTS = (
    asked, explained, branch_on_the_answer, branch_on_a_python_bool, constant, constant_function, labelled, parted,
    chosen, prevented, ruled,
)  # fmt: skip
HOOKS = (*WITHOUT_GRADIENTS, gradient, gradient_of_all, second_derivative)
