"""Sums of gradients begin in the backward: the same bits, the longer of the two times, and no backward breaks."""

import pytest
import torch

from raymega.comm.local import LocalHub
from raymega.config.schema import LogConfig
from raymega.model.stage import build_stage
from raymega.worker import step
from raymega.worker.buckets import chunk_buckets
from raymega.worker.interface import Assignment, StepTrace, WorkerSettings
from raymega.worker.reduce import GradientSums
from tests.worker.killing import kill_world
from tests.worker.rig import run_layout, thread_run, tiny_config, tiny_plan
from tests.worker.slow_link import Hours, SlowLink

SMALL_BYTES = 8192  # a bucket for each block of small models, and for a third of the tiny one's
MODEL = (("num_layers", 4),)


@pytest.fixture
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "BUCKET_BYTES", SMALL_BYTES)


@pytest.mark.parametrize("tied", [True, False])
def test_buckets_cover_a_chunk_once_and_early_ones_come_from_its_end(tied):
    config = tiny_config(model={"num_layers": 4, "tie_embeddings": tied})
    model = build_stage(config, layers=(0, 4), first=True, last=True, team=None, seed=0)
    flat = model.flat
    found = chunk_buckets(flat, first_use=model.first_use, stage=0, bucket_bytes=100_000)
    assert [bucket.end for bucket in found[1:]] == [bucket.start for bucket in found[:-1]]
    assert (found[0].end, found[-1].start) == (flat.grad.numel(), 0)
    parts = [bucket.part for bucket in found if bucket.part]
    assert parts == sorted(parts, reverse=True)
    assert len(parts) >= 2
    for param in flat.params:
        (bucket,) = (b for b in found if b.start <= param.start < b.end)
        assert bucket.part is not None
        assert bucket.part <= (model.first_use[param.spec.name] if param.spec.decays else 0)


@pytest.mark.usefixtures("small_buckets")
@pytest.mark.parametrize(
    ("layout", "training"),
    [
        ((2, 1, 1), {"precision": "fp16", "recompute": "full"}),
        ((3, 1, 2), {"tied": True}),
        ((2, 2, 1), {}),
        ((2, 1, 2), {"schedule": "zb-h1", "tied": True}),
        ((2, 1, 2), {"schedule": "interleaved", "chunks": 2}),
        ((2, 1, 2), {"schedule": "zb-v", "chunks": 2, "recompute": [0, 3]}),
    ],
    ids=str,
)
def test_early_sums_have_the_bits_of_late_ones(layout, training, monkeypatch):
    model = (*MODEL, ("num_key_value_heads", 1), ("tie_embeddings", training.pop("tied", False)))
    early = run_layout(layout, steps=3, model=model, batch_size=12, **training)
    monkeypatch.setattr(GradientSums, "passed", lambda self, stage, part: None)
    late = run_layout(layout, steps=3, model=model, batch_size=12, **training)
    assert [report.facts for report in early.reports] == [report.facts for report in late.reports]
    assert all(torch.equal(weight, late.weights[name]) for name, weight in early.weights.items())


def hours_of_a_step(monkeypatch: pytest.MonkeyPatch, *, early: bool) -> tuple[int, int, int]:
    """Hours of a step, of its backward, and of its link."""
    hub, passed, days, parts = LocalHub(), GradientSums.passed, {"w0": Hours(), "w1": Hours()}, []

    def slowly(self: GradientSums, stage: int, part: int) -> None:
        days[self._world.me].now += 1
        parts.append((self._world.me, part))
        if early:
            passed(self, stage, part)

    def fabric(*, assignment: Assignment, settings: WorkerSettings) -> SlowLink:
        me, generation = settings.worker, assignment.generation
        return SlowLink(hub, me=me, generation=generation, hours=days[me], slowed="start_all_reduce")

    monkeypatch.setattr(GradientSums, "passed", slowly)
    config = tiny_config(model=dict(MODEL))
    plan = tiny_plan(config, dp=2, tp=1, pp=1)
    with thread_run(config, num_workers=2, wires=fabric) as run:
        run.assign(plan)
        run.train(plan, until=1)
    return days["w0"].now, len(parts) // 2, days["w0"].sums


@pytest.mark.parametrize("bucket_bytes", [SMALL_BYTES, 150_000], ids=["the link is slower", "the backward is"])
def test_a_step_takes_the_longer_of_backward_and_link_and_not_their_sum(monkeypatch, bucket_bytes):
    monkeypatch.setattr(step, "BUCKET_BYTES", bucket_bytes)
    with monkeypatch.context() as patch:
        late, backward, link = hours_of_a_step(patch, early=False)
    with monkeypatch.context() as patch:
        early, _, _ = hours_of_a_step(patch, early=True)
    at_end = 1  # a backward begins before its first sum, and the last sum after it
    assert late == backward + link
    assert max(backward, link) < early <= max(backward, link) + at_end + 1
    assert early < late - 2


@pytest.mark.usefixtures("small_buckets")
def test_a_trace_shows_what_travels_under_compute():
    config = tiny_config(model=dict(MODEL), steps=1).model_copy(update={"log": LogConfig(trace_steps=(1,))})
    plan = tiny_plan(config, dp=2, tp=1, pp=1)
    with thread_run(config, num_workers=2) as run:
        run.assign(plan)
        run.train(plan, until=1)
        (traced,) = run.wait_for(StepTrace, workers=("w1",), generation=1)
    (sums,) = (row for row in traced.rows if row.lane == "hidden")
    last = max((row for row in traced.rows if row.lane == "compute" and "B" in row.name), key=lambda row: row.start_s)
    assert last.start_s < sums.start_s < last.start_s + last.duration_s


CASES = [((2, 1, 1), "1f1b", "w0"), ((2, 1, 1), "1f1b", "w1"), ((2, 1, 2), "zb-h1", "w1"), ((2, 2, 1), "1f1b", "w0")]


@pytest.mark.usefixtures("small_buckets")
@pytest.mark.parametrize(("layout", "schedule", "victim"), CASES, ids=str)
def test_a_death_between_early_sums_breaks_no_backward_of_others(layout, schedule, victim):
    with kill_world(layout, num_layers=4, schedule=schedule) as world:
        world.look()
        points = [point for point in world.points[victim] if point.startswith("compute sum")]
        assert len(points) >= 2
        for point in points:
            case = world.kill(victim, at=point)
            assert case.recovered.kept
            world.check(case)
