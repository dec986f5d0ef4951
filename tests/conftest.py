"""Shared by all tests: several CPU devices for JAX, and one train-or-evaluate layer."""

import atexit
import gc
import importlib
import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import hypothesis
import pytest
from fresh import Fresh

# Before jax is imported anywhere: two devices for pmap and shard_map.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
# The emitters of fusions take half of XLA's time for a small program. An unknown flag ends the process, so it is given
# to the releases that are known to have it.
if any(found.version.startswith("0.10.") for found in importlib.metadata.distributions(name="jaxlib")):
    os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"

# What XLA has compiled it need not compile again. The first process makes a folder, and the others find its name. Each
# has a part of its own for processes of its tests: JAX writes an entry in place, and another could read half of it.
if "ADPROTOCOL_TESTS" not in os.environ:
    os.environ["ADPROTOCOL_TESTS"] = tempfile.mkdtemp(prefix="adprotocol-tests-")
    atexit.register(shutil.rmtree, os.environ["ADPROTOCOL_TESTS"], ignore_errors=True)
COMPILED = Path(os.environ["ADPROTOCOL_TESTS"])
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(COMPILED / os.environ.get("PYTEST_XDIST_WORKER", "alone"))
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
# Programs of a few operations run once or twice: a tenth of their time. `make support` runs the suite with all of XLA.
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
# Arrays of a few numbers in the library sparse: 4 s.
os.environ["NUMBA_DISABLE_JIT"] = "1"
# Nobody reads where in the source an operation of a program comes from.
os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"

# What is imported is no garbage, and of what a compiler makes nothing is: a tenth of their time.
gc.set_threshold(50_000, 10, 10)

# A busy machine is slow, and that is no fault of what is tested.
hypothesis.settings.register_profile(
    "busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
hypothesis.settings.load_profile("busy")

# What the first use of the package imports: tests of private modules alone need it too.
importlib.import_module("adprotocol._public")

# The toy AD system. A second conftest would take the name of this one, by which Dynamo finds what a test closes over.
sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "toyad"))

TRAIN, EVALUATE = 3.0, 5.0


def _layer(x):
    import adprotocol

    return adprotocol.cond(adprotocol.within_gradient(x), lambda x: x * TRAIN, lambda x: x * EVALUATE, x)


@pytest.fixture
def layer():
    """x * 3 where it is being differentiated, x * 5 where it is not."""
    return _layer


@pytest.fixture
def compiler():
    """A Dynamo that knows nothing of other tests."""
    dynamo = importlib.import_module("torch._dynamo")
    dynamo.reset()
    yield
    dynamo.reset()


@pytest.fixture
def interruptible():
    """Interrupts reach this process and its children, also where a shell in the background has them ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def fresh(tmp_path_factory):
    """Run a program in a process of its own, behind the import of some modules: its status, and what it wrote."""
    run = Fresh(tmp_path_factory.mktemp("fresh") / "output.txt")
    yield run
    run.close()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The distribution as users install it."""
    target = tmp_path_factory.mktemp("dist")
    root = Path(__file__).parent.parent
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(root)]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = target.glob("*.whl")
    return built


def pytest_collection_finish():
    if "torch" in sys.modules:
        importlib.import_module("adprotocol_torch.conformance").without_guard_statistics()
    if "jax" in sys.modules:
        importlib.import_module("adprotocol_jax.conformance").share_contexts()
    keep()


def share_what_is_compiled():
    """Let the workers share what they compile: a third of what one needs, another has compiled."""
    entries = importlib.import_module("jax._src.lru_cache")

    def put(self, key, value):
        begun = self.path / f"{key}-{os.getpid()}"
        begun.write_bytes(value)
        begun.replace(self.path / f"{key}{entries._CACHE_SUFFIX}")

    entries.LRUCache.put = put
    sys.modules["jax"].config.update("jax_compilation_cache_dir", str(COMPILED / "shared"))
    importlib.import_module("jax.experimental.compilation_cache.compilation_cache").reset_cache()


def keep():
    """Spare the collector what is there: it would look for garbage among millions of objects, again and again."""
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown(item, nextitem):
    if nextitem is not None and nextitem.path != item.path:
        keep()


def pytest_collection_modifyitems(items):
    # What takes long first, so that no process is left alone with it at the end.
    long = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in long)
    marked = [item for item in items if item.get_closest_marker("cuda")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device; torch.cuda.is_available() is False here"))
