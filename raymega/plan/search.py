"""The best layouts of a space on a cluster: all are estimated, those that may be best are timed on their real actions.

    every (tp, pp, dp, micro-batch, schedule, ..)      estimated in closed form         (plan.estimate, plan.grid)
    in the order of the estimate, with room for it     placed, split, held to memory
      those that fit                                   timed                            (plan.predict)
      those that do not                                kept with the reason
    until no floor of those left is below the best time, so none of them is faster, or enough were tried

A long step is timed on its first micro-batches, and goes on at the pace of the last of them: a schedule that repeats
itself has one. What is chosen is then timed whole.
"""

from dataclasses import dataclass, field, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from raymega.mesh import Mesh
from raymega.plan.cluster import Cluster, NodeId
from raymega.plan.estimate import Bench
from raymega.plan.fitted import PUBLISHED, Constants
from raymega.plan.grid import Estimated, Grid, Indices
from raymega.plan.job import Job
from raymega.plan.memory import memory_by_stage
from raymega.plan.parallel_layout import ParallelLayout
from raymega.plan.passes import Ground, passes_of
from raymega.plan.placement import first_that_suffice, place
from raymega.plan.predict import StepPrediction, predict_layout, step_seconds
from raymega.plan.seats import StageSeats, seats_of
from raymega.plan.space import Space
from raymega.plan.verdict import Verdict, split, why_not

