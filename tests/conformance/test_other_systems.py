"""The suite on a system of matrices of floats, and on one that has zeros for no gradient."""

import numpy as np
from small import Plain, ToyHarness, made, ran, toy

from adprotocol.conformance import run

NONE = dict.fromkeys(("integer arrays", "boolean arrays", "signed zeros", "vectors"), "matrices of floats")


class Matrices(Plain):
    absent = {"grad": "NumPy does not differentiate", **NONE}  # noqa: RUF012  (as maintainers write it)

    def array(self, value):
        array = np.asarray(value, float) + 0.0
        return array if array.ndim == 2 else array.reshape(-1, 1)


def test_a_system_of_matrices_of_floats_says_so_and_is_green():
    # cond refuses a boolean matrix of NumPy's, which has a dtype.
    report = run(Matrices, keywords=["within_gradient", "non_differentiable", "trainable", "cond/*return*", "plugins"])
    assert report.ok, report.sentence()
    assert report.ran > 30
    messages = {result.message for result in report.results}
    assert messages.issuperset(f"it needs {kind} (matrices of floats)" for kind in NONE)


def test_a_system_of_matrices_of_floats_is_told_what_to_say():
    report = ran(made(Matrices, absent={"grad": "NumPy does not differentiate"}), lambda h: None)
    advice = [problem.message.partition("say so: ")[2] for problem in report.problems]
    assert advice == [f"absent = {{{kind!r}: 'why'}}" for kind in ("vectors", *list(NONE)[:3])]


def test_a_variable_may_have_zeros_before_a_pass():
    def variable(self, value):
        new = ToyHarness.variable(self, value)
        new.grad = 0.0 * self.array(value)
        return new

    with toy():
        assert run(made(ToyHarness, variable=variable), keywords=["*variable*"]).ok
