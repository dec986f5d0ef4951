"""Each public function in a program that no test needs to know the framework of: an array in, an array out."""

from adprotocol import (
    NonDifferentiable,
    combine,
    cond,
    custom_derivative,
    explain,
    grad,
    jacobian,
    jvp,
    non_differentiable,
    partition,
    prevent_gradient,
    trainable,
    tree_map,
    value_and_grad,
    vjp,
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


def branch_of_numbers(x):
    return x * cond(True, lambda x: 2.0, lambda x: 3.0, x)


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


def chosen_with_a_closure(x):
    c = x * x
    return where(x > c, lambda x: x * c, lambda x: x * x * x, x)


def chosen_beside_labels(x):
    node = {"x": x, "label": tree_map(lambda x: x * 2, NonDifferentiable(x))}
    return where(x > 0, lambda m: {"y": m["x"] * m["label"]}, lambda m: {"y": m["x"] * 1}, node)["y"]


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


def pulled(x):
    value, pull = vjp(lambda y, label: {"square": y * y * label, "sum": y.sum(), "c": label}, x, NonDifferentiable(x))
    first, second = pull({"square": value["square"], "sum": 1.0, "c": None}), pull(None)
    return first[0] * value["square"] + second[0]


def pushed(x):
    value, tangent = jvp(lambda y, z: {"y": y * y * z, "z": z * 1}, (x, x), (x, None))
    return value["y"] * tangent["y"] + tangent["z"]


def rows(x):
    return jacobian(lambda y: {"y": y * y * x, "sum": y.sum()})(x)["y"].sum() * x


def columns(x):
    by_both = jacobian(lambda m: m["a"] * m["b"], mode="forward")({"a": x, "b": x * x})
    return by_both["a"].sum() * by_both["b"].sum() * x


WITHOUT_GRADIENTS = (
    asked, explained, branch_on_the_answer, branch_on_a_python_bool, branch_of_numbers, constant, constant_function,
    labelled, parted, chosen, chosen_with_a_closure, chosen_beside_labels, prevented, ruled,
)  # fmt: skip
HOOKS = (*WITHOUT_GRADIENTS, gradient, gradient_of_all, second_derivative, pulled, pushed, rows, columns)
