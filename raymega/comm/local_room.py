"""Where the members of a local group meet: one lock, the rounds of collectives, the channels of messages.

    round n     member 0 brings x0 --+
                member 1 brings x1 --+-- the last to come computes for all, in rank order, and wakes them
                member 2 brings x2 --+
    channel     (src, dst, tag): sends and receives are matched in order; whoever comes second copies

All methods expect the room's lock to be held by the caller, except where they say that they wait.
"""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from raymega.comm.failures import group_broken, timed_out
from raymega.errors import RaymegaBug
from raymega.plan.plan import WorkerId


@dataclass(slots=True, kw_only=True)
class Round:
    """One collective: what each member brought, and whether all have what they came for."""

    what: str
    parts: dict[int, Any] = field(default_factory=dict)  # Any: tensors or bytes, as the collective needs
    done: bool = False


@dataclass(slots=True, kw_only=True)
class Parcel:
    """One end of a message: a tensor to read from or to write to."""

    tensor: torch.Tensor
    done: bool = False


@dataclass(slots=True, kw_only=True)
class Channel:
    """Ends that wait for their other end, in order."""

    sends: deque[Parcel] = field(default_factory=deque)
    receives: deque[Parcel] = field(default_factory=deque)


class Room:
    """State shared by the members of one group."""

    def __init__(self, *, key: str, members: tuple[WorkerId, ...], lock: threading.RLock) -> None:
        self.key = key
        self.members = members
        self.joined: set[int] = set()
        self.changed = threading.Condition(lock)
        self.broken: str | None = None
        self._never_came: tuple[WorkerId, ...] | None = None  # set once a wait has reached its limit
        self._rounds: dict[int, Round] = {}
        self._channels: dict[tuple[int, int, int], Channel] = defaultdict(Channel)

    def break_up(self, reason: str) -> None:
        """Wake everybody with an error; the first reason is the one that is told."""
        self.broken = self.broken or reason
        self.changed.notify_all()

    def check(self) -> None:
        if self.broken is not None:
            raise group_broken(self.key, reason=self.broken)

    def wait(self, done: Callable[[], bool], *, op: str, timeout_s: float, missing: Callable[[], list[int]]) -> None:
        """Wait until `done`; what is done counts even if the group broke afterwards.

        When the wait of one member reaches its limit, the waits of all end, and all name the same laggards.
        """
        limit = time.monotonic() + timeout_s
        while not done():
            if self._never_came is not None:
                raise timed_out(self.key, op=op, timeout_s=timeout_s, missing=self._never_came)
            self.check()
            left_s = limit - time.monotonic()
            if left_s <= 0:
                self._never_came = tuple(self.members[rank] for rank in missing())
                self.break_up(f"{op} reached its time limit of {timeout_s:.1f} s")
            else:
                self.changed.wait(left_s)

    def join(self, rank: int, *, timeout_s: float) -> None:
        """Wait for all members."""
        self.joined.add(rank)
        self.changed.notify_all()
        everyone = set(range(len(self.members)))
        self.wait(
            lambda: self.joined == everyone,
            op="building",
            timeout_s=timeout_s,
            missing=lambda: sorted(everyone - self.joined),
        )

    def arrive(self, index: int, *, rank: int, what: str, part: Any, run: Callable[[list[Any]], None]) -> Round:
        """Bring `part` to the collective number `index`; the last to come computes it with `run`."""
        here = self._rounds.setdefault(index, Round(what=what))
        if here.what != what:
            self.break_up(f"members disagree on collective {index}")
            raise RaymegaBug(
                f"group {self.key}: {self.members[rank]} calls {what} where others call {here.what}. "
                "All members must make the same collectives in the same order."
            )
        here.parts[rank] = part
        if len(here.parts) == len(self.members):
            del self._rounds[index]
            run([here.parts[member] for member in range(len(self.members))])
            here.done = True
            self.changed.notify_all()
        return here

    def send(self, parcel: Parcel, *, src: int, dst: int, tag: int) -> None:
        self._channels[src, dst, tag].sends.append(parcel)
        self._match(src, dst, tag)

    def receive(self, parcel: Parcel, *, src: int, dst: int, tag: int) -> None:
        self._channels[src, dst, tag].receives.append(parcel)
        self._match(src, dst, tag)

    def _match(self, src: int, dst: int, tag: int) -> None:
        channel = self._channels[src, dst, tag]
        while channel.sends and channel.receives:
            sent, received = channel.sends.popleft(), channel.receives.popleft()
            if (sent.tensor.numel(), sent.tensor.dtype) != (received.tensor.numel(), received.tensor.dtype):
                self.break_up("a message does not fit its receive")
                raise RaymegaBug(
                    f"group {self.key}, tag {tag}: {self.members[src]} sends {_size(sent)} to {self.members[dst]}, "
                    f"which expects {_size(received)}. Both ends must agree on shape and dtype."
                )
            with torch.no_grad():
                received.tensor.view(-1).copy_(sent.tensor.view(-1))
            sent.done = received.done = True
            self.changed.notify_all()


def _size(parcel: Parcel) -> str:
    return f"{parcel.tensor.numel()} x {str(parcel.tensor.dtype).removeprefix('torch.')}"
