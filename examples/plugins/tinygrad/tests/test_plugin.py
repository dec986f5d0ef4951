import gc
import pickle

import numpy as np
import pytest
from tinygrad import Device, Tensor, TinyJit, dtypes, function, nn
from tinygrad.helpers import Context

import adprotocol
from adprotocol import cond, non_differentiable, within_gradient
from adprotocol.errors import BranchMismatchError, GradientPreventedError, UndecidableError

DTYPES = ("float32", "float64", "float16")


def variable(value=(1.0, 2.0, 3.0), dtype="float32"):
    return Tensor(list(value), dtype=dtype)


def data(value=(1.0, 2.0, 3.0), dtype="float32"):
    return Tensor(list(value), dtype=dtype).is_param_(False)


def layer(x):
    return cond(within_gradient(x), lambda x: 3.0 * x, lambda x: 5.0 * x, x)


def captured(fun, *args):
    """Return a TinyJit that has been captured, so that its next call is a replay."""
    made = TinyJit(fun)
    made(*args)
    made(*args)
    return made


def close(got, want):
    np.testing.assert_allclose(stored(got).numpy(), want, rtol=1e-5)


def stored(tensor):
    """Return a tensor with a device: tinygrad computes numbers without one on the CPU, which needs a compiler."""
    return tensor if tensor.device is not None else tensor.clone(device=Device.DEFAULT)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x.sum(),
        lambda x: x.max(),
        lambda x: x.mean(),
        lambda x: x.cast(dtypes.float64),
        lambda x: x.half().float(),
        lambda x: x[1],
        lambda x: x[Tensor([0, 2])],
        lambda x: x.reshape(3, 1).expand(3, 2).permute(1, 0).flip(0),
        lambda x: x.pad((1, 1)).shrink(((1, 3),)),
        lambda x: (x > 1.5).where(x, 0.0),
        lambda x: (x > 1.5).where(0.0, x),
        lambda x: x.cat(x),
        lambda x: x.contiguous(),
        lambda x: x.softmax().log(),
        function(lambda a: a * 2.0),
    ],
)
def test_a_question_behind_an_operation(operation, dtype):
    for x, want in ((variable(dtype=dtype), True), (data(dtype=dtype), False), (variable(dtype=dtype).detach(), False)):
        result = operation(x)
        assert within_gradient(result) is want
        # The question is answered as tinygrad differentiates.
        if want:
            assert stored(result.cast("float32").sum().gradient(x)[0]).cast("float32").numpy().any()
    constant = operation(non_differentiable(variable(dtype=dtype)))
    assert within_gradient(constant) is False


def test_what_has_no_derivative_is_constant():
    x = variable()
    for result in ((x > 1.0).float(), (x > 1.0).where(data(), 0.0), x.bitcast(dtypes.int32).bitcast(dtypes.float32)):
        assert within_gradient(result) is False
    assert within_gradient((x > 1.0).where(x, 0.0)) is True


def test_a_constant_stays_one_when_it_is_realised():
    x = variable()
    constant = non_differentiable(x)
    for result in (constant * 2.0, constant.sum(), constant.cast("float64"), constant[1:], constant.reshape(3, 1)):
        for again in (
            result,
            result.realize(),
            (result * 2.0).realize(),
            (result.realize() + 1.0).cast("float16").realize(),
        ):
            assert within_gradient(again) is False
    constant.realize()
    assert within_gradient(constant.clone()) is False
    view = constant.reshape(3)
    del constant
    gc.collect()
    assert within_gradient(view) is False


def test_a_copy_follows_the_flag():
    assert within_gradient(variable().clone()) is True
    assert within_gradient(data().clone()) is False
    assert within_gradient(variable().detach().clone()) is True


