"""Threads, tasks and processes for a while: what each did, and what went wrong."""

import jax.numpy as jnp
import numpy as np
import torch

from fuzz.stress import processes, tasks, threads


def run(seconds, seed):
    """Yield the name of each part, what it did, and what went wrong; most of the time is for threads."""
    done, failures = threads.run(seconds * 0.8, seed=seed)
    yield "threads", _counted(done), failures
    yield "tasks", _counted(tasks.run(seconds * 0.2)), []
    yield "spawned", f"{processes.spawned((np.asarray, jnp.asarray, torch.as_tensor), count=2)} gradients", []


def _counted(done):
    return f"{done.total()}; " + ", ".join(f"{name} {count}" for name, count in done.most_common())
