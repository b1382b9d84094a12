"""A closed form for the seconds of a step: which layouts are worth timing on their real actions.

    L layers of l seconds, embedding and head of e and h, on p stages of v chunks, m micro-batches on a replica

    slowest stage   T = max( (L l + e + h) / p,   ceil(L / p) l,   l + h )
    pipeline        m T + (L l + e + h - T) / v              exact where stages are even and messages are free
                    + 2 c (m + p) (p - 1) / p                with messages of c seconds and one chunk a stage: a stage
                                                             waits for its gradients' way back
    step            pipeline + gradients over dp + update

A device is taken to be the fastest of the cluster, a replica to lie as close as it can.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil

from raymega.mesh import Mesh
from raymega.plan.activations import boundary_bytes
from raymega.plan.cluster import Cluster
from raymega.plan.collectives import Ring, half_ring_s, message_s
from raymega.plan.cost import TeamSite, embedding_seconds, head_seconds, layer_seconds
from raymega.plan.fitted import Constants
from raymega.plan.hardware import Device
from raymega.plan.job import Job
from raymega.plan.parallel_layout import Recompute
from raymega.plan.plan import ShardOptimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipe:
    """The stages of one replica: all passes of a micro-batch, those of the slowest stage, a message to the next."""

    pp: int
    whole_s: float
    slowest_s: float
    hop_s: float

    def paces(self, *, chunks: int, microbatches: Sequence[int]) -> list[float]:
        """See above, for each number of micro-batches."""
        slowest, rest, pp, twice = self.slowest_s, (self.whole_s - self.slowest_s) / chunks, self.pp, 2 * self.hop_s
        return [m * slowest + rest + twice * (m * (chunks == 1) + pp) * (pp - 1) / pp for m in microbatches]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Seconds of the parts of a model on one team, forward, backward and collectives."""

    site: TeamSite
    layer_s: float
    embedding_s: float
    head_s: float

    def pipe(self, *, num_layers: int, pp: int, hop_s: float) -> Pipe:
        """The model cut into `pp` stages."""
        whole = num_layers * self.layer_s + self.embedding_s + self.head_s
        slowest = max(whole / pp, ceil(num_layers / pp) * self.layer_s, self.layer_s + self.head_s)
        return Pipe(pp=pp, whole_s=whole, slowest_s=slowest, hop_s=hop_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A job on a cluster, with what is asked again and again found once."""

    job: Job
    cluster: Cluster
    constants: Constants
    device: Device
    largest: int

    @classmethod
    def of(cls, job: Job, *, cluster: Cluster, constants: Constants) -> "Bench":
        """The fastest device of `cluster`, and the devices of its largest node."""
        device = max((node.device for node in cluster.nodes), key=lambda device: max(device.flops_per_s.values()))
        return cls(job=job, cluster=cluster, constants=constants, device=device, largest=cluster.largest)

    def parts(self, *, tp: int, microbatch_size: int, sequence_parallel: bool, recompute: Recompute) -> Parts:
        """The parts of the model on a team of `tp`."""
        site = TeamSite(
            job=self.job,
            device=self.device,
            links=self.cluster.links,
            ring=Ring(members=tp, per_node=min(tp, self.largest)),
            constants=self.constants,
            microbatch_size=microbatch_size,
            sequence_parallel=sequence_parallel,
        )
        return Parts(
            site=site,
            layer_s=layer_seconds(site, recompute="none" if isinstance(recompute, frozenset) else recompute).total_s,
            embedding_s=embedding_seconds(site).total_s,
            head_s=head_seconds(site).total_s,
        )

    def hop_s(self, site: TeamSite, *, pp: int) -> float:
        """A message between neighbouring stages of a replica that lies as close as it can."""
        if pp == 1:
            return 0.0
        sent = boundary_bytes(
            self.job,
            microbatch_size=site.microbatch_size,
            tp=site.ring.members,
            sequence_parallel=site.sequence_parallel,
        )
        links = self.cluster.links
        link = links.device if pp * site.ring.members <= self.largest else links.node
        return message_s(sent, link=link, constants=self.constants)

    def ends_s(self, parameters: float, *, mesh: Mesh, shard: ShardOptimizer) -> float:
        """Gradients over replicas that lie as close as they can, and the update."""
        dp, job = mesh.dp, self.job
        ring = Ring(members=dp, per_node=min(dp, max(1, self.largest // (mesh.pp * mesh.tp))))
        gradients = parameters * job.software.gradient_bytes
        half = half_ring_s(gradients, ring=ring, links=self.cluster.links, constants=self.constants)
        other = 1.0 if shard == "none" else job.element_bytes / job.software.gradient_bytes
        touched = parameters * (28 * (1.0 if shard == "none" else 1 / dp) + 16)
        return half * (1 + other) + touched / (self.device.memory_bytes_per_s * self.constants.memory_share)


@cache
def replica_counts(most: int) -> tuple[int, ...]:
    """Numbers of replicas worth a look: all small ones, then ever wider apart, and the most."""
    wider = (16 * 3**k // 2**k for k in range(1, 20))
    return tuple(size for size in sorted({*range(1, 17), *wider, most // 2, most}) if 1 <= size <= most)
