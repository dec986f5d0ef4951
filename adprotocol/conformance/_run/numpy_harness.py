"""The harness for NumPy: without AD every answer is known, and no plugin is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from adprotocol.conformance.harness import Harness

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_DERIVATIVES = (
    "grad",
    "value_and_grad",
    "jvp",
    "stop_gradient",
    "no_grad",
    "custom_rule",
    "counter",
    "checkpoint",
    "variable",
    "backward",
)


class NumpyHarness(Harness):
    """Use NumPy alone, for the rules that hold where nothing is differentiated."""

    name = "numpy"
    tolerance = 1e-12
    absent: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(_DERIVATIVES, "NumPy does not differentiate"),
        **dict.fromkeys(("jit", "compile", "abstract"), "NumPy does not trace"),
        **dict.fromkeys(("parameter", "parameter_grad", "assign", "set_flag", "module"), "NumPy has no parameters"),
        "node": "NumPy has no containers",
        "scan": "NumPy has no scan",
        "while_loop": "NumPy has no loop; loops are Python's",
        "evaluate": "NumPy computes at once",
    }

    def array(self, value: Any) -> Any:
        """Return a NumPy array."""
        return np.asarray(value)

    def to_numpy(self, array: Any) -> Any:
        """Return the array itself."""
        return np.asarray(array)

    def vmap(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Call the function for each element of the leading axis."""
        return lambda *arrays: np.stack([fun(*row) for row in zip(*arrays, strict=True)])

    def sum(self, array: Any) -> Any:
        """Call ``np.sum``."""
        return np.sum(array)

    def where(self, mask: Any, x: Any, y: Any) -> Any:
        """Call ``np.where``."""
        return np.where(mask, x, y)

    def dtypes(self) -> Sequence[str]:
        """Name the dtypes of NumPy."""
        return ("float64", "float32", "float16")

    def cast(self, array: Any, dtype: str) -> Any:
        """Call ``astype``."""
        return array.astype(dtype)

    def threads(self) -> bool:
        """Answer True."""
        return True

    def devices(self) -> Sequence[str]:
        """Name the CPU."""
        return ("cpu",)
