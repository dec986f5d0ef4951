"""Every public function on the arrays of libraries that have no AD: these are constants, as NumPy's are."""

import dataclasses
import unittest
import warnings

import autograd
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from adprotocol import (
    NonDifferentiable,
    combine,
    cond,
    custom_derivative,
    explain,
    grad,
    host_function,
    is_concrete,
    jacobian,
    jvp,
    non_differentiable,
    partition,
    prevent_gradient,
    register_structure,
    register_trainable,
    steepest_ascent,
    trainable,
    trainable_mask,
    tree_map,
    value_and_grad,
    vjp,
    where,
    within_gradient,
)
from adprotocol.conformance import check_rule
from adprotocol.errors import (
    BackendError,
    BranchMismatchError,
    OpaqueValueError,
    PluginError,
    PredicateError,
    PredicateShapeError,
    RuleError,
    UnclaimedTypeError,
)
from adprotocol.hookspecs import hookimpl
from adprotocol.plugins import register, register_without_ad, unregister

REASON = "an optional library of the test group"
strict = pytest.importorskip("array_api_strict", reason=REASON)
da = pytest.importorskip("dask.array", reason=REASON)
pd = pytest.importorskip("pandas", reason=REASON)
sparse = pytest.importorskip("sparse", reason=REASON)

VALUES = np.array([4.0, 0.0, -1.0])


@dataclasses.dataclass(frozen=True)
class Library:
    """`make` takes a NumPy array, `numpy` returns one, and `add` is a function of the library."""

    name: str
    make: object
    numpy: object
    root: object  # of [4, 0, -1], or the absolute value
    # The class of what elementwise functions return.
    kind: type


LIBRARIES = [
    Library("numpy", np.asarray, np.asarray, np.sqrt, np.ndarray),
    Library("array_api_strict", strict.asarray, np.asarray, strict.sqrt, type(strict.ones(1))),
    Library("dask", lambda x: da.from_array(x, chunks=2), lambda x: x.compute(), da.abs, da.Array),
    Library("sparse", sparse.COO.from_numpy, lambda x: x.todense(), np.abs, sparse.COO),
    Library("pandas", pd.Series, np.asarray, np.abs, (pd.Series, np.ndarray)),
]


@pytest.fixture(params=LIBRARIES, ids=lambda library: library.name)
def library(request):
    # Neither boolean masks nor shapes that depend on data, as under a compiler.
    with strict.ArrayAPIStrictFlags(boolean_indexing=False, data_dependent_shapes=False):
        yield request.param


@pytest.fixture
def x(library):
    return library.make(VALUES)


def test_it_is_a_constant(library, x):
    for value in (x, [x], {"a": (x, 1.0)}, NonDifferentiable(x)):
        assert within_gradient(value) is False
    assert non_differentiable(x) is x
    assert non_differentiable({"a": x})["a"] is x
    assert prevent_gradient(x, "no derivative") is x
    assert explain(x).startswith(f"{type(x).__name__}: False (a")
    assert non_differentiable(lambda y: y)(x) is x
    assert NonDifferentiable(x).value is x


def test_beside_the_arrays_of_a_framework(x):
    assert within_gradient(jnp.ones(2), x) is False
    assert within_gradient(torch.ones(2, requires_grad=True), [x]) is True
    autograd.grad(lambda y: y if within_gradient(y, x) is True else 1 / 0)(2.0)
    tensor = torch.ones((), requires_grad=True)
    assert grad(lambda p: p["w"] * 2.0, where="w")({"w": tensor, "data": x})["data"] is None
    for make in (jnp.asarray, torch.tensor, np.asarray):
        assert float(grad(lambda w, _: w * 3.0)(make(2.0), x)) == 3.0


def test_it_is_trained_by_its_dtype(library, x):
    model = {"x": x, "mask": x > 0.0, "label": NonDifferentiable(x), "n": 1}
    assert trainable(model) == {"x": x, "mask": None, "label": None, "n": None} or trainable(model)["x"] is x
    assert trainable_mask(model) == {"x": True, "mask": False, "label": False, "n": False}
    params, rest = partition(model)
    assert params["x"] is x
    assert rest["mask"] is model["mask"]
    assert combine(params, rest)["x"] is x
    doubled = tree_map(lambda leaf: leaf + leaf, {"x": x})["x"]
    np.testing.assert_allclose(library.numpy(doubled), 2.0 * VALUES)


