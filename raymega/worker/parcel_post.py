"""Carries parcels of state between workers: packed from one state, unpacked into another, a few in flight.

    [ magic generation index bytes | counters | part | part | ... ]
    0                                         128   each part on a multiple of 8

The header names generation and index, so that nothing older passes for it, and the state that the parts belong to.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from raymega.checkpoint.state_item import StateItem
from raymega.comm.group import Group, Work
from raymega.errors import StaleMessage
from raymega.layout.parcels import Pair, Parcel
from raymega.plan.plan import WorkerId
from raymega.worker.sources import Source
from raymega.worker.state import COUNTER_WORDS, Counters, TrainState

WINDOW = 4  # parcels in flight
TAG = (1 << 20) + 2  # apart from those of boundary messages and of facts
_MAGIC = 0x7261796D6F766564  # "raymoved"
_HEADER_BYTES = 128
_ALIGN_BYTES = 8

Items = Mapping[tuple[str, str], list[StateItem]]
"""By name and kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What came and went. `counters`: of the state that came; None if nothing did."""

    counters: Counters | None
    bytes_sent: int
    bytes_received: int


class Post:
    """One worker's end of all its parcels in one generation.

    Args:
        source: what to send from; None: it sends nothing.
        target: the state to fill; None: it receives nothing.
        device: that the wires read from and write to.
    """

    def __init__(
        self, *, me: WorkerId, generation: int, source: Source | None, target: TrainState | None, device: torch.device
    ) -> None:
        self._me, self._generation, self._device = me, generation, device
        self._held, self._wanted = _items(source), _items(target)
        self._counters = source.counters if source is not None else None
        self._came: Counters | None = None
        self._bytes = {"sent": 0, "received": 0}

    def carry(self, mine: Iterable[Parcel], *, groups: Mapping[Pair, Group]) -> Carried:
        """Send and receive `mine`, in their order.

        Raises: GroupBroken, CollectiveTimeout, StaleMessage if the world changed; the target is then void.
        """
        in_flight: deque[tuple[Parcel, Tensor, Work]] = deque()
        for parcel in mine:
            if len(in_flight) == WINDOW:
                self._finish(*in_flight.popleft())
            in_flight.append(self._start(parcel, group=groups[parcel.pair]))
        while in_flight:
            self._finish(*in_flight.popleft())
        return Carried(counters=self._came, bytes_sent=self._bytes["sent"], bytes_received=self._bytes["received"])

    def _start(self, parcel: Parcel, *, group: Group) -> tuple[Parcel, Tensor, Work]:
        if parcel.source == self._me:
            buffer = self._packed(parcel)
            self._bytes["sent"] += buffer.nbytes
            return parcel, buffer, group.start_send(buffer, dst=group.spec.members.index(parcel.receiver), tag=TAG)
        buffer = self._buffer(parcel, self._wanted)
        self._bytes["received"] += buffer.nbytes
        return parcel, buffer, group.start_recv(buffer, src=group.spec.members.index(parcel.source), tag=TAG)

    def _finish(self, parcel: Parcel, buffer: Tensor, work: Work) -> None:
        work.wait()
        if parcel.receiver == self._me:
            self._unpack(parcel, buffer)

    def _packed(self, parcel: Parcel) -> Tensor:
        assert self._counters is not None, "a source has a state"
        buffer = self._buffer(parcel, self._held)
        header = (_MAGIC, self._generation, parcel.index, buffer.nbytes, *self._counters.to_words())
        buffer[: 8 * len(header)].view(torch.int64).copy_(torch.tensor(header, dtype=torch.int64))
        for (item, *_), place in _places(parcel, self._held, buffer):
            place.copy_(item.tensor)
        return buffer

    def _buffer(self, parcel: Parcel, items: Items) -> Tensor:
        tensors = [items[part.name, part.kind][0].tensor for part in parcel.parts]
        sizes = [part.box.num_elements * x.element_size() for part, x in zip(parcel.parts, tensors, strict=True)]
        return torch.empty(_HEADER_BYTES + sum(map(_padded, sizes)), dtype=torch.uint8, device=self._device)

    def _unpack(self, parcel: Parcel, buffer: Tensor) -> None:
        magic, generation, index, num_bytes, *words = buffer[:_HEADER_BYTES].view(torch.int64).tolist()
        got, due = (magic, generation, index, num_bytes), (_MAGIC, self._generation, parcel.index, buffer.nbytes)
        if got != due:
            raise StaleMessage(
                f"a parcel from {parcel.source} says (magic, generation, index, bytes) = {got}, not {due}. "
                "Only parcels of this very move count; leave the generation.",
                expected=due,
                got=got,
            )
        self._came = Counters.of_words(words[:COUNTER_WORDS])
        for items, place in _places(parcel, self._wanted, buffer):
            for item in items:
                item.tensor.copy_(place)


def _items(state: TrainState | Source | None) -> Items:
    found: dict[tuple[str, str], list[StateItem]] = {}
    for item in state.items() if state is not None else ():
        found.setdefault((item.name, item.kind), []).append(item)
    return found


def _places(parcel: Parcel, items: Items, buffer: Tensor) -> Iterable[tuple[list[StateItem], Tensor]]:
    """Each part as all items that hold it, and where it lies in the buffer."""
    start = _HEADER_BYTES
    for part in parcel.parts:
        found = [item.part(part.box) for item in items[part.name, part.kind] if item.box.overlap(part.box) == part.box]
        num_bytes = found[0].tensor.numel() * found[0].tensor.element_size()
        place = buffer[start : start + num_bytes].view(found[0].tensor.dtype).view(part.box.sizes)
        yield found, place
        start += _padded(num_bytes)


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGN_BYTES) * _ALIGN_BYTES
