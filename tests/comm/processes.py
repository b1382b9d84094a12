"""Members of a gloo group that are processes of their own, so that they can be killed and stopped for real."""

import multiprocessing
import multiprocessing.forkserver
import os
import signal
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from raymega.comm.gloo import GlooFabric
from raymega.comm.group import Group
from raymega.errors import RaymegaError
from tests.comm.worlds import spec

Body = Callable[[Group, GlooFabric], Generator[None, None, Any]]
"""Runs to its `yield` before the test goes on; what it returns afterwards is its outcome."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a member's body returned or raised, and when."""

    result: Any
    error: RaymegaError | None
    at_s: float  # time.monotonic, which all processes of a machine share


@dataclass(kw_only=True)
class Member:
    process: BaseProcess
    pipe: Connection

    def outcome(self, limit_s: float = 20.0) -> Outcome:
        assert self.pipe.poll(limit_s), f"{self.process.name} hangs"
        return self.pipe.recv()

    def signal(self, number: signal.Signals) -> float:
        """Send a signal; returns when."""
        at_s = time.monotonic()
        os.kill(self.process.pid or 0, number)
        return at_s


class Party:
    """Starts members, and leaves none behind."""

    def __init__(self, store: tuple[str, int]) -> None:
        self.store = store
        self.members: list[Member] = []

    def start(self, body: Body, *, size: int, timeout_s: float = 20.0) -> list[Member]:
        """Start `size` members that build one group and run `body`; returns when all have come to its `yield`."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.comm.processes"])
        for rank in range(size):
            ours, theirs = context.Pipe()
            args = (body, theirs, self.store, rank, size, timeout_s)
            process = context.Process(target=_live, args=args, name=f"w{rank}", daemon=True)
            process.start()
            theirs.close()
            self.members.append(Member(process=process, pipe=ours))
        for member in self.members:
            assert member.outcome().result == "ready"
        return self.members

    def end(self) -> None:
        for member in self.members:
            member.process.kill()
            member.process.join(5.0)
            assert not member.process.is_alive()
            member.pipe.close()
            member.process.close()


def end_forkserver() -> None:
    """The server that members are forked from would live as long as this process."""
    multiprocessing.forkserver._forkserver._stop()  # there is no public way


def _live(body: Body, pipe: Connection, store: tuple[str, int], rank: int, size: int, timeout_s: float) -> None:
    torch.set_num_threads(1)
    fabric = GlooFabric.connect(store, me=f"w{rank}", generation=1, timeout_s=timeout_s)
    story = body(fabric.group(spec(size)), fabric)
    next(story)
    pipe.send(Outcome(result="ready", error=None, at_s=time.monotonic()))
    result, error = None, None
    try:
        next(story)
    except StopIteration as end:
        result = end.value
    except RaymegaError as raised:
        error = raised
    pipe.send(Outcome(result=result, error=error, at_s=time.monotonic()))
    pipe.poll(30.0)  # keep the process, and so its connections, until the test is over
