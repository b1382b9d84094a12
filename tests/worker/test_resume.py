"""A checkpoint loads under any layout, moments included: the run goes on as if it had never stopped."""

import pytest

from raymega.checkpoint.find import newest_complete
from raymega.checkpoint.publish import publish, shards_of
from raymega.checkpoint.store import open_store
from raymega.errors import StateError
from raymega.layout.checkpoint_manifest import Manifest
from raymega.worker.interface import ShardsSaved, WorkerFailed
from raymega.worker.state import checkpoint_tensors
from tests.worker.rig import ThreadRun, relative, thread_run, tiny_config, tiny_plan

ADAM = {"optimizer": "adamw", "lr": 1e-3, "weight_decay": 0.1, "clip_grad": 1.0, "steps": 6}


def save(run: ThreadRun, plan, *, step: int, path) -> str:
    """Publish what the workers saved after `step`; the checkpoint's place."""
    saved = run.wait_for(ShardsSaved, workers=plan.workers, generation=1)
    manifest = Manifest(
        run_id="tiny", step=step, generation=1, samples=step * 8, seed=1234, config_digest="", tokenizer="",
        tensors=checkpoint_tensors(run.config), shards=shards_of(file for part in saved for file in part.files),
    )  # fmt: skip
    publish(open_store(f"{path}/checkpoints"), manifest=manifest, keep=2)
    found = newest_complete(f"{path}/checkpoints")
    assert found is not None
    return found.uri


def saved_by(layout, path, *, model=None, **plan_fields) -> tuple[str, list, dict]:
    """Train six steps on a layout, saving after three: (place of the checkpoint, reports, weights)."""
    config = tiny_config(model=model, **ADAM)
    plan = tiny_plan(config, dp=layout[0], tp=layout[1], pp=layout[2], **plan_fields)
    with thread_run(config, num_workers=plan.mesh.size, tmp_path=path) as run:
        run.assign(plan)
        run.train(plan, until=3, save_at=(3,))
        uri = save(run, plan, step=3, path=path)
        return uri, run.train(plan, first=3, until=6), run.weights(plan)


def resumed_on(layout, uri, path, *, model=None, **plan_fields) -> tuple[list, dict]:
    config = tiny_config(model=model, **ADAM)
    plan = tiny_plan(config, dp=layout[0], tp=layout[1], pp=layout[2], **plan_fields)
    with thread_run(config, num_workers=plan.mesh.size, tmp_path=path) as run:
        run.assign(plan, generation=2, step=3, checkpoint=uri)
        return run.train(plan, generation=2, first=3, until=6), run.weights(plan)


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize(("before", "after"), [((2, 1, 2), (1, 2, 1)), ((1, 2, 2), (2, 1, 1)), ((1, 1, 1), (2, 2, 2))])
def test_a_run_resumes_at_another_layout_as_if_it_had_not_stopped(before, after, tied, tmp_path):
    model = {"tie_embeddings": tied}
    uri, reports, weights = saved_by(before, tmp_path, model=model)
    mine, mine_weights = resumed_on(after, uri, tmp_path, model=model)
    assert [r.loss for r in mine] == pytest.approx([r.loss for r in reports], rel=1e-5)
    assert [r.grad_norm for r in mine] == pytest.approx([r.grad_norm for r in reports], rel=1e-5)
    assert max(relative(mine_weights[name], weight) for name, weight in weights.items()) < 1e-5


def test_masks_of_dropout_go_on_at_another_layout_where_they_were(tmp_path):
    model = {"dropout": 0.1, "num_layers": 4}
    uri, reports, _ = saved_by((2, 1, 1), tmp_path, model=model)
    mine, _ = resumed_on((1, 1, 2), uri, tmp_path, model=model)
    assert [r.loss for r in mine] == pytest.approx([r.loss for r in reports], rel=1e-5)
    assert [r.grad_norm for r in mine] == pytest.approx([r.grad_norm for r in reports], rel=1e-5)


def test_a_run_resumes_under_another_schedule(tmp_path):
    model = {"tie_embeddings": True}
    uri, reports, weights = saved_by((1, 1, 2), tmp_path, model=model, schedule="zb-v", chunks=2)
    mine, mine_weights = resumed_on((1, 1, 3), uri, tmp_path, model=model, schedule="interleaved", chunks=3)
    assert [r.loss for r in mine] == pytest.approx([r.loss for r in reports], rel=1e-5)
    assert max(relative(mine_weights[name], weight) for name, weight in weights.items()) < 1e-5


def test_a_run_resumes_at_the_same_layout_with_the_same_bits(tmp_path):
    uri, reports, weights = saved_by((2, 1, 2), tmp_path)
    mine, mine_weights = resumed_on((2, 1, 2), uri, tmp_path)
    assert [(r.loss, r.grad_norm, r.lr) for r in mine] == [(r.loss, r.grad_norm, r.lr) for r in reports]
    assert all(relative(mine_weights[name], weight) == 0 for name, weight in weights.items())


def test_a_checkpoint_of_another_optimizer_is_refused(tmp_path):
    uri, _, _ = saved_by((1, 1, 1), tmp_path)
    config = tiny_config(optimizer="sgd")
    plan = tiny_plan(config, dp=1, tp=1, pp=1)
    with thread_run(config, num_workers=1, tmp_path=tmp_path) as run, pytest.raises(StateError, match="exp_avg"):
        run.assign(plan, generation=2, step=3, checkpoint=uri)
    assert WorkerFailed in {type(report) for _, report in run.reports}


def test_a_run_that_starts_from_a_checkpoint_takes_its_parameters_and_nothing_else_at_any_layout(tmp_path):
    uri, _, _ = saved_by((2, 1, 2), tmp_path)
    config = tiny_config(**ADAM)
    one, team = tiny_plan(config, dp=1, tp=1, pp=1), tiny_plan(config, dp=1, tp=2, pp=1)
    with thread_run(config, num_workers=1, tmp_path=tmp_path) as run:
        run.assign(one, step=3, checkpoint=uri)
        saved = run.weights(one)
    started = config.model_copy(update={"run": config.run.model_copy(update={"init_from": uri})})
    with thread_run(started, num_workers=2, tmp_path=tmp_path) as run:
        run.assign(team)
        assert all(relative(run.weights(team)[name], weight) == 0 for name, weight in saved.items())
        assert not any(moment.any() for moment in run.weights(team, kind="exp_avg").values())
        (first,) = run.train(team, until=1)
    assert (first.step, first.lr) == (1, config.training.lr)
