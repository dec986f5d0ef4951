"""The harness of toyad: its own functions, under the names that the conformance suite calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import toyad

from adprotocol.conformance import Harness

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence


class Bag:
    """A container of things, known to toyad."""

    def __init__(self, children: Iterable[Any]) -> None:
        self.children = tuple(children)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.children)


toyad.CONTAINERS[Bag] = (lambda bag: (bag.children, None), lambda _, children: Bag(children))


class ToyHarness(Harness):
    """Describe toyad, which has every capability."""

    name = "toyad"
    tolerance = 1e-9

    def array(self, value: Any) -> toyad.Array:
        """Return an array."""
        return toyad.array(value, self.device or "cpu")

    def to_numpy(self, array: Any) -> np.ndarray:
        """Return a NumPy array."""
        return np.asarray(toyad.GRAPH.lower(array) if isinstance(array, toyad.Value) else array)

    def grad(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return the gradient."""
        return toyad.grad(fun)

    def value_and_grad(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return value and gradient."""
        return toyad.value_and_grad(fun)

    def jvp(self, fun: Callable[..., Any], primal: Any, tangent: Any) -> tuple[Any, Any]:
        """Return value and derivative along the tangent."""
        return toyad.jvp(fun, primal, tangent)

    def jit(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Trace the function once."""
        return toyad.jit(fun)

    def compile(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Trace the function and optimise the program for each kind of caller."""
        return toyad.compile(fun)

    def vmap(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Batch the function."""
        return toyad.vmap(fun)

    def checkpoint(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Run the function again on the way back."""
        return toyad.checkpoint(fun)

    def scan(self, fun: Callable[..., Any], carry: Any, xs: Any) -> tuple[Any, Any]:
        """Loop."""
        return toyad.scan(fun, carry, xs)

    def while_loop(self, continues: Callable[[Any], Any], step: Callable[[Any], Any], state: Any) -> Any:
        """Loop while a condition holds."""
        return toyad.while_loop(continues, step, state)

    def stop_gradient(self, array: Any) -> Any:
        """Return a constant."""
        return toyad.stop_gradient(array)

    def no_grad(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Switch recording off while the function runs."""

        def unrecorded(*args: Any) -> Any:
            with toyad.no_grad():
                return fun(*args)

        return unrecorded

    def custom_rule(self, fun: Callable[..., Any], derivative: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with another derivative."""
        return toyad.custom_rule(fun, derivative)

    def counter(self) -> tuple[Callable[..., Any], Callable[[], int]]:
        """Count the derivatives that are computed of an identity."""
        return toyad.counter()

    def abstract(self, fun: Callable[..., Any], *arrays: Any) -> None:
        """Trace, and compute nothing."""
        toyad.abstract(fun, *arrays)

    def parameter(self, value: Any, *, trains: bool) -> toyad.Parameter:
        """Return a parameter."""
        return toyad.Parameter(value, trains, self.device or "cpu")

    def parameter_grad(self, fun: Callable[[], Any], parameter: Any) -> Any:
        """Return the gradient with respect to a parameter that the function reads."""
        return toyad.parameter_grad(fun, parameter)

    def assign(self, parameter: toyad.Parameter, value: Any) -> None:
        """Put another value into a parameter."""
        parameter.value[...] = value

    def set_flag(self, parameter: toyad.Parameter, *, trains: bool) -> None:
        """Set the flag of a parameter."""
        parameter.trains = trains

    def module(self, parts: Mapping[str, Any], frozen: Collection[str] = (), buffers: Collection[str] = ()) -> Any:
        """Return a module."""
        made = type("Model", (toyad.Module,), {})()
        for name, part in parts.items():
            if not isinstance(part, (toyad.Module, list, dict)):
                part = self.array(part) if name in buffers else self.parameter(part, trains=name not in frozen)  # noqa: PLW2901
            setattr(made, name, part)
        return made

    def variable(self, value: Any) -> toyad.Variable:
        """Return a variable."""
        return toyad.variable(value)

    def backward(self, value: Any, cotangent: Any) -> None:
        """Add to the gradients of the variables."""
        toyad.backward(value, cotangent)

    def sum(self, array: Any) -> Any:
        """Add up the elements."""
        return toyad.sum(array)

    def where(self, mask: Any, x: Any, y: Any) -> Any:
        """Select by elements."""
        return toyad.where(mask, x, y)

    def dtypes(self) -> Sequence[str]:
        """Name the dtypes of floats."""
        return ("float64", "float32")

    def cast(self, array: Any, dtype: str) -> Any:
        """Return floats as others."""
        return toyad.cast(array, dtype)

    def operations(self) -> Mapping[str, Callable[[Any], Any]]:
        """Name functions of toyad."""
        return {
            "complex": lambda v: (1.0 + 0.0j) * v,
            "exp": toyad.exp,
            "power": lambda v: v**2.0,
            "division": lambda v: 1.0 / v,
            "where": lambda v: toyad.where(v > 0.0, v, 2.0),
            "cast": lambda v: toyad.cast(v, "float32"),
            "matmul": lambda v: toyad.matmul(v, toyad.array([[1.0, 2.0], [3.0, 4.0]])),
            "stack": lambda v: toyad.stack([1.0 - v, v]),
            "broadcast": lambda v: toyad.broadcast(v, (3, 2)),
        }

    def evaluate(self, array: Any) -> Any:
        """Return the array: toyad computes at once."""
        return array

    def node(self, children: Sequence[Any]) -> Bag:
        """Return a container of a class that toyad's registry knows."""
        return Bag(children)

    def threads(self) -> bool:
        """Each thread has its own state."""
        return True

    def devices(self) -> Sequence[str]:
        """Name the devices; that of an array is a note, no more."""
        return ("cpu", "fpga")
