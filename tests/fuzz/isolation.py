"""What runs in a process of its own: compiled programs, until the first that is not right, and what forks.

PyTorch's compiler, once it has failed, may fail again on what it could compile before.
"""

import atexit
import gc
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

# Memory stays bounded.
PROGRAMS = 200
# Loaded by the server from which the processes start: a second then, instead of ten.
LOADED = ["adprotocol_torch", "torch._dynamo", "torch._inductor.config"]


def pool(method="forkserver", count=1):
    """Return a pool of processes; those of the server have PyTorch already, and not JAX."""
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(LOADED)
    # The collector need not look through what was loaded.
    return ProcessPoolExecutor(count, context, initializer=gc.freeze)


class _Worker:
    def __init__(self):
        self._pool = None
        self._count = 0
        atexit.register(self.end)

    def run(self, program, framework):
        from fuzz import outcome

        if self._pool is None or self._count >= PROGRAMS:
            self.end()
            self._pool, self._count = pool(), 0
        self._count += 1
        try:
            result = self._pool.submit(outcome.run_here, program, framework).result()
        except BrokenProcessPool as error:
            self.end()
            return outcome.died(program, framework, error)
        if result.outcome != outcome.RIGHT:
            self.end()
        return result

    def end(self):
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


run = _Worker().run
