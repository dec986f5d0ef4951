"""AD systems of other shapes: forward mode alone, matrices alone, four hooks alone."""

import types

import dualnp
import numpy as np
import pytest
from minimal_plugin import Array, Minimal

import adprotocol
from adprotocol import conformance, custom_derivative, errors, grad, jacobian, jvp, value_and_grad, vjp
from adprotocol.extend import Derivative, gradient_prevented
from adprotocol.hookspecs import hookimpl
from adprotocol.plugins import register, unregister


@pytest.fixture
def forward_only():
    record = register(dualnp, "dualnp")
    yield
    unregister(record.name)


@pytest.fixture
def plugin(request):
    """The plugin that a test names by `@serving`."""
    record = register(request.param(), "ownfw")
    yield
    unregister(record.name)


def serving(cls):
    return pytest.mark.parametrize("plugin", [cls], indirect=True)


def test_a_system_without_reverse_mode_pushes_tangents(forward_only):
    model = {"w": np.array([3.0, 4.0]), "b": 2.0, "n": 7}
    value, tangent, aux = jvp(
        lambda m, x: ({"y": m["w"] * m["w"] * x, "n": m["n"]}, m["b"] * x),
        (model, 5.0),
        ({"w": np.array([1.0, 2.0]), "b": None, "n": None}, None),
        has_aux=True,
        backend="dualnp",
    )
    assert value["y"].tolist() == [45.0, 80.0]
    assert (value["n"], aux) == (7, 10.0)
    assert tangent["y"].tolist() == [30.0, 80.0]
    assert tangent["n"] is None


def test_its_jacobian_in_forward_mode_needs_no_array_functions(forward_only):
    x = np.array([3.0, 4.0])
    assert jacobian(lambda x: x * x, mode="forward", backend="dualnp")(x).tolist() == [[6.0, 0.0], [0.0, 8.0]]
    model = {"w": np.array([[1.0, 2.0, 3.0]]), "b": 2.0, "n": 7}
    of = jacobian(lambda m: {"p": m["w"] * m["b"], "n": 3}, mode="forward", backend="dualnp")(model)
    assert of["n"] is None
    assert of["p"]["n"] is None
    assert np.array_equal(of["p"]["w"], 2.0 * np.eye(3).reshape(1, 3, 1, 3))
    assert of["p"]["b"].tolist() == [[1.0, 2.0, 3.0]]
    rows, aux = jacobian(lambda x: (x[0] * x, x), has_aux=True, mode="forward", backend="dualnp", chunk_size=1)(x)
    assert (rows.tolist(), aux.tolist()) == ([[6.0, 0.0], [4.0, 3.0]], [3.0, 4.0])
    assert jacobian(lambda x: x, mode="forward", backend="dualnp")(np.zeros(0)).shape == (0, 0)
    assert jacobian(lambda x: x, mode="forward", backend="dualnp")(np.ones(1, "float32")).dtype == "float32"


def test_its_levels_nest(forward_only):
    of_x = lambda x: jvp(lambda y: x * y, (1.0,), (1.0,), backend="dualnp")[1]
    _, tangent = jvp(lambda x: x * of_x(x), (3.0,), (1.0,), backend="dualnp")
    assert tangent == 6.0
    hessian = jacobian(
        jacobian(lambda x: x[0] * x[0] * x[1], mode="forward", backend="dualnp"), mode="forward", backend="dualnp"
    )
    with pytest.raises(errors.PluginError, match="needs the hook array_functions"):
        hessian(np.array([3.0, 5.0]))  # its own arrays NumPy does not stack


@pytest.mark.parametrize(
    "call",
    [
        lambda: grad(lambda x: x * x, backend="dualnp")(3.0),
        lambda: vjp(lambda x: x * x, 3.0, backend="dualnp"),
        lambda: jacobian(lambda x: x * x, backend="dualnp")(3.0),
    ],
    ids=["grad", "vjp", "jacobian"],
)
def test_reverse_mode_says_that_it_has_none(forward_only, call):
    with pytest.raises(errors.PluginError, match=r"has no reverse mode .* adprotocol.jvp or jacobian\(mode='forward'"):
        call()


class FourHooks:
    array_types, within_gradient = staticmethod(dualnp.array_types), staticmethod(dualnp.within_gradient)
    non_differentiable, cond = staticmethod(dualnp.non_differentiable), staticmethod(dualnp.cond)


@pytest.mark.parametrize("plugin", [dualnp, FourHooks])
def test_what_a_plugin_does_not_differentiate_is_asked_of_no_scenario(plugin):
    record = register(plugin, "dualnp")
    try:
        report = conformance.run(dualnp.DualHarness)
    finally:
        unregister(record.name)
    assert report.ok, report.sentence()
    hooks = {result.hook for result in report.results if result.applied}
    assert "vjp" not in hooks
    assert hooks.issuperset({"jvp", "jacobian"}) == (plugin is dualnp)
    assert len(hooks) > 6


