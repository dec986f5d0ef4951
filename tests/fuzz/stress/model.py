"""What is differentiated, and how results are compared; for every framework, and importing none of them."""

import dataclasses
from typing import Any

import numpy as np

from adprotocol import cond, within_gradient


def check(got, want, what=""):
    """Compare numbers or arrays to the digits of float32."""
    got = got.detach() if hasattr(got, "detach") else got
    if not np.allclose(np.asarray(got), want, rtol=1e-4, atol=1e-6):
        msg = f"{what}: {got} instead of {want}"
        raise AssertionError(msg)


def layer(x):
    """Return 3 x while x is differentiated, and 5 x while it is not."""
    return cond(within_gradient(x), lambda x: x * 3.0, lambda x: x * 5.0, x)


@dataclasses.dataclass
class Line:
    """A model with one of each: an array that is trained, a label, and an integer."""

    slope: Any
    offset: Any
    order: int = 2

    def at(self, x):
        return (self.slope * x + self.offset).sum() * self.order
