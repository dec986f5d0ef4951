"""The argument of a scenario: the harness, with checks of results.

A result that differs from the closed form raises `WrongAnswer`, which the runner
reports as silently wrong. Any other exception is a failure with an error.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, cast

import adprotocol
from adprotocol._dispatch.registry import REGISTRY
from adprotocol.conformance import nesting
from adprotocol.conformance.harness import KINDS, TRIED
from adprotocol.messages import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np

    from adprotocol.conformance.harness import Harness


class WrongAnswer(AssertionError):  # noqa: N818  (it reports an answer, not an error)
    """A value, gradient, structure or answer differs from the closed form, and there was no error.

    `said` is the answer of `within_gradient` by which the value differs, if it shows one.
    """

    said: bool | None = None


# The wrong answer by the factor that it puts on a result: scenarios multiply by 3 or 5, 7 or 11, 13 or 17, so that no
# other mistake looks alike.
_POWERS = [*itertools.product(range(3), repeat=3)][1:]
_SAID = {((5 / 3) ** i * (11 / 7) ** j * (17 / 13) ** k) ** e: e < 0 for i, j, k in _POWERS for e in (1, -1)}


class NoError(AssertionError):
    """An error was due, and there was none."""


class HarnessFault(Exception):  # noqa: N818
    """A function of the harness does not do what `Harness` documents."""


class Absent(Exception):  # noqa: N818
    """A scenario does not apply here; the message says why."""


class Checked:
    """Give a scenario the functions of a harness and checks of their results.

    Every capability is an attribute: ``h.grad(fun)``, ``h.jit(fun)``. `variant`
    replaces some of them.
    """

    # Raised for a result that differs.
    wrong: ClassVar[type[Exception]] = WrongAnswer

    def __init__(self, harness: Harness, variant: Mapping[str, Callable[..., Any]] | None = None) -> None:
        self.harness = harness
        self.variant: dict[str, Callable[..., Any]] = dict(variant or {})
        # The kinds of arrays that the system does not have.
        self.without: list[str] = []
        with contextlib.suppress(Exception):  # an `absent` that is no mapping is reported by itself
            self.without = [kind for kind in KINDS if kind in harness.absent]
        # What the system was found to lack besides what the harness says.
        self.lacking: set[str] = set()
        # Not empty if an answer stayed open. A list, which compilers of Python can follow.
        self.staged: list[str] = []

    def __getattr__(self, name: str) -> Any:
        try:
            return self.variant[name] if name in self.variant else getattr(self.harness, name)
        except AttributeError:
            msg = f"a harness has no {name!r}"
            raise AttributeError(msg) from None

    def has(self, *names: str) -> bool:
        """Return whether the harness has all of these capabilities and nestings, such as "grad of grad"."""
        every = {need for name in names for need in (name, *nesting.needs(name))}
        absent = {*self.lacking, *(name for name in self.harness.absent if " of " in name)}
        defined = all(self.harness.defines(name) for name in every - {*TRIED} if " of " not in name)
        return defined and not any(nesting.contains(name, one) for name in every for one in absent)

    def array(self, value: Any) -> Any:
        """Return an array of the system, unless it is of a kind that the system does not have."""
        for kind in self.without:
            self.absent_if(_is_of_kind(kind, value), f"it needs {kind} ({self.harness.absent[kind]})")
        return self.variant.get("array", self.harness.array)(value)  # type: ignore[no-untyped-call]

    def grad(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return the native gradient of `fun`."""
        grad: Any = self.variant.get("grad", self.harness.grad)
        made: Callable[..., Any] = grad(fun)
        if not callable(made):
            msg = f"grad of the harness returned {made!r:.60}, {kind_of(made)}; it returns a function"
            raise HarnessFault(msg)
        return made

    def query(self, *values: Any) -> Any:
        """Return the answer of `within_gradient`, and note whether it is still open."""
        answer = adprotocol.within_gradient(*values)
        if not isinstance(answer, bool):
            self.staged.append("within_gradient")
        return answer

    def assert_untracked(self, answer: Any, what: str) -> None:
        """Check an answer about `what`, which nobody differentiates: False, or open and False when it is computed."""
        if not isinstance(answer, bool):
            answer = bool(self.numpy(adprotocol.cond(answer, lambda: 1.0, lambda: 0.0)))
        self.check(not answer, f"the answer is True for {what}, which nobody differentiates")

    def probe(self, x: Any, *values: Any) -> Any:
        """Return 3 x where a derivative goes through one of `values`, by default x; 5 x where it goes through none."""
        return self.scale(x, 3.0, 5.0, *values)

    def scale(self, x: Any, inside: float, outside: float, *values: Any) -> Any:
        """Return `inside` times x where a derivative goes through one of `values` (by default x), else `outside` times.

        Layers that are multiplied need different factors: 3 x * 5 y equals 5 x * 3 y.
        """
        return adprotocol.cond(self.query(*(values or (x,))), lambda x: inside * x, lambda x: outside * x, x)

    def digit(self, *values: Any) -> Any:
        """Return 1 where a derivative goes through one of `values`, 0 where it goes through none."""
        return adprotocol.cond(self.query(*values), lambda: 1.0, lambda: 0.0)

    def fail(self, x: Any) -> NoReturn:
        """Raise ZeroDivisionError, after a query about `x`."""
        self.probe(x)
        msg = "raised on purpose"
        raise ZeroDivisionError(msg)

    def nest(self, transforms: str, fun: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return `fun`, from scalar to scalar, under nested transformations: "grad of jit"."""
        # Every function of the harness is an attribute here.
        return nesting.apply(cast("Harness", self), transforms, fun)

    def trace(self, way: str, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Return `fun` under `jit` or `compile`."""
        return cast("Callable[..., Any]", getattr(self, way)(fun))

    def sum_of_rows(self, fun: Callable[..., Any], *batches: Any, rows: int = 2) -> Any:
        """Return the sum of what `fun` returns under `vmap` for each row of the batches."""
        found = self.vmap(fun)(*batches)
        total = found[0]
        for i in range(1, rows):
            total = total + found[i]
        return total

    def require_staged(self, way: str) -> None:
        """Raise `Absent` if a predicate is known under `way`: it may leave the program there."""
        known: list[bool] = []

        def asked(x: Any) -> Any:
            if x > 0.0:  # compilers may take bool() of it, and no branch
                known.append(True)
            return 2.0 * x

        with contextlib.suppress(Exception):  # what refuses stages
            self.trace(way, asked)(self.harness.array(2.0))
        self.absent_if(any(known), f"its {way} runs outside of the program where a predicate is asked for")

    def absent_if(self, condition: object, why: str) -> None:
        """Raise `Absent` if a condition holds."""
        if condition:
            raise Absent(why)

    def require_hook(self, *names: str) -> None:
        """Raise `Absent` if the plugin does without each of some optional hooks."""
        plugin = REGISTRY.known().get(self.harness.name)
        if plugin is not None:
            # Dynamo, which may trace this, knows no set operations on keys.
            lacks = not [name for name in names if name in plugin.hooks]
            self.absent_if(lacks, f"the plugin {plugin.name!r} has no hook {' or '.join(names)}")

    def require_native(self, call: Callable[[], Any], want: float) -> None:
        """Raise `Absent` unless `call`, which does without adprotocol, returns `want`."""
        try:
            found = float(self.numpy(call()))
        except Exception as error:
            msg = f"the system itself refuses it: {type(error).__name__}: {error!s:.100}"
            raise Absent(msg) from error
        wrong = abs(found - want) > self.tolerance * abs(want)
        self.absent_if(wrong, f"the system itself gives {found:g} where {want:g} is right")

    def numpy(self, value: Any) -> np.ndarray[Any, Any]:
        """Return an array of the system, or a number, as a NumPy array."""
        import numpy as np  # noqa: PLC0415  (--list does without)

        if isinstance(value, adprotocol.NonDifferentiable):
            value = value.value
        plain = (bool, int, float, complex, np.ndarray, np.generic, list)
        made = np.asarray(value) if isinstance(value, plain) else self.harness.to_numpy(value)
        if not isinstance(made, np.ndarray):
            msg = f"to_numpy of the harness returned {kind_of(made)}; it returns a NumPy array"
            raise HarnessFault(msg)
        return np.squeeze(made) if "vectors" in self.without else made

    def assert_equal(self, got: Any, want: Any, what: str = "the result") -> None:
        """Compare the values and shape of an array with the closed form, a number or nested lists."""
        import numpy as np  # noqa: PLC0415  (--list does without)

        if got is None:
            msg = f"{what} is None; {_shown(want)} was expected"
            raise self.wrong(msg)
        found, expected = self.numpy(got), np.asarray(want)
        expected = np.squeeze(expected) if "vectors" in self.without else expected
        if found.shape != expected.shape:
            msg = f"{what} has shape {found.shape}; {expected.shape} was expected, with the value {_shown(expected)}"
            raise self.wrong(msg)
        tolerance = self.harness.tolerance
        if not np.allclose(found, expected, rtol=tolerance, atol=tolerance, equal_nan=False):
            msg = f"{what} is {_shown(found)}; {_shown(expected)} was expected"
            error: Any = self.wrong(msg)
            shown = [said for by, said in _SAID.items() if np.allclose(found, by * expected, rtol=tolerance, atol=0.0)]
            error.said = shown[0] if shown else None
            raise error

    def assert_gradients(self, got: Mapping[str, Any], want: Mapping[str, Any], what: str = "the gradient") -> None:
        """Compare the gradients of a dict; None stands for what takes no gradient."""
        if not isinstance(got, dict) or list(got) != list(want):
            msg = f"{what} is {got!r:.120}; a dict with the keys {list(want)} was expected"
            raise self.wrong(msg)
        for key, value in want.items():
            if value is None:
                self.assert_is(got[key], None, f"{what} at {key!r}")
            else:
                self.assert_equal(got[key], value, f"{what} at {key!r}")

    def assert_is(self, got: Any, want: Any, what: str = "the result") -> None:
        """Check that `got` is `want`, the same object."""
        if got is not want:
            msg = f"{what} is {got!r:.120}; {want!r:.120} itself was expected"
            raise self.wrong(msg)

    def check(self, condition: object, what: str) -> None:
        """Check a condition; `what` is the message if it does not hold."""
        if not condition:
            raise self.wrong(what)

    def assert_value_and_grad(
        self, fun: Callable[..., Any], arguments: Sequence[Any], value: Any, gradient: Any, what: str = ""
    ) -> None:
        """Compare value and native gradient of `fun`, with respect to its first argument, with their closed forms."""
        label = f"{what}: " if what else ""
        if self.has("value_and_grad") and "grad" not in self.variant:
            got, slope = self.harness.value_and_grad(fun)(*arguments)
            self.assert_equal(got, value, f"{label}the value under the gradient")
        else:
            slope = self.grad(fun)(*arguments)
        self.assert_equal(slope, gradient, f"{label}the gradient")

    def assert_value_and_tangent(  # noqa: PLR0913, PLR0917  (as above, and the direction)
        self, fun: Callable[..., Any], x: Any, along: Any, value: Any, tangent: Any, what: str = ""
    ) -> None:
        """Compare value and tangent of `fun` at `x`, in the direction `along`, with their closed forms."""
        label = f"{what}: " if what else ""
        got, slope = self.jvp(fun, x, along)
        self.assert_equal(got, value, f"{label}the value")
        self.assert_equal(slope, tangent, f"{label}the tangent")

    @contextlib.contextmanager
    def raises(self, *errors: type[BaseException], words: Sequence[str] = ()) -> Iterator[None]:
        """Check that the block raises one of `errors` with all of `words` in its message."""
        names = " or ".join(error.__name__ for error in errors)
        try:
            yield
        except errors as error:
            missing = [word for word in words if word not in str(error)]
            if missing:
                msg = f"the message of the {type(error).__name__} lacks {missing}: {error}"
                raise RuntimeError(msg) from error
        else:
            msg = f"no error; a {names} was expected"
            raise NoError(msg)


def _is_of_kind(kind: str, value: Any) -> bool:
    """Return whether what makes an array needs a kind of arrays; all but matrices are made of their elements."""
    import numpy as np  # noqa: PLC0415  (--list does without)

    array = np.asarray(value)
    if kind == "signed zeros":
        return array.dtype.kind == "f" and bool((np.signbit(array) & (array == 0.0)).any())
    if kind == "vectors":  # a vector of one element would be a number
        return array.ndim > 2 or array.shape == (1,)  # noqa: PLR2004  (axes of a matrix)
    return array.dtype.kind == kind[0]


def _shown(value: Any) -> str:
    import numpy as np  # noqa: PLC0415  (--list does without)

    return " ".join(np.array2string(np.asarray(value), precision=6, threshold=20).split())
