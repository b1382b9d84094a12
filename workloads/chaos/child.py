"""A worker in a process of its own, without Ray: orders in and pulses out over one pipe; ends when the pipe does.

Every action that is computed to its end is also written to a file, line by line, by nobody's ledger: what a worker has
done can be counted after it was killed.
"""

import faulthandler
import os
import signal
import threading
from multiprocessing.connection import Connection

import torch

from raymega.pipeline.actions import Action
from raymega.worker import execute
from raymega.worker.interface import WorkerSettings
from raymega.worker.worker import Worker

BORN = "born"
PULSE_S = 0.1


def live(pipe: Connection, settings: WorkerSettings, calls: str, wait_s: float) -> None:
    """Be worker `settings.worker`. `wait_s`: what every action takes at least."""
    faulthandler.register(signal.SIGUSR1)  # one that hangs says where
    torch.set_num_threads(1)
    _write_calls_to(calls, wait_s=wait_s)
    worker = Worker(settings)
    pipe.send(BORN)
    threading.Thread(target=_pulse, args=(worker, pipe), daemon=True).start()
    try:
        while True:
            order, arguments = pipe.recv()
            getattr(worker, order)(*arguments)
    except EOFError:
        os._exit(0)


def _pulse(worker: Worker, pipe: Connection) -> None:
    since = 0
    try:
        while True:
            pulse = worker.pulse(since, PULSE_S)
            since = max((number for number, _ in pulse.reports), default=since)
            pipe.send(pulse)
    except OSError:
        os._exit(0)


def _write_calls_to(calls: str, *, wait_s: float) -> None:
    """Note (generation, step, worker, action, first sample) of all that is computed; one write is one line."""
    lines = os.open(calls, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    nap = threading.Event()
    for name in ("forward", "backward", "add_owed"):
        real = getattr(execute._Run, name)

        def noted(self: execute._Run, action: Action, *, real: object = real) -> None:
            try:
                real(self, action)  # type: ignore[operator]
            finally:
                if self._training and self._work.spans and self._work.spans[-1][0] == action:
                    world, rows = self._executor.world, self._batch.microbatches.get(action.microbatch)
                    first = int(rows.samples[0]) if rows is not None else -1
                    line = f"{world.generation} {self._batch.step} {world.me} {action} {first}\n"
                    os.write(lines, line.encode())
            if wait_s:
                nap.wait(wait_s)

        setattr(execute._Run, name, noted)
