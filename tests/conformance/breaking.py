"""A harness and scenarios that end the process, hang, or leave the system broken; `BREAKING` names those that run."""

import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

import small


class Breaking(small.Autograd):
    """Autograd, which `poisons` leaves without gradients, and which may crash while it is checked."""

    _poisoned = False

    def grad(self, fun):
        gradient = super().grad(fun)
        return lambda x, *rest: (0.0 if Breaking._poisoned else 1.0) * gradient(x, *rest)

    def jvp(self, fun, primal, tangent):
        if "jvp" in chosen():
            signal.pthread_kill(threading.get_ident(), signal.SIGABRT)
        return super().jvp(fun, primal, tangent)


def fine(h):
    h.assert_equal(h.array(1.0), 1.0)


def gradient(h):
    h.assert_equal(h.grad(lambda x: x * x)(h.array(3.0)), 6.0)


def crashes(h):
    signal.pthread_kill(threading.get_ident(), signal.SIGSEGV)


def leaves(h):
    os._exit(7)


def holds(h):
    re.match("(a+)+$", "a" * 60 + "b")


def poisons(h):
    Breaking._poisoned = True


def poisons_and_fails(h):
    Breaking._poisoned = True
    raise ValueError("refused")


def waits(h):
    if "FOUND" in os.environ:
        Path(os.environ["FOUND"]).touch()
    sys.stderr.write("waiting\n")
    sys.stderr.flush()
    time.sleep(30)


def last(h):
    h.assert_equal(h.array(1.0), 1.0)


def leaves_a_file(h):
    Path(h.folder, "left").write_text(h.folder, encoding="utf-8")


def finds_the_file(h):
    left = Path(h.folder, "left")
    while not left.exists():  # another process writes it
        time.sleep(0.01)
    Path(os.environ["FOUND"]).write_text(left.read_text(encoding="utf-8"), encoding="utf-8")


def chosen():
    return os.environ.get("BREAKING", "").split()


def functions():
    return [globals()[name] for name in chosen() if name in globals()]


# In the process that runs them; that which waits for it has them from the test.
if multiprocessing.parent_process() is not None:
    KEPT = small.scenarios(*functions(), level="MUST", needs=())
    KEPT.__enter__()
