"""`vjp` and `jvp`: products with a Jacobian over structures, on every framework, beside closed forms."""

import dataclasses
import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from ad_backends import AUTOGRAD, JAX, TORCH, close, on_every_backend

import adprotocol
from adprotocol import NonDifferentiable, custom_derivative, grad, jacobian, jvp, vjp, within_gradient
from adprotocol.errors import ArgumentError, NothingTrainableError, OutputError, RuleError


@dataclasses.dataclass
class Model:
    w: Any
    b: Any
    order: int = 2


def cubes(x):
    return {"cube": x**3, "twice": 2.0 * x, "count": 3, "name": "n", "none": None}


def model_of(ad):
    return Model(ad.make([1.0, 2.0]), ad.make(0.5))


def affine(model, x):
    return model.w * x + model.b


# the value, and what is pulled


@on_every_backend
def test_the_value_has_its_structure_and_its_arrays_are_the_outputs(ad):
    x = ad.make([1.0, 2.0])
    value, pull = vjp(cubes, x)
    assert close(value["cube"], [1.0, 8.0])
    assert (value["count"], value["name"], value["none"]) == (3, "n", None)
    (gradient,) = pull({"cube": ad.make([1.0, 10.0]), "twice": None, "count": None, "name": None, "none": None})
    assert close(gradient, [3.0, 120.0])
    assert type(value["cube"]) is type(x)


@on_every_backend
def test_gradients_have_the_structures_of_the_primals(ad):
    value, pull = vjp(affine, model_of(ad), ad.make([3.0, 4.0]))
    assert close(value, [3.5, 8.5])
    model, x = pull(ad.make([1.0, 10.0]))
    assert isinstance(model, Model)
    assert close(model.w, [3.0, 40.0])
    assert close(model.b, 11.0)
    assert model.order is None
    assert close(x, [1.0, 20.0])


@on_every_backend
def test_where_selects_and_a_primal_without_a_leaf_is_none_throughout(ad):
    _, pull = vjp(affine, model_of(ad), 3, where="w")
    model, x = pull(ad.make([1.0, 10.0]))
    assert close(model.w, [3.0, 30.0])
    assert (model.b, model.order, x) == (None, None, None)


@on_every_backend
def test_a_leaf_without_influence_has_zeros_and_none_is_zero(ad):
    _, pull = vjp(lambda x, y: (2.0 * x, x * x), ad.make([1.0, 2.0]), ad.make(3.0))
    x, y = pull((None, ad.make([1.0, 1.0])))
    assert close(x, [2.0, 4.0])
    assert close(y, 0.0)
    x, y = pull(None)
    assert close(x, [0.0, 0.0])
    assert close(y, 0.0)


@on_every_backend
def test_a_pull_of_one_is_the_gradient_of_grad(ad):
    def loss(model, x):
        return (affine(model, x) ** 2).sum()

    model, x = model_of(ad), ad.make([3.0, 4.0])
    value, pull = vjp(loss, model, x)
    want = adprotocol.grad(loss, argnums=(0, 1))(model, x)
    got = pull(1.0)
    assert close(value, loss(model, x))
    assert close(got[0].w, want[0].w)
    assert close(got[0].b, want[0].b)
    assert close(got[1], want[1])


@on_every_backend
def test_complex_leaves_follow_the_framework_as_in_grad(ad):
    z = ad.make([1.0 + 2.0j, 0.5 - 1.0j])

    def loss(z):
        return ad.xp.abs(z * z).sum()

    (gradient,) = vjp(loss, z)[1](1)
    assert close(ad.xp.real(gradient), ad.xp.real(grad(loss)(z)))
    assert close(ad.xp.imag(gradient), ad.xp.imag(grad(loss)(z)))


@on_every_backend
def test_labels_and_integers_in_the_value_are_constants(ad):
    def fun(x):
        return NonDifferentiable(x * x), (x * 2.0, (x > 1.5))

    value, pull = vjp(fun, ad.make([1.0, 2.0]))
    assert isinstance(value[0], NonDifferentiable)
    assert close(value[0].value, [1.0, 4.0])
    assert np.asarray(value[1][1]).tolist() == [False, True]
    assert close(pull((None, (ad.make([1.0, 1.0]), None)))[0], [2.0, 2.0])
    with pytest.raises(ArgumentError, match=r"cotangent of the value at 1 at 1, where there is no derivative"):
        pull((None, (None, ad.make([1.0, 1.0]))))