def test_variables_are_tracked_however_they_are_stored():
    for made in (variable(), Tensor.uniform(3), Tensor.zeros(3), Tensor.randn(3) * 0.1, Tensor.uniform(3).realize()):
        assert within_gradient(made) is True
        assert within_gradient(made * 2.0) is True
        assert within_gradient(made.is_param_(False)) is False
        assert within_gradient(made * 2.0) is False
    assert within_gradient((variable().detach() * 0.5).clone()) is True


def test_a_literal_does_not_track_a_constant():
    constant = non_differentiable(variable())
    result = constant * Tensor([1.0, 2.0, 3.0])
    assert within_gradient(result) is False
    held = variable()
    result = constant * held
    assert within_gradient(result) is True


def test_parameters_stay_tracked_through_a_training_step():
    linear, x = nn.Linear(3, 1), variable().reshape(1, 3).is_param_(False)
    optimizer = nn.optim.SGD(nn.state.get_parameters(linear), lr=0.1)
    for _ in range(2):
        with Context(TRAINING=1):
            optimizer.zero_grad()
            assert within_gradient(linear(x)) is True
            linear(x).sum().backward()
            optimizer.step()
        assert within_gradient(linear.weight) is True
    for parameter in nn.state.get_parameters(linear):
        parameter.is_param_(False)
    assert within_gradient(linear(x)) is False
    norm = nn.BatchNorm(3)
    assert within_gradient([norm.running_mean, norm.running_var]) is False
    assert within_gradient(norm.weight) is True


def test_functions_of_tinygrad_are_looked_into():
    x = variable()
    first, second = function(lambda a, b: (a * 2.0, b.detach() + 1.0))(x, x)
    assert within_gradient(first) is True
    assert within_gradient(second) is False
    inside = []

    def asks(a):
        inside.append(within_gradient(a))
        return layer(a)

    close(function(asks)(x), [3.0, 6.0, 9.0])
    close(function(asks)(data()), [5.0, 10.0, 15.0])
    ruled = function(asks, grad_fxn=lambda upstream, call: (upstream,))
    close(ruled(x), [5.0, 10.0, 15.0])
    assert inside == [True, False, False]
    assert within_gradient(ruled(x)) is True


@pytest.mark.parametrize("precompile", [False, True])
def test_gradients_through_and_in_functions(precompile):
    cube = function(lambda a: a * a * a, precompile=precompile)
    close(adprotocol.grad(lambda a: cube(a).sum())(variable()), [3.0, 12.0, 27.0])
    inner = function(adprotocol.grad(lambda a: (a * a * a).sum()), precompile=precompile)
    close(inner(variable()), [3.0, 12.0, 27.0])


def test_functions_that_close_over_what_is_differentiated():
    other, answers = variable((2.0, 2.0, 2.0)), []

    def asks(a, b):
        answers.append(within_gradient(a * b))
        return layer(a) * b

    def closing(a, given):
        answers.append(within_gradient(function(lambda b: a * b, allow_implicit=True)(given)))
        return function(lambda b: asks(a, b), allow_implicit=True)(given).sum()

    for leaf in (variable(), variable().detach(), variable().realize(), variable() * 1.0):
        for given, want in ((other, [6.0, 6.0, 6.0]), (other.detach(), [6.0, 6.0, 6.0]), (leaf, [3.0, 6.0, 9.0])):
            close(adprotocol.grad(lambda a, given=given: closing(a, given))(leaf), want)
            outer = adprotocol.grad(
                lambda a, given=given: adprotocol.grad(lambda b: closing(b, given))(a).sum() + 0 * a.sum()
            )
            close(outer(leaf), [0.0, 0.0, 0.0])
    cube = lambda a: function(lambda b: a * a * a * b, allow_implicit=True)(other).sum()
    first = adprotocol.grad(cube)
    second = adprotocol.grad(lambda a: function(lambda b: first(a) * b, allow_implicit=True)(other).sum())
    for x in (variable(), variable() * 1.0):
        close(first(x), [6.0, 24.0, 54.0])
        close(second(x), [24.0, 48.0, 72.0])
        close(captured(second, x)(x), [24.0, 48.0, 72.0])
    assert all(answers)
    scalar = Tensor([3.0]).reshape(()).realize()
    close(
        adprotocol.grad(lambda m: function(lambda b: m["s"] * b, allow_implicit=True)(other).sum())({"s": scalar})["s"],
        6.0,
    )


