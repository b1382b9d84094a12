"""Two counts of one thing: the bytes of `plan.memory`, and the boxes that `layout` lets a rank hold."""

from math import prod
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.config.schema import ModelConfig
from raymega.layout.param_layout import holdings, param_specs
from raymega.mesh import Coord, Mesh
from raymega.plan.job import Job
from raymega.plan.memory import memory_by_stage
from raymega.plan.parallel_layout import layout_of
from raymega.plan.plan import Plan, ShardOptimizer, straight_routes
from raymega.plan.stages import balanced_layers

SEQ_LEN = 16


@given(
    kind=st.sampled_from(["llama", "gpt2"]),
    tied=st.booleans(),
    tp=st.sampled_from([1, 2, 4]),
    pp=st.integers(1, 3),
    chunks=st.integers(1, 2),
    kv_heads=st.sampled_from([1, 2, 4]),
    vocab=st.integers(20, 40),
)
@settings(max_examples=60, deadline=None)
def test_weights_gradients_and_moments_are_the_boxes_of_the_first_shard(
    kind: str, tied: bool, tp: int, pp: int, chunks: int, kv_heads: int, vocab: int
) -> None:
    model = ModelConfig(
        kind=kind, hidden_size=16, num_layers=7, num_attention_heads=4, ffn_size=48, vocab_size=vocab,
        num_key_value_heads=4 if kind == "gpt2" else kv_heads, tie_embeddings=tied, qk_norm=kind == "llama",
    )  # fmt: skip
    mesh = Mesh(dp=1, pp=pp, tp=tp)
    plan = Plan(
        mesh=mesh,
        workers=tuple(f"w{rank}" for rank in range(mesh.size)),
        layers=balanced_layers(7, num_stages=pp * chunks),
        routes=straight_routes(num_microbatches=4, mesh=mesh),
        microbatch_size=2,
        schedule="interleaved",
    )
    held = holdings(param_specs(model, seq_len=SEQ_LEN), plan)
    needs = memory_by_stage(Job(model=model, seq_len=SEQ_LEN, batch_size=8), layout_of(plan))
    for stage, need in enumerate(needs):
        elements = sum(part.box.num_elements for part in held[mesh.rank(Coord(0, stage, 0))])
        assert (need.weights, need.gradients, need.moments) == (4 * elements, 4 * elements, 8 * elements)


@given(
    kind=st.sampled_from(["zero1", "mirrored"]),
    precision=st.sampled_from(["fp32", "bf16"]),
    dp=st.integers(1, 5),
    tp=st.sampled_from([1, 2]),
    pp=st.integers(1, 2),
)
@settings(max_examples=30, deadline=None)
def test_masters_and_moments_are_the_pieces_that_a_replica_holds(
    kind: ShardOptimizer, precision: Literal["fp32", "bf16"], dp: int, tp: int, pp: int
) -> None:
    model = ModelConfig(
        hidden_size=16, num_layers=4, num_attention_heads=4, num_key_value_heads=2, ffn_size=48, vocab_size=32
    )
    mesh = Mesh(dp=dp, pp=pp, tp=tp)
    plan = Plan(
        mesh=mesh, workers=tuple(f"w{rank}" for rank in range(mesh.size)), layers=balanced_layers(4, num_stages=pp),
        routes=straight_routes(num_microbatches=5, mesh=mesh), microbatch_size=1, shard_optimizer=kind,
    )  # fmt: skip
    held = holdings(param_specs(model, seq_len=SEQ_LEN), plan)
    job = Job(model=model, seq_len=SEQ_LEN, batch_size=5, precision=precision)
    for stage, need in enumerate(memory_by_stage(job, layout_of(plan))):
        ranks = plan.ring(stage=stage, shard=0)
        elements = [sum(part.box.num_elements for part in held[rank]) for rank in ranks]
        assert need.moments * dp == pytest.approx(8 * sum(elements))
        assert need.masters * dp == pytest.approx(4 * sum(elements))
        rows = sum(prod(spec.shape[1:]) for spec in param_specs(model, seq_len=SEQ_LEN))
        assert max(elements) - min(elements) <= 2 * rows
