"""Replicas that hold other bits than each other are found, before anything of it is saved."""

from dataclasses import replace

import pytest
import torch

from raymega.errors import StateError
from raymega.worker.interface import ShardsSaved
from tests.worker.killing import SMALL
from tests.worker.rig import thread_run, tiny_config, tiny_plan

MODEL = {**SMALL, "num_layers": 2, "tie_embeddings": True}
CASES = [((3, 1, 2), "mirrored"), ((2, 2, 1), "zero1")]


def compared(layout, kind, *, every: int):
    dp, tp, pp = layout
    settings = {"steps": 4, "lr": 0.02, "batch_size": 6, "micro_batch_size": 1, "optimizer": "adamw"}
    config = tiny_config(model=MODEL, elastic={"check_replicas_every": every}, **settings)
    return config, replace(tiny_plan(config, dp=dp, tp=tp, pp=pp), shard_optimizer=kind)


@pytest.mark.parametrize(("layout", "kind"), CASES, ids=str)
def test_whoever_holds_the_same_finds_the_same(layout, kind):
    config, plan = compared(layout, kind, every=1)
    with thread_run(config, num_workers=plan.mesh.size) as run:
        run.assign(plan)
        run.train(plan, until=3)
        run.weights(plan)


@pytest.mark.parametrize(
    ("layout", "kind", "name"),
    [
        ((2, 1, 1), "none", "layers.1.mlp_norm.weight"),
        ((1, 2, 1), "none", "final_norm.weight"),
        ((1, 1, 2), "none", "embed.tokens"),
        ((2, 1, 1), "mirrored", "layers.0."),
    ],
)
def test_a_bit_that_flips_on_one_of_them_ends_the_run_before_a_save(layout, kind, name, tmp_path):
    config, plan = compared(layout, kind, every=2)
    with thread_run(config, num_workers=plan.mesh.size, tmp_path=tmp_path) as run:
        run.assign(plan)
        run.train(plan, until=1)
        item = next(i for i in run.workers["w1"].state.items() if name in i.name and i.kind == "exp_avg")
        item.tensor.view(torch.int32).view(-1)[0] ^= 1 << 20
        with pytest.raises(StateError, match=r"hold other bits of .* \(.*\).* after step 2"):
            run.train(plan, first=1, until=3, save_at=(2,))
    assert not any(isinstance(report, ShardsSaved) for _, report in run.reports)
