"""What one micro-batch takes on a layout, whatever the number of them: seconds at each virtual stage, and of messages.

stage 0    F    B--      embedding and its layers     on the slowest device of the stage, its team's collectives seen
stage 1       F B--      its layers, head and loss
between      -> <-       messages                     over the slowest link from the one's nodes to the other's

A gradient that leaves before the products for weights is a message of less than no time after its backward.
"""

from dataclasses import dataclass

from raymega.pipeline.actions import Kind
from raymega.pipeline.running_order import Durations
from raymega.plan.activations import RecomputeKind, boundary_bytes
from raymega.plan.cluster import Cluster
from raymega.plan.collectives import Ring, half_ring_s, message_s
from raymega.plan.cost import PassSeconds, TeamSite, embedding_seconds, head_seconds, layer_seconds
from raymega.plan.fitted import Constants
from raymega.plan.hardware import Device
from raymega.plan.job import Job
from raymega.plan.parallel_layout import ParallelLayout, parts_cost_nothing
from raymega.plan.seats import StageSeats


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """A job laid over seats."""

    job: Job
    layout: ParallelLayout
    seats: tuple[StageSeats, ...]
    cluster: Cluster
    constants: Constants

    def site(self, stage: int) -> TeamSite:
        """What a team of `stage` computes on."""
        return TeamSite(
            job=self.job,
            device=self.seats[stage].device,
            links=self.cluster.links,
            ring=self.seats[stage].team,
            constants=self.constants,
            microbatch_size=self.layout.microbatch_size,
            sequence_parallel=self.layout.sequence_parallel,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """One micro-batch, whatever the number of them: seconds at each virtual stage, and as the clock wants them."""

    seconds: tuple[PassSeconds, ...]
    durations: Durations
    messages: Durations


def passes_of(ground: Ground) -> Passes:
    """Time a micro-batch; where messages block, they take the sender's time."""
    passes, extra = virtual_stage_seconds(ground), ground.constants.pass_s
    durations, messages = dict[tuple[int, Kind], float](), _messages(ground)
    for v, seconds in enumerate(passes):
        durations[v, Kind.F] = seconds.forward_s + seconds.forward_exchange_s + extra
        durations[v, Kind.B] = seconds.backward_s + seconds.backward_exchange_s + extra
        exchange = seconds.backward_exchange_s + seconds.hidden_exchange_s  # nothing runs beside it
        durations[v, Kind.I] = seconds.backward_s - seconds.weights_s + exchange + extra
        durations[v, Kind.W] = seconds.weights_s + extra
    if not ground.job.software.overlaps_messages:
        durations = {at: seconds + messages.get(at, 0.0) for at, seconds in durations.items()}
        messages = {}
    for v, seconds in enumerate(passes[1:] if _sends_early(ground) else (), start=1):
        messages[v, Kind.B] = messages.get((v, Kind.B), 0.0) - seconds.weights_s
    return Passes(seconds=passes, durations=durations, messages=messages)


def virtual_stage_seconds(ground: Ground) -> tuple[PassSeconds, ...]:
    """One micro-batch at each virtual stage, embedding and loss counted where they are."""
    layout, end = ground.layout, len(ground.layout.layers) - 1
    known = dict[tuple[Device, Ring, RecomputeKind], PassSeconds]()  # stages are mostly alike
    found = []
    for chunk, (first, stop) in enumerate(layout.layers):
        stage = layout.stage_of(chunk)
        site, kinds = ground.site(stage), [layout.recompute_of(layer) for layer in range(first, stop)]
        ways = [(site.device, site.ring, kind) for kind in sorted(set(kinds))]
        known.update((way, layer_seconds(site, recompute=way[-1])) for way in ways if way not in known)
        parts = [known[way].times(kinds.count(way[-1])) for way in ways]
        parts += [embedding_seconds(site)] if chunk == 0 else []
        parts += [head_seconds(site)] if chunk == end else []
        found.append(sum(parts[1:], start=parts[0]))
    return tuple(found)


def _sends_early(ground: Ground) -> bool:
    job, layout = ground.job, ground.layout
    is_free = parts_cost_nothing(job.model, tp=layout.mesh.tp, recompute=layout.recompute)
    return job.software.sends_early and is_free


def _messages(ground: Ground) -> dict[tuple[int, Kind], float]:
    """What passes send; the first backward, the last forward and weights' parts send nothing."""
    layout, found = ground.layout, dict[tuple[int, Kind], float]()
    for v in range(len(layout.layers) - 1):
        upper, lower = layout.stage_of(v), layout.stage_of(v + 1)
        if upper != lower:
            seats = ground.seats[lower if layout.order.folds and lower < upper else upper]
            found[v, Kind.F] = found[v + 1, Kind.B] = found[v + 1, Kind.I] = _message_seconds(ground, seats)
    return found


def _message_seconds(ground: Ground, seats: StageSeats) -> float:
    """One message from a stage to the next."""
    layout, constants = ground.layout, ground.constants
    num_bytes = boundary_bytes(
        ground.job, microbatch_size=layout.microbatch_size, tp=layout.mesh.tp,
        sequence_parallel=layout.sequence_parallel,
    )  # fmt: skip
    if not ground.job.software.scatters_messages or layout.sequence_parallel:
        return message_s(num_bytes, link=seats.hop, constants=constants)
    gather = half_ring_s(num_bytes, ring=seats.team, links=ground.cluster.links, constants=constants)
    return message_s(num_bytes / layout.mesh.tp, link=seats.hop, constants=constants) + gather