LEAST_TIMED = 4
MOST_ACTIONS = 100_000  # timed in all, beyond the first few
REFUSAL = 100  # actions of each stage that a layout is worth which turns out not to fit
MOST_REFUSED = 40  # that are kept
FIRST_MICROBATCHES = 3  # times the stages
PIECE = 256  # layouts looked at before floors are held to the best once more


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search saw.

    Args:
        ranked: timed layouts that fit, fastest first.
        refused: would have been tried before the last of these, but do not fit; with estimated seconds.
        considered: layouts that were estimated.
        is_proven: every other layout has a floor above the first; else so many were timed that it was enough.
    """

    ranked: tuple[Verdict, ...]
    refused: tuple[Verdict, ...]
    considered: int
    is_proven: bool


def search(job: Job, *, space: Space, cluster: Cluster, constants: Constants = PUBLISHED) -> Found:
    """Find the fastest layouts of `space` that fit."""
    bench = Bench.of(job, cluster=cluster, constants=constants)
    grid, board = Grid.of(bench, space=space), Board.of(job, cluster=cluster, constants=constants)
    found = timed(grid, board=board)
    best_s = found.ranked[0].step_s if found.ranked else inf
    crowded = grid.by_estimate(~grid.has_room & (grid.step_s <= best_s))[: MOST_REFUSED - len(found.refused)]
    refused = (*found.refused, *(board.refused(grid.at(int(at))) for at in crowded))
    return replace(found, refused=tuple(sorted(refused, key=lambda verdict: verdict.step_s)))


def timed(grid: Grid, *, board: "Board", among: NDArray[np.bool_] | None = None) -> Found:
    """Try layouts `among` all that have room, the fastest by estimate first, until no other can be faster."""
    among = grid.has_room | True if among is None else among
    tried = _Tried()
    is_proven = _try_all(grid, grid.by_estimate(among & grid.has_room), tried=tried, board=board)
    return tried.found(considered=int(np.count_nonzero(among & np.isfinite(grid.step_s))), is_proven=is_proven)


def _try_all(grid: Grid, order: Indices, *, tried: "_Tried", board: "Board") -> bool:
    """Returns: whether none is left out that could be faster."""
    for first in range(0, len(order), PIECE):
        piece = order[first : first + PIECE]
        for at in piece[grid.floor_s[piece] <= tried.best_s]:
            if tried.is_enough:
                return False
            row = grid.at(int(at))
            if row.floor_s <= tried.best_s:
                tried.add(board.tried(row.layout(board.job.model.num_layers), estimated_s=row.step_s), job=board.job)
    return True


@dataclass(slots=True)
class _Tried:
    """What a search has seen so far."""

    ranked: list[Verdict] = field(default_factory=list)
    refused: list[Verdict] = field(default_factory=list)
    best_s: float = inf
    actions: int = 0

    @property
    def is_enough(self) -> bool:
        return len(self.ranked) >= LEAST_TIMED and self.actions > MOST_ACTIONS

    def add(self, verdict: Verdict, *, job: Job) -> None:
        layout, pp = verdict.layout, verdict.layout.mesh.pp
        if verdict.refused is not None:
            self.actions += REFUSAL * pp
            self.refused += [verdict] if len(self.refused) < MOST_REFUSED else []
            return
        self.ranked.append(verdict)
        # two runs of three and four times the stages, about
        self.actions += len(layout.order.kinds) * len(layout.layers) * min(7 * pp, layout.microbatches(job))
        self.best_s = min(self.best_s, verdict.step_s)

    def found(self, *, considered: int, is_proven: bool) -> Found:
        ranked = sorted(self.ranked, key=lambda verdict: (verdict.step_s, verdict.layout.mesh.size))
        return Found(ranked=tuple(ranked), refused=tuple(self.refused), considered=considered, is_proven=is_proven)


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """Layouts of one job on one cluster.

    Args:
        places: of each mesh, found once.
    """

    job: Job
    cluster: Cluster
    constants: Constants
    places: dict[Mesh, tuple[tuple[NodeId, ...], tuple[StageSeats, ...]]] = field(default_factory=dict)

    @classmethod
    def of(cls, job: Job, *, cluster: Cluster, constants: Constants) -> "Board":
        """An empty one."""
        return cls(job=job, cluster=cluster, constants=constants)

    def tried(self, layout: ParallelLayout, *, estimated_s: float) -> Verdict:
        """Place, split by speed or else evenly, hold to memory and, if it fits, time."""
        _, seats = self.seated(layout.mesh)
        held = self._held(split(layout, ground=self._ground(layout, seats)), seats)
        if held.refused is not None:
            even = self._held(layout, seats)
            held = even if even.refused is None else held
        step_s = estimated_s if held.refused is not None else self._paced_s(held.layout, seats)
        return replace(held, step_s=step_s)

    def refused(self, row: Estimated) -> Verdict:
        """What is known to have no room, with the stage that lacks most when layers are cut evenly."""
        layout = row.layout(self.job.model.num_layers)
        _, seats = self.seated(layout.mesh)
        held = self._held(layout, seats)
        return replace(held, step_s=row.step_s, refused=held.refused or "it has no room for all layers")

    def _held(self, layout: ParallelLayout, seats: tuple[StageSeats, ...]) -> Verdict:
        """Hold to memory; not timed yet."""
        memory = memory_by_stage(self.job, layout)
        refused = why_not(memory, tuple(seat.least_bytes for seat in seats))
        return Verdict(layout=layout, step_s=0.0, peak_bytes=max(need.total for need in memory), refused=refused)

    def predicted(self, layout: ParallelLayout) -> StepPrediction:
        """Time the whole step."""
        nodes, _ = self.seated(layout.mesh)
        return predict_layout(layout, job=self.job, cluster=self.cluster, nodes=nodes, constants=self.constants)

    def seated(self, mesh: Mesh) -> tuple[tuple[NodeId, ...], tuple[StageSeats, ...]]:
        """Nodes of each rank, and their summary."""
        if mesh not in self.places:
            nodes = place(mesh, cluster=first_that_suffice(mesh, cluster=self.cluster))
            self.places[mesh] = nodes, seats_of(mesh, nodes=nodes, cluster=self.cluster)
        return self.places[mesh]

    def _paced_s(self, layout: ParallelLayout, seats: tuple[StageSeats, ...]) -> float:
        count, first, more = layout.microbatches(self.job), FIRST_MICROBATCHES * layout.mesh.pp, _round(layout)
        if count <= first + more:
            return step_seconds(self._ground(layout, seats)).total_s
        first += (count - first) % more  # so that what is left are whole rounds
        passes = passes_of(self._ground(layout, seats))
        short, longer = (
            step_seconds(self._ground(layout, seats, microbatches=number), passes=passes).total_s
            for number in (first, first + more)
        )
        return longer + (longer - short) * (count - first - more) / more

    def _ground(
        self, layout: ParallelLayout, seats: tuple[StageSeats, ...], *, microbatches: int | None = None
    ) -> Ground:
        each = layout.mesh.dp * layout.microbatch_size
        job = self.job if microbatches is None else replace(self.job, batch_size=microbatches * each)
        return Ground(job=job, layout=layout, seats=seats, cluster=self.cluster, constants=self.constants)


def _round(layout: ParallelLayout) -> int:
    """Micro-batches after which a schedule repeats itself: as many as its first stage begins before it has to wait."""
    pp = layout.mesh.pp
    if layout.num_chunks > 1:
        return pp
    return layout.order.in_flight(stage=0, num_stages=pp, num_microbatches=2 * pp, chunks=1)