class Pushing(Minimal):
    @hookimpl
    def jvp(self, fun, leaves, tangents):
        outputs, others = fun(leaves)
        return outputs, others, tangents


class Owned(Array):
    shape, dtype = (2,), np.dtype("float64")


@serving(Pushing)
def test_arrays_of_its_own_need_array_functions_and_reverse_mode_is_no_remedy(plugin):
    with pytest.raises(errors.PluginError, match="jacobian needs the hook array_functions") as caught:
        jacobian(lambda x: x, mode="forward")(Owned())
    assert not hasattr(caught.value, "__notes__")


class Matrix(Array):
    """A matrix of floats, as all arrays of its system are; it has no dtype."""

    def __init__(self, rows):
        self.rows = np.asarray(rows, float).reshape(-1, 1)

    @property
    def shape(self):
        return self.rows.shape

    def __mul__(self, other):
        return type(self)(self.rows * getattr(other, "rows", other))


class OfMatrices(Minimal):
    @hookimpl
    def vjp(self, fun, leaves, once):
        outputs, others = fun(leaves)
        return outputs, others, lambda cts: [leaf * (cts or [1.0])[0] for leaf in leaves]  # of x * x / 2


class Typed(Matrix):
    """A matrix with a dtype, whose shape, a method, the plugin tells."""

    dtype = property(lambda self: self.rows.dtype)

    shape, __bool__ = lambda self: self.rows.shape, lambda self: bool(self.rows)

    def __init__(self, rows):
        self.rows = np.asarray(rows).reshape(-1, 1)


class OfTyped(OfMatrices):
    @hookimpl
    def array_functions(self):
        return types.SimpleNamespace(shape=lambda x: () if x.rows.size == 1 else x.rows.shape)


@pytest.mark.parametrize(("plugin", "cls"), [(OfMatrices, Matrix), (OfTyped, Typed)], indirect=["plugin"])
def test_a_matrix_of_one_element_is_the_number_of_a_system_of_matrices(plugin, cls):
    half = lambda x: x * x * 0.5
    value, gradient = value_and_grad(half)(cls(3.0))
    assert (value.rows, gradient.rows) == (4.5, 3.0)
    assert vjp(half, cls(3.0))[1](2.0)[0].rows == 6.0
    with pytest.raises(errors.OutputError, match=rf"a {cls.__name__} of shape \(2, 1\) .* reduce it to a scalar"):
        grad(half)(cls([3.0, 4.0]))
    assert vjp(half, cls([3.0, 4.0]))[1](cls([1.0, 2.0]))[0].rows.tolist() == [[3.0], [8.0]]


@serving(OfTyped)
def test_shapes_that_a_plugin_tells_decide_elsewhere_too(plugin):
    assert adprotocol.cond(Typed(True), lambda x: x, lambda x: 2.0 * x, 3.0) == 3.0
    with pytest.raises(errors.PredicateShapeError, match=r"a boolean Typed of shape \(2, 1\)"):
        adprotocol.cond(Typed([True, False]), abs, abs, 3.0)
    assert "shape (2, 1)" in str(gradient_prevented(Typed([1.0, 2.0]), "stop", "it"))


class Ruled:
    """The plugin of dual numbers, with rules of one level."""

    array_types, within_gradient = staticmethod(dualnp.array_types), staticmethod(dualnp.within_gradient)
    non_differentiable, cond = staticmethod(dualnp.non_differentiable), staticmethod(dualnp.cond)
    jvp = staticmethod(dualnp.jvp)

    @hookimpl
    def array_functions(self):
        return types.SimpleNamespace(as_like=lambda value, like: np.zeros(np.shape(like)) if value is None else value)

    @hookimpl
    def custom_rule(self, rule, arrays):
        (x,) = arrays
        (y,), outline = rule.fun([x.primal])
        (pushed,) = Forward(rule, outline, [True], [y], [x.primal]).forward([x.tangent])
        return [dualnp.Dual(y, pushed, x.level)], outline


class Forward(Derivative):
    def is_inexact(self, array):
        return True


@serving(Ruled)
def test_rules_for_forward_mode_serve_and_others_are_not_transposed(plugin):
    by_jvp = custom_derivative(lambda x: x * x)
    by_jvp.defjvp(lambda tangents, y, x: 7.0 * x * tangents[0])
    assert jvp(by_jvp, (3.0,), (1.0,), backend="ownfw") == (9.0, 21.0)
    # The functions of NumPy put together what the plugin has no functions for.
    found = jacobian(by_jvp, mode="forward", backend="ownfw")(np.array([1.0, 2.0]))
    assert found.tolist() == [[7.0, 0.0], [0.0, 14.0]]
    by_vjp = custom_derivative(lambda x: x * x)
    by_vjp.defvjp(lambda cotangent, y, x: 7.0 * x * cotangent)
    with pytest.raises(errors.RuleError, match=r"cannot transpose it, as it has no hook vjp\. Give it that rule too"):
        jvp(by_vjp, (3.0,), (1.0,), backend="ownfw")
