"""One generation as one worker sees it: its place in the plan, and the groups it shares with others.

team   the tp shards of my stage and replica                  collectives of the model
ring   the holders of the same boxes, one of each replica     gradient sum
pairs  one group with each neighbour a route leads to         activations down, gradients up, facts
tied   the other end of the pipeline, for a shared embedding  the sum of its two gradients
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from raymega.comm.group import Fabric, Group, GroupSpec
from raymega.comm.solo import SoloGroup
from raymega.mesh import Coord
from raymega.pipeline.actions import Program
from raymega.plan.groups import groups_of
from raymega.plan.plan import Place, Plan, WorkerId
from raymega.plan.repairs import step_programs_of
from raymega.plan.shards import spoken_by


@dataclass(frozen=True, kw_only=True)  # without slots, which have no room for `program`
class World:
    """A worker's place in one generation. Where nobody shares an axis, its group is a group of one.

    `is_coded`: where a codec is set, the ring uses it.
    """

    generation: int
    plan: Plan
    coord: Coord
    team: Group
    ring: Group
    tied: Group
    pairs: Mapping[WorkerId, Group]
    is_coded: bool = True

    @property
    def me(self) -> WorkerId:
        return self.plan.worker(self.coord)

    @cached_property
    def program(self) -> Program:
        """What this worker runs in a whole step; found when needed, so that a step to be repaired does not wait."""
        return step_programs_of(self.plan)[self.plan.mesh.rank(self.coord)]

    @property
    def is_first(self) -> bool:
        return self.coord.stage == 0

    @property
    def is_last(self) -> bool:
        return self.coord.stage == self.plan.mesh.pp - 1

    @property
    def has_ends(self) -> bool:
        """Whether my stage needs rows: ids for the first virtual stage, or targets for the last."""
        return self.coord.stage in (0, self.plan.last_stage)

    @property
    def is_leader(self) -> bool:
        """Whether, of the replicas of my stage, mine is the one that speaks for it."""
        return self.coord.replica == self.plan.leader(self.coord.stage)

    @property
    def pieces(self) -> tuple[int, ...]:
        """Of the optimizer state of my shard, the pieces for which I speak; all of it is one where it is not cut."""
        return spoken_by(self.plan, replica=self.coord.replica, stage=self.coord.stage)

    @property
    def speakers(self) -> tuple[tuple[int, ...], ...]:
        """The pieces for which each member of the ring speaks, by rank."""
        replicas = (self.plan.coord_of(member).replica for member in self.ring.spec.members)
        return tuple(spoken_by(self.plan, replica=replica, stage=self.coord.stage) for replica in replicas)

    @property
    def is_root(self) -> bool:
        """The first living worker reports the step."""
        return self.me == self.plan.living[0]

    @property
    def microbatches(self) -> tuple[int, ...]:
        """The micro-batches that this worker's team computes."""
        return self.plan.microbatches_of(replica=self.coord.replica, stage=self.coord.stage)

    def neighbour(self, *, microbatch: int, stage: int) -> WorkerId:
        """Who computes `microbatch` at a neighbouring stage, at my shard."""
        replica = self.plan.routes[microbatch][stage]
        return self.plan.worker(Coord(replica, stage, self.coord.shard))


def build_world(
    *, plan: Plan, generation: int, me: WorkerId, fabric: Fabric, tied: bool, links: Collection[tuple[Place, Place]],
    node: str | None = None,
) -> World:  # fmt: skip
    """Build my groups, in the order that all members share.

    Args:
        node: mine, where a codec is used only between nodes.
    Raises: CollectiveTimeout naming the members that never came; GroupBroken after an abort.
    """
    coord = plan.coord_of(me)
    by_axis: dict[str, list[Group]] = {"tp": [], "dp": [], "pair": [], "tied": []}
    for spec in groups_of(plan, generation=generation, tied=tied, links=links):
        if me in spec.members:
            by_axis[spec.axis].append(fabric.group(GroupSpec(key=spec.key, members=spec.members)))
    ring = _only(by_axis["dp"], me)
    return World(
        generation=generation,
        plan=plan,
        coord=coord,
        team=_only(by_axis["tp"], me),
        ring=ring,
        tied=_only(by_axis["tied"], me),
        pairs={_other(group, me): group for group in by_axis["pair"]},
        is_coded=node is None or len(set(ring.all_gather_bytes(node.encode()))) > 1,
    )


def _only(groups: list[Group], me: WorkerId) -> Group:
    assert len(groups) <= 1, "a worker has one group on this axis"
    return groups[0] if groups else SoloGroup(spec=GroupSpec(key="solo", members=(me,)))


def _other(group: Group, me: WorkerId) -> WorkerId:
    first, second = group.spec.members
    return second if first == me else first
