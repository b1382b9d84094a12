"""Why a run went back: only where nobody who lived had some box, and no further than to the newest copies.

Settling   w1, w5 hold stage 1; w6 held stage 0 and is gone       stage 0 lacks a holder: there is no other way
Settling   w1 holds stage 1, w2 stage 0                           a state of the last commit lives: it must go on
"""

from collections.abc import Iterator
from dataclasses import dataclass

from raymega.control.changing import MoveUnderway
from raymega.control.commands import Rewind
from raymega.control.ladder import Rung
from raymega.control.loop import Turn
from raymega.control.states import Moving, Settling, seats_of
from raymega.plan.plan import Plan, WorkerId
from raymega.plan.shards import holders_of_pieces
from workloads.chaos.arena import Outcome


@dataclass(frozen=True, kw_only=True)
class WentBack:
    """A step back. `lacking`: who held, alone or together, what nobody had any more."""

    committed: int
    to: int
    from_copies: bool
    lacking: tuple[WorkerId, ...]


def rewinds(found: Outcome, *, copies_every: int) -> tuple[WentBack, ...]:
    """All of them. Raises: AssertionError for one that need not have been."""
    return tuple(_went_back(turn, found, copies_every=copies_every) for turn in _turns(found))


def restored(found: Outcome) -> int:
    """Times that state came back from copies, with steps done again or without."""
    return sum(_restores(turn) for turn in found.turns if isinstance(turn.before, Settling))


def _turns(found: Outcome) -> Iterator[Turn]:
    for turn in found.turns:
        if any(isinstance(command, Rewind) for command in turn.decision.commands):
            yield turn


def _went_back(turn: Turn, found: Outcome, *, copies_every: int) -> WentBack:
    why = turn.decision.reason
    assert isinstance(turn.before, Settling), why
    lacking = _lacking(turn.before.plan, alive={seat.worker for seat in seats_of(turn.decision.state)})
    assert lacking, f"the state of the last commit lived: {why}"
    assert set(lacking) <= found.struck, f"{set(lacking) - found.struck} were not struck: {why}"
    committed, to = turn.before.story.committed, turn.decision.state.story.committed
    from_copies = _restores(turn)
    assert not from_copies or committed - to <= copies_every, why
    return WentBack(committed=committed, to=to, from_copies=from_copies, lacking=lacking)


def _lacking(plan: Plan, *, alive: set[WorkerId]) -> tuple[WorkerId, ...]:
    """Of the plan that broke, the holders of boxes that nobody has who is alive."""
    at = [(stage, shard) for stage in range(plan.mesh.pp) for shard in range(plan.mesh.tp)]
    holders = [set(ring) for stage, shard in at for ring in holders_of_pieces(plan, stage=stage, shard=shard)]
    return tuple(sorted(worker for ring in holders if not ring & alive for worker in ring))


def _restores(turn: Turn) -> bool:
    state = turn.decision.state
    move: MoveUnderway | None = state.move if isinstance(state, Moving) else None
    return move is not None and move.change.rung is Rung.PEER_COPY
