"""Seconds of one pass over one layer, from its FLOPs and bytes: what the clock of a step is made of.

    T = b s tokens    T' = T / t under sequence parallelism    bytes of e each

    a matrix product [M, K] [K, N]    2 M K N / FLOP/s  +  e (M K + K N + M N) / bytes/s
    forward of a layer     qkv, output, mlp up, mlp down
                           attention: 4 T s D / t FLOPs; plain: its scores pass through memory 11 times
                           norms, dropouts and residual sums: bytes of T' D;   the mlp's inner: bytes of T F / t
                           2 all-reduces of T D over the team (a reduce-scatter and an all-gather are as long)
    backward               two products for each of the forward's; collectives beside the weights' gradients
    recompute              selective: attention's core again; full: the forward again, its collectives included
    head                   product with the vocabulary, and the fp32 logits through memory

Sources: roofline, Williams et al. 2009; passes over memory counted from the kernels that Megatron-LM fuses.
"""

from dataclasses import dataclass

from raymega.config.dims import Dims
from raymega.plan.activations import RecomputeKind, kv_width
from raymega.plan.collectives import Ring, all_reduce_s, half_ring_s
from raymega.plan.fitted import Constants
from raymega.plan.hardware import Device, Links
from raymega.plan.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSeconds:
    """Seconds of one micro-batch on one part of the model: what is computed, and the team's collectives on top.

    Args:
        weights_s: of the backward, the products for the weights' gradients, which can be put off.
        hidden_exchange_s: of the backward's collectives, what those products hide where they are not put off.
    """

    forward_s: float
    backward_s: float
    forward_exchange_s: float = 0.0
    backward_exchange_s: float = 0.0
    weights_s: float = 0.0
    hidden_exchange_s: float = 0.0

    def __add__(self, other: "PassSeconds") -> "PassSeconds":
        return PassSeconds(
            forward_s=self.forward_s + other.forward_s,
            backward_s=self.backward_s + other.backward_s,
            forward_exchange_s=self.forward_exchange_s + other.forward_exchange_s,
            backward_exchange_s=self.backward_exchange_s + other.backward_exchange_s,
            weights_s=self.weights_s + other.weights_s,
            hidden_exchange_s=self.hidden_exchange_s + other.hidden_exchange_s,
        )

    def times(self, count: int) -> "PassSeconds":
        return PassSeconds(
            forward_s=count * self.forward_s,
            backward_s=count * self.backward_s,
            forward_exchange_s=count * self.forward_exchange_s,
            backward_exchange_s=count * self.backward_exchange_s,
            weights_s=count * self.weights_s,
            hidden_exchange_s=count * self.hidden_exchange_s,
        )

    def exchange_s(self, *, splits: bool) -> float:
        """Collectives that are seen; `splits`: backwards are in two parts."""
        return self.forward_exchange_s + self.backward_exchange_s + self.hidden_exchange_s * splits

    @property
    def total_s(self) -> float:
        """With whole backwards."""
        return self.forward_s + self.backward_s + self.exchange_s(splits=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamSite:
    """What a team computes on: its devices, the ring they form, how micro-batches are cut over them."""

    job: Job
    device: Device
    links: Links
    ring: Ring
    constants: Constants
    microbatch_size: int
    sequence_parallel: bool

    @property
    def tokens(self) -> int:
        return self.microbatch_size * self.job.seq_len

    @property
    def own(self) -> float:
        """Tokens of a shard between the regions that tensor parallelism cuts."""
        return self.tokens / self.ring.members if self.sequence_parallel else self.tokens

    def product_s(self, m: float, k: float, n: float) -> float:
        """A matrix product [m, k] [k, n]."""
        flops_s = 2 * m * k * n / (self.device.flops_per_s[self.job.precision] * self.constants.matmul_share)
        return flops_s + self.memory_s(self.job.element_bytes * (m * k + k * n + m * n))

    def memory_s(self, num_bytes: float) -> float:
        return num_bytes / (self.device.memory_bytes_per_s * self.constants.memory_share)


def layer_seconds(site: TeamSite, *, recompute: RecomputeKind) -> PassSeconds:
    """One layer and micro-batch; `recompute` none, selective or full."""
    forward = _matrices_forward_s(site) + _core_s(site, score_bytes=11, flops=1) + _rows_s(site, 10) + _inner_s(site, 2)
    backward = (
        _matrices_backward_s(site) + _core_s(site, score_bytes=19, flops=2) + _rows_s(site, 12) + _inner_s(site, 3)
    )
    exchange, exchange_back, hidden = _layer_exchange(site)
    if recompute == "selective":
        backward += _core_s(site, score_bytes=11, flops=1)
    if recompute == "full":
        backward, exchange_back = backward + forward, exchange_back + exchange
    return PassSeconds(
        forward_s=forward,
        backward_s=backward,
        forward_exchange_s=exchange,
        backward_exchange_s=exchange_back,
        weights_s=_weights_s(site),
        hidden_exchange_s=hidden,
    )


def embedding_seconds(site: TeamSite) -> PassSeconds:
    """Looking up a micro-batch's tokens, and adding to their rows; the team sums what each shard found."""
    one = site.memory_s(2 * site.job.element_bytes * site.tokens * site.job.model.hidden_size)
    exchange = _team_sum_s(site)
    return PassSeconds(
        forward_s=one, backward_s=one, forward_exchange_s=exchange, backward_exchange_s=0.0
    )  # a gradient has nothing to sum


def head_seconds(site: TeamSite) -> PassSeconds:
    """The output matrix and the loss of a micro-batch."""
    hidden, vocab = site.job.model.hidden_size, -(-site.job.dims.vocab // site.ring.members)
    logits = site.memory_s(4 * site.tokens * vocab)
    exchange, exchange_back, hidden_exchange = _layer_exchange(site)
    weights = site.product_s(hidden, site.tokens, vocab)
    return PassSeconds(
        forward_s=site.product_s(site.tokens, hidden, vocab) + 3 * logits,
        backward_s=site.product_s(site.tokens, vocab, hidden) + weights + 3 * logits,
        forward_exchange_s=exchange / 2 if site.sequence_parallel else 0.0,
        backward_exchange_s=exchange_back / 2,
        weights_s=weights,
        hidden_exchange_s=hidden_exchange / 2,
    )


def update_bytes(job: Job, *, share: float) -> float:
    """Bytes of each parameter that norm, clipping and update pass through memory; `share`: of its state, here."""
    gradient = job.software.gradient_bytes
    update = {"adamw": 7, "sgd": 3}[job.optimizer] * 4 + (job.element_bytes if job.precision != "fp32" else 0)
    always = 2 * gradient + (2 * gradient if job.software.reduces_out_of_place else 0)  # norm, clearing; copy
    return update * share + always


def _products(site: TeamSite) -> tuple[tuple[float, float, float], ...]:
    """[m, k] [k, n] of the matrices of a layer."""
    dims, tp = site.job.dims, site.ring.members
    width, ffn = dims.heads * dims.head_size / tp, dims.ffn / tp
    up = 2 * ffn if site.job.model.kind == "llama" else ffn
    return (
        (site.tokens, dims.hidden, width + 2 * kv_width(dims, tp=tp)),
        (site.tokens, width, dims.hidden),
        (site.tokens, dims.hidden, up),
        (site.tokens, ffn, dims.hidden),
    )


def _matrices_forward_s(site: TeamSite) -> float:
    return sum(site.product_s(m, k, n) for m, k, n in _products(site))


def _matrices_backward_s(site: TeamSite) -> float:
    return sum(site.product_s(m, n, k) for m, k, n in _products(site)) + _weights_s(site)


def _weights_s(site: TeamSite) -> float:
    return sum(site.product_s(k, m, n) for m, k, n in _products(site))


def _core_s(site: TeamSite, *, score_bytes: int, flops: int) -> float:
    """Attention between its matrices; `score_bytes` pass through memory for each score of 2 bytes that lies there."""
    dims, tp, job = site.job.dims, site.ring.members, site.job
    work = flops * 4 * site.tokens * job.seq_len * dims.heads * dims.head_size / tp
    work_s = work / (site.device.flops_per_s[job.precision] * site.constants.matmul_share)
    scores = site.tokens * job.seq_len * dims.heads / tp * job.element_bytes / 2
    return work_s + (site.memory_s(score_bytes * scores) if job.software.attention == "plain" else 0.0)


def _rows_s(site: TeamSite, passes: int) -> float:
    """What touches every token's whole row: norms, dropouts, residual sums."""
    masks = 2 if site.job.keeps_masks else 0
    return site.memory_s(site.own * site.job.model.hidden_size * (passes * site.job.element_bytes + masks))


def _inner_s(site: TeamSite, passes: int) -> float:
    """What touches the mlp's inner elements, and moves queries, keys and values into place."""
    dims, tp, e = site.job.dims, site.ring.members, site.job.element_bytes
    inner = dims.ffn / tp * (1.5 if site.job.model.kind == "llama" else 1)
    return site.memory_s(site.tokens * e * (passes * inner + 2 * _qkv(dims, tp)))


def _qkv(dims: Dims, tp: int) -> float:
    return dims.heads * dims.head_size / tp + 2 * kv_width(dims, tp=tp)


def _team_sum_s(site: TeamSite) -> float:
    num_bytes = site.tokens * site.job.model.hidden_size * site.job.element_bytes
    return all_reduce_s(num_bytes, ring=site.ring, links=site.links, constants=site.constants)


def _layer_exchange(site: TeamSite) -> tuple[float, float, float]:
    """Collectives of a layer: seen in the forward, and in the backward, and what of that is hidden.

    Under sequence parallelism the input is gathered again for its weights.
    """
    both = 2 * _team_sum_s(site)
    seen = site.constants.exposed_share if site.job.software.overlaps_collectives else 1.0
    if not site.sequence_parallel:
        return both, seen * both, (1 - seen) * both
    num_bytes = site.tokens * site.job.model.hidden_size * site.job.element_bytes
    again = 2 * half_ring_s(num_bytes, ring=site.ring, links=site.links, constants=site.constants)
    return both, seen * (both + again), (1 - seen) * (both + again)
