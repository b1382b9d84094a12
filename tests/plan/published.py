"""Published runs on A100 80 GB, and how the trainer that made them computed."""

from dataclasses import replace

from raymega.config.schema import ModelConfig
from raymega.mesh import Mesh
from raymega.plan.cluster_presets import cluster_of
from raymega.plan.job import Job, Software
from raymega.plan.parallel_layout import ParallelLayout, Recompute
from raymega.plan.predict import StepPrediction, predict_layout
from raymega.plan.stages import balanced_layers

MEGATRON_2022 = Software(
    attention="plain",
    keeps_masks=True,
    overlaps_messages=False,
    sends_early=False,
    scatters_messages=True,
    reduces_out_of_place=False,
    logs_boundaries=False,
)
# Before its backward overlapped the collectives of a team; gradients are summed in fp16.
MEGATRON_2021 = replace(MEGATRON_2022, overlaps_collectives=False, gradient_bytes=2)


def gpt(*, hidden: int, layers: int, heads: int) -> ModelConfig:
    return ModelConfig(
        kind="gpt2", hidden_size=hidden, num_layers=layers, num_attention_heads=heads, vocab_size=51200,
        tie_embeddings=True, dropout=0.1,
    )  # fmt: skip


GPT_22B = gpt(hidden=6144, layers=48, heads=64)
GPT_175B = gpt(hidden=12288, layers=96, heads=96)


def job(model: ModelConfig, *, batch: int, software: Software = MEGATRON_2022) -> Job:
    return Job(model=model, seq_len=2048, batch_size=batch, precision="fp16", software=software)


def layout(
    *, model: ModelConfig, mesh: Mesh, microbatch: int, chunks: int = 1, recompute: Recompute = "none",
    sequence_parallel: bool = False,
) -> ParallelLayout:  # fmt: skip
    return ParallelLayout(
        mesh=mesh,
        layers=balanced_layers(model.num_layers, num_stages=mesh.pp * chunks),
        microbatch_size=microbatch,
        schedule="interleaved" if chunks > 1 else "1f1b",
        recompute=recompute,
        sequence_parallel=sequence_parallel,
    )


def on_dgx_a100(made: ParallelLayout, *, job: Job) -> StepPrediction:
    return predict_layout(made, job=job, cluster=cluster_of(f"dgx-a100:{-(-made.mesh.size // 8)}"))
