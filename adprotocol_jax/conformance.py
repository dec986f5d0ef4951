"""The conformance harness for JAX, built from JAX's own functions."""

from __future__ import annotations

import functools
import importlib
import threading
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.export import export
from jax.extend.core import jaxpr_as_fun
from jax.sharding import Mesh, PartitionSpec

from adprotocol.conformance import Harness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


class JaxHarness(Harness):
    """Differentiate, batch and compile arrays of JAX, in its default precision."""

    name = "jax"
    absent: ClassVar[Mapping[str, str]] = {
        "compile": "jit is JAX's compiler",
        "no_grad": "JAX has no switch for the recording of derivatives",
        **dict.fromkeys(
            ("parameter", "parameter_grad", "assign", "set_flag"), "JAX has no parameters; every leaf is an array"
        ),
        **dict.fromkeys(("variable", "backward"), "JAX differentiates functions alone"),
        "module": "JAX has no modules; those of its libraries are pytrees",
        "evaluate": "JAX dispatches at once, and computes meanwhile",
    }

    # Those of JAX as they are.
    to_numpy: Any = staticmethod(np.asarray)
    grad: Any = staticmethod(jax.grad)
    value_and_grad: Any = staticmethod(jax.value_and_grad)
    jit: Any = staticmethod(jax.jit)
    vmap: Any = staticmethod(jax.vmap)
    checkpoint: Any = staticmethod(jax.checkpoint)
    scan: Any = staticmethod(jax.lax.scan)
    while_loop: Any = staticmethod(jax.lax.while_loop)
    stop_gradient: Any = staticmethod(jax.lax.stop_gradient)
    abstract: Any = staticmethod(jax.eval_shape)
    sum: Any = staticmethod(jnp.sum)
    where: Any = staticmethod(jnp.where)

    def __init__(self, device: str | None = None) -> None:
        super().__init__(device)
        if self.folder is not None:  # a process of the suite's own
            share_contexts()
            if jax.config.values["jax_compilation_cache_dir"] is None:
                _keep_what_is_compiled(self.folder)

    @property
    def variants(self) -> Mapping[str, Mapping[str, Callable[..., Any]]]:
        """Return the further functions of JAX for each capability."""
        return {
            "grad": {"linearize": _grad_by_linearize, "jacrev": jax.jacrev, "jacfwd": jax.jacfwd},
            "jvp": {"linearize": _jvp_by_linearize, "jacfwd": _jvp_by_jacobian},
            "jit": {"shard_map": self._shard_map, "make_jaxpr": _jit_by_jaxpr, "export": _jit_by_export},
            "scan": {"fori_loop": _scan_by_loop},
            "checkpoint": {"everything_saveable": _checkpoint_saving},
            "custom_rule": {"custom_vjp": _rule_by_vjp},
        }

    def array(self, value: Any) -> Any:
        """Return an array on the device, in JAX's default dtype."""
        return jnp.array(value, device=self._device())

    def _device(self) -> Any:
        return None if self.device is None else _devices()[self.device]

    def jvp(self, fun: Callable[..., Any], primal: Any, tangent: Any) -> tuple[Any, Any]:
        """Call ``jax.jvp``."""
        return jax.jvp(fun, (primal,), (tangent,))

    def custom_rule(self, fun: Callable[..., Any], derivative: Callable[..., Any]) -> Callable[..., Any]:
        """Make `fun` a ``jax.custom_jvp``, which serves both modes."""
        made = jax.custom_jvp(fun)
        made.defjvp(lambda primals, tangents: (fun(*primals), derivative(*primals) * tangents[0]))
        return made

    def counter(self) -> tuple[Callable[..., Any], Callable[[], int]]:
        """Make the identity a ``jax.custom_vjp``, which counts the runs of its backward pass; under jit its traces."""
        runs: list[None] = []

        def backward(_: None, cotangent: Any) -> tuple[Any]:
            runs.append(None)
            return (cotangent,)

        identity = jax.custom_vjp(lambda x: x)
        identity.defvjp(lambda x: (x, None), backward)
        return identity, lambda: len(runs)

    def dtypes(self) -> Sequence[str]:
        """Name the dtypes of JAX in its default precision."""
        return ("float32", "bfloat16", "float16")

    def cast(self, array: Any, dtype: str) -> Any:
        """Call ``astype``."""
        return array.astype(dtype)

    def operations(self) -> Mapping[str, Callable[[Any], Any]]:
        """Name functions of ``jax.numpy``."""
        return {
            "exp": jnp.exp,
            "matmul": lambda v: v @ jnp.ones((2, 3), v.dtype),
            "reshape": lambda v: v.reshape(2, 1),
            "transpose": lambda v: v[None].T,
            "concatenate": lambda v: jnp.concatenate([v, v]),
            "max": jnp.max,
            "argmax": lambda v: jnp.argmax(v).astype(v.dtype),
            "sort": jnp.sort,
            "cumsum": jnp.cumsum,
            "take": lambda v: jnp.take(v, jnp.array([1, 0]), axis=0),
            "at": lambda v: jnp.zeros_like(v).at[0].set(v[1]),
            "bits": lambda v: jax.lax.bitcast_convert_type(jax.lax.bitcast_convert_type(v, "int32") + 1, v.dtype),
            "complex": lambda v: jax.lax.complex(v, jnp.zeros_like(v)),
            "fft": jnp.fft.fft,
        }

    def node(self, children: Sequence[Any]) -> Any:
        """Return an instance of a class that is registered with ``jax.tree_util``."""
        return _Node(children)

    def threads(self) -> bool:
        """Answer True: JAX keeps its traces by thread."""
        return True

    def devices(self) -> Sequence[str]:
        """Name the devices of the default platform, and those of the CPU."""
        return tuple(_devices())

    def _shard_map(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        mesh = Mesh(np.array([self._device() or jax.devices()[0]]), ("all",))
        spec = PartitionSpec()  # type: ignore[no-untyped-call]
        return jax.jit(jax.shard_map(fun, mesh=mesh, in_specs=spec, out_specs=spec))


@jax.tree_util.register_pytree_node_class
class _Node:
    """A container registered with JAX, which adprotocol knows through the plugin alone."""

    def __init__(self, children: Sequence[Any]) -> None:
        self.children = tuple(children)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.children)

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        return self.children, None

    @classmethod
    def tree_unflatten(cls, _metadata: None, children: Sequence[Any]) -> _Node:
        return cls(children)


