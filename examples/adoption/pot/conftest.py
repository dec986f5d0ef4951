"""What the tests of POT expect of their conftest, which its source distribution leaves out."""

import functools

import pytest
from ot.backend import get_backend_list

BACKENDS = get_backend_list()


@pytest.fixture(params=BACKENDS, ids=str)
def nx(request):
    return request.param


def skip_backend(name, reason="not for this backend"):
    """Skip a test for the backend of that name."""

    def decorate(test):
        @functools.wraps(test)
        def wrapped(*args, nx, **others):
            if nx.__name__ == name:
                pytest.skip(reason)
            return test(*args, nx=nx, **others)

        return wrapped

    return decorate


pytest.skip_backend = skip_backend
