"""Where state is cut, weights travel under the forward that follows: only what it does not hide takes time."""

from dataclasses import replace

import pytest

from raymega.config.schema import ModelConfig
from raymega.mesh import Mesh
from raymega.plan.cluster import Cluster, Node
from raymega.plan.hardware import DEVICES, Link, Links
from raymega.plan.job import RAYMEGA, Job
from raymega.plan.parallel_layout import ParallelLayout
from raymega.plan.predict import StepPrediction, predict, predict_layout
from raymega.plan.stages import balanced_layers
from tests.plan.plans import make_plan

MODEL = ModelConfig(num_layers=8, hidden_size=512, num_attention_heads=8, vocab_size=3000)
JOB = Job(model=MODEL, seq_len=256, batch_size=16)


def step(*, shard: str, bytes_per_s: float, pp: int = 1, job: Job = JOB) -> StepPrediction:
    link = Link(name="made", latency_s=0.0, bytes_per_s=bytes_per_s)
    nodes = tuple(Node(id=f"n{index}", devices=pp, device=DEVICES["a10g"]) for index in range(2))
    mesh = Mesh(dp=2, pp=pp, tp=1)
    layout = ParallelLayout(
        mesh=mesh, layers=balanced_layers(8, num_stages=pp), microbatch_size=8, shard_optimizer=shard
    )
    cluster = Cluster(nodes=nodes, links=Links(device=link, node=link, rack=link))
    return predict_layout(layout, job=job, cluster=cluster)


@pytest.mark.parametrize("pp", [1, 4])
def test_a_gather_that_ends_before_its_weights_are_read_takes_no_time(pp: int) -> None:
    whole, cut = (step(shard=shard, bytes_per_s=1e13, pp=pp).seconds.reduce_s for shard in ("none", "zero1"))
    assert cut == pytest.approx(whole / 2)


def test_of_a_slow_gather_all_is_seen_but_the_forward_that_it_hides() -> None:
    after = replace(JOB, software=replace(RAYMEGA, gathers_under_forward=False))
    for bytes_per_s in (1e7, 1e8, 1e9):
        under, bare = (step(shard="zero1", bytes_per_s=bytes_per_s, job=job) for job in (JOB, after))
        hidden = bare.step_s - under.step_s
        assert 0 < hidden <= under.seconds.compute_s
        assert bare.seconds.reduce_s == pytest.approx(step(shard="none", bytes_per_s=bytes_per_s).seconds.reduce_s)


def test_a_second_holder_takes_one_more_way() -> None:
    mirrored, cut = (step(shard=shard, bytes_per_s=1e13).seconds.reduce_s for shard in ("mirrored", "zero1"))
    assert mirrored == pytest.approx(2 * cut)


def test_what_a_plan_computes_again_is_in_its_prediction() -> None:
    plan = replace(make_plan(pp=2), layers=((0, 4), (4, 8)))
    cluster = Cluster(nodes=(Node(id="n0", devices=2),))
    none, full = (predict(plan, job=JOB, cluster=cluster, recompute=kind).seconds for kind in ("none", "full"))
    assert full.compute_s > 1.2 * none.compute_s