def test_a_condition(library, x):
    true = library.make(np.array([1.0, 2.0]))[0] > 0.0
    assert cond(bool(true), lambda x: x, lambda x: 1 / 0, x) is x
    if library.name != "sparse":  # a number of its own that is no bool
        assert cond(true, lambda x: x, lambda x: 1 / 0, x) is x
    with pytest.raises(PredicateError):
        cond(x, lambda x: x, lambda x: x, x)


def test_a_choice(library, x):
    chosen = where(x > 0.0, library.root, lambda x: x * 3.0, x)
    assert isinstance(chosen, library.kind)
    first = 2.0 if library.name in ("numpy", "array_api_strict") else 4.0
    np.testing.assert_allclose(library.numpy(chosen), [first, 0.0, -3.0])
    both = where(x > 0.0, lambda x, d: {"y": x + d["x"], "n": "a"}, lambda x, d: {"y": x, "n": "a"}, x, {"x": x})
    np.testing.assert_allclose(library.numpy(both["y"]), [8.0, 0.0, -1.0])
    assert both["n"] == "a"


def test_a_choice_of_strict_arrays():
    x = strict.asarray(VALUES)
    for one, other, wanted in ((1.0, 0, [1.0, 0.0, 0.0]), (True, False, [1, 0, 0]), (x, 2.0, [4.0, 2.0, 2.0])):
        np.testing.assert_allclose(np.asarray(where(x > 0.0, lambda _, a=one: a, lambda _, b=other: b, x)), wanted)
    # What fails for an element that is not chosen runs on others.
    matrices = strict.asarray(np.array([np.zeros((2, 2)), 2.0 * np.eye(2)]))
    for chosen in (True, False):
        mask = strict.asarray([[[False]], [[chosen]]])
        got = where(mask, strict.linalg.inv, lambda m: m * 3.0, matrices)
        np.testing.assert_allclose(np.asarray(got)[1], (0.5 if chosen else 6.0) * np.eye(2))
    scalar = strict.asarray(True)
    assert float(where(scalar, lambda x: x, lambda x: 1 / 0, strict.asarray(2.0))) == 2.0


def test_a_choice_of_lazy_arrays_is_lazy():
    ran = []
    lazy = da.from_array(VALUES, chunks=2).map_blocks(
        lambda block: ran.append(1) or block, dtype=float, meta=VALUES[:0]
    )
    assert isinstance(where(lazy > 0.0, da.sqrt, lambda x: x, lazy), da.Array)
    assert ran == []


def test_what_numpy_and_a_framework_share_is_guarded():
    # The operands are NumPy's, what the functions close over is not.
    for make, derivative, array in (
        (jnp.asarray, jax.grad, jnp.asarray),
        (torch.tensor, torch.func.grad, torch.as_tensor),
        (float, autograd.grad, np.asarray),
    ):
        scaled = lambda s, array=array: where(VALUES > 0, lambda x: s**2 / array(x), lambda x: x, VALUES).sum()
        assert float(derivative(scaled)(make(3.0))) == 1.5


def test_a_rule(library, x):
    @custom_derivative
    def square(x):
        return x * x

    square.defvjp(lambda cotangent, _, x: (2.0 * cotangent * x,))
    np.testing.assert_allclose(library.numpy(square(x)), VALUES**2)
    scaled = custom_derivative(lambda x, y: (x * 2.0).sum() + 0.0 * y)
    scaled.defvjp(lambda cotangent, _, x, y: (None, 3.0 * cotangent))
    scaled.defjvp(lambda tangents, _, x, y: 3.0 * tangents[1])
    if library.name in ("numpy", "pandas"):
        assert float(jax.grad(lambda y: scaled(x, y))(1.0)) == 3.0
        assert float(jax.jvp(lambda y: scaled(x, y), (1.0,), (1.0,))[1]) == 3.0


def test_no_framework_differentiates_it(library, x):
    if library.name == "numpy":
        assert grad(lambda x: (x * x).sum())(x).tolist() == [8.0, 0.0, -2.0]
        assert vjp(lambda x: 3.0 * x, x)[1](np.ones(3))[0].tolist() == [3.0, 3.0, 3.0]
        return
    for call in (
        grad(lambda x: x.sum()),
        lambda x: value_and_grad(lambda m: m["w"] * 2.0)({"w": jnp.ones(()), "x": x}),
        lambda x: vjp(lambda x: x + x, x),
        lambda x: jvp(lambda x: x + x, (x,), (x,)),
        jacobian(lambda x: x + x),
    ):
        with pytest.raises(BackendError, match=r"an array of a library without AD.*autograd, jax, torch"):
            call(x)


