"""check_rule: a right rule passes, and each way to be wrong is found and named."""

import numpy as np
import pytest
import toyad
from ad_backends import WITH_RULES
from small import OneLevel, toy

from adprotocol import NonDifferentiable, custom_derivative, host_function, non_differentiable
from adprotocol.conformance import WrongAnswer, check_rule
from adprotocol.errors import RuleError

BACKENDS = [ad.name for ad in WITH_RULES]
on_every_backend = pytest.mark.parametrize("backend", BACKENDS)

X, Y = np.array([0.3, -0.7, 1.1]), np.array([1.5, 0.5, -2.0])


def product(vjp=None, jvp=None):
    """x² y, elementwise."""
    f = custom_derivative(lambda x, y: x * x * y)
    if vjp:
        f.defvjp(vjp)
    if jvp:
        f.defjvp(jvp)
    return f


def right_vjp(ct, returned, x, y):
    return 2.0 * ct * x * y, lambda: ct * x * x


def right_jvp(tangents, returned, x, y):
    return 2.0 * tangents[0] * x * y + tangents[1] * x * x


@pytest.mark.parametrize(
    ("backend", "rules"),
    [
        ("autograd", (right_vjp,)),
        ("autograd", (None, right_jvp)),
        *((name, (right_vjp, right_jvp)) for name in BACKENDS),
    ],
)
def test_a_right_rule_agrees(backend, rules):
    report = check_rule(product(*rules), X, Y, backend=backend)
    assert {finding.what for finding in report.findings} == {"argument 0", "argument 1", "all arguments"}
    assert {"reverse mode", "forward mode", "reverse mode of forward mode"} <= {
        finding.how for finding in report.findings
    }
    assert "0 wrong" in str(report)


@on_every_backend
@pytest.mark.parametrize("x", [2.0, 2, np.array([1, 2])], ids=["float", "int", "integers"])
def test_what_has_no_derivative_to_compare_is_refused(backend, x):
    cube = custom_derivative(lambda x: x**3)
    cube.defvjp(lambda ct, returned, x: (2.0 * ct * x,))
    with pytest.raises(RuleError, match=r"no array of floating-point.*numpy\.array\(2\.0\)"):
        check_rule(cube, x, backend=backend)


WRONG = {
    "cotangent ignored": ((lambda ct, r, x, y: (2.0 * x * y, ct * x * x), None), "argument 0, reverse mode: gives"),
    "halved": ((lambda ct, r, x, y: (ct * x * y, ct * x * x), None), "argument 0, reverse mode: gives"),
    "sign": ((lambda ct, r, x, y: (2.0 * ct * x * y, -ct * x * x), None), "argument 1, reverse mode: gives"),
    "exchanged": ((lambda ct, r, x, y: (ct * x * x, 2.0 * ct * x * y), None), "all arguments, reverse mode: gives"),
    "one is missing": ((lambda ct, r, x, y: (2.0 * ct * x * y, None), None), "argument 1, reverse mode: gives"),
    "shape": ((lambda ct, r, x, y: ((2.0 * ct * x * y)[:1], None), None), "argument 0, reverse mode: raises RuleError"),
    "jvp alone": ((right_vjp, lambda t, r, x, y: t[0] * x * y + t[1] * x * x), "argument 0, forward mode: gives"),
    "raises": ((lambda ct, r, x, y: 1 / 0, None), "argument 0, reverse mode: raises ZeroDivisionError"),
    "constant": (
        (lambda ct, r, x, y: (2.0 * ct * non_differentiable(x * y), ct * x * x), None),
        "argument 0, reverse mode of reverse mode: gives",
    ),
}


# What is compared with what is not the framework's, but for its levels.
EVERYWHERE = ("halved", "constant")


@pytest.mark.parametrize(
    ("backend", "mistake"),
    [(backend, name) for backend in BACKENDS for name in (WRONG if backend == "autograd" else EVERYWHERE)],
)
def test_a_mistake_is_found_and_named(backend, mistake):
    rules, message = WRONG[mistake]
    with pytest.raises(WrongAnswer) as raised:
        check_rule(product(*rules), X, Y, backend=backend)
    assert message in str(raised.value)


@pytest.mark.parametrize("power", [2, 5])
def test_the_error_is_relative_where_values_are_small(power):
    def scaled(factor):
        f = custom_derivative(lambda x: 1e-3 * x**power)
        f.defvjp(lambda ct, returned, x: (1e-3 * factor * ct * x ** (power - 1),))
        return f

    for x in (X, np.zeros(3), 1e-3 * X):
        check_rule(scaled(power), x, backend="autograd")
    for factor in (-power, 1, 1.1 * power):
        with pytest.raises(WrongAnswer, match="reverse mode: gives"):
            check_rule(scaled(factor), X, backend="autograd")


