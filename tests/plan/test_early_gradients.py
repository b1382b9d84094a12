"""A step is shorter by the products for weights that the stages before need not wait for."""

from dataclasses import replace

import pytest

from raymega.config.schema import ModelConfig
from raymega.mesh import Mesh
from raymega.plan.cluster import Cluster, Node
from raymega.plan.hardware import DEVICES, Link, Links
from raymega.plan.job import RAYMEGA, Job
from raymega.plan.parallel_layout import ParallelLayout
from raymega.plan.passes import Ground, virtual_stage_seconds
from raymega.plan.predict import PUBLISHED, predict_layout
from raymega.plan.seats import seats_of
from raymega.plan.stages import balanced_layers

MODEL = ModelConfig(num_layers=8, hidden_size=512, num_attention_heads=8, vocab_size=3000)
JOB = Job(model=MODEL, seq_len=256, batch_size=16)
LINK = Link(name="made", latency_s=0.0, bytes_per_s=1e15)


def ground(*, pp: int, tp: int = 1, **fields: object) -> Ground:
    mesh = Mesh(dp=1, pp=pp, tp=tp)
    layout = ParallelLayout(mesh=mesh, layers=balanced_layers(8, num_stages=pp), microbatch_size=2, **fields)
    cluster = Cluster(
        nodes=(Node(id="n0", devices=mesh.size, device=DEVICES["a10g"]),),
        links=Links(device=LINK, node=LINK, rack=LINK),
    )
    seats = seats_of(mesh, nodes=("n0",) * mesh.size, cluster=cluster)
    return Ground(job=JOB, layout=layout, seats=seats, cluster=cluster, constants=PUBLISHED)


def gained_s(on: Ground) -> float:
    """What a step of software that sends gradients at the end of a backward takes on top."""
    late = replace(JOB, software=replace(RAYMEGA, sends_early=False))
    after, before = (predict_layout(on.layout, job=job, cluster=on.cluster).step_s for job in (late, JOB))
    return after - before


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("pp", [2, 4])
def test_the_last_gradient_passes_all_stages_before_their_products_for_weights(pp: int, schedule: str) -> None:
    on = ground(pp=pp, schedule=schedule)
    waited_for = sum(seconds.weights_s for seconds in virtual_stage_seconds(on)[1:])
    assert gained_s(on) == pytest.approx(waited_for, rel=1e-3)


@pytest.mark.parametrize("fields", [{"tp": 2}, {"recompute": "full"}, {"schedule": "zb-h1"}], ids=str)
def test_where_parts_cost_something_or_are_actions_nothing_changes(fields: dict[str, object]) -> None:
    assert gained_s(ground(pp=2, **fields)) == 0.0
