"""Tests of a copy of the tree, in children of a process that has the frameworks already and this library not yet."""

import compileall
import contextlib
import importlib
import json
import os
import py_compile
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("adprotocol", "adprotocol_jax", "adprotocol_torch", "adprotocol_autograd")
# Seconds of import that no test has to wait for; a child that needs another imports it itself.
WARM = (
    "numpy",
    "jax.numpy",
    "jax.export",
    "torch._dynamo",
    "torch._inductor",
    "autograd.numpy",
    "optree",
    "pluggy",
    "hypothesis",
    "rich.console",
    "rich.progress",
    "jinja2",
    "equinox",
    "flax.nnx",
    "flax.linen",
    "optax",
    "attrs",
)
IGNORED = shutil.ignore_patterns(
    ".git", ".venv*", "__pycache__", "_build", "generated", "build", ".*_cache", ".hypothesis"
)
MEMORY = 8 << 30
IDLE = 8
TOLD = "told.json"
BROKEN = 70
PASSED = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
# Of libraries that bring a plugin of pytest's it would rewrite the asserts, and warns that they are there already.
OPTIONS = ("-q", "--tb=short", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")


def warm():
    """Import the frameworks; none of them may start a thread, as a child has the thread that forked alone."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in WARM:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    assert not any(name.partition(".")[0] in PACKAGES for name in sys.modules)


def copied(target):
    """Copy the tree to a place of its own, compile it, and return the place."""
    root = Path(tempfile.mkdtemp(dir=target))
    shutil.copytree(ROOT, root, dirs_exist_ok=True, ignore=IGNORED)
    for package in PACKAGES:
        # By its hash, as a mutant may be written within the second and have as many bytes.
        compileall.compile_dir(root / package, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    # Some tests start an interpreter with a module path of their own, which has to lead to the copy.
    interpreter = root / "python"
    interpreter.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{root}" exec {sys.executable} "$@"\n', "utf-8")
    interpreter.chmod(0o755)
    run(root, ["--collect-only", "tests"], Chosen(), 300, bytecode=True)
    return root


class Chosen:
    """A plugin of pytest's: tests with these ids alone, in this order, or all but some; tells which failed first."""

    def __init__(self, ids=None, done=()):
        self.done = done
        self.ids = None if ids is None else {name: number for number, name in enumerate(ids)}
        self.failed = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        if self.ids is not None:
            items[:] = sorted(
                (item for item in items if item.nodeid in self.ids), key=lambda item: self.ids[item.nodeid]
            )
        items[:] = [item for item in items if item.nodeid not in self.done]

    def pytest_runtest_logreport(self, report):
        if report.failed and self.failed is None:
            self.failed = report.nodeid

    def result(self):
        return self.failed


def run(root, arguments, plugin, limit, *, bytecode=False):
    """Run pytest in a child; return its status, which is None past the time limit, and what the plugin has to tell.

    The limit is in seconds of the processor, as a machine may have other work; one that sleeps is given more.
    """
    told = Path(root) / TOLD
    told.unlink(missing_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _child(root, arguments, plugin, limit, bytecode=bytecode)
    deadline = time.monotonic() + IDLE * limit
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        if time.monotonic() > deadline:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return None, None
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        # What a test started and did not wait for.
        os.killpg(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGXCPU:
        return None, None
    if code in (BROKEN, pytest.ExitCode.USAGE_ERROR):
        raise RuntimeError((Path(root) / "log.txt").read_text("utf-8"))
    return code, json.loads(told.read_text("utf-8")) if told.exists() else None


def _child(root, arguments, plugin, limit, *, bytecode):
    status = BROKEN
    try:
        os.setsid()
        # A mutant may ask for memory without an end.
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, resource.RLIM_INFINITY))
        with (Path(root) / "log.txt").open("w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(root)
        own = {str(ROOT), str(ROOT / "tests"), ""}
        sys.path[:] = [str(root), *(path for path in sys.path if path not in own)]
        os.environ["PYTHONPATH"] = str(root)
        if (interpreter := Path(root) / "python").exists():
            sys.executable = str(interpreter)
        # The bytecode of a mutant would outlive it.
        sys.dont_write_bytecode = not bytecode
        status = int(pytest.main([*OPTIONS, *arguments], plugins=[plugin]))
        (Path(root) / TOLD).write_text(json.dumps(plugin.result()), "utf-8")
    except BaseException:  # noqa: BLE001  (the parent reads it in the log)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