FRAMEWORKS = [(jnp.asarray, "jax"), (torch.tensor, "torch"), (np.asarray, "autograd")]


@pytest.mark.parametrize(("array", "framework"), FRAMEWORKS, ids=["jax", "torch", "autograd"])
def test_products_beside_the_arrays_of_a_framework(library, x, array, framework):
    # In an argument, in a structure that is differentiated, and in the value.
    def fun(model, data):
        return {"y": model["w"] * 3.0, "data": data}

    # Only NumPy's arrays may be a framework's results, which a label tells from constants.
    data = NonDifferentiable(x) if library.name == "numpy" else x
    model, one = {"w": array([1.0, 2.0]), "x": NonDifferentiable(x)}, array([1.0, 0.0])
    value, pull = vjp(lambda model: fun(model, data), model, backend=framework)
    assert getattr(value["data"], "value", value["data"]) is x
    (by_model,) = pull({"y": one, "data": None})
    assert by_model["w"].tolist() == [3.0, 0.0]
    assert by_model["x"] is None
    value, tangent = jvp(fun, (model, data), ({"w": one, "x": None}, None), backend=framework)
    assert getattr(value["data"], "value", value["data"]) is x
    assert tangent["y"].tolist() == [3.0, 0.0]
    assert tangent["data"] is None
    for mode in ("reverse", "forward"):
        matrix = jacobian(fun, mode=mode, backend=framework)(model, data)
        assert matrix["y"]["w"].tolist() == [[3.0, 0.0], [0.0, 3.0]]
        assert matrix["y"]["x"] is matrix["data"] is None


def test_a_host_function(library, x):
    f = host_function(lambda x, k: {"y": np.abs(x) * k, "n": 1, "w": 2.0}, like=lambda x, k: {"y": x, "n": 1, "w": k})
    if library.name == "dask":
        with pytest.raises(RuleError, match=r"an array of Dask, which is lazy; run it on blocks, array.map_blocks"):
            f(x, 2.0)
        np.testing.assert_allclose(library.numpy(x.map_blocks(lambda x: f(x, 2.0)["y"])), [8.0, 0.0, 2.0])
        return
    if library.name == "sparse":
        with pytest.raises(RuntimeError, match="use the todense method"):
            f(x, 2.0)
        return
    returned = f(x, 2.0)
    assert isinstance(returned["y"], library.kind)
    np.testing.assert_allclose(library.numpy(returned["y"]), [8.0, 0.0, 2.0])
    assert (returned["n"], returned["w"]) == (1, 2.0)
    # Beside the arrays of a framework it is a constant.
    beside = host_function(lambda x, y: x + y)(x, jnp.ones(3))
    assert isinstance(beside, jax.Array)
    np.testing.assert_allclose(beside, VALUES + 1.0)
    with pytest.raises(ValueError, match="read-only"):
        host_function(lambda x: x.__setitem__(0, 1.0))(x)


def test_a_host_function_with_a_rule(library, x):
    f = custom_derivative(host_function(np.abs, like=lambda x: x))
    f.defvjp(lambda cotangent, y, x: (cotangent * y,))
    if library.name not in ("dask", "sparse"):
        assert isinstance(f(x), library.kind)
        np.testing.assert_allclose(library.numpy(f(x)), np.abs(VALUES))
    if library.name != "numpy":
        with pytest.raises(unittest.SkipTest, match="an array of a library without AD"):
            check_rule(f, x)


def test_a_host_function_on_another_device():
    device = strict.__array_namespace_info__().devices()[1]
    moved = host_function(np.abs)(strict.asarray(VALUES, device=device))
    assert moved.device == device
    np.testing.assert_allclose(np.from_dlpack(moved.to_device(strict.Device("CPU_DEVICE"))), np.abs(VALUES))


def test_a_step_of_an_optimiser(library, x):
    moved = steepest_ascent({"w": x, "n": 1})
    assert isinstance(moved["w"], library.kind)
    np.testing.assert_allclose(library.numpy(moved["w"]), VALUES)


