"""Copies of state in host memory: two slots for each owner, so that one is whole whatever happens to the other.

    slot    step 8, sealed          the newest whole copy: what a restored run goes on from
    slot    step 9, being filled    sealed once all its bytes are there and have the fingerprints that the owner told

A copy says of itself which boxes it holds and which commit it is of; a copy without a seal is none.
"""

import json
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from raymega.checkpoint.snapshot import Snapshot
from raymega.checkpoint.state_item import TORCH_DTYPES, StateItem, dtype_name
from raymega.layout.certificate import Fingerprint
from raymega.layout.copies import Kept
from raymega.layout.shard_box import Box
from raymega.plan.plan import WorkerId
from raymega.train.fingerprint import fingerprint
from raymega.worker.state import Counters


@dataclass(slots=True, kw_only=True)
class Slot:
    """One copy. `sealed`: which state it is; None: it is not whole. `prints`: its owner's, in the order of items."""

    snapshot: Snapshot = field(default_factory=Snapshot)
    sealed: Counters | None = None
    prints: tuple[Fingerprint, ...] = ()

    @property
    def items(self) -> tuple[StateItem, ...]:
        return self.snapshot.items

    def describe(self) -> Tensor:
        """What the bytes of the copy are, in their order, with the fingerprint of each; as bytes."""
        rows = [
            (item.name, item.kind, item.shape, str(item.box), dtype_name(item.tensor.dtype), one.value)
            for item, one in zip(self.items, self.prints, strict=True)
        ]
        return torch.frombuffer(bytearray(json.dumps(rows).encode()), dtype=torch.uint8)

    def make_room(self, description: Tensor) -> None:
        """Places for what was described; their bytes come afterwards."""
        rows = json.loads(description.numpy().tobytes())
        boxes = [Box.parse(box) for _, _, _, box, _, _ in rows]
        self.snapshot.lay_out(
            [
                StateItem(
                    name=name, kind=kind, shape=tuple(shape), box=box,
                    tensor=torch.empty(box.sizes, dtype=TORCH_DTYPES[dtype], device="meta"),
                )
                for (name, kind, shape, _, dtype, _), box in zip(rows, boxes, strict=True)
            ]
        )  # fmt: skip
        self.prints = tuple(
            Fingerprint(name=name, kind=kind, box=box, value=value)
            for (name, kind, _, _, _, value), box in zip(rows, boxes, strict=True)
        )

    def wrong(self) -> tuple[str, ...]:
        """Boxes whose bytes do not have their fingerprint."""
        found = fingerprints(self.items)
        return tuple(f"{a.name} {a.box} ({a.kind})" for a, b in zip(self.prints, found, strict=True) if a != b)


class Slots:
    """All copies of one worker, its own and those of others. Filled by background threads, read by any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: dict[WorkerId, list[Slot]] = {}  # the one that was sealed last stands last

    def to_fill(self, owner: WorkerId) -> Slot:
        """The slot whose copy may go: the one without a seal, else the older one."""
        with self._lock:
            slots = self._slots.setdefault(owner, [Slot(), Slot()])
            slot = next((one for one in slots if one.sealed is None), slots[0])
            slot.sealed = None
            return slot

    def seal(self, owner: WorkerId, slot: Slot, counters: Counters) -> None:
        """From here on the copy counts."""
        with self._lock:
            slot.sealed = counters
            slots = self._slots[owner]
            slots.remove(slot)
            slots.append(slot)

    def find(self, owner: WorkerId, *, version: tuple[int, int]) -> Slot | None:
        """The copy of what `owner` held at `version`: (step, generation that decided it)."""
        with self._lock:
            whole = (slot for slot in reversed(self._slots.get(owner, ())) if slot.sealed is not None)
            return next((slot for slot in whole if _version(slot) == version), None)

    def forget(self, *, but: Iterable[WorkerId] = ()) -> None:
        """No copy counts any more; memory that is of use to owners `but` is kept."""
        with self._lock:
            kept = set(but)
            self._slots = {owner: slots for owner, slots in self._slots.items() if owner in kept}
            for slots in self._slots.values():
                for slot in slots:
                    slot.sealed = None

    @property
    def kept(self) -> tuple[Kept, ...]:
        """All whole copies."""
        with self._lock:
            return tuple(
                Kept(owner=owner, step=slot.sealed.committed, generation=slot.sealed.decided_in)
                for owner, slots in self._slots.items()
                for slot in slots
                if slot.sealed is not None
            )

    @property
    def num_bytes(self) -> int:
        """Of host memory that copies take."""
        with self._lock:
            return sum(slot.snapshot.payload.nbytes for slots in self._slots.values() for slot in slots)


def fingerprints(items: Sequence[StateItem]) -> tuple[Fingerprint, ...]:
    """Of each item, in their order."""
    return tuple(
        Fingerprint(
            name=item.name, kind=item.kind, box=item.box,
            value=fingerprint(item.tensor, box=item.box, shape=item.shape),
        )
        for item in items
    )  # fmt: skip


def _version(slot: Slot) -> tuple[int, int] | None:
    return None if slot.sealed is None else (slot.sealed.committed, slot.sealed.decided_in)
