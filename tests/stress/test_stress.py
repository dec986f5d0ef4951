"""Short runs of what `make stress` does for a minute."""

import os
import threading

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from stress import __main__ as command
from stress import processes, steps, tasks, threads
from stress.model import check


def test_threads_differentiate_compile_register_and_ask():
    done, failures = threads.run(3.0)
    assert failures == [], "\n".join(failures)
    # Every step was taken, unless the machine is so busy that few were.
    assert set(done) == {step.__name__ for step in (*steps.STEPS, *steps.SLOW)} or done.total() < 100


def test_a_wrong_result_and_a_deadlock_are_failures():
    def wrong(number):
        check(number, number + 1.0, "wrong")

    _, failures = threads.run(0.5, count=2, steps=[wrong], slow=[])
    assert "wrong in thread" in failures[0]
    never = threading.Event()
    _, failures = threads.run(0.1, count=2, steps=[lambda number: never.wait()], slow=[], patience=0.2)
    assert failures == ["deadlock: stress 0, stress 1 did not return within 0 s after the end"]
    never.set()


def test_tasks_interleave_inside_of_gradients():
    assert set(tasks.run(0.0)) == {"tape", "autograd.grad", *tasks.GRADIENTS}


def test_labels_and_structures_cross_to_a_spawned_process():
    assert processes.spawned((np.asarray, jnp.asarray, torch.as_tensor)) == 6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork, which this system does not have")
def test_children_of_a_fork_ask_and_differentiate():
    report, wrong = command.forks(1.0)
    assert wrong == ""
    assert int(report.split()[0]) >= 3
