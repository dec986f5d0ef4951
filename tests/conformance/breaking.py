"""A harness, and scenarios that end the process, hang, or leave the system broken; `BREAKING` names those that run."""

import os
import re
import signal
import threading
import time
from pathlib import Path

import small


class Breaking(small.Autograd):
    """Autograd, which `poisons` leaves without gradients, and whose forward mode may crash."""

    _poisoned = False

    def grad(self, fun):
        gradient = super().grad(fun)
        return lambda x, *rest: (0.0 if Breaking._poisoned else 1.0) * gradient(x, *rest)


def fine(h):
    h.assert_equal(h.array(1.0), 1.0)


def gradient(h):
    h.assert_equal(h.grad(lambda x: x * x)(h.array(3.0)), 6.0)


def wrong(h):
    h.assert_equal(h.array(1.0), 2.0)


def raises(h):
    raise ValueError("refused")


def crashes(h):
    signal.pthread_kill(threading.get_ident(), signal.SIGSEGV)


def sleeps(h):
    time.sleep(3600)


def holds(h):
    re.match("(a+)+$", "a" * 60 + "b")


def poisons(h):
    Breaking._poisoned = True


def waits(h):
    Path("waiting").touch()
    time.sleep(3600)


def leaves_a_file(h):
    with open(f"{h.folder}/left", "a", encoding="utf-8") as file:  # noqa: PTH123  (as harnesses do)
        file.write(h.folder)


def last(h):
    h.assert_equal(h.array(1.0), 1.0)


KEPT = small.scenarios(*(globals()[name] for name in os.environ.get("BREAKING", "").split()), level="MUST", needs=())
KEPT.__enter__()
