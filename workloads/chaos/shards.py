"""Kills where the optimizer state is cut over the replicas, under every schedule, in every phase.

mirrored   a second holder takes over: as any other kill, no step is done again (`workloads.chaos.kills`)
zero1      a piece is gone with its holder: all go back to the copies in the memory of peers, one step at most, and the
           run ends with the losses and weights of one that nobody disturbed
"""

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from raymega.config.choices import CHUNKS_OF
from workloads.chaos.arena import Arena, Outcome
from workloads.chaos.kills import Kill, check_only_one_died, check_undisturbed, kills_of, victim_of
from workloads.chaos.rewinds import restored, rewinds
from workloads.chaos.toy import Layout

SHARDED = tuple(
    Layout(dp=2, tp=1, pp=2, schedule=schedule, shard_optimizer=kind)
    for kind in ("mirrored", "zero1")
    for schedule in CHUNKS_OF
)
COPIES_EVERY = 1


@dataclass(frozen=True, kw_only=True)
class Restored:
    """A kill after which the state came back from copies. `again`: steps that were done again."""

    kill: Kill
    again: int
    repair_s: float


def drawn_kills_of(layout: Layout) -> Iterator[Kill]:
    """Every worker, in each phase, at its first sum, and at one action of each kind, drawn."""
    dice, by_kind = random.Random(f"{layout}"), defaultdict[tuple[object, ...], list[Kill]](list)
    for case in kills_of(layout):
        order = case.order
        if order.action is None:
            yield case
        else:
            by_kind[order.stage, order.replica, order.tp, order.action[0]].append(case)
    for cases in by_kind.values():
        yield dice.choice(cases)


def kill_a_holder(arena: Arena, case: Kill, *, calm: Outcome) -> Restored:
    """Carry out `case`, which takes the only holder of a piece.

    Raises: AssertionError if the state did not come from copies, or anything but one step was lost.
    """
    found = arena.run(orders=(str(case.order),))
    try:
        check_only_one_died(found, victim=victim_of(case))
        check_undisturbed(found, calm=calm)
        again = _went_back(found, case)
    except AssertionError as error:
        error.add_note("\n".join(turn.decision.reason for turn in found.turns if turn.decision.reason))
        raise
    (lost_at, _), *_ = found.kept.lost
    return Restored(
        kill=case, again=again, repair_s=min(at for at in found.kept.committed_at.values() if at > lost_at) - lost_at
    )


def _went_back(found: Outcome, case: Kill) -> int:
    found = replace(found, struck=found.struck | {victim_of(case)})
    back = rewinds(found, copies_every=COPIES_EVERY)
    assert all(one.from_copies for one in back), back
    assert restored(found) == 1, "the state came from elsewhere"
    assert not found.kept.repairs, "a step was repaired without a piece of the state"
    return sum(one.committed - one.to for one in back)
