"""A closed form for the seconds of a step: which layouts are worth timing on their real actions, and in which order.

    L layers of l seconds, embedding and head of e and h, on p stages of v chunks, m micro-batches on a replica

    slowest stage   T = max( (L l + e + h) / p,   ceil(L / p) l,   l + h )
    way             W = L l + e + h + messages down and up          of one micro-batch, with nobody else there
    pipeline        (m - 1) T + W                                   exact where stages are even and p T >= W
                    rounds of p of max(W, p T)                      where a stage waits for a gradient's way back
                    less of the first and last way                  with v chunks, and where weights' parts fill it
    step            pipeline + gradients over dp + update

No step is shorter than its floor: the passes of its slowest stage, or the way of one micro-batch, or as many rounds as
there are. So what is timed and ends below a floor leaves nothing to look for behind it.

A device is taken to have in everything the most that one of the cluster has, a replica to lie as close as it can. A
floor holds for devices whose neighbours are idle, too, where a layout leaves some.
"""

from dataclasses import dataclass
from functools import cache
from math import ceil

import numpy as np
from numpy.typing import NDArray

from raymega.model_shape import ParameterCount
from raymega.pipeline.catalog import Schedule
from raymega.plan.activations import boundary_bytes
from raymega.plan.cluster import Cluster
from raymega.plan.collectives import Ring, half_ring_s, message_s
from raymega.plan.cost import PassSeconds, TeamSite, embedding_seconds, head_seconds, layer_seconds, update_bytes
from raymega.plan.fitted import Constants
from raymega.plan.hardware import Device, Links, most_of
from raymega.plan.job import Job
from raymega.plan.parallel_layout import Recompute, parts_cost_nothing
from raymega.plan.plan import ShardOptimizer
from raymega.plan.stage_state import share_of_state

