"""The fixtures that pyhf's tests of its optimisers use, on the back ends that differentiate and are installed here."""

import functools

import pyhf
import pytest

TENSORS = {
    "pytorch": pyhf.tensor.pytorch_backend,
    "pytorch64": functools.partial(pyhf.tensor.pytorch_backend, precision="64b"),
    "jax": pyhf.tensor.jax_backend,
}

# The tests name it when they are collected.
pyhf.tensor.tensorflow_backend = lambda **_: pytest.skip("TensorFlow is not installed")


@pytest.fixture(params=TENSORS)
def backend(request):
    marks = {mark.name for mark in request.node.iter_markers()}
    only = {name for name in marks if name.startswith("only_")}
    if f"skip_{request.param}" in marks or (only and f"only_{request.param}" not in only):
        pytest.skip("pyhf marks it for other back ends")
    pyhf.set_backend(TENSORS[request.param]())
    return pyhf.get_backend()


@pytest.fixture(autouse=True)
def _reset():
    pyhf.set_backend("numpy", default=True)
    pyhf.events.__dict__["__events"].clear()
    yield
    pyhf.set_backend("numpy", default=True)
