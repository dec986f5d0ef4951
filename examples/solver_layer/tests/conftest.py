import pytest


@pytest.fixture
def double():
    """JAX in double precision."""
    jax = pytest.importorskip("jax")
    enable = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    with enable(True):
        yield jax
