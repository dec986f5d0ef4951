"""The supervisor: a run in a process of its own, and in one more behind whatever ends that process or breaks it.

A framework may end the process by a signal, hang where no thread can time it, or be
left broken by a scenario. The results are sent as they come, so that nothing is lost.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import functools
import multiprocessing
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adprotocol.conformance._run import backend as backends
from adprotocol.conformance._run import result
from adprotocol.conformance._run.repro import repro
from adprotocol.conformance._run.result import Report, Result
from adprotocol.conformance._run.session import Event, Log, Resume, Selection, Session
from adprotocol.conformance._run.suite import Interrupted
from adprotocol.conformance._run.survey import without_folders
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


def run(
    backend: str,
    *,
    device: str | None = None,
    on_start: Callable[[int], None] = lambda _: None,
    on_result: Callable[[Result], None] = lambda _: None,
    **selected: Any,
) -> Report:
    """Run the suite as `suite.run` does, in other processes than this one; `backend` is a name or a path."""
    selection, resume, log = Selection(**selected), Resume(), Log(on_start, on_result)
    try:
        for _ in range(AGAIN):
            log.open()
            end = _process((backend, device, selection, resume), log)
            if log.ended:
                return log.report()
            resume = _after(end, log, resume, backends.expression_of(backend, device))
        log.note(f"given up after {AGAIN} processes: {len(log.results)} scenarios have a result")
    except KeyboardInterrupt as error:
        if log.head is None:
            raise
        raise Interrupted(log.interrupted()) from error
    return log.report()


def _after(end: tuple[str, str], log: Log, resume: Resume, expression: str) -> Resume:
    """Return how to go on behind a process that came to an end before its time."""
    message, detail = end
    if log.running:
        name, _, variant = log.running.partition("@")
        scenario = all_scenarios()[name]
        crash = Result.of(
            scenario,
            id=log.running,
            outcome=result.CRASHED,
            cause=result.PLUGIN,
            message=message,
            detail=detail,
            repro=repro(scenario, expression, variant),
        )
        log.crash(crash)
    elif log.checking and log.checking not in resume.crashed:
        resume = dataclasses.replace(resume, crashed={**resume.crashed, log.checking: message})
    elif log.ids is None:
        raise backends.BrokenBackend(f"before the first scenario {message}\n{detail}".rstrip())
    done = frozenset(found.id for found in log.results)
    return dataclasses.replace(resume, done=done, suspects=len(log.unsure))


def _process(request: tuple[str, str | None, Selection, Resume], log: Log) -> tuple[str, str]:
    """Run a session in a new process until it ends, and return what ended it, with the stack."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="adprotocol-") as folder, receiver:
        dump = Path(folder, "stack.txt")
        process = context.Process(target=_serve, args=(sender, dump, request), name="conformance")
        process.start()
        sender.close()
        try:
            # The end of the file is the end of the process.
            with contextlib.suppress(EOFError):
                while not log.ended:
                    told = receiver.recv()
                    if isinstance(told, Exception):
                        raise told
                    log.take(told)
            process.join(LEAVE)
        finally:
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


def _serve(sender: Connection, dump: Path, request: tuple[str, str | None, Selection, Resume]) -> None:
    """Run a session and send what it tells: the new process."""
    backend, device, selection, resume = request
    # An interrupt by the user is for the process that waits for this one, and ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What frameworks and harnesses print, compiled code included, is no part of a report.
    with contextlib.suppress(OSError):
        os.dup2(2, 1)
    sys.stdout = sys.stderr
    with dump.open("w", encoding="utf-8") as file, contextlib.suppress(BrokenPipeError):  # nobody waits any more
        faulthandler.enable(file)
        limit = min(TIMES * selection.seconds + GRACE, LONGEST)
        watch = functools.partial(faulthandler.dump_traceback_later, limit, exit=True, file=file)

        def tell(event: Event) -> None:
            watch()
            sender.send(event)

        watch()
        try:
            Session(backends.of(backend, device), selection, resume).run(tell)
        except (backends.UsageError, backends.BrokenBackend) as error:
            sender.send(type(error)(str(error)))
        faulthandler.cancel_dump_traceback_later()
        faulthandler.disable()
