"""When two arrays count as equal, for tests of one framework alone."""

import numpy as np


def close(got, want):
    """Return whether two arrays or numbers are equal to the digits of float32."""
    got, want = np.asarray(got), np.asarray(want)
    return got.shape == want.shape and bool(np.allclose(got, want, rtol=2e-5, atol=1e-6))
