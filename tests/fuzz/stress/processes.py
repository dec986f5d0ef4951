"""Processes: labels, structures and gradients that cross to spawned ones, and children of a fork that differentiate."""

import faulthandler
import os
import signal
import sys
import threading
import time
import traceback

import numpy as np
import torch

from adprotocol import NonDifferentiable, grad, non_differentiable, within_gradient
from fuzz import isolation
from fuzz.stress.light import AT_FORK
from fuzz.stress.model import Line, check, layer

# For a child of a fork that waits for what is not there.
LIMIT = 60


def gradients_of(model, number):
    """Return the gradients of a model that was pickled, in a process where nothing was asked before."""
    assert within_gradient(model) is False
    assert isinstance(model.offset, NonDifferentiable)
    return grad(Line.at)(model, number)


def spawned(makes, count=1):
    """Let new processes differentiate models of each kind of array, and check what comes back."""
    with isolation.pool("spawn", count) as pool:
        waiting = []
        for number in range(1, 2 * count + 1):
            for make in makes:
                label = NonDifferentiable(make(np.ones(2, np.float32)))
                waiting.append(
                    (number, pool.submit(gradients_of, Line(make(np.full(2, 3.0, np.float32)), label), number))
                )
        for number, future in waiting:
            gradients = future.result(timeout=300)
            check(gradients.slope, [2.0 * number] * 2, "gradient of a spawned process")
            assert gradients.offset is None
    return len(waiting)


def _child(number):
    """Ask and differentiate after a fork."""
    x = torch.full((1,), float(number), requires_grad=True)
    assert within_gradient(x) is True
    assert within_gradient(non_differentiable(x)) is False
    check(torch.autograd.grad(layer(x).sum(), x)[0], [3.0], "tape in a child")
    check(torch.func.grad(lambda x: layer(x).sum())(x.detach()), [3.0], "func.grad in a child")
    check(grad(lambda x: layer(x) * x)(float(number)), 6.0 * number, "autograd in a child")
    check(
        grad(lambda m: (m.weight * x.detach()).sum())(torch.nn.Linear(1, 1))["weight"], [[number]], "module in a child"
    )


def forked(seconds):
    """Fork again and again while threads ask, differentiate and register; return how often, and what went wrong."""
    # First without threads: PyTorch imports parts of itself on first use, and a child would wait for such an import.
    _child(1)
    over, failures, count = threading.Event(), [], 0

    def work(i):
        step = AT_FORK[i % len(AT_FORK)]
        while not over.is_set():
            try:
                step(i + 1)
            except BaseException as error:  # noqa: BLE001  (reported below)
                failures.append(f"{step.__name__}: {error!r}")
                over.set()

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(2 * len(AT_FORK))]
    for thread in threads:
        thread.start()
    end = time.monotonic() + seconds
    while not over.is_set() and (count < 3 or time.monotonic() < end):
        count += 1
        child = os.fork()
        if child == 0:
            signal.alarm(LIMIT)
            faulthandler.dump_traceback_later(LIMIT * 0.8)
            status = 1
            try:
                _child(count % 9 + 1)
                status = 0
            finally:
                if status:
                    traceback.print_exc()
                    sys.stderr.flush()
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            failures.append(f"child {count}: " + ("deadlock" if status == -signal.SIGALRM else f"status {status}"))
            over.set()
    over.set()
    for thread in threads:
        thread.join(LIMIT)
    return count, failures