def test_a_structure_that_holds_it(x):
    @register_structure
    @dataclasses.dataclass
    class Model:
        w: object
        data: object

    register_trainable(Model, ["w"])
    gradient = jax.jit(grad(lambda m: m.w * 3.0))(Model(jnp.ones(()), None))
    assert float(gradient.w) == 3.0
    model = Model(jnp.ones(()), x)
    gradient = grad(lambda m: m.w * 3.0)(model)
    assert float(gradient.w) == 3.0
    assert gradient.data is None
    assert trainable(model).data is None
    assert combine(*partition(model)).data is x


# Other arrays.


def foreign(name, package="ndonnx_like", **members):
    """Return a class of arrays of a package."""
    return type(
        name, (), {"__module__": f"{package}.core", "shape": (2,), "dtype": "float32", "__array__": None, **members}
    )


def test_a_package_or_class_is_declared():
    first, second, third = (foreign(f"Array{i}", f"package{i}") for i in range(3))
    for cls in (first, second):
        with pytest.raises(UnclaimedTypeError, match=r"register_without_ad\('package\d'\)"):
            within_gradient(cls())
    register_without_ad("package0")
    register_without_ad(second)
    for cls in (first, second, type("Own", (second,), {"__module__": "elsewhere"})):
        value = cls()
        assert within_gradient(value) is False
        assert non_differentiable([value])[0] is value
        assert trainable(value) is value
    with pytest.raises(UnclaimedTypeError):
        within_gradient(third())


@pytest.mark.parametrize("given", ["jax", "torch", torch.Tensor, torch.nn.Parameter])
def test_what_has_a_plugin_cannot_be_declared(given):
    with pytest.raises(PluginError, match="which has a plugin"):
        register_without_ad(given)
    assert within_gradient(torch.ones(1, requires_grad=True)) is True


def test_a_library_declares_its_arrays_by_one_hook():
    class Declares:
        @hookimpl
        def without_ad(self):
            return ["package3"]

    cls = foreign("Array", "package3")
    with pytest.raises(UnclaimedTypeError):
        within_gradient(cls())
    plugin = register(Declares(), "package3")
    assert plugin.state == "active"
    assert within_gradient(cls()) is False
    assert within_gradient(torch.ones(1, requires_grad=True), cls()) is True
    unregister(plugin.name)

    class Broken:
        @hookimpl
        def without_ad(self):
            return 3

    with pytest.raises(PluginError):
        register(Broken(), "package4")


@pytest.mark.parametrize("package", ["xarray", "pint", "marray", "awkward"])
def test_a_wrapper_is_constant_around_numpy_and_refused_around_a_framework(package):
    cls = foreign("Wrapper", package, __init__=lambda self, data: setattr(self, "data", data))
    assert within_gradient(cls(np.ones(2))) is False
    for data in (jnp.ones(2), torch.ones(2)):
        with pytest.raises(OpaqueValueError, match="register"):
            within_gradient(cls(data))


def labelled(package="xarray"):
    """Return a class of wrappers around an array, whose operators give wrappers."""

    def wrap(name):
        return lambda self, *others: cls(getattr(self.data, name)(*(getattr(other, "data", other) for other in others)))

    def create(self, data):
        self.data, self.shape, self.dtype = data, data.shape, data.dtype

    operators = {name: wrap(name) for name in ("__gt__", "__mul__", "__eq__", "any")}
    members = {"__init__": create, "__bool__": lambda self: bool(self.data), **operators}
    cls = foreign("Labelled", package, **members)
    return cls


@pytest.mark.parametrize("package", ["xarray", "marray"])
def test_a_condition_on_a_wrapper_is_what_python_makes_of_it(package):
    wrapped = labelled(package)
    for true, expected in ((9.0, 18.0), (-9.0, -27.0)):
        x = wrapped(np.array([true, -10.0]))
        chosen = cond((x > 0.0).any(), lambda x: x * 2.0, lambda x: x * 3.0, x)
        assert type(chosen) is wrapped
        assert chosen.data[0] == expected
    with pytest.raises(PredicateError, match="Compare"):
        cond(x, lambda x: x, lambda x: x, x)
    with pytest.raises(PredicateShapeError, match=r"Labelled of shape \(2,\)"):
        cond(x > 0.0, lambda x: x, lambda x: x, x)
    with pytest.raises(OpaqueValueError, match="jax"):
        jax.jit(lambda y: cond(wrapped(y) > 0.0, lambda y: y, lambda y: -y, y))(1.0)


