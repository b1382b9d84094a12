"""DECIDE: everybody's facts are summed once, spread as bytes, and each worker evaluates the same rule on the same bits.

    dp=2 tp=2 pp=2        gather                                          spread
      team                shards exchange and sum in rank order           (after the ring: leader's shard 0 -> all)
      ring of a stage     replicas exchange and sum in rank order
      chain of leaders    stage 1 -> stage 0     (shard 0 only)           stage 0 -> stage 1

Where there is but one stage, each shard gathers over a ring of its own and so has the total: nothing is spread.

Only groups that exist anyway carry it, so a death wakes everyone who waits here. Each fact has one contributor, so the
order of sums is fixed by the plan and the total has the same bits everywhere. Facts that are not those of the step stop
at the first stage: they are spread to nobody, or everyone sees it, so nobody commits. When the exchange is complete,
everyone has reduced: it is the commit point of a step.
"""

from collections.abc import Callable

from raymega.mesh import Coord
from raymega.train.step_facts import Facts, merge
from raymega.worker.world import World


def sum_facts(facts: Facts, *, world: World, check: Callable[[Facts], None]) -> Facts:
    """The facts of the whole mesh, with the same bits on every worker.

    Args:
        check: raises if the total is not what the step must have; called on the first stage, before it goes on.
    Raises: GroupBroken or CollectiveTimeout if someone is lost; then nothing was decided here.
    """
    stage = world.coord.stage
    mine = _merged(world.team.all_gather_bytes(facts.pack()))
    if world.coord.shard == 0 or (world.is_first and world.is_last):
        mine = _merged(world.ring.all_gather_bytes(mine.pack()))
    if world.is_first and world.is_last:
        check(mine)
        return mine
    if not (world.is_leader and world.coord.shard == 0):
        return Facts.unpack(_from_leader(world, b""))
    if not world.is_last:
        mine = merge((mine, Facts.unpack(_to_next_link(world, b"", stage=stage + 1))))
    if world.is_first:
        check(mine)
        total = mine
    else:
        _to_next_link(world, mine.pack(), stage=stage - 1)
        total = Facts.unpack(_to_next_link(world, b"", stage=stage - 1))
    if not world.is_last:
        _to_next_link(world, total.pack(), stage=stage + 1)
    _from_leader(world, total.pack())
    return total


def _from_leader(world: World, payload: bytes) -> bytes:
    """Spread the leader's payload over its stage: over the ring of shard 0 first, then over each team."""
    if world.coord.shard == 0:
        payload = next(filter(None, world.ring.all_gather_bytes(payload)))
    return next(filter(None, world.team.all_gather_bytes(payload)))


def _merged(payloads: list[bytes]) -> Facts:
    return merge([Facts.unpack(payload) for payload in payloads])


def _to_next_link(world: World, payload: bytes, *, stage: int) -> bytes:
    """Give the leader of a neighbouring stage a payload, for its own. One of the two is empty.

    Both gather, where a message would do: unlike one, a gather tells the host on every device that it is whole.
    """
    group = world.pairs[world.plan.worker(Coord(world.plan.leader(stage), stage, 0))]
    return group.all_gather_bytes(payload)[1 - group.rank]
