"""A broken adprotocol: it imports NumPy, whoever imports it."""

import numpy as np


def within_gradient(*values):
    """Answer for numbers."""
    return any(isinstance(value, np.ndarray) for value in values)
