"""The first call of a process, wherever it is made: each in an interpreter of its own."""

import subprocess
import sys

import pytest

LABELS = "from adprotocol import NonDifferentiable as N, explain; "

PROGRAMS = {
    "asked inside jax.jit": (
        "import jax, adprotocol as ap; "
        "f = jax.jit(lambda x: ap.cond(ap.within_gradient(x), lambda x: x * 3.0, lambda x: x * 5.0, x)); "
        "assert f(2.0) == 10.0; assert jax.grad(f)(2.0) == 3.0; assert ap.within_gradient(jax.numpy.ones(2)) is False"
    ),
    "asked inside autograd.grad": (
        "import autograd, adprotocol as ap; assert autograd.grad(lambda x: x * ap.within_gradient([x]))(2.0) == 1.0"
    ),
    "a label given to jax.grad before any other call": (
        "import jax; " + LABELS + "g = jax.grad(lambda k: k['a'] * k['b'])({'a': N(2.0), 'b': 3.0}); "
        "assert g['a'].held == 0.0; assert g['b'] == 2.0"
    ),
    "a label given to torch.func.grad before any other call, and a question in vmap": (
        "import torch; " + LABELS + "t = torch.tensor; "
        "g = torch.func.grad(lambda k: k['a'] * k['b'])({'a': N(t(2.0)), 'b': t(3.0)}); "
        "assert g['a'].held == 0.0; assert g['b'] == 2.0; from adprotocol import within_gradient as w; seen = []; "
        "torch.func.vmap(torch.func.grad(lambda x: seen.append(w(x)) or x))(t([2.0])); assert seen == [True]"
    ),
    "a label made before the framework is imported": (
        LABELS + "label = N(2.0); import jax; explain(label); "
        "assert jax.grad(lambda k: k['a'] * k['b'])({'a': label, 'b': 3.0})['b'] == 2.0"
    ),
    "a framework imported after the first call": (
        "import adprotocol as ap; assert ap.within_gradient({'a': 1.0}) is False; import autograd; "
        "assert autograd.grad(lambda x: x * ap.within_gradient({'a': x}))(2.0) == 1.0"
    ),
    "classes first met in functions that torch.compile traces": (
        "import torch, dataclasses, adprotocol as ap; "
        "M = dataclasses.make_dataclass('M', ['a', 'n']); N = dataclasses.make_dataclass('N', ['m']); "
        "N.__module__ = M.__module__ = '__main__'; "
        "f = lambda model: ap.grad(lambda model: (model.m.a * model.m.a).sum())(model).m.a; "
        "compiled = torch.compile(f, backend='eager', fullgraph=True); "
        "assert compiled(N(M(torch.ones(3), 2))).tolist() == [2.0] * 3; "
        "assert compiled(N(M(torch.zeros(3), 2))).tolist() == [0.0] * 3; "
        "A = dataclasses.make_dataclass('A', ['a']); x = torch.ones(3, requires_grad=True); "
        "asking = torch.compile(lambda m: ap.within_gradient([m]), backend='eager', fullgraph=True); "
        "assert asking(A(x)) is True"
    ),
    "many threads ask at once": (
        "import torch, threading, adprotocol as ap; x = torch.ones(2, requires_grad=True); seen = []; "
        "threads = [threading.Thread(target=lambda: seen.append(ap.within_gradient({'x': x}))) for _ in range(16)]; "
        "[t.start() for t in threads]; [t.join() for t in threads]; assert seen == [True] * 16"
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_first_use(name, fresh):
    # What a program imports first may be there when it begins.
    first = PROGRAMS[name].partition(";")[0].removeprefix("import ").partition(",")[0]
    assert fresh(PROGRAMS[name], *({first} & {"jax", "torch"})) == (0, "")


def test_no_costly_module_of_python_is_imported_first():
    # Each takes as long as all that is of this package, in a program that needs none of them.
    program = (
        "import sys; before = set(sys.modules); import adprotocol; assert adprotocol.within_gradient; "
        "new = set(sys.modules) - before; "
        "print(*new & {'typing', 're', 'enum', 'contextlib', 'threading', 'inspect', 'dataclasses'})"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "\n"
