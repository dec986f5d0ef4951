"""Programs in a process of their own, which ends with the first that is not right.

PyTorch's compiler, once it has failed, may fail again on what it could compile before.
"""

import atexit
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

# Memory stays bounded.
PROGRAMS = 200
# Loaded by the server from which the processes start: a second then, instead of ten.
LOADED = ["adprotocol_torch", "torch._dynamo", "torch._inductor.config"]


class _Worker:
    def __init__(self):
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(LOADED)
        self._pool = None
        self._count = 0
        atexit.register(self.end)

    def run(self, program, framework):
        from fuzz import outcome

        if self._pool is None or self._count >= PROGRAMS:
            self.end()
            self._pool, self._count = ProcessPoolExecutor(1, self._context), 0
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