@on_every_backend
def test_an_array_in_a_label_is_one_of_the_backend(backend):
    f = custom_derivative(lambda scale, x: scale.value * x)
    f.defvjp(lambda ct, returned, scale, x: (None, scale.value * ct))
    assert {finding.what for finding in check_rule(f, NonDifferentiable(Y), X, backend=backend).findings} == {
        "argument 1"
    }


@on_every_backend
def test_complex_arguments_are_moved_in_complex_directions(backend):
    z = X + 1j * Y

    def square(vjp):
        f = custom_derivative(lambda z: z * z)
        f.defvjp(vjp)
        return f

    check_rule(square(lambda ct, returned, z: (2.0 * ct * z,)), z, backend=backend)
    with pytest.raises(WrongAnswer, match="reverse mode: gives"):
        check_rule(square(lambda ct, returned, z: (2.0 * ct * (z - 2j * z.imag),)), z, backend=backend)


@on_every_backend
def test_a_rule_that_is_differentiated_once_has_to_refuse_more(backend):
    @custom_derivative(has_residuals=True)
    def f(x):
        return x * x, 2.0 * x

    f.defvjp(lambda ct, returned, x: (ct * returned[1],))
    report = check_rule(f, X, backend=backend)
    assert "refused" in str(report)
    on_host = custom_derivative(host_function(lambda x: x**3, like=lambda x: x))
    on_host.defvjp(host_function(lambda ct, returned, x: (3.0 * ct * x**2,)))
    check_rule(on_host, X, backend=backend)


def test_a_rule_that_is_meant_to_differ_is_compared_with_itself():
    straight_through = custom_derivative(lambda x: x * 0.0 + 1.0)
    straight_through.defvjp(lambda ct, returned, x: (ct,))
    check_rule(straight_through, X, backend="autograd", finite_differences=False)
    with pytest.raises(WrongAnswer):
        check_rule(straight_through, X, backend="autograd")


def test_structures_and_static_arguments():
    f = custom_derivative(lambda d, *, power: {"y": d["x"] ** power})
    f.defvjp(lambda ct, returned, d, *, power: ({"x": power * ct["y"] * d["x"] ** (power - 1), "n": None},))
    report = check_rule(f, {"x": Y, "n": 3}, static={"power": 2}, backend="autograd")
    assert report.findings[0].what == "argument 0.x"


def test_the_framework_is_that_of_the_arguments():
    import jax.numpy as jnp

    assert check_rule(product(right_vjp), jnp.asarray(X), jnp.asarray(Y)).backend == "jax"
    assert check_rule(product(right_vjp), X, Y).backend == "autograd"


@pytest.mark.parametrize("declared", [True, False])
def test_a_system_of_one_level_is_asked_for_no_second_derivative(declared, monkeypatch):
    class Undeclared(OneLevel):
        absent = {}  # noqa: RUF012  (the system is tried)

    monkeypatch.setattr(toyad, "MOST", 1)
    with toy() as plugin:
        plugin.hooks = plugin.hooks | {"harness": lambda _: (OneLevel if declared else Undeclared)()}
        report = check_rule(product(right_vjp), X, Y, backend="toyad")
        assert {finding.how for finding in report.findings} == {"reverse mode"}
        with pytest.raises(WrongAnswer, match="argument 0, reverse mode: gives"):
            check_rule(product(lambda ct, r, x, y: (ct * x * y, ct * x * x)), X, Y, backend="toyad")


def test_only_functions_with_rules_are_checked():
    with pytest.raises(RuleError, match="was given a function"):
        check_rule(lambda x: x, X)


@on_every_backend
def test_a_rule_that_clips_is_found_unless_it_is_declared_for_reverse_mode(backend):
    def clipping(**declared):
        f = custom_derivative(lambda x: 2.0 * x, **declared)
        f.defvjp(lambda ct, returned, x: (2.0 * ct.clip(-1e2, 1e2),))
        return f

    with pytest.raises(WrongAnswer, match=r"forward mode: raises RuleError.* is not linear in the cotangent"):
        check_rule(clipping(), X, backend=backend)
    assert "0 wrong" in str(check_rule(clipping(reverse_only=True), X, backend=backend))


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_values_under_vmap_are_those_of_a_loop(backend):
    # It normalises over all rows that it is given, where each row is one vector.
    f = custom_derivative(host_function(lambda x: x / np.sqrt((x * x).sum()), like=lambda x: x, batched=True))
    f.defvjp(lambda ct, y, x: ((ct - y * (ct * y).sum()) / (x * x).sum() ** 0.5,))
    with pytest.raises(WrongAnswer, match="the value, vmap: gives"):
        check_rule(f, X, backend=backend)
