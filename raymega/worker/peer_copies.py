"""Copies of a worker's state in the memory of others, made beside the training, and never by way of the controller.

    step 8 | snapshot | step 9 ...                  | decide 9         the training thread
               '-> fingerprint -> send to holder -> ack -'             one thread for the owner's end of it
                                  receive -> check -> seal -> ack      one thread for each owner whose copy is kept here

The snapshot is all that is on the path, if the copy is through before the next step is decided; else that waits for it.
So whoever has committed a step knows that all copies of the steps before are whole, everywhere: what is lost with a
node is at most the steps since the newest copy. Each worker keeps its own snapshots too, so that all can go back to
one step. Source: Gemini (Wang et al., SOSP 2023).
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from raymega.comm.group import Fabric, Group, GroupSpec, Work
from raymega.errors import StaleMessage
from raymega.layout.copies import CopyRoute
from raymega.layout.parcels import pair_of, rounds_of
from raymega.plan.plan import WorkerId
from raymega.worker.copy_slots import Slot, Slots, fingerprints
from raymega.worker.state import COUNTER_WORDS, Counters, TrainState

PIECE_BYTES = 4 << 20
WINDOW = 4  # pieces in flight
TAG = (1 << 20) + 3  # apart from those of boundary messages, of facts and of parcels
_MAGIC = 0x7261796D636F7079  # "raymcopy"
_HEADER = 4 + COUNTER_WORDS  # int64: magic, generation, bytes of description, bytes, counters


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    """A worker's ends of the routes of one generation."""

    generation: int
    to: tuple[Group, ...]
    of: Mapping[WorkerId, Group]
    threads: ThreadPoolExecutor


class PeerCopies:
    """Lives as long as the worker; called by its training thread."""

    def __init__(self, *, me: WorkerId, every: int) -> None:
        self.slots = Slots()
        self._me, self._every = me, every
        self._has_begun = False
        self._ends: _Ends | None = None
        self._underway: list[Future[None]] = []
        self._is_first = True
        self._held_up_s = 0.0

    def join(self, routes: Sequence[CopyRoute], *, fabric: Fabric) -> None:
        """Build the groups of my routes, in the order that all share."""
        rounds = rounds_of({pair_of(route.owner, route.holder) for route in routes})
        mine = [route for route in routes if self._me in (route.owner, route.holder)]
        mine.sort(key=lambda route: (rounds[pair_of(route.owner, route.holder)], route.owner))
        groups = {
            route: fabric.group(
                GroupSpec(
                    key=f"g{fabric.generation}/copy/{route.owner}-{route.holder}", members=(route.owner, route.holder)
                )
            )
            for route in mine
        }
        self._ends = _Ends(
            generation=fabric.generation,
            to=tuple(group for route, group in groups.items() if route.owner == self._me),
            of={route.owner: group for route, group in groups.items() if route.holder == self._me},
            threads=ThreadPoolExecutor(1 + len(mine), thread_name_prefix=f"copies-g{fabric.generation}"),
        )
        self._is_first = True

    def begin(self, state: TrainState, *, is_moved: bool) -> None:
        """Copy the state with which a generation begins, once; if it has moved, copies of the one before are void."""
        if not self._has_begun:
            if is_moved:
                self.slots.forget(but={self._me})
            self._take(state)
            self._has_begun = True

    def committed(self, state: TrainState) -> float:
        """Copy the state of the step just committed, if that is due; seconds that the step was held up.

        Raises: GroupBroken, CollectiveTimeout, StaleMessage if the copy before did not arrive.
        """
        is_due = self._every and state.committed % self._every == 0
        return self._held_up_s + (self._take(state) if is_due else 0.0)

    def _take(self, state: TrainState) -> float:
        """Take a snapshot, and send it beside what follows."""
        if self._ends is None:
            return 0.0
        began = time.perf_counter()
        self._wait()
        slot, counters = self.slots.to_fill(self._me), state.counters
        slot.snapshot.take(tuple(state.items()))
        ends = self._ends
        self._underway = [ends.threads.submit(self._give, slot, counters, ends)]
        self._underway += [
            ends.threads.submit(self._receive, owner, counters.committed, group, ends.generation)
            for owner, group in ends.of.items()
        ]
        return time.perf_counter() - began

    def hold_up(self) -> None:
        """A step is about to be decided: wait for the copies of the one before.

        The first ones of a generation are not waited for: until they are whole nothing is lost by going on.
        """
        began = time.perf_counter()
        if not self._is_first:
            self._wait()
        self._held_up_s = time.perf_counter() - began

    def leave(self) -> None:
        """The generation is over, its groups are closed: what was underway is void, what is sealed stays."""
        if self._ends is not None:
            self._ends.threads.shutdown(cancel_futures=True)
        self._ends, self._underway, self._has_begun = None, [], False

    def _wait(self) -> None:
        for future in self._underway:
            future.result()
        self._is_first = self._is_first and not self._underway
        self._underway = []

    def _give(self, slot: Slot, counters: Counters, ends: _Ends) -> None:
        """Seal my own copy, and send it to all who keep one."""
        slot.prints = fingerprints(slot.items)
        self.slots.seal(self._me, slot, counters)
        for group in ends.to:
            _send(slot, counters, group=group, generation=ends.generation)

    def _receive(self, owner: WorkerId, step: int, group: Group, generation: int) -> None:
        """Keep what `owner` held after `step` steps."""
        slot = self.slots.to_fill(owner)
        try:
            counters = _fill(slot, step, group=group, generation=generation)
        except StaleMessage:
            group.abort()  # its owner waits for a word
            raise
        self.slots.seal(owner, slot, counters)
        group.start_send(torch.tensor([step]), dst=0, tag=TAG).wait()


