"""A broken adprotocol: it imports NumPy, whoever imports it."""

import dataclasses

import numpy as np


def within_gradient(*values):
    """Answer for numbers."""
    return any(isinstance(value, np.ndarray) for value in values)


def trainable(tree):
    """Return a dataclass with None for what is no float."""
    kept = {name: leaf if isinstance(leaf, float) else None for name, leaf in vars(tree).items()}
    return dataclasses.replace(tree, **kept)
