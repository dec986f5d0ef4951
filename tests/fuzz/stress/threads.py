"""Threads that take steps until the time is over; the first failure ends them all, and a deadlock is a failure."""

import collections
import faulthandler
import random
import sys
import threading
import time
import traceback

from fuzz.stress.steps import SLOW, STEPS, torch_forward

COUNT = 16
# Compilation may hold a thread, on a machine that is busy otherwise.
PATIENCE = 600.0


def run(seconds, *, seed=0, count=COUNT, steps=STEPS, slow=SLOW, patience=PATIENCE):  # noqa: PLR0913
    """Return how often each step was taken, and the failures as text."""
    torch_forward(1)  # PyTorch scripts its formulas then, and CPython parses in one thread at a time
    done, failures = collections.Counter(), []
    end, over = time.monotonic() + seconds, threading.Event()
    start = threading.Barrier(count)

    def work(i):
        numbers = random.Random(f"{seed} {i}")  # noqa: S311  (which step comes next)
        start.wait()
        # The slow ones at once, by one thread each, so that the others run meanwhile.
        own = [slow[i]] if i < len(slow) else []
        while not over.is_set() and (own or time.monotonic() < end):
            step = own.pop() if own else numbers.choice(steps)
            try:
                step(numbers.randint(1, 9))
            except BaseException:  # noqa: BLE001  (reported below, the assertion of a step included)
                failures.append(f"{step.__name__} in thread {i}\n{traceback.format_exc()}")
                over.set()
            done[step.__name__, i] += 1
            if not numbers.randrange(50) and i < len(slow) and time.monotonic() + 5 < end:
                own = [slow[i]]

    threads = [threading.Thread(target=work, args=(i,), name=f"stress {i}", daemon=True) for i in range(count)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(2e-4)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, end + patience - time.monotonic()))
    finally:
        sys.setswitchinterval(interval)
    stuck = [thread.name for thread in threads if thread.is_alive()]
    if stuck:
        over.set()
        faulthandler.dump_traceback(all_threads=True)
        failures.append(f"deadlock: {', '.join(stuck)} did not return within {patience:.0f} s after the end")
    total = collections.Counter()
    for (name, _), number in done.items():
        total[name] += number
    return total, failures
