"""Leaves mistaken for others: without elements, of the dtype of the value, equal to another, read elsewhere."""

import toyad
import toyad_adprotocol as right

from mutants.gradients import after, differentiate, hook
from mutants.mutant import at, mutant
from mutants.queries import answers, ask


@mutant("value_and_grad", after)
def gradients_of_the_dtype_of_the_value(_, value, aux, found):
    """Gives each gradient in the dtype of the value."""
    return (value, aux, [toyad.cast(slope, value.dtype) for slope in found])


@mutant("value_and_grad", at("trainable"))
def no_gradient_without_elements(value):
    """Takes a leaf without elements for one that takes no gradient."""
    return None if 0 in value.shape else right.trainable(value)


@mutant("within_gradient", answers)
def nothing_without_elements(value):
    """Says False of arrays without elements."""
    return False if 0 in value.shape else ask(value)


@mutant("value_and_grad", at("identity"))
def equal_parameters_are_one(value):
    """Takes parameters of the same value for one leaf."""
    return (value.shape, value.value.tobytes()) if isinstance(value, toyad.Parameter) else right.identity(value)


@mutant("value_and_grad", hook)
def parameters_are_given_alone(fun, leaves):
    """Differentiates with respect to the parameters in the model, and not with respect to those read elsewhere."""
    copies = [toyad.Array(leaf.value) if isinstance(leaf, toyad.Parameter) else leaf for leaf in leaves]
    return differentiate(fun, copies)


@mutant("within_gradient", remembers=True)
def watched_after_an_error():
    """Says of a parameter that it is tracked once an exception has ended its gradient."""
    left, parameter_grad = [], toyad.parameter_grad

    def noting(fun, parameter):
        try:
            return parameter_grad(fun, parameter)
        except Exception:
            left.append(parameter)
            raise

    return {
        "toyad.parameter_grad": noting,
        **answers(lambda value: True if any(value is parameter for parameter in left) else ask(value)),
    }
