"""What a member of a transition sends from and keeps: its live state, or its copy of it, and its copies of others'.

    regular       live state by the old plan
    a box lost    live state, or the snapshot of the step that all go back to  +  copies of what the lost held

Live state is fingerprinted as it is. A copy is told with the fingerprints that its owner gave it: if its bytes are not
those any more, the state after the move is not the one before, and the certificate refuses it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from raymega.checkpoint.state_item import StateItem
from raymega.errors import RaymegaBug
from raymega.layout.certificate import Fingerprint
from raymega.plan.plan import WorkerId
from raymega.plan.transition import Transition
from raymega.worker.copy_slots import Slot, Slots, fingerprints
from raymega.worker.held import Held
from raymega.worker.state import Counters, TrainState


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """`state`: live; None: all comes from `slots`, of which the first is this worker's own snapshot."""

    state: TrainState | None
    slots: tuple[Slot, ...] = ()

    def items(self) -> Iterator[StateItem]:
        """Every box there is, in all its kinds."""
        if self.state is not None:
            yield from self.state.items()
        for slot in self.slots:
            yield from slot.items

    @property
    def counters(self) -> Counters:
        counters = self.state.counters if self.state is not None else self.slots[0].sealed
        assert counters is not None, "a copy that is sent from is whole"
        return counters

    def fingerprints(self) -> tuple[Fingerprint, ...]:
        """Of all items: as they are, and as those of copies have to be."""
        live = fingerprints(tuple(self.state.items())) if self.state is not None else ()
        return (*live, *(one for slot in self.slots for one in slot.prints))


def source_of(transition: Transition, *, me: WorkerId, held: Held, slots: Slots) -> Source:
    """What sender `me` has of the state that the transition is of. Raises: RaymegaBug if it has not."""
    version = transition.version
    if version is None:
        return Source(state=held.fitting(transition.old, me=me))
    kept = tuple(_kept(slots, owner, version) for owner in transition.owners(me)[1:])
    state = held.at(transition.old, me=me, version=version)
    return Source(state=state, slots=kept if state is not None else (_kept(slots, me, version), *kept))


def _kept(slots: Slots, owner: WorkerId, version: tuple[int, int]) -> Slot:
    slot = slots.find(owner, version=version)
    if slot is None:
        raise RaymegaBug(f"there is no copy of {owner} at {version}, which this worker has said it keeps.", owner=owner)
    return slot
