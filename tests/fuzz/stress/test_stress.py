"""Short runs of what `make stress` does for a minute."""

import threading

import jax.numpy as jnp
import numpy as np
import torch

from fuzz.__main__ import main
from fuzz.stress import processes, run, steps, tasks, threads


def test_threads_differentiate_compile_register_and_ask():
    done, failures = threads.run(3.0)
    assert failures == [], "\n".join(failures)
    # Every step was taken, unless the machine is so busy that few were.
    assert set(done) == {step.__name__ for step in (*steps.STEPS, *steps.SLOW)} or done.total() < 100


def test_a_wrong_result_and_a_deadlock_are_failures():
    def wrong(number):
        steps.check(number, number + 1.0, "wrong")

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


def test_the_command_reports_each_part_and_fails_where_one_does(monkeypatch, capsys):
    parts = [("threads", "3; tape 3", []), ("tasks", "2; tape 2", ["tape: wrong"])]
    monkeypatch.setattr(run, "run", lambda seconds, seed: parts[: int(seconds)])
    assert main(["0", "--stress", "1"]) == 0
    assert capsys.readouterr().out == "threads: 3; tape 3\n"
    assert main(["0", "--stress", "2"]) == 1
    assert capsys.readouterr().out == "threads: 3; tape 3\ntasks: 2; tape 2\ntape: wrong\n"