def test_gradients_of_gradients():
    x = variable()
    cube = lambda a: (a * a * a).sum()
    first = adprotocol.grad(cube)
    second = adprotocol.grad(lambda a: first(a).sum())
    third = adprotocol.grad(lambda a: second(a).sum())
    for order, want in ((first, [3.0, 12.0, 27.0]), (second, [6.0, 12.0, 18.0]), (third, [6.0, 6.0, 6.0])):
        close(order(x), want)
        close(captured(order, x)(x), want)
    # Each call has an argument of its own, though the tensor is one.
    close(adprotocol.grad(lambda a: adprotocol.grad(lambda b: (a * b).sum())(x).sum())(x), [1.0, 1.0, 1.0])
    # The native gradient around ours.
    close((first(x) * first(x)).sum().gradient(x)[0], [36.0, 288.0, 972.0])


def test_layers_plain_and_differentiated_in_both_orders():
    x = data()
    tracked = adprotocol.grad(lambda a: layer(a).sum())
    for _ in range(2):
        close(layer(x), [5.0, 10.0, 15.0])
        close(tracked(variable()), [3.0, 3.0, 3.0])
    jitted_gradient, jitted = captured(tracked, variable()), captured(layer, x)
    for _ in range(2):
        close(jitted_gradient(variable()), [3.0, 3.0, 3.0])
        close(jitted(x), [5.0, 10.0, 15.0])


def test_stale_answers_of_a_jit_raise():
    weights = variable()
    by_argument, by_closure = captured(layer, data()), captured(lambda x: layer(weights) * x, data())
    close(by_argument(data()), [5.0, 10.0, 15.0])
    with pytest.raises(UndecidableError, match="argument 0 was not tracked"):
        by_argument(variable())
    close(by_argument(data()), [5.0, 10.0, 15.0])
    close(by_closure(data()), [3.0, 12.0, 27.0])
    # Nobody asked about the argument here.
    close(by_closure(variable()), [3.0, 12.0, 27.0])
    weights.is_param_(False)
    with pytest.raises(UndecidableError, match="is_param was True"):
        by_closure(data())
    weights.is_param_(True)
    close(by_closure(data()), [3.0, 12.0, 27.0])


def test_a_jit_in_which_nobody_asked_is_left_alone():
    weights = variable()
    jitted = captured(lambda x: weights * x, data())
    weights.is_param_(False)
    close(jitted(variable()), [1.0, 4.0, 9.0])


def test_a_jit_that_was_pickled():
    loaded = pickle.loads(pickle.dumps(captured(layer, data())))  # noqa: S301
    close(loaded(data().realize()), [5.0, 10.0, 15.0])


def test_a_jitted_training_step():
    weights, rate = variable(), 0.1

    @TinyJit
    def step(x):
        value, gradient = adprotocol.value_and_grad(lambda w: (layer(w) * x).sum())(weights)
        weights.assign(weights.detach() - rate * gradient)
        return value.realize(weights)

    want = np.array([1.0, 2.0, 3.0])
    for _ in range(4):
        x = data()
        close(step(x), 3.0 * (want * x.numpy()).sum())
        want = want - rate * 3.0 * x.numpy()
        close(weights, want)


@pytest.mark.parametrize(
    "fun",
    [
        lambda a: (a * 2.0).realize().sum(),
        lambda a: (a * 2.0).clone().realize().sum(),
        lambda a: ((b := (a * 2.0).contiguous()), b.sum().item(), b.sum())[-1],
        lambda a: captured(lambda b: b * b, variable())(a).sum(),
        lambda a: TinyJit(lambda b: b * b)(a).sum(),
    ],
)
def test_a_derivative_that_realize_takes_away_raises(fun):
    for _ in range(2):
        with pytest.raises(UndecidableError, match="TinyJit"):
            adprotocol.grad(fun)(variable())
    close(adprotocol.grad(lambda a: (a * a).sum())(variable()), [2.0, 4.0, 6.0])


