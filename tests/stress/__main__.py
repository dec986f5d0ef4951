"""Run threads, tasks and processes for a while; status 1, with what went wrong, if anything did."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

# As in the tests.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax.numpy as jnp
import numpy as np
import torch
from rich.console import Console

from stress import processes, tasks, threads


def forks(seconds):
    """Fork in a program of its own, and return its report and what went wrong."""
    command = [sys.executable, "-m", "stress.processes", str(seconds)]
    tests = Path(__file__).parent.parent
    ran = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=tests, timeout=seconds + 10 * processes.LIMIT
    )
    return ran.stdout.strip(), ran.stderr if ran.returncode else ""


def main(arguments=None):
    """Print what was done, and return the exit status."""
    parser = argparse.ArgumentParser(prog="stress", description=__doc__)
    parser.add_argument("seconds", type=float, help="how long, in all; two thirds of it with threads")
    parser.add_argument("--seed", type=int, default=0, help="the steps of another seed come in another order (0)")
    options = parser.parse_args(arguments)
    out = Console(soft_wrap=True, highlight=False, markup=False)
    done, failures = threads.run(options.seconds * 2 / 3, seed=options.seed)
    out.print(f"threads: {done.total()} steps; " + ", ".join(f"{name} {count}" for name, count in done.most_common()))
    done = tasks.run(options.seconds / 6)
    out.print(f"tasks: {done.total()}; " + ", ".join(f"{name} {count}" for name, count in done.most_common()))
    out.print(f"spawned: {processes.spawned((np.asarray, jnp.asarray, torch.as_tensor), count=2)} gradients")
    if hasattr(os, "fork"):
        report, wrong = forks(options.seconds / 6)
        out.print(f"forked: {report}")
        failures += [wrong] if wrong else []
    out.print("\n".join(failures) or "All right.")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
