"""How many parameters a model has, how many FLOPs a token costs, how many bytes they take: from its config alone.

    D hidden    H heads of K elements    G kv heads    F inner size of the mlp    V vocabulary    L blocks    T sequence

    matrix products of one block, forward, for one token       (2 FLOPs a multiply-add)
      queries, output          2 * 2 D H K
      keys, values             2 * 2 D G K
      scores, weighted values  2 * 2 H K T          over the whole sequence, as if nothing were masked
      mlp                      3 * 2 D F (llama: gate, up, down)       2 * 2 D F (gpt2)
    and of the output head     2 D V                tied or not; looking up an embedding is no product

Backward costs twice the forward: one product for the input's gradient, one for the weight's. Attention counts the full
T x T square, as Narayanan et al. 2021 (arXiv 2104.04473, section 5.1) and Chowdhery et al. 2022 (arXiv 2204.02311,
appendix B) do, although a causal kernel may skip half of it. Recomputation is not counted: model FLOPs are what the
model asks for, not what a run spends. Norms, rotations, softmax and the optimizer are left out, as is usual.
"""

from dataclasses import dataclass, replace
from typing import Literal

from raymega.config.dims import Dims, dims_of
from raymega.config.schema import ModelConfig

FP32_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCount:
    """Elements by part; a tied output head is counted with the embedding."""

    embedding: int
    block: int
    blocks: int
    final_norm: int
    head: int

    @property
    def total(self) -> int:
        return self.embedding + self.block * self.blocks + self.final_norm + self.head


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFlops:
    """Model FLOPs of one token, in matrix products."""

    block: int
    blocks: int
    head: int

    @property
    def forward(self) -> int:
        return self.block * self.blocks + self.head

    @property
    def backward(self) -> int:
        return 2 * self.forward

    @property
    def total(self) -> int:
        """Forward and backward: what a trained token costs."""
        return self.forward + self.backward


def parameter_count(model: ModelConfig, *, seq_len: int) -> ParameterCount:
    """Count the elements of every parameter, unpadded; `seq_len` is the number of learned positions (gpt2)."""
    dims = dims_of(model)
    vocabulary = dims.vocab * dims.hidden
    positions = seq_len * dims.hidden if model.kind == "gpt2" else 0
    return ParameterCount(
        embedding=vocabulary + positions,
        block=_block_matrices(model, dims) + _block_vectors(model, dims),
        blocks=dims.layers,
        final_norm=_norm(model, dims),
        head=0 if model.tie_embeddings else vocabulary,
    )


def local_parameter_count(model: ModelConfig, *, seq_len: int, tp: int) -> ParameterCount:
    """Count what the first shard of a team of `tp` holds, unpadded: no other holds more.

    Args:
        tp: divides heads and inner size; kv heads that are fewer are held by several shards.
    """
    dims = dims_of(model)
    vocabulary = -(-dims.vocab // tp) * dims.hidden
    positions = seq_len * dims.hidden if model.kind == "gpt2" else 0
    local = replace(dims, heads=dims.heads // tp, kv_heads=max(1, dims.kv_heads // tp), ffn=dims.ffn // tp)
    return ParameterCount(
        embedding=vocabulary + positions,
        block=_block_matrices(model, local) + _block_vectors(model, local),
        blocks=dims.layers,
        final_norm=_norm(model, dims),
        head=0 if model.tie_embeddings else vocabulary,
    )


def token_flops(model: ModelConfig, *, seq_len: int) -> TokenFlops:
    """Count the FLOPs of one token of a sequence of `seq_len`."""
    dims = dims_of(model)
    scores = 2 * dims.heads * dims.head_size * seq_len  # multiply-adds of scores and of weighted values
    return TokenFlops(
        block=2 * (_block_matrices(model, dims) + scores), blocks=dims.layers, head=2 * dims.hidden * dims.vocab
    )


def state_bytes(parameters: int, *, optimizer: Literal["sgd", "adamw"]) -> int:
    """Bytes of weights, accumulated gradients and optimizer moments in fp32: 16 a parameter with adamw, 8 with sgd."""
    moments = {"sgd": 0, "adamw": 2}[optimizer]
    return parameters * FP32_BYTES * (1 + 1 + moments)


def checkpoint_bytes(parameters: int, *, optimizer: Literal["sgd", "adamw"]) -> int:
    """Bytes of weights and optimizer moments in fp32; gradients are not kept."""
    return state_bytes(parameters, optimizer=optimizer) - parameters * FP32_BYTES


def boundary_bytes(model: ModelConfig, *, micro_batch_size: int, seq_len: int) -> int:
    """Bytes of the tensor that one micro-batch sends from stage to stage, either way, before any cut over tp."""
    return micro_batch_size * seq_len * model.hidden_size * FP32_BYTES


def _block_matrices(model: ModelConfig, dims: Dims) -> int:
    attention = 2 * dims.hidden * (dims.heads + dims.kv_heads) * dims.head_size
    return attention + (3 if model.kind == "llama" else 2) * dims.hidden * dims.ffn


def _block_vectors(model: ModelConfig, dims: Dims) -> int:
    """Norms and, in gpt2, biases of queries, keys, values, output and the two matrices of the mlp."""
    norms = 2 * _norm(model, dims) + (2 * dims.head_size if model.qk_norm else 0)
    if model.kind == "llama":
        return norms
    return norms + (dims.heads + 2 * dims.kv_heads) * dims.head_size + dims.hidden + dims.ffn + dims.hidden


def _norm(model: ModelConfig, dims: Dims) -> int:
    return dims.hidden * (1 if model.kind == "llama" else 2)
