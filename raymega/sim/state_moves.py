"""`control.decision.Moves` for simulated state: bytes are counted by blocks, not box by box, and nothing is corrupted.

    new worker: blocks 4-7, shard 1/2     old: blocks 0-5, shard 1/2     lacks blocks 6 7, half of each
    a block that is lacked comes from all teams that held it, in equal parts
    moments that are cut over the replicas: a piece whose borders have changed is lacked whole

Plans are what `control.brain` finds for the config; each is found once.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from raymega.config.fault import counted
from raymega.config.schema import Config
from raymega.control.decision import Planned
from raymega.control.outlook import Wish
from raymega.control.states import Seat
from raymega.errors import StateLost
from raymega.layout.certificate import Certified, Refused, StatePart
from raymega.mesh import Mesh
from raymega.model_shape import parameter_count
from raymega.plan.cluster import NodeId
from raymega.plan.job import Job
from raymega.plan.memory import StageMemory, memory_by_stage
from raymega.plan.parallel_layout import ParallelLayout, layout_of
from raymega.plan.plan import Plan, WorkerId
from raymega.plan.planner import plan_for
from raymega.plan.resize import as_mesh, on_devices
from raymega.plan.room import LayoutOf, Room
from raymega.plan.shards import num_pieces
from raymega.plan.transition import Transition

ELEMENT_BYTES = 4  # state is fp32
MOMENTS = {"adamw": 2, "sgd": 0}  # of each parameter
Slot = tuple[int, int]  # stage, shard


@dataclass(slots=True, kw_only=True)
class SimMoves:
    """See above.

    Args:
        team: devices that one simulated worker stands for; each moves its own part of the bytes.
        job, layout: of the devices behind the workers.
        usable_bytes: of each device; None: not known.
        known: what was asked last, and its plan.
        nodes: of the seats that were asked about last, and their room.
        memory: that layouts were found to need.
    """

    config: Config
    team: int = 1
    job: Job | None = None
    layout: LayoutOf = layout_of
    usable_bytes: float | None = None
    known: tuple[tuple[Seat, ...], Wish, Planned] | None = None
    nodes: tuple[tuple[Seat, ...], dict[WorkerId, NodeId], Room | None] | None = None
    memory: dict[tuple[int, ParallelLayout], tuple[StageMemory, ...]] = field(default_factory=dict)

    def plan_for(self, seats: tuple[Seat, ...], wish: Wish) -> Planned:
        """As the run's own brain; what was asked last is remembered."""
        if self.known is None or self.known[:2] != (seats, wish):
            workers, room = self._nodes(seats)
            self.known = seats, wish, plan_for(self._asked(wish), workers=workers, room=room)
        return self.known[2]

    def forget(self) -> None:
        """What was asked before `config` was set does not count."""
        self.known = None

    def lacks(self, plan: Plan, seats: tuple[Seat, ...]) -> str | None:
        """What devices lack to hold `plan`."""
        workers, room = self._nodes(seats)
        return room.why_not(plan, node_of=workers) if room is not None else None

    def _nodes(self, seats: tuple[Seat, ...]) -> tuple[dict[WorkerId, NodeId], Room | None]:
        """Of these seats, and what they hold: each rung asks about the same ones."""
        if self.nodes is None or self.nodes[0] != seats:
            workers = {seat.worker: seat.node for seat in seats}
            self.nodes = seats, workers, self._room(workers)
        return self.nodes[1:]

    def _room(self, workers: Mapping[WorkerId, NodeId]) -> Room | None:
        if self.job is None or self.usable_bytes is None:
            return None
        usable_bytes = dict.fromkeys(workers.values(), self.usable_bytes)
        return Room(job=self.job, layout=self.layout, usable_bytes=usable_bytes, memory=self._memory)

    def _memory(self, job: Job, layout: ParallelLayout) -> tuple[StageMemory, ...]:
        """Of one job, which differs in its batch only."""
        key = job.batch_size, layout
        if key not in self.memory:
            self.memory[key] = memory_by_stage(job, layout)
        return self.memory[key]

    def _asked(self, wish: Wish) -> Config:
        if wish.mesh is not None:
            return as_mesh(self.config, wish.mesh)
        return self.config if wish.devices is None else on_devices(self.config, wish.devices)

    def busiest_bytes(self, transition: Transition, new: Plan) -> int:
        """What the worker with most to receive or to send has to."""
        old, sizes = transition.old, self._sizes(new.num_layers)
        at = dict(zip(old.workers, _slots(old.mesh), strict=True))
        held = {worker: at[worker] for worker in transition.senders}
        holders = Counter(stage for stage, _ in held.values())  # shards of living teams, by stage
        received, wanted = _lacks(old, new, held, sizes, moments=MOMENTS[self.config.training.optimizer])
        sent = dict.fromkeys(holders, 0.0)
        stage_of = {block: stage for stage in holders for block in _blocks(old, stage)}
        for block, num_bytes in wanted.items():
            if block not in stage_of:
                raise StateLost(f"Nobody holds block {block} any more. Bring back its checkpoint.")
            sent[stage_of[block]] += num_bytes / holders[stage_of[block]]
        return round(max([received, *sent.values()]))

    def certify(
        self, transition: Transition, new: Plan, *, step: int, parts: Mapping[WorkerId, StatePart]
    ) -> Certified | Refused:
        """Simulated state arrives as it was."""
        reason = f"the state of {counted(step, noun='step')} is whole on {new.mesh}"
        return Certified(reason=reason, bytes_moved=self.busiest_bytes(transition, new))

    def state_bytes(self, plan: Plan) -> float:
        """What the worker that holds most of `plan` holds."""
        sizes, moments = self._sizes(plan.num_layers), MOMENTS[self.config.training.optimizer]
        by_stage = (
            sum(sizes[b] for b in _blocks(plan, stage)) * (1 + moments * _share_of_moments(plan, stage))
            for stage in range(plan.mesh.pp)
        )
        return max(by_stage) / plan.mesh.tp

    def _sizes(self, num_layers: int) -> dict[int, float]:
        """Bytes of parameters of each block; those of the embedding and of the head with the first and the last."""
        counted = parameter_count(self.config.model, seq_len=self.config.data.seq_len)
        each = ELEMENT_BYTES / self.team
        sizes = dict.fromkeys(range(num_layers), counted.block * each)
        sizes[0] += counted.embedding * each
        sizes[num_layers - 1] += (counted.head + counted.final_norm) * each
        return sizes


