"""The time limit: whatever a call does, the caller goes on."""

import ctypes
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from adprotocol.conformance._run.clock import Stop, TimeLimit, Worker


@pytest.fixture
def worker():
    made = Worker()
    yield made
    made.close()


def raising(error):
    raise error


def spin():
    while True:
        pass


def block_in_a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def run_in_native_code():
    ctypes.CDLL(None).sleep(3)


def ended(thread, seconds=5.0):
    thread.join(seconds)
    return not thread.is_alive()


def test_a_call_that_returns_gives_none(worker):
    found = []
    assert worker.run(lambda: found.append(1), 5.0) is None
    assert found == [1]


class Unprintable(Exception):  # noqa: N818
    def __str__(self):
        raise TypeError("no text")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        RecursionError("deep"),
        MemoryError(),
        StopIteration(1),
        TimeoutError("its own"),
        Unprintable(),
        pytest.fail.Exception("a failure of pytest's"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_a_call_raises_is_returned_whatever_it_is(worker, error):
    assert worker.run(lambda: raising(error), 5.0) is error
    assert worker.run(lambda: None, 5.0) is None


def test_the_empty_queue_of_a_call_is_no_time_limit(worker):
    import queue

    error = worker.run(lambda: queue.SimpleQueue().get_nowait(), 5.0)
    assert isinstance(error, queue.Empty)


def test_calls_that_return_share_a_thread_which_is_not_the_callers(worker):
    threads = []
    for _ in range(3):
        worker.run(lambda: threads.append(threading.current_thread()), 5.0)
    assert len(set(threads)) == 1
    assert threads[0] is not threading.current_thread()


@pytest.mark.parametrize("hang", [spin, lambda: time.sleep(3), block_in_a_lock, run_in_native_code])
def test_a_call_that_hangs_is_given_up_and_the_next_one_runs(worker, hang):
    begin = time.perf_counter()
    error = worker.run(hang, 0.1)
    assert isinstance(error, TimeLimit)
    assert time.perf_counter() - begin < 2
    assert str(error) == "it did not return within 0.1 s"
    assert hang.__name__ in error.detail
    assert worker.run(lambda: None, 5.0) is None


def test_what_spins_in_python_is_stopped(worker):
    threads = []

    def endless():
        threads.append(threading.current_thread())
        spin()

    worker.run(endless, 0.1)
    assert ended(threads[0])


def test_the_thread_ends_even_if_the_call_swallows_the_stop(worker):
    threads, swallowed = [], []

    def stubborn():
        threads.append(threading.current_thread())
        try:
            spin()
        except BaseException as error:  # noqa: BLE001
            swallowed.append(error)

    worker.run(stubborn, 0.1)
    assert ended(threads[0])
    assert isinstance(swallowed[0], Stop)


def test_a_stop_that_arrives_late_reaches_no_later_call(worker):
    assert isinstance(worker.run(lambda: time.sleep(0.3), 0.1), TimeLimit)
    assert worker.run(lambda: time.sleep(0.6), 5.0) is None


def test_closing_ends_the_thread_and_may_be_done_twice(worker):
    threads = []
    worker.run(lambda: threads.append(threading.current_thread()), 5.0)
    worker.close()
    worker.close()
    assert ended(threads[0])
    assert worker.run(lambda: None, 5.0) is None


@pytest.mark.usefixtures("interruptible")
def test_the_interrupt_of_the_user_is_raised_and_the_call_given_up(worker):
    threads = []

    def endless():
        threads.append(threading.current_thread())
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        spin()

    with pytest.raises(KeyboardInterrupt):
        worker.run(endless, 20.0)
    assert ended(threads[0])
    assert worker.run(lambda: None, 5.0) is None


@pytest.mark.parametrize(
    "hang",
    [
        "time.sleep(60)",
        "threading.Lock().acquire() and (lock := threading.Lock()).acquire() and lock.acquire()",
        "ctypes.CDLL(None).sleep(60)",
        "[thread.start() or thread.join() for thread in [threading.Thread(target=time.sleep, args=(60,))]]",
        "[pool.submit(time.sleep, 60).result() for pool in [ThreadPoolExecutor(2)]]",
    ],
)
def test_what_was_given_up_does_not_keep_the_process(hang):
    program = f"""
        import ctypes, threading, time
        from concurrent.futures import ThreadPoolExecutor

        from adprotocol.conformance._run.clock import Worker

        print(Worker().run(lambda: {hang}, 0.2))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=20, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "it did not return within 0.2 s\n", "")


def test_what_a_generator_holds_is_left_though_the_exception_is_kept(worker):
    entered = []

    def hold(name):
        entered.append((name, threading.get_ident()))
        try:
            yield
        finally:
            # In the thread that entered: contexts belong to threads.
            entered.remove((name, threading.get_ident()))

    def inner():
        held = hold("inner")
        next(held)
        raise ValueError("no")

    def call():
        held = hold("outer")
        next(held)
        try:
            inner()
        except ValueError as error:
            raise ExceptionGroup("all", [KeyError("one")]) from error

    error = worker.run(call, 10.0)
    assert isinstance(error, ExceptionGroup)
    assert error.__cause__.__traceback__ is not None
    assert entered == []
