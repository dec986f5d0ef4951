"""Labels among the operands of tinygrad's operators.

tinygrad asks no other class for its part in an operation: whatever is no tensor it takes for a
number, in `Tensor.ufix`, and refuses. So that method is wrapped, to take the value out of a
`NonDifferentiable` label.
"""

from __future__ import annotations

import functools
from typing import Any

from tinygrad import Tensor

from adprotocol import NonDifferentiable


def accept() -> None:
    """Wrap `Tensor.ufix`; called once, when the plugin is imported."""
    own = Tensor.ufix

    @functools.wraps(own)
    def ufix(self: Tensor, x: Any) -> Any:
        return own(self, x.value if isinstance(x, NonDifferentiable) else x)

    Tensor.ufix = ufix  # type: ignore[method-assign]
