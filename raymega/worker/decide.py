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

import numpy as np
import torch

from raymega.comm.group import Group
from raymega.mesh import Coord
from raymega.train.step_facts import Facts, merge
from raymega.worker.world import World

UP, DOWN = 1 << 20, (1 << 20) + 1  # tags, apart from those of boundary messages


def sum_facts(facts: Facts, *, world: World, check: Callable[[Facts], None], device: torch.device) -> Facts:
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
    chain = _Chain(world=world, device=device)
    if not chain.is_mine:
        return Facts.unpack(_from_leader(world, b""))
    if not world.is_last:
        mine = merge((mine, chain.receive(from_stage=stage + 1, tag=UP)))
    if world.is_first:
        check(mine)
        total = mine
    else:
        chain.send(mine, to_stage=stage - 1, tag=UP)
        total = chain.receive(from_stage=stage - 1, tag=DOWN)
    if not world.is_last:
        chain.send(total, to_stage=stage + 1, tag=DOWN)
    _from_leader(world, total.pack())
    return total


def _from_leader(world: World, payload: bytes) -> bytes:
    """Spread the leader's payload over its stage: over the ring of shard 0 first, then over each team."""
    if world.coord.shard == 0:
        payload = next(filter(None, world.ring.all_gather_bytes(payload)))
    return next(filter(None, world.team.all_gather_bytes(payload)))


def _merged(payloads: list[bytes]) -> Facts:
    return merge([Facts.unpack(payload) for payload in payloads])


class _Chain:
    """Messages from leader to leader, shard 0 to shard 0: [length | facts | padding] of one size."""

    def __init__(self, *, world: World, device: torch.device) -> None:
        self._world, self._device = world, device
        self._num_bytes = 8 + Facts.packed_bytes(num_losses=world.plan.num_microbatches)

    @property
    def is_mine(self) -> bool:
        """Whether this worker is a link of it."""
        return self._world.is_leader and self._world.coord.shard == 0

    def send(self, facts: Facts, *, to_stage: int, tag: int) -> None:
        packed = facts.pack()
        frame = np.zeros(self._num_bytes, dtype=np.uint8)
        frame[:8] = np.array([len(packed)], dtype=np.int64).view(np.uint8)
        frame[8 : 8 + len(packed)] = np.frombuffer(packed, dtype=np.uint8)
        group = self._group(to_stage)
        group.start_send(torch.from_numpy(frame).to(self._device), dst=1 - group.rank, tag=tag).wait()

    def receive(self, *, from_stage: int, tag: int) -> Facts:
        buffer = torch.empty(self._num_bytes, dtype=torch.uint8, device=self._device)
        group = self._group(from_stage)
        group.start_recv(buffer, src=1 - group.rank, tag=tag).wait()
        frame = buffer.cpu().numpy()
        return Facts.unpack(frame[8 : 8 + int(frame[:8].view(np.int64)[0])].tobytes())

    def _group(self, stage: int) -> Group:
        world = self._world
        return world.pairs[world.plan.worker(Coord(world.plan.leader(stage), stage, 0))]
