"""What the conformance suite cannot see: PyTensor's own ways to build, differentiate and compile a graph."""

import pickle
import threading

import adprotocol_pytensor
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.gradient import (
    disconnected_grad,
    grad,
    hessian,
    hessian_vector_product,
    jacobian,
    pullback,
    pushforward,
    zero_grad,
)
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.ifelse import ifelse
from pytensor.link.vm import VMLinker
from pytensor.raise_op import Assert
from pytensor.scan import until
from pytensor.tensor.optimize import minimize

import adprotocol
from adprotocol.errors import ArgumentError, BranchMismatchError, GradientPreventedError, UndecidableError

MODES = {
    "as it is": Mode(VMLinker(use_cloop=False, c_thunks=False), None),
    "fast_compile": "FAST_COMPILE",
}


@pytest.fixture(params=MODES)
def value(request):
    """Evaluate outputs of a graph, one function for each, unless they come in one list."""
    mode = MODES[request.param]

    def evaluate(outputs, given=None, **options):
        given = given or {}
        function = pytensor.function(list(given), outputs, mode=mode, on_unused_input="ignore", **options)
        result = function(*given.values())
        return (
            [np.asarray(one).tolist() for one in result] if isinstance(outputs, list) else np.asarray(result).tolist()
        )

    return evaluate


def layer(x):
    return adprotocol.cond(adprotocol.within_gradient(x), lambda x: 3.0 * x, lambda x: 5.0 * x, x)


@pytest.fixture
def x():
    return pt.dscalar("x")


@pytest.fixture
def z():
    return pt.dscalar("z")


@pytest.fixture
def v():
    return pt.dvector("v")


# One function and two


def test_two_functions(value, x):
    y = layer(x) * x
    first = grad(y, x)
    assert value(y, {x: 2.0}) == 20.0
    assert value(first, {x: 2.0}) == 12.0
    assert value(y, {x: 2.0}) == 20.0
    assert value(grad(first, x), {x: 2.0}) == 6.0


def test_one_function_computes_the_value_of_its_gradient(value, x):
    y = layer(x) * x
    first = grad(y, x)
    assert value([y, first], {x: 2.0}) == [12.0, 12.0]
    assert value([y, grad(first, x)], {x: 2.0}) == [12.0, 6.0]
    assert value([pytensor.Out(y, borrow=True), 2.0 * first + 1.0], {x: 2.0}) == [12.0, 25.0]
    assert value(y, {x: 2.0}) == 20.0


def test_one_function_with_mixed_derivatives(value, x, z):
    y = layer(x) * layer(adprotocol.non_differentiable(layer(x)) * z)
    given = {x: 2.0, z: 1.0}
    in_x = grad(y, x)
    assert value(y, given) == 10.0 * 5.0 * 10.0
    assert value(in_x, given) == 3.0 * 5.0 * 6.0
    assert value([y, in_x], given) == [6.0 * 5.0 * 6.0, 3.0 * 5.0 * 6.0]
    assert value([y, in_x, grad(in_x, z)], given) == [6.0 * 3.0 * 6.0, 3.0 * 3.0 * 6.0, 3.0 * 3.0 * 6.0]


def test_another_question_in_that_function_is_another(value, x):
    assert value([layer(x) * x, grad(layer(x) * x, x)], {x: 2.0}) == [20.0, 12.0]


@pytest.mark.parametrize("updates", [dict, list])
def test_training_and_evaluation_in_one_function(value, x, updates):
    weight = pytensor.shared(2.0)
    loss, evaluated = (layer(weight) * x) ** 2, (layer(weight) * x) ** 2
    step = updates([(weight, weight - 0.1 * grad(loss, weight))])
    assert value([loss, evaluated], {x: 1.0}, updates=step) == [36.0, 100.0]
    assert weight.get_value() == pytest.approx(2.0 - 0.1 * 36.0)


