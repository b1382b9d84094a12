"""Activation bytes against table 2 and figure 7 of Korthikanti et al. 2022 (arXiv 2205.05198)."""

import pytest

from raymega.config.schema import ModelConfig
from raymega.mesh import Mesh
from raymega.model_shape import parameter_count
from raymega.plan.activations import RecomputeKind, core_bytes, layer_activation_bytes
from raymega.plan.memory import memory_by_stage
from tests.plan.published import GPT_22B, GPT_175B, job, layout

MIB, GIB = 2**20, 2**30
MICROBATCH = {"22B": 4, "175B": 1}
MODELS = {"22B": GPT_22B, "175B": GPT_175B}
FORMULA_MIB = (  # (tp, sequence parallel, recompute) -> a layer of 22B, of 175B
    (1, False, "none", 6752, 2736),
    (8, False, "none", 1264, 552),
    (8, True, "none", 844, 342),
    (8, False, "selective", 624, 312),
    (8, True, "selective", 204, 102),
    (8, False, "full", 96, 48),
)
FIGURE_7 = (  # (sequence parallel, recompute) -> % of tensor parallelism alone, 22B, 175B
    (True, "none", 66.84, 62.04),
    (False, "selective", 49.42, 56.53),
    (True, "selective", 16.18, 18.49),
    (False, "full", 7.64, 8.71),
)


def layer_bytes(name: str, *, tp: int, sequence_parallel: bool, recompute: RecomputeKind) -> float:
    made = job(MODELS[name], batch=64)
    return layer_activation_bytes(
        made, microbatch_size=MICROBATCH[name], tp=tp, sequence_parallel=sequence_parallel, recompute=recompute
    )


@pytest.mark.parametrize(("tp", "sequence_parallel", "recompute", "small", "large"), FORMULA_MIB)
def test_a_layer_keeps_what_the_formula_says(
    tp: int, sequence_parallel: bool, recompute: RecomputeKind, small: float, large: float
) -> None:
    for name, mib in (("22B", small), ("175B", large)):
        assert layer_bytes(name, tp=tp, sequence_parallel=sequence_parallel, recompute=recompute) == mib * MIB


def test_figure_7_is_met_within_two_percent_on_average() -> None:
    errors = []
    for sequence_parallel, recompute, *published in FIGURE_7:
        for name, percent in zip(MODELS, published, strict=True):
            base = layer_bytes(name, tp=8, sequence_parallel=False, recompute="none")
            found = layer_bytes(name, tp=8, sequence_parallel=sequence_parallel, recompute=recompute)
            errors.append(abs(100 * found / base / percent - 1))
    assert sum(errors) / len(errors) <= 0.02


@pytest.mark.parametrize(
    ("tp", "sequence_parallel", "recompute", "gib_22b", "gib_175b"),
    [
        (8, False, "none", 59.25, 51.75),
        (8, True, "none", 39.5625, 32.0625),
        (8, False, "selective", 29.25, 29.25),
        (8, True, "selective", 9.5625, 9.5625),
        (8, False, "full", 4.5, 4.5),
    ],
)
def test_the_first_stage_keeps_as_many_layers_as_the_model_has(
    tp: int, sequence_parallel: bool, recompute: RecomputeKind, gib_22b: float, gib_175b: float
) -> None:
    for name, pp, gib in (("22B", 1, gib_22b), ("175B", 8, gib_175b)):
        made = layout(
            model=MODELS[name], mesh=Mesh(dp=1, pp=pp, tp=tp), microbatch=MICROBATCH[name], recompute=recompute,
            sequence_parallel=sequence_parallel,
        )  # fmt: skip
        batch = MICROBATCH[name] * 64
        assert memory_by_stage(job(MODELS[name], batch=batch), made)[0].activations == gib * GIB


@pytest.mark.parametrize(("name", "devices"), [("22B", 8), ("175B", 64)])
def test_parameters_and_optimizer_of_figure_1_take_18_bytes_each(name: str, devices: int) -> None:
    model = MODELS[name]
    matrices = 12 * model.num_layers * model.hidden_size**2
    assert matrices / devices * 18 == 45.5625 * GIB
    assert parameter_count(model, seq_len=2048).total == pytest.approx(matrices, rel=0.02)


def test_a_llama_keeps_a_third_inner_tensor_and_what_it_rotated() -> None:
    made = job(ModelConfig(hidden_size=64, num_attention_heads=4, ffn_size=160, vocab_size=100), batch=4)
    plain, again = (
        layer_activation_bytes(made, microbatch_size=1, tp=1, sequence_parallel=False, recompute=kind)
        for kind in ("none", "selective")
    )
    assert again == 2 * 2048 * (4 * 64 + 3 * 64 + 64 + 3 * 160)
    assert plain - again == 2 * 2048 * 2 * 64 + core_bytes(made, microbatch_size=1, tp=1)
