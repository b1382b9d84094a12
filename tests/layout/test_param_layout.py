from collections import Counter
from dataclasses import replace
from itertools import pairwise
from math import prod

import pytest

from raymega.config.schema import ModelConfig
from raymega.layout.param_layout import holdings, is_tied, param_specs, specs_of_stage, stage_specs
from raymega.layout.shard_box import Box, uncovered
from raymega.mesh import Mesh
from raymega.plan.plan import Plan, straight_routes

TINY = {
    "hidden_size": 96, "num_layers": 10, "num_attention_heads": 12, "num_key_value_heads": 4, "ffn_size": 160,
    "vocab_size": 97,
}  # fmt: skip


def specs_of(**facts):
    return param_specs(ModelConfig(**{**TINY, **facts}), seq_len=24)


def plan_of(*, dp, pp, tp, layers):
    mesh = Mesh(dp=dp, pp=pp, tp=tp)
    return Plan(
        mesh=mesh, workers=tuple(f"w{r}" for r in range(mesh.size)), layers=layers, microbatch_size=1,
        routes=straight_routes(num_microbatches=4, mesh=mesh),
    )  # fmt: skip


def test_names_are_unique_and_llama_has_the_parameters_of_its_formula():
    specs = specs_of()
    block = 96 * (96 + 2 * 32 + 96) + 3 * 96 * 160 + 2 * 96
    assert len({spec.name for spec in specs}) == len(specs)
    assert sum(prod(spec.shape) for spec in specs) == 2 * 97 * 96 + 10 * block + 96


def test_gpt2_adds_positions_and_biases_and_decays_only_matrices():
    specs = {spec.name: spec for spec in specs_of(kind="gpt2", tie_embeddings=True)}
    assert specs["embed.positions"].shape == (24, 96)
    assert specs["layers.9.attn.bk"].cut == "kv_heads"
    assert specs["layers.9.mlp.down_bias"].cut == "none"
    assert {name for name in specs if "bias" in name or ".b" in name or "norm" in name} == {
        name for name, spec in specs.items() if not spec.decays
    }


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize(("pp", "tp"), [(1, 1), (1, 2), (2, 1), (2, 4), (4, 2)])
def test_counted_holdings_of_a_replica_are_the_model_once(kind, tie, pp, tp):
    specs = specs_of(kind=kind, tie_embeddings=tie)
    borders = [round(i * 10 / pp) for i in range(pp + 1)]
    plan = plan_of(dp=2, pp=pp, tp=tp, layers=tuple(pairwise(borders)))
    held = holdings(specs, plan)
    for replica in range(2):
        ranks = [rank for rank in range(plan.mesh.size) if plan.mesh.coord(rank).replica == replica]
        counted = [(h.name, h.box) for rank in ranks for h in held[rank] if h.counted]
        assert len(set(counted)) == len(counted)
        assert sum(box.num_elements for _, box in counted) == sum(prod(spec.shape) for spec in specs)


@pytest.mark.parametrize("shard_optimizer", ["zero1", "mirrored"])
@pytest.mark.parametrize(("dp", "pp", "tp"), [(2, 1, 1), (3, 2, 2), (7, 1, 1), (120, 1, 1)])
def test_pieces_are_the_model_once_and_on_so_many_replicas(dp, pp, tp, shard_optimizer):
    specs = specs_of(tie_embeddings=True)
    borders = [round(i * 10 / pp) for i in range(pp + 1)]
    plan = replace(plan_of(dp=dp, pp=pp, tp=tp, layers=tuple(pairwise(borders))), shard_optimizer=shard_optimizer)
    counted = Counter((h.name, h.box) for held in holdings(specs, plan) for h in held if h.counted)
    assert set(counted.values()) == {1 if shard_optimizer == "zero1" else 2}
    for spec in specs:
        boxes = [box for name, box in counted if name == spec.name]
        assert not uncovered(Box.whole(spec.shape), by=sorted(boxes))
        assert sum(box.num_elements for box in boxes) == prod(spec.shape)


def test_a_tied_matrix_lives_on_both_ends_and_counts_on_the_first():
    specs = specs_of(tie_embeddings=True)
    held = holdings(specs, plan_of(dp=1, pp=2, tp=1, layers=((0, 5), (5, 10))))
    assert is_tied(specs)
    assert [[h.counted for h in rank if h.name == "embed.tokens"] for rank in held] == [[True], [False]]


def test_chunks_of_an_interleaved_plan_hold_their_own_blocks():
    specs = specs_of()
    plan = plan_of(dp=1, pp=2, tp=1, layers=((0, 3), (3, 5), (5, 8), (8, 10)))
    assert {spec.owner for spec in stage_specs(specs, plan, 2)} == {5, 6, 7}
    assert {h.name.split(".")[1] for h in holdings(specs, plan)[0]} == {"tokens", "0", "1", "2", "5", "6", "7"}


def test_a_stage_alone_holds_both_ends():
    specs = specs_of()
    assert specs_of_stage(specs, layers=(0, 10), first=True, last=True) == specs
