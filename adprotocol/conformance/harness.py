"""The harness: what the suite is told of an AD system, by its maintainer.

Three functions are needed. Each further one that a subclass defines is a
capability, and the scenarios that take it apply; the others are reported as not
applicable. A harness calls the AD system itself and never adprotocol: it is the
yardstick by which the plugin is measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

REQUIRED = ("array", "to_numpy", "grad")
CAPABILITIES = (
    "value_and_grad",
    "jvp",
    "jit",
    "compile",
    "vmap",
    "checkpoint",
    "scan",
    "stop_gradient",
    "no_grad",
    "custom_rule",
    "counter",
    "abstract",
    "parameter",
    "node",
    "threads",
    "devices",
)
# What no function of the harness brings and the suite tries itself: gradients that are differentiated in reverse again.
HIGHER_ORDER = "grad of grad"
# What a scenario may need, and a harness be without.
KNOWN = (*REQUIRED, *CAPABILITIES, HIGHER_ORDER)


class Harness:
    """Tell the conformance suite how to use an AD system.

    Define `array`, `to_numpy` and `grad`, and whatever else the system has. The
    arrays must have the operators of arithmetic, comparison and indexing, mix with
    Python numbers, and broadcast; nothing else is called on them.

    >>> from adprotocol.conformance import Harness
    >>> import autograd, numpy
    >>> class MyHarness(Harness):
    ...     name = "autograd"
    ...     absent = {"jit": "autograd does not compile"}
    ...
    ...     def array(self, value):
    ...         return numpy.asarray(value)
    ...
    ...     def to_numpy(self, array):
    ...         return array
    ...
    ...     def grad(self, fun):
    ...         return autograd.grad(fun)
    >>> h = MyHarness()
    >>> float(h.grad(lambda x: x * x)(h.array(3.0)))
    6.0

    Attributes:
        name: the name of the plugin that serves the arrays, that of its entry point.
        device: where `array` puts what it makes, or None for the default.
        tolerance: the relative error that the precision of the arrays leaves; 1e-5 suits 32 bits.
        absent: a reason for each capability that the system does not have, for the report. Only the reason for
            `grad` changes anything: it says that there is none. "grad of grad" may be named too, if gradients cannot be
            differentiated again.
    """

    name: str = ""
    device: str | None = None
    tolerance: float = 1e-5
    absent: ClassVar[Mapping[str, str]] = {}

    def __init__(self, device: str | None = None) -> None:
        self.device = device

    @property
    def variants(self) -> Mapping[str, Mapping[str, Callable[..., Any]]]:
        """Return further ways to do what a capability does, by capability and name.

        Each has the signature of the capability: ``{"grad": {"vjp": self.grad_by_vjp}}``. Scenarios that vary are
        run with each.
        """
        return {}

    def array(self, value: Any) -> Any:
        """Return an array of the system, on `device`, of a number, a bool or nested lists of them.

        The system does not track it (``requires_grad=False``). Floats become the default floating-point dtype, complex
        numbers a complex one; integers and bools stay so. A number becomes a scalar, an array of shape ().
        """
        raise NotImplementedError

    def to_numpy(self, array: Any) -> Any:
        """Return the values of an array, which no transformation under way tracks, as a NumPy array."""
        raise NotImplementedError

    def grad(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return the gradient of a scalar function with respect to its first argument, an array.

        It takes all arguments of `fun`. Where the result may not be transformed again, the system raises. An argument
        that `fun` does not use, and a result that is a constant (a Python number, if `cond` of the plugin returns
        one), give zeros, never None.
        """
        raise NotImplementedError

    def value_and_grad(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function to the value of `fun` and its gradient, as `grad`, from one run of `fun`."""
        raise NotImplementedError

    def jvp(self, fun: Callable[..., Any], primal: Any, tangent: Any) -> tuple[Any, Any]:
        """Return the value of a function of one array, and its derivative along `tangent`, in forward mode."""
        raise NotImplementedError

    def jit(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return `fun` traced once for each shape and dtype, and run from the trace afterwards."""
        raise NotImplementedError

    def compile(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return `fun` compiled in another way than by `jit`, if there is another."""
        raise NotImplementedError

    def vmap(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return `fun` over the leading axis of every argument, and stack the results."""
        raise NotImplementedError

    def checkpoint(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return `fun` so that a backward pass computes its intermediate values again."""
        raise NotImplementedError

    def scan(self, fun: Callable[..., Any], carry: Any, xs: Any) -> tuple[Any, Any]:
        """Return the last carry and the stacked ys of ``carry, y = fun(carry, x)``; `carry` may be a tuple."""
        raise NotImplementedError

    def stop_gradient(self, array: Any) -> Any:
        """Return an array with the system's own means to make it a constant."""
        raise NotImplementedError

    def no_grad(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return `fun` run under the system's own switch that stops the recording of derivatives."""
        raise NotImplementedError

    def custom_rule(self, fun: Callable[..., Any], derivative: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of one array with the values of `fun`, and ``derivative(x)`` as a rule of its own."""
        raise NotImplementedError

    def counter(self) -> tuple[Callable[..., Any], Callable[[], int]]:
        """Return the identity of an array, with a rule of its own that counts its runs, and a function to the count."""
        raise NotImplementedError

    def abstract(self, fun: Callable[..., Any], *arrays: Any) -> None:
        """Run `fun` on shapes and dtypes alone."""
        raise NotImplementedError

    def parameter(self, value: Any, *, trains: bool) -> Any:
        """Return a parameter of a model that is one leaf wherever it stands, with its flag whether it trains."""
        raise NotImplementedError

    def node(self, children: Sequence[Any]) -> Any:
        """Return an instance of a container class that the system's own registry knows, which holds `children`.

        Iterating over it yields the children.
        """
        raise NotImplementedError

    def threads(self) -> bool:
        """Tell whether the system may be used from several threads at once."""
        raise NotImplementedError

    def devices(self) -> Sequence[str]:
        """Name the devices that `device` may be here."""
        raise NotImplementedError

    def defines(self, capability: str) -> bool:
        """Tell whether a function of the protocol is defined, rather than inherited from here; None takes one away."""
        own = vars(self).get(capability, getattr(type(self), capability, None))
        return own is not None and own is not getattr(Harness, capability)