@on_every_backend
def test_auxiliary_output_comes_third(ad):
    value, pull, aux = vjp(lambda x: (x * x, {"half": x / 2.0, "n": 1}), ad.make([2.0]), has_aux=True)
    assert close(value, [4.0])
    assert close(aux["half"], [1.0])
    assert aux["n"] == 1
    assert close(pull(ad.make([1.0]))[0], [4.0])
    value, tangent, aux = jvp(lambda x: (x * x, x / 2.0), (ad.make([2.0]),), (ad.make([1.0]),), has_aux=True)
    assert close(tangent, [4.0])
    assert close(aux, [1.0])


# any number of times, later, elsewhere


@on_every_backend
def test_a_pull_may_be_called_often_and_out_of_order_and_the_function_ran_once(ad):
    runs = []

    def fun(x):
        runs.append(1)
        return x**3

    x = ad.make([1.0, 2.0])
    _, first = vjp(fun, x)
    _, second = vjp(lambda x: fun(x) * 2.0, x)
    one = ad.make([1.0, 1.0])
    assert close(second(one)[0], [6.0, 24.0])
    assert close(first(one)[0], [3.0, 12.0])
    assert close(first(10.0 * one)[0], [30.0, 120.0])
    assert len(runs) == 2


@on_every_backend
def test_a_pull_in_another_thread(ad):
    _, pull = vjp(lambda x: x**3, ad.make([1.0, 2.0]))
    found = []
    thread = threading.Thread(target=lambda: found.append(pull(ad.make([1.0, 1.0]))))
    thread.start()
    thread.join()
    assert close(found[0][0], [3.0, 12.0])


@pytest.mark.parametrize("ad", [TORCH, AUTOGRAD], ids=lambda ad: ad.name)
def test_what_a_pull_needs_is_freed_with_it(ad):
    x = ad.make(np.ones(5))

    class Big:
        pass

    big = Big()
    here = weakref.ref(big)

    def fun(x, big=big):
        assert big is not None
        return x**3

    _, pull = vjp(fun, x)
    del big, fun
    assert here() is not None
    del pull
    gc.collect()
    assert here() is None


# again


@on_every_backend
def test_gradients_are_differentiable_by_primals_cotangents_and_what_is_closed_over(ad):
    one = ad.make([1.0, 1.0])

    def by_primal(x):
        return vjp(lambda x: x**3, x)[1](one)[0].sum()

    assert close(grad(by_primal)(ad.make([1.0, 2.0])), [6.0, 12.0])
    assert close(ad.derivative(by_primal)(ad.make([1.0, 2.0])), [6.0, 12.0])

    _, pull = vjp(lambda x: x**3, ad.make([1.0, 2.0]))
    assert close(grad(lambda ct: (pull(ct)[0] ** 2).sum())(one), [18.0, 288.0])
    assert close(ad.derivative(lambda ct: (pull(ct)[0] ** 2).sum())(one), [18.0, 288.0])

    def by_scale(scale):
        return vjp(lambda x: scale * x**3, ad.make([1.0, 2.0]))[1](one)[0].sum()

    assert close(grad(by_scale)(ad.make(2.0)), 15.0)


@on_every_backend
def test_levels_are_not_mixed_up(ad):
    # d/dx of x * (d/dy of x * y at y = x, the inner variable a variable of its own): x * x, so 2 x.
    def outer(x):
        _, pull = vjp(lambda y: x * y, x)
        return x * pull(1.0)[0]

    assert close(grad(outer)(ad.make(3.0)), 6.0)
    # A pull of the outer level, called inside another derivative, is that of its own call.
    _, pull = vjp(lambda x: x**2, ad.make(3.0))
    assert close(grad(lambda y: y * pull(1.0)[0])(ad.make(5.0)), 6.0)


@on_every_backend
def test_value_and_tangent_are_differentiable(ad):
    def directional(x):
        value, tangent = jvp(lambda x: x**3, (x,), (ad.make([1.0, 2.0]),))
        return (value + tangent).sum()

    assert close(grad(directional)(ad.make([1.0, 2.0])), [9.0, 36.0])
    assert close(jvp(directional, (ad.make([1.0, 2.0]),), (ad.make([1.0, 0.0]),))[1], 9.0)
    # Forward over reverse: a Hessian-vector product.
    hvp = jvp(grad(lambda x: (x**3).sum()), (ad.make([1.0, 2.0]),), (ad.make([1.0, 10.0]),))[1]
    assert close(hvp, [6.0, 120.0])


