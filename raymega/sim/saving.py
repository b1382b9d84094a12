"""Checkpoints of simulated workers: what a snapshot holds a step up, when parts are saved, when a manifest is out."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from raymega.control.commands import PublishCheckpoint
from raymega.control.events import CheckpointFailed, CheckpointPublished, Event, ShardsSaved
from raymega.plan.plan import Plan, WorkerId
from raymega.sim.sim_nodes import SimNodes
from raymega.sim.state_moves import SimMoves
from raymega.sim.times import Times


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """See above."""

    moves: SimMoves
    times: Times
    nodes: SimNodes

    def snapshot_s(self, plan: Plan) -> float:
        """What a snapshot holds the step up."""
        return self.moves.state_bytes(plan) / self.times.snapshot_bytes_per_s

    def save_s(self, plan: Plan) -> float:
        """From the snapshot until the parts lie on storage."""
        return self.moves.state_bytes(plan) / self.times.save_bytes_per_s

    def load_s(self, plan: Plan) -> float:
        return self.moves.state_bytes(plan) / self.times.load_bytes_per_s

    def of(self, plan: Plan, *, generation: int, step: int) -> tuple[float, Callable[[], Event | None]]:
        """(seconds until the parts of `step` are saved, what is told then)."""
        return self.save_s(plan), partial(self.saved, plan.living, generation=generation, step=step)

    def saved(self, workers: tuple[WorkerId, ...], *, generation: int, step: int) -> Event | None:
        """The parts of those who are still there."""
        there = [worker for worker in workers if worker in self.nodes.seats]
        return ShardsSaved(worker=there[0], generation=generation, step=step, also=tuple(there[1:])) if there else None

    def published(self, command: PublishCheckpoint, *, generation: int) -> Event:
        """The manifest is out, unless a newer generation is there."""
        if command.generation != generation:
            return CheckpointFailed(step=command.step, reason="a newer generation is there")
        uri = f"simulated/step-{command.step}"
        return CheckpointPublished(step=command.step, uri=uri, tokens_total=command.tokens_total)