def test_realising_what_is_no_part_of_the_derivative():
    kept = []

    def fun(a):
        kept.append((a * 2.0).realize())
        scale = a.detach().sum().realize()
        return (a.realize() * scale).sum()

    close(adprotocol.grad(fun)(variable()), [6.0, 6.0, 6.0])
    close(adprotocol.grad(lambda b: (b * kept[0]).sum())(variable()), [2.0, 4.0, 6.0])


@pytest.mark.parametrize(
    "constant",
    [
        lambda a: adprotocol.non_differentiable(a * a).realize(),
        lambda a: (adprotocol.non_differentiable(a * a) * 1.0).realize(),
        lambda a: captured(lambda b: b * b, variable().detach())(adprotocol.non_differentiable(a)),
    ],
)
def test_constants_are_computed_inside_of_a_gradient(constant):
    close(adprotocol.grad(lambda a: (constant(a) * a).sum())(variable()), [1.0, 4.0, 9.0])


def test_what_shares_its_buffer_with_a_constant_is_cut():
    def fun(a):
        b = a * a
        return (adprotocol.non_differentiable(b).realize() * b).sum()

    with pytest.raises(UndecidableError, match="TinyJit"):
        adprotocol.grad(fun)(variable())


def test_reading_a_predicate_cuts_nothing():
    for copy in (lambda a: (a * 2.0).contiguous(), lambda a: (a * 2.0).clone()):

        def fun(a, copy=copy):
            b = copy(a)
            return cond(b.sum() > 0, lambda b: (b * b).sum(), lambda b: b.sum(), b)

        close(adprotocol.grad(fun)(variable()), [8.0, 16.0, 24.0])
        x = variable()
        close(fun(x).gradient(x)[0], [8.0, 16.0, 24.0])


def test_a_predicate_that_depends_on_an_assignment():
    twice = lambda x: cond(x.sum() > 6.5, lambda x: x * 2.0, lambda x: x, x)
    weights = variable().realize()
    weights.assign(weights + 1.0)
    close(twice(weights), [4.0, 6.0, 8.0])
    close(weights, [2.0, 3.0, 4.0])
    # Computing what is stored would take its derivative away.
    x, weights = variable(), variable().realize()
    weights.assign(x * 2.0)
    close(twice(weights).sum().gradient(x)[0], [4.0, 4.0, 4.0])
    close(weights, [2.0, 4.0, 6.0])
    assert cond(Tensor(True), lambda: "true", lambda: "false") == "true"


def test_one_branch_runs_eagerly_and_both_in_a_capture():
    ran = []

    def fun(x):
        return cond(x.sum() > 0, lambda x: (ran.append("true"), x * 2.0)[1], lambda x: (ran.append("false"), -x)[1], x)

    close(fun(data()), [2.0, 4.0, 6.0])
    assert ran == ["true"]
    jitted = captured(fun, data())
    ran.clear()
    close(jitted(data()), [2.0, 4.0, 6.0])
    close(jitted(data((-1.0, -2.0, -3.0))), [1.0, 2.0, 3.0])
    assert ran == []


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_nan_leaves_the_branch_not_taken(dtype):
    outside = variable([0.0], dtype)
    root = lambda x: cond(x.sum() > 0, lambda x: (x * outside).sqrt().sum(), lambda x: (2.0 * x * x).sum(), x)
    gradient = adprotocol.grad(root)
    second = adprotocol.grad(lambda x: gradient(x).sum())
    x = variable([0.0], dtype)
    for run in (lambda f: f(x), lambda f: captured(f, x)(x)):
        close(run(gradient), [0.0])
        close(run(second), [4.0])
    # What the branch closes over, and the native gradient around the select.
    native = captured(lambda x: root(x).gradient(outside)[0].contiguous(), x)
    close(native(x), [0.0])


