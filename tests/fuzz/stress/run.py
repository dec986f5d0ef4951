"""Threads, tasks and processes for a while: what each did, and what went wrong."""

import os

import jax.numpy as jnp
import numpy as np
import torch

from fuzz import isolation
from fuzz.stress import processes, tasks, threads


def forks(seconds):
    """Fork in a process of its own, without JAX: the threads of XLA are not in a child."""
    with isolation.pool() as pool:
        return pool.submit(processes.forked, seconds).result(seconds + 10 * processes.LIMIT)


def run(seconds, seed):
    """Yield the name of each part, what it did, and what went wrong; two thirds of the time are for threads."""
    done, failures = threads.run(seconds * 2 / 3, seed=seed)
    yield "threads", _counted(done), failures
    yield "tasks", _counted(tasks.run(seconds / 6)), []
    yield "spawned", f"{processes.spawned((np.asarray, jnp.asarray, torch.as_tensor), count=2)} gradients", []
    if hasattr(os, "fork"):
        count, failures = forks(seconds / 6)
        yield "forked", f"{count} forks", failures


def _counted(done):
    return f"{done.total()}; " + ", ".join(f"{name} {count}" for name, count in done.most_common())
