"""Programs in processes of their own, as many at once as there are processors.

PyTorch's compiler, once it has failed, may fail again on what it could compile before: what fails is run again alone.
"""

import gc
import itertools
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from fuzz import outcome

# Of one pool: memory stays bounded.
PROGRAMS = 200
# Loaded by the server from which the processes start: a second then, instead of ten.
LOADED = ["adprotocol_torch", "adprotocol_torch.internals", "torch._dynamo", "torch._inductor.config"]


def pool(method="forkserver", count=1):
    """Return a pool of processes; those of the server have PyTorch already, and not JAX."""
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(LOADED)
    return ProcessPoolExecutor(count, context, initializer=_prepare)


def _prepare():
    """Spare the collector what was loaded and what a compiler makes, none of it garbage: a quarter of the time."""
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


def alone(program, framework):
    """Return the result of a program that no other has run before."""
    with pool() as single:
        try:
            return single.submit(outcome.run, program, framework).result()
        except BrokenProcessPool as error:
            return outcome.died(program, framework, error)


def every(programs, framework):
    """Yield the results of programs, in their order."""
    programs = iter(programs)
    while batch := list(itertools.islice(programs, PROGRAMS)):
        with pool(count=os.cpu_count()) as several:
            running = [several.submit(outcome.run, program, framework) for program in batch]
            for program, future in zip(batch, running, strict=True):
                # If a process has ended, what it was to run is run alone, and so is the program that ended it.
                has_ended = isinstance(future.exception(), BrokenProcessPool)
                result = None if has_ended else future.result()
                yield alone(program, framework) if has_ended or result.outcome in outcome.FAILURES else result
