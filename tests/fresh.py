"""Programs in processes of their own, forked from one that has imported what takes seconds to import.

A program begins as in a new interpreter that has imported these modules: no plugin, no test
and no other program has run before it.
"""

import json
import subprocess
import sys

# The fork leaves the loop for its program, and ends as any process does.
SERVER = """
import gc, importlib, json, os, signal, sys, warnings

for name in sys.argv[1:]:
    importlib.import_module(name)
gc.freeze()  # the collector need not look through what was imported
program = None
for line in sys.stdin:
    # JAX warns of any fork; its threads begin with the first array, and there is none here.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        program = json.loads(line)
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
if program is not None:
    signal.alarm(120)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(program["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    os.dup2(1, 2)
    exec(program["text"], {"__name__": "__main__"})
"""


class Fresh:
    """Run programs, each in a process of its own."""

    def __init__(self, output):
        self._output = output
        self._servers = {}

    def __call__(self, program, *modules):
        """Run a program behind the import of `modules`; return its exit status, and what it wrote to either stream."""
        if modules not in self._servers:
            command = [sys.executable, "-W", "error", "-c", SERVER, *modules]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self._servers[modules] = subprocess.Popen(command, text=True, **pipes)
        server = self._servers[modules]
        self._output.write_text("", encoding="utf-8")
        server.stdin.write(json.dumps({"text": program, "output": str(self._output)}) + "\n")
        server.stdin.flush()
        return int(server.stdout.readline()), self._output.read_text(encoding="utf-8")

    def close(self):
        """End the processes that are forked."""
        for server in self._servers.values():
            server.communicate()
