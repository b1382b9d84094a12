"""A plan: who computes what. A frozen value; a new world is a new plan.

    rank          (replica, stage, shard) -> worker, by the mesh's order
    layers        virtual stage -> the blocks it holds, half-open; on which stage it lives, the schedule says
    routes        micro-batch -> the replica that serves it at each stage; by default one replica all the way
    lost          teams that are gone; no route leads through them, and every stage has a living one

The plan does not occur in the result (law 1): it says where a micro-batch is computed, never what it weighs.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import compress, cycle, islice, pairwise, product
from typing import Any, Literal

from raymega.mesh import Coord, Mesh
from raymega.pipeline.catalog import Schedule, schedule
from raymega.pipeline.placing import stage_of, virtual_stages_on

WorkerId = str  # names one worker for its whole life ("w3"); never used again in the same run
Place = tuple[int, int]  # (replica, stage) of a team
ROUTES_KEPT = 16  # of meshes: a change asks for those of the same ones several times
ShardOptimizer = Literal["none", "zero1", "mirrored"]
"""Masters and moments over the replicas: on each, cut, or cut with a second holder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One way to lay a run over workers.

    Args:
        mesh: the shape of the parallelism.
        workers: worker of each rank.
        layers: (first, end) of the blocks of each virtual stage, in order; covers all blocks once.
        routes: for each micro-batch of a step, the replica at each stage.
        microbatch_size: samples in a micro-batch.
        schedule: a name in `pipeline.catalog`, or that of a file with a table of actions.
        table: its rows, if it is a file's.
        sequence_parallel: cut activations between tp regions along the sequence.
        lost: teams without a part: their workers stand in `workers`, and do nothing.
        shard_optimizer: where masters and moments are; `plan.shards` says who holds which piece.
        mirror_shift: mirrored: the second holder of a piece is so many replicas further on.
        lost_since: of `lost`, those that are gone since the state was laid out.
        in_flight: the most activations of a team of each stage, where stages are uneven; empty: as the schedule has it.
        teams: the living ones, by replica, then stage; follows from the others.
        living: the workers of these, in rank order; likewise.
        busiest: the most micro-batches that a team of each stage has; likewise.
    """

    mesh: Mesh
    workers: tuple[WorkerId, ...]
    layers: tuple[tuple[int, int], ...]
    routes: tuple[tuple[int, ...], ...]
    microbatch_size: int
    schedule: str = "1f1b"
    sequence_parallel: bool = False
    lost: frozenset[Place] = frozenset()
    table: tuple[str, ...] = ()
    shard_optimizer: ShardOptimizer = "none"
    mirror_shift: int = 1
    lost_since: frozenset[Place] = frozenset()
    in_flight: tuple[int, ...] = ()
    teams: tuple[Place, ...] = field(init=False, repr=False, compare=False)
    living: tuple[WorkerId, ...] = field(init=False, repr=False, compare=False)
    busiest: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        assert len(self.workers) == self.mesh.size, f"{self.mesh} has {self.mesh.size} ranks"
        assert len(set(self.workers)) == self.mesh.size, "a worker has one rank"
        assert self.layers, "a plan holds layers"
        assert len(self.layers) % self.mesh.pp == 0, "every stage has as many chunks"
        assert self.layers[0][0] == 0, "layers start at 0"
        assert all(a[1] == b[0] for a, b in pairwise(self.layers)), "layers are covered once"
        assert set(map(len, self.routes)) <= {self.mesh.pp}, "a route names a replica for each stage"
        columns = list(zip(*self.routes, strict=True))
        counted = {replicas: Counter(replicas) for replicas in dict.fromkeys(columns)}  # mostly all stages are alike
        loads = [counted[replicas] for replicas in columns]
        self._know_the_living(loads)
        assert all(0 <= min(load) and max(load) < self.mesh.dp for load in loads), "routes lead through teams"
        assert not any(loads[stage][replica] for replica, stage in self.lost), "routes lead through living teams"
        assert len({stage for _, stage in self.teams}) == self.mesh.pp, "every stage has a living team"

    def _know_the_living(self, loads: Sequence[Mapping[int, int]]) -> None:
        """They are asked for at every turn of the loop, over thousands of workers."""
        teams, living = tuple(product(range(self.mesh.dp), range(self.mesh.pp))), self.workers
        if self.lost:
            lives = [place not in self.lost for place in teams]
            teams = tuple(compress(teams, lives))
            living = tuple(compress(living, [live for live in lives for _ in range(self.mesh.tp)]))
        object.__setattr__(self, "teams", teams)
        object.__setattr__(self, "living", living)
        object.__setattr__(self, "busiest", tuple(max(load.values()) for load in loads))

    @property
    def num_chunks(self) -> int:
        return len(self.layers) // self.mesh.pp

    @property
    def num_layers(self) -> int:
        return self.layers[-1][1]

    @property
    def order(self) -> Schedule:
        """The schedule that its name, or its table, stands for."""
        return schedule(self.schedule, rows=self.table)

    def stage_of(self, virtual_stage: int) -> int:
        """The stage on which a virtual stage lives."""
        return stage_of(virtual_stage, num_stages=self.mesh.pp, folds=self.order.folds)

    def chunks_of(self, stage: int) -> tuple[int, ...]:
        """The virtual stages that live on `stage`, ascending."""
        if self.num_chunks == 1:
            return (stage,)
        return virtual_stages_on(stage, num_stages=self.mesh.pp, chunks=self.num_chunks, folds=self.order.folds)

    def most_alive(self, *, stage: int, num_microbatches: int) -> int:
        """The most activations that a team of `stage` holds at once, if it has so many micro-batches."""
        if self.in_flight:
            return min(self.in_flight[stage], num_microbatches)
        return self.order.in_flight(
            stage=stage, num_stages=self.mesh.pp, num_microbatches=num_microbatches, chunks=self.num_chunks
        )

    @property
    def hops(self) -> frozenset[tuple[int, int]]:
        """The pairs of stages that hand activations on, in that direction."""
        at = [self.stage_of(v) for v in range(len(self.layers))]
        return frozenset((a, b) for a, b in pairwise(at) if a != b)

    @property
    def last_stage(self) -> int:
        """The stage that has the loss; the first virtual stage is always on stage 0."""
        return self.stage_of(len(self.layers) - 1)

    @property
    def num_microbatches(self) -> int:
        """Micro-batches of a step, over all replicas."""
        return len(self.routes)

    @property
    def global_batch(self) -> int:
        """Samples of a step."""
        return self.num_microbatches * self.microbatch_size

    def is_living(self, replica: int, stage: int) -> bool:
        """Whether the team (replica, stage) has a part."""
        return (replica, stage) not in self.lost

    def team(self, replica: int, stage: int) -> tuple[int, ...]:
        """The ranks of a living team, by shard."""
        return self.mesh.team(replica=replica, stage=stage) if self.is_living(replica, stage) else ()

    def ring(self, *, stage: int, shard: int) -> tuple[int, ...]:
        """The living ranks that hold the same boxes and sum their gradients, by replica."""
        replicas = (replica for replica in range(self.mesh.dp) if self.is_living(replica, stage))
        return tuple(self.mesh.rank(Coord(replica, stage, shard)) for replica in replicas)

    def leader(self, stage: int) -> int:
        """The first replica whose team of `stage` lives: its boxes are the ones that count."""
        return next(replica for replica in range(self.mesh.dp) if self.is_living(replica, stage))

    def worker(self, coord: Coord) -> WorkerId:
        return self.workers[self.mesh.rank(coord)]

    def coord_of(self, worker: WorkerId) -> Coord:
        return self.mesh.coord(self.workers.index(worker))

    def microbatches_of(self, *, replica: int, stage: int) -> tuple[int, ...]:
        """The micro-batches that the team (replica, stage) computes, ascending."""
        return tuple(m for m, route in enumerate(self.routes) if route[stage] == replica)

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` gives an equal plan."""
        return {
            "dp": self.mesh.dp, "pp": self.mesh.pp, "tp": self.mesh.tp,
            "workers": list(self.workers), "layers": [list(x) for x in self.layers],
            "routes": [list(x) for x in self.routes], "microbatch_size": self.microbatch_size,
            "schedule": self.schedule, "sequence_parallel": self.sequence_parallel,
            "lost": sorted(map(list, self.lost)), "table": list(self.table),
            "shard_optimizer": self.shard_optimizer, "mirror_shift": self.mirror_shift,
            "lost_since": sorted(map(list, self.lost_since)), "in_flight": list(self.in_flight),
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Plan":
        return cls(
            mesh=Mesh(dp=data["dp"], pp=data["pp"], tp=data["tp"]),
            workers=tuple(data["workers"]),
            layers=tuple((first, end) for first, end in data["layers"]),
            routes=tuple(tuple(route) for route in data["routes"]),
            microbatch_size=data["microbatch_size"],
            schedule=data["schedule"],
            sequence_parallel=data["sequence_parallel"],
            lost=frozenset((replica, stage) for replica, stage in data.get("lost", ())),
            table=tuple(data.get("table", ())),
            shard_optimizer=data.get("shard_optimizer", "none"),
            mirror_shift=data.get("mirror_shift", 1),
            lost_since=frozenset((replica, stage) for replica, stage in data.get("lost_since", ())),
            in_flight=tuple(data.get("in_flight", ())),
        )

    def with_workers(self, workers: tuple[WorkerId, ...]) -> "Plan":
        """The same layout on other workers."""
        return replace(self, workers=workers)


@lru_cache(maxsize=ROUTES_KEPT)
def straight_routes(*, num_microbatches: int, mesh: Mesh) -> tuple[tuple[int, ...], ...]:
    """One replica all the way; micro-batch m goes to replica m % dp, so quotas differ by one at most."""
    return tuple(islice(cycle([(replica,) * mesh.pp for replica in range(mesh.dp)]), num_microbatches))
