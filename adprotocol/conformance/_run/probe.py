"""A check for each capability of a harness, on a function with a closed form."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from adprotocol.conformance.checks import Absent, Checked, HarnessFault
from adprotocol.conformance.harness import HIGHER_ORDER, PROMOTION
from adprotocol.errors import kind_of, one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.harness import Harness

# Beyond this tolerance a wrong answer could pass; half precision needs 1e-3.
LOOSEST = 0.01


class Probe(Checked):
    """Check the capabilities of a harness, each in the method of its name, where ``x`` is 3.

    A result that differs is a fault of the harness. Arrays are remembered with the
    values that they were made from, to detect changes in place.
    """

    wrong = HarnessFault

    def __init__(self, harness: Harness, variant: Mapping[str, Callable[..., Any]] | None = None) -> None:
        super().__init__(harness, variant)
        self.made: list[tuple[Any, Any]] = []

    def array(self, value: Any) -> Any:
        """Return an array that the harness makes of a value, and remember both."""
        made = self.harness.array(value)
        if made is None or isinstance(made, (bool, int, float, list)):
            what = f"array({value!r}) returned {made!r:.60}, {kind_of(made)}"
            raise HarnessFault(f"{what}; it returns an array of the system")
        self.made.append((made, value))
        return made

    def unchanged(self, capability: str) -> None:
        """Check that no array has been changed in place."""
        import numpy as np  # noqa: PLC0415  (--list does without)

        tolerance = self.harness.tolerance
        for made, value in self.made:
            found = self.numpy(made)
            if not np.allclose(found, value, rtol=tolerance, atol=tolerance):
                what = f"{capability} changed its input in place, from {value} to {found}"
                raise HarnessFault(f"{what}; it must leave it as it is")

    def _pair(self, made: Any, what: str) -> Any:
        if not isinstance(made, (tuple, list)) or len(made) != 2:  # noqa: PLR2004
            raise HarnessFault(f"{what} returned {made!r:.80}; it returns two things")
        return made

    def _names(self, call: str, what: str) -> Any:
        found = getattr(self, call)()
        named = found and not isinstance(found, str) and all(isinstance(name, str) for name in found)
        self.check(named, f"{call}() returned {found!r:.60}; it returns the names of the {what}, at least one")
        return found

    def _of_system(self, made: Any, x: Any, what: str) -> None:
        """Check that a result is an array of the system, with which it computes."""
        packages = {base.__module__.partition(".")[0] for base in type(x).__mro__}
        if type(made).__module__.partition(".")[0] not in packages:
            wanted = f"an array of the system, as array() does, here {kind_of(x)}"
            raise HarnessFault(f"{what} returned {kind_of(made)}; it returns {wanted}")
        want = 2.0 * self.numpy(made) + self.numpy(x)
        self.assert_equal(2.0 * made + x, want, f"twice what {what} returned, plus 3,")

    def _same_function(self, name: str, x: Any) -> None:
        made = getattr(self, name)(lambda x, y: x * x + y)
        self.check(callable(made), f"{name}(fun) returned {made!r:.60}; it returns a function")
        for _ in range(2):
            self.assert_equal(made(x, self.array(1.0)), 10.0, f"{name} of x * x + y at 3, 1")

    _check_jit = functools.partialmethod(_same_function, "jit")
    _check_compile = functools.partialmethod(_same_function, "compile")
    _check_checkpoint = functools.partialmethod(_same_function, "checkpoint")
    _check_no_grad = functools.partialmethod(_same_function, "no_grad")

    def _check_array(self, x: Any) -> None:
        loose = self.harness.tolerance
        known = isinstance(loose, (int, float)) and not isinstance(loose, bool) and 0 <= loose <= LOOSEST
        self.check(known, f"tolerance is {loose!r:.60}; it is a number from 0 to {LOOSEST:g}")
        square = [[1.0, 2.0], [3.0, 4.0]]
        self.assert_equal(x, 3.0, "to_numpy(array(3.0))")
        self.assert_equal(self.array(square), square, f"to_numpy(array({square}))")
        negative = math.copysign(1.0, self.numpy(self.array(-0.0))) < 0
        self.check(negative, "to_numpy(array(-0.0)) is 0; it keeps the sign")
        for value, kinds, name in ((2.0, "f", "floating-point"), (2, "iu", "integer"), (True, "b", "boolean")):
            made = self.numpy(self.array(value))
            what = f"array({value!r}) is of dtype {made.dtype} and shape {made.shape}"
            self.check(made.dtype.kind in kinds and made.shape == (), f"{what}; a {name} scalar was expected")

    def _check_to_numpy(self, x: Any) -> None:
        import numpy as np  # noqa: PLC0415  (--list does without)

        made = self.harness.to_numpy(x)
        if not isinstance(made, np.ndarray) or made.shape != () or made != 3.0:  # noqa: PLR2004
            what = f"to_numpy(array(3.0)) returned {made!r:.60}, {kind_of(made)}"
            raise HarnessFault(f"{what}; it returns a NumPy array, 3")
        y = self.array([1.0, 2.0])
        self.assert_equal(2 * x, 6.0, "2 * array(3.0)")
        self.assert_equal(x * 2, 6.0, "array(3.0) * 2")
        text = "(2 * array(3.0) + array([1.0, 2.0])[1] - 1) / 2 - y"
        self.assert_equal((2.0 * x + y[1] - 1.0) / 2.0 - y, [2.5, 1.5], text)
        self.assert_equal(x > y[1], np.True_, "array(3.0) > array([1.0, 2.0])[1]")

    def _check_grad(self, x: Any) -> None:
        y, v = self.array(2.0), self.array([3.0, 4.0])
        self.assert_equal(self.grad(lambda x, y: x * x * y)(x, y), 12.0, "grad of x * x * y at 3, 2")
        self.assert_equal(self.grad(lambda v: v[0] * v[1])(v), [4.0, 3.0], "grad of v[0] * v[1] at [3, 4]")
        unused = self.grad(lambda x, y: y * y)(x, y)  # noqa: ARG005
        self.assert_equal(unused, 0.0, "the gradient in x of y * y, which does not use x,")
        self._of_system(self.grad(lambda x: x * x)(x), x, "grad of x * x at 3")

    def _check_value_and_grad(self, x: Any) -> None:
        made = self.value_and_grad(lambda x, y: x * x * y)(x, self.array(2.0))
        value, gradient = self._pair(made, "value_and_grad(fun)(x, y)")
        self.assert_equal(value, 18.0, "the value of value_and_grad")
        self.assert_equal(gradient, 12.0, "the gradient of value_and_grad")

    def _check_jvp(self, x: Any) -> None:
        value, tangent = self._pair(self.jvp(lambda x: x * x, x, self.array(2.0)), "jvp(fun, primal, tangent)")
        self.assert_equal(value, 9.0, "the value of jvp of x * x at 3")
        self.assert_equal(tangent, 12.0, "the tangent of jvp of x * x at 3 along 2")

    def _check_vmap(self, x: Any) -> None:
        y = self.array([1.0, 2.0])
        got = self.vmap(lambda a, b: a * b + 1.0)(y, self.array([[1.0, 1.0], [2.0, 3.0]]))
        self.assert_equal(got, [[2.0, 2.0], [5.0, 7.0]], "vmap of a * b + 1")
        self.assert_equal(self.vmap(lambda a: a * x)(y), [3.0, 6.0], "vmap of a * x, which closes over x")

    def _check_scan(self, x: Any) -> None:
        made = self.scan(lambda c, a: ((c[0] * a, c[1] + a), c[0]), (x, 0.0 * x), self.array([2.0, 4.0]))
        carry, ys = self._pair(made, "scan")
        self.assert_equal(carry[0], 24.0, "the first carry of scan")
        self.assert_equal(carry[1], 6.0, "the second carry of scan")
        self.assert_equal(ys, [3.0, 6.0], "the stacked ys of scan")

    def _check_while_loop(self, x: Any) -> None:
        last = self.while_loop(lambda s: s[0] > 0.5, lambda s: (s[0] - 1.0, s[1] * 2.0), (x, x))  # noqa: PLR2004
        found, doubled = self._pair(last, "while_loop")
        self.assert_equal(found, 0.0, "the count of while_loop, down from 3")
        self.assert_equal(doubled, 24.0, "3 doubled by while_loop, three times")

    def _slope(self, fun: Callable[[Any], Any], at: Any, want: Any, what: str) -> None:
        """Check the gradient of a function, if the harness has one."""
        if self.has("grad"):
            self.assert_equal(self.grad(fun)(at), want, what)

    def _check_custom_rule(self, x: Any) -> None:
        f = self.custom_rule(lambda x: x * x, lambda _: 7.0)
        self.assert_equal(f(x), 9.0, "a function with a rule of its own")
        self._slope(f, x, 7.0, "its gradient")

    def _check_counter(self, x: Any) -> None:
        identity, count = self._pair(self.counter(), "counter()")
        self.assert_equal(identity(x), 3.0, "the identity of counter")
        before = count()
        self._slope(lambda x: identity(x) * x, x, 6.0, "the gradient of identity(x) * x")
        counted = not self.has("grad") or count() > before
        self.check(counted, f"the counter stayed at {count()} although its identity was differentiated")

    def _check_stop_gradient(self, x: Any) -> None:
        self.assert_equal(self.stop_gradient(x), 3.0, "stop_gradient of 3")
        self._slope(lambda x: self.stop_gradient(x) * x, x, 3.0, "the gradient of stop_gradient(x) * x at 3")

    def _check_abstract(self, x: Any) -> None:
        ran: list[Any] = []
        self.abstract(lambda x: ran.append(x) or x * x, x)  # type: ignore[func-returns-value]
        self.check(ran, "abstract(fun, x) did not run the function")

    def _check_sum(self, x: Any) -> None:
        y = self.array([[1.0, 2.0], [3.0, 4.0]])
        self.assert_equal(self.sum(y), 10.0, "sum of [[1, 2], [3, 4]]")
        self._slope(lambda x: self.sum(x * y), x, 10.0, "the gradient of sum(x * [[1, 2], [3, 4]]) in x")

    def _check_where(self, x: Any) -> None:
        y, z = self.array([1.0, 5.0]), self.array([7.0, 8.0])
        self.assert_equal(self.where(y > x, y, z), [7.0, 5.0], "where(y > 3, y, z) of [1, 5] and [7, 8]")
        what = "the gradient of where(y > 3, y * y, z)[1] at [1, 5]"
        self._slope(lambda y: self.where(y > x, y * y, z)[1], y, [0.0, 10.0], what)

    def _check_dtypes(self, x: Any) -> None:
        found, dtype = self._names("dtypes", "floating-point dtypes"), self.numpy(x).dtype
        what = f"dtypes() begins with {found[0]!r}, and to_numpy(array(3.0)) is of dtype {dtype}"
        self.check(dtype.name == found[0], what)

    def _check_cast(self, x: Any) -> None:
        self.check(self.has("dtypes"), "cast needs dtypes(), which says the names to cast to")
        for name in self.dtypes():
            made = self.cast(x, name)
            self.assert_equal(made, 3.0, f"cast(array(3.0), {name!r})")
            dtype = self.numpy(made).dtype
            # NumPy lacks some, such as bfloat16.
            self.check(dtype.name in (name, "float32"), f"cast(array(3.0), {name!r}) is of dtype {dtype}")

    def _check_operations(self, x: Any) -> None:  # noqa: ARG002
        found = self.operations()
        named = isinstance(found, Mapping) and found and all(map(callable, found.values()))
        self.check(named, f"operations() returned {found!r:.60}; it returns functions by name, at least one")
        for name, function in found.items():
            dtype = self.numpy(function(self.array([2.0, 3.0]))).dtype
            what = f"operations()[{name!r}] returned dtype {dtype}; it returns a floating-point or complex array"
            self.check(dtype.kind in "fcV", what)  # V: floats that NumPy lacks

    def _check_parameter_grad(self, x: Any) -> None:
        parameter = self.parameter(2.0, trains=True)
        found = self.parameter_grad(lambda: parameter * parameter * x, parameter)
        self.assert_equal(found, 12.0, "parameter_grad of p * p * 3 at p = 2")
        self._of_system(found, x, "parameter_grad")

    def _check_assign(self, x: Any) -> None:  # noqa: ARG002
        parameter = self.parameter(2.0, trains=True)
        self.assign(parameter, 5.0)
        self.assert_equal(1.0 * parameter, 5.0, "a parameter of 2 after assign(parameter, 5.0)")

    def _check_set_flag(self, x: Any) -> None:  # noqa: ARG002
        self.set_flag(self.parameter(2.0, trains=True), trains=False)

    def _check_parameter(self, x: Any) -> None:  # noqa: ARG002
        made = self.parameter(3.0, trains=False)
        if made is None or made is self.parameter(3.0, trains=False):
            what = f"parameter(3.0, trains=False) returned {made!r:.60}"
            raise HarnessFault(f"{what}; it returns a new parameter each time")

    def _check_module(self, x: Any) -> None:  # noqa: ARG002
        inner = self.module({"w": 3.0})
        made = self.module({"p": 2.0, "q": 4.0, "inner": inner}, frozen=["q"])
        if made.inner is not inner:
            raise HarnessFault(f"an attribute of module(...) is {made.inner!r:.60}; it is the module that was given")
        self.assert_equal(made.p * made.q * made.inner.w, 24.0, "the product of the parts of a module")

    def _check_evaluate(self, x: Any) -> None:
        y = self.evaluate(2.0 * x)
        self.assert_equal(y, 6.0, "evaluate(2 * array(3.0))")
        self._of_system(y, x, "evaluate")

    def _check_node(self, x: Any) -> None:
        children = list(self.node([x, 2]))
        if len(children) != 2 or children[0] is not x or children[1] != 2:  # noqa: PLR2004
            raise HarnessFault(f"iterating over node([x, 2]) yields {children!r:.80}; it yields the children")

    def _check_threads(self, x: Any) -> None:  # noqa: ARG002
        found = self.threads()
        self.check(isinstance(found, bool), f"threads() returned {found!r:.60}; it returns a bool")

    def _check_devices(self, x: Any) -> None:  # noqa: ARG002
        found, device = self._names("devices", "devices"), self.harness.device
        self.check(device is None or device in found, f"device is {device!r}, which is none of {', '.join(found)}")

    def _try_higher_order(self, x: Any) -> None:
        if not self.has("grad"):
            raise Absent("it needs grad")
        twice = self.grad(self.grad(lambda x: x * x * x))
        self.assert_equal(tried("it", twice, x), 18.0, "grad of grad of x ** 3 at 3, without adprotocol,")
        mixed = self.grad(lambda x: self.grad(lambda y: x * y * y)(1.0 * x))
        what = "the gradient in x of that of x y y in y, at 3, without adprotocol,"
        self.assert_equal(tried("it", mixed, x), 12.0, what)

    def _try_promotion(self, x: Any) -> None:
        for other, want in ((2, 6.0), (True, 3.0)):
            what = f"array(3.0) * array({other!r})"
            self.assert_equal(tried(what, operator.mul, x, self.array(other)), want, what)


def tried(what: str, call: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a call of the system returns; `Absent` says how the system refuses it."""
    try:
        return call(*arguments)
    except Exception as error:
        raise Absent(f"the system itself refuses {what}: {one_line(error, 160)}") from error


CHECKS: dict[str, Callable[[Probe, Any], None]] = {
    name.removeprefix("_check_"): getattr(Probe, name) for name in vars(Probe) if name.startswith("_check_")
}
# What no function of a harness declares, so that it is tried.
TRY: dict[str, Callable[[Probe, Any], None]] = {
    HIGHER_ORDER: Probe._try_higher_order,  # noqa: SLF001  (its own module)
    PROMOTION: Probe._try_promotion,  # noqa: SLF001  (its own module)
}