def _lacks(
    old: Plan, new: Plan, held: Mapping[WorkerId, Slot], sizes: Mapping[int, float], *, moments: int
) -> tuple[float, Mapping[int, float]]:
    """The most that a worker lacks, and what is lacked of each block by all of them."""
    most, wanted = 0.0, Counter[int]()
    had, wants = ([_blocks(plan, stage) for stage in range(plan.mesh.pp)] for plan in (old, new))
    shared, share = ([_share_of_moments(plan, stage) for stage in range(plan.mesh.pp)] for plan in (old, new))
    is_cut = new.shard_optimizer != "none"
    for (slot, was), number in _classes(new, held).items():
        stays = was is not None and was == slot and old.mesh.tp == new.mesh.tp and had[was[0]] == wants[slot[0]]
        if stays and shared[slot[0]] == share[slot[0]]:
            continue
        before = frozenset[int]() if was is None else had[was[0]]
        common = 0.0 if was is None else _common(slot[1], new.mesh.tp, was[1], old.mesh.tp)
        whole = 1 / new.mesh.tp
        each, piece = (1, moments * share[slot[0]] * whole) if is_cut else (1 + moments, 0.0)
        lacks = {b: ((whole - common if b in before else whole) * each + piece) * sizes[b] for b in wants[slot[0]]}
        most = max(most, sum(lacks.values()))
        for block, num_bytes in lacks.items():
            wanted[block] += num_bytes * number  # type: ignore[assignment]  # bytes are not whole where tp cuts them
    return most, wanted


def _share_of_moments(plan: Plan, stage: int) -> float:
    """The share of its stage's moments that a replica holds."""
    copies = 2 if plan.shard_optimizer == "mirrored" else 1
    return min(1.0, copies / num_pieces(plan, stage=stage))


def _classes(new: Plan, held: Mapping[WorkerId, Slot]) -> Counter[tuple[Slot, Slot | None]]:
    """How many workers go from which (stage, shard) to which."""
    slots = _slots(new.mesh) if not new.lost else [(s, shard) for _, s in new.teams for shard in range(new.mesh.tp)]
    return Counter(zip(slots, map(held.get, new.living), strict=True))


def _slots(mesh: Mesh) -> list[Slot]:
    """Of each rank; all replicas are alike."""
    return [(stage, shard) for stage in range(mesh.pp) for shard in range(mesh.tp)] * mesh.dp


def _common(shard: int, tp: int, was: int, old_tp: int) -> float:
    """The share of a block that is in `shard` of `tp` and was in `was` of `old_tp`."""
    return max(0.0, min((shard + 1) / tp, (was + 1) / old_tp) - max(shard / tp, was / old_tp))


def _blocks(plan: Plan, stage: int) -> frozenset[int]:
    if plan.num_chunks == 1:
        return frozenset(range(*plan.layers[stage]))
    return frozenset(block for v in plan.chunks_of(stage) for block in range(*plan.layers[v]))