def test_one_function_with_what_is_traced_once(value, x):
    traced = OpFromGraph([x], [layer(x) * x])
    y = traced(x)
    assert value([y, grad(y, x)], {x: 2.0}) == [12.0, 12.0]
    assert value([traced(x), grad(y, x)], {x: 2.0}) == [20.0, 12.0]
    loop = pytensor.scan(layer, outputs_info=x, n_steps=2, return_updates=False)[-1]
    assert value([loop, grad(loop, x)], {x: 1.0}) == [9.0, 9.0]
    assert value(loop, {x: 1.0}) == 25.0


@pytest.mark.parametrize("direct", [False, True])
def test_one_function_with_a_pushforward(value, x, direct):
    y = layer(x) * x
    tangent = pushforward(y, x, pt.constant(1.0), use_op_pushforward=direct)
    assert value(tangent, {x: 2.0}) == 12.0
    assert value([y, tangent], {x: 2.0}) == [12.0, 12.0]


def test_copies_are_programs_of_their_own(value, x):
    y = layer(x) * x
    (copied,) = graph_replace([y], {x: x.type("other")}, strict=False)
    other = next(one for one in pytensor.graph.traversal.graph_inputs([copied]) if one.name == "other")
    assert value([copied, grad(y, x)], {x: 2.0, other: 2.0}) == [20.0, 12.0]
    (kept,) = adprotocol_pytensor.differentiated([y], [x])
    assert value(kept, {x: 2.0}) == 12.0


# With respect to what


def test_one_of_several_variables(value, x, z):
    y = layer(x) * layer(z)
    in_x = grad(y, x)
    assert value(in_x, {x: 2.0, z: 3.0}) == 3.0 * 15.0
    assert value(grad(in_x, z), {x: 2.0, z: 3.0}) == 9.0
    assert value(grad(y, [x, z])[1], {x: 2.0, z: 3.0}) == 3.0 * 6.0


def test_shared_variables_constants_and_integers(value, x):
    shared, constant, integer = pytensor.shared(2.0), pt.constant(2.0, dtype="float64"), pt.iscalar()
    y = layer(shared) * layer(x)
    assert value(grad(y, shared), {x: 2.0}) == 3.0 * 10.0
    assert value(grad(y, x), {x: 2.0}) == 3.0 * 10.0
    assert value(layer(constant)) == 10.0
    assert value(grad(layer(constant), constant)) == 3.0
    assert adprotocol.within_gradient(integer) is False
    assert value(grad(layer(integer * 1.0), integer), {integer: 2}) == 3.0


def test_intermediate_variables(value, x):
    square = x**2
    y = layer(square) * layer(x)
    assert value(grad(y, square), {x: 2.0}) == 3.0 * 10.0
    assert value(grad(y, [x, square])[0], {x: 2.0}) == 9.0 * (4.0 + 2.0 * 4.0)
    changed = layer(x)  # is rebuilt, since x is differentiated too
    in_x, in_changed = grad(changed * x, [x, changed])
    assert value(in_x, {x: 2.0}) == 12.0
    assert value(in_changed, {x: 2.0}) == 2.0


def test_outputs_that_become_one_variable(value, x):
    y = adprotocol.cond(adprotocol.within_gradient(x), lambda x: x, lambda x: 2.0 * x, x)
    ones = [pt.constant(1.0), pt.constant(1.0)]
    assert value(pullback([y, x * x], [x], ones)[0], {x: 2.0}) == 5.0
    # PyTensor takes the cotangent of an output as the whole of it, what comes from other outputs included.
    plain = 1.0 * x
    assert value(pullback([plain, plain + x], [x], ones)[0], {x: 2.0}) == 2.0
    assert value(pullback([y, y + x], [x], ones)[0], {x: 2.0}) == 2.0


@pytest.mark.parametrize("stop", [disconnected_grad, zero_grad, adprotocol.non_differentiable])
def test_stopped(value, x, stop):
    assert value(grad(layer(stop(x)) * x, x), {x: 2.0}) == 10.0