@on_every_backend
def test_within_gradient_is_true_of_what_moves_and_false_of_the_rest(ad):
    seen = []

    def fun(model, x):
        seen.append([bool(within_gradient(leaf)) for leaf in (model.w, model.b, x)])
        return affine(model, x)

    model, x, one = model_of(ad), ad.make([3.0, 4.0]), ad.make([1.0, 1.0])
    vjp(fun, model, x, where="w")
    jvp(fun, (model, x), (Model(one, None, None), None))
    assert seen == [[True, False, False]] * 2


# rules that run in a pull


@on_every_backend
def test_a_rule_runs_in_the_pull_and_sees_the_call(ad):
    @custom_derivative
    def triple(x):
        return 3.0 * x

    ran = []

    @triple.defvjp
    def triple_vjp(cotangent, _, x):
        ran.append(1)
        return (30.0 * cotangent + 0.0 * x,)

    _, pull = vjp(lambda x: triple(x) * x, ad.make(2.0))
    assert ran == [] or ad is JAX
    assert close(pull(1.0)[0], 6.0 + 60.0)


@on_every_backend
def test_an_exception_leaves_nothing_behind(ad):
    class OwnError(Exception):
        pass

    def fails(_):
        raise OwnError

    x = ad.make([1.0, 2.0])
    for call in (lambda: vjp(fails, x), lambda: jvp(fails, (x,), (x,)), lambda: jacobian(fails)(x)):
        with pytest.raises(OwnError):
            call()
    assert close(grad(lambda x: (x**2).sum())(x), [2.0, 4.0])
    assert within_gradient(x) is False


# errors


@on_every_backend
def test_a_wrong_cotangent_is_an_error_with_its_place(ad):
    _, pull = vjp(lambda x: {"a": x, "b": [2.0 * x]}, ad.make([1.0, 2.0]))
    for wrong, match in [
        (
            {"a": ad.make([1.0]), "b": [None]},
            r"pull was given an array of shape \(1,\) as cotangent of the value at 'a'",
        ),
        ({"a": None}, r"pull was given a dict of 'a' as cotangent of the value, which is a dict of 'a', 'b'"),
        ({"a": None, "b": [ad.make([1.0 + 1.0j, 0.0])]}, "a complex array as cotangent of the value at 'b' at 0"),
        (ad.make([1.0, 2.0]), "as cotangent of the value, which is a dict"),
        ({"a": "text", "b": [None]}, "pull was given a str as cotangent of the value at 'a'"),
    ]:
        with pytest.raises(ArgumentError, match=match):
            pull(wrong)


@on_every_backend
def test_a_wrong_tangent_is_an_error_with_its_place(ad):
    model, one = model_of(ad), ad.make([1.0, 1.0])
    for tangents, match in [
        ((Model(one, one, None), None), r"jvp was given an array of shape \(2,\) as tangent of argument 0 at 'b'"),
        ((Model(None, None, 1), None), "tangent of argument 0 at 'order', where there is no derivative"),
        ((None, None), "nothing moves"),
        ((None,), "2 primals and 1 tangents"),
        (one, "a tuple"),
    ]:
        with pytest.raises(ArgumentError, match=match):
            jvp(affine, (model, one), tangents)


@on_every_backend
def test_a_gradient_is_a_tangent_and_a_cotangent(ad):
    model = {"w": ad.make(2.0), "settings": {"order": 3, "names": ["a", "b"], "fixed": NonDifferentiable(1.0)}}
    gradient = grad(lambda m: m["w"] ** m["settings"]["order"])(model)
    assert close(jvp(lambda m: m["w"] ** 2, (model,), (gradient,))[1], 48.0)
    assert close(vjp(lambda m: m, model)[1](gradient)[0]["w"], 12.0)


@on_every_backend
def test_other_dtypes_of_the_kind_are_converted_and_numbers_serve_for_scalars(ad):
    _, pull = vjp(lambda x: (x * x).sum(), ad.make([1.0, 2.0]))
    assert close(pull(2)[0], [4.0, 8.0])
    assert close(pull(np.float16(2.0))[0], [4.0, 8.0])
    assert close(jvp(lambda x: x * x, (ad.make(3.0),), (2,))[1], 12.0)