def test_branches_that_differ_are_refused_in_a_capture():
    for other in (lambda x: x.sum(), lambda x: x.cast("float64"), lambda x: [x], lambda x: "text"):
        with pytest.raises(BranchMismatchError, match=r"true_fun returned float\[3\], false_fun "):
            captured(lambda x, other=other: cond(x.sum() > 0, lambda x: x * 2.0, other, x), data())


def test_prevented_gradients():
    guarded = lambda x: adprotocol.prevent_gradient(x, "a table")
    close(guarded(data()) * 2.0, [2.0, 4.0, 6.0])
    with pytest.raises(GradientPreventedError, match="a table"):
        adprotocol.grad(lambda x: guarded(x * 2.0).sum())(variable())


def test_one_variable_at_two_places_is_one_leaf():
    tied, loss = variable([3.0]), lambda m: (m["a"] * m["b"] * m["b"]).sum()
    gradient = adprotocol.grad(loss)({"a": tied, "b": tied})
    close(gradient["a"], [27.0])
    assert gradient["b"] is None
    result = (tied * 1.0).detach()
    gradient = adprotocol.grad(loss)({"a": result, "b": result})
    close(gradient["a"], [9.0])
    close(gradient["b"], [18.0])


def test_frozen_variables_are_constants_in_the_call():
    model, answers = {"a": variable([2.0]), "b": variable([3.0])}, []

    def loss(m):
        answers.append((within_gradient(m["a"]), within_gradient(m["b"])))
        return (m["a"] * m["b"]).sum()

    close(adprotocol.grad(loss, where="a")(model)["a"], [3.0])
    model["b"].is_param_(False)
    close(adprotocol.grad(loss)(model)["a"], [3.0])
    close(adprotocol.grad(loss, where="b")(model)["b"], [2.0])
    assert answers == [(True, False), (True, False), (False, True)]
    assert [t.is_param for t in model.values()] == [True, False]
    assert [t.grad for t in model.values()] == [None, None]


def test_zeros_have_a_device_and_can_be_assigned():
    x = variable()
    gradient = adprotocol.grad(lambda m: (m["a"] * 2.0).sum())({"a": x, "unused": variable()})
    close(gradient["unused"], [0.0, 0.0, 0.0])
    x.assign(x.detach() - gradient["unused"]).realize()
    assert within_gradient(x) is True


def test_labels_are_operands_on_either_side():
    label, x = adprotocol.NonDifferentiable(variable()), variable()
    close(x * label, [1.0, 4.0, 9.0])
    close(label * x, [1.0, 4.0, 9.0])
    close((x > 1.5).where(label, x), [1.0, 2.0, 3.0])
    close((x * label).sum().gradient(x)[0], [1.0, 2.0, 3.0])


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_rows_of_a_jacobian_and_elements_that_are_chosen(mode):
    x = variable()
    close(adprotocol.jacobian(lambda x: x * x[0], mode=mode)(x), [[2.0, 0.0, 0.0], [2.0, 1.0, 0.0], [3.0, 0.0, 1.0]])
    choose = lambda x: adprotocol.where(x > 1.5, lambda x: 1.0 / (x - 1.0), lambda x: 2.0 * x, x)
    close(choose(x).sum().gradient(x)[0], [2.0, -1.0, -0.25])


def test_a_product_that_is_checked_keeps_what_is_differentiated_around_it():
    x = variable()
    product = lambda x: adprotocol.jvp(lambda x: (x * x[0]).contiguous(), (x,), (x.contiguous(),))[1].sum()
    close(product(x), 12.0)
    close(adprotocol.grad(product)(x), [14.0, 2.0, 2.0])
