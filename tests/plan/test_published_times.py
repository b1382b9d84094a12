"""Predicted against published seconds; the constants are fitted on the 22B layer table alone."""

import pytest

from raymega.mesh import Mesh
from raymega.plan.cluster_presets import MACHINES
from raymega.plan.collectives import Ring
from raymega.plan.cost import TeamSite, layer_seconds
from raymega.plan.fitted import PUBLISHED
from raymega.plan.hardware import DEVICES
from tests.plan.published import GPT_22B, GPT_175B, MEGATRON_2021, gpt, job, layout, on_dgx_a100

# Korthikanti et al. 2022 (arXiv 2205.05198), table 4: forward and backward of one layer, ms.
LAYER_MS = {
    ("none", False): (7.7, 11.9),
    ("none", True): (7.2, 11.8),
    ("full", False): (7.7, 19.5),
    ("selective", False): (7.7, 13.2),
    ("selective", True): (7.2, 13.1),
}
# The same, table 5: seconds of an iteration. Model, mesh, chunks, batch, micro-batch.
MESH_22B, MESH_175B = Mesh(dp=1, tp=8, pp=1), Mesh(dp=1, tp=8, pp=8)
ITERATION_S = (
    (GPT_22B, MESH_22B, 1, 4, 4, "full", False, 1.42),
    (GPT_22B, MESH_22B, 1, 4, 4, "selective", True, 1.10),
    (GPT_175B, MESH_175B, 3, 64, 1, "full", False, 18.13),
    (GPT_175B, MESH_175B, 3, 64, 1, "selective", True, 13.75),
)
# Narayanan et al. 2021 (arXiv 2104.04473), table 1: hidden, layers, heads, tp, pp, dp, batch, TFLOP/s a device.
WEAK_SCALING = (
    (2304, 24, 24, 1, 1, 32, 512, 137),
    (3072, 30, 32, 2, 1, 32, 512, 138),
    (4096, 36, 32, 4, 1, 32, 512, 142),
    (6144, 40, 48, 8, 1, 32, 1024, 135),
    (8192, 48, 64, 8, 2, 32, 1536, 138),
    (10240, 60, 80, 8, 4, 32, 1792, 140),
    (12288, 80, 96, 8, 8, 24, 2304, 148),
    (16384, 96, 128, 8, 16, 15, 2160, 155),
    (20480, 105, 128, 8, 35, 9, 2520, 163),
    (25600, 128, 160, 8, 64, 6, 3072, 163),
)


def test_the_layer_table_is_met_by_the_fitted_constants() -> None:
    dgx = MACHINES["dgx-a100"]
    errors = []
    for (recompute, sequence_parallel), (forward_ms, backward_ms) in LAYER_MS.items():
        site = TeamSite(
            job=job(GPT_22B, batch=4), device=DEVICES["a100-80g"], links=dgx.links, ring=Ring(members=8, per_node=8),
            constants=PUBLISHED, microbatch_size=4, sequence_parallel=sequence_parallel,
        )  # fmt: skip
        found = layer_seconds(site, recompute=recompute)
        errors.append((found.forward_s + found.forward_exchange_s) * 1e3 / forward_ms - 1)
        errors.append((found.backward_s + found.backward_exchange_s) * 1e3 / backward_ms - 1)
    assert max(map(abs, errors)) < 0.015


def test_iterations_of_22b_and_175b_are_predicted_from_the_layer_table() -> None:
    errors = []
    for model, mesh, chunks, batch, microbatch, recompute, sequence_parallel, published_s in ITERATION_S:
        made = layout(
            model=model, mesh=mesh, microbatch=microbatch, chunks=chunks, recompute=recompute,
            sequence_parallel=sequence_parallel,
        )  # fmt: skip
        errors.append(abs(on_dgx_a100(made, job=job(model, batch=batch)).step_s / published_s - 1))
    assert sum(errors) / len(errors) <= 0.04
    assert max(errors) <= 0.08


def achieved_tflops(row: tuple[int, ...]) -> float:
    """Of the best layout that fits: micro-batch and chunks are not published."""
    hidden, layers, heads, tp, pp, dp, batch, _ = row
    model, mesh = gpt(hidden=hidden, layers=layers, heads=heads), Mesh(dp=dp, tp=tp, pp=pp)
    step_s = min(
        found.step_s
        for microbatch in (1, 2, 4, 8, 16)
        for chunks in (1, 2)
        if batch % (microbatch * dp) == 0
        and layers % (pp * chunks) == 0
        and (chunks == 1 or (pp > 1 and batch // (microbatch * dp) % pp == 0))
        for found in [
            on_dgx_a100(
                layout(model=model, mesh=mesh, microbatch=microbatch, chunks=chunks, recompute="full"),
                job=job(model, batch=batch, software=MEGATRON_2021),
            )
        ]
        if found.fits
    )
    flops = 96 * batch * 2048 * layers * hidden**2 * (1 + 2048 / (6 * hidden) + 51200 / (16 * layers * hidden))
    return flops / step_s / mesh.size / 1e12


def test_weak_scaling_to_a_trillion_parameters_is_predicted() -> None:
    errors = [achieved_tflops(row) / row[-1] - 1 for row in WEAK_SCALING]
    assert sum(map(abs, errors)) / len(errors) <= 0.08


@pytest.mark.parametrize("row", WEAK_SCALING[:5], ids=lambda row: str(row[0]))
def test_no_row_of_weak_scaling_is_far_off(row: tuple[int, ...]) -> None:
    assert achieved_tflops(row) == pytest.approx(row[-1], rel=0.12)