Numbers = NDArray[np.float64]
IN_ROUNDS = ("1f1b", "zb-h1")  # a stage begins no more passes than there are stages before it needs a gradient


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipe:
    """The stages of one replica, for each of some numbers of stages.

    Args:
        whole_s: all passes of a micro-batch; `weights_s`: of them, what can be put off; `early_s`: what others do not
            wait for under schedules that put nothing off.
        hidden_s: what is seen besides where it is.
        slowest_s: those of the slowest stage.
        hops_s: messages from the first stage to the last.
    """

    pp: Numbers
    whole_s: float
    weights_s: float
    early_s: float
    hidden_s: float
    slowest_s: Numbers
    hops_s: Numbers

    def span_s(self, order: Schedule, *, chunks: int, microbatches: Numbers) -> tuple[Numbers, Numbers]:
        """Seconds of the pipeline by the closed form, and its floor."""
        slowest, pp, m = self.slowest_s, self.pp, microbatches
        fill = (self.whole_s - slowest) / chunks
        if order.splits:
            fill = fill * max(0.0, 1 - 2 * self.weights_s / self.whole_s) + m * self.hidden_s / pp
        else:
            fill = fill * (1 - self.early_s / self.whole_s)
        way = self.whole_s - (self.weights_s if order.splits else self.early_s) + 2 * self.hops_s
        floor = np.maximum(m * slowest, way)
        if order.name not in IN_ROUNDS:
            return m * slowest + fill + 2 * self.hops_s, floor
        rounds = np.floor((m - 1) / pp)
        left = m - 1 - rounds * pp
        ends = np.maximum(slowest + fill + 2 * self.hops_s, way)
        return rounds * np.maximum(way, pp * slowest) + left * slowest + ends, np.maximum(floor, (rounds + 1) * way)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Seconds of the parts of a model on one team, forward, backward and collectives.

    `sends_early`: as `Software` says, and the layout.
    """

    site: TeamSite
    layer: PassSeconds
    embedding: PassSeconds
    head: PassSeconds
    sends_early: bool

    def pipe(self, *, num_layers: int, pp: Numbers, hops_s: Numbers) -> Pipe:
        """The model cut into `pp` stages."""
        layer, head, embedding = self.layer.total_s, self.head.total_s, self.embedding.total_s
        whole = num_layers * layer + embedding + head
        slowest = np.maximum(np.maximum(whole / pp, np.ceil(num_layers / pp) * layer), layer + head)
        weights = num_layers * self.layer.weights_s + self.head.weights_s
        hidden = num_layers * self.layer.hidden_exchange_s + self.head.hidden_exchange_s
        return Pipe(
            pp=pp, whole_s=whole, weights_s=weights, early_s=weights * self.sends_early, hidden_s=hidden,
            slowest_s=slowest, hops_s=hops_s,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A job on a cluster, with what is asked again and again found once.

    Args:
        links: at their best.
    """

    job: Job
    cluster: Cluster
    constants: Constants
    device: Device
    links: Links
    largest: int
    most_bytes: float

    @classmethod
    def of(cls, job: Job, *, cluster: Cluster, constants: Constants) -> "Bench":
        """The most that a device of `cluster` has, and the devices of its largest node."""
        device = most_of([node.device for node in cluster.nodes])
        return cls(
            job=job, cluster=cluster, constants=constants, device=device, links=cluster.links.at_best(),
            largest=cluster.largest, most_bytes=device.usable_bytes,
        )  # fmt: skip

    def pace(self, devices: Numbers) -> Numbers:
        """How much faster than among working neighbours any of so many can be; all of a cluster leave none idle."""
        return np.where(devices < self.cluster.devices, self.device.alone, 1.0)

    def parts(self, *, tp: int, microbatch_size: int, sequence_parallel: bool, recompute: Recompute) -> Parts:
        """The parts of the model on a team of `tp`."""
        is_free = parts_cost_nothing(self.job.model, tp=tp, recompute=recompute)
        site = TeamSite(
            job=self.job,
            device=self.device,
            links=self.links,
            ring=Ring(members=tp, per_node=min(tp, self.largest)),
            constants=self.constants,
            microbatch_size=microbatch_size,
            sequence_parallel=sequence_parallel,
        )
        return Parts(
            site=site,
            layer=layer_seconds(site, recompute="none" if isinstance(recompute, frozenset) else recompute),
            embedding=embedding_seconds(site),
            head=head_seconds(site),
            sends_early=self.job.software.sends_early and is_free,
        )

    def hops_s(self, site: TeamSite, *, pp: Numbers) -> Numbers:
        """Messages from the first stage to the last of a replica that lies as close as it can."""
        sent = boundary_bytes(
            self.job,
            microbatch_size=site.microbatch_size,
            tp=site.ring.members,
            sequence_parallel=site.sequence_parallel,
        )
        ways = (self.links.device, self.links.node)
        inside, between = (message_s(sent, link=link, constants=self.constants) for link in ways)
        crossings = np.maximum(0, np.ceil(pp * site.ring.members / self.largest) - 1)
        whole: Numbers = (pp - 1 - crossings) * min(inside, between) + crossings * between
        return whole

    def ends_s(self, counted: ParameterCount, *, pp: int, tp: int, dp: int, shard: ShardOptimizer) -> float:
        """Gradients over replicas that lie as close as they can, and the update, of the fullest stage."""
        job, ring = self.job, Ring(members=dp, per_node=min(dp, max(1, self.largest // (pp * tp))))
        parameters = max(counted.total / pp, counted.block * ceil(counted.blocks / pp))
        gradients = parameters * job.software.gradient_bytes
        half = half_ring_s(gradients, ring=ring, links=self.links, constants=self.constants)
        both = half * (2 if shard == "none" else 1)  # weights travel under the next forward
        touched = parameters * update_bytes(job, share=share_of_state(shard, dp=dp))
        return both + touched / (self.device.memory_bytes_per_s * self.constants.memory_share)


@cache
def replica_counts(most: int) -> tuple[int, ...]:
    """Numbers of replicas worth a look: all small ones, then ever wider apart, and the most."""
    wider = (16 * 3**k // 2**k for k in range(1, 20))
    return tuple(size for size in sorted({*range(1, 17), *wider, most // 2, most}) if 1 <= size <= most)
