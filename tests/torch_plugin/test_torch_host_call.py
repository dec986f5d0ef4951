"""`host_function` under PyTorch: eager, in every transformation, compiled."""

import sys

import numpy as np
import pytest
import torch
from torch import func

import adprotocol
from adprotocol import custom_derivative, host_function
from adprotocol.errors import RuleError

DOUBLE = torch.float64
A = torch.tensor([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.1, 0.7, 5.0]], dtype=DOUBLE)
B = torch.tensor([1.0, -2.0, 3.0], dtype=DOUBLE)


def made(*kinds):
    """Return a linear solver on the host with rules of these kinds, which call it again."""
    solve = custom_derivative(host_function(np.linalg.solve, like=lambda _a, b: b))

    def vjp(ct, x, a, _b):
        adjoint = solve(a.T, ct)
        return (lambda: -adjoint[:, None] * x), adjoint

    def jvp(tangents, x, a, _b):
        return solve(a, tangents[1] - tangents[0] @ x)

    if "vjp" in kinds:
        solve.defvjp(vjp)
    if "jvp" in kinds:
        solve.defjvp(jvp)
    return solve


def inverted(a, b):
    """Solve by operations of torch; the forward mode of torch.linalg.solve itself is wrong over forward mode."""
    return torch.linalg.inv(a) @ b


def norm(solve):
    return lambda a: (solve(a, B) ** 2).sum()


def tracked(x):
    return x.clone().requires_grad_()


TRANSFORMS = {
    "grad": func.grad,
    "jacfwd": func.jacfwd,
    "hessian": func.hessian,
    "forward over forward": lambda f: func.jacfwd(func.jacfwd(f)),
    "backward": lambda f: lambda a: torch.autograd.grad(f(x := tracked(a)), x)[0],
    "vmap": lambda f: lambda a: torch.vmap(func.grad(f))(torch.stack([a, 2 * a])),
    "over vmap": lambda f: func.grad(lambda a: torch.vmap(f)(torch.stack([a, 2 * a])).sum()),
    "adprotocol": adprotocol.grad,
}