def _devices() -> dict[str, Any]:
    return {f"{device.platform}:{device.id}": device for device in (*jax.devices(), *jax.devices("cpu"))}


def _grad_by_linearize(fun: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(x: Any, *rest: Any) -> Any:
        value, tangents = jax.linearize(lambda x: fun(x, *rest), x)
        return jax.linear_transpose(tangents, x)(jnp.ones_like(value))[0]

    return gradient


def _jvp_by_linearize(fun: Callable[..., Any], primal: Any, tangent: Any) -> tuple[Any, Any]:
    value, tangents = jax.linearize(fun, primal)
    return value, tangents(tangent)


def _jvp_by_jacobian(fun: Callable[..., Any], primal: Any, tangent: Any) -> tuple[Any, Any]:
    def both(x: Any) -> tuple[Any, Any]:
        value = fun(x)
        return value, value

    jacobian, value = jax.jacfwd(both, has_aux=True)(primal)
    return value, jnp.tensordot(jacobian, tangent, axes=jnp.ndim(primal))


def _jit_by_jaxpr(fun: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: jaxpr_as_fun(jax.make_jaxpr(fun)(*arguments))(*arguments)[0]


def _jit_by_export(fun: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: export(jax.jit(fun))(*arguments).call(*arguments)  # type: ignore[no-untyped-call]


def _scan_by_loop(fun: Callable[..., Any], carry: Any, xs: Any) -> tuple[Any, Any]:
    _, y = jax.eval_shape(fun, carry, xs[0])

    def body(i: Any, state: Any) -> Any:
        carry, ys = state
        carry, y = fun(carry, xs[i])
        return carry, ys.at[i].set(y)

    last, ys = jax.lax.fori_loop(0, len(xs), body, (carry, jnp.zeros((len(xs), *y.shape), y.dtype)))
    return last, ys


def _checkpoint_saving(fun: Callable[..., Any]) -> Callable[..., Any]:
    return jax.checkpoint(fun, policy=jax.checkpoint_policies.everything_saveable)


def _rule_by_vjp(fun: Callable[..., Any], derivative: Callable[..., Any]) -> Callable[..., Any]:
    function = jax.custom_vjp(fun)
    function.defvjp(lambda x: (fun(x), x), lambda x, cotangent: (derivative(x) * cotangent,))
    return function


def _keep_what_is_compiled(folder: str) -> None:
    """Let JAX keep what XLA compiles in the folder of the run.

    Two of three programs of the suite equal an earlier one, of this process or another; JAX meets each as a new
    function. https://docs.jax.dev/en/latest/persistent_compilation_cache.html
    """
    for name, value in (
        ("jax_compilation_cache_dir", folder),
        ("jax_persistent_cache_min_compile_time_secs", 0.0),
        ("jax_persistent_cache_min_entry_size_bytes", -1),
    ):
        jax.config.update(name, value)  # type: ignore[no-untyped-call]


@functools.cache
def share_contexts() -> None:
    """Let all programs that a thread lowers share one context of MLIR; JAX fills one for each, in 5 ms.

    For processes of tests, where it saves a fifth of the time. A context is never emptied.
    """
    mlir: Any = importlib.import_module("jax._src.interpreters.mlir")
    make_context, local = mlir.make_ir_context, threading.local()

    def context_of_thread() -> Any:
        if not hasattr(local, "context"):
            local.context = make_context()
        return local.context

    mlir.make_ir_context = context_of_thread