def _in_pieces(whole: Tensor, start: Callable[[Tensor], Work]) -> None:
    """Carry a tensor of bytes piece by piece, a few in flight."""
    in_flight: deque[Work] = deque()
    for piece in whole.split(PIECE_BYTES):
        if len(in_flight) == WINDOW:
            in_flight.popleft().wait()
        in_flight.append(start(piece))
    while in_flight:
        in_flight.popleft().wait()


def _send(slot: Slot, counters: Counters, *, group: Group, generation: int) -> None:
    """The owner's end of a copy: header, description, bytes; then it waits until the copy is sealed."""
    payload, description = slot.snapshot.payload, slot.describe()
    header = torch.tensor([_MAGIC, generation, description.numel(), payload.numel(), *counters.to_words()])
    group.start_send(header, dst=1, tag=TAG).wait()
    for whole in (description, payload):
        _in_pieces(whole, lambda piece: group.start_send(piece, dst=1, tag=TAG))
    group.start_recv(torch.zeros(1, dtype=torch.int64), src=1, tag=TAG).wait()


def _fill(slot: Slot, step: int, *, group: Group, generation: int) -> Counters:
    """The holder's end, up to the seal. Raises: StaleMessage if something else comes than the owner has."""
    header = torch.zeros(_HEADER, dtype=torch.int64)
    group.start_recv(header, src=0, tag=TAG).wait()
    magic, of, described, num_bytes, *words = header.tolist()
    counters = Counters.of_words(words)
    committed = counters.committed
    if (magic, of, committed) != (_MAGIC, generation, step):
        raise StaleMessage(
            f"a copy says (magic, generation, step) = {(magic, of, committed)}, not {(_MAGIC, generation, step)}.",
            expected=(_MAGIC, generation, step),
            got=(magic, of, committed),
        )
    description = torch.empty(described, dtype=torch.uint8)
    _in_pieces(description, lambda piece: group.start_recv(piece, src=0, tag=TAG))
    slot.make_room(description)
    assert slot.snapshot.payload.numel() == num_bytes, "both ends lay out the same items alike"
    _in_pieces(slot.snapshot.payload, lambda piece: group.start_recv(piece, src=0, tag=TAG))
    wrong = slot.wrong()
    if wrong:
        owner = group.spec.members[0]
        raise StaleMessage(
            f"the copy of {owner} for step {step} has other bits than {owner} has: {', '.join(wrong[:3])}. "
            "It is not kept; leave the generation, and copy again.",
            owner=owner,
        )
    return counters
