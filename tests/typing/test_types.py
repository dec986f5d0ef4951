"""The types of the public functions: a right program passes mypy and pyright, a wrong one is refused line by line."""

import ast
import importlib.util
import inspect
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import adprotocol

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
RIGHT = ("program.py", "frameworks.py")
PROGRAMS = (*RIGHT, "wrong.py")

needs_pyright = pytest.mark.skipif(
    importlib.util.find_spec("pyright") is None, reason="pyright is not installed; it is in the dependency group lint"
)


def run(tool, *arguments):
    command = [sys.executable, "-m", tool, *arguments]
    # The path of an editable install is a hook of Python's, which a checker does not run.
    # Pyright looks for the packages that these import where the first python of the path does.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def mypy():
    """The errors of mypy in each program: the codes by line."""
    settings = ("--config-file", str(HERE / "mypy.ini"))
    done = run("mypy", *settings, "--no-error-summary", *(str(HERE / name) for name in PROGRAMS))
    assert not done.stderr
    errors = re.findall(r"^(.+?):(\d+): error: .*\[([a-z-]+)\]$", done.stdout, re.MULTILINE)
    assert len(errors) == done.stdout.count(": error: "), done.stdout
    return by_line((Path(file).name, int(line), code) for file, line, code in errors)


def pyright():
    """The errors of pyright in each program: the rules by line."""
    done = run("pyright", "--outputjson", "--pythonpath", sys.executable, *(str(HERE / name) for name in PROGRAMS))
    found = json.loads(done.stdout)["generalDiagnostics"]
    return by_line(
        (Path(error["file"]).name, error["range"]["start"]["line"] + 1, error["rule"])
        for error in found
        if error["severity"] == "error"
    )


def by_line(errors):
    found = {name: {} for name in PROGRAMS}
    for name, line, code in errors:
        found[name].setdefault(line, set()).add(code)
    return found


def expected(part):
    """The codes of mypy (part 0) or the rules of pyright (part 1) that the programs expect, by line."""
    found = {name: {} for name in PROGRAMS}
    for number, line in enumerate((HERE / "wrong.py").read_text("utf-8").splitlines(), 1):
        codes = line.partition("# error: ")[2].partition(" / ")[2 * part].split()
        if codes not in ([], ["-"]):
            found["wrong.py"][number] = set(codes)
    return found


@pytest.mark.parametrize("name", RIGHT)
def test_the_right_programs_run(name):
    if name == "frameworks.py":
        pytest.importorskip("jax")
        pytest.importorskip("torch")
    runpy.run_path(str(HERE / name), run_name="__main__")


def test_mypy_accepts_the_right_programs_and_refuses_each_wrong_line():
    assert mypy() == expected(0)


@needs_pyright
def test_pyright_accepts_the_right_programs_and_refuses_each_wrong_line():
    assert pyright() == expected(1)


@needs_pyright
def test_every_public_symbol_has_a_type():
    done = run("pyright", "--ignoreexternal", "--pythonpath", sys.executable, "--verifytypes", "adprotocol")
    assert "Type completeness score: 100%" in done.stdout, done.stdout[-4000:]


def signatures():
    """The functions that the stub declares: for each name, the arguments of its overloads."""
    stub = ast.parse((ROOT / "adprotocol" / "__init__.pyi").read_text("utf-8"))
    found = {}
    for node in stub.body:
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append(node.args)
    return found


def test_the_types_are_of_the_functions_that_there_are():
    stub = ast.parse((ROOT / "adprotocol" / "__init__.pyi").read_text("utf-8"))
    (exported,) = (
        ast.literal_eval(node.value)
        for node in stub.body
        if isinstance(node, ast.Assign) and "__all__" in ast.dump(node)
    )
    assert sorted(exported) == sorted(adprotocol.__all__)
    functions = {name for name in adprotocol.__all__ if inspect.isfunction(getattr(adprotocol, name))}
    assert set(signatures()) == functions


@pytest.mark.parametrize("name", sorted(signatures()))
def test_the_arguments_of_a_function_are_those_of_its_types(name):
    parameters = inspect.signature(getattr(adprotocol, name)).parameters.values()
    by_kind = {kind: {p.name: p.default for p in parameters if p.kind is kind} for kind in inspect._ParameterKind}
    overloads = signatures()[name]
    for arguments in overloads:
        # A first value that must be there is a parameter of its own, by position only, in the types.
        assert [argument.arg for argument in arguments.args] == list(by_kind[inspect.Parameter.POSITIONAL_OR_KEYWORD])
        assert (arguments.vararg is None) == (not by_kind[inspect.Parameter.VAR_POSITIONAL])
        keywords = by_kind[inspect.Parameter.KEYWORD_ONLY]
        # An overload may leave out a keyword; the last has every one.
        given = [argument.arg for argument in arguments.kwonlyargs]
        assert given == [name for name in keywords if name in given]
        assert given == list(keywords) or arguments is not overloads[-1]
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            assert default is None or ast.literal_eval(default) == keywords[argument.arg]
