"""Bytes that a layer keeps from its forward to its backward, for one micro-batch on one shard.

    T = b s tokens    D hidden    a heads, g kv heads of K    F inner size    e bytes an element    t = tp
    T' = T / t under sequence parallelism, else T

    what                              bytes                           recompute
    norms' inputs, 2                  2 e T' D                        full
    inputs of qkv and mlp             2 e T' D                        full
    queries, keys, values             e T (a + 2 g) K / t             full
    queries and keys, rotated         e T (a + g) K / t               full, selective        llama only
    scores (plain attention)          e a s T / t                     full, selective
    their dropout: output and mask    (e + 1) a s T / t               full, selective
    attention's output                e T a K / t                     full
    mlp's inner                       2 e T F / t (gelu: in, out)     3 e T F / t (swiglu: gate, up, product)      full
    two dropout masks                 2 T' D                          full

    full recompute keeps the layer's input only: e T' D

With a = g, F = 4 D and e = 2 that is s b h (10 + 24 / t + 5 a s / (h t)), table 2 of Korthikanti et al. 2022
(arXiv 2205.05198). Statistics of norms, one or two numbers a row, are left out: below 1 %.
"""

from typing import Literal

from raymega.config.dims import Dims
from raymega.plan.job import Job

FP32 = 4
RecomputeKind = Literal["none", "selective", "full"]


def layer_activation_bytes(
    job: Job,
    *,
    microbatch_size: int,
    tp: int,
    sequence_parallel: bool,
    recompute: RecomputeKind = "none",
) -> float:
    """Bytes kept of one layer and micro-batch; see above."""
    dims, e = job.dims, job.element_bytes
    tokens = microbatch_size * job.seq_len
    own = tokens / tp if sequence_parallel else tokens
    if recompute == "full":
        return e * own * dims.hidden
    width = dims.heads * dims.head_size
    kept = 4 * e * own * dims.hidden
    kept += e * tokens * (width / tp + 2 * kv_width(dims, tp=tp))
    kept += e * tokens * width / tp
    if job.model.kind == "llama" and recompute == "none":
        kept += e * tokens * (width / tp + kv_width(dims, tp=tp))
    kept += e * tokens * dims.ffn / tp * (3 if job.model.kind == "llama" else 2)
    if job.keeps_masks:
        kept += 2 * own * dims.hidden
    return kept + (core_bytes(job, microbatch_size=microbatch_size, tp=tp) if recompute == "none" else 0)


def owed_layer_bytes(job: Job, *, microbatch_size: int, tp: int, sequence_parallel: bool) -> float:
    """Bytes that a layer keeps between the two parts of its backward: of each product, input and output gradient.

    Recomputed or not, since the first part has made what it lacked.
    """
    dims, e = job.dims, job.element_bytes
    tokens = microbatch_size * job.seq_len
    own = tokens / tp if sequence_parallel else tokens
    width, inner = dims.heads * dims.head_size / tp, dims.ffn / tp
    inputs = 2 * own * dims.hidden + tokens * (width + inner)
    grads = tokens * (width + 2 * kv_width(dims, tp=tp) + inner * (2 if job.model.kind == "llama" else 1))
    return e * (inputs + grads + 2 * tokens * dims.hidden)


def core_bytes(job: Job, *, microbatch_size: int, tp: int) -> float:
    """Bytes that attention's core keeps, which selective recomputation saves: its scores, or their row sums."""
    dims, e = job.dims, job.element_bytes
    rows = microbatch_size * job.seq_len * dims.heads / tp
    if job.software.attention == "fused":
        return FP32 * rows
    return rows * job.seq_len * (e + (e + 1 if job.keeps_masks else 0))


def kv_width(dims: Dims, *, tp: int) -> float:
    """Elements of the keys of one token on one shard; with fewer heads than shards each still has one."""
    return max(1, dims.kv_heads // tp) * dims.head_size


def boundary_bytes(job: Job, *, microbatch_size: int, tp: int, sequence_parallel: bool) -> float:
    """Bytes of what one micro-batch sends from stage to stage, on one shard."""
    whole = microbatch_size * job.seq_len * job.model.hidden_size * job.element_bytes
    return whole / tp if sequence_parallel else whole
