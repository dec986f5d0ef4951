"""The harness: how a maintainer describes an AD system to the suite.

Three functions are required. Each further function that a subclass defines is a
capability; scenarios that need a missing one are reported as not applicable. A
harness calls the AD system itself and never adprotocol: it is the yardstick for the
plugin.
"""

from __future__ import annotations

import functools
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

REQUIRED = ("array", "to_numpy", "grad")
# Capabilities that no function of the harness declares and the suite tries itself: grad of a grad, and arithmetic
# of floating-point arrays with integer and boolean ones.
HIGHER_ORDER, PROMOTION = "grad of grad", "type promotion"
TRIED = (HIGHER_ORDER, PROMOTION)
# Kinds of arrays that a system may lack, of which `absent` has the reason.
KINDS = ("integer arrays", "boolean arrays", "signed zeros", "vectors")


class Harness:
    """Describe an AD system to the conformance suite.

    Define `array`, `to_numpy` and `grad`, and whatever else the system has. The
    arrays must support arithmetic, comparison and indexing, mix with Python numbers,
    and broadcast; nothing else is called on them. Whether floating-point arrays mix
    with integer and boolean ones is tried.

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
        device: the device of the arrays that `array` makes, or None for the default.
        tolerance: the relative error to allow for the precision of the arrays; 1e-5 suits 32 bits.
        absent: the reason for each missing capability, for the report. A reason for `grad` says that the system does
            not differentiate at all. A nesting that the system itself refuses or gets wrong, such as "grad of jit",
            may be named too: no scenario whose nesting contains it applies. What the system refuses need not be
            named, as it is tried where a scenario fails, but may be, to give the reason. So may a kind of arrays that
            the system lacks: "integer arrays", "boolean arrays", "signed zeros" (-0.0 is 0.0), or "vectors", if every
            array is a matrix; then a number is 1 x 1 and a vector a column, and axes of length 1 are not compared.
        folder: the path of a folder that the processes of a run share and that is removed after it, for what a
            compiler keeps on disk; None where the suite runs in the caller's process.
    """

    name: str = ""
    device: str | None = None
    tolerance: float = 1e-5
    absent: ClassVar[Mapping[str, str]] = {}
    folder: ClassVar[str | None] = None

    def __init__(self, device: str | None = None) -> None:
        self.device = device

    # The bodies below are empty: what a subclass does not define raises, in the words of `_undefined`.

    @property
    def variants(self) -> Mapping[str, Mapping[str, Callable[..., Any]]]:
        """Return alternatives to a capability, by capability and name.

        Each has the signature of the capability: ``{"grad": {"vjp": self.grad_by_vjp}}``. Scenarios that vary run
        once more with each.
        """
        return {}

    def array(self, value: Any) -> Any:
        """Return an array of the system, on `device`, from a number, a bool or nested lists of them.

        It is untracked, a constant to the system: where arrays are tracked by default, mark it (``constant=True``,
        ``requires_grad=False``), and let `grad` put tracked copies in the place of its arguments. Floats get the
        default floating-point dtype, integers and bools an integer and a boolean one, complex numbers a complex one, or
        TypeError if the system has none. A number becomes an array of shape (); -0.0 keeps its sign.
        """

    def to_numpy(self, array: Any) -> Any:
        """Return the values of an array as a NumPy array; no active transformation tracks it, but a variable may."""

    def grad(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return the gradient of a scalar function with respect to its first argument, an array.

        It takes all arguments of `fun`, and returns an array. If it cannot be transformed again, the system raises.
        Count no levels of your own: `adprotocol.grad` may enclose you, and what you return must stay differentiable.
        An argument that `fun` does not use, and a constant result (a Python number, if `cond` of the plugin returns
        one), give zeros, never None. Where a graph is differentiated, build the graph of a placeholder, differentiate
        it, and put the argument in its place.
        """

    def value_and_grad(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function to the value of `fun` and its gradient, as `grad`, from one run of `fun`."""

    def jvp(self, fun: Callable[..., Any], primal: Any, tangent: Any) -> tuple[Any, Any]:
        """Return the value of a function of one array, and its derivative along `tangent`, in forward mode."""

    def jit(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return `fun` traced once for each shape and dtype, and run from the trace afterwards."""

    def compile(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return `fun` compiled in another way than by `jit`, if there is another."""

    def vmap(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return `fun` over the leading axis of every argument, and stack the results."""

    def checkpoint(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return `fun` so that a backward pass computes its intermediate values again."""

    def scan(self, fun: Callable[..., Any], carry: Any, xs: Any) -> tuple[Any, Any]:
        """Return the last carry and the stacked ys of ``carry, y = fun(carry, x)``; `carry` may be a tuple."""

    def while_loop(self, continues: Callable[[Any], Any], step: Callable[[Any], Any], state: Any) -> Any:
        """Return the last state of ``state = step(state)`` while ``continues(state)``, by the system's own loop.

        `state` is a tuple of arrays, and `continues` returns a boolean scalar.
        """

    def stop_gradient(self, array: Any) -> Any:
        """Return an array as a constant, by the system's own function."""

    def no_grad(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return `fun`, run under the system's own switch that stops recording derivatives."""

    def custom_rule(self, fun: Callable[..., Any], derivative: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of one array with the values of `fun` and ``derivative(x)`` as its derivative rule."""

    def counter(self) -> tuple[Callable[..., Any], Callable[[], int]]:
        """Return an identity whose derivative rule counts its runs, and a function that returns the count."""

    def abstract(self, fun: Callable[..., Any], *arrays: Any) -> None:
        """Run `fun` on shapes and dtypes alone."""

    def sum(self, array: Any) -> Any:
        """Return the sum of all elements, of shape ()."""

    def where(self, mask: Any, x: Any, y: Any) -> Any:
        """Return the elements of `x` where the boolean array `mask` is true, else those of `y`; all of one shape."""

    def dtypes(self) -> Sequence[str]:
        """Return the names of the floating-point dtypes, the default first: ``("float32", "float64")``."""

    def cast(self, array: Any, dtype: str) -> Any:
        """Return an array in another floating-point dtype, as `dtypes` names it, by an operation that is recorded.

        NumPy's name may be that of a method that records nothing: in MyGrad `positive(array, dtype=...)` is recorded,
        and `astype` makes a new variable.
        """

    def operations(self) -> Mapping[str, Callable[[Any], Any]]:
        """Return further operations by name: functions of a vector of two positive floats.

        Each returns an array, floating-point or complex: elementwise functions, the larger of two, products of
        matrices, concatenation, sorting, what makes complex numbers of real ones, and, which alone may be without a
        derivative, the place of the largest and what takes floats apart into bits. The suite asks about their results.
        """

    def variable(self, value: Any) -> Any:
        """Return an array that is tracked from now on, whoever asks for a derivative later.

        Its attribute `grad` is None (or zeros) before a pass, then the sum of what `backward` has given to it. `value`
        is as for `array`. A system
        that keeps the gradient of the last pass alone needs a class of the harness's own, derived from the system's,
        whose `grad` adds what is there to the sum that `backward` keeps.
        """

    def backward(self, value: Any, cotangent: Any) -> None:
        """Pull a cotangent back from a value to the variables that it was computed from, in the system's own pass."""

    def parameter(self, value: Any, *, trains: bool) -> Any:
        """Return a parameter of a model, which is one leaf wherever it stands; `trains` is its flag.

        `value` is as for `array`.
        """

    def parameter_grad(self, fun: Callable[[], Any], parameter: Any) -> Any:
        """Return the gradient of ``fun()``, a scalar, with respect to a parameter that `fun` reads.

        It is an array: zeros if `fun` does not use the parameter. In PyTorch the parameter is a leaf of the graph; in
        TensorFlow a tape watches the variable when it is read.
        """

    def assign(self, parameter: Any, value: Any) -> None:
        """Put another value into a parameter, in place, as a step of training does."""

    def set_flag(self, parameter: Any, *, trains: bool) -> None:
        """Turn the flag of a parameter on or off."""

    def module(self, parts: Mapping[str, Any], frozen: Collection[str] = (), buffers: Collection[str] = ()) -> Any:
        """Return an object of a new subclass of the system's own class of models.

        Its attributes are `parts`: a number becomes a parameter, with its flag off if its name is in `frozen`, or an
        array of the model that is none if it is in `buffers`; other modules stay as they are, and a list or a dict of
        modules becomes what the system has for it.
        """

    def evaluate(self, array: Any) -> Any:
        """Compute an array of a lazy system now, in place if the system has it so, and return it."""

    def node(self, children: Sequence[Any]) -> Any:
        """Return a container of `children` whose class the system's own registry knows.

        Iterating over it yields the children.
        """

    def threads(self) -> bool:
        """Return whether the system can be used from several threads at once."""

    def devices(self) -> Sequence[str]:
        """Return the names that `device` may have on this machine."""

    def defines(self, capability: str) -> bool:
        """Return whether a subclass defines a function; None removes one."""
        own = vars(self).get(capability, getattr(type(self), capability, None))
        return own is not None and own is not getattr(Harness, capability)


# The optional functions, in the order in which they stand above.
CAPABILITIES = tuple(
    name
    for name, member in vars(Harness).items()
    if isinstance(member, FunctionType) and name not in (*REQUIRED, "__init__", "defines")
)


def _undefined(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def undefined(h: Harness, *_arguments: Any, **_keywords: Any) -> Any:
        name = function.__name__
        remedy = f'if the system has none, say so: absent = {{"{name}": "why"}}'
        msg = f"{type(h).__qualname__} does not define {name}(); {remedy}"
        raise NotImplementedError(msg)

    return undefined


for _name in (*REQUIRED, *CAPABILITIES):
    setattr(Harness, _name, _undefined(getattr(Harness, _name)))

# The capabilities that a scenario may need.
KNOWN = (*REQUIRED, *CAPABILITIES, *TRIED, *KINDS)