def test_what_is_chosen_decides(value, x, z):
    y = adprotocol.cond(adprotocol.within_gradient(x), lambda: 1.0 * z, lambda: 1.0 * x)
    given = {x: 2.0, z: 3.0}
    assert value(layer(y) * x, given) == 5.0 * 2.0 * 2.0
    assert value(grad(layer(y) * x, x), given) == 5.0 * 3.0
    several = ifelse(adprotocol.within_gradient(x), [pt.sqrt(z), 1.0 * z], [x / (x - 2.0), 1.0 * x])
    assert value(grad(layer(several[1]) * x + several[0], x), given) == 5.0 * 3.0


def test_considered_constant(value, x):
    part = 1.0 * x
    assert value(grad(layer(part) * x, x, consider_constant=[part]), {x: 2.0}) == 10.0


def test_integers_between(value, x):
    assert value(grad(layer(x.astype("int64").astype("float64")) * x, x), {x: 2.0}) == 10.0
    assert value(grad(layer(x.astype("float32")) * x, x), {x: 2.0}) == 12.0


def test_matrices_of_derivatives(value, v):
    given = {v: [1.0, 2.0]}
    y = (layer(v) ** 2).sum()
    assert value(hessian(y, v), given) == [[18.0, 0.0], [0.0, 18.0]]
    assert value(jacobian(layer(v) ** 2, v), given) == [[18.0, 0.0], [0.0, 36.0]]
    assert value(hessian_vector_product(y, v, pt.constant([1.0, 1.0])), given) == [18.0, 18.0]


# The answer


def test_no_bool(x):
    answer = adprotocol.within_gradient(x)
    for one in (answer, ~answer, answer | adprotocol.within_gradient(2.0 * x), answer & answer):
        with pytest.raises(UndecidableError, match=r"adprotocol\.cond"):
            bool(one)


def test_arithmetic_of_answers(value, x, z):
    answer = adprotocol.within_gradient(x)
    for pred, plain, inside in (
        (answer, 5.0, 3.0),
        (~answer, 3.0, 5.0),
        (answer & (x > 0), 5.0, 3.0),
        (answer | adprotocol.within_gradient(z), 5.0, 3.0),
        (answer ^ (x > 0), 3.0, 5.0),
    ):
        y = pt.switch(pred, 3.0, 5.0) * x
        assert value(y, {x: 1.0, z: 1.0}) == plain
        assert value(grad(y, x), {x: 1.0, z: 1.0}) == inside


def test_rewrites_before_a_gradient_leave_it_open(value, x):
    y = rewrite_graph(layer(x) * adprotocol.non_differentiable(x), include=("canonicalize", "stabilize", "specialize"))
    assert value(y, {x: 2.0}) == 20.0
    assert value(grad(y, x), {x: 2.0}) == 6.0


def test_compiling_leaves_nothing_of_it(x):
    compiled = pytensor.function([x], layer(x), mode="FAST_COMPILE")
    assert [str(node.op) for node in compiled.maker.fgraph.toposort()] == ["Mul"]


def test_pickled(value, x):
    new, y = pickle.loads(pickle.dumps([x, layer(x)]))  # noqa: S301  (made in this test)
    assert value(y, {new: 2.0}) == 10.0
    assert value(grad(y, new), {new: 2.0}) == 3.0


