"""The supervisor: a run in processes of its own, and in one more behind whatever ends such a process or breaks it.

A framework may end the process by a signal, hang where no thread can time it, or be
left broken by a scenario. The results are sent as they come, so that nothing is lost.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import functools
import gc
import multiprocessing
import os
import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adprotocol.conformance._run import backend as backends
from adprotocol.conformance._run import result
from adprotocol.conformance._run.repro import repro
from adprotocol.conformance._run.result import Report, Result
from adprotocol.conformance._run.session import Begun, Event, Log, Resume, Selection, Session, Strand
from adprotocol.conformance._run.suite import Interrupted
from adprotocol.conformance._run.survey import without_folders
from adprotocol.conformance.harness import Harness
from adprotocol.conformance.scenarios import all_scenarios

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

# So many processes are started again at most: each imports the framework and checks the harness.
AGAIN = 50
# A process that tells nothing for so many times the limit of a scenario, and so many seconds more, hangs.
TIMES, GRACE = 4, 30.0
# A day: faulthandler has an upper limit.
LONGEST = 86400.0
# Seconds that a process gets to leave when all is told.
LEAVE = 5.0

# What a process is asked for: backend, device, its part, and how to go on.
Request = tuple[str, "str | None", Selection, Resume]


def run(
    backend: str,
    *,
    device: str | None = None,
    jobs: int = 1,
    on_start: Callable[[int], None] = lambda _: None,
    on_result: Callable[[Result], None] = lambda _: None,
    **selected: Any,
) -> Report:
    """Run the suite as `suite.run` does, in so many other processes; `backend` is a name or a path."""
    log = Log(on_start, on_result)
    made = tempfile.TemporaryDirectory(prefix="adprotocol-", ignore_cleanup_errors=True)
    with made as folder, ThreadPoolExecutor(jobs) as pool:
        processes = Processes(Path(folder))
        try:
            parts = [Selection(**selected, part=part, parts=jobs) for part in range(jobs)]
            for strand in [pool.submit(_strand, (backend, device, part), log, processes) for part in parts]:
                strand.result()
        except BaseException as error:
            processes.stop()
            if not isinstance(error, KeyboardInterrupt) or log.head is None:
                raise
            pool.shutdown()
            raise Interrupted(log.interrupted()) from error
    return log.report()


class Processes:
    """Hold the processes that run now, to end all at once, and the folder that they share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: set[Any] = set()
        self.are_stopped = False

    def stop(self) -> None:
        """End the processes, which nobody goes on behind."""
        self.are_stopped = True
        for process in tuple(self.running):
            process.kill()


def _strand(request: tuple[str, str | None, Selection], log: Log, processes: Processes) -> None:
    """Run a part of the cases, in one process after another."""
    backend, device, _ = request
    strand, resume = log.strand(), Resume()
    for _ in range(AGAIN):
        strand.open()
        end = _process((*request, resume), strand, processes)
        if strand.ended or processes.are_stopped:
            return
        resume = _after(end, strand, resume, backends.expression_of(backend, device))
    log.note(f"given up after {AGAIN} processes: {len(log.results)} scenarios have a result")


def _after(end: tuple[str, str], strand: Strand, resume: Resume, expression: str) -> Resume:
    """Return how to go on behind a process that came to an end before its time."""
    message, detail = end
    if strand.running:
        name, _, variant = strand.running.partition("@")
        scenario = all_scenarios()[name]
        crash = Result.of(
            scenario,
            id=strand.running,
            outcome=result.CRASHED,
            cause=result.PLUGIN,
            message=message,
            detail=detail,
            repro=repro(scenario, expression, variant),
        )
        strand.log.keep([crash])  # those before it, since the last check, stay unsure
    elif strand.checking and strand.checking not in resume.crashed:
        resume = dataclasses.replace(resume, crashed={**resume.crashed, strand.checking: message})
    elif not strand.has_begun:
        raise backends.BrokenBackend(f"before the first scenario {message}\n{detail}".rstrip())
    done = frozenset(found.id for found in strand.log.results)
    return dataclasses.replace(resume, done=done, suspects=len(strand.unsure))


def _process(request: Request, strand: Strand, processes: Processes) -> tuple[str, str]:
    """Run a session in a new process until it ends, and return what ended it, with the stack."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    *_, selection, _ = request
    dump = processes.folder / f"stack-{selection.part}.txt"
    dump.unlink(missing_ok=True)
    limit = min(TIMES * selection.seconds + GRACE, LONGEST)
    with receiver:
        process = context.Process(target=_serve, args=(sender, dump, limit, request), name="conformance")
        process.start()
        processes.running.add(process)
        sender.close()
        try:
            # The end of the file is the end of the process, maybe in the middle of an event; what it had told
            # before it was stopped is kept.
            with contextlib.suppress(EOFError, OSError):
                while not strand.ended and (receiver.poll() or not processes.are_stopped):
                    told = receiver.recv()
                    if isinstance(told, Exception):
                        raise told
                    strand.take(told)
            process.join(LEAVE)
        finally:
            processes.running.discard(process)
            process.kill()
            process.join()
    stack = dump.read_text(encoding="utf-8", errors="replace") if dump.exists() else ""
    return _words(process.exitcode or 0, stack), without_folders(stack)


def _words(status: int, stack: str) -> str:
    if stack.startswith("Timeout"):
        return "it did not return, and held the lock of the interpreter, so its process was ended"
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"the process was ended by {signal.Signals(-status).name}"
        return f"the process was ended by signal {-status}"
    return f"the process ended, with status {status}"


def _serve(sender: Connection, dump: Path, limit: float, request: Request) -> None:
    """Run a session and send what it tells, each within so many seconds: the new process."""
    backend, device, selection, resume = request
    Harness.folder = str(dump.parent)
    # An interrupt by the user is for the process that waits for this one, and ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What frameworks and harnesses print, compiled code included, is no part of a report.
    with contextlib.suppress(OSError):
        os.dup2(2, 1)
    sys.stdout = sys.stderr
    with dump.open("w", encoding="utf-8") as file, contextlib.suppress(BrokenPipeError):  # nobody waits any more
        faulthandler.enable(file)
        watch = functools.partial(faulthandler.dump_traceback_later, limit, exit=True, file=file)

        def tell(event: Event) -> None:
            if isinstance(event, Begun) and event.ids is not None:
                # Among what the framework and the survey have made, and what a compiler makes, the collector would look
                # for garbage, again and again: a quarter of the time of PyTorch's scenarios.
                gc.collect()
                gc.freeze()
                gc.set_threshold(50_000, 10, 10)
            watch()
            sender.send(event)

        watch()
        try:
            Session(backends.of(backend, device), selection, resume).run(tell)
        except (backends.UsageError, backends.BrokenBackend) as error:
            sender.send(type(error)(str(error)))
        faulthandler.cancel_dump_traceback_later()
        faulthandler.disable()
