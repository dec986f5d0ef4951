"""`check_rule`: is the derivative rule of a function right, in every mode that its framework has?

The function becomes one of a number, along a line through its arguments: the derivative
at one point is then a number too, which every mode computes in its own way.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from adprotocol import NonDifferentiable
from adprotocol._dispatch.binding import ARRAY, CONSTANT, LABEL, NUMPY, PLAIN
from adprotocol._dispatch.dtype import dtype_name, is_inexact, kind_of_dtype
from adprotocol._dispatch.table import BINDINGS, lookup
from adprotocol._gradients import framework
from adprotocol._rules.custom_derivative import CustomDerivative, custom_derivative
from adprotocol._trees.traversal import sole_framework, tree_flatten, tree_leaves, tree_unflatten
from adprotocol._trees.treespec import paths
from adprotocol.conformance._run import backend as backends
from adprotocol.conformance.checks import WrongAnswer
from adprotocol.errors import GradientPreventedError, RuleError, kind_of, one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.harness import Harness


class Finding(NamedTuple):
    """One comparison: what was differentiated and how, with what came and what was due."""

    what: str
    how: str
    got: Any
    due: Any
    agrees: bool

    def __str__(self) -> str:
        if isinstance(self.got, str):
            return f"{self.what}, {self.how}: {self.got}"
        verdict = "agrees" if self.agrees else f"gives {self.got:.8g}, and {self.due:.8g} is due"
        return f"{self.what}, {self.how}: {verdict}"


class RuleReport:
    """What `check_rule` compared."""

    def __init__(self, name: str, backend: str) -> None:
        self.name = name
        self.backend = backend
        self.findings: list[Finding] = []

    def __str__(self) -> str:
        wrong = [finding for finding in self.findings if not finding.agrees]
        head = f"the rule of {self.name} on {self.backend}: {len(self.findings)} comparisons, {len(wrong)} wrong"
        return "\n".join([head, *(f"  {finding}" for finding in wrong or self.findings)])


def check_rule(  # noqa: PLR0913
    fun: Callable[..., Any],
    *args: Any,
    static: dict[str, Any] | None = None,
    backend: str | None = None,
    finite_differences: bool = True,
    tolerance: float | None = None,
    seed: int = 0,
) -> RuleReport:
    """Compare the derivatives of a function by its rule in every mode, and with finite differences.

    >>> import numpy as np, adprotocol
    >>> from adprotocol.conformance import check_rule
    >>> @adprotocol.custom_derivative
    ... def square(x):
    ...     return x * x
    >>> @square.defvjp
    ... def square_vjp(cotangent, returned, x):
    ...     return (2.0 * cotangent * x,)
    >>> print(check_rule(square, np.array([1.0, 2.0]), backend="autograd").findings[0])
    argument 0, reverse mode: agrees

    For each array among the arguments, and for all together, in random directions:
    reverse and forward mode, finite differences, the mixed second derivatives, vmap against
    a loop, and compiled against eager, as far as the framework has them. A rule that is
    differentiated once has to refuse a second derivative.

    Args:
        fun: a function that `custom_derivative` made.
        *args: its arguments, at a point where it is smooth. Arrays of NumPy are made the
            backend's; numbers of Python are constants.
        static: its keyword arguments.
        backend: the name of a plugin; by default, that of the arrays.
        finite_differences: whether the rule is the derivative of the function. False for
            one that is meant to differ.
        tolerance: the relative error to allow; by default, one for the arrays' precision.
        seed: of the random directions.

    Returns:
        The comparisons, to be printed.

    Raises:
        WrongAnswer: some disagree; the message lists them.
        RuleError: `fun` is not such a function, or no argument is an array that takes a derivative.
        UsageError: the backend has no harness.

    After ``ChainRulesTestUtils.test_rrule`` (Julia) and ``torch.autograd.gradcheck``.
    """
    if not isinstance(fun, CustomDerivative):
        msg = f"check_rule was given {kind_of(fun)}; give a function that custom_derivative made"
        raise RuleError(msg)
    found = backend or sole_framework(args, BINDINGS.PLAIN).framework or framework.default()
    check = _Check(fun, args, static or {}, backends.find(found).harness, seed)
    check.tolerance = tolerance
    if not check.moving:
        msg = (
            "check_rule was given no array of floating-point or complex numbers among the arguments, so that there is "
            "no derivative to compare; numbers of Python are constants: pass numpy.array(2.0) for 2.0"
        )
        raise RuleError(msg)
    report = RuleReport(fun.name, found)
    with warnings.catch_warnings():
        # Frameworks warn of derivatives that are zero, as the second one of a linear function is.
        warnings.simplefilter("ignore")
        for what, moved in check.lines():
            report.findings += check.along(what, moved, finite_differences=finite_differences)
    if not all(finding.agrees for finding in report.findings):
        raise WrongAnswer(str(report))
    return report


@custom_derivative
def _real(z: Any) -> Any:
    return z.real


_real.defvjp(lambda cotangent, *_: (cotangent * (1.0 + 0.0j),))
_real.defjvp(lambda tangents, *_: _real(tangents[0]))


class _Check:
    """The function along a line through its arguments: ``weights . fun(args + s * directions)``, for a number s."""

    def __init__(self, fun: Any, args: tuple[Any, ...], static: dict[str, Any], h: Harness, seed: int) -> None:
        import numpy as np  # noqa: PLC0415  (the suite needs it)

        self.fun, self.static, self.h = fun, static, h
        self.random: Any = np.random.default_rng(seed)
        self.args = args
        self.zero = h.array(0.0)
        given, self.treespec = tree_flatten(args)
        self.leaves = [self._of_backend(leaf) for leaf in given]
        # The places of what is differentiated.
        self.moving = [i for i, leaf in enumerate(self.leaves) if _moves(leaf)]
        self.directions = {i: self._drawn(self.leaves[i]) for i in self.moving}
        results = [leaf for leaf in tree_leaves((self._call(self.leaves),)) if _moves(leaf)]
        self.weights = [self._drawn(result) for result in results]
        self.single = any(dtype_name(result.dtype) not in ("float64", "complex128") for result in results)
        self.tolerance: float | None = None
        # The size below which a derivative counts as zero: 1, or less for a function whose values are small.
        self.size = 1.0
        # By how much finite differences of second and fourth order differ: more than the latter's error.
        self.spread = 0.0

    def _of_backend(self, leaf: Any) -> Any:
        if lookup(type(leaf)).kind is LABEL:
            return NonDifferentiable(self._of_backend(leaf.value))
        return self.h.array(leaf.tolist()) if lookup(type(leaf)).kind is NUMPY else leaf

    def _drawn(self, like: Any) -> Any:
        drawn = self.random.normal(size=tuple(like.shape))
        if kind_of_dtype(like.dtype) == "complex":
            drawn = drawn + 1j * self.random.normal(size=tuple(like.shape))
        return self.h.array(drawn.tolist())

    def _call(self, leaves: list[Any]) -> Any:
        return self.fun(*tree_unflatten(self.treespec, leaves, self.args), **self.static)

    def lines(self) -> list[tuple[str, list[bool]]]:
        """Return what is differentiated: each array among the arguments alone, then all."""
        names = paths(self.treespec)
        count = len(self.leaves)
        # Flags, since TorchDynamo makes symbols of integers that change, which it does not find in a list.
        alone = [(f"argument {names[i]}", [j == i for j in range(count)]) for i in self.moving]
        return alone if len(alone) == 1 else [*alone, ("all arguments", [j in self.moving for j in range(count)])]

    def value(self, moved: list[bool], s: Any, rows: Any = None) -> Any:
        """Return the function at `s` on the line; the arrays that are not moved are at `rows` on theirs."""
        leaves = list(self.leaves)
        for i in self.moving:
            if moved[i]:
                leaves[i] = leaves[i] + s * self.directions[i]
            elif rows is not None:
                leaves[i] = leaves[i] + rows * self.directions[i]
        results = [leaf for leaf in tree_leaves((self._call(leaves),)) if _moves(leaf)]
        total: Any = 0.0
        for result, weight in zip(results, self.weights, strict=True):
            term = result * weight
            total = total + self.h.sum(_real(term) if kind_of_dtype(term.dtype) == "complex" else term)
        return total

    def along(self, what: str, moved: list[bool], *, finite_differences: bool) -> list[Finding]:
        """Return the comparisons of the derivatives along a line."""
        h = self.h

        def f(s: Any) -> Any:
            return self.value(moved, s)

        def forward(fun: Callable[..., Any]) -> Callable[..., Any]:
            return lambda s: h.jvp(fun, s, h.array(1.0))[1]

        modes = {"reverse mode": h.grad} | ({"forward mode": forward} if h.defines("jvp") else {})
        due = self._differences(f) if finite_differences else self._number(h.grad(f)(self.zero))
        rounded = 1e-3 if self.single else 1e-6
        self.size = min(1.0, max(abs(due), abs(self._number(f(self.zero))), rounded))
        # The transformations, the outermost first.
        plain: dict[str, tuple[Any, ...]] = {how: (mode,) for how, mode in modes.items()}
        staged: dict[str, tuple[Any, ...]] = {}
        for name in ("jit", "compile", "checkpoint"):
            if h.defines(name):
                staged[f"{name}, reverse mode"] = (h.grad, getattr(h, name))
                if name != "checkpoint":
                    staged[f"reverse mode, {name}"] = (getattr(h, name), h.grad)
        findings = []
        for nests in (plain, staged):
            findings += [self._compared(what, how, self._nested(f, nest), due) for how, nest in nests.items()]
            if not all(finding.agrees for finding in findings):
                return findings  # what is compared below would be wrong too
        if h.defines("vmap"):
            findings += self._batched(what, moved, f)
        nests = {f"{outer} of {inner}": (modes[outer], modes[inner]) for outer in modes for inner in modes}
        if self.fun.once():
            return findings + [self._refused(what, how, self._nested(f, nest)) for how, nest in nests.items()]
        due = self._second_differences(f) if finite_differences else self._differences(h.grad(f))
        return findings + [
            self._compared(what, how, self._nested(f, nest), due, loose=True) for how, nest in nests.items()
        ]

    def _nested(self, f: Callable[..., Any], transforms: tuple[Any, ...]) -> Callable[[], Any]:
        """Return a function that applies the transformations, and calls the result at zero."""

        def at_zero() -> Any:
            fun = f
            for transform in reversed(transforms):
                fun = transform(fun)
            return fun(self.zero)

        return at_zero

    def _batched(self, what: str, moved: list[bool], f: Callable[..., Any]) -> list[Finding]:
        h, rows = self.h, [0.0, 0.2]
        by_row = h.grad(f)

        def mapped() -> Any:
            return sum(h.to_numpy(h.vmap(by_row)(h.array(rows))))

        due = sum(self._number(by_row(h.array(row))) for row in rows)
        findings = [self._compared(what, "vmap of reverse mode", mapped, due)]
        if sum(moved) < len(self.moving):

            def shared(s: Any) -> Any:
                return h.sum(h.vmap(lambda row: self.value(moved, s, row))(h.array(rows)))

            def loop(s: Any) -> Any:
                return sum(self.value(moved, s, h.array(row)) for row in rows)

            due = self._number(h.grad(loop)(self.zero))
            how = "reverse mode of vmap over the others"
            findings.append(self._compared(what, how, self._nested(shared, (h.grad,)), due))
        return findings

    def _refused(self, what: str, how: str, way: Callable[[], Any]) -> Finding:
        """Return what a rule that is differentiated once makes of a second derivative: an error is due."""
        try:
            got = self._number(way())
        except (GradientPreventedError, RuleError):
            return Finding(what, how, "refused, as a rule that is differentiated once has to", None, agrees=True)
        return Finding(what, how, f"gives {got:.8g}, and an error is due", None, agrees=False)

    def _compared(self, what: str, how: str, way: Callable[[], Any], due: float, *, loose: bool = False) -> Finding:
        try:
            got = self._number(way())
        # The author's rule, or the framework, may raise anything.
        except Exception as error:  # noqa: BLE001
            # A rule that cannot be differentiated has no transpose.
            agrees = how == "forward mode" and isinstance(error, GradientPreventedError) and self.fun.once() != ""
            return Finding(what, how, f"raises {one_line(error)}", due, agrees)
        relative = self.tolerance or ((3e-2 if loose else 5e-3) if self.single else 1e-5)
        allowed = max(relative * max(self.size, abs(due)), min(self.spread, relative))
        return Finding(what, how, got, due, abs(got - due) <= allowed)

    def _differences(self, f: Callable[..., Any]) -> float:
        """Return the derivative at 0 by central differences of fourth order."""
        step = 3e-2 if self.single else 1e-3
        near, far = ((self._at(f, s) - self._at(f, -s)) / (2.0 * s) for s in (step, 2.0 * step))
        return self._extrapolated(near, far)

    def _second_differences(self, f: Callable[..., Any]) -> float:
        step = 1e-1 if self.single else 1e-2
        middle = self._at(f, 0.0)
        near, far = ((self._at(f, s) + self._at(f, -s) - 2.0 * middle) / s**2 for s in (step, 2.0 * step))
        return self._extrapolated(near, far)

    def _extrapolated(self, near: float, far: float) -> float:
        found = (4.0 * near - far) / 3.0
        self.spread = abs(found - near)
        return found

    def _at(self, f: Callable[..., Any], s: float) -> float:
        return self._number(f(self.h.array(s)))

    def _number(self, value: Any) -> float:
        plain = value if isinstance(value, float) else self.h.to_numpy(value)
        return float(plain)


def _moves(leaf: Any) -> bool:
    binding = lookup(type(leaf))
    if binding.kind in (ARRAY, CONSTANT):
        return binding.trainable(leaf) is not None
    return binding.kind in (NUMPY, PLAIN) and hasattr(leaf, "dtype") and is_inexact(leaf.dtype)
