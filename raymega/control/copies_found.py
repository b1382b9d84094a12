"""Which state can all go back to, once a box has no living holder: the newest that every box is kept of. Pure.

    w0 at step 9, snapshots of 8 and 9, w1's copies of 7 and 8        w1 is lost
    step 9   w0 has it, of w1 there is none
    step 8   w0's snapshot, w1's copy at w0              step 9 is done again

All go on from one version, (step, generation that decided it): boxes of different versions are never mixed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from raymega.control.arbitration import Version
from raymega.control.broken import Leaver
from raymega.layout.copies import Kept
from raymega.plan.plan import Plan, WorkerId
from raymega.plan.shards import holders_of_pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiesFound:
    """`senders`: who has its own boxes of `version`, in the order of the plan; `copies`: lost worker -> its holder."""

    version: Version
    senders: tuple[WorkerId, ...]
    copies: Mapping[WorkerId, WorkerId]


def copies_found(plan: Plan, *, left: Iterable[Leaver], newest: int) -> CopiesFound | None:
    """The newest version of at most `newest` steps that covers every box of `plan`; None if there is none.

    Args:
        left: what the living workers have said when they left their generation.
    """
    has = {said.worker: _has(said) for said in left if said.worker in plan.living}
    versions = {Version(step=kept.step, generation=kept.generation) for kepts in has.values() for kept in kepts}
    for version in sorted(versions, reverse=True):
        found = _of(plan, has, version) if version.step <= newest else None
        if found is not None:
            return found
    return None


def _has(said: Leaver) -> frozenset[Kept]:
    """Live state and copies."""
    live = {Kept(owner=said.worker, step=said.committed, generation=said.decided_in)} if said.committed >= 0 else set()
    return frozenset(live | set(said.kept))


def _of(plan: Plan, has: Mapping[WorkerId, frozenset[Kept]], version: Version) -> CopiesFound | None:
    def keeps(worker: WorkerId, owner: WorkerId) -> bool:
        return Kept(owner=owner, step=version.step, generation=version.generation) in has.get(worker, ())

    senders = tuple(worker for worker in plan.living if keeps(worker, worker))
    copies: dict[WorkerId, WorkerId] = {}
    for stage in range(plan.mesh.pp):
        for shard in range(plan.mesh.tp):
            for ring in holders_of_pieces(plan, stage=stage, shard=shard):
                if set(ring) & {*senders, *copies}:
                    continue
                kept = [(owner, sender) for owner in ring for sender in senders if keeps(sender, owner)]
                if not kept:
                    return None
                copies |= dict(kept[:1])
    return CopiesFound(version=version, senders=senders, copies=copies)