def test_a_choice_between_wrappers_is_left_to_their_own_library():
    x = labelled()(np.array([4.0, -1.0]))
    for mask, operand in ((x > 0.0, x), (x > 0.0, x.data)):
        with pytest.raises(PredicateError, match="own library"):
            where(mask, lambda x: x * 2.0, lambda x: 0.0, operand)
    for other in (lambda x: x * 2.0, lambda x: 0.0):
        with pytest.raises(BranchMismatchError, match="own library"):
            where(x.data > 0.0, lambda x: x * 2.0, other, x)
    assert where(x.data > 0.0, lambda x: x, lambda x: x, x) is x
    chosen = where(x.data > 0.0, lambda x: x.data, lambda x: 0.0, x)
    assert chosen.tolist() == [4.0, 0.0]


def test_a_table_is_a_mask():
    table = pd.DataFrame({"a": [4.0, -1.0], "b": [-2.0, 9.0]})
    for operand in (table, table.to_numpy()):
        chosen = where(table > 0.0, np.sqrt, lambda x: 0.0, operand)
        assert np.asarray(chosen).tolist() == [[2.0, 0.0], [0.0, 3.0]]
    gradient = grad(lambda x: where(table > 0.0, jnp.sqrt, lambda x: 0.0, x).sum())(jnp.asarray(table.to_numpy()))
    assert gradient.tolist() == [[0.25, 0.0], [0.0, pytest.approx(1 / 6)]]
    with pytest.raises(PredicateShapeError, match=r"\(2, 2\)"):
        cond(table > 0.0, lambda x: x, lambda x: x, table)
    for given in (table, table.astype(object)):
        with pytest.raises(PredicateError, match="DataFrame of dtype"):
            where(given, np.sqrt, lambda x: 0.0, table)


def test_a_wrapper_is_as_lazy_as_its_array():
    wrapped = labelled()
    assert is_concrete(wrapped(np.ones(2)))
    assert not is_concrete(1.0, {"a": wrapped(da.ones(2))})
    assert not is_concrete(da.ones(2))


def test_a_series_of_tensors_is_asked_for_its_elements():
    tracked = torch.ones((), requires_grad=True)
    assert within_gradient(pd.Series([tracked, 1.0])) is True
    assert within_gradient(pd.Series([tracked.detach(), "a"])) is False


def test_dtypes_of_two_libraries_are_not_compared():
    from adprotocol._dispatch.dtype import kind_of_dtype

    for dtype in (np.dtype("float64"), strict.float64, torch.float64, np.dtype("bool"), strict.bool, pd.Float64Dtype()):
        assert kind_of_dtype(dtype) == ("bool" if "bool" in str(dtype) else "float")


class Grid:
    """An array whose shape and dtype are attributes of its instances, as SciPy's `lil_array` is."""

    def __init__(self, values):
        self.values = np.asarray(values)
        self.shape, self.dtype = self.values.shape, self.values.dtype

    def __add__(self, other):
        return Grid(self.values + other)


def test_a_class_with_marks_on_its_instances_is_as_declared():
    grid = Grid([1.0, 2.0])
    with pytest.raises(UnclaimedTypeError, match="register_without_ad"):
        within_gradient(grid)
    register_without_ad(Grid)
    assert within_gradient({"a": grid}) is False
    assert non_differentiable({"a": grid})["a"] is grid
    assert trainable({"a": grid, "b": 1.0}) == {"a": None, "b": 1.0}


@pytest.mark.parametrize("version", ["2022.12", "2023.12", "2024.12"])
@pytest.mark.parametrize("name", ["CPU_DEVICE", "device1"])
def test_numbers_beside_strict_arrays_have_their_dtype_and_device(version, name):
    strict = pytest.importorskip("array_api_strict")
    with warnings.catch_warnings(), strict.ArrayAPIStrictFlags(api_version=version):
        warnings.simplefilter("ignore")  # of a version that is not the newest
        device = strict.Device(name)
        x = strict.asarray([4.0, -1.0], dtype=strict.float32, device=device)
        one = where(x > 0, lambda x: x, lambda _: 0.0, x)
        two = where(x > 0, lambda _: 1.0, lambda _: -1.0, x)
        assert (one.dtype, one.device) == (strict.float32, device)
        assert (two.dtype, two.device) == (strict.float64, device)
        assert [float(y) for y in (one[0], one[1], two[0], two[1])] == [4.0, 0.0, 1.0, -1.0]