@on_every_backend
def test_what_cannot_be_differentiated(ad):
    x = ad.make([1.0])
    with pytest.raises(ArgumentError, match="no primals"):
        vjp(lambda: x)
    with pytest.raises(ArgumentError, match="give it the function"):
        vjp(x, x)
    with pytest.raises(NothingTrainableError):
        vjp(lambda n: x * n, 3)
    with pytest.raises(OutputError, match="without an array"):
        vjp(lambda x: {"count": 3, "label": NonDifferentiable(x)}, x)
    with pytest.raises(OutputError, match="pair"):
        vjp(lambda x: x, x, has_aux=True)


# memory


@on_every_backend
def test_what_is_given_stays_as_it_is_and_results_lie_apart(ad):
    x, ct = ad.make([1.0, 2.0]), ad.make([1.0, 10.0])
    _, pull = vjp(lambda x, y: x + y, x, ad.make([3.0, 4.0]))
    a, b = pull(ct)
    if ad is not JAX:
        a += 100.0
    assert close(ct, [1.0, 10.0])
    assert close(b, [1.0, 10.0])
    tangent = ad.make([1.0, 1.0])

    def in_place(x):
        x = x * 1.0
        if ad is TORCH:
            x *= 2.0
        return x

    jvp(in_place, (x,), (tangent,))
    assert close(tangent, [1.0, 1.0])


# the Jacobian


@on_every_backend
@pytest.mark.parametrize("mode", ["reverse", "forward", None])
def test_a_jacobian_has_the_shape_of_the_output_before_that_of_the_leaf(ad, mode):
    def fun(model, x):
        return {"y": ad.xp.stack([affine(model, x), affine(model, x) ** 2, x, x]), "n": 1}

    model, x = model_of(ad), ad.make([3.0, 4.0])
    whole = jacobian(fun, argnums=(0, 1), mode=mode)(model, x)
    assert whole["n"] is None
    by_model, by_x = whole["y"]
    assert by_model.order is None
    y = np.array([3.5, 8.5])
    zero = np.zeros((2, 2))
    assert close(by_model.w, np.stack([np.diag([3.0, 4.0]), np.diag(2 * y * [3.0, 4.0]), zero, zero]))
    assert close(by_model.b, np.stack([[1.0, 1.0], 2 * y, [0.0, 0.0], [0.0, 0.0]]))
    assert close(by_x, np.stack([np.diag([1.0, 2.0]), np.diag(2 * y * [1.0, 2.0]), np.eye(2), np.eye(2)]))


@on_every_backend
@pytest.mark.parametrize("size", [1, 2])
def test_by_default_a_jacobian_needs_no_forward_mode(ad, size):
    @adprotocol.custom_derivative(reverse_only=True)
    def thrice(x):
        return ad.xp.stack([x, 2.0 * x, 3.0 * x])

    @thrice.defvjp
    def _(cotangent, _y, _x):
        return (cotangent[0] + 2.0 * cotangent[1] + 3.0 * cotangent[2],)

    x = ad.make([4.0, 5.0][:size])
    assert close(jacobian(thrice)(x), jacobian(thrice, mode="reverse")(x))
    with pytest.raises(RuleError):
        jacobian(thrice, mode="forward")(x)


@on_every_backend
def test_an_error_of_the_function_is_raised_by_its_first_run(ad):
    runs = []

    def failing(x):
        runs.append(x)
        msg = "the user's"
        raise ValueError(msg)

    with pytest.raises(ValueError, match="the user's"):
        jacobian(failing)(ad.make([4.0]))
    assert len(runs) == 1


@on_every_backend
@pytest.mark.parametrize("outer", ["reverse", "forward"])
@pytest.mark.parametrize("inner", ["reverse", "forward"])
def test_a_hessian_over_structures_in_any_mixture_of_modes(ad, outer, inner):
    def loss(p):
        return (p["x"] ** 3).sum() * p["s"]

    p = {"x": ad.make([1.0, 2.0]), "s": ad.make(2.0)}
    for first in (grad(loss), jacobian(loss, mode=inner)):
        whole = jacobian(first, mode=outer)(p)
        assert close(whole["x"]["x"], [[12.0, 0.0], [0.0, 24.0]])
        assert close(whole["x"]["s"], [3.0, 12.0])
        assert close(whole["s"]["x"], [3.0, 12.0])
        assert close(whole["s"]["s"], 0.0)
        if ad.vmap is not None:
            rows = ad.vmap(lambda s: jacobian(first, mode=outer)({**p, "s": s})["s"]["x"])(p["x"])  # noqa: B023
            assert close(rows, [[3.0, 12.0], [3.0, 12.0]])


