"""A framework, and the transformation under which it runs the library."""

import numpy as np

import adprotocol


class NumPy:
    """NumPy alone, which differentiates nothing."""

    def array(self, values):
        return np.asarray(values, dtype=np.float64)

    def run(self, fun, *args):
        """Return ``fun(*args)``."""
        return fun(*args)

    def grad(self, fun, **options):
        return adprotocol.grad(fun, **options)

    def numpy(self, value):
        return np.asarray(value)


class Autograd(NumPy):
    """NumPy arrays, which autograd differentiates."""


class Jax(NumPy):
    """JAX, eager."""

    def array(self, values):
        import jax.numpy as jnp

        return jnp.asarray(values, dtype=jnp.float32)


class JaxJit(Jax):
    """JAX, compiled."""

    def run(self, fun, *args):
        import jax

        return jax.jit(fun)(*args)


class JaxGradOfJit(JaxJit):
    """JAX's own gradient of the compiled function, where a question is staged."""

    def grad(self, fun, **options):
        import jax

        return adprotocol.grad(jax.jit(fun), **options)

    def run(self, fun, *args):
        return fun(*args)


class JaxVmap(Jax):
    """JAX, mapped over a batch of two; the first is looked at."""

    def run(self, fun, *args):
        import jax

        batch = jax.tree.map(lambda leaf: jax.numpy.stack([leaf, 2.0 * leaf]), args)
        return jax.tree.map(lambda leaf: leaf[0], jax.vmap(fun)(*batch))


class Torch(NumPy):
    """PyTorch, eager."""

    def array(self, values):
        import torch

        return torch.tensor(np.asarray(values), dtype=torch.float64)

    def numpy(self, value):
        return value.detach().numpy()


class TorchCompile(Torch):
    """PyTorch, compiled as one graph."""

    def run(self, fun, *args):
        import torch

        torch.compiler.reset()
        return torch.compile(fun, fullgraph=True, backend="eager")(*args)


class TorchFunc(Torch):
    """The gradient of torch.func, mapped over a batch of two."""

    def run(self, fun, *args):
        import torch
        from torch.utils import _pytree

        batch = _pytree.tree_map(lambda leaf: torch.stack([leaf, 2.0 * leaf]), args)
        return _pytree.tree_map(lambda leaf: leaf[0], torch.vmap(fun)(*batch))


SETTINGS = {
    "numpy": NumPy,
    "autograd": Autograd,
    "jax": Jax,
    "jax jit": JaxJit,
    "jax grad of jit": JaxGradOfJit,
    "jax vmap": JaxVmap,
    "torch": Torch,
    "torch compile": TorchCompile,
    "torch func": TorchFunc,
}
