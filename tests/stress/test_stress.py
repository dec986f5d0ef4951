"""Short runs of what `make stress` does for a minute."""

import threading

from stress import steps, threads


def test_threads_differentiate_compile_register_and_ask():
    done, failures = threads.run(4.0)
    assert failures == [], "\n".join(failures)
    assert set(done) == {step.__name__ for step in (*steps.STEPS, *steps.SLOW)}


def test_a_wrong_result_and_a_deadlock_are_failures():
    def wrong(number):
        steps.check(number, number + 1.0, "wrong")

    _, failures = threads.run(1.0, count=2, steps=[wrong], slow=[])
    assert "wrong in thread" in failures[0]
    never = threading.Event()
    _, failures = threads.run(0.1, count=2, steps=[lambda number: never.wait()], slow=[], patience=0.2)
    assert failures == ["deadlock: stress 0, stress 1 did not return within 0 s after the end"]
    never.set()