@pytest.mark.parametrize("kinds", [("vjp",), ("vjp", "jvp")], ids="-".join)
def test_a_solver_with_rules_equals_that_of_torch(kinds):
    ours, plain = norm(made(*kinds)), norm(inverted)
    for name, transform in TRANSFORMS.items():
        torch.testing.assert_close(
            transform(ours)(A), transform(plain)(A), msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("run", [np.sum, lambda x: x[:2], lambda x: np.concatenate([x, x])])
def test_a_batch_that_has_not_one_result_for_each_row_is_refused(run):
    for f, x in (
        (torch.vmap(host_function(run, batched=True)), torch.ones(3)),
        (torch.vmap(torch.vmap(host_function(run, batched=True))), torch.ones(3, 4)),
    ):
        with pytest.raises(RuleError, match=r"[34] rows.*one result for each row"):
            f(x)


def test_what_a_function_returns_may_be_any_view():
    x = torch.tensor([1.0, 2.0, 3.0])
    for view in (np.flip, lambda x: np.broadcast_to(x[0], 3), lambda x: np.eye(3, dtype=x.dtype).T[::-2, 1], np.sum):
        reverse = host_function(view)
        found = reverse(x)
        assert torch.equal(found, torch.tensor(np.array(view(x.numpy()))))
        found += 1.0
        assert torch.equal(x, torch.tensor([1.0, 2.0, 3.0]))
        assert torch.equal(torch.vmap(reverse)(torch.stack([x, x]))[1], reverse(x))
    rotated = host_function(np.rot90, like=lambda x: x)
    assert torch.equal(torch.compile(rotated, backend="eager")(A), torch.rot90(A))


def test_a_batch_of_no_rows_has_the_shape_that_like_tells():
    pair = custom_derivative(host_function(lambda x: (x.sum(), x), like=lambda x: (x[0], x)))
    pair.defvjp(host_function(lambda cotangents, results, x: (cotangents[0] + cotangents[1],)))
    empty = torch.empty(0, 3)
    assert [result.shape for result in torch.vmap(pair)(empty)] == [(0,), (0, 3)]
    assert [result.shape for result in torch.vmap(torch.vmap(pair))(torch.empty(2, 0, 3))] == [(2, 0), (2, 0, 3)]
    assert torch.vmap(func.grad(lambda x: pair(x)[0]))(empty).shape == (0, 3)
    with pytest.raises(RuleError, match=r"no rows.*like="):
        torch.vmap(host_function(np.sum))(empty)


def test_results_have_device_and_precision_of_the_arguments():
    for dtype in (torch.float32, DOUBLE):
        y = host_function(lambda x: np.asarray(x, np.float64))(torch.ones(3, dtype=dtype))
        assert (y.dtype, y.device.type) == (dtype, "cpu")
    many = host_function(lambda x: {"n": x.shape[0], "mask": x > 0, "z": x * 1j})(torch.ones(2))
    assert (many["n"].dtype, many["mask"].dtype, many["z"].dtype) == (torch.int64, torch.bool, torch.complex64)
    conjugated = host_function(lambda z: z)(torch.tensor([1 + 2j]).conj())
    assert conjugated == 1 - 2j


@pytest.mark.parametrize("like", [None, lambda x: x])
def test_bfloat16_is_that_of_ml_dtypes(like):
    pytest.importorskip("ml_dtypes", reason="NumPy has no bfloat16 of its own")
    x = torch.tensor([0.5, 1.0, 2.0], dtype=torch.bfloat16)
    seen = []
    host = host_function(lambda x: seen.append(x.dtype.name) or np.sin(x), like=like)
    sine = custom_derivative(host)
    sine.defvjp(host_function(lambda cotangent, _y, x: (cotangent * np.cos(x),)))
    for result in (host(x), torch.vmap(host)(x), sine(x.requires_grad_())):
        assert result.dtype == torch.bfloat16
        torch.testing.assert_close(result, torch.sin(x))
    torch.testing.assert_close(func.grad(lambda x: sine(x).sum())(x.detach()), torch.cos(x.detach()))
    assert set(seen) == {"bfloat16"}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert sine(torch.nn.functional.linear(torch.ones(2), torch.ones(2, 2))).dtype == torch.bfloat16


def test_a_dtype_that_numpy_has_not_is_refused(monkeypatch):
    with pytest.raises(TypeError, match="unsupported ScalarType Float8"):
        host_function(np.sin)(torch.ones(2, dtype=torch.float8_e5m2))
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(RuleError, match="from the package ml_dtypes alone; install it, or convert"):
        host_function(np.sin)(torch.ones(2, dtype=torch.bfloat16))
    with pytest.raises(RuleError, match="tells the dtype float128, which PyTorch does not take"):
        host_function(np.sin, like=lambda x: x.astype(np.longdouble))(torch.ones(2))


def test_compiled_whole():
    solve = made("vjp", "jvp")
    for name in ("grad", "hessian", "vmap", "adprotocol"):
        transform = TRANSFORMS[name]
        compiled = torch.compile(transform(norm(solve)), fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(A), transform(norm(inverted))(A))
    compiled = torch.compile(norm(solve), fullgraph=True, backend="aot_eager")
    for _ in range(2):
        torch.testing.assert_close(TRANSFORMS["backward"](compiled)(A), func.grad(norm(inverted))(A))
        torch.testing.assert_close(compiled(A), norm(solve)(A))


def test_compiled_with_structures_and_without_shapes():
    calls = []

    def run(values, scale):
        calls.append(scale)
        return {"sin": scale * np.sin(values["x"]), "rest": [values["x"].sum()]}

    f = host_function(run, like=lambda values, scale: {"sin": values["x"], "rest": [values["x"].sum()]})
    compiled = torch.compile(
        lambda x: f({"x": x}, 3)["sin"] + f({"x": x}, 3)["rest"][0], fullgraph=True, backend="aot_eager"
    )
    for x in (B, 2 * B):
        torch.testing.assert_close(compiled(x), 3 * x.sin() + x.sum())
    assert set(calls) == {3}
    with pytest.raises(Exception, match="like="):
        torch.compile(host_function(np.sin), fullgraph=True, backend="aot_eager")(B)


def test_on_a_device_without_values_the_shapes_are_enough():
    f = host_function(np.sin, like=lambda x: x)
    y = f(torch.empty(3, device="meta"))
    assert (y.device.type, y.shape, y.dtype) == ("meta", (3,), torch.float32)


def test_a_size_that_the_compiler_does_not_know():
    sine = custom_derivative(host_function(np.sin, like=np.zeros_like))
    sine.defvjp(lambda cotangent, _, x: (cotangent * x.cos(),))
    torch._dynamo.reset()
    gradient = torch.compile(adprotocol.grad(lambda x: sine(x).sum()), backend="aot_eager", dynamic=True)
    for size in (2, 3):
        x = torch.ones(size)
        torch.testing.assert_close(gradient(x), x.cos())
