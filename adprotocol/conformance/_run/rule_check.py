"""`check_rule`: is the derivative rule of a function right, in every mode that its framework has?

The function becomes one of a number, along a line through its arguments: the derivative
at one point is then a number too, which every mode computes in its own way.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import SkipTest

from adprotocol import NonDifferentiable
from adprotocol._dispatch.binding import ARRAY, CONSTANT, LABEL, NUMPY, PLAIN
from adprotocol._dispatch.dtype import dtype_name, is_inexact, kind_of_dtype
from adprotocol._dispatch.table import BINDINGS, lookup
from adprotocol._gradients import framework
from adprotocol._rules.custom_derivative import CustomDerivative, custom_derivative
from adprotocol._trees.traversal import sole_framework, tree_flatten, tree_leaves, tree_unflatten
from adprotocol._trees.treespec import paths
from adprotocol.conformance import nesting
from adprotocol.conformance._run import backend as backends
from adprotocol.conformance._run.run import Run
from adprotocol.conformance.checks import Absent, Checked, WrongAnswer
from adprotocol.errors import GradientPreventedError, RuleError
from adprotocol.messages import kind_of, one_line

if TYPE_CHECKING:
    from collections.abc import Callable


class Finding(NamedTuple):
    """One comparison: what was differentiated and how, and what came of it."""

    what: str
    how: str
    verdict: str
    agrees: bool

    def __str__(self) -> str:
        return f"{self.what}, {self.how}: {self.verdict}"


class RuleReport:
    """Hold what `check_rule` compared."""

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
    reverse and forward mode, finite differences, the second derivatives, values and
    derivatives under vmap against a loop, and compiled against eager, as far as the
    framework has them. A rule that is differentiated once has to refuse a second
    derivative; any other may, with `GradientPreventedError`.

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
        SkipTest: an argument is an array of a library without AD; pytest and unittest report the test as skipped.
        RuleError: `fun` is not such a function, or no argument is an array that takes a derivative.
        UsageError: the backend has no harness.

    After ``ChainRulesTestUtils.test_rrule`` (Julia) and ``torch.autograd.gradcheck``.
    """
    if any(lookup(type(leaf)) is BINDINGS.WITHOUT_AD for leaf in tree_leaves(args)):
        msg = "check_rule was given an array of a library without AD, which has no derivative to compare"
        raise SkipTest(msg)
    if not isinstance(fun, CustomDerivative):
        msg = f"check_rule was given {kind_of(fun)}; give a function that custom_derivative made"
        raise RuleError(msg)
    found = backend or sole_framework(args, BINDINGS.PLAIN).framework or framework.default()
    check = _Check(fun, args, static or {}, Run(backends.find(found)), seed, tolerance)
    if not check.moving:
        msg = "check_rule was given no array of floating-point or complex numbers; pass numpy.array(2.0) for 2.0"
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

    def __init__(  # noqa: PLR0913, PLR0917
        self, fun: Any, args: tuple[Any, ...], static: dict[str, Any], run: Run, seed: int, tolerance: float | None
    ) -> None:
        import numpy as np

        h = run.harness
        self.fun, self.args, self.static, self.run, self.h = fun, args, static, run, h
        self.random: Any = np.random.default_rng(seed)
        self.zero = h.array(0.0)
        given, self.treespec = tree_flatten(args)
        self.leaves = [self._of_backend(leaf) for leaf in given]
        # The places of what is differentiated.
        self.moving = [i for i, leaf in enumerate(self.leaves) if _moves(leaf)]
        self.directions = {i: self._drawn(self.leaves[i]) for i in self.moving}
        results = self._results(self.leaves)
        self.weights = [self._drawn(result) for result in results]
        # A number of Python is of double precision.
        dtypes = [result.dtype if hasattr(result, "dtype") else np.result_type(result) for result in results]
        self.single = any(dtype_name(dtype) not in ("float64", "complex128") for dtype in dtypes)
        self.tolerance = tolerance

    def _of_backend(self, leaf: Any) -> Any:
        if lookup(type(leaf)).kind is LABEL:
            return NonDifferentiable(self._of_backend(leaf.value))
        return self.h.array(leaf.tolist()) if lookup(type(leaf)).kind is NUMPY else leaf

    def _drawn(self, like: Any) -> Any:
        shape = tuple(getattr(like, "shape", ()))
        drawn = self.random.normal(size=shape)
        if isinstance(like, complex) or kind_of_dtype(getattr(like, "dtype", None)) == "complex":
            drawn = drawn + 1j * self.random.normal(size=shape)
        return self.h.array(drawn.tolist())

    def _results(self, leaves: list[Any]) -> list[Any]:
        result = self.fun(*tree_unflatten(self.treespec, leaves, self.args), **self.static)
        return [leaf for leaf in tree_leaves((result,)) if _moves(leaf) or isinstance(leaf, (float, complex))]

    def lines(self) -> list[tuple[str, list[bool]]]:
        """Return what is differentiated: each array among the arguments alone, then all."""
        names = paths(self.treespec)
        count = len(self.leaves)
        # Flags, since TorchDynamo makes symbols of integers that change, which it does not find in a list.
        alone = [(f"argument {names[i]}", [j == i for j in range(count)]) for i in self.moving]
        return alone if len(alone) == 1 else [*alone, ("all arguments", [j in self.moving for j in range(count)])]

    def value(self, moved: list[bool], s: Any) -> Any:
        """Return the function at `s` on the line."""
        leaves = list(self.leaves)
        for i in self.moving:
            if moved[i]:
                leaves[i] = leaves[i] + s * self.directions[i]
        total: Any = 0.0
        for result, weight in zip(self._results(leaves), self.weights, strict=True):
            term = result * weight
            total = total + self.h.sum(_real(term) if kind_of_dtype(weight.dtype) == "complex" else term)
        return total

    def along(self, what: str, moved: list[bool], *, finite_differences: bool) -> list[Finding]:
        """Return the comparisons of the derivatives along a line, up to the first kind that disagrees."""
        h = self.h

        def f(s: Any) -> Any:
            return self.value(moved, s)

        modes = {"reverse mode": "grad"} | ({} if self.fun.linear is None else {"forward mode": "jvp"})
        staged = ("jit", "compile", "checkpoint")
        first = self._differences(f) if finite_differences else self._number(h.grad(f)(self.zero))
        # A derivative counts as zero below this size, that of the function where its values are small.
        size = min(1.0, max(abs(first), abs(self._number(f(self.zero))), 1e-3 if self.single else 1e-6))
        relative = self.tolerance or (5e-3 if self.single else 1e-5)
        findings: list[Finding] = []

        def compare(nests: dict[str, str], due: float | None, allowed: float, at: float = 0.0) -> bool:
            """Compare `f` under the nestings that the system has, at a point; return whether all has agreed."""
            for how, transforms in nests.items():
                if Checked(h).has(transforms) and (verdict := self._verdict(transforms, f, at, due, allowed)):
                    findings.append(Finding(what, how, *verdict))
            return all(finding.agrees for finding in findings)

        allowed = relative * max(size, abs(first))
        if not compare(modes, first, allowed):
            return findings
        row = 0.2  # and twice that; two rows of zero show nothing
        nests = {f"{name}, reverse mode": f"grad of {name}" for name in staged}
        nests |= {f"reverse mode, {name}": f"{name} of grad" for name in staged if name != "checkpoint"}
        if not compare(nests, first, allowed):
            return findings
        for how, name, g in (("the value, vmap", "vmap", f), ("vmap of reverse mode", "vmap of grad", h.grad(f))):
            loop = sum(self._number(g(h.array(row * scale))) for scale in nesting.BATCH) if h.defines("vmap") else 0.0
            compare({how: name}, loop, relative * max(size, abs(loop)), row)
        # A rule that is differentiated once has to refuse a second derivative.
        second = None if self.fun.once() else self._differences(h.grad(f))
        allowed = (self.tolerance or (3e-2 if self.single else 1e-5)) * max(size, abs(second or 0.0))
        nests = {f"{outer} of {inner}": f"{modes[outer]} of {modes[inner]}" for outer in modes for inner in modes}
        compare(nests, second, allowed)
        return findings

    def _verdict(
        self, transforms: str, f: Callable[..., Any], at: float, due: float | None, allowed: float
    ) -> tuple[str, bool] | None:
        """Return what a derivative gives beside what is due, a number or (None) a refusal, and whether it agrees.

        None if the system itself refuses the nesting.
        """
        try:
            got = self._number(nesting.apply(self.h, transforms, f)(self.h.array(at)))
        # The author's rule, or the framework, may raise anything.
        except Exception as error:  # noqa: BLE001
            if due is None and isinstance(error, (GradientPreventedError, RuleError)):
                return "refused, as a rule that is differentiated once has to", True
            if isinstance(self.run.native(transforms), Absent):
                return None
            # A rule may use what has a first derivative alone, and say so.
            if isinstance(error, GradientPreventedError) and transforms.count("grad") + transforms.count("jvp") > 1:
                return f"refused: {one_line(error)}", True
            # A rule that cannot be differentiated has no transpose.
            transposed = transforms == "jvp" and isinstance(error, GradientPreventedError) and self.fun.once() != ""
            return f"raises {one_line(error)}", transposed
        if due is None:
            return f"gives {got:.8g}, and an error is due", False
        agrees = abs(got - due) <= allowed
        return "agrees" if agrees else f"gives {got:.8g}, and {due:.8g} is due", agrees

    def _differences(self, f: Callable[..., Any]) -> float:
        """Return the derivative at 0 by central differences of fourth order."""

        def at(s: float) -> float:
            return self._number(f(self.h.array(s)))

        step = 3e-2 if self.single else 1e-3
        near, far = ((at(s) - at(-s)) / (2.0 * s) for s in (step, 2.0 * step))
        return (4.0 * near - far) / 3.0

    def _number(self, value: Any) -> float:
        return float(value if isinstance(value, float) else self.h.to_numpy(value))


def _moves(leaf: Any) -> bool:
    binding = lookup(type(leaf))
    if binding.kind in (ARRAY, CONSTANT):
        return binding.trainable(leaf) is not None
    return binding.kind in (NUMPY, PLAIN) and hasattr(leaf, "dtype") and is_inexact(leaf.dtype)