def test_threads(x):
    found = []

    def work():
        y = layer(x) * x
        found.extend(grad(y, x).eval({x: 2.0}, mode="FAST_COMPILE") for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [12.0] * 20


# What is traced once


@pytest.mark.parametrize("inline", [False, True])
def test_traced_functions(value, x, z, inline):
    inner = OpFromGraph([x, z], [layer(x) * layer(z)], inline=inline)
    y = inner(x, z)
    given = {x: 2.0, z: 3.0}
    assert value(y, given) == 150.0
    assert value(grad(y, x), given) == 45.0
    assert value(grad(y, z), given) == 30.0
    assert value(grad(grad(y, x), z), given) == 9.0
    y = OpFromGraph([x, z], [inner(x, z) * layer(x)], inline=inline)(x, z)
    assert value(y, given) == 1500.0
    assert value(grad(y, x), given) == 3.0 * 15.0 * 3.0 * 4.0
    shared = pytensor.shared(2.0)
    y = OpFromGraph([x], [layer(shared) * layer(x)], inline=inline)(x)
    assert value(grad(y, shared), given) == 3.0 * 10.0
    y = OpFromGraph([x], [grad(layer(x) * x, x) * layer(x)], inline=inline)(x)
    assert value(y, given) == 120.0
    assert value(grad(y, x), given) == 72.0


def test_rules_of_the_user(value, x, z):
    def rule(inputs, _outputs, cotangents):
        inside = inputs[0].type()
        (slope,) = graph_replace([grad(layer(inside) * inside, inside)], {inside: inputs[0]})
        return [cotangents[0] * slope * layer(inputs[0])]

    y = OpFromGraph([x], [layer(x)], pullback=rule)(x)
    assert value(grad(y, x), {x: 2.0}) == 12.0 * 10.0
    assert value(grad(y * x, x), {x: 2.0}) == 10.0 + 2.0 * 120.0
    partly = OpFromGraph([x, z], [layer(x) * layer(z)], pullback=[None, lambda _i, _o, cotangents: cotangents[0]])
    assert value(grad(partly(x, z), x), {x: 2.0, z: 3.0}) == 3.0 * 15.0


def test_loops(value, x, z, v):
    given = {x: 1.0, z: 2.0, v: [1.0, 2.0]}
    carried = pytensor.scan(lambda a, c: layer(c) * a, sequences=v, outputs_info=x, return_updates=False)[-1]
    assert value(carried, given) == 50.0
    assert value(grad(carried, x), given) == 18.0
    assert value(grad(carried, v), given) == [18.0, 9.0]
    scaled = pytensor.scan(lambda a, c: c * a * layer(z), sequences=v, outputs_info=x, return_updates=False)[-1]
    assert value(grad(scaled, x), given) == 200.0
    assert value(grad(scaled, z), given) == 72.0
    assert value(grad(grad(scaled, x), z), given) == 72.0
    stopped = pytensor.scan(lambda c: (layer(c), until(c > 1e3)), outputs_info=x, n_steps=3, return_updates=False)[-1]
    assert value(grad(stopped, x), given) == 27.0


def test_batches(value, x, z, v):
    given = {v: [1.0, 2.0], z: 3.0}
    for batched in (
        vectorize_graph(OpFromGraph([x, z], [layer(x) * layer(z)])(x, z), {x: v}),
        vectorize_graph(layer(x) * layer(z), {x: v}),
    ):
        assert value(batched.sum(), given) == 225.0
        assert value(grad(batched.sum(), v), given) == [45.0, 45.0]
        assert value(grad(batched.sum(), z), given) == 45.0
    # Compiling a batched loop rewrites its inner graph in place; the questions stay.
    steps = pt.constant([1.0, 2.0])
    loop = pytensor.scan(lambda a, c: layer(c) * a, sequences=steps, outputs_info=x, return_updates=False)[-1]
    batched = vectorize_graph(loop, {x: v}).sum()
    for _ in range(2):
        assert value(batched, given) == 150.0
        assert value(grad(batched, v), given) == [18.0, 18.0]


def test_inner_graphs_of_others(x):
    found, _ = minimize((layer(x) - 1.0) ** 2, x)
    with pytest.raises(UndecidableError, match="MinimizeOp"):
        grad(found, x)


# Branches


def roots(x, z):
    return adprotocol.cond(x > 0, lambda: pt.sqrt(x) * z, lambda: 3.0 * z)


def test_nothing_comes_back_from_the_branch_not_taken(value, x, z, v):
    y = roots(x, z)
    given = {x: 0.0, z: 1.0, v: [0.0, 4.0]}
    assert value(grad(y, x), given) == 0.0
    assert value(grad(y, z), given) == 3.0
    assert value(grad(grad(y, x), x), given) == 0.0
    assert value(pushforward(y, x, pt.constant(1.0)), given) == 0.0
    assert value(pushforward(y, x, pt.constant(1.0), use_op_pushforward=True), given) == 0.0
    assert value(grad(vectorize_graph(y, {x: v}).sum(), v), given) == [0.0, 0.25]
    assert value(vectorize_graph(grad(y, x), {x: v}), given) == [0.0, 0.25]
    assert value(grad(vectorize_graph(grad(y, x), {x: v}).sum(), v), given) == [0.0, -0.25 * 4**-1.5]
    loop = pytensor.scan(
        lambda a: adprotocol.cond(a > 0, pt.sqrt, lambda a: 2.0 * a, a), sequences=v, return_updates=False
    )
    assert value(grad(loop.sum(), v), given) == [2.0, 0.25]


def test_batches_of_branches_and_operands(value, x, z, v):
    w, rows = pt.dvector(), pt.dmatrix()
    both = vectorize_graph(roots(x, z), {x: v, z: w}).sum()
    given = {v: [0.0, 4.0], w: [1.0, 2.0], x: 4.0, rows: [[1.0, 2.0], [0.0, 0.0]]}
    assert value(grad(both, v), given) == [0.0, 0.5]
    assert value(grad(both, w), given) == [3.0, 2.0]
    assert value(grad(vectorize_graph(roots(x, z), {z: w}).sum(), w), given) == [2.0, 2.0]
    logs = vectorize_graph(adprotocol.cond(v.sum() > 0, pt.log, lambda v: 0.0 * v, v), {v: rows}).sum()
    assert value(grad(logs, rows), given) == [[1.0, 0.5], [0.0, 0.0]]


def test_only_the_chosen_branch_is_computed(x):
    y = adprotocol.cond(x > 0, lambda x: 2.0 * x, lambda x: Assert("computed")(x, pt.constant(False)), x)
    assert y.eval({x: 1.0}, mode=MODES["as it is"]) == 2.0
    assert grad(y, x).eval({x: 1.0}, mode=MODES["as it is"]) == 2.0
    with pytest.raises(AssertionError, match="computed"):
        y.eval({x: -1.0}, mode=MODES["as it is"])


def test_results_of_branches(value, x):
    found = adprotocol.cond(x > 0, lambda: {"a": x, "b": 1, "c": "same"}, lambda: {"a": 0.0, "b": 2.5, "c": "same"})
    assert value(found["a"], {x: -1.0}) == 0.0
    assert value(found["b"], {x: -1.0}) == 2.5
    assert found["c"] == "same"
    for other in (lambda: pt.zeros(2), lambda: pt.constant(1), lambda: [x], lambda: None):
        with pytest.raises(BranchMismatchError, match="equal structures, shapes and dtypes"):
            adprotocol.cond(x > 0, lambda: x, other)


# Prevented gradients


def test_prevented(value, x, z):
    y = adprotocol.prevent_gradient(z, "not in z") * x
    assert value(y, {x: 2.0, z: 3.0}) == 6.0
    assert value(grad(y, x), {x: 2.0, z: 3.0}) == 3.0
    traced = OpFromGraph([x, z], [y])
    assert value(grad(traced(x, z), x), {x: 2.0, z: 3.0}) == 3.0
    for one in (y, traced(x, z)):
        with pytest.raises(GradientPreventedError, match="not in z"):
            grad(one, z)
    with pytest.raises(GradientPreventedError, match="not in z"):
        pushforward(y, z, pt.constant(1.0), use_op_pushforward=True)


# Gradients of structures


def test_value_and_grad_closes_over_what_it_likes(value, x):
    shared = pytensor.shared(2.0)
    model = {"w": shared, "c": pt.constant(4.0, dtype="float64")}
    found, slopes = adprotocol.value_and_grad(lambda m: layer(m["w"]) * m["c"] * layer(x) * shared)(model)
    assert value(found, {x: 1.0}) == 6.0 * 4.0 * 5.0 * 2.0
    assert value(slopes["w"], {x: 1.0}) == 2.0 * 3.0 * 2.0 * 4.0 * 5.0
    assert value(grad(found, x), {x: 1.0}) == 6.0 * 4.0 * 3.0 * 2.0
    shared.tag.trainable = False
    _, slopes = adprotocol.value_and_grad(lambda m: layer(m["w"]) * m["c"])(model)
    assert slopes["w"] is None
    assert isinstance(slopes["c"], Variable)
    assert value(slopes["c"]) == 10.0


# The default mode, which compiles by numba or C


def test_a_loop_in_the_default_mode(x, v):
    shared = pytensor.shared(2.0)
    loop = pytensor.scan(lambda a, c: c * a * layer(shared * 1.0), sequences=v, outputs_info=x, return_updates=False)[
        -1
    ]
    plain, slope = pytensor.function([x, v], loop), pytensor.function([x, v], grad(loop, x))
    assert plain(1.0, [1.0, 2.0]) == 200.0
    assert slope(1.0, [1.0, 2.0]) == 200.0
    left = [node.op for one in (plain, slope) for node in one.maker.fgraph.toposort()]
    assert not [op for op in left if type(op).__module__.startswith("adprotocol")]


def test_default_mode(x, v):
    y = layer(x) * roots(x, x)
    assert pytensor.function([x], y)(4.0) == 20.0 * 8.0
    assert pytensor.function([x], grad(y, x))(0.0) == 0.0
    found, slope = pytensor.function([x], [y, grad(y, x)])(4.0)
    assert (found, slope) == (96.0, pytest.approx(3.0 * 2.5 * 4.0**1.5))
    loop = pytensor.scan(lambda a, c: layer(c) * a, sequences=v, outputs_info=x, return_updates=False)[-1]
    for _ in range(2):
        assert pytensor.function([x, v], loop)(1.0, [1.0, 2.0]) == 50.0
        assert pytensor.function([x, v], grad(loop, x))(1.0, [1.0, 2.0]) == 18.0


@pytest.mark.parametrize("known", [None, 3])
def test_vectors_of_a_size_that_is_known_later(value, known):
    """What the types tell is compared at once, and the rest when the graph runs."""
    v, c = pt.tensor("v", shape=(known,)), pt.dvector("c")
    given = {v: [1.0, 2.0, 3.0], c: [1.0, 10.0, 100.0]}
    (pulled,) = adprotocol.vjp(lambda v: v**3, v)[1](c)
    assert value(pulled, given) == [3.0, 120.0, 2700.0]
    assert value(adprotocol.jvp(lambda v: v**3, (v,), (c,))[1], given) == [3.0, 120.0, 2700.0]
    for mode in ("reverse", "forward"):
        assert value(adprotocol.jacobian(lambda v: v * v[0], mode=mode)(v), given) == [[2, 0, 0], [2, 1, 0], [3, 0, 1]]
    with pytest.raises(AssertionError, match=r"Got shape \(1,\)"):
        value(pulled, {**given, c: [7.0]})
    with pytest.raises(ArgumentError, match=r"an array of shape \(1, 3\)"):
        adprotocol.vjp(lambda v: v**3, v)[1](np.ones((1, 3)))
    if known is not None:
        with pytest.raises(ArgumentError, match=r"an array of shape \(2,\)"):
            adprotocol.vjp(lambda v: v**3, v)[1](np.ones(2))


@pytest.mark.parametrize("known", [None, 3])
def test_elementwise_choice_in_vectors_of_any_size(value, known):
    v = pt.tensor("v", shape=(known,))
    chosen = adprotocol.where(v > 1.5, lambda v: 1.0 / (v - 1.0), lambda v: 2.0 * v, v)
    assert value(grad(chosen.sum(), v), {v: [1.0, 2.0, 3.0]}) == [2.0, -1.0, -0.25]


def test_an_output_of_which_another_is_computed(value, v):
    for outputs, want in ((lambda v: (v, v), [2.0, 2.0]), (lambda v: (y := v + v, y + v), [5.0, 5.0])):
        (pulled,) = adprotocol.vjp(outputs, v)[1]((pt.ones_like(v), pt.ones_like(v)))
        assert value(pulled, {v: [1.0, 2.0]}) == want