@on_every_backend
@pytest.mark.parametrize("mode", ["reverse", "forward"])
@pytest.mark.parametrize("chunk_size", [None, 2])
def test_rows_in_chunks_and_auxiliary_output(ad, mode, chunk_size):
    whole, aux = jacobian(lambda x: (x**2, {"x": x, "n": 7}), has_aux=True, mode=mode, chunk_size=chunk_size)(
        ad.make([1.0, 2.0, 3.0, 4.0, 5.0])
    )
    assert close(whole, np.diag([2.0, 4.0, 6.0, 8.0, 10.0]))
    assert close(aux["x"], [1.0, 2.0, 3.0, 4.0, 5.0])
    assert aux["n"] == 7


@on_every_backend
@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_empty_outputs_and_leaves_have_empty_rows(ad, mode):
    whole = jacobian(lambda p: {"a": p["x"][:0], "b": p["x"] * 2.0}, mode=mode)(
        {"x": ad.make([1.0, 2.0]), "e": ad.make(np.zeros((0, 3)))}
    )
    assert np.shape(whole["a"]["x"]) == (0, 2)
    assert np.shape(whole["a"]["e"]) == (0, 0, 3)
    assert np.shape(whole["b"]["e"]) == (2, 0, 3)
    assert close(whole["b"]["x"], 2 * np.eye(2))
    alone = jacobian(lambda e: (e.sum(), e), mode=mode)(ad.make(np.zeros(0)))
    assert [np.shape(part) for part in alone] == [(0,), (0, 0)]


@on_every_backend
def test_the_number_of_runs(ad):
    runs = []

    def fun(p):
        runs.append(1)
        return ad.xp.stack([p["a"] * p["b"], p["a"]])

    p = {"a": ad.make(2.0), "b": ad.make(3.0)}
    jacobian(fun, mode="reverse")(p)
    assert len(runs) == 1
    jacobian(fun, mode="forward")(p)
    assert len(runs) == (3 if ad is AUTOGRAD else 2)  # once, by vmap; for each element without
    runs.clear()
    assert close(jacobian(lambda t: fun({"a": t, "b": t}))(ad.make(3.0)), [6.0, 1.0])
    assert len(runs) == 1


@on_every_backend
def test_complex_numbers_in_a_jacobian(ad):
    z, x = ad.make([1.0 + 2.0j]), ad.make([1.0, 2.0])
    with pytest.raises(OutputError, match="mode='forward'"):
        jacobian(lambda x: x * (1.0 + 2.0j))(x)
    whole = jacobian(lambda x: x * (1.0 + 2.0j), mode="forward")(x)
    assert close(ad.xp.real(whole), np.eye(2))
    assert close(ad.xp.imag(whole), 2 * np.eye(2))
    with pytest.raises(ArgumentError, match="mode='reverse'"):
        jacobian(ad.xp.abs, mode="forward")(z)


def test_wrong_modes_and_chunks():
    for arguments in ({"mode": "both"}, {"chunk_size": 0}, {"chunk_size": True}):
        with pytest.raises(ArgumentError, match="jacobian was given"):
            jacobian(lambda x: x, **arguments)


# switches of PyTorch


@pytest.mark.parametrize("switch", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
def test_products_are_right_where_gradients_are_off(switch):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with switch():
        value, pull = vjp(lambda x: x**3, x)
        (gradient,) = pull(torch.ones(2))
        _, tangent = jvp(lambda x: x**3, (x,), (torch.ones(2),))
        whole = jacobian(lambda x: x**3)(x)
    assert close(gradient, [3.0, 12.0])
    assert close(tangent, [3.0, 12.0])
    assert close(whole, [[3.0, 0.0], [0.0, 12.0]])
    assert not any(result.requires_grad for result in (value, gradient, tangent, whole))
    _, pull = vjp(lambda x: x**3, torch.tensor([1.0, 2.0]))
    with switch():
        assert close(pull(torch.ones(2))[0], [3.0, 12.0])
