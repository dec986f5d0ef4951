"""What a function to differentiate may return: a real floating-point scalar, and anything else beside it."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from ad_backends import AUTOGRAD, BACKENDS, on_every_backend

from adprotocol import ADProtocolError, cond, grad, trainable
from adprotocol._gradients.output import check_scalar
from adprotocol.errors import MixedFrameworksError, OutputError, PredicateError, SelectionError

SCALARS = [
    1.5,
    np.float64(1.5),
    np.float16(1.5),
    np.array(1.5, np.float32),
    jnp.array(1.5, jnp.bfloat16),
    jnp.array(1.5, jnp.float8_e4m3fn),
    torch.tensor(1.5, dtype=torch.bfloat16),
    torch.tensor(1.5, dtype=torch.float16),
    math.nan,
    np.float64("inf"),
]


@pytest.mark.parametrize("scalar", SCALARS, ids=lambda s: f"{type(s).__name__} {getattr(s, 'dtype', s)}")
def test_real_scalars_of_every_float_are_accepted(scalar):
    check_scalar(scalar, scalar)


@pytest.mark.parametrize(
    "wrong",
    [
        np.array(1, np.int8),
        np.array(True),
        np.array(1.5, object),
        np.datetime64("2020-01-01"),
        np.array(1j),
        np.array([1.5]),
        jnp.array(1, jnp.int4),
        jnp.array(1j),
        torch.tensor(True),
        torch.tensor(1j, dtype=torch.complex128),
        torch.zeros(0),
        torch.zeros(1, 1),
    ],
)
def test_what_is_no_real_scalar_is_refused_with_class_shape_and_dtype(wrong):
    with pytest.raises(OutputError) as caught:
        check_scalar(wrong, wrong)
    remedy = "sum()" if wrong.shape else "abs()" if "complex" in str(wrong.dtype) else "floating point"
    for said in (type(wrong).__name__, f"shape {tuple(wrong.shape)}", str(wrong.dtype), remedy):
        assert said in str(caught.value)


@on_every_backend
@pytest.mark.parametrize("output", [None, "loss", 3, True, 1j, [1.0], {"loss": 1.0}, (1.0, 2.0), object(), abs])
def test_an_output_that_is_no_array_is_refused(ad, output):
    with pytest.raises(OutputError, match=f"an? {type(output).__name__}"):
        grad(lambda x: output)(ad.make(2.0))


def converted_first(x):
    return float(x) ** 2


def taken_out(x):
    return 2.0 * x.item()


def computed_first(x):
    return float(x * x)


def squared_root_of_math(x):
    return math.sqrt(x) ** 2


# Neither framework leaves a trace of it: JAX's own gradient is zero there too, PyTorch's at best warns.
CUT_WITHOUT_TRACE = {
    ("jax", taken_out),
    ("torch", converted_first),
    ("torch", taken_out),
    ("torch", squared_root_of_math),
}


@on_every_backend
@pytest.mark.parametrize("cut", [converted_first, taken_out, computed_first, squared_root_of_math])
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True to a scalar:UserWarning")
def test_a_python_number_computed_from_what_is_tracked_is_an_error_not_zero(ad, cut, request):
    if (ad.name, cut) in CUT_WITHOUT_TRACE:
        request.applymarker(pytest.mark.xfail(reason="the framework converts a tracked scalar and leaves no trace"))
    with pytest.raises((ADProtocolError, TypeError, AttributeError)):
        grad(cut)(ad.make(3.0))


@on_every_backend
def test_a_result_of_another_framework_is_refused(ad):
    for other in BACKENDS:
        # NumPy arrays are constants of every framework.
        if other is not ad and other is not AUTOGRAD:
            with pytest.raises(MixedFrameworksError, match=f"{other.name}.*{ad.name}"):
                grad(lambda x, other=other: other.make(1.0))(ad.make(2.0))


@dataclasses.dataclass
class Shown:
    """A model whose text is written for numbers alone."""

    w: float

    def __repr__(self):
        return f"Shown({self.w:.2f})"


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: grad(lambda model: model)(Shown(1.0)), OutputError),
        (lambda: trainable(Shown(1.0), lambda path, leaf: Shown(None)), SelectionError),
        (lambda: cond(Shown(None), lambda: 1, lambda: 2), PredicateError),
    ],
    ids=["result", "predicate of where", "predicate of cond"],
)
def test_a_value_that_cannot_be_shown_is_named_by_its_class(call, error):
    with pytest.raises(error, match=r"<Shown>|returned a Shown;"):
        call()
