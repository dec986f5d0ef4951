"""What may stand between a variable and the question: operations, many of them; dtypes, sizes and shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.checks import Absent, Checked, WrongAnswer
from adprotocol.conformance.scenario import Decorator, defaults
from adprotocol.conformance.scenarios import arrays
from adprotocol.conformance.scenarios.arrays import assert_near, each_array, first_element
from adprotocol.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Callable


_LONG = "PyTorch: deep graphs and recursion: https://github.com/pytorch/pytorch/issues/5801"
scenario: Decorator = defaults("within_gradient", rule="W1", transform="grad", source=_LONG)


_LOST = "PyTorch: operations that lose requires_grad: https://docs.pytorch.org/docs/stable/notes/autograd.html"
_RULES = "JAX: custom derivative rules: https://docs.jax.dev/en/latest/notebooks/Custom_derivative_rules_for_Python_code.html"


def _cast(h: Checked, v: Any) -> Any:
    return h.cast(v, h.dtypes()[-1])


# Operations from a vector of two to an array.
_OPERATIONS: dict[str, dict[str, Any]] = {
    "sum": {"also_needs": ("sum",), "operation": lambda h, v: h.sum(v)},
    "where": {"also_needs": ("where",), "operation": lambda h, v: h.where(v > 1.0, v, 2.0 * v)},
    "where-of-constants": {
        "also_needs": ("where",),
        "operation": lambda h, v: h.where(h.array([True, False]), v, h.array([5.0, 7.0])),
    },
    "where-beside-constants": {
        "also_needs": ("where",),
        "operation": lambda h, v: h.where(h.array([False, True]), h.array([5.0, 7.0]), v),
    },
    "cast": {"also_needs": ("cast", "dtypes"), "operation": _cast},
    "cast-there-and-back": {
        "also_needs": ("cast", "dtypes"),
        "operation": lambda h, v: h.cast(_cast(h, v), h.dtypes()[0]),
    },
    "index": {"operation": lambda _, v: v[1]},
    "slice": {"operation": lambda _, v: v[0:1]},
    "broadcast": {"operation": lambda h, v: v * h.array([[1.0, 2.0], [3.0, 4.0]])},
    "power": {"operation": lambda _, v: v**3},
    "division": {"operation": lambda _, v: 1.0 / v},
}


@scenario("after-{name}", transform=("grad", "jvp", "grad of jit", "grad of compile"), source=_LOST, params=_OPERATIONS)
def follows(h: Checked, transforms: str, operation: Callable[[Checked, Any], Any]) -> None:
    """The result of {name} is tracked as its operand is, under {transforms}.

    Expect 3 times the result for the variable and 11 times for a constant; 5 and 11 times plain.
    """
    constant, v, along = h.array([2.0, 3.0]), h.array([2.0, 3.0]), h.array([1.0, 1.0])
    outer, _, inner = transforms.partition(" of ")

    def element(v: Any, factor: Callable[[Any, float, float], Any]) -> Any:
        return first_element(factor(operation(h, v), 3.0, 5.0)) * first_element(
            factor(operation(h, constant), 7.0, 11.0)
        )

    def derivative(f: Callable[[Any], Any]) -> Any:
        return h.grad(f)(v) if outer == "grad" else h.jvp(f, v, along)[1]

    def compiled(factor: Callable[[Any, float, float], Any]) -> Callable[[Any], Any]:
        def f(v: Any) -> Any:
            return element(v, factor)

        return getattr(h, inner)(f) if inner else f

    plain, asking = compiled(lambda array, *_: array), compiled(h.scale)
    try:
        want = h.numpy(derivative(plain))
    except Exception as error:
        msg = f"the system itself refuses it: {one_line(error, 160)}"
        raise Absent(msg) from error
    h.assert_equal(asking(v), 55.0 * h.numpy(plain(v)), "the plain value")
    h.assert_equal(derivative(asking), 33.0 * want, "the derivative")
    h.assert_equal(asking(v), 55.0 * h.numpy(plain(v)), "the plain value afterwards")


@scenario(transform=("grad", "jvp", "grad of jit", "grad of compile"), also_needs=("operations",), source=_LOST)
def after_each_operation(h: Checked, transforms: str) -> None:
    """The result of each operation of the harness is tracked as its operand is, under {transforms}.

    Let the answer about the result of each operation of the harness decide a factor of its operand.

    x is multiplied by 3 for the operation's result of x, by 11 for its result of an array and by 17 for that of the
    constant of x: 561 x, in a gradient; 935 x = 1870 plain, and in the gradient of an operation through which the
    system passes no derivative.
    """
    constant, v, along = h.array([2.0, 3.0]), h.array([2.0, 3.0]), h.array([1.0, 0.0])
    outer, _, inner = transforms.partition(" of ")

    def compiled(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return getattr(h, inner)(f) if inner else f

    def derivative(f: Callable[[Any], Any]) -> Any:
        return h.grad(f)(v)[0] if outer == "grad" else h.jvp(f, v, along)[1]

    refused: dict[str, str] = {}
    for name, operation in h.operations().items():

        def chosen(x: Any, v: Any, inside: float, outside: float, operation: Any = operation) -> Any:
            return adprotocol.cond(h.query(operation(x)), lambda v: inside * v, lambda v: outside * v, v)

        def plain(v: Any, operation: Any = operation) -> Any:
            operation(constant)
            operation(v)
            return v[0]

        def both(v: Any, chosen: Callable[..., Any] = chosen) -> Any:
            asked = chosen(constant, chosen(v, v, 3.0, 5.0), 7.0, 11.0)
            return chosen(adprotocol.non_differentiable(v), asked, 13.0, 17.0)[0]

        f = compiled(both)
        try:
            factor = 3.0 if _passes_derivatives(h, operation, v) else 5.0
            h.assert_equal(f(v), 1870.0, f"{name}: the plain value")
            h.assert_equal(derivative(f), 187.0 * factor, f"{name}: the derivative")
            h.assert_equal(f(v), 1870.0, f"{name}: the plain value afterwards")
        except WrongAnswer:
            raise
        except Exception:  # noqa: BLE001  (raised again unless the system is the cause)
            # Where the system refuses the operation by itself, nothing is told of the answers.
            try:
                derivative(compiled(plain))
                _passes_derivatives(h, operation, v)
            except Exception as error:  # noqa: BLE001  (whatever it is, it is how the system refuses)
                refused[name] = one_line(error, 160)
            else:
                raise
    h.absent_if(len(refused) == len(h.operations()), f"the system itself refuses each of its operations: {refused}")


def _passes_derivatives(h: Checked, operation: Callable[[Any], Any], v: Any) -> bool:
    """Return whether the system itself has a derivative of an operation: what takes floats apart into bits has none."""
    if not h.has("grad", "sum") or h.numpy(operation(v)).dtype.kind != "f":
        return True
    return bool(h.numpy(h.grad(lambda v: h.sum(operation(v) ** 2))(v)).any())


@scenario(
    needs=("grad", "dtypes", "cast"),
    source="JAX: dtypes that carry derivatives: https://github.com/jax-ml/jax/issues/15861",
)
def each_dtype_and_shape(h: Checked) -> None:
    """A variable of each floating-point dtype and shape is tracked, and not where nobody differentiates it.

    Expect the gradient 6 of one element of 3 x c, c the constant of x = 2, for x of each floating-point dtype and
    shape; 5 x plain.
    """
    for what, x in each_array(h):
        assert_near(h, h.probe(x), 10.0, f"plain, {what}")
        gradient = h.grad(lambda x: first_element(h.probe(x) * adprotocol.non_differentiable(x)))(x)
        assert_near(h, first_element(gradient), 6.0, what)


@scenario(
    needs=("grad", "evaluate"), source="tinygrad: realize keeps no graph: https://docs.tinygrad.org/tensor/properties/"
)
def evaluated(h: Checked) -> None:
    """What is differentiated stays tracked when its value is computed, if the system keeps it so.

    Expect 3 x ** 3 with x ** 2 computed at once and asked: 24 at 2, gradient 36; the same if it is computed twice.
    """
    x = h.array(2.0)
    h.require_native(lambda: h.grad(lambda x: h.evaluate(x * x) * x)(x), 12.0)
    h.assert_value_and_grad(lambda x: h.probe(h.evaluate(x * x)) * x, (x,), 24.0, 36.0)
    h.assert_value_and_grad(lambda x: h.probe(h.evaluate(0.5 * h.evaluate(2.0 * x * x))) * x, (x,), 24.0, 36.0, "twice")


_MANY = 1024
_TIMES = 120


@scenario(transform=("grad", "jvp", "grad of jit", "grad of compile", "jit of grad"))
def after_many_operations(h: Checked, transforms: str) -> None:
    """A variable is tracked after many operations, and a constant is not, under {transforms}.

    Ask about what a hundred operations have made of x, and of a constant.

    Expect 3 x times 11 c after 120 operations that leave both as they are, at 2, 2: the derivative 66.
    """
    x, c = h.array(2.0), h.array(2.0)

    def far(y: Any) -> Any:
        for i in range(_TIMES):
            y = y + 1.0 if i % 2 else y - 1.0
        return y

    def f(x: Any) -> Any:
        return h.probe(far(x)) * h.scale(far(c), 7.0, 11.0)

    h.assert_equal(h.nest(transforms, f)(x), 66.0)


@scenario(needs=("grad", "sum"))
def many_elements(h: Checked) -> None:
    """A vector of many elements is tracked as a short one is, takes a gradient, and can be made constant.

    v is tracked and c is not, each of 1024 ones: the gradient of 3 sum(v) times 11 sum(c) / 1024 is 33 at each element,
    and that of sum(constant(v)) 0.
    """
    v, c = h.array([1.0] * _MANY), h.array([1.0] * _MANY)

    def f(v: Any) -> Any:
        return h.sum(h.probe(v)) * h.sum(h.scale(c, 7.0, 11.0)) / _MANY

    h.assert_equal(h.grad(f)(v), [33.0] * _MANY, "the gradient")
    h.assert_equal(adprotocol.grad(lambda m: f(m["v"]))({"v": v})["v"], [33.0] * _MANY, "our gradient")
    stopped = h.grad(lambda v: h.sum(adprotocol.non_differentiable(v)) + h.sum(v))(v)
    h.assert_equal(stopped, [1.0] * _MANY, "the gradient beside a constant")


@scenario(
    rule="W3",
    transform="grad of vmap",
    needs=("grad", "vmap", "sum"),
    source="JAX: vmap maps some arguments and not others: https://docs.jax.dev/en/latest/_autosummary/jax.vmap.html",
)
def several_values_under_vmap(h: Checked) -> None:
    """Of several values in vmap one that is tracked suffices, in whichever place and with however many axes.

    Expect 3 x where x and c are asked, in either order or in a dict, or x times a vector, or x and what all rows share,
    and 5 x where constants alone are.
    """
    rows, constants, shared = h.array([1.0, 2.0]), h.array([3.0, 4.0]), h.array(5.0)
    vector = h.array([1.0, 2.0, 3.0])
    asked = {
        "the first": (lambda x, c: (x, c), 3.0),
        "the second": (lambda x, c: (c, x), 3.0),
        "one in a dict": (lambda x, c: ({"c": c, "x": x},), 3.0),
        # A system may have the axis of the batch behind those of the vector.
        "one of more axes": (lambda x, c: (x * vector, c), 3.0),
        "one beside what all rows share": (lambda x, _: (vector, x, shared), 3.0),
        "none beside what all rows share": (lambda _, c: (vector, c, shared), 5.0),
        "none": (lambda x, c: (c, 2.0 * c), 5.0),
    }
    for what, (values, want) in asked.items():

        def row(x: Any, c: Any, values: Any = values) -> Any:
            return adprotocol.cond(h.query(*values(x, c)), lambda x: 3.0 * x, lambda x: 5.0 * x, x)

        found = h.grad(lambda v, row=row: h.sum(h.vmap(row)(v, constants)))(rows)
        h.assert_equal(found, [want, want], f"the gradient where {what} is tracked")


@scenario(rule="W6", source="JAX: has_aux leaks tracers: https://github.com/jax-ml/jax/issues/1950")
def from_another_gradient(h: Checked) -> None:
    """Our gradient is a plain value in the gradient that comes next, and so is what it was taken of.

    Our gradient of 3 z ** 3 at 2, g = 36, and z itself are plain in the next gradient, in y: it is 11 g = 396 of 11 g
    y, and 17 z = 34 of 17 z y.
    """
    z, y = h.array(2.0), h.array(1.0)

    def loss(model: dict[str, Any]) -> Any:
        return h.probe(model["z"]) * h.scale(model["z"], 1.0, 7.0) * model["z"]

    g = adprotocol.grad(loss)({"z": z})["z"]
    h.assert_value_and_grad(lambda y: h.scale(g, 7.0, 11.0) * y, (y,), 396.0, 396.0, "of the gradient")
    h.assert_value_and_grad(lambda y: h.scale(z, 13.0, 17.0) * y, (y,), 34.0, 34.0, "of what it was taken of")


@scenario(
    rule="W4",
    transform="grad of {way}",
    source="JAX: logical operators and control flow: https://docs.jax.dev/en/latest/control-flow.html",
)
def answers_joined(h: Checked, way: str) -> None:
    """Answers, staged or not, are joined with & and |, among each other and with bools.

    Expect x * c, at 2, 3, times 3 where both are tracked, 5 where x alone is, 7 where c alone is, else 11: 30 in the
    gradient in x, 42 in that in c, 18 in one in both, 66 plain.
    """
    x, c, one = h.array(2.0), h.array(3.0), h.array(1.0)

    def f(x: Any, c: Any) -> Any:
        of_x, of_c = h.query(x), h.query(c)
        rest = adprotocol.cond(of_x | of_c, lambda x, c: 7.0 * x * c, lambda x, c: 11.0 * x * c, x, c)
        some = adprotocol.cond(of_x | False, lambda x, c, _: 5.0 * x * c, lambda _x, _c, rest: 1.0 * rest, x, c, rest)
        both = of_x & of_c & True
        return adprotocol.cond(both, lambda x, c, _: 3.0 * x * c, lambda _x, _c, some: 1.0 * some, x, c, some)

    traced = h.trace(way, f)
    for _ in range(2):
        for run in (f, traced):
            h.assert_equal(run(x, c), 66.0, "the plain call")
            h.assert_value_and_grad(lambda x, run=run: run(x, c), (x,), 30.0, 15.0)
            h.assert_value_and_grad(lambda c, run=run: run(x, c), (c,), 42.0, 14.0, "in the other")
            h.assert_value_and_grad(lambda t, run=run: run(t * x, t * c), (one,), 18.0, 36.0, "in both")


@scenario(
    rule="W4",
    transform="grad of {way}",
    source="JAX: logical operators and control flow: https://docs.jax.dev/en/latest/control-flow.html",
)
def bool_before_an_answer(h: Checked, way: str) -> None:
    """A bool is joined with an answer behind it as with one before it.

    Expect x c at 2, 3, times 3 for True & and False | an answer that is True, times 5 for one that is False: 30 plain,
    the gradient 9 in x, and 10 in c.
    """
    x, c = h.array(2.0), h.array(3.0)
    for join in (lambda answer: True & answer, lambda answer: False | answer):

        def f(x: Any, c: Any, join: Any = join) -> Any:
            return adprotocol.cond(join(h.query(x)), lambda x, c: 3.0 * x * c, lambda x, c: 5.0 * x * c, x, c)

        traced = h.trace(way, f)
        h.assert_equal(traced(x, c), 30.0, "the plain call")
        h.assert_equal(h.grad(lambda x, traced=traced: traced(x, c))(x), 9.0, "the gradient in x")
        h.assert_equal(h.grad(lambda c, traced=traced: traced(x, c))(c), 10.0, "the gradient in c")


@scenario(transform=("grad", "grad of jit", "grad of compile"), also_needs=("custom_rule",), source=_RULES)
def gradient_in_a_rule(h: Checked, transforms: str) -> None:
    """In a gradient that a derivative rule takes the variable is tracked, under {transforms}.

    Take a gradient in the derivative rule of a function, and ask in it.

    Expect {transforms} of x ** 2 whose rule is the gradient of 3 x ** 2, asked so, else 5 x ** 2: 12 at 2.
    """

    def program(fun: Any) -> Any:
        return h.nest(transforms, h.custom_rule(lambda x: x * x, h.grad(fun)))(h.array(2.0))

    h.require_native(lambda: program(lambda x: 3.0 * x * x), 12.0)
    h.assert_equal(program(lambda x: h.probe(x) * x), 12.0)


@scenario(
    needs=("grad", "sum"),
    source="PyTorch: zero-size tensors: https://docs.pytorch.org/docs/stable/generated/torch.empty.html",
)
def empty(h: Checked) -> None:
    """What is computed from a variable is tracked, though it has no elements.

    An array without elements that is computed from x is tracked, so 3, and one from its constant is not, so 11: the
    gradient of 3 * 11 * x is 33.
    """

    def f(x: Any) -> Any:
        e = h.array([]) * x
        constant = h.array([]) * adprotocol.non_differentiable(x)
        tracked = adprotocol.cond(h.query(e), lambda: 3.0, lambda: 5.0)
        untracked = adprotocol.cond(h.query(constant), lambda: 7.0, lambda: 11.0)
        return tracked * untracked * x + h.sum(e) + h.sum(constant)

    h.assert_value_and_grad(f, (h.array(2.0),), 66.0, 33.0)


@scenario(source="NumPy: arrays of any number of axes: https://numpy.org/doc/stable/reference/arrays.ndarray.html")
def ranks_under_grad(h: Checked) -> None:
    """A variable of any rank is tracked, and not where nobody differentiates it.

    Expect the gradient 3 in the first element of 3 x for x of one to four axes; 5 x plain.
    """
    for shape in arrays.SHAPES:
        x = arrays.filled(h, shape, 2.0)
        h.assert_equal(h.probe(x), arrays.nested(shape, 10.0), f"plain, shape {shape}")
        slope = h.grad(lambda x: arrays.first(h.probe(x), shape))(x)
        h.assert_equal(slope, arrays.corner(shape, 3.0), f"the gradient, shape {shape}")


@scenario(
    transform="jvp",
    source="NumPy: arrays of any number of axes: https://numpy.org/doc/stable/reference/arrays.ndarray.html",
)
def ranks_under_jvp(h: Checked) -> None:
    """In forward mode a variable of any rank is tracked.

    Expect the tangent 3 of 3 x along ones, for x of one to four axes.
    """
    for shape in arrays.SHAPES:
        x, along = arrays.filled(h, shape, 2.0), arrays.filled(h, shape, 1.0)
        want = arrays.nested(shape, 6.0), arrays.nested(shape, 3.0)
        h.assert_value_and_tangent(h.probe, x, along, *want, f"shape {shape}")
